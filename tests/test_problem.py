"""Problems and placements: parts that must fit together."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

import placekit as pk
from placekit.arrays import number_by_first
from placekit.model.errors import InvalidProblemError, UnknownNameError


def test_classes_join_colocation_and_fused_groups(diamond: pk.Problem) -> None:
    """a-b by colocation and b-c by fusion make one class of three; classes are numbered by their first op."""
    problem = diamond.colocate(["a", "b"]).replace(costs=diamond.costs.replace(op_group=[0, 7, 7, 9]))
    assert problem.op_class.tolist() == [0, 0, 0, 1]
    assert problem.num_classes == 2


@pytest.mark.parametrize("number", range(12))
def test_classes_are_the_components_of_both_kinds_of_labels(diamond: pk.Problem, number: int) -> None:
    """Against joining one pair of ops after the other; labels of either kind, of both, and of none."""
    rng = np.random.default_rng(number)
    num_ops = diamond.graph.num_ops
    colocation, group = (
        rng.integers(0, 3, num_ops) if number & bit else rng.permutation(num_ops).astype(np.int64) for bit in (1, 2)
    )
    costs = diamond.costs.replace(op_group=group)
    classes = list(range(num_ops))
    for u, v in itertools.combinations(range(num_ops), 2):
        if colocation[u] == colocation[v] or group[u] == group[v]:
            classes = [classes[u] if each == classes[v] else each for each in classes]
    expected = number_by_first(np.array(classes)).tolist()
    assert diamond.replace(colocation=colocation, costs=costs).op_class.tolist() == expected


def test_colocate_keeps_earlier_groups(diamond: pk.Problem) -> None:
    """Joining b and c after a and b makes one group of all three."""
    assert diamond.colocate(["a", "b"]).colocate(["b", "c"]).op_class.tolist() == [0, 0, 0, 1]


def test_costs_are_reordered_to_the_platform(diamond: pk.Problem) -> None:
    """The cost table's columns follow the platform's kinds."""
    swapped = diamond.costs.for_kinds(("acc", "cpu"))
    assert diamond.replace(costs=swapped).costs == diamond.costs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pinned": [0, 0, 0, 3]}, "op 'd' is pinned to device index 3; indices run from 0 to 2"),
        ({"colocation": [0]}, r"colocation has shape \(1,\); expected \(4,\)"),
        ({"platform": pk.Platform.of(tpu=1)}, "no costs for kind 'tpu'; the table has cpu, acc"),
        ({"graph": pk.OpGraph.from_edges(["a"], [])}, "the graph has 1 ops, the costs 4"),
    ],
)
def test_parts_that_do_not_fit_are_named(diamond: pk.Problem, changes: dict[str, object], message: str) -> None:
    """Every mismatch is refused at construction."""
    with pytest.raises(InvalidProblemError, match=message):
        diamond.replace(**changes)


def test_pin_names_unknown_ops_and_devices(diamond: pk.Problem) -> None:
    """Both ends of a pin are checked."""
    with pytest.raises(InvalidProblemError, match="'diamond' has no op 'z'"):
        diamond.pin({"z": "cpu.0"})
    with pytest.raises(UnknownNameError, match="no device 'gpu'"):
        diamond.pin({"a": "gpu"})


def test_problem_survives_pickling(diamond: pk.Problem) -> None:
    """Workers get the same problem."""
    assert pickle.loads(pickle.dumps(diamond)) == diamond


def test_placement_is_a_mapping(diamond: pk.Problem) -> None:
    """Names in, names out; a default device fills the gaps."""
    placement = pk.Placement.from_mapping(diamond, {"b": "acc.1"}, default="cpu.0")
    assert dict(placement) == {"a": "cpu.0", "b": "acc.1", "c": "cpu.0", "d": "cpu.0"}
    assert placement.ops_on("acc.1") == ["b"]
    assert "z" not in placement
    assert pickle.loads(pickle.dumps(placement)) == placement


@pytest.mark.parametrize(
    ("devices", "message"),
    [({"z": "cpu.0"}, "names op 'z', which 'diamond' does not have"), ({"a": "cpu.0"}, "no device for op 'b'")],
)
def test_wrong_mapping_is_named(diamond: pk.Problem, devices: dict[str, str], message: str) -> None:
    """Unknown and missing ops are errors."""
    with pytest.raises(InvalidProblemError, match=message):
        pk.Placement.from_mapping(diamond, devices)


def test_placement_index_out_of_range_is_named(diamond: pk.Problem) -> None:
    """A device index beyond the platform is refused."""
    with pytest.raises(InvalidProblemError, match="op 'd' has device index 9; indices run from 0 to 2"):
        pk.Placement.of(diamond, np.array([0, 0, 0, 9]))
