"""Losses at both ends: never more than a schedule loses, the same as by enumeration, and what they say of real ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, known_optimum
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.solvers.makespan.beginnings import Side, least_loss
from placekit.solvers.makespan.bounds import first_floors, look
from placekit.solvers.makespan.endings import lost_at_ends, sides_of
from placekit.solvers.makespan.shares import Weights, weigh_devices
from placekit.solvers.makespan.tasks import Tasks, make_tasks
from placekit.solvers.makespan.windows import Windows, narrow

EPS = 1e-9
STATES, NUMBERS = 20_000, 4_000_000


def plain_loss(side: Side) -> float:
    """Return the least loss over all beginnings, by enumeration of who starts next, and where."""
    num_ops, num_devices = side.time.shape

    def worth(d: int, until: float) -> float:
        return float((side.rate[d] * np.maximum(until - side.since[d], 0.0)).sum())

    def least(free: list[float], placed: dict[int, tuple[int, float]], loss: float) -> float:
        best = loss + sum(max(worth(d, side.horizon) - worth(d, free[d]), 0.0) for d in range(num_devices))
        for v, d in itertools.product(range(num_ops), range(num_devices)):
            edges = range(side.in_offsets[v], side.in_offsets[v + 1])
            if v in placed or math.isinf(side.time[v, d]) or any(side.in_ops[i] not in placed for i in edges):
                continue
            inputs = [placed[int(side.in_ops[i])] for i in edges]
            arrivals = [end + side.in_delay[i, a, d] for i, (a, end) in zip(edges, inputs, strict=True)]
            start = max([free[d], side.early[v, d], *arrivals])
            if start >= side.horizon:
                continue
            end = start + side.time[v, d]
            then = [end if e == d else max(at, start) for e, at in enumerate(free)]
            more = sum(worth(e, then[e]) - worth(e, free[e]) for e in range(num_devices)) - side.least[v, d]
            best = min(best, least(then, {**placed, v: (d, end)}, loss + more))
        return best

    return least([0.0] * num_devices, {}, 0.0)


def weighed(problem: pk.Problem, low_s: float, limit_s: float) -> tuple[Tasks, Windows, Weights] | None:
    """Return the tasks with windows and weights; None where there is nothing to weigh."""
    tasks = make_tasks(problem)
    windows = narrow(tasks, limit_s, first_floors(tasks))
    assert windows is not None
    weights = weigh_devices(windows, low_s, limit_s)
    return None if weights is None else (tasks, windows, weights)


@given(SMALL, st.sampled_from([0.5, 1.0]), st.sampled_from([1.0, 1.3, 3.0]))
@examples(150)
def test_bounds_are_not_above_the_optimum(problem: pk.Problem, low: float, limit: float) -> None:
    """Weights alone, and with what is lost at the ends, against enumeration of placements and orders."""
    optimum = known_optimum(problem)
    assume(optimum > 0)
    found = weighed(problem, low * optimum, limit * optimum)
    assume(found is not None)
    assert found is not None
    tasks, windows, weights = found
    assert weights.bound_s <= optimum * (1 + EPS)
    for bound_s in lost_at_ends(tasks, windows, low * optimum, limit * optimum, math.inf):
        assert bound_s <= optimum * (1 + EPS)


@given(
    problems(max_ops=5, max_kinds=2, max_devices=3, objective=st.just(pk.Makespan())),
    st.floats(0.05, 1.5),
    st.booleans(),
)
@examples(150)
def test_the_search_says_what_enumeration_says(problem: pk.Problem, horizon: float, is_backward: bool) -> None:
    """Whatever the horizon; and a search that is cut off says no more."""
    tasks = make_tasks(problem)
    path_s = narrow(tasks)
    assume(path_s is not None)
    assert path_s is not None
    assume(path_s.path_s > 0)
    limit_s = 3 * float(np.where(np.isfinite(tasks.time_s), tasks.time_s, 0).max(axis=1).sum() + tasks.delay_s.sum())
    found = weighed(problem, path_s.path_s, limit_s)
    assume(found is not None)
    assert found is not None
    side = sides_of(*found, path_s.path_s, limit_s)[is_backward]
    side = side._replace(horizon=horizon * path_s.path_s / limit_s)
    expected = plain_loss(side)
    loss, is_known = least_loss(side, math.inf, STATES, NUMBERS)
    assert is_known
    assert abs(loss - expected) <= 1e-9
    for num_states in (2, 7, 30):
        assert least_loss(side, math.inf, num_states, NUMBERS)[0] <= expected + 1e-9
    assert least_loss(side, expected / 2, STATES, NUMBERS)[0] >= expected / 2 - 1e-9


def test_shards_lose_at_both_ends() -> None:
    """Of shards on six equal devices, work and ends say more than work; longer searches say no less."""
    problem = generate("feed-forward-shards", 60, num_devices=3, equal=True, transfer_ratio=0.5, seed=0)
    result = pk.solve(problem, method="local-search", stop=pk.MaxIterations(50), seed=0)
    assert result.objective is not None
    tasks = make_tasks(problem)
    found = look(tasks, result.objective, first_floors(tasks))
    assert found is not None
    weights = weigh_devices(found.windows, found.least_s, result.objective)
    assert weights is not None
    bounds = list(lost_at_ends(tasks, found.windows, found.least_s, result.objective, 2.0))
    assert bounds == sorted(bounds)
    assert bounds[-1] > weights.bound_s * 1.001
    assert bounds[-1] <= result.objective


def test_it_stops_when_it_is_asked_to() -> None:
    """Before a search, and after the first one if there is no time."""
    problem = generate("layered", 60, num_devices=3, equal=False, transfer_ratio=0.1, seed=0)
    tasks = make_tasks(problem)
    limit_s = 1.5 * float(tasks.time_s.min(axis=1).sum())
    found = look(tasks, limit_s, first_floors(tasks))
    assert found is not None
    assert not list(lost_at_ends(tasks, found.windows, found.least_s, limit_s, math.inf, lambda: True))
    assert len(list(lost_at_ends(tasks, found.windows, found.least_s, limit_s, 0.0))) <= 2
