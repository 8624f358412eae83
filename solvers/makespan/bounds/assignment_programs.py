r"""Who runs where, with the time of every op: a linear and an integer program that bound the makespan.

Let :math:`x_{cg} \in \{0, 1\}` say that class c runs on group g of :math:`n_g` equal devices, and :math:`s_v` be the
start of op v; it ends at :math:`f_v = s_v + \sum_g p_{vg} x_{c(v) g}`. A schedule of makespan T between a known bound
and a limit keeps

- paths, :math:`f_u \le s_v` along every edge, and heads and tails, :math:`s_v \ge \sum_g r_{vg} x_{c(v) g}` and
  :math:`f_v + \sum_g q_{vg} x_{c(v) g} \le T` (:mod:`placekit.solvers.makespan.bounds.windows`);
- for all ops s before t, with J the ops that are both behind s and before t: all of J runs between the end of s and the
  start of t, so for every group

  .. math:: \sum_{v \in J} p_{vg} x_{c(v) g} + R_{n-1} + \rho_n (1 - x_{c(s) g}) + R'_{n-1} + \rho'_n (1 - x_{c(t) g})
            \le n_g (s_t - f_s) .

  On a device other than that of s, the first op v of J starts at least :math:`\rho(v)` after the end of s
  (:mod:`placekit.solvers.makespan.bounds.between`), and these are different ops on different devices: :math:`\rho_k` is
  the k-th smallest over the ops of J that can be on g, :math:`R_k` the sum of the k smallest; read backwards, the same
  holds for t. A device that runs none of J idles all the time, so every :math:`\rho` is cut off at half of the least
  time from s to t. The start of the schedule stands for an s on no device, with heads for :math:`\rho`; its end for t.

The program of the loads (:mod:`placekit.solvers.makespan.bounds.shared_work`) weighs devices, the paths know only the
fastest ones;
here an op that goes to a slow device to even out the loads makes its paths longer, and the work behind a late op must
still fit. The rows for pairs are added when they are violated, until none is. Where there are several groups, x is then
required to be integer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit
from placekit.solvers.backends.program import Program
from placekit.solvers.makespan.bounds.between import insert_smallest, least_between, reachable, waits_between
from placekit.solvers.makespan.bounds.windows import Windows

__all__ = ["MAX_OPS_ASSIGNED", "assigned_work"]

MAX_OPS_ASSIGNED = 400
"""Ops up to which the programs are built: they have a row for every pair that binds."""
ROUNDS = 40
"""Rounds of violated rows, at most."""
ROWS_PER_ROUND = 200
"""Violated rows that are added in a round, the most violated ones."""
VIOLATION = 1e-6
"""Of a row that is added, at least, in units of the limit."""
NEARLY = 0.95
"""The integer program is solved where the linear one reaches this share of the limit: it adds a percent at best."""
ABOVE_LIMIT = 0.01
"""How far above the limit T may go, relatively, so that the programs are feasible in any case."""


def assigned_work(
    windows: Windows,
    between_s: NDArray[np.float64] | None,
    low_s: float,
    limit_s: float,
    time_limit_s: float,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Yield bounds on the makespan in seconds: of the linear program, and where it is worth it of the integer one.

    Parameters
    ----------
    windows
        Made by `limit_s`.
    between_s
        ``[V, V]`` least seconds from the end of one op to the start of another, if known.
    low_s, limit_s
        Known bound and known makespan. What is yielded may exceed the limit; it proves no more than the limit then.
    time_limit_s
        Seconds for both programs together.
    should_stop
        Asked from time to time.

    Notes
    -----
    A round of rows costs O(ops**3 * groups) in matrix products, and the linear program some steps of the dual simplex
    method: a third of a second for all rounds of 193 ops on three unequal devices. Memory O(ops**2 * groups).
    """
    deadline = perf_counter() + time_limit_s
    program = _Assignment(windows, between_s, low_s, limit_s)
    multipliers: NDArray[np.float64] | None = None
    for _ in range(ROUNDS):
        if should_stop() or perf_counter() >= deadline:
            break
        outcome = program.program.solve(deadline - perf_counter())
        if outcome.column is None or outcome.row_dual is None:
            break
        multipliers = outcome.row_dual
        if not program.cut_off(outcome.column):
            break
    if multipliers is None:
        return
    bound_s = program.program.weak_bound(multipliers) * limit_s
    yield bound_s
    if should_stop() or perf_counter() >= deadline or bound_s < NEARLY * limit_s or not program.require_integers():
        return
    outcome = program.program.solve(deadline - perf_counter(), should_stop)
    proven_s = program.program.proven_s(outcome, limit_s)
    if proven_s is not None:
        yield proven_s


class _Assignment:
    """The program of the module docstring, in units of the limit.

    Beside the V ops, number V is the start of the schedule, and number V + 1 its end.
    """

    def __init__(self, windows: Windows, between_s: NDArray[np.float64] | None, low_s: float, limit_s: float) -> None:
        self.tasks = tasks = windows.tasks
        self.program = Program()
        self.unit_s, self.low = limit_s, low_s / limit_s
        self.size = tasks.group_size
        self.num_ops, self.num_groups = tasks.num_ops, len(self.size)
        time_s, head_s, tail_s = (times / limit_s for times in windows.by_group())
        self.can = np.ones((tasks.num_classes, self.num_groups), dtype=bool)
        np.logical_and.at(self.can, tasks.class_of_op, np.isfinite(time_s))
        is_open = self.can[tasks.class_of_op]
        self.time, head, tail = (np.where(is_open, times, 0.0) for times in (time_s, head_s, tail_s))
        self._columns()
        self._paths(head, tail)
        self._memory()
        least_s = least_between(tasks) if between_s is None else between_s
        self._pairs(least_s, np.where(is_open, head_s, np.inf), np.where(is_open, tail_s, np.inf))

    def _columns(self) -> None:
        program, tasks = self.program, self.tasks
        self.share = np.array([[program.column(0.0, float(can)) for can in row] for row in self.can])
        self.start = np.array([program.column(0.0, 1.0 + ABOVE_LIMIT) for _ in range(self.num_ops)])
        self.end = program.column(self.low, 1.0 + ABOVE_LIMIT, cost=1.0)
        for shares in self.share:
            program.row(dict.fromkeys(shares.tolist(), 1.0), 1.0, 1.0)
        self.op_share = self.share[tasks.class_of_op]

    def _paths(self, head: NDArray[np.float64], tail: NDArray[np.float64]) -> None:
        program, start = self.program, self.start.tolist()
        for u, v in zip(self.tasks.senders.tolist(), self.tasks.receivers.tolist(), strict=True):
            program.row({start[u]: 1.0, start[v]: -1.0} | self._on(u, self.time[u]), high=0.0)
        for v in range(self.num_ops):
            program.row({start[v]: -1.0} | self._on(v, head[v]), high=0.0)
            program.row({start[v]: 1.0, self.end: -1.0} | self._on(v, self.time[v] + tail[v]), high=0.0)

    def _on(self, v: int, times: NDArray[np.float64]) -> dict[int, float]:
        return dict(zip(self.op_share[v].tolist(), times.tolist(), strict=True))

    def _memory(self) -> None:
        tasks = self.tasks
        class_bytes = np.bincount(tasks.class_of_op, weights=tasks.memory_bytes)
        for g, size in enumerate(self.size.tolist()):
            limit = float(tasks.limit_bytes[tasks.group == g][0]) * size
            if np.isfinite(limit) and limit > 0:
                self.program.row(
                    dict(zip(self.share[:, g].tolist(), (class_bytes / limit).tolist(), strict=True)), high=1.0
                )

    def _pairs(self, least_s: NDArray[np.float64], head: NDArray[np.float64], tail: NDArray[np.float64]) -> None:
        """Prepare what the rows for pairs need: which ops are between, and how long the devices idle there."""
        num_ops = self.num_ops
        self.behind = np.zeros((num_ops + 2, num_ops + 2), dtype=np.bool_)
        self.behind[:num_ops, :num_ops] = reachable(self.tasks)
        self.behind[num_ops, :num_ops] = self.behind[:num_ops, num_ops + 1] = self.behind[num_ops, num_ops + 1] = True
        apart = np.zeros((num_ops + 2, num_ops + 2))
        apart[:num_ops, :num_ops] = np.maximum(least_s, 0.0) / self.unit_s
        apart[num_ops, :num_ops], apart[:num_ops, num_ops + 1] = head.min(axis=1), tail.min(axis=1)
        apart[num_ops, num_ops + 1] = self.low
        self.apart = apart
        wait, wait_back = (waits / self.unit_s for waits in waits_between(self.tasks, least_s))
        self.early = np.zeros((self.num_groups, num_ops + 2, num_ops + 2, 2))
        self.late = np.zeros_like(self.early)
        for g, size in enumerate(self.size.tolist()):
            ahead = np.vstack([wait, head[:, g], np.zeros(num_ops)])  # by s, then by v
            back = np.vstack([wait_back.T, np.zeros(num_ops), tail[:, g]])  # by t, then by v
            _idle(self.behind, ahead, back, np.isfinite(head[:, g]), size, apart, self.early[g], self.late[g])
        self.is_in: set[tuple[int, int, int]] = set()

    def cut_off(self, column: NDArray[np.float64]) -> int:
        """Add the rows that a solution violates most; return their number."""
        num_ops, share = self.num_ops, column[self.op_share]
        start = np.concatenate([column[self.start], [0.0, column[self.end]]])
        finish = start.copy()
        finish[:num_ops] += (self.time * share).sum(axis=1)
        inside = self.behind.astype(np.float64)
        found = self._worst(self.num_groups, self.apart - (start[None, :] - finish[:, None]))
        for g, size in enumerate(self.size.tolist()):
            on = np.concatenate([share[:, g], [0.0, 0.0]])
            work = np.concatenate([self.time[:, g] * share[:, g], [0.0, 0.0]])
            idle = self.early[g, :, :, 0] + self.early[g, :, :, 1] * (1.0 - on)[:, None]
            idle += self.late[g, :, :, 0] + self.late[g, :, :, 1] * (1.0 - on)[None, :]
            excess = (inside * work) @ inside + idle - size * (start[None, :] - finish[:, None])
            found += self._worst(g, excess)
        fresh = [each[1:] for each in sorted(found, reverse=True) if each[1:] not in self.is_in][:ROWS_PER_ROUND]
        for g, s, t in fresh:
            self.is_in.add((g, s, t))
            self._add(g, s, t)
        return len(fresh)

    def _worst(self, g: int, excess: NDArray[np.float64]) -> list[tuple[float, int, int, int]]:
        """Return the largest of the excesses ``[V + 2, V + 2]`` of group `g` with their pairs."""
        excess = np.where(self.behind, excess, 0.0)
        worst = np.argpartition(-excess, min(ROWS_PER_ROUND, excess.size - 1), axis=None)[:ROWS_PER_ROUND].tolist()
        return [(float(excess.flat[k]), g, *divmod(k, len(excess))) for k in worst if excess.flat[k] > VIOLATION]

    def _add(self, g: int, s: int, t: int) -> None:
        """Add the row of group `g` for the pair `s`, `t`; for the number of groups, that of the least time between."""
        num_ops, has_work = self.num_ops, g < self.num_groups
        size = float(self.size[g]) if has_work else 1.0
        terms = {int(self.start[t]) if t < num_ops else self.end: -size}

        def add(columns: NDArray[np.int64], factors: NDArray[np.float64]) -> None:
            for column, factor in zip(columns.tolist(), factors.tolist(), strict=True):
                terms[column] = terms.get(column, 0.0) + factor

        if s < num_ops:
            terms[int(self.start[s])] = size
            add(self.op_share[s], size * self.time[s])
        if not has_work:
            self.program.row(terms, high=-float(self.apart[s, t]))
            return
        inside = np.flatnonzero(self.behind[s, :num_ops] & self.behind[:num_ops, t])
        add(self.op_share[inside, g], self.time[inside, g])
        for op, (_, unless) in ((s, self.early[g, s, t]), (t, self.late[g, s, t])):
            if op < num_ops:
                add(self.op_share[op, g : g + 1], np.array([-unless]))
        self.program.row(terms, high=-float(self.early[g, s, t].sum() + self.late[g, s, t].sum()))

    def require_integers(self) -> bool:
        """Require x to be integer; return False if there is nothing to choose."""
        has_choice = self.can.sum(axis=1) > 1
        self.program.require_integers(self.share[has_choice].ravel().tolist())
        return bool(has_choice.any())


@njit(cache=True, nogil=True)
def _idle(
    behind: NDArray[np.bool_],
    ahead: NDArray[np.float64],
    back: NDArray[np.float64],
    can: NDArray[np.bool_],
    size: int,
    apart: NDArray[np.float64],
    early: NDArray[np.float64],
    late: NDArray[np.float64],
) -> None:
    """Fill ``early[s, t]`` and ``late[s, t]`` with R of all devices but one, and rho of that one. O(ops**3)."""
    num_ops = len(can)
    first, last = np.empty(size), np.empty(size)
    for s in range(num_ops + 2):
        for t in range(num_ops + 2):
            if not behind[s, t]:
                continue
            first[:], last[:] = np.inf, np.inf
            for v in range(num_ops):
                if can[v] and behind[s, v] and behind[v, t]:
                    insert_smallest(first, ahead[s, v])
                    insert_smallest(last, back[t, v])
            for k in range(size):
                at = 0 if k < size - 1 else 1
                early[s, t, at] += min(first[k], apart[s, t] / 2)
                late[s, t, at] += min(last[k], apart[s, t] / 2)
