"""Losses at both ends: never more than a schedule loses, the same as by enumeration, and what they say of real ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, known_optimum
from strategies import examples

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.method import Run
from placekit.solvers.makespan.bounds.both_ends import lost_at_ends, sides_of
from placekit.solvers.makespan.bounds.both_ends_search import least_loss
from placekit.solvers.makespan.bounds.both_ends_state import Side
from placekit.solvers.makespan.bounds.quick import first_floors, look, refute
from placekit.solvers.makespan.bounds.shared_work import Weights, weigh_devices
from placekit.solvers.makespan.bounds.windows import Windows, narrow
from placekit.solvers.makespan.exact.proofs import Proof
from placekit.solvers.makespan.schedule.tasks import Tasks, make_tasks

EPS = 1e-9
STATES, NUMBERS = 20_000, 4_000_000


def plain_loss(side: Side) -> float:
    """Return the least loss over all beginnings, by enumeration of who starts next, and where."""
    num_ops, num_devices = side.time.shape

    def worth(d: int, until: float) -> float:
        return float((side.rate[d] * np.maximum(until - side.since[d], 0.0)).sum())

    def least(free: list[float], placed: dict[int, tuple[int, float]], loss: float, best: float) -> float:
        if loss >= best:
            return best
        best = min(best, loss + sum(max(worth(d, side.horizon) - worth(d, free[d]), 0.0) for d in range(num_devices)))
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
            best = least(then, {**placed, v: (d, end)}, loss + more, best)
        return best

    return least([0.0] * num_devices, {}, 0.0, math.inf)


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


def random_side(seed: int, *, in_classes: bool = False) -> Side:
    """Return six ops on two or three devices: short times, so that many states differ in little.

    What an op of a class is credited for differs from device to device.
    """
    rng = np.random.default_rng(seed)
    num_ops, num_devices = 6, int(rng.integers(2, 4))
    dense = rng.choice([0.2, 0.6])
    edges = np.array(
        [(u, v) for v in range(num_ops) for u in range(v) if rng.random() < dense], dtype=np.int64
    ).reshape(-1, 2)
    time = rng.integers(1, 6, (num_ops, num_devices)) / 10
    group = np.arange(num_devices)
    time[rng.random(num_ops) < 0.2, num_devices - 1] = np.inf
    if rng.random() < 0.5:
        time[:, 0], group[0] = time[:, 1], group[1]
    is_late = rng.random(num_ops) < 0.3
    rate = np.stack([rng.random(num_devices) / 2, rng.random(num_devices) / 4], axis=1)[group]
    paid = np.where(is_late[:, None], rate.sum(axis=1), rate[:, 0]) * time
    credit = np.repeat(paid.min(axis=1, keepdims=True), num_devices, axis=1)
    if in_classes:
        is_alone = rng.random(num_ops) < 0.4
        credit = np.where(is_alone[:, None], credit, np.where(np.isfinite(paid), paid, 0.0))
    by_sender = np.argsort(edges[:, 0], kind="stable")
    out_offsets = np.searchsorted(edges[by_sender, 0], np.arange(num_ops + 1))
    key = rng.integers(1, 2**63, num_ops).astype(np.uint64)
    return Side(
        time=time,
        least=credit,
        early=np.where(is_late[:, None], 0.2, 0.0) + np.zeros((num_ops, num_devices)),
        in_offsets=np.searchsorted(edges[:, 1], np.arange(num_ops + 1)),
        in_ops=np.ascontiguousarray(edges[:, 0]),
        in_delay=rng.integers(0, 4, (len(edges), 1, 1)) / 10 * (1 - np.eye(num_devices)),
        out_offsets=out_offsets,
        out_edges=by_sender,
        out_ops=edges[by_sender, 1],
        rate=rate,
        since=np.tile([0.0, 0.2], (num_devices, 1)),
        group=group,
        key=np.where(np.diff(out_offsets) > 0, key, np.uint64(0)),
        horizon=float(rng.choice([0.4, 0.6, 0.9])),
    )


@pytest.mark.parametrize(
    ("seeds", "in_classes"), [(range(30), False), ((*range(30, 60), 255), False), ((33, 142, 150, 243), True)]
)
def test_the_search_says_what_enumeration_says(seeds: Iterable[int], in_classes: bool) -> None:
    """At any horizon; and a search that is cut off, or need not know more, says no more than that.

    In instance 255 a device waits for an op whose inputs are not done yet: an estimate without such ops is too large.
    Those in classes tell what an op is credited for on one device from what it is credited for on another one.
    """
    for seed in seeds:
        side = random_side(seed, in_classes=in_classes)
        expected = plain_loss(side)
        loss, is_known = least_loss(side, math.inf, STATES, NUMBERS)
        assert is_known
        assert abs(loss - expected) <= 1e-9, seed
        for num_states in (2, 7, 30, 100):
            assert least_loss(side, math.inf, num_states, NUMBERS)[0] <= expected + 1e-9
        assert abs(least_loss(side, expected / 2, STATES, NUMBERS)[0] - expected / 2) <= 1e-9
        # an estimate that is too large would cut the best beginning off
        assert least_loss(side, expected + 1e-6, STATES, NUMBERS)[0] <= expected + 1e-9, seed


@pytest.mark.parametrize("seed", [0, 1])
def test_what_loses_too_much_need_not_be_remembered(seed: int) -> None:
    """The bound that a search has proven when its memory is full, one that keeps nothing beyond proves with less."""
    problem = generate("chained-matmuls", 60, seed, num_devices=3, equal=False, transfer_ratio=0.1).replace(
        objective=pk.Makespan(), contiguity=pk.Contiguity.NONE
    )
    result = pk.solve(problem, "local-search", stop=pk.MaxIterations(20), seed=0)
    assert result.objective is not None
    tasks = make_tasks(problem)
    low_s = refute(tasks, first_floors(tasks), 0.0, result.objective)
    found = weighed(problem, low_s, result.objective)
    assert found is not None
    lossy = 0
    for side in sides_of(*found, low_s, result.objective):
        proven, is_known = least_loss(side, math.inf, STATES, NUMBERS)
        if is_known or proven == 0.0:
            continue
        lossy += 1
        assert least_loss(side, proven, STATES // 2, NUMBERS) == (proven, True)
        assert proven <= least_loss(side, 1.1 * proven, STATES, NUMBERS)[0] <= 1.1 * proven
    assert lossy


def test_ops_that_must_share_a_device() -> None:
    """What an op of a class is credited for depends on its device: to have done it on a poor one is no advantage.

    A feasible schedule takes 20 s; where that was left out, the bound was 20.999979 s.
    """
    num_behind = 20
    time_s = {
        "c": (math.inf, math.inf, 0.5),
        "a": (math.inf, 3.0, math.inf),
        "u": (0.5, 5.0, math.inf),
        "w": (8.5, 3.0, math.inf),
        "b": (2.5, math.inf, math.inf),
        "b2": (3.0, 3.0, math.inf),
        "b3": (3.0, math.inf, math.inf),
    } | {f"g{i}": (1.0, 1.0, math.inf) for i in range(num_behind)}
    names = list(time_s)
    edges = [("c", "b"), ("b", "b2"), ("a", "b2"), ("b2", "b3"), ("b2", "w")] + [("b3", name) for name in names[7:]]
    graph = pk.OpGraph.from_edges(names, edges)
    times = np.array(list(time_s.values()))
    can = np.isfinite(times)
    costs = pk.CostTable(
        ("d", "p", "e"),
        np.where(can, times, 0.0),
        np.zeros((graph.num_tensors, 3)),
        np.zeros(len(names)),
        supported=can,
    )
    together = np.arange(len(names))
    together[names.index("w")] = names.index("u")
    problem = pk.Problem(
        graph, pk.Platform.of(d=1, p=1, e=1), costs, pk.Makespan(), pk.Contiguity.NONE, colocation=together
    )
    on_p = {"a", "u", "w", *names[7:16]}
    device = np.array([2 if name == "c" else int(name in on_p) for name in names])
    order = ["c", "a", "b", "u", "b2", "b3", "w", *names[7:]]
    good = pk.Placement.of(problem, device, [order.index(name) for name in names])
    assert pk.evaluate(problem, good).objective == 20.0
    device[names.index("g8")] = 0
    run = Run(problem, pk.MaxRuntime(60), 0)
    run.offer(pk.Placement.of(problem, device, good.step_of_op))
    assert run.objective == 21.0
    tasks = make_tasks(problem)
    proof = Proof(run, tasks, first_floors(tasks))
    proof.quickly()
    proof.by_ends()
    assert run.bound is not None
    assert run.bound <= 20.0 * (1 + EPS)


def test_shards_lose_at_both_ends() -> None:
    """Of shards on six equal devices, work and ends say more than work; longer searches say no less."""
    problem = generate("feed-forward-shards", 60, num_devices=3, equal=True, transfer_ratio=0.5, seed=0)
    result = pk.solve(problem, method="local-search", stop=pk.MaxIterations(50), seed=0)
    assert result.objective is not None
    tasks = make_tasks(problem)
    floors = first_floors(tasks)
    low_s = refute(tasks, floors, 0.0, result.objective)
    found = look(tasks, result.objective, floors)
    assert found is not None
    weights = weigh_devices(found.windows, low_s, result.objective)
    assert weights is not None
    bounds = list(lost_at_ends(tasks, found.windows, low_s, result.objective, 2.0))
    assert bounds == sorted(bounds)
    assert bounds[-1] > weights.bound_s * 1.001
    assert bounds[-1] <= result.objective


def test_it_stops_when_it_is_asked_to() -> None:
    """Before a search, and after the first one if there is no time."""
    problem = generate("layered", 60, num_devices=3, equal=False, transfer_ratio=0.1, seed=0)
    tasks = make_tasks(problem)
    limit_s = 1.5 * float(tasks.time_s.min(axis=1).sum())
    floors = first_floors(tasks)
    low_s = refute(tasks, floors, 0.0, limit_s)
    found = look(tasks, limit_s, floors)
    assert found is not None
    assert not list(lost_at_ends(tasks, found.windows, low_s, limit_s, math.inf, lambda: True))
    assert len(list(lost_at_ends(tasks, found.windows, low_s, limit_s, 0.0))) <= 2


@pytest.mark.parametrize(
    ("family", "size", "devices", "ratio", "seed"),
    [
        ("chains", 39, 3, 0.5, 1),
        ("layered", 49, 4, 5.0, 4),
        ("chained-matmuls", 35, 2, 5.0, 24),
        ("inception", 38, 3, 5.0, 63),
        ("transformer", 23, 4, 2.0, 47),
    ],
)
def test_no_schedule_kept_secret_is_below_the_bound(
    family: str, size: int, devices: int, ratio: float, seed: int
) -> None:
    """A run that knows a poor schedule only has to leave room for a good one.

    With a poor limit, what the windows say of schedules as long as the limit is above the makespan of good ones. Taken
    for a bound in the search of the ends, it proved 16.1 ms of the first instance, of 15.8 ms.
    """
    problem = generate(family, size, num_devices=devices, equal=False, transfer_ratio=ratio, seed=seed).replace(
        objective=pk.Makespan(), contiguity=pk.Contiguity.NONE
    )
    poor = pk.solve(problem, "heft")
    good = pk.solve(problem, "local-search", stop=pk.MaxIterations(100), seed=seed)
    assert poor.placement is not None
    assert good.objective is not None
    run = Run(problem, pk.MaxRuntime(60), seed)
    run.offer(poor.placement)
    tasks = make_tasks(problem)
    proven: list[float] = []
    proof = Proof(run, tasks, first_floors(tasks))
    proof.quickly()
    proof.keep = lambda bound_s, _: proven.append(bound_s)
    proof.by_ends()
    assert proven
    assert run.objective == poor.objective
    assert max(proven) <= good.objective * (1 + EPS)
