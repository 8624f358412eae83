"""Segments solved one by one: a bound, floors for the windows, and a schedule put together from theirs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from placekit.method import Run
from placekit.placement import Placement
from placekit.solvers.makespan.segments import Segment, cut_segments, floors_of, segment_problem
from placekit.solvers.makespan.tasks import Tasks
from placekit.solvers.makespan.windows import Floors
from placekit.solvers.within import Within
from placekit.stop import StopReason

__all__ = ["solve_in_series"]

LEAST_S = 0.1
"""Seconds that every segment may take, however small its share: one that says nothing spoils the sum."""


def solve_in_series(run: Run, tasks: Tasks, solve: Callable[[Run], StopReason], time_s: float) -> Floors | None:
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
    Floors | None
        None if the graph has no cuts, or if time ran out before every segment was looked at.
    """
    segments = cut_segments(tasks)
    if len(segments) < 2:
        return None
    kinds = [np.unique(tasks.kind[np.isfinite(tasks.time_s[v])]).tolist() for v in range(tasks.num_ops)]
    cases = [
        (i, a, b)
        for i, segment in enumerate(segments)
        for a in ([None] if segment.first is None else kinds[segment.first])
        for b in ([None] if segment.last is None else kinds[segment.last])
    ]
    runs: dict[tuple[int, int | None, int | None], Run] = {}
    least_s: dict[tuple[int, int | None, int | None], float] = {}
    until_s = run.elapsed_s + time_s
    work = np.array([segments[i].high - segments[i].low for i, _, _ in cases], dtype=np.float64) ** 2
    for at, (i, a, b) in enumerate(cases):
        if run.should_stop() is not None:
            return None
        segment = segments[i]
        share_s = max((until_s - run.elapsed_s) * work[at] / work[at:].sum(), LEAST_S)
        part = segment_problem(run.problem, tasks, segment, a, b)
        inner = runs[i, a, b] = Run(part, Within(run, share_s), run.seed)
        solve(inner)
        if inner.infeasible_because is not None:
            continue
        # the first cut is part of the segment, and its schedule starts with it
        done_s = 0.0
        if segment.first is not None:
            done_s = float(tasks.time_s[segment.first, tasks.kind == a].min())
        least_s[i, a, b] = max((inner.bound or 0.0) * (1 - 1e-12) - done_s, 0.0)
    bound_s, floors, path = floors_of(tasks, segments, least_s)
    if np.isfinite(bound_s):
        run.raise_bound(
            min(bound_s * (1 - 1e-12), np.inf if run.objective is None else run.objective * (1 + 1e-12)),
            "segments in series",
        )
        _offer_chain(run, tasks, segments, [runs[i, a, b] for i, (a, b) in enumerate(path)])
    return floors


def _offer_chain(run: Run, tasks: Tasks, segments: list[Segment], parts: list[Run]) -> None:
    """Offer the schedules of the segments one after the other; equal devices are renamed so that the cuts agree."""
    device = np.full(tasks.num_ops, -1, dtype=np.int64)
    step = np.zeros(tasks.num_ops, dtype=np.int64)
    for segment, part in zip(segments, parts, strict=True):
        if part.placement is None:
            return
        inner = part.placement.device_of_op
        rename = np.arange(tasks.num_devices)
        if segment.first is not None and device[segment.first] >= 0:
            rename[[inner[0], device[segment.first]]] = device[segment.first], inner[0]
        device[segment.low : segment.high] = rename[inner]
        order = part.placement.step_of_op
        assert part.evaluation is not None
        assert part.evaluation.score is not None
        schedule = part.evaluation.score.schedule
        assert schedule is not None
        ops = ~schedule.is_transfer
        start = np.zeros(len(inner))
        start[schedule.op[ops]] = schedule.start_s[ops]
        by_start = np.argsort(start, kind="stable") if order is None else np.argsort(order, kind="stable")
        step[segment.low + by_start] = segment.low + np.arange(len(inner))
    device_of_op, step_of_op = np.empty_like(device), np.empty_like(step)
    device_of_op[tasks.op], step_of_op[tasks.op] = device, step
    run.offer(Placement.of(run.problem, device_of_op, step_of_op))
