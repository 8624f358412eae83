r"""Constraint program for the start and the device of every op.

Variables: a start :math:`s_v` per op, a Boolean :math:`x_{cd}` per class and device, and a Boolean
:math:`z_{ab}` per pair of classes with an edge between them: they share a device. Times are whole units, rounded down.

.. math::

   \min\; & T \\
   \text{one device:}\quad & \textstyle\sum_d x_{cd} = 1, \qquad
       x_{ad} \wedge x_{bd} \Rightarrow z_{ab}, \qquad z_{ab} \Rightarrow (x_{ad} \Leftrightarrow x_{bd}) \\
   \text{duration:}\quad & e_v = s_v + \textstyle\sum_d p_{vd} x_{cd} \\
   \text{edge } u \to v:\quad & s_v \ge e_u + c_{uv} (1 - z_{ab})
       \quad \text{(and for each pair of kinds that is slower, if its literals hold)} \\
   \text{one at a time:}\quad & \text{no overlap of the optional intervals } (v, d) \text{ on every device } d; \\
     & \text{cumulative of all ops over all devices (redundant)} \\
   \text{windows:}\quad & s_v \ge r_{vd} \text{ and } T \ge e_v + q_{vd} \text{ if } x_{cd} \\
   \text{memory:}\quad & \textstyle\sum_c b_c x_{cd} \le B_d

Heads r, tails q and closed devices are those of :mod:`placekit.solvers.makespan.bounds.windows` under the best known
makespan: they hold in every schedule that is as good.

**Rounding.** Let S be a schedule of makespan at most the best known, and :math:`\tilde s_v = \lfloor s_v / u \rfloor`,
:math:`\tilde T = \lfloor T / u \rfloor`, all constants rounded down. Every constraint says that a sum of a time and
constants is at most another time, and :math:`\lfloor a \rfloor + \lfloor b \rfloor \le \lfloor a + b \rfloor`, so the
rounded schedule satisfies them all. So the optimum of the program times u is a lower bound. Conversely, the orders and
devices of a solution, executed with the true times, end later by less than one unit per op and per transfer on a path:
at most ``2 V`` units. If all times are multiples of one step, the step is the unit, and only heads and tails are
rounded: up, since a schedule in which no op can start earlier has all its starts at multiples.

**Contention** would need a variable per op and receiving device. The program leaves it out, which is a relaxation: the
bound holds, and the judge scores the schedule with contention.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.arrays import sum_by
from placekit.solve.time_step import common_step_s
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.cpsat import WatchedCpModel
from placekit.solvers.backends.scale import TimeScale, scale_bytes
from placekit.solvers.makespan.bounds.windows import Windows
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import Timetable


class MakespanModel:
    """Program with its variables, and the translation between schedules and values.

    Parameters
    ----------
    tasks
        The tasks with all devices.
    windows
        Windows of schedules of makespan at most `ceiling_s` (:func:`~placekit.solvers.makespan.bounds.windows.narrow`).
    ceiling_s
        Makespan of a known schedule, in seconds.
    low_s
        A proven lower bound in seconds.
    decides
        True to decide only whether there is a schedule up to the ceiling: without objective and without the cumulative
        constraint, which hardly helps a refutation.
    step
        Called whenever the program grows.

    Attributes
    ----------
    proto : cp_model.CpModel
        The model.
    scale : TimeScale
        Its unit of time.
    """

    def __init__(
        self,
        tasks: Tasks,
        windows: Windows,
        ceiling_s: float,
        low_s: float = 0.0,
        *,
        decides: bool = False,
        step: Callable[[], None] = no_step,
    ) -> None:
        self.tasks, self.windows, self.decides = tasks, windows, decides
        self.proto = WatchedCpModel(step)
        step_s = common_step_s(tasks.time_s[np.isfinite(tasks.time_s)], tasks.delay_s.ravel())
        self.scale = TimeScale.of(ceiling_s, 2 * tasks.num_ops, step_s)
        self.horizon = self.scale.horizon(ceiling_s)
        self.label = windows.tasks.class_of_op
        self.num_classes = int(self.label.max()) + 1
        narrow = windows.tasks
        column = np.array([int(np.flatnonzero(narrow.group == g)[0]) for g in tasks.group])
        self.time = self.scale.floor(np.where(np.isfinite(tasks.time_s), tasks.time_s, 0.0), self.horizon + 1)
        self.head = self._units(windows.head_s[:, column])
        self.tail = self._units(windows.tail_s[:, column])
        self.open = np.isfinite(narrow.time_s[:, column])
        self.delay = self.scale.floor(tasks.delay_s, self.horizon + 1)
        self._place()
        self._time_ops(low_s)
        self._order_edges()
        self._run_one_at_a_time()
        self._limit_memory()
        if not decides:
            self._run_few_at_a_time()
            self.proto.minimize(self.end)

    def _units(self, time_s: NDArray[np.float64]) -> NDArray[np.int64]:
        return self.scale.least(np.where(np.isfinite(time_s), time_s, 0.0), self.horizon + 1)

    def _place(self) -> None:
        """Make the variables ``x``; equal devices are opened in the order of the classes."""
        first = np.unique(self.label, return_index=True)[1]
        self.x = {
            (c, d): self.proto.new_bool_var(f"x_{c}_{d}")
            for c in range(self.num_classes)
            for d in np.flatnonzero(self.open[first[c]]).tolist()
        }
        for c in range(self.num_classes):
            self.proto.add_exactly_one(self.x[c, d] for d in range(self.tasks.num_devices) if (c, d) in self.x)
        work = np.bincount(self.label, weights=self.time.max(axis=1))
        self.by_size = np.argsort(-work, kind="stable").tolist()
        self.groups = [np.flatnonzero(self.tasks.group == g).tolist() for g in range(len(self.tasks.group_size))]
        self.opened: dict[tuple[int, int], cp_model.IntVar] = {}
        for group in self.groups:
            for before, device in pairwise(group):
                previous: list[cp_model.IntVar] = []
                for c in self.by_size:
                    if (c, device) not in self.x:
                        continue
                    self.proto.add_bool_or(*previous, ~self.x[c, device])
                    opened = self.opened[before, c] = self.proto.new_bool_var(f"opened_{before}_{c}")
                    self.proto.add_bool_or(*previous, self.x[c, before], ~opened)
                    previous = [opened]

    def _time_ops(self, low_s: float) -> None:
        """Make starts, ends and the makespan, inside their windows."""
        devices = range(self.tasks.num_devices)
        self.low = int(self.scale.least(np.array([low_s]), self.horizon)[0])
        self.end = self.proto.new_int_var(self.low, self.horizon, "makespan")
        self.start: list[cp_model.IntVar] = []
        self.finish: list[cp_model.LinearExprT] = []
        for v, c in enumerate(self.label.tolist()):
            homes = [d for d in devices if (c, d) in self.x]
            times = {d: int(self.time[v, d]) for d in homes}
            shortest = min(times.values())
            head, tail = (min(int(window[v, d]) for d in homes) for window in (self.head, self.tail))
            start = self.proto.new_int_var(head, max(self.horizon - tail - shortest, head), f"s_{v}")
            finish = start + shortest
            extra = [(self.x[c, d], time - shortest) for d, time in times.items() if time > shortest]
            if extra:
                finish = finish + cp_model.LinearExpr.weighted_sum([x for x, _ in extra], [a for _, a in extra])
            self.start.append(start)
            self.finish.append(finish)
            self.proto.add(self.end >= finish + tail)
            for group in self.groups:
                inside = [d for d in group if d in times]
                if not inside:
                    continue
                d = inside[0]
                if int(self.head[v, d]) > head:
                    for e in inside:
                        self.proto.add(start >= int(self.head[v, e])).only_enforce_if(self.x[c, e])
                if int(self.tail[v, d]) > tail:
                    for e in inside:
                        more = times[e] + int(self.tail[v, e])
                        self.proto.add(self.end >= start + more).only_enforce_if(self.x[c, e])

    def _order_edges(self) -> None:
        """Let every reader wait for its producer, and for the transfer if the devices differ."""
        self.same: dict[tuple[int, int], cp_model.IntVar] = {}
        self.on_kind: dict[tuple[int, int], cp_model.IntVar] = {}
        delay, kind = self.delay, self.tasks.kind
        size_of_kind = np.bincount(kind)
        kinds_of = [
            sorted({int(kind[d]) for d in range(len(kind)) if (c, d) in self.x}) for c in range(self.num_classes)
        ]
        for e, (u, v) in enumerate(zip(self.tasks.senders.tolist(), self.tasks.receivers.tolist(), strict=True)):
            a, b = int(self.label[u]), int(self.label[v])
            if a == b:
                self.proto.add(self.start[v] >= self.finish[u])
                continue
            pairs = {
                (k, m): int(delay[e, k, m]) for k in kinds_of[a] for m in kinds_of[b] if k != m or size_of_kind[k] > 1
            }
            if not pairs or max(pairs.values()) == 0:
                self.proto.add(self.start[v] >= self.finish[u])
                continue
            same = self._same(a, b)
            least = min(pairs.values())
            self.proto.add(self.start[v] >= self.finish[u] + least - least * same)
            for (k, m), units in pairs.items():
                if units > least:
                    literals = [~same, self._on_kind(a, k, kinds_of[a]), self._on_kind(b, m, kinds_of[b])]
                    self.proto.add(self.start[v] >= self.finish[u] + units).only_enforce_if(*literals)

    def _same(self, a: int, b: int) -> cp_model.IntVar:
        key = (min(a, b), max(a, b))
        if key not in self.same:
            same = self.same[key] = self.proto.new_bool_var(f"z_{key[0]}_{key[1]}")
            for d in range(self.tasks.num_devices):
                one, other = self.x.get((a, d)), self.x.get((b, d))
                if one is not None and other is not None:
                    self.proto.add_bool_or(~one, ~other, same)
                    self.proto.add_bool_or(~one, other, ~same)
                    self.proto.add_bool_or(one, ~other, ~same)
                for alone in [one] if other is None else [other] if one is None else []:
                    if alone is not None:
                        self.proto.add_implication(alone, ~same)
        return self.same[key]

    def _on_kind(self, c: int, k: int, kinds: list[int]) -> cp_model.IntVar | bool:
        """Return the literal that says that class `c` is on a device of kind `k`."""
        if len(kinds) == 1:
            return True
        if (c, k) not in self.on_kind:
            inside = [self.x[c, d] for d in np.flatnonzero(self.tasks.kind == k).tolist() if (c, d) in self.x]
            if len(inside) == 1:
                return inside[0]
            literal = self.on_kind[c, k] = self.proto.new_bool_var(f"k_{c}_{k}")
            self.proto.add(sum(inside) == literal)
        return self.on_kind[c, k]

    def _run_one_at_a_time(self) -> None:
        for d in range(self.tasks.num_devices):
            intervals = []
            for v, c in enumerate(self.label.tolist()):
                if (c, d) in self.x:
                    name = f"i_{v}_{d}"
                    intervals.append(
                        self.proto.new_optional_fixed_size_interval_var(
                            self.start[v], int(self.time[v, d]), self.x[c, d], name
                        )
                    )
            self.proto.add_no_overlap(intervals)

    def _run_few_at_a_time(self) -> None:
        """Add the redundant constraint that no more ops run at a time than there are devices."""
        everywhere = []
        for v, c in enumerate(self.label.tolist()):
            times = {int(self.time[v, d]) for d in range(self.tasks.num_devices) if (c, d) in self.x}
            everywhere.append(self.proto.new_fixed_size_interval_var(self.start[v], min(times), f"a_{v}"))
        if self.tasks.num_devices > 1:
            self.proto.add_cumulative(everywhere, [1] * len(everywhere), self.tasks.num_devices)

    def _limit_memory(self) -> None:
        size = sum_by(self.label, self.tasks.memory_bytes, self.num_classes)
        for d, limit in enumerate(self.tasks.limit_bytes.tolist()):
            classes = [c for c in range(self.num_classes) if (c, d) in self.x and size[c]]
            if np.isfinite(limit) and size[classes].sum() > limit:
                sizes, most = scale_bytes(size[classes], limit)
                x = [self.x[c, d] for c in classes]
                self.proto.add(cp_model.LinearExpr.weighted_sum(x, sizes.tolist()) <= most)

    # schedules

    def read(self, solution: cp_model.CpSolverSolutionCallback) -> Timetable:
        """Return the devices and the starts, in units, of a solution."""
        device = np.zeros(self.num_classes, dtype=np.int64)
        for (c, d), x in self.x.items():
            if solution.boolean_value(x):
                device[c] = d
        start = np.array([solution.value(s) for s in self.start], dtype=np.int64)
        device = device[self.label]
        return Timetable(device, start, start + self.time[np.arange(len(start)), device])

    def hint(self, plan: Timetable) -> bool:
        """Start the search from a schedule in seconds; return False if the model has no room for it."""
        self.proto.clear_hints()  # type: ignore[no-untyped-call]  # OR-Tools left the annotation out
        first = np.unique(self.label, return_index=True)[1]
        wanted = plan.device[first]
        device = wanted.copy()
        for group in self.groups:  # equal devices are named in the order in which the classes open them
            members = [int(wanted[c]) for c in self.by_size if wanted[c] in group]
            for new, old in zip(group, dict.fromkeys(members), strict=False):
                device[wanted == old] = new
        if (wanted[self.label] != plan.device).any() or any(
            (c, d) not in self.x for c, d in enumerate(device.tolist())
        ):
            return False
        values = {variable.index: int(device[c] == d) for (c, d), variable in self.x.items()}
        is_open: dict[int, int] = {}
        for (before, c), variable in self.opened.items():
            is_open[before] = max(is_open.get(before, 0), int(device[c] == before))
            values[variable.index] = is_open[before]
        values |= {variable.index: int(device[a] == device[b]) for (a, b), variable in self.same.items()}
        kind = self.tasks.kind
        values |= {variable.index: int(kind[device[c]] == k) for (c, k), variable in self.on_kind.items()}
        start = self.scale.floor(np.asarray(plan.start, dtype=np.float64), self.horizon)
        end = 0
        for v, variable in enumerate(self.start):
            values[variable.index] = int(start[v])
            d = int(device[self.label[v]])
            end = max(end, int(start[v] + self.time[v, d] + self.tail[v, d]))
        values[self.end.index] = max(end, self.low)
        for index, value in values.items():
            self.proto.add_hint(self.proto.get_int_var_from_proto_index(index), value)
        return True


def count_literals(tasks: Tasks) -> float:
    """Estimate the number of literals and terms of the program, without the no-overlap constraints."""
    num_kinds, num_devices = len(np.unique(tasks.kind)), tasks.num_devices
    of_ops = tasks.num_ops * (8.0 * num_devices + 8.0) + 5.0 * tasks.num_classes * num_devices
    return of_ops + len(tasks.senders) * (9.0 * num_devices + 5.0 * num_kinds**2)
