"""Graphs of DOPPLER: sizes, times, transfers, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import placekit as pk
from placekit.model.errors import InvalidFileError

DIAMOND = """6
0, 1,
0, 0, 1, 2, 2,
1, 2, 3, 3, 3,
10000000000,20000000000
20000000000,5000000000,einsummable
30000000000,5000000000
10000000000,0
"""
"""Two inputs, and a diamond of 1, 2, 3 and 1 s; the tensor of the first op takes 2 s, those of the branches half."""


def written(folder: Path, text: str, name: str = "diamond.txt") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_text(text)
    return path


def test_a_graph_is_read_and_solved_by_hand(tmp_path: Path) -> None:
    """On one device 7 s; with the branch of 2 s apart 5 s, half a second and the last op, which better stays there."""
    problem = pk.read_workload(written(tmp_path, DIAMOND))
    assert (problem.graph.num_ops, problem.graph.num_edges, problem.platform.num_devices) == (4, 4, 4)
    assert problem.graph.op_types == ("Op", "einsummable", "Op", "Op")
    assert (problem.objective.name, str(problem.contiguity)) == ("makespan", "none")
    assert pk.evaluate(problem, pk.Placement.of(problem, [0, 0, 0, 0])).objective == pytest.approx(7.0)
    assert pk.evaluate(problem, pk.Placement.of(problem, [0, 1, 0, 0])).objective == pytest.approx(6.5)
    assert pk.solve(problem, "enumerate").objective == pytest.approx(6.0)
    assert pk.read_workload(written(tmp_path, DIAMOND, "8gpu_x.txt")).platform.num_devices == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("6\n", "many\n"), "lines 1 to 4 should hold whole numbers only"),
        (("6\n", "7\n"), "5 nodes beside the inputs with 4 lines of costs"),
        (("1, 2, 3, 3, 3,", "1, 2, 3, 3,"), "5 senders with 4 receivers"),
        (("1, 2, 3, 3, 3,", "1, 2, 3, 3, 9,"), "an edge of node 9; the last node is 3"),
        (("30000000000,5000000000", "3e10"), "line 7: '3e10' is no pair"),
    ],
)
def test_broken_files_are_refused(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    """With what is wrong and where."""
    with pytest.raises(InvalidFileError, match=message):
        pk.read_workload(written(tmp_path, DIAMOND.replace(*change)))
