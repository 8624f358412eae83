"""Bounds on the makespan: never above any schedule, and what they say on small graphs by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, best_makespan, fork, known_optimum, random_schedule, refute
from strategies import examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.solve.stop import wanted_until
from placekit.solvers.makespan.bounds import windows
from placekit.solvers.makespan.bounds.quick import look, quick_bounds
from placekit.solvers.makespan.bounds.windows import _one_machine, narrow
from placekit.solvers.makespan.schedule.tasks import Tasks, make_tasks, representatives

EPS = 1e-9


@given(data=st.data(), problem=SMALL)
@examples(150)
def test_every_schedule_keeps_heads_and_tails(data: st.DataObject, problem: pk.Problem) -> None:
    """No op of any schedule is earlier than its head, or later than its tail allows."""
    tasks = make_tasks(problem)
    device, start, finish = random_schedule(data, problem, tasks)
    end = float(finish.max())
    windows = narrow(tasks, end)
    assert windows is not None
    slack = EPS * max(end, 1e-300)
    for v, d in enumerate(device.tolist()):
        column = int(np.flatnonzero(windows.tasks.group == tasks.group[d])[0])
        assert windows.head_s[v, column] <= start[v] + slack
        assert windows.tail_s[v, column] <= end - finish[v] + slack
    for c in range(windows.tasks.num_classes):
        assert len(set(device[windows.tasks.class_of_op == c].tolist())) == 1
    for bound_s, name, _ in quick_bounds(tasks, end):
        assert bound_s <= end + slack, name


@given(SMALL)
@examples(150)
def test_bounds_are_not_above_the_optimum(problem: pk.Problem) -> None:
    """Every bound, with and without a limit, against enumeration of placements and orders."""
    optimum = known_optimum(problem)
    tasks = make_tasks(problem)
    for upper_s in (None, optimum, 2 * optimum):
        for bound_s, name, _ in quick_bounds(tasks, upper_s):
            assert bound_s <= optimum * (1 + EPS), name
    assert narrow(tasks, optimum) is not None
    assert refute(tasks, 0.0, 3 * optimum) <= optimum * (1 + EPS)
    result = pk.solve(problem, method="bound", stop=pk.MaxRuntime(120))
    assert result.lower_bound is not None
    assert result.lower_bound <= optimum * (1 + 2e-6)


@given(problems(max_ops=6, max_kinds=2, max_devices=3, objective=st.just(pk.Makespan(contention=True))))
@examples(30)
def test_bounds_hold_with_contention_and_contiguity(problem: pk.Problem) -> None:
    """Buses and connected parts only restrict: the bounds are those without."""
    optimum = known_optimum(problem)
    result = pk.solve(problem, method="bound", stop=pk.MaxRuntime(120))
    if result.lower_bound is not None and result.objective is not None and result.lower_bound < result.objective:
        assert result.lower_bound <= optimum * (1 + 2e-6)


@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=6))
@examples(100)
def test_one_machine_bound_is_jacksons(jobs: list[tuple[int, int, int]]) -> None:
    """The preemptive makespan is the largest head + work + tail over all subsets of the jobs."""
    best = max(
        min(r for r, _, _ in some) + sum(p for _, p, _ in some) + min(q for _, _, q in some)
        for size in range(1, len(jobs) + 1)
        for some in itertools.combinations(jobs, size)
    )
    head, time, tail = (np.array(column, dtype=np.float64) for column in zip(*jobs, strict=True))
    assert _one_machine(head, time, tail) == best


def plain_heads(tasks: Tasks) -> list[list[float]]:
    """Return the heads of the module docstring of `windows`, written from its formulas."""
    delay = tasks.pair_delay_s()
    edges = list(zip(tasks.senders.tolist(), tasks.receivers.tolist(), strict=True))
    behind = np.zeros((tasks.num_ops, tasks.num_ops), dtype=bool)
    for u, v in reversed(edges):
        behind[u, v] = True
        behind[u] |= behind[v]
    devices = range(tasks.num_devices)
    time_s, label = tasks.time_s, tasks.class_of_op
    head = [[math.inf for _ in devices] for _ in range(tasks.num_ops)]
    for v in range(tasks.num_ops):
        ancestors = [u for u in range(v) if behind[u, v]][::-1]
        for d in devices:
            if math.isinf(time_s[v, d]):
                continue
            back: dict[tuple[int, int], float] = {}
            bound, far = 0.0, []
            for u in ancestors:
                for g in devices:
                    if math.isinf(time_s[u, g]):
                        continue
                    ways = [delay[e, g, d] for e, edge in enumerate(edges) if edge == (u, v)]
                    for e, (a, w) in enumerate(edges):
                        if a == u and behind[w, v]:
                            ways.append(
                                min(
                                    (
                                        delay[e, g, f] + time_s[w, f] + back[w, f]
                                        for f in devices
                                        if math.isfinite(time_s[w, f])
                                        and (f == g or label[w] != label[u])
                                        and (f == d or label[w] != label[v])
                                    ),
                                    default=math.inf,
                                )
                            )
                    back[u, g] = max(ways)
                ends = {g: head[u][g] + time_s[u, g] + back[u, g] for g in devices if (u, g) in back}
                away = [end for g, end in ends.items() if g != d and label[u] != label[v]]
                far.append((min(away, default=math.inf), u))
                bound = max(bound, min(far[-1][0], ends.get(d, math.inf)))
            far.sort(reverse=True)
            splits = []
            for k in range(len(far) + 1):
                busy = 0.0
                for u in sorted((u for _, u in far[:k]), key=lambda u: head[u][d]):
                    busy = max(busy, head[u][d]) + time_s[u, d]
                splits.append(max(busy, far[k][0] if k < len(far) else 0.0))
            head[v][d] = max(bound, min(splits))
    return head


@given(SMALL)
@examples(100)
def test_heads_are_those_of_the_formulas(problem: pk.Problem) -> None:
    """The compiled heads against a plain twin; the tails against the heads of the reversed graph."""
    tasks = representatives(make_tasks(problem))
    assume(np.isfinite(tasks.time_s).any(axis=1).all())
    windows = narrow(tasks)
    assume(windows is not None)
    assert windows is not None
    expected = np.array(plain_heads(tasks))
    assert np.allclose(windows.head_s, np.where(np.isfinite(windows.head_s), expected, np.inf), rtol=1e-12, atol=0)


def test_slow_transfers_keep_ops_together() -> None:
    """A transfer of 12 s pays for nothing in 14 s of work, and that is proven."""
    tasks = make_tasks(fork(12, 12.0, 4))
    assert refute(tasks, 0.0, 14.0) == pytest.approx(14.0, rel=2e-4)


def test_joins_wait_for_all_their_inputs_but_one() -> None:
    """Of two producers of 3 s one is elsewhere (3 + 5 s) or both are in turn (6 s): the reader starts at 6 s."""
    graph = pk.OpGraph.from_edges(["a", "b", "c"], [("a", "c"), ("b", "c")])
    costs = pk.CostTable(("d",), np.array([[3.0], [3.0], [1.0]]), np.full((2, 1), 2.5), np.ones(3))
    tasks = make_tasks(pk.Problem(graph, pk.Platform.of(d=2), costs, pk.Makespan()))
    windows = narrow(tasks)
    assert windows is not None
    assert windows.head_s[-1].tolist() == [6.0, 6.0]
    assert windows.path_s == 7.0


def test_bound_method_names_the_best_bound() -> None:
    """All bounds are listed, and the best one has its name."""
    result = pk.solve(fork(12, 2.0, 4), method="bound", stop=pk.MaxRuntime(120))
    assert result.lower_bound == max(result.info["lower_bounds_s"].values())
    assert {"largest op", "critical path with transfers"} <= set(result.info["lower_bounds_s"])
    assert oracle.is_feasible(fork(12, 2.0, 4), tuple(result.placement.device_of_op)) if result.placement else False


@given(problem=SMALL, questions=st.integers(0, 12))
@examples(60)
def test_a_solve_that_has_to_end_knows_less_and_nothing_wrong(problem: pk.Problem, questions: int) -> None:
    """However many questions it still has: at most what a solve with time knows, and the optimum keeps its limit."""
    tasks = make_tasks(problem)
    windows = narrow(tasks)
    left = iter(range(questions))
    with wanted_until(lambda: next(left, None) is None):
        short = narrow(tasks)
        optimum = best_makespan(problem)
        if optimum is not None:
            assert look(tasks, optimum) is not None
    assert (windows is None) == (short is None)
    if windows is not None and short is not None:
        assert (short.head_s <= windows.head_s + EPS * windows.path_s).all()
        assert (short.tail_s <= windows.tail_s + EPS * windows.path_s).all()
        assert short.path_s <= windows.path_s * (1 + EPS)


def test_fewer_looks_weaken_the_bound_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of a hundred thousand ops have ten ancestors an op for their heads; no bound exceeds a known schedule."""
    problem = generate("layered", 60, seed=3, num_devices=3, equal=False, objective=pk.Makespan())
    known_s = pk.solve(problem, "heft").objective
    assert known_s is not None
    found = []
    for looks in (60 * 27, 600 * 27, windows.MAX_LOOKS):
        monkeypatch.setattr(windows, "MAX_LOOKS", looks)
        narrowed = narrow(make_tasks(problem))
        assert narrowed is not None
        found.append(narrowed.path_s)
    assert 0 < found[0] <= found[1] * (1 + 1e-12)
    assert found[1] <= found[2] * (1 + 1e-12)
    assert found[2] <= known_s * (1 + 1e-12)
    assert found[0] < found[2]
