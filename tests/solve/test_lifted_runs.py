"""Runs of another problem: what they pass to the run of this one."""

from __future__ import annotations

import math

import pytest

import placekit as pk
from placekit.model.placement import Placement, Violation
from placekit.solve.certificates import NoDevice
from placekit.solve.lifting.lift import Lift, LiftedRun, Within, as_it_is, left_s, reason_of, resumed
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solve.run import Run
from placekit.solve.stop import MaxIterations, MaxRuntime, Progress, StopReason, TargetGap

CPU, ACC = [0, 0, 0, 0], [1, 1, 1, 1]
"""Placements of the diamond: 16 s, and the best, 4 s."""
REFUSED = Violation("memory", "refused")


def cheap(problem: pk.Problem) -> pk.Problem:
    """Return a relaxation: everything takes a quarter of the time."""
    return problem.replace(costs=problem.costs.replace(op_time_s=problem.costs.op_time_s / 4))


def test_the_outer_run_ends_the_inner_one(diamond: pk.Problem) -> None:
    """So does a time limit of its own; the gap is that of another problem."""
    outer = Run(diamond, MaxIterations(2))
    within = Within(outer, 5.0)
    assert (within.time_limit_s, within.gap, Within(outer).time_limit_s) == (5.0, None, None)
    assert within(Progress(4.0, 0)) is None
    assert within(Progress(5.0, 0)) is StopReason.TIME
    assert Within(outer)(Progress(1e9, 0)) is None
    outer.count_evaluations(2)
    assert within(Progress(0.0, 0)) is StopReason.ITERATIONS
    assert Within(outer)(Progress(0.0, 0)) is StopReason.ITERATIONS


def test_an_inner_run_begins_with_what_the_outer_one_has(diamond: pk.Problem) -> None:
    """Its time, seed, signals, facts, warm start and best placement, as far as they can be translated."""
    outer = Run(diamond, MaxRuntime(50.0), 3, pk.Placement.of(diamond, CPU))
    outer.offer(ACC)
    lift = Lift(cheap(diamond))
    assert (lift.up, lift.down, lift.is_bound, lift.certifies, lift.is_exact) == (
        as_it_is,
        as_it_is,
        False,
        True,
        False,
    )
    inner = LiftedRun(outer, lift)
    assert inner.problem is lift.problem
    assert (inner.outer, inner.lift, inner.seed, inner.warm_start) == (outer, lift, 3, outer.warm_start)
    assert inner.interrupted is outer.interrupted
    assert inner.info is outer.info
    assert (inner.placement, inner.objective) == (outer.placement, 1.0)
    assert inner.remaining_s == pytest.approx(50.0, abs=5)
    other = LiftedRun(outer, Lift(cheap(diamond), down=lambda _: None), 2.0, 0)
    assert (other.placement, other.warm_start, other.seed) == (None, None, 0)
    assert other.remaining_s == pytest.approx(2.0, abs=1)
    bare = LiftedRun(Run(diamond), lift)
    assert (bare.placement, bare.warm_start, bare.remaining_s) == (None, None, None)


def test_time_that_is_left(diamond: pk.Problem) -> None:
    """All there is without a limit."""
    assert left_s(Run(diamond)) == math.inf
    assert left_s(Run(diamond, MaxRuntime(0.0))) == 0
    assert as_it_is(placement := pk.Placement.of(diamond, CPU)) is placement


def test_gaps_are_the_same_where_optima_are(diamond: pk.Problem) -> None:
    """Else the inner run has none to stop at."""
    outer = Run(diamond, TargetGap(0.1))
    assert LiftedRun(outer, Lift(diamond, is_exact=True)).asked_gap == 0.1
    assert LiftedRun(outer, Lift(diamond)).asked_gap == 0


def test_better_answers_go_up(diamond: pk.Problem) -> None:
    """The outer run judges what may be its best, and counts what the inner one judges."""
    outer = Run(diamond)
    inner = LiftedRun(outer, Lift(cheap(diamond), up=lambda found: Placement.of(diamond, found.device_of_op)))
    said = inner.offer(CPU)
    assert (said.objective, inner.objective, outer.objective) == (4.0, 4.0, 16.0)
    assert (inner.evaluations, outer.evaluations) == (1, 2)
    inner.offer(ACC)
    assert (inner.objective, outer.objective, outer.evaluations) == (1.0, 4.0, 4)
    inner.offer(CPU)
    assert (inner.objective, outer.objective, outer.evaluations) == (1.0, 4.0, 5)  # as cheap as the best: not looked at
    inner.count_evaluations(10)
    assert (inner.evaluations, outer.evaluations) == (13, 15)


def test_what_cannot_be_translated_is_infeasible(diamond: pk.Problem) -> None:
    """Loads stay for people to look at; the outer run never hears of it."""
    outer = Run(diamond)
    inner = LiftedRun(outer, Lift(diamond, up=lambda _: REFUSED))
    said = inner.offer(ACC)
    assert (said.objective, said.violations, said.is_feasible) == (None, (REFUSED,), False)
    assert said.device_loads == pk.evaluate(diamond, pk.Placement.of(diamond, ACC)).device_loads
    assert (inner.objective, inner.nearest, outer.evaluations, outer.nearest) == (None, said, 1, None)


def test_an_infeasible_answer_is_shown_where_there_is_none(diamond: pk.Problem) -> None:
    """Until the outer run has a feasible one: then only those that may be better are judged there."""
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", links=diamond.platform.links, memory_bytes={"acc": 1.0})
    tight = diamond.replace(platform=platform)
    outer = Run(tight)
    inner = LiftedRun(outer, Lift(tight))
    inner.offer(ACC)
    assert outer.nearest is not None
    assert outer.evaluations == 2
    inner.offer(CPU)
    assert (outer.objective, outer.evaluations) == (16.0, 4)
    inner.offer(ACC)
    assert (outer.objective, outer.evaluations) == (16.0, 5)


def test_limits_on_evaluations_are_those_of_both(diamond: pk.Problem) -> None:
    """A search for a first answer is counted neither here nor there."""
    outer = Run(diamond, MaxIterations(1))
    inner = LiftedRun(outer, Lift(diamond))
    inner.count_evaluations(1)
    assert outer.should_stop() is inner.should_stop() is StopReason.ITERATIONS
    with inner.uncounted():
        assert outer.should_stop() is inner.should_stop() is None
    assert outer.should_stop() is inner.should_stop() is StopReason.ITERATIONS


@pytest.mark.parametrize(("is_bound", "certifies"), [(True, True), (True, False), (False, True)])
def test_bounds_go_up_where_they_hold(diamond: pk.Problem, is_bound: bool, certifies: bool) -> None:
    """A certificate only where it is one of this problem, too."""
    outer = Run(diamond)
    inner = LiftedRun(outer, Lift(diamond, is_bound=is_bound, certifies=certifies))
    inner.raise_bound(3.0, "work", NoDevice(0), tolerance=OPTIMALITY_TOLERANCE)
    assert (inner.bound, inner.bound_name, inner.certificate) == (3.0, "work", NoDevice(0))
    proof = NoDevice(0) if certifies else None
    assert (outer.bound, outer.bound_name) == ((3.0, "work") if is_bound else (None, None))
    assert outer.certificate == (proof if is_bound else None)
    assert inner.prove_infeasible(REFUSED, certificate=NoDevice(1)) is StopReason.PROVED
    assert (inner.infeasible_because, inner.certificate) == ((REFUSED,), NoDevice(1))
    assert outer.infeasible_because == ((REFUSED,) if is_bound else None)
    assert outer.certificate == (NoDevice(1) if certifies and is_bound else None)


def test_a_bound_of_sums_stays_one(diamond: pk.Problem) -> None:
    """The tolerance goes up with it."""
    problem = diamond.replace(costs=diamond.costs.replace(op_time_s=diamond.costs.op_time_s * math.pi))
    outer = Run(problem)
    outer.offer(ACC)
    assert outer.objective is not None
    LiftedRun(outer, Lift(problem, is_bound=True)).raise_bound(
        outer.objective * (1 - 5e-7), "sums", tolerance=OPTIMALITY_TOLERANCE
    )
    assert not outer.is_proven
    LiftedRun(outer, Lift(problem, is_bound=True)).raise_bound(outer.objective * (1 - 4e-7), "a solver")
    assert outer.is_proven


def test_a_run_goes_on_where_it_stopped(diamond: pk.Problem) -> None:
    """The next run under the same key has the placement, the bound, and what was done."""
    outer = Run(diamond)

    def make() -> LiftedRun:
        return LiftedRun(Run(diamond), Lift(diamond))

    first = resumed(outer, "teams", make)
    assert outer.parts == {"teams": first}
    assert (first.placement, first.bound) == (None, None)
    first.done.add("search")
    first.parts["inner"] = outer
    first.raise_bound(2.0, "work", NoDevice(0))
    second = resumed(outer, "teams", make)
    assert (second.placement, second.bound, second.bound_name, second.certificate) == (None, 2.0, "work", NoDevice(0))
    second.offer(ACC)
    third = resumed(outer, "teams", make)
    assert outer.parts == {"teams": third}
    assert (third.placement, third.bound) == (pk.Placement.of(diamond, ACC), 2.0)
    assert third.done == {"search"}
    assert third.parts == {"inner": outer}
    assert resumed(outer, "links", make).bound is None


def test_why_an_inner_run_ended(diamond: pk.Problem) -> None:
    """What is proven of another problem is not proven of this one."""
    run = Run(diamond, MaxIterations(1))
    assert reason_of(run, StopReason.PROVED) is StopReason.FINISHED
    assert reason_of(run, StopReason.TIME) is StopReason.TIME
    run.count_evaluations(1)
    assert reason_of(run, StopReason.PROVED) is StopReason.ITERATIONS
