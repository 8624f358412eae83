"""Work shared out, and proofs by cases: never above any schedule, and what they say on small graphs by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, known_optimum, refute
from strategies import examples

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.solvers.makespan.bounds.quick import look
from placekit.solvers.makespan.bounds.shared_work import share_out, shared_work
from placekit.solvers.makespan.bounds.windows import narrow
from placekit.solvers.makespan.decomposition import case_split as cases
from placekit.solvers.makespan.decomposition.case_split import refute_by_cases
from placekit.solvers.makespan.schedule.tasks import make_tasks

EPS = 1e-9


def never() -> bool:
    """Do not stop."""
    return False


@given(SMALL)
@examples(60)
def test_no_limit_above_the_optimum_is_refuted(problem: pk.Problem) -> None:
    """Shares and cases, against enumeration of placements and orders."""
    optimum = known_optimum(problem)
    assume(optimum > 0)
    tasks = make_tasks(problem)
    for limit_s in (optimum, 1.3 * optimum, 3 * optimum):
        windows = narrow(tasks, limit_s)
        assert windows is not None
        shares = shared_work(windows, limit_s)
        assert shares is None or shares.bound_s <= limit_s * (1 + EPS)
        assert look(tasks, limit_s) is not None
    rng = np.random.default_rng(0)
    refuted = list(refute_by_cases(tasks, 0.3 * optimum, 2 * optimum, rng, never, rounds=1))
    assert refuted == sorted(refuted)
    assert all(limit_s <= optimum * (1 + EPS) for limit_s in refuted)


@given(SMALL, st.integers(0, 2**32 - 1))
@examples(100)
def test_what_is_closed_for_a_limit_no_schedule_within_it_uses(problem: pk.Problem, seed: int) -> None:
    """Windows and surcharges leave open what any schedule found by search does, with its makespan as the limit."""
    result = pk.solve(problem, "random", seed=seed, stop=pk.MaxIterations(20))
    assume(result.placement is not None)
    assert result.placement is not None
    assert result.objective is not None
    tasks = make_tasks(problem)
    found = look(tasks, result.objective)
    assert found is not None
    assert found.least_s <= result.objective * (1 + EPS)
    device = result.placement.device_of_op[tasks.op]
    assert np.isfinite(found.tasks.time_s[np.arange(tasks.num_ops), device]).all()
    inner = found.windows.tasks
    for v, group in enumerate(tasks.group[device].tolist()):
        assert np.isfinite(inner.time_s[v, inner.group == group]).any()


def test_work_is_shared_out_where_it_is_cheap() -> None:
    """Two ops that are ten times as fast on one of two devices, and one that is divided: 1.5 s."""
    time_s = np.array([[1.0, 10.0], [10.0, 1.0], [1.0, 1.0]])
    nothing, one_each = np.zeros((3, 2)), np.array([1, 1])
    shares = share_out(time_s, nothing, nothing, np.arange(3), one_each, 5.0)
    assert shares is not None
    assert shares.bound_s == pytest.approx(1.5)
    assert shares.surcharge_s == pytest.approx(np.array([[0.0, 4.5], [4.5, 0.0], [0.0, 0.0]]))


def test_what_comes_before_and_after_counts_on_every_device() -> None:
    """Four ops of 1 s on two equal devices, each 2 s after the beginning and 3 s before the end: 2 + 2 + 3 s."""
    time_s, head_s, tail_s = (np.full((4, 1), seconds) for seconds in (1.0, 2.0, 3.0))
    shares = share_out(time_s, head_s, tail_s, np.arange(4), np.array([2]), 8.0)
    assert shares is not None
    assert shares.bound_s == pytest.approx(7.0)
    together = share_out(time_s, head_s, tail_s, np.zeros(4, dtype=np.int64), np.array([2]), 8.0)
    assert together is not None
    assert together.bound_s == pytest.approx(7.0)


def test_a_class_without_device_has_no_shares() -> None:
    """Nothing is said, and nothing breaks."""
    time_s = np.array([[1.0, np.inf], [np.inf, 1.0]])
    nothing = np.zeros((2, 2))
    assert share_out(time_s, nothing, nothing, np.zeros(2, dtype=np.int64), np.array([1, 1]), 5.0) is None


@pytest.mark.slow
def test_the_device_of_the_source_decides() -> None:
    """One scatter feeds all: where it runs, the others wait for its tensor, which no single window can know."""
    problem = generate("feed-forward-shards", 40, num_devices=3, transfer_ratio=2.0, objective=pk.Makespan())
    tasks = make_tasks(problem)
    best = pk.solve(problem, "local-search", stop=pk.MaxIterations(20_000)).objective
    assert best is not None
    alone = refute(tasks, best / 10, best)
    rng = np.random.default_rng(0)
    by_cases = max(refute_by_cases(tasks, alone, best, rng, never, rounds=1))
    assert alone * 1.01 < by_cases <= best * (1 + EPS)


def test_proof_by_cases_stops_when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two cases, and with what is refuted by then."""
    problem = generate("layered", 60, num_devices=3, objective=pk.Makespan())
    tasks = make_tasks(problem)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    monkeypatch.setattr(cases, "FIRST_NODES", 10**6)
    list(refute_by_cases(tasks, 0.015, 1.0, np.random.default_rng(0), stop))
    assert asked < 20


def test_bounds_hold_where_times_differ_by_hundreds_of_digits() -> None:
    """The weight of the fast device's time, in units of the slow one's, is too small for a number."""
    problem = generate("layered", 20, num_devices=2, equal=False, objective=pk.Makespan())
    op_time_s = problem.costs.op_time_s * np.array([1e-310, 1.0])
    problem = problem.replace(costs=problem.costs.replace(op_time_s=op_time_s))
    tasks = make_tasks(problem)
    best = pk.solve(problem, "local-search", stop=pk.MaxIterations(2000)).objective
    assert best is not None
    assert look(tasks, best) is not None
