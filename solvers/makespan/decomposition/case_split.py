r"""Refutation of limits case by case: a class runs on one device or another, and no case leaves enough time.

Windows (:mod:`placekit.solvers.makespan.bounds.windows`) and shares
(:mod:`placekit.solvers.makespan.bounds.shared_work`) assume that the first op may run on any device. If its device is
fixed, all others must wait for its tensor: heads and tails grow, devices close, and the linear program has less to
share out. A limit is refuted if it is refuted in all cases. A case may be split into cases of its own.

The choice of the class affects speed only: strong branching among the classes that have helped most so far, and some
random ones. Equal devices make one case; the device that is chosen is a group of its own from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from placekit.solvers.makespan.bounds.quick import Look, look
from placekit.solvers.makespan.schedule.tasks import Tasks

CANDIDATES = 8
"""Classes that are tried before one makes the cases."""
FIRST_NODES = 60
"""Cases looked at before a limit is given up; four times as many whenever the steps become too small."""
FIRST_STEP = 0.005
"""Relative step from a refuted limit to the next that is tried; doubled after a success, halved after a failure."""
LEAST_STEP = 0.0005


def refute_by_cases(
    tasks: Tasks,  # the tasks with all devices
    # low_s, high_s: a refuted limit, and the makespan of a known schedule
    low_s: float,
    high_s: float,
    rng: np.random.Generator,  # source of the random candidates
    should_stop: Callable[[], bool],  # asked before every case
    rounds: int | None = None,  # how often steps may become too small before the search gives up; None for no end
) -> Iterator[float]:
    """Yield rising lower bounds in seconds: limits that no schedule keeps.

    Notes
    -----
    A case costs the windows and the linear program of its tasks: hundredths of a second for 100 ops, a tenth for 250.
    """
    tree = _Tree(tasks, rng, should_stop)
    step, nodes = FIRST_STEP, FIRST_NODES
    while low_s < high_s and rounds != 0 and not should_stop():
        limit_s = min(low_s * (1 + step), high_s)
        if tree.refutes(limit_s, nodes):
            low_s, step = limit_s, 2 * step
            yield low_s
        elif step > LEAST_STEP:
            step /= 2
        elif tree.is_exhausted:
            return
        else:
            nodes, step = 4 * nodes, FIRST_STEP
            rounds = None if rounds is None else rounds - 1


class _Tree:
    """Tree of cases, with statistics of the classes that made them."""

    def __init__(
        self,
        tasks: Tasks,
        rng: np.random.Generator,
        should_stop: Callable[[], bool],
    ) -> None:
        self.tasks = tasks
        self.rng = rng
        self.should_stop = should_stop
        self.gain = np.zeros(tasks.num_classes)
        self.tries = np.zeros(tasks.num_classes)
        self.nodes_left = 0
        self.is_exhausted = False

    def refutes(self, limit_s: float, nodes: int) -> bool:
        """Return True if `limit_s` is refuted within the number of nodes.

        Afterwards `is_exhausted` is True if a case remains in which every class has its device.
        """
        self.nodes_left = nodes
        self.is_exhausted = False
        found = self._look(self.tasks, limit_s)
        return found is None or self._splits(found, limit_s)

    def _look(self, tasks: Tasks, limit_s: float) -> Look | None:
        """Look at a case; None if it is refuted."""
        self.nodes_left -= 1
        return look(tasks, limit_s)

    def _splits(self, parent: Look, limit_s: float) -> bool:
        """Return True if some class makes cases that are all refuted."""
        best: list[Look] | None = None
        most = -1.0
        for c in self._candidates(parent):
            if self.nodes_left <= 0 or self.should_stop():
                return False
            found = [self._look(case, limit_s) for case in _cases(parent, c)]
            left = [case for case in found if case is not None]
            gains = [1.0 if case is None else max(case.least_s - parent.least_s, 0.0) / limit_s for case in found]
            gain = float(np.mean(gains)) + min(gains)
            self.gain[c] += gain
            self.tries[c] += 1
            if gain > most:
                best, most = left, gain
            if not left:
                return True
        if best is None:
            self.is_exhausted = True
            return False
        return all(self._splits(case, limit_s) for case in sorted(best, key=lambda case: case.least_s))

    def _candidates(self, parent: Look) -> list[int]:
        """Return classes with more than one open device, the promising ones first."""
        tasks, windows, _ = parent
        open_groups = np.zeros((tasks.num_classes, len(tasks.group_size)), dtype=bool)
        op, device = np.nonzero(np.isfinite(windows.tasks.time_s))
        open_groups[tasks.class_of_op[op], windows.tasks.group[device]] = True
        undecided = np.flatnonzero(open_groups @ tasks.group_size > 1)
        prior = self.gain.sum() / max(self.tries.sum(), 1.0)
        promise = (self.gain[undecided] + prior) / (self.tries[undecided] + 1)
        tried = undecided[np.argsort(-promise, kind="stable")][: CANDIDATES // 2]
        drawn = self.rng.permutation(undecided)[: CANDIDATES // 2]
        return list(dict.fromkeys([*tried.tolist(), *drawn.tolist()]))


def _cases(parent: Look, c: int) -> Iterator[Tasks]:
    """Yield the tasks with class `c` on a device of each group that is open for it."""
    tasks, windows, _ = parent
    ops = np.flatnonzero(tasks.class_of_op == c)
    listed = windows.tasks
    for g in range(len(tasks.group_size)):
        if not np.isfinite(listed.time_s[np.ix_(ops, listed.group == g)]).all(axis=0).any():
            continue
        d = int(np.flatnonzero(tasks.group == g)[0])
        time_s = tasks.time_s.copy()
        time_s[ops] = np.inf
        time_s[ops, d] = tasks.time_s[ops, d]
        group = tasks.group.copy()
        if tasks.group_size[g] > 1:
            group[d] = len(tasks.group_size)
        yield replace(tasks, time_s=time_s, group=group, group_size=np.bincount(group))
