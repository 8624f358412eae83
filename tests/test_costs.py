"""Cost tables."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError


def test_unsupported_times_are_masked() -> None:
    """Whatever stands where an op is not supported is ignored, NaN included."""
    costs = CostTable(("a", "b"), [[1, np.nan]], np.zeros((0, 2)), [0], supported=[[True, False]])  # type: ignore[arg-type]
    assert costs.op_time_s.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op_time_s": [[1.0, -1.0]]}, "op 0 has op_time_s -1.0 on kind 'b'"),
        ({"op_time_s": [[1.0, np.inf]]}, "op 0 has op_time_s inf on kind 'b'"),
        ({"transfer_time_s": [[np.nan, 0.0]]}, "tensor 0 has transfer_time_s nan on kind 'a'"),
        ({"op_memory_bytes": [-5]}, "op 0 has op_memory_bytes -5.0"),
        ({"op_time_s": [[1.0]]}, r"op_time_s has shape \(1, 1\); expected \(1, 2\)"),
        ({"kinds": ("a", "a")}, "each named once"),
    ],
)
def test_bad_input_is_named(changes: dict[str, object], message: str) -> None:
    """Every wrong number is refused with op or tensor, kind, value and bound."""
    good = {"kinds": ("a", "b"), "op_time_s": [[1, 2]], "transfer_time_s": [[0, 0]], "op_memory_bytes": [0]}
    with pytest.raises(InvalidProblemError, match=message):
        CostTable(**(good | changes))  # type: ignore[arg-type]


def test_kinds_can_be_chosen_and_reordered() -> None:
    """for_kinds picks columns; a kind without costs is an error."""
    costs = CostTable(("a", "b"), [[1, 2]], [[3, 4]], [0], op_time_spread=[[0.1, 0.2]])  # type: ignore[arg-type]
    picked = costs.for_kinds(("b",))
    assert (picked.op_time_s.tolist(), picked.transfer_time_s.tolist()) == ([[2.0]], [[4.0]])
    assert picked.op_time_spread is not None
    assert picked.op_time_spread.tolist() == [[0.2]]
    with pytest.raises(InvalidProblemError, match="no costs for kind 'c'; the table has a, b"):
        costs.for_kinds(("c",))


def test_tables_are_equal_by_content_and_survive_pickling() -> None:
    """Provenance included."""
    costs = CostTable(("a",), [[1]], [[0]], [0], provenance={"source": "given"})  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(costs)) == costs
    assert costs != costs.replace(op_time_s=[[2]])


@pytest.mark.parametrize(
    ("provenance", "error"),
    [
        ({}, 0.075),
        ({"error": 0.02}, 0.02),
        ({"calibration": {"applied": True, "error_before": 0.3, "error_after": 0.04}}, 0.04),
        ({"calibration": {"applied": False, "error_before": 0.3, "error_after": 0.4}}, 0.3),
        ({"kinds": {"cpu": {"error": 0.5}}}, 0.5),
        ({"kinds": {"cpu": {"error": None}}}, None),
        ({"kinds": {"gpu": {"error": 0.5}}}, 0.075),
    ],
)
def test_error_is_what_is_known_best(provenance: dict[str, object], error: float | None) -> None:
    """Half of the spread of all times, 0.1 of 3 s and 0.3 of 1 s, unless something tells more."""
    measured = (np.array([[3.0], [1.0]]), np.zeros((1, 1)), np.zeros(2))
    costs = CostTable(("cpu",), *measured, op_time_spread=np.array([[0.1], [0.3]]), provenance=provenance)
    assert costs.error == (error if error is None else pytest.approx(error))
    assert CostTable(("cpu",), *measured).error is None
