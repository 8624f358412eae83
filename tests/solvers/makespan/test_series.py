"""Series decomposition: cuts, and the bound and the schedule put together."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makespan_optimum import SMALL, best_makespan, known_optimum, refute
from strategies import examples, problems

import placekit as pk
from placekit.errors import ProgramTooLargeError
from placekit.method import Run
from placekit.solvers.assignment.infeasible import clash
from placekit.solvers.makespan.bounds.between import reachable
from placekit.solvers.makespan.bounds.quick import first_heads_tails
from placekit.solvers.makespan.decomposition import segments as segments_module
from placekit.solvers.makespan.decomposition.segments import cut_segments, heads_tails_of, segment_problem
from placekit.solvers.makespan.exact import series as series_module
from placekit.solvers.makespan.exact.series import LEAST_S, solve_in_series
from placekit.solvers.makespan.schedule.tasks import make_tasks
from placekit.solvers.registry import get_method

EPS = 1e-9


def chain_of_forks(count: int, num_kinds: int = 1) -> pk.Problem:
    """Return forks in series, the last op of each being the first of the next."""
    names, edges = ["c0"], []
    for i in range(count):
        middle = [f"m{i}.{j}" for j in range(3)]
        names += [*middle, f"c{i + 1}"]
        edges += [(f"c{i}", m) for m in middle] + [(m, f"c{i + 1}") for m in middle]
    graph = pk.OpGraph.from_edges(names, edges, name="forks")
    rng = np.random.default_rng(0)
    kinds = ("d", "e")[:num_kinds]
    platform = pk.Platform.of(d=2) if num_kinds == 1 else pk.Platform.of(d=2, e=2)
    costs = pk.CostTable(
        kinds,
        rng.uniform(1, 2, (graph.num_ops, num_kinds)),
        rng.uniform(0.1, 0.3, (graph.num_tensors, num_kinds)),
        np.ones(graph.num_ops),
    )
    return pk.Problem(graph, platform, costs, pk.Makespan())


def test_cuts_are_the_ops_that_everything_passes() -> None:
    """The ops between the forks; an edge that jumps over one unmakes it as long as the segment is small."""
    tasks = make_tasks(chain_of_forks(3))
    assert [(s.first, s.last) for s in cut_segments(tasks)] == [(0, 4), (4, 8), (8, 12)]
    problem = chain_of_forks(3)
    names = problem.graph.op_names
    edges = [(names[u], names[v]) for u, v in zip(problem.graph.senders, problem.graph.receivers, strict=True)]
    graph = pk.OpGraph.from_edges(names, [*edges, ("c0", "c2")])
    jumped = make_tasks(problem.replace(graph=graph))
    assert [(s.first, s.last) for s in cut_segments(jumped)] == [(0, 8), (8, 12)]


@given(problems(max_ops=7, with_memory=False, objective=st.just(pk.Makespan())))
@examples(100)
def test_cuts_are_comparable_with_every_op(problem: pk.Problem) -> None:
    """Segments meet in ops that are before or behind every other op, and no op is left out."""
    tasks = make_tasks(problem)
    behind = reachable(tasks)
    segments = cut_segments(tasks)
    assert sorted({v for s in segments for v in s.ops.tolist()}) == list(range(tasks.num_ops))
    for cut in {s.last for s in segments} | {s.first for s in segments}:
        if cut is not None:
            assert (behind[cut] | behind[:, cut]).sum() == tasks.num_ops - 1


@pytest.mark.parametrize("num_kinds", [1, 2])
def test_segments_in_series_prove_the_whole(num_kinds: int) -> None:
    """Four forks in a row: the bound put together meets the schedule put together, on equal and unequal devices."""
    problem = chain_of_forks(4, num_kinds)
    result = pk.solve(problem, method="bound", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL
    whole = pk.solve(problem, method="cpsat", stop=pk.MaxRuntime(120))
    assert whole.objective == pytest.approx(result.objective, rel=1e-6)


def test_a_small_segment_has_time_however_small_its_share() -> None:
    """One that is cut off before it has said anything would count for nothing in the sum."""
    problem = chain_of_forks(4)
    limits_s = []

    def look_at_the_clock(part: Run) -> pk.StopReason:
        limits_s.append(part.remaining_s)
        return pk.StopReason.FINISHED

    solve_in_series(Run(problem), make_tasks(problem), look_at_the_clock, time_s=0.0)
    assert limits_s == [pytest.approx(LEAST_S, abs=0.05)] * 4


def test_a_later_method_goes_on_with_what_is_open() -> None:
    """Four segments, one of which the first method leaves open: the second one works on that, with all of the time."""
    problem = chain_of_forks(4)
    run, tasks = Run(problem), make_tasks(problem)
    seen: list[tuple[Run, float | None]] = []

    def solve_but_one(part: Run) -> pk.StopReason:
        seen.append((part, part.remaining_s))
        if len(seen) == 2:
            return pk.StopReason.FINISHED
        return get_method("cpsat").run(part)

    solve_in_series(run, tasks, solve_but_one, time_s=20.0)
    assert len(seen) == 4
    before = run.bound
    assert before is not None
    solve_in_series(run, tasks, solve_but_one, time_s=20.0)
    assert [part for part, _ in seen[4:]] == [seen[1][0]]
    assert seen[4][1] == pytest.approx(20.0, abs=0.5)
    assert run.bound is not None
    assert run.bound > before
    assert run.bound == pytest.approx(run.objective)


def test_heads_and_tails_are_partial_sums_of_the_segments() -> None:
    """Three segments of 5, 6 and 7 s: the second cut ends at 11 s at the earliest, and 7 s follow."""
    tasks = make_tasks(chain_of_forks(3))
    segments = cut_segments(tasks)
    ones = np.ones_like(tasks.time_s)
    tasks = make_tasks(chain_of_forks(3).replace(costs=chain_of_forks(3).costs.replace(op_time_s=ones[:, :1])))
    bound_s, heads_tails, path = heads_tails_of(tasks, segments, {(0, 0, 0): 5.0, (1, 0, 0): 6.0, (2, 0, 0): 7.0})
    assert bound_s == 19.0  # 1 s of the first op
    assert heads_tails.head_s[8].tolist() == [11.0, 11.0]  # it ends at 12 s
    assert heads_tails.tail_s[8].tolist() == [7.0, 7.0]
    assert path == [(0, 0)] * 3


@given(SMALL)
@examples(200)
def test_segments_prove_nothing_that_is_not_true(problem: pk.Problem) -> None:
    """Each solved by enumeration: bound, heads and tails hold for the whole, also where edges jump over cuts."""
    optimum = known_optimum(problem)

    def enumerate_all(part: Run) -> pk.StopReason:
        best = best_makespan(part.problem)
        if best is None:
            return part.prove_infeasible(clash())
        get_method("heft").run(part)
        part.raise_bound(best * (1 - 1e-12), "enumeration")
        return pk.StopReason.PROVED

    tasks, run = make_tasks(problem), Run(problem)
    with mock.patch.object(segments_module, "LARGE", 3), mock.patch.object(series_module, "LARGE", 3):
        heads_tails = solve_in_series(run, tasks, enumerate_all, time_s=0.0)
    if heads_tails is not None:
        assert run.bound is None or run.bound <= optimum * (1 + EPS)
        assert run.objective is None or run.objective >= optimum * (1 - EPS)
        between_s = first_heads_tails(tasks).between_s
        assert refute(tasks, replace(heads_tails, between_s=between_s), 0.0, optimum) <= optimum * (1 + EPS)


@examples(60)
@given(problems(objective=st.just(pk.Makespan())))
def test_a_segment_has_the_tensors_that_are_made_and_read_in_it(problem: pk.Problem) -> None:
    """As a plain walk over all tensors says, multi-edges included."""
    tasks, graph = make_tasks(problem), problem.graph
    for segment in cut_segments(tasks):
        ops = tasks.op[segment.ops].tolist()
        part = segment_problem(problem, tasks, segment, None, None)
        expected = []
        for tensor in range(graph.num_tensors):
            readers = [ops.index(op) for op in graph.consumers_of(tensor).tolist() if op in ops]
            if graph.tensor_producer[tensor] in ops and readers:
                producer = ops.index(int(graph.tensor_producer[tensor]))
                expected.append((producer, readers, problem.costs.transfer_time_s[tensor].tolist()))
        assert expected == [
            (int(producer), part.graph.consumers_of(t).tolist(), part.costs.transfer_time_s[t].tolist())
            for t, producer in enumerate(part.graph.tensor_producer)
        ]


def test_a_program_too_large_for_its_segment_leaves_the_others_their_time() -> None:
    """What one segment has no time for is no reason to end: its bound is what it has, and all are worked on."""
    problem = chain_of_forks(4)
    run, met = Run(problem, pk.MaxRuntime(30)), []

    def solve(part: Run) -> pk.StopReason:
        met.append(part.problem.name)
        if len(met) == 2:
            raise ProgramTooLargeError("not built in the time left", lacks_memory=False)
        return get_method("cpsat").run(part)

    assert solve_in_series(run, make_tasks(problem), solve, 10.0) is not None
    assert len(set(met)) == 4
    assert run.bound is not None
