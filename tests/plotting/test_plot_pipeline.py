"""The Gantt chart of a steady pipeline: stages one step apart, members of a team in turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import placekit as pk
from placekit.cli.main import app
from placekit.model.errors import InvalidProblemError
from placekit.plotting.plot_pipeline import plot_pipeline, stage_levels


def two_stages() -> pk.Problem:
    """Return a chain of three ops of 1, 2 and 3 ms on two GPUs; a transfer takes 0.5 ms."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")], name="chain")
    costs = pk.CostTable(("gpu",), np.array([[1e-3], [2e-3], [3e-3]]), np.full((2, 1), 5e-4), np.ones(3))
    return pk.Problem(graph, pk.Platform.of(gpu=2), costs).pin({"a": "gpu.1", "b": "gpu.1", "c": "gpu.0"})


def test_second_stage_starts_a_step_later() -> None:
    """Rows are in the order of the stages; every sample moves one step of 3.5 ms per stage."""
    problem = two_stages()
    ax = plot_pipeline(pk.solve(problem), problem.graph)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["gpu.1", "gpu.0"]
    numbers = [(text.get_text(), round(text.get_position()[0], 2), text.get_position()[1]) for text in ax.texts]
    assert numbers[0] == ("1", 1.5, 0)
    assert ("2", 5.0, 0) in numbers
    assert ("1", 5.0, 1) in numbers
    assert "a sample every 3.5 ms" in ax.get_title(loc="left")


def test_members_of_a_team_take_turns() -> None:
    """Two equal devices with the whole model: each takes every other sample, for two steps."""
    problem = two_stages().replace(objective=pk.Throughput(teams="equal"), pinned=None)
    result = pk.solve(problem)
    assert result.objective == pytest.approx(3e-3)
    ax = plot_pipeline(result, problem.graph)
    samples = {row: [text.get_text() for text in ax.texts if text.get_position()[1] == row] for row in (0, 1)}
    assert samples == {0: ["1", "3", "5"], 1: ["2", "4", "6"]}


def test_levels_join_devices_that_need_each_other() -> None:
    """Without contiguity two devices may follow each other both ways; they count as one stage."""
    graph = pk.OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "d")])
    assert stage_levels(graph, np.array([0, 1, 0, 2])) == {0: 0, 1: 0, 2: 1}


def test_other_objectives_have_no_pipeline(diamond: pk.Problem) -> None:
    """A makespan has a schedule of its own."""
    result = pk.solve(diamond.replace(objective=pk.Makespan(), contiguity="none"), method="heft")
    with pytest.raises(InvalidProblemError, match=r"makespan.*has no pipeline"):
        plot_pipeline(result, diamond.graph)


def test_show_draws_it_for_a_throughput(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph comes from the problem of the result."""
    monkeypatch.chdir(tmp_path)
    pk.write_problem(two_stages(), "chain.problem.json")
    for command in (["solve", "chain.problem.json"], ["show", "chain.result.json", "--gantt", "steady.png"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    assert Path("steady.png").stat().st_size > 1000
