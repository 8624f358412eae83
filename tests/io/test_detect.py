"""Which kind of file is which; broken and foreign files are named errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from placekit.io.files.detect import kind_of_file
from placekit.model.errors import InvalidFileError


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("model.xml", "", "model"),
        ("MODEL.ONNX", "", "model"),
        ("platform.toml", "", "platform"),
        ("a.json", '{"nodes": [], "edges": [], "maxFPGAs": 1}', "workload"),
        ("a.json", '{"maxFPGAs": 1, "nodes": []}', "workload"),
        ("a.json", '{"edges": [], "nodes": []}', "workload"),
        ("a.json", '{"schema": "placekit/problem/7"}', "problem"),
        ("a.json", '{"schema": "placekit/costs/1"}', "costs"),
        ("a.json", '{"schema": "placekit/placement/1"}', "placement"),
        ("a.json", '{"schema": "placekit/result/1"}', "result"),
        ("a.json", '{"conv1": "GPU", "relu": "CPU"}', "placement"),
        ("a.json", '{"schema": "CPU"}', "placement"),
    ],
)
def test_kind_is_known_by_suffix_and_content(tmp_path: Path, name: str, text: str, kind: str) -> None:
    """Models and platforms are not opened; JSON is."""
    (tmp_path / name).write_text(text)
    assert kind_of_file(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", "a file with suffix '.csv' is nothing that placekit reads"),
        ("a.json", "{", "not JSON: line 1"),
        ("a.json", "[1]", "a JSON list; expected an object"),
        ("a.json", "null", "a JSON null; expected an object"),
        ("a.json", "3", "a JSON number; expected an object"),
        ("a.json", "{}", "an object without fields; expected workload, problem, costs, placement, result"),
        ("a.json", '{"schema": "placekit/trace/1"}', "unknown schema 'placekit/trace/1'; known are problem, costs"),
        ("a.json", '{"fpgas": []}', "it has no placekit schema, is no workload"),
    ],
)
def test_other_files_are_named_errors(tmp_path: Path, name: str, text: str, message: str) -> None:
    """The message says what is read and why this is none of it."""
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidFileError, match=message):
        kind_of_file(tmp_path / name)
