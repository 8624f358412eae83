"""A solve in progress: its clock, what it keeps of answers and bounds, and when it is to stop."""

from __future__ import annotations

import math
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import placekit as pk
from placekit import machine
from placekit.model.errors import InvalidProblemError, JudgeDisagreementError
from placekit.model.placement import Violation
from placekit.solve.certificates import NoDevice
from placekit.solve.result import OPTIMALITY_TOLERANCE, Incumbent
from placekit.solve.run import MAX_SEED, Run
from placekit.solve.stop import MaxIterations, MaxRuntime, NoImprovement, StopReason, TargetGap

CPU, ACC = [0, 0, 0, 0], [1, 1, 1, 1]
"""Placements of the diamond: 16 s, and the best, 4 s."""


class Clock:
    """Clock that goes when it is told to."""

    now = 100.0

    def __init__(self) -> None:
        self.preparing, self.compiling = SimpleNamespace(total_s=7.0), SimpleNamespace(total_s=7.0)

    def __call__(self) -> float:
        """Return seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of all runs of the test, with those of kernels."""
    clock = Clock()
    for name, value in {"perf_counter": clock, "preparing": clock.preparing, "compiling": clock.compiling}.items():
        monkeypatch.setattr(import_module("placekit.solve.run"), name, value)
    return clock


def uneven(problem: pk.Problem) -> pk.Problem:
    """Return the problem with times that have no common divisor, so that bounds stay as they are."""
    return problem.replace(costs=problem.costs.replace(op_time_s=problem.costs.op_time_s * np.pi))


def test_kernels_stop_the_clock(diamond: pk.Problem, clock: Clock) -> None:
    """Of three seconds two went into kernels, half a second of them into compiling."""
    run = Run(diamond, MaxRuntime(10))
    clock.now += 3
    clock.preparing.total_s += 2
    clock.compiling.total_s += 0.5
    assert (run.elapsed_s, run.compile_s, run.load_s, run.remaining_s) == (1, 0.5, 1.5, 9)
    clock.compiling.total_s += 9
    assert run.load_s == 0
    run.offer(ACC)
    assert run.trace == [Incumbent(1, 4.0, None)]
    clock.now += 8.5
    assert (run.remaining_s, run.should_stop()) == (0.5, None)
    clock.now += 0.5
    assert (run.remaining_s, run.should_stop()) == (0, StopReason.TIME)
    clock.now += 1
    assert run.remaining_s == 0


def test_a_stage_ends_when_its_time_is_up(diamond: pk.Problem, clock: Clock) -> None:
    """Without a limit there is none left inside either; a limit counts from where the stage begins."""
    run = Run(diamond)
    clock.now += 5
    with run.limited_to(None):
        assert (run.remaining_s, run.should_stop()) == (None, None)
    with run.limited_to(2.0):
        assert (run.remaining_s, run.should_stop()) == (2.0, None)
        with run.limited_to(None):
            assert run.remaining_s == 2.0
        clock.now += 2
        assert run.should_stop() is StopReason.TIME
    assert run.remaining_s is None
    assert run.should_stop() is None
    limited = Run(diamond, MaxRuntime(10))
    with pytest.raises(KeyError), limited.limited_to(1.0):
        raise KeyError
    assert limited.remaining_s == 10


def test_patience_is_the_user_s_or_the_limit_s(diamond: pk.Problem) -> None:
    """A search of its own under a time limit never tires."""
    assert Run(diamond).tries(None, 7) == 7
    assert Run(diamond, MaxRuntime(10)).tries(None, 7) == math.inf
    assert Run(diamond, MaxRuntime(10)).tries(0, 7) == 0


def test_the_best_answer_is_kept(diamond: pk.Problem, clock: Clock) -> None:
    """A better one replaces it, one as good does not; every line of the trace is told when it is written."""
    told: list[Incumbent] = []
    run = Run(diamond, on_progress=told.append)
    assert (run.objective, run.placement, run.gap, run.is_proven) == (None, None, None, False)
    said = run.offer(CPU)
    assert (said.objective, run.objective, run.evaluation) == (16.0, 16.0, said)
    clock.now += 1
    run.offer(pk.Placement.of(diamond, ACC))
    clock.now += 1
    run.offer([2, 2, 2, 2])
    run.offer(CPU)
    assert run.placement == pk.Placement.of(diamond, ACC)
    run.raise_bound(2.0, "half")
    assert run.trace == told == [Incumbent(0, 16.0, None), Incumbent(1, 4.0, None), Incumbent(2, 4.0, 2.0)]
    assert (run.evaluations, run.gap, run.is_proven, run.nearest) == (4, 0.5, False, None)


def test_answers_without_progress_end_a_search(diamond: pk.Problem) -> None:
    """A better answer begins the count anew; inside of a search for a first answer nothing counts."""
    run = Run(diamond, NoImprovement(2))
    run.offer(CPU)
    run.count_evaluations(1)
    run.offer(ACC)
    run.offer(CPU)
    assert (run.evaluations, run.should_stop()) == (4, None)
    run.count_evaluations(1)
    assert run.should_stop() is StopReason.ITERATIONS
    with run.uncounted():
        with run.uncounted():
            assert run.should_stop() is None
        assert run.should_stop() is None
    assert run.should_stop() is StopReason.ITERATIONS
    assert Run(diamond, MaxIterations(1)).should_stop() is None
    counted = Run(diamond, MaxIterations(2))
    counted.count_evaluations(2)
    assert (counted.evaluations, counted.should_stop()) == (2, StopReason.ITERATIONS)
    with counted.uncounted():
        assert counted.should_stop() is None


def test_the_answer_that_breaks_least_is_remembered(diamond: pk.Problem) -> None:
    """The first of those with the fewest broken constraints; it is no answer."""
    platform = pk.Platform.of(cpu=1, acc=2, host="cpu", links=diamond.platform.links, memory_bytes={"acc": 1.0})
    run = Run(diamond.replace(platform=platform, contiguity="convex"))
    both, memory = run.offer([1, 0, 0, 1]), run.offer([0, 0, 1, 1])
    assert len(both.violations) == 2
    assert [violation.constraint for violation in memory.violations] == ["memory"]
    assert run.nearest is memory
    run.offer([0, 0, 2, 2])
    run.offer([1, 0, 0, 1])
    assert run.nearest is memory
    assert (run.placement, run.objective, run.trace) == (None, None, [])


def test_a_promise_is_held(diamond: pk.Problem) -> None:
    """The judge may say a millionth more than the method does."""
    run = Run(diamond)
    run.offer(ACC, at_most=4 * (1 - 9e-7))
    with pytest.raises(JudgeDisagreementError, match=r"promises at most 3\.9 s, the judge says 4\.0 s"):
        run.offer(ACC, at_most=3.9)
    with pytest.raises(JudgeDisagreementError, match="promises at most"):
        run.offer(ACC, at_most=4 * (1 - 1.2e-6))


def test_only_better_bounds_count(diamond: pk.Problem) -> None:
    """A worse one, or the same again, changes neither name nor certificate."""
    run = Run(uneven(diamond))
    made: list[int] = []

    def make() -> NoDevice:
        made.append(1)
        return NoDevice(0)

    run.raise_bound(np.float64(2.0), "two", make)
    for bound in (1.0, 2.0):
        run.raise_bound(bound, "no better", NoDevice(1))
    assert (run.bound, type(run.bound), run.bound_name, len(run.trace)) == (2.0, float, "two", 1)
    assert (run.certificate, run.certificate, made) == (NoDevice(0), NoDevice(0), [1])
    run.raise_bound(3.0, "three")
    assert (run.bound, run.bound_name, run.certificate) == (3.0, "three", None)


def test_an_answer_below_the_bound_is_a_bug_beyond_its_tolerance(diamond: pk.Problem) -> None:
    """A bound that comes first is rounded down to the answer, or contradicts it."""
    problem = uneven(diamond)
    best = 4 * np.pi
    run = Run(problem)
    run.raise_bound(best * (1 + 9e-7), "a solver")
    run.offer(ACC)
    assert (run.bound, run.is_proven) == (run.objective, True)
    wrong = Run(problem)
    wrong.raise_bound(13.0, "a solver")
    with pytest.raises(JudgeDisagreementError, match=r"bound 13\.0 s \(a solver\) lies above the achieved objective"):
        wrong.offer(ACC)


def test_proofs_and_signals_end_a_run(diamond: pk.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt comes first, then a proof, then memory; infeasibility ends what nothing else does."""
    run = Run(diamond)
    assert run.should_stop() is None
    monkeypatch.setattr(machine, "is_exhausted", lambda: True)
    assert run.should_stop() is StopReason.MEMORY
    run.offer(ACC)
    run.raise_bound(4.0, "work", tolerance=OPTIMALITY_TOLERANCE)
    assert (run.is_proven, run.tolerance) == (True, OPTIMALITY_TOLERANCE)
    assert run.should_stop() is StopReason.PROVED
    run.interrupted.set()
    assert run.should_stop() is StopReason.USER
    monkeypatch.undo()
    nothing = Run(diamond)
    why = Violation("memory", "too little")
    assert nothing.prove_infeasible(why, certificate=NoDevice(0)) is StopReason.PROVED
    assert (nothing.infeasible_because, nothing.certificate) == ((why,), NoDevice(0))
    assert nothing.should_stop() is StopReason.PROVED


def test_the_gap_that_was_asked_for(diamond: pk.Problem) -> None:
    """None is as good as 0."""
    stops = (None, MaxRuntime(1), TargetGap(0.1), MaxRuntime(1) | TargetGap(0.2))
    assert [Run(diamond, stop).asked_gap for stop in stops] == [0, 0, 0.1, 0.2]


def test_seeds_have_a_range(diamond: pk.Problem) -> None:
    """What a result file can say; one seed gives one sequence."""
    for seed in (-1, 2**63):
        with pytest.raises(InvalidProblemError, match=rf"seed is {seed}; it must be from 0 to {2**63 - 1}"):
            Run(diamond, seed=seed)
    assert MAX_SEED == 2**63 - 1
    first, again, other = (Run(diamond, seed=seed).rng.random() for seed in (MAX_SEED, MAX_SEED, 0))
    assert first == again != other
    assert Run(diamond).seed == 0


def test_settling_on_an_answer(diamond: pk.Problem) -> None:
    """A worse one is written to the trace, a better one once, as if it was offered."""
    run = Run(diamond)
    run.settle_on(pk.Placement.of(diamond, ACC))
    run.settle_on(pk.Placement.of(diamond, CPU))
    assert [line.objective for line in run.trace] == [4.0, 16.0]
    assert (run.objective, run.evaluations) == (16.0, 2)
    with pytest.raises(InvalidProblemError, match="the answer to problem 'diamond' breaks: "):
        run.settle_on(pk.Placement.of(diamond, [1, 0, 0, 1]))
    assert run.objective == 16.0
