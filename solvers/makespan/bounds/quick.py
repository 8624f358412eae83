"""Lower bounds on the makespan, the quick ones first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from placekit.solve.certificates import CertificateSource
from placekit.solvers.makespan.bounds.shared_work import MAX_OPS_SHARED, shared_work, shared_work_of_all
from placekit.solvers.makespan.bounds.windows import SLACK, Windows, narrow
from placekit.solvers.makespan.schedule.tasks import Tasks

MAX_OPS_REFUTE = 2000
"""Ops up to which limits are refuted one after the other."""
MAX_LOOKS = 4
"""Rounds of narrowing and sharing out, at most."""


class Look(NamedTuple):
    """Windows and bound of all schedules within a limit."""

    tasks: Tasks  # the tasks, without devices that are too expensive
    windows: Windows  # their windows
    # least seconds of a schedule as long as the limit; above the limit they refute it. Below the limit they are no
    # lower bound, and only tell which case is nearer to being refuted.
    least_s: float


def quick_bounds(
    tasks: Tasks,
    limit_s: float | None = None,  # makespan of a known schedule, as a scale
) -> Iterator[tuple[float, str, CertificateSource]]:
    """Yield lower bounds in seconds with their names and certificates.

    1. *critical path with transfers*: head, time and tail of an op (:mod:`placekit.solvers.makespan.bounds.windows`);
    2. *shared work*: a linear program shares out the work over all devices
       (:mod:`placekit.solvers.makespan.bounds.shared_work`).
    """
    windows = narrow(tasks)
    if windows is None:
        return
    path_s = windows.path_s * (1 - 1e-12)
    yield path_s, "critical path with transfers", None
    if tasks.num_ops <= MAX_OPS_SHARED:
        shares = shared_work_of_all(windows, path_s, limit_s or path_s)
        if shares is not None:
            yield shares.bound_s, "shared work", partial(shares.certificate, tasks)


def look(tasks: Tasks, limit_s: float) -> Look | None:
    """Return the windows and the bound under a limit on the makespan; None if no schedule keeps the limit.

    If a device is too expensive for a class by shared work, the device is closed, which narrows the windows again.
    """
    most_s, looks_left = limit_s * (1 + SLACK), MAX_LOOKS
    while True:
        windows = narrow(tasks, limit_s)
        if windows is None:
            return None
        shares = shared_work(windows, limit_s)
        least_s = max(windows.path_s, 0.0 if shares is None else shares.bound_s)
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
