"""The environment: batched rewards equal the judge; masks, groups, penalties."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import blocked, examples, problems

import placekit as pk
from placekit.learned.environment import INFEASIBLE_COST, Environment
from placekit.learned.kernels import line_up
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.objectives import Makespan, OffloadLatency

OBJECTIVES = st.one_of(
    st.builds(pk.Throughput, overlap=st.booleans(), schedule=st.sampled_from(["1f1b", "gpipe"])),
    st.builds(pk.SerialLatency, st.sampled_from([0.0, 0.5])),
    st.builds(Makespan, st.sampled_from(["fifo", "upward-rank"]), st.booleans()),
    st.builds(OffloadLatency, st.integers(1, 2)),
)


@given(problems(objective=OBJECTIVES) | blocked(problems(objective=OBJECTIVES)), st.randoms(use_true_random=False))
@examples(300)
def test_batched_rewards_equal_the_judge(problem: pk.Problem, random: Random) -> None:
    """For every objective, contiguity and constraint, shared memory too: infinity exactly where the judge objects."""
    try:
        environment = Environment(problem)
    except UnsupportedProblemError:
        reject()
    num_ops, num_devices = problem.graph.num_ops, problem.platform.num_devices
    rows = np.array([[random.randint(0, num_devices - 1) for _ in range(num_ops)] for _ in range(6)])
    rows = np.concatenate([rows, environment.expand(environment.homogeneous), environment.expand(rows)])
    found = environment.evaluate(rows)
    for row, objective in zip(rows, found.tolist(), strict=True):
        judged = pk.evaluate(problem, environment.answer(row))
        expected = judged.objective if judged.is_feasible else None
        plain = pk.evaluate(problem, pk.Placement.of(problem, row))
        assert plain.is_feasible == judged.is_feasible
        assert not judged.is_feasible or objective <= (plain.objective or 0.0) * (1 + 1e-9) + 1e-12
        assert objective == (np.inf if expected is None else pytest.approx(expected, rel=1e-9, abs=1e-12))
    costs = environment.costs(rows)
    assert np.isfinite(costs).all()
    assert (costs[np.isinf(found)] >= INFEASIBLE_COST).all()


@given(problems(objective=OBJECTIVES))
@examples(60)
def test_masks_allow_what_support_pins_and_classes_allow(problem: pk.Problem) -> None:
    """A placement inside the mask breaks neither support nor pins nor colocation."""
    try:
        environment = Environment(problem)
    except UnsupportedProblemError:
        reject()
    for actions in environment.homogeneous:
        assert environment.mask[np.arange(environment.num_groups), actions].all()
        placement = pk.Placement.of(problem, environment.expand(actions[None])[0])
        assert not {v.constraint for v in pk.evaluate(problem, placement).violations} & {"support", "pin", "colocation"}


def test_the_best_is_remembered_and_evaluations_are_counted(diamond: pk.Problem) -> None:
    """Over several batches, feasible placements only."""
    environment = Environment(diamond.replace(objective=pk.SerialLatency(), contiguity="none"))
    assert (environment.best, environment.evaluations) == (None, 0)
    environment.evaluate(np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]]))
    environment.evaluate(np.array([[0, 0, 0, 1]]))
    assert environment.best is not None
    assert (environment.best.tolist(), environment.best_objective, environment.evaluations) == ([1, 1, 1, 1], 4.0, 4)


def test_costs_are_relative_to_the_best_single_device(diamond: pk.Problem) -> None:
    """The best single device costs 1; a placement over its memory costs more the more it exceeds it."""
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", memory_bytes={"acc": 2.0})
    problem = diamond.replace(objective=pk.SerialLatency(), contiguity="none", platform=platform)
    environment = Environment(problem)
    assert environment.single_devices.tolist() == [16.0, np.inf, np.inf]
    assert environment.reference_s == 16.0
    costs = environment.costs(np.array([[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]))
    assert costs.tolist() == pytest.approx([1.0, 2.25, 2.5])


def test_groups_are_one_action_each(diamond: pk.Problem) -> None:
    """Actions per group are expanded to ops; a group's mask is what all of its ops allow."""
    pinned = diamond.pin({"d": "cpu.0"})
    environment = Environment(pinned, group_of_op=np.array([0, 1, 1, 1]))
    assert environment.num_groups == 2
    assert environment.mask.tolist() == [[True, True, True], [True, False, False]]
    assert environment.expand(np.array([[1, 0]])).tolist() == [[1, 0, 0, 0]]
    assert environment.coarsened(np.array([7, 7, 7, 7])).num_groups == 1


def test_bad_groups_are_refused(diamond: pk.Problem) -> None:
    """Labels with holes, classes torn apart, and groups without a device are named."""
    with pytest.raises(InvalidProblemError, match=r"groups must label 4 ops by 0 \.\. num_groups - 1"):
        Environment(diamond, group_of_op=np.array([0, 2, 2, 2]))
    with pytest.raises(InvalidProblemError, match="groups separate ops 'b' and 'a' of one class"):
        Environment(diamond.colocate(["a", "b"]), group_of_op=np.arange(4))
    with pytest.raises(UnsupportedProblemError, match="the group of op 'a' may go to no device"):
        Environment(diamond.pin({"a": "cpu.0", "b": "acc.0"}), group_of_op=np.zeros(4, dtype=np.int64))


def test_any_callable_can_be_the_reward(diamond: pk.Problem) -> None:
    """A measured time takes the judge's place; it is asked about feasible placements only."""
    asked = []

    def measured(placements: NDArray[np.int64]) -> NDArray[np.float64]:
        asked.extend(placements.tolist())
        return np.full(len(placements), 2.0)

    environment = Environment(diamond, measured)
    assert environment.evaluate(np.array([[0, 1, 1, 0], [0, 0, 1, 1]])).tolist() == [np.inf, 2.0]
    assert asked == [[0, 0, 1, 1]]


def test_placements_are_brought_into_line() -> None:
    """No edge goes back along the chain of devices, and pinned ops stay where they are."""
    names, rng, broken = "abcdefgh", np.random.default_rng(0), 0

    def breaks(problem: pk.Problem, row: NDArray[np.int64]) -> bool:
        found = pk.evaluate(problem, pk.Placement.of(problem, row)).violations
        return "contiguity" in {each.constraint for each in found}

    for _ in range(10):
        edges = [(names[int(rng.integers(at))], names[at]) for at in range(1, 8) for _ in range(2)]
        graph = pk.OpGraph.from_edges(list(names), edges)
        costs = pk.CostTable(("gpu",), np.ones((8, 1)), np.zeros((graph.num_tensors, 1)), np.zeros(8))
        problem = pk.Problem(graph, pk.Platform.of(gpu=3), costs, pk.Throughput(), pk.Contiguity.ACYCLIC)
        rows = rng.integers(3, size=(8, 8))
        broken += sum(breaks(problem, row) for row in rows)
        moved = rows.copy()
        line_up(*Environment(problem)._class_graph, moved)
        assert not any(breaks(problem, row) for row in moved)
        pinned = Environment(problem.pin({"d": "gpu.1"}))
        rows[:, 3] = 1
        line_up(*pinned._class_graph, rows)
        assert (rows[:, 3] == 1).all()
    assert broken >= 20


def test_costs_leave_single_devices_behind_where_samples_break_contiguity() -> None:
    """A chain whose ends are wanted on one device: no sample is feasible, the best is a pipeline all the same."""
    graph = pk.OpGraph.from_edges(list("abcd"), [("a", "b"), ("b", "c"), ("c", "d")])
    costs = pk.CostTable(("gpu",), np.ones((4, 1)), np.zeros((3, 1)), np.zeros(4))
    problem = pk.Problem(graph, pk.Platform.of(gpu=2), costs, pk.Throughput(), contiguity=pk.Contiguity.ACYCLIC)
    environment = Environment(problem)
    costs_of = environment.costs(np.array([[0, 1, 0, 1], [0, 1, 0, 1]]))
    assert (costs_of >= INFEASIBLE_COST).all()
    assert environment.best_objective is not None
    assert environment.best_objective < environment.single_devices.min()
    assert environment.infeasible == 2
    assert environment.why_refused() == "contiguity acyclic"
