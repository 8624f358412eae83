"""Segments solved one by one: a bound, heads_tails for the windows, and a schedule put together from theirs.

Every segment is solved for every pair of kinds of its two cuts. Small ones are done after that; large ones get a first
look, and then the rest of the time goes to those that the bound of the whole hangs on, until nothing changes. A later
method of a plan goes on with those that are still open: the run of the whole keeps theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from placekit.errors import ProgramTooLargeError
from placekit.method import Run
from placekit.solvers.generic.within import Within
from placekit.solvers.makespan.bounds.windows import HeadsTails
from placekit.solvers.makespan.decomposition.segments import (
    LARGE,
    Case,
    Segment,
    cut_segments,
    heads_tails_of,
    segment_problem,
)
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import placement_of, run_times
from placekit.stop import StopReason
from placekit.verification.certificates import Series

__all__ = ["solve_in_series"]

LEAST_S = 0.1
"""Seconds that every segment may take, however small its share: one that says nothing spoils the sum."""
FIRST_LOOK = 0.2
"""Share of its time that a large segment gets before those are known that the bound hangs on."""


def solve_in_series(run: Run, tasks: Tasks, solve: Callable[[Run], StopReason], time_s: float) -> HeadsTails | None:
    """Solve every segment by `solve`, raise the bound of `run`, and offer the schedule put together.

    Parameters
    ----------
    run
        The run of the whole problem.
    tasks
        Its tasks.
    solve
        Works on the run of a segment.
    time_s
        Seconds for all segments together, but at least `LEAST_S` for each.

    Returns
    -------
    HeadsTails | None
        None if the graph has no cuts, or if time ran out before every segment was looked at.
    """
    segments = cut_segments(tasks)
    if len(segments) < 2:
        return None

    def kinds_at(cut: int | None) -> list[int | None]:
        return [None] if cut is None else np.unique(tasks.kind[np.isfinite(tasks.time_s[cut])]).tolist()

    cases = [
        (i, a, b) for i, segment in enumerate(segments) for a in kinds_at(segment.first) for b in kinds_at(segment.last)
    ]
    runs = run.parts
    least_s: dict[Case, float] = {}
    worked_s = dict.fromkeys(cases, 0.0)

    def work_on(case: Case, seconds: float) -> None:
        i, a, b = case
        if case not in runs:
            runs[case] = Run(segment_problem(run.problem, tasks, segments[i], a, b), Within(run), run.seed)
        inner, start_s = runs[case], run.elapsed_s
        with inner.limited_to(max(seconds, LEAST_S)):
            if not _is_settled(inner):
                with suppress(ProgramTooLargeError):  # for the time of one segment: the others go on
                    solve(inner)
        worked_s[case] += run.elapsed_s - start_s
        if inner.infeasible_because is not None:
            least_s[case] = np.inf
            return
        # the first cut is part of the segment, and its schedule starts with it
        first, done_s = segments[i].first, 0.0
        if first is not None:
            done_s = float(tasks.time_s[first, tasks.kind == a].min())
        least_s[case] = max((inner.bound or 0.0) * (1 - 1e-12) - done_s, 0.0)

    until_s = run.elapsed_s + time_s
    work = {
        case: 0.0 if case in runs and _is_settled(runs[case]) else float(len(segments[case[0]].ops)) ** 2
        for case in cases
    }
    left = sum(work.values())
    for case in cases:
        if run.should_stop() is not None:
            return None
        share, left = work[case] / (left or 1.0), left - work[case]  # whole numbers: exact
        # what the first look leaves open may turn out not to matter
        work_on(case, (until_s - run.elapsed_s) * share * (FIRST_LOOK if len(segments[case[0]].ops) >= LARGE else 1.0))
    settled: set[Case] = set()
    while True:
        bound_s, heads_tails, path = heads_tails_of(tasks, segments, least_s)
        if not np.isfinite(bound_s):
            return heads_tails
        run.raise_bound(
            min(bound_s * (1 - 1e-12), np.inf if run.objective is None else run.objective * (1 + 1e-12)),
            "segments in series",
            partial(_certificate, tasks, segments, {case: runs[case] for case in cases}),
        )
        chain = [(i, a, b) for i, (a, b) in enumerate(path)]
        _offer_chain(run, tasks, segments, [runs[case] for case in chain])
        left_s = until_s - run.elapsed_s
        unsettled = [case for case in chain if len(segments[case[0]].ops) >= LARGE and case not in settled]
        if not unsettled or left_s < LEAST_S or run.should_stop() is not None:
            return heads_tails
        case = max(unsettled, key=lambda case: work[case] / max(worked_s[case], LEAST_S))
        before = least_s[case], runs[case].objective
        work_on(case, left_s / 2)
        if (least_s[case], runs[case].objective) == before:
            settled.add(case)


def _certificate(tasks: Tasks, segments: list[Segment], runs: Mapping[Case, Run]) -> Series:
    """Return the cuts, and what is proven of the segments by now."""
    ends = [segments[0].first, *(segment.last for segment in segments)]
    cuts = [cut for cut in ends if cut is not None]
    shift = 0 if segments[0].first is None else 1
    some = {int(kind): d for d, kind in enumerate(tasks.kind.tolist())}
    cases = [
        (i + shift, None if a is None else some[a], None if b is None else some[b], part.bound)
        for (i, a, b), part in runs.items()
        if part.bound is not None
    ]
    return Series(tuple(tasks.op[cuts].tolist()), tuple(cases))


def _is_settled(part: Run) -> bool:
    """Return whether a segment needs no more time: its optimum is known, or it is impossible."""
    return part.infeasible_because is not None or part.should_stop() is StopReason.PROVED


def _offer_chain(run: Run, tasks: Tasks, segments: list[Segment], parts: list[Run]) -> None:
    """Offer the schedules of the segments one after the other; equal devices are renamed so that the cuts agree."""
    device = np.full(tasks.num_ops, -1, dtype=np.int64)
    sequence: list[int] = []
    for segment, part in zip(segments, parts, strict=True):
        if part.placement is None:
            return
        inner = part.placement.device_of_op
        rename = np.arange(tasks.num_devices)
        if segment.first is not None and device[segment.first] >= 0:
            rename[[inner[0], device[segment.first]]] = device[segment.first], inner[0]
        device[segment.ops] = rename[inner]
        order = part.placement.step_of_op
        assert part.evaluation is not None
        by_start = np.argsort(run_times(part.evaluation)[0] if order is None else order, kind="stable")
        sequence += segment.ops[by_start[1 if sequence else 0 :]].tolist()  # a cut is first, and ended the one before
    run.offer(placement_of(run.problem, tasks, device, np.array(sequence)))
