"""Segments in series: where the graph is cut, and that their bounds and schedules hold for the whole."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makespan_optimum import SMALL, best_makespan, known_optimum
from pydantic import TypeAdapter, ValidationError
from strategies import examples, problems

import placekit as pk
from placekit.io.files.result_json import read_result, write_result
from placekit.io.files.result_schema import CertificateModel
from placekit.model.errors import ProgramTooLargeError
from placekit.solve.certificates import Series, certificate_from_dict
from placekit.solve.method import Run
from placekit.solve.registry import get_method
from placekit.solve.stop import StopReason
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.makespan.decomposition import segments as segments_module
from placekit.solvers.makespan.decomposition.segments import cut_segments
from placekit.solvers.makespan.exact.cp_method import solve_makespan
from placekit.solvers.makespan.exact.series import solve_in_series
from placekit.solvers.makespan.schedule.tasks import make_tasks
from placekit.verification.exact import ExactProblem
from placekit.verification.proofs import proven
from placekit.verification.series import OpenCertificateError
from placekit.verification.verify import Outcome, certifies, verify

EPS = 1e-9


def forks(count: int, *, jump: tuple[str, str] | None = None, contention: bool = False) -> pk.Problem:
    """Return forks in series on a CPU and two GPUs, the last op of each being the first of the next."""
    names, edges = ["c0"], [] if jump is None else [jump]
    for i in range(count):
        middle = [f"m{i}.{j}" for j in range(3)]
        names += [*middle, f"c{i + 1}"]
        edges += [(f"c{i}", m) for m in middle] + [(m, f"c{i + 1}") for m in middle]
    graph = pk.OpGraph.from_edges(names, edges, name="forks")
    times = np.random.default_rng(1).integers(5, 40, (graph.num_ops, 2)) / 7
    costs = pk.CostTable(("cpu", "gpu"), times, np.full((graph.num_tensors, 2), 0.3), np.ones(graph.num_ops))
    return pk.Problem(graph, pk.Platform.of(cpu=1, gpu=2), costs, pk.Makespan(contention=contention))


def by_enumeration(part: Run[pk.Makespan]) -> StopReason:
    """Solve a segment by plain enumeration, and offer some schedule."""
    best = best_makespan(part.problem)
    if best is None:
        return part.prove_infeasible(clash())
    get_method("heft").run(part)
    part.raise_bound(best * (1 - 1e-12), "enumeration")
    return StopReason.FINISHED


def small_forks(rng: np.random.Generator) -> pk.Problem:
    """Return two or three narrow forks in series, some with a jumping edge, pins, colocation or little memory."""
    names, edges = ["c0"], []
    for i, width in enumerate(rng.permutation([1, 2] if rng.random() < 0.7 else [1, 1, 1]).tolist()):
        middle = [f"m{i}.{j}" for j in range(width)]
        names += [*middle, f"c{i + 1}"]
        edges += [(f"c{i}", m) for m in middle] + [(m, f"c{i + 1}") for m in middle]
    if rng.random() < 0.4:
        edges.append(("c0", str(rng.choice(names[-2:]))))
    graph = pk.OpGraph.from_edges(names, edges)
    num_ops = graph.num_ops
    platform = pk.Platform.of(cpu=1, gpu=2)
    if rng.random() < 0.3:
        size = float(rng.integers(2, 6))
        platform = pk.Platform(tuple(device.replace(memory_bytes=size) for device in platform.devices))
    costs = pk.CostTable(
        ("cpu", "gpu"),
        rng.integers(1, 9, (num_ops, 2)).astype(np.float64),
        rng.integers(0, 5, (graph.num_tensors, 2)).astype(np.float64),
        np.ones(num_ops),
    )
    pinned = np.where(rng.random(num_ops) < 0.1, rng.integers(0, 3, num_ops), -1)
    colocation = np.arange(num_ops)
    if rng.random() < 0.3:
        colocation[rng.integers(num_ops)] = colocation[rng.integers(num_ops)]
    return pk.Problem(graph, platform, costs, pk.Makespan(), colocation=colocation, pinned=pinned)


def cuts_of(problem: pk.Problem) -> list[int | None]:
    """Return the positions of the cuts."""
    return [segment.last for segment in cut_segments(problem, make_tasks(problem))][:-1]


def test_cuts_are_the_ops_that_everything_passes() -> None:
    """Edges that jump over an op unmake a cut, unless the segment without it is large."""
    assert cuts_of(forks(4)) == [0, 4, 8, 12, 16]
    assert cuts_of(forks(5, jump=("c0", "c2"))) == [0, 8, 12, 16, 20]
    assert cuts_of(forks(4, jump=("c0", "c3"))) == []  # what is left between cuts is nearly the whole graph
    with mock.patch.object(segments_module, "LARGE", 8):
        assert cuts_of(forks(4, jump=("c0", "c3"))) == [0, 4, 8, 12, 16]


@given(problems(max_ops=8, with_memory=False, objective=st.just(pk.Makespan())))
@examples(60)
def test_segments_meet_in_ops_that_are_comparable_with_all(problem: pk.Problem) -> None:
    """No op is left out, and every cut is an ancestor or a descendant of every other op."""
    tasks = make_tasks(problem)
    reaches = np.eye(tasks.num_ops, dtype=bool)
    for u, v in sorted(zip(tasks.senders.tolist(), tasks.receivers.tolist(), strict=True), reverse=True):
        reaches[u] |= reaches[v]
    with mock.patch.object(segments_module, "LARGEST", 1.0):
        segments = cut_segments(problem, tasks)
    assert not segments or {v for s in segments for v in s.ops.tolist()} == set(range(tasks.num_ops))
    for cut in {segment.last for segment in segments} - {None}:
        assert (reaches[cut] | reaches[:, cut]).all()


@given(SMALL)
@examples(200)
def test_no_bound_is_above_the_optimum(problem: pk.Problem) -> None:
    """Neither the bound nor its certificate, with jumping edges, memory, pins and colocation; schedules are judged."""
    optimum, run = known_optimum(problem), Run(problem)
    with mock.patch.multiple(segments_module, LARGE=2, LARGEST=1.0):
        solve_in_series(run, make_tasks(problem), by_enumeration, run.raise_bound, time_s=60.0)
    assert run.bound is None or run.bound <= optimum * (1 + EPS)
    assert run.objective is None or run.objective >= optimum * (1 - EPS)
    if run.bound is not None:
        assert isinstance(run.certificate, Series)
        assert float(proven(ExactProblem.of(problem).for_bounds, run.certificate)) <= optimum * (1 + EPS)
        assert certifies(run.certificate, run.bound, problem)


def test_forks_have_bounds_up_to_the_optimum() -> None:
    """None of the bounds is above the optimum, and most of them are the optimum."""
    num_tight = 0
    for seed in range(40):
        problem = small_forks(np.random.default_rng(seed))
        optimum, run = best_makespan(problem), Run(problem)
        if optimum is None:
            continue
        with mock.patch.multiple(segments_module, LARGE=2, LARGEST=1.0):
            solve_in_series(run, make_tasks(problem), by_enumeration, run.raise_bound, time_s=60.0)
        assert run.bound is not None
        assert run.bound <= optimum * (1 + EPS)
        assert run.objective is None or run.objective >= optimum * (1 - EPS)
        assert isinstance(run.certificate, Series)
        assert certifies(run.certificate, run.bound, problem)
        num_tight += run.bound >= optimum * (1 - EPS)
    assert num_tight >= 20


@given(SMALL)
@examples(60)
def test_solved_segments_are_a_proof(problem: pk.Problem) -> None:
    """The schedule put together is optimal if no edge jumps over a cut, and nothing limits memory or colocates."""
    free = pk.Problem(
        problem.graph,
        pk.Platform(tuple(device.replace(memory_bytes=None) for device in problem.platform.devices)),
        problem.costs.replace(op_group=None, blocks=None),
        pk.Makespan(),
    )
    optimum, run = known_optimum(free), Run(free)
    with mock.patch.object(segments_module, "LARGEST", 1.0):
        segments = cut_segments(free, make_tasks(free))
        solve_in_series(
            run,
            make_tasks(free),
            lambda part: solve_makespan(part, lambda _: 1, in_series=False),
            run.raise_bound,
            time_s=60.0,
        )
    if segments and not free.has_direct_links:
        assert run.objective == pytest.approx(optimum, rel=1e-6)
        assert run.is_proven


def test_forks_are_proven_in_series() -> None:
    """Three forks: the bound put together meets the schedule put together, and the certificate that comes with it."""
    problem = forks(3)
    result = pk.solve(problem, method="bound", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL
    assert result.bound_name == "segments in series"
    again = pk.solve(problem, method="cpsat", stop=pk.MaxRuntime(120))
    assert again.objective == pytest.approx(result.objective, rel=1e-6)


def test_contention_has_the_bound_without_it() -> None:
    """Segments do not know contention, which makes no schedule shorter."""
    free = pk.solve(forks(3), method="bound", stop=pk.MaxRuntime(120))
    busy = pk.solve(forks(3, contention=True), method="bound", stop=pk.MaxRuntime(20))
    assert busy.objective is not None
    assert free.objective is not None
    assert busy.lower_bound is not None
    assert busy.lower_bound <= busy.objective
    assert busy.objective >= free.objective * (1 - EPS)


def test_a_segment_that_is_cut_off_gets_more_time() -> None:
    """Twice as much each time, also if its program was too large for the time; the others get theirs before."""
    problem = forks(4)
    run, limits_s = Run(problem), dict[Run[pk.Makespan], list[float]]()

    def solve(part: Run[pk.Makespan]) -> StopReason:
        assert part.remaining_s is not None
        limits_s.setdefault(part, []).append(part.remaining_s)
        if part is next(iter(limits_s)) and len(limits_s[part]) < 4:
            raise ProgramTooLargeError("not built in the time left", lacks_memory=False)
        return by_enumeration(part)

    solve_in_series(run, make_tasks(problem), solve, run.raise_bound, time_s=60.0)
    first, *others = limits_s.values()
    assert first == pytest.approx([0.1, 0.2, 0.4, 0.8], rel=0.2)
    assert all(len(each) == 1 for each in others)


def test_equal_segments_are_solved_once() -> None:
    """Forks with the same times: one run for each pair of kinds, and none for pairs that are too slow."""
    problem = forks(4)
    times = np.tile([[2.0, 1.0]], (problem.graph.num_ops, 1))
    run = Run(problem.replace(costs=problem.costs.replace(op_time_s=times)))
    solve_in_series(run, make_tasks(run.problem), by_enumeration, run.raise_bound, time_s=60.0)
    assert 1 <= len(run.parts) <= 4
    assert run.bound is not None


@pytest.fixture(scope="module")
def result() -> pk.Result:
    """Return three forks with a certificate."""
    return pk.solve(forks(3), method="bound", stop=pk.MaxRuntime(120))


def test_the_certificate_is_checked(result: pk.Result, tmp_path: Path) -> None:
    """After a file, too, though the problem is too large to enumerate in so few steps."""
    problem = forks(3)
    assert isinstance(result.certificate, Series)
    found = verify(result, problem)
    assert found.is_consistent, str(found)
    assert found["bound"].detail.endswith("by certificate: series")
    write_result(result, tmp_path / "r.json", certificate=True)
    assert read_result(tmp_path / "r.json").certificate == result.certificate
    assert verify(result, problem, max_steps=2)["bound"].outcome is Outcome.TRUSTED
    with pytest.raises(OpenCertificateError):
        proven(ExactProblem.of(problem), result.certificate, 2)


def test_changed_seconds_are_refused(result: pk.Result) -> None:
    """More seconds than a segment takes are false; fewer prove less than the bound says, on a path that matters."""
    problem, certificate = forks(3), result.certificate
    assert isinstance(certificate, Series)
    for at, (*where, seconds) in enumerate(certificate.cases):
        cases: list[Any] = list(certificate.cases)
        cases[at] = *where, seconds * 3
        forged = dataclasses.replace(result, certificate=Series(certificate.cuts, tuple(cases)))
        assert verify(forged, problem)["bound"].outcome is Outcome.FAILED
    assert not certifies(Series(certificate.cuts, ()), result.lower_bound, problem)
    assert not certifies(certificate, (result.lower_bound or 0) * 1.001, problem)


@pytest.mark.parametrize(
    ("cuts", "cases", "says"),
    [
        ((3, 2), (), "nothing leads to cut 2"),
        ((4, 4), (), "nothing leads to cut 4"),
        ((99,), (), "99"),
        ((4,), ((2, None, None, 1.0),), "segment 2"),
        ((4,), ((0, None, 9, 1.0),), "segment 0"),
        ((4,), ((0, None, 0, float("inf")),), "segment 0"),
    ],
)
def test_what_is_no_series_is_refused(cuts: tuple[int, ...], cases: Any, says: str) -> None:
    """Cuts that do not follow each other, cases that are not there, and other objectives."""
    with pytest.raises(pk.PlacekitError, match=says):
        proven(ExactProblem.of(forks(2)), Series(cuts, cases))
    with pytest.raises(pk.PlacekitError, match="makespan only"):
        proven(ExactProblem.of(forks(2).replace(objective=pk.SerialLatency())), Series((0,), ()))


def test_the_form_of_a_series_is_checked(result: pk.Result) -> None:
    """Columns of one length, at least one cut."""
    assert result.certificate is not None
    adapter: TypeAdapter[Any] = TypeAdapter(CertificateModel)
    valid = {"schema": "placekit/certificate/1", **result.certificate.to_dict()}
    read = adapter.validate_python(json.loads(json.dumps(valid))).model_dump(by_alias=True)
    assert certificate_from_dict(read) == result.certificate
    changes: list[dict[str, Any]] = [{"cuts": []}, {"seconds": [1.0]}, {"first": ["a"]}, {"extra": 1}]
    for change in changes:
        with pytest.raises(ValidationError):
            adapter.validate_python({**valid, **change})


def test_no_segment_is_made_after_the_time_is_up() -> None:
    """A long graph has thousands of them, each a problem of its own: the clock is asked before each."""
    problem = forks(20)
    tasks, run = make_tasks(problem), Run(problem)
    name = "placekit.solvers.makespan.exact.series.segment_problem"
    with mock.patch(name, wraps=segments_module.segment_problem) as made:
        solve_in_series(run, tasks, by_enumeration, run.raise_bound, 0.0)
        assert made.call_count <= 1  # the one that a schedule put together would begin with
        solve_in_series(run, tasks, by_enumeration, run.raise_bound, 60.0)
    assert made.call_count >= 20
    assert run.bound_name == "segments in series"
