"""A training ends in time for the policy's own answer, and that answer ends in time, too."""

from __future__ import annotations

import numpy as np
import pytest
from limits import Stopwatch

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.learned.environment import Environment
from placekit.learned.training.pace import Pace, out_of_time
from placekit.solve.method import Run
from placekit.solve.registry import get_method
from placekit.solve.stop import StopReason

METHODS = ("placeto", "gdp", "rnn", "hsdag", "doppler", "imitation")


class _Timed(Run[pk.SerialLatency]):
    """A run whose clock is set by hand."""

    now_s = 0.0

    @property
    def elapsed_s(self) -> float:
        return self.now_s


@pytest.fixture
def run(toy: pk.Problem) -> _Timed:
    """Return a run of ten seconds that has not begun."""
    return _Timed(toy, pk.MaxRuntime(10))


def test_no_update_begins_that_would_not_fit(run: _Timed) -> None:
    """Updates of two seconds each, and one second that is kept for the answer: the fifth would end too late."""
    pace = Pace(run, answer_s=1.0)
    asked = []
    for run.now_s in (0.0, 2.0, 4.0, 6.0, 8.0):
        asked.append(pace.before_update())
    assert asked == [None, None, None, None, StopReason.TIME]
    run.now_s = 9.5
    assert out_of_time(run) is None
    run.now_s = 10.0
    assert out_of_time(run) is StopReason.TIME


def test_an_update_that_will_not_end_in_time_is_given_up(run: _Timed) -> None:
    """The first as soon as less than what it took so far is left; later ones by the time of the one before."""
    pace = Pace(run, answer_s=1.0)
    assert pace.before_update() is None
    run.now_s = 4.5
    assert pace.within_update() is None
    run.now_s = 4.6
    assert pace.within_update() is StopReason.TIME
    assert pace.before_update() is StopReason.TIME
    pace = Pace(run, answer_s=1.0)
    asked = []
    for run.now_s in (0.0, 4.0):
        asked.append(pace.before_update())
    for run.now_s in (6.0, 7.9, 8.5, 9.5):
        asked.append(pace.within_update())
    assert asked == [None, None, None, None, None, StopReason.TIME]


def test_without_a_limit_only_the_run_says_stop(toy: pk.Problem) -> None:
    """And whoever wants the answer now waits for no decoding."""
    run = Run(toy)
    pace = Pace(run)
    assert (pace.before_update(), pace.within_update(), out_of_time(run)) == (None, None, None)
    run.interrupted.set()
    assert (pace.before_update(), out_of_time(run)) == (StopReason.USER, StopReason.USER)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [pk.Makespan(), pk.Throughput(), pk.OffloadLatency()], ids=lambda each: each.name)
@pytest.mark.parametrize("method", METHODS)
def test_who_has_no_time_answers_with_single_devices(method: str, objective: pk.Objective) -> None:
    """Told to stop at any of the questions: never an error, and always an answer, at most the best single device's."""
    problem = generate("layered", 60, seed=1, num_devices=3, equal=False, objective=objective)
    problem = problem.replace(contiguity="none")
    best = Environment(problem).single_devices.min()
    for questions in (1, 3, 10, 40, 200):
        result = pk.solve(problem, get_method(method), stop=_AfterQuestions(questions), seed=1)
        assert result.objective is not None
        assert result.objective <= best * (1 + 1e-9), questions


class _AfterQuestions:
    """The clock of a machine on which every question takes as long: the limit is so many questions away."""

    gap = None

    def __init__(self, number: int) -> None:
        self.left = number

    @property
    def time_limit_s(self) -> float:
        self.left -= 1
        return 1e9 if self.left > 0 else 0.0

    def __call__(self, progress: object) -> StopReason | None:  # noqa: ARG002
        return None if self.time_limit_s else StopReason.TIME


def test_a_policy_decodes_less_where_there_is_no_time() -> None:
    """Fewer schedules and no refinement; the single devices are among the answers all the same."""
    problem = generate("inception", 60, seed=2, num_devices=3, equal=False, objective=pk.Makespan())
    environment = Environment(problem.replace(contiguity="none"))
    learner = get_method("imitation").make_learner(environment)  # type: ignore[attr-defined]  # it is learned
    whole = learner.decode()
    environment.should_stop = lambda: StopReason.TIME
    short = learner.decode()
    assert len(short) < len(whole) / 4
    rows = {row.tobytes() for row in short}
    single = environment.expand(environment.homogeneous)[[int(np.argmin(environment.single_devices))]]
    assert single[0].tobytes() in rows


SUITE = {
    "random": {},
    "policy-free": {},
    "local-search": {},
    **{name: {"updates": 10**9, "patience": 0} for name in METHODS},
}


@pytest.mark.slow
def test_all_methods_of_a_suite_take_the_same_time_or_say_why_not() -> None:
    """Searches use the whole limit, learners end at most one update and an answer before it; imports do not count."""
    limit_s = 3.0
    problem = generate("inception", 40, seed=1, num_devices=3, objective=pk.Makespan())
    for name, params in SUITE.items():
        pk.solve(problem, name, params=params, stop=pk.MaxRuntime(0.2))  # whatever is compiled on the first call
        watch = Stopwatch()
        result = pk.solve(problem, name, params=params, stop=pk.MaxRuntime(limit_s))
        told = f"{name} ended after {result.runtime_s:.2f} s, {result.stop_reason}"
        assert min(result.runtime_s, watch.seconds()) <= 1.1 * limit_s + 0.2, told
        assert result.stop_reason is not StopReason.TIME or result.runtime_s >= 0.85 * limit_s, told
        assert result.evaluations > 0
        assert name not in METHODS or result.info["updates"] > 0, told
