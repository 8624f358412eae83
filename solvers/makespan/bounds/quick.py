"""Lower bounds on the makespan, the quick ones first; the best one is the problem's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from placekit.objectives import Throughput
from placekit.problem import Problem
from placekit.solvers.makespan.bounds.between import least_between
from placekit.solvers.makespan.bounds.energy import window_work
from placekit.solvers.makespan.bounds.shared_work import shared_work
from placekit.solvers.makespan.bounds.windows import SLACK, Floors, Windows, narrow
from placekit.solvers.makespan.mechanisms import ALL, Mechanisms
from placekit.solvers.makespan.schedule.tasks import Tasks, representatives

__all__ = ["Look", "first_floors", "look", "makespan_bounds", "refute"]

MAX_OPS_BETWEEN = 700
"""Ops up to which every pair is looked at."""
MAX_OPS_REFUTE = 2000
"""Ops up to which limits are refuted one after the other."""
MAX_LOOKS = 4
"""Rounds of narrowing and sharing out, at most."""
REFUTE_STEP = 1e-4
"""Relative distance between refuted and unrefuted limits at which the bisection ends."""


class Look(NamedTuple):
    """What holds in every schedule that keeps a limit.

    Parameters
    ----------
    tasks
        The tasks, without devices that are too dear.
    windows
        Their windows.
    least_s
        Seconds that a schedule as long as the limit needs, at least: the limit is refuted if they exceed it. They are
        no bound on shorter schedules; up to the limit they only tell which case is nearer to being refuted.
    """

    tasks: Tasks
    windows: Windows
    least_s: float


def first_floors(tasks: Tasks, mechanisms: Mechanisms = ALL) -> Floors:
    """Return what is known of the time between ops; nothing for very large graphs. O(ops**3)."""
    nothing = np.zeros_like(tasks.time_s)
    if tasks.num_ops > MAX_OPS_BETWEEN or not mechanisms.between:
        return Floors(nothing, nothing)
    return Floors(nothing, nothing, least_between(representatives(tasks)))


def makespan_bounds(
    problem: Problem,
    tasks: Tasks,
    floors: Floors,
    *,
    upper_bound_s: float | None = None,
    time_limit_s: float = math.inf,
    mechanisms: Mechanisms = ALL,
) -> Iterator[tuple[float, str]]:
    """Yield lower bounds in seconds with their names.

    1. *critical path with transfers*: head, time and tail of an op (:mod:`placekit.solvers.makespan.bounds.windows`),
       with the work between ops (:mod:`placekit.solvers.makespan.bounds.between`) where `floors` hold it;
    2. *work in windows*: :mod:`placekit.solvers.makespan.bounds.energy`;
    3. *unrelated machines*, *memory-forced work*: no device is done before it has done its ops, so what bounds the
       largest load of a pipeline without transfers bounds the makespan;
    4. *refuted limit*: the largest limit that the windows refute, with the work in them and how it can be shared out
       (:mod:`placekit.solvers.makespan.bounds.shared_work`).

    Parameters
    ----------
    problem, tasks
        The problem.
    floors
        See :func:`first_floors`.
    upper_bound_s
        Makespan of a schedule that is known; without one there is nothing to refute.
    time_limit_s
        Time for all of them.
    mechanisms
        Those of them that are used.
    """
    from placekit.solvers.throughput.bounds.forced_work import memory_forced_work
    from placekit.solvers.throughput.bounds.machines import unrelated_machines

    deadline = perf_counter() + time_limit_s
    windows = narrow(tasks, floors=floors)
    if windows is None:
        return
    best_s = windows.path_s * (1 - 1e-12)
    yield best_s, "critical path with transfers"
    if mechanisms.energy:
        found = window_work(windows)
        best_s = max(best_s, found)
        yield found, "work in windows"
    if perf_counter() >= deadline:
        return
    if mechanisms.loads and ((np.isfinite(tasks.limit_bytes)).any() or len(tasks.group_size) > 1):
        costs = problem.costs.replace(transfer_time_s=np.zeros_like(problem.costs.transfer_time_s))
        pipeline = problem.replace(objective=Throughput(), costs=costs)
        for bound_s, name in (
            (unrelated_machines(pipeline, time_limit_s=deadline - perf_counter()), "unrelated machines"),
            (memory_forced_work(pipeline, time_limit_s=max(deadline - perf_counter(), 0.0) / 4), "memory-forced work"),
        ):
            if bound_s is not None:
                best_s = max(best_s, bound_s)
                yield bound_s, name
    if mechanisms.bisection and upper_bound_s is not None and tasks.num_ops <= MAX_OPS_REFUTE:
        refuted = refute(tasks, floors, best_s, upper_bound_s, lambda: perf_counter() >= deadline, mechanisms)
        if refuted > best_s:
            yield refuted, "refuted limit"


def look(tasks: Tasks, limit_s: float, floors: Floors, mechanisms: Mechanisms = ALL) -> Look | None:
    """Return what holds under a limit on the makespan; None if no schedule keeps it.

    Where sharing out the work says that a class is too dear for a device, the device is closed for it, which narrows
    the windows again.
    """
    most_s, looks_left = limit_s * (1 + SLACK), MAX_LOOKS
    while True:
        windows = narrow(tasks, limit_s, floors)
        if windows is None:
            return None
        least_s = window_work(windows) if mechanisms.energy else windows.path_s
        shares = shared_work(windows, limit_s) if mechanisms.shared_work and least_s <= most_s else None
        least_s = max(least_s, 0.0 if shares is None else shares.bound_s)
        if least_s > most_s:
            return None
        looks_left -= 1
        if shares is None or not looks_left:
            return Look(tasks, windows, least_s)
        inner = windows.tasks
        is_dear = (shares.bound_s + shares.surcharge_s > most_s)[inner.class_of_op]
        if not (is_dear[:, inner.group] & np.isfinite(inner.time_s)).any():
            return Look(tasks, windows, least_s)
        tasks = replace(tasks, time_s=np.where(is_dear[:, tasks.group], np.inf, tasks.time_s))


def refute(
    tasks: Tasks,
    floors: Floors,
    low_s: float,
    high_s: float,
    should_stop: Callable[[], bool] = lambda: False,
    mechanisms: Mechanisms = ALL,
) -> float:
    """Return a limit between `low_s` and `high_s` below which no schedule stays, by bisection.

    A limit is refuted if its windows are empty, or if the work in them does not fit. What the windows can refute is
    not always monotone in the limit, so the bisection need not find the largest.
    """
    while high_s - low_s > REFUTE_STEP * high_s and not should_stop():
        limit_s = (low_s + high_s) / 2
        if look(tasks, limit_s, floors, mechanisms) is None:
            low_s = limit_s
        else:
            high_s = limit_s
    return low_s
