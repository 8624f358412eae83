"""The makespan with direct links between devices: its judges, its relaxation, and what methods make of it."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from linked_problems import check_enumeration, check_promises, near, on_two_nodes
from makespan_optimum import best_makespan
from strategies import MAKESPANS, examples, linked, problems

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_fifo, simulate_steps
from placekit.solve.lifting.without_links import without_links
from placekit.solvers.generic.enumeration.orders import best_order
from placekit.solvers.sequence.auto import plan
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import objective as second_judge

FREE = st.just(Contiguity.NONE)
ANY_ORDER = linked(problems(max_ops=10, objective=st.sampled_from(MAKESPANS), contiguity=FREE))
SMALL = linked(problems(max_ops=5, max_devices=4, objective=st.just(pk.Makespan()), contiguity=FREE))


def supported_devices(data: st.DataObject, problem: Problem) -> tuple[int, ...]:
    """Draw a placement in which every op is supported by its device."""
    kinds = problem.platform.kind_of_device
    choices = [np.flatnonzero(problem.costs.supported[op, kinds]).tolist() for op in range(problem.graph.num_ops)]
    return tuple(data.draw(st.sampled_from(choice)) for choice in choices)


@examples(300)
@given(data=st.data(), problem=ANY_ORDER)
def test_all_judges_agree_and_the_relaxation_ends_no_later(data: st.DataObject, problem: Problem) -> None:
    """Judge, exact twin, batch and definition say the same; in the relaxation the same orders end no later."""
    device = supported_devices(data, problem)
    judged = problem.objective.score(problem, np.array(device))
    assert judged.objective_s == oracle.objective(problem, device)
    exact = ExactProblem.of(problem)
    assert float(second_judge(exact, list(device)) or 0) == near(judged.objective_s)
    batch = problem.objective.batch_score(problem)
    assert batch is not None
    assert batch(np.array([device]))[0] <= judged.objective_s
    schedule = judged.schedule
    assert schedule is not None
    step = np.argsort(schedule.op[~schedule.is_transfer])
    again = problem.objective.score(problem, np.array(device), step)
    assert again.objective_s == judged.objective_s
    relaxed = without_links(problem)
    least_s = relaxed.objective.score(relaxed, np.array(device), step).objective_s
    assert least_s <= judged.objective_s
    value = second_judge(exact, list(device), step.tolist())
    assert value is not None
    assert float(value) == near(judged.objective_s)
    if not problem.objective.contention:
        least = second_judge(exact.without_links, list(device), step.tolist())
        assert least is not None
        assert least <= value
        assert float(least) == near(least_s)


@examples(300)
@given(data=st.data(), problem=linked(problems(max_ops=5, objective=st.just(pk.Makespan()), contiguity=FREE)))
def test_the_best_order_is_the_best_of_all_orders(data: st.DataObject, problem: Problem) -> None:
    """With and without one transfer at a time, against every permutation; that of the relaxation ends no later."""
    device = np.array(supported_devices(data, problem))
    instance, relaxed = instance_of(problem), instance_of(without_links(problem))
    for contention in (False, True):
        runs = (
            simulate_steps(instance, device, np.array(step), has_contention=contention)
            for step in itertools.permutations(range(len(device)))
        )
        least = min(run.makespan_s for run in runs if not isinstance(run, int))
        assert best_order(instance, device, contention, np.inf)[0] == near(least)
        assert best_order(relaxed, device, False, np.inf)[0] <= least * (1 + 1e-12)


@examples(300)
@given(problem=SMALL)
def test_enumeration_finds_the_optimum_and_the_relaxation_has_none_above(problem: Problem) -> None:
    """Against all placements in all orders."""
    best, least = best_makespan(problem), best_makespan(without_links(problem))
    check_enumeration(problem, best)
    assert (least is None) == (best is None)
    assert (least or 0) <= (best or 0) * (1 + 1e-12)


@pytest.mark.parametrize(
    "method",
    ["auto", "cpsat", "bound", "local-search:3", "heft", "m-etf", "m-sct", "greedy", "random:300"],
)
def test_no_method_promises_what_is_not_there(method: str) -> None:
    """No objective is below the optimum, no bound above it; what claims to be proven is."""

    @examples({"bound": 300, "cpsat": 100}.get(method, 60))
    @given(problem=SMALL)
    def check(problem: Problem) -> None:
        check_promises(problem, method, best_makespan(problem))

    check()


@examples(200)
@given(problem=linked(problems(objective=st.sampled_from(MAKESPANS), contiguity=FREE, with_memory=False)))
def test_prices_of_moves_are_what_the_schedule_says(problem: Problem) -> None:
    """Every device's transfer time is the sum of what `crossing_s` asks of it for the tensors that move."""
    device = np.arange(problem.graph.num_ops) % problem.platform.num_devices
    assume(problem.costs.supported[np.arange(len(device)), problem.platform.kind_of_device[device]].all())
    score = problem.objective.score(problem, device)
    expected = np.zeros(problem.platform.num_devices)
    for t, producer, readers in oracle.tensors(problem):
        source = int(device[producer])
        targets = sorted({int(device[r]) for r in readers} - {source})
        if targets:
            for d, seconds in problem.objective.crossing_s(problem, t, source, targets).items():
                expected[d] += seconds
    assert score.transfer_s == near(expected)


def two_nodes(*, contention: bool = False) -> Problem:
    """Return a diamond on two nodes."""
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    return on_two_nodes(edges, pk.Makespan(contention=contention), contiguity=Contiguity.NONE)


def test_branches_stay_on_a_node() -> None:
    """By hand: c gets its input at 2.1 s and ends at 4.1 s, the tensor of b is there by then, and d ends at 6.1 s."""
    problem = two_nodes()
    result = pk.solve(problem)
    assert result.objective == near(6.1)
    assert str(result.status) == "optimal"
    assert len({"xyxy"[d] for d in result.placement.device_of_op.tolist()}) == 1  # type: ignore[union-attr]
    far = pk.evaluate(problem, pk.Placement.of(problem, [0, 0, 1, 0]))
    assert far.objective == near(8.0)  # 2 s, 1 s over, 2 s, 1 s back, 2 s
    assert far.score is not None
    assert far.score.transfer_s == near(np.array([1.0, 1.0, 0.0, 0.0]))


def test_a_sender_sends_one_at_a_time_over_whatever_link() -> None:
    """With contention the tensor of a goes to gpu.1 first (1 s), then to gpu.2 (0.1 s)."""
    problem = two_nodes(contention=True)
    score = pk.evaluate(problem, pk.Placement.of(problem, [0, 1, 2, 0])).score
    assert score is not None
    assert score.schedule is not None
    moves = score.schedule.is_transfer & (score.schedule.op == 0)
    assert score.schedule.peer[moves].tolist() == [1, 2]
    assert score.schedule.finish_s[moves] == near(np.array([3.0, 3.1]))


def test_the_plan_is_that_without_links() -> None:
    """The makespan's own methods know links, so ``auto`` has them as they are."""
    assert plan(two_nodes()) == plan(without_links(two_nodes()))


def test_list_schedules_are_planned_over_the_links() -> None:
    """What `heft` plans is what the judge finds: it promises as much."""
    problem = two_nodes()
    result = pk.solve(problem, method="heft")
    assert result.objective == near(6.1)
    instance = instance_of(problem)
    assert simulate_fifo(instance, [0, 0, 2, 2]).makespan_s == near(6.1)
