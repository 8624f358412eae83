"""``placekit show``: every kind of file, figures, schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from placekit.model.problem import Problem

Call = Callable[..., Any]


@pytest.fixture
def files(call: Call, diamond_file: Path, diamond: Problem, tmp_path: Path) -> Path:
    """Return a folder with one file of every JSON and TOML kind."""
    from placekit.io.files.costs_json import write_costs
    from placekit.io.files.platform_toml import write_platform

    call("solve", diamond_file)
    write_costs(diamond.costs, diamond.graph, tmp_path / "diamond.costs.json")
    write_platform(diamond.platform, tmp_path / "platform.toml")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("diamond.result.json", ["2.5 ms", "optimal", "GPU.1", "█"]),
        ("diamond.placement.json", ["diamond", "GPU.1", "25.0%"]),
        ("diamond.problem.json", ["4 ops", "throughput", "contiguity none", "2 of 4"]),
        ("diamond.costs.json", ["diamond", "conv", "4"]),
        ("platform.toml", ["GPU.0", "gpu", "250 us"]),
    ],
)
def test_show_tells_the_essentials_in_80_columns(call: Call, files: Path, name: str, texts: list[str]) -> None:
    """Every kind of file is recognised, its essentials are printed, nothing is wider than a terminal."""
    done = call("show", name)
    assert done.returncode == 0, done.stderr
    for text in texts:
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("diamond.result.json", "placement", {"read": "CPU", "conv": "GPU.0", "pool": "GPU.1", "add": "CPU"}),
        ("diamond.placement.json", "num_ops", {"CPU": 2, "GPU.0": 1, "GPU.1": 1}),
        ("diamond.problem.json", "schema", "placekit/problem/1"),
        ("diamond.costs.json", "ops", ["read", "conv", "pool", "add"]),
        ("platform.toml", "spec_of_kind", {}),
    ],
)
def test_show_json_is_one_object(call: Call, files: Path, name: str, key: str, value: object) -> None:
    """With ``--json`` stdout is one JSON object that holds what the file says."""
    assert json.loads(call("show", name, "--json").stdout)[key] == value


def test_show_model_counts_ops(call: Call, model_file: Path) -> None:
    """A model is shown by its counts, with and without constants."""
    printed = json.loads(call("show", model_file, "--json").stdout)
    assert printed["op_types"]["Convolution"] == 6
    assert printed["num_nodes"] > printed["num_ops"]
    assert re.search(r"^Convolution +6$", call("show", model_file).stdout, re.MULTILINE)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot_writes_the_format_of_the_suffix(call: Call, files: Path, suffix: str) -> None:
    """``--plot`` draws a result in three formats."""
    done = call("show", "diamond.result.json", "--plot", f"figure.{suffix}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == {"plot": f"figure.{suffix}"}
    start = (files / f"figure.{suffix}").read_bytes()[:400]
    assert {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}[suffix] in start


def test_plot_refuses_other_suffixes(call: Call, files: Path) -> None:
    """An unknown image format is a named error that lists the known ones."""
    done = call("show", "diamond.result.json", "--plot", "figure.gif")
    assert done.returncode == 2
    assert "png, svg, pdf" in done.stderr


@pytest.mark.parametrize("kind", ["problem", "costs", "placement", "result", "workload"])
def test_schema_is_printed(call: Call, kind: str) -> None:
    """``--schema`` prints a JSON Schema that names its properties."""
    assert "properties" in json.loads(call("show", "--schema", kind).stdout)


@pytest.fixture
def scheduled(call: Call, diamond_file: Path) -> str:
    """Return the name of a result that has a schedule."""
    done = call("solve", diamond_file, "--objective", "makespan", "--contiguity", "none", "--method", "heft")
    assert done.returncode == 0, done.stderr
    return "diamond.result.json"


def test_gantt_and_trace_are_written(call: Call, scheduled: str, tmp_path: Path) -> None:
    """``--gantt`` draws, ``--trace`` writes, and both are named in the answer."""
    done = call("show", scheduled, "--gantt", "gantt.svg", "--trace", "trace.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == {"gantt": "gantt.svg", "trace": "trace.json"}
    assert b"<svg" in (tmp_path / "gantt.svg").read_bytes()
    names = {event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"read", "conv", "pool", "add", "memory"} <= names


@pytest.mark.usefixtures("files")
def test_gantt_needs_a_schedule(call: Call, diamond_file: Path) -> None:
    """A result without a clock, and a file that is no result, are refused in one line."""
    call("solve", diamond_file, "--objective", "serial-latency", "--contiguity", "none")
    done = call("show", "diamond.result.json", "--gantt", "gantt.png")
    assert done.returncode == 2
    assert "has no schedule to draw" in done.stderr
    done = call("show", "platform.toml", "--trace", "trace.json")
    assert done.returncode == 2
    assert "--trace needs a result" in done.stderr
