"""Native libraries and standard output."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

import placekit as pk
from placekit.solvers.generic.metis import quiet_stdout

pytestmark = pytest.mark.skipif(os.name != "posix", reason="standard output is redirected by POSIX calls")


def test_what_c_prints_inside_is_lost_and_what_it_prints_around_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    """Buffers of C are emptied on both sides."""
    libc = ctypes.CDLL(None)
    libc.printf(b"before\n")
    with quiet_stdout():
        libc.printf(b"inside\n")
    libc.printf(b"after\n")
    libc.fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"


def test_bug_metis_prints_where_json_goes(capfd: pytest.CaptureFixture[str]) -> None:
    """With more devices than ops METIS complains on standard output."""
    pytest.importorskip("pymetis")
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("b", "c")])
    costs = pk.CostTable(("acc",), np.ones((3, 1)), np.ones((2, 1)), np.zeros(3))
    result = pk.solve(pk.Problem(graph, pk.Platform.of(acc=8), costs), "metis")
    ctypes.CDLL(None).fflush(None)
    assert result.placement is not None
    assert capfd.readouterr().out == ""
