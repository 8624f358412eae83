"""Patterns of ops: names, wildcards, types and regular expressions, in Python, in files and on the command line."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import placekit as pk
from placekit.model.errors import InvalidProblemError
from placekit.model.op_patterns import matching_ops

NAMES = ["layers.0.mlp", "layers.1.mlp", "layers.10.mlp", "odd[1]", "head"]
TYPES = ["MatMul", "MatMul", "MatMul", "Add", "Softmax"]


@pytest.fixture
def graph() -> pk.OpGraph:
    """Return five ops in a row with telling names."""
    return pk.OpGraph.from_edges(NAMES, list(pairwise(NAMES)), name="named", op_types=TYPES)


@pytest.mark.parametrize(
    ("pattern", "ops"),
    [
        ("head", [4]),
        ("odd[1]", [3]),  # a name is a name, whatever characters it has
        ("layers.?.mlp", [0, 1]),
        ("layers.[0-9]*", [0, 1, 2]),
        ("type:MatMul", [0, 1, 2]),
        ("type:*d*", [3]),
        (r"re:layers\.\d\d\..*", [2]),
    ],
)
def test_pattern_stands_for_these_ops(graph: pk.OpGraph, pattern: str, ops: list[int]) -> None:
    """Names come first, then what the prefix says, else wildcards."""
    assert matching_ops(graph, pattern) == ops


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("haed", "problem 'named' has no op 'haed'; did you mean 'head'"),
        ("type:Conv*", "has no op 'type:Conv\\*'; its types are Add"),
        ("re:(", "no regular expression"),
        ("layers.2*", "has no op 'layers.2\\*'"),
    ],
)
def test_pattern_without_an_op_is_refused(graph: pk.OpGraph, pattern: str, says: str) -> None:
    """A pattern that binds nothing is a mistake, never silence."""
    with pytest.raises(InvalidProblemError, match=says):
        matching_ops(graph, pattern)


def test_the_last_pattern_counts(graph: pk.OpGraph) -> None:
    """A rule for many ops, then an exception."""
    costs = pk.CostTable(("cpu",), np.ones((5, 1)), np.zeros((4, 1)), np.zeros(5))
    problem = pk.Problem(graph, pk.Platform.of(cpu=3), costs, contiguity=pk.Contiguity.NONE)
    pinned = problem.pin({"layers.*": "cpu.0", "type:Softmax": "cpu.2", "layers.1.mlp": "cpu.1"})
    assert pinned.pinned.tolist() == [0, 1, 0, -1, 2]
