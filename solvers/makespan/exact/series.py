"""Segments solved one by one: a bound, and a schedule put together from theirs.

1. All segments (:mod:`placekit.solvers.makespan.decomposition.segments`) start with a least time of 0, for every pair
   of kinds at their cuts.
2. The cheapest chain of pairs through all segments is a lower bound.
3. The open segment of that chain that had the least time is worked on: first its quick bounds, then a program, for
   twice as long each time. Then follows step 2.
4. When all segments of the chain are solved, their schedules one after the other are a schedule of the whole, which
   is optimal unless the division ignored something.

So pairs of kinds that are too slow are never solved. The runs of the segments stay in the run of the whole: a later
method of a plan goes on with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placekit.model.errors import ProgramTooLargeError
from placekit.objectives import Makespan
from placekit.solve.certificates import Series
from placekit.solve.lifting.lift import Within
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.bounds.bound import KeepBound
from placekit.solvers.makespan.bounds.quick import quick_bounds
from placekit.solvers.makespan.decomposition.segments import cut_segments, segment_problem
from placekit.solvers.makespan.schedule.tasks import Tasks, make_tasks
from placekit.solvers.makespan.schedule.timetable import placement_of, run_times

FIRST_S = 0.1
"""Seconds that a segment may take when it is looked at first."""

Case = tuple[int, int | None, int | None]
"""Number of a segment, and the kinds of its cuts; None where there is no cut."""


def solve_in_series(
    run: Run[Makespan],  # the run of the whole problem
    tasks: Tasks,  # its tasks
    solve: Callable[[Run[Makespan]], StopReason],  # works on the run of a segment
    keep: KeepBound,  # takes the bounds
    time_s: float,  # seconds for all segments together
) -> None:
    """Solve the segments that the bound depends on, raise the bound, and offer the schedule put together."""
    if run.should_stop() is not None:
        return
    series = _Series(run, tasks)
    if not series.segments:
        return
    until_s = run.elapsed_s + time_s
    seconds: dict[Run[Makespan], float] = {}
    done: set[Run[Makespan]] = set()
    while run.should_stop() is None:
        bound_s, chain = series.cheapest_chain()
        if math.isinf(bound_s):
            return
        keep(bound_s * (1 - 1e-12), "segments in series", series.certificate)
        series.offer(chain)
        part = _next_part(series, chain, seconds, done, lambda: run.elapsed_s >= until_s)
        if part is None:
            return
        if part not in seconds:  # it may turn out that the part does not matter
            seconds[part] = FIRST_S
            for bound in quick_bounds(make_tasks(part.problem)):
                part.raise_bound(*bound)
            continue
        try:
            with part.limited_to(min(seconds[part], until_s - run.elapsed_s)):
                is_cut_off = solve(part) is StopReason.TIME
        except ProgramTooLargeError as error:
            is_cut_off = not error.lacks_memory
        seconds[part] *= 2
        if not is_cut_off:
            done.add(part)


def _next_part(
    series: _Series,
    chain: list[Case],
    seconds: dict[Run[Makespan], float],  # what the parts that were looked at may take
    done: set[Run[Makespan]],  # parts on which no more work is of use
    is_late: Callable[[], bool],  # asked before each part
) -> Run[Makespan] | None:
    """Return the open part of a chain that had the least time, the first of several; None if all are done, or late.

    The first one that had no time needs no look at the others, which may be thousands that are not made yet.
    """
    least: Run[Makespan] | None = None
    for case in chain:
        if is_late():
            return None
        if series.has_only_cuts(case[0]):
            continue
        part = series.part(case)
        if part in done or part.should_stop() is not None:
            continue
        if part not in seconds:
            return part
        if least is None or seconds[part] < seconds[least]:
            least = part
    return least


class _Series:
    """Segments of a problem, and their runs by case; segments that are equal share one."""

    def __init__(self, run: Run[Makespan], tasks: Tasks) -> None:
        self.run, self.tasks = run, tasks
        self.parts: dict[Case, Run[Makespan]] = {}
        self.segments = cut_segments(run.problem, tasks)
        kinds = range(int(tasks.kind.max()) + 1)
        self.time_s = [tasks.time_s[:, tasks.kind == kind].min(axis=1, initial=np.inf).tolist() for kind in kinds]
        self.delay_s = dict(
            zip(zip(tasks.senders.tolist(), tasks.receivers.tolist(), strict=True), tasks.delay_s, strict=True)
        )

    def kinds_at(self, cut: int | None) -> list[int | None]:
        """Return the kinds that a cut may run on."""
        if cut is None:
            return [None]
        return [kind for kind, time_s in enumerate(self.time_s) if math.isfinite(time_s[cut])]

    def part(self, case: Case) -> Run[Makespan]:
        """Return the run of a segment."""
        i, a, b = case
        if case not in self.parts:
            problem = segment_problem(self.run.problem, self.tasks, self.segments[i], a, b)
            new = Run(problem, Within(self.run), self.run.seed)
            self.parts[case] = self.run.parts.setdefault(problem.content_hash, new)
        return self.parts[case]

    def has_only_cuts(self, i: int) -> bool:
        """Return True if a segment has no op between its cuts."""
        segment = self.segments[i]
        return len(segment.ops) == (segment.first is not None) + (segment.last is not None)

    def least_s(self, case: Case) -> float:
        """Return the least seconds from the end of the first cut, or from the beginning, to the end of a segment."""
        i, a, b = case
        first, last = self.segments[i].first, self.segments[i].last
        if self.has_only_cuts(i):
            own_s = 0.0 if last is None or b is None else self.time_s[b][last]
            if first is None or last is None or a == b:
                return own_s
            return own_s + float(self.delay_s[first, last][a, b])
        part = self.parts.get(case)
        if part is None:
            return 0.0
        if part.infeasible_because is not None:
            return math.inf
        done_s = 0.0 if first is None or a is None else self.time_s[a][first]
        return max((part.bound or 0.0) - done_s, 0.0)

    def cheapest_chain(self) -> tuple[float, list[Case]]:
        """Return the least seconds of a chain of cases through all segments, and the chain."""
        ahead: dict[int | None, float] = {None: 0.0}
        came_from: dict[tuple[int, int | None], int | None] = {}  # kind of the cut before a segment, by its last cut
        for i, segment in enumerate(self.segments):
            behind: dict[int | None, float] = {}
            for b in self.kinds_at(segment.last):
                ways = [(before + self.least_s((i, a, b)), a) for a, before in ahead.items()]
                behind[b], came_from[i, b] = min(ways, key=lambda way: way[0])
            ahead = behind
        kind, least = min(ahead.items(), key=lambda way: way[1])
        chain: list[Case] = []
        for i in reversed(range(len(self.segments))):
            before = came_from[i, kind]
            chain.append((i, before, kind))
            kind = before
        return least, chain[::-1]

    def certificate(self) -> Series:
        """Return the cuts, and what is proven of the segments by now."""
        cuts = [segment.last for segment in self.segments if segment.last is not None]
        some = {int(kind): d for d, kind in enumerate(self.tasks.kind.tolist())}
        cases = [
            (i, None if a is None else some[a], None if b is None else some[b], part.bound)
            for (i, a, b), part in self.parts.items()
            if part.bound is not None
        ]
        return Series(tuple(self.tasks.op[cuts].tolist()), tuple(cases))

    def offer(self, chain: list[Case]) -> None:
        """Offer the schedules of a chain one after the other; equal devices are renamed so that the cuts agree."""
        tasks = self.tasks
        device = np.full(tasks.num_ops, -1, dtype=np.int64)
        sequence: list[int] = []
        for i, a, b in chain:
            segment = self.segments[i]
            ops = segment.ops
            if self.has_only_cuts(i):
                able = [kind for kind in (a, b) if kind is not None]
                inner = np.array([int(np.flatnonzero(tasks.kind == kind)[0]) for kind in able])
                by_start = np.arange(len(ops))
            else:
                part = self.part((i, a, b))
                if part.placement is None or part.evaluation is None:
                    return
                inner = part.placement.device_of_op
                start_s, _ = run_times(part.evaluation)
                order = part.placement.step_of_op
                by_start = np.argsort(start_s if order is None else order, kind="stable")
            rename = np.arange(tasks.num_devices)
            if segment.first is not None:
                rename[[inner[0], device[segment.first]]] = device[segment.first], inner[0]
            device[ops] = rename[inner]
            # a cut is first, and ended the segment before
            sequence += ops[by_start if segment.first is None else by_start[1:]].tolist()
        self.run.offer(placement_of(self.run.problem, tasks, device, np.array(sequence)))
