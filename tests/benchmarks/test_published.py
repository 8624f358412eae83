"""Predictions of published measurements."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from placekit.benchmarks.published import (
    Predicted,
    accuracy,
    decisions,
    kept_rows,
    predictions,
    read_measurements,
    read_predictions,
    write_predictions,
)
from placekit.benchmarks.report.truth import plot_truth, truth
from placekit.cli.main import app
from placekit.language.truth import PUBLISHED
from placekit.model.errors import InvalidFileError, InvalidProblemError

pytestmark = pytest.mark.xdist_group("published")  # one process predicts, once


@pytest.fixture(scope="module")
def found() -> list[Predicted]:
    """Return the predictions of all rows that come with placekit."""
    return list(predictions(read_measurements(kept_rows())))


def test_predictions_are_as_true_as_the_page_says(found: list[Predicted]) -> None:
    """Typical factors and those of nine rows in ten, on all rows whose host memory is known."""
    known = [each for each in found if each.row.host_memory_known is not False]
    decode = accuracy("", [ratio for each in known if (ratio := each.ratio("generated")) is not None])
    prompt = accuracy("", [ratio for each in found if (ratio := each.ratio("prompt")) is not None])
    assert (decode.count, prompt.count) == (106, 102)
    assert decode.typical < 1.12
    assert decode.nine_in_ten < 1.45
    assert prompt.typical < 1.28
    assert prompt.nine_in_ten < 2.0


def test_ranges_of_answers_are_those_of_the_measurements(found: list[Predicted]) -> None:
    """The factor that two of three predictions of a class are within, of classes with at least ten measurements."""
    for what, factors in PUBLISHED.items():
        members: dict[str, list[float]] = {}
        for each in found:
            if (ratio := each.ratio(what)) is not None:
                members.setdefault(each.row.kind, []).append(max(ratio, 1 / ratio))
        large = {kind: sorted(each) for kind, each in members.items() if len(each) >= 10}
        assert {kind: each[2 * len(each) // 3] for kind, each in large.items()} == pytest.approx(
            dict(factors), abs=0.01
        )


def test_choices_lose_little(found: list[Predicted]) -> None:
    """Of the splits that people measured the prediction ranks the best one first, or one nearly as fast."""
    for what, most in (("generated", 0.005), ("prompt", 0.01)):
        made = list(decisions(found, what))
        assert len(made) >= 9
        assert sum(each.regret for each in made) / len(made) <= most


def test_accuracy_of_four_ratios() -> None:
    """Median, percentiles and factors, by hand."""
    four = accuracy("x", [0.5, 1.0, 1.0, 4.0])
    assert (four.median, four.typical, four.nine_in_ten) == (1.0, 1.5, 4.0)
    assert (four.tenth, four.ninetieth) == (0.5, 4.0)


def test_predictions_are_written_and_read_back(found: list[Predicted], tmp_path: Path) -> None:
    """A row carries its measurement, so that the table needs nothing else."""
    write_predictions(found[:3], tmp_path / "rows.jsonl")
    assert read_predictions(tmp_path / "rows.jsonl") == found[:3]
    both = (tmp_path / "rows.jsonl").read_text() + row()
    (tmp_path / "both.jsonl").write_text(both)
    with pytest.raises(InvalidFileError, match="lacks predicted_prompt_tokens_per_s"):
        read_predictions(tmp_path / "both.jsonl")
    (tmp_path / "new.jsonl").write_text(row())
    assert read_predictions(tmp_path / "new.jsonl") == found[:1]


def row(**changes: object) -> str:
    """Return the first kept row with changes, as a line."""
    return json.dumps(json.loads(kept_rows().read_text().splitlines()[0]) | changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"devices": ["RTX 9999"]}, "measurement 1 .*no card 'RTX 9999'"),
        ({"blocks_on_host": 5, "blocks_per_device": [32]}, "5 blocks on the host and 32 elsewhere; llama3-8b has 32"),
        ({"shape": {"layers": 32}}, "decoder|hidden"),
    ],
)
def test_a_row_that_makes_no_sense_is_named(changes: dict[str, object], told: str, tmp_path: Path) -> None:
    """One line says which measurement, and what is wrong."""
    path = tmp_path / "rows.jsonl"
    path.write_text(row(**changes))
    with pytest.raises(InvalidProblemError, match=told):
        list(predictions(read_measurements(path)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no measurement"),
        ("{", ":1: line"),
        (row(generated_tokens_per_s=-1), ":1: generated_tokens_per_s is -1"),
        (row(model=None), ":1: model is None"),
    ],
)
def test_a_broken_file_is_named(text: str, told: str, tmp_path: Path) -> None:
    """File, line, field and value."""
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidFileError, match=told):
        read_measurements(path)


def test_the_command_predicts_a_file_and_the_report_prints_its_table(tmp_path: Path) -> None:
    """From a file of measurements to the table, through the command line."""
    some = "\n".join(kept_rows().read_text().splitlines()[60:80])
    (tmp_path / "mine.jsonl").write_text(some)
    run = CliRunner()
    first = run.invoke(
        app, ["bench", "published", "--measurements", str(tmp_path / "mine.jsonl"), "-o", str(tmp_path / "out")]
    )
    assert first.exit_code == 0, first.output
    again = run.invoke(app, ["report", str(tmp_path / "out" / "published.jsonl"), "--table", "truth"])
    assert again.exit_code == 0, again.output
    line = next(each for each in again.output.splitlines() if each.startswith("| partly on the host"))
    assert line in first.output
    assert line.split("|")[2].strip() == "13"
    drawn = run.invoke(
        app,
        ["report", str(tmp_path / "out" / "published.jsonl"), "--table", "truth", "-o", str(tmp_path / "truth.svg")],
    )
    assert drawn.exit_code == 0, drawn.output
    assert "partly on the host" in (tmp_path / "truth.svg").read_text()
    refused = run.invoke(app, ["report", str(tmp_path / "out"), "--table", "best", "-o", str(tmp_path / "best.html")])
    assert "goes with the page, or with --table truth" in str(refused.exception)


def test_the_picture_has_a_point_per_row() -> None:
    """Each panel has as many points as rows that the table counts."""
    found = read_predictions(kept_rows())
    rows = {title: dict(zip(table.columns, row, strict=True)) for title, table in truth(found) for row in table.rows
            if row[0] == "all"}  # fmt: skip
    drawn = [sum(np.shape(points.get_offsets())[0] for points in ax.collections) for ax in plot_truth(found).axes]
    assert drawn == [int(row["rows"]) for row in rows.values()]
