"""Proofs without a certificate, for small problems: look at every placement that could contradict the bound.

The search asks for one feasible placement below a value. If it ends without one, the value is a lower bound; if it
finds one, the bound is wrong; if it takes more than its steps, nothing is said. It gives up nothing but what is safe:
work and transfers only grow while groups are placed, memory and the longest paths of
:mod:`placekit.verification.partial` too, what breaks contiguity stays broken, no device has less than the largest load,
and of empty devices that are alike one is enough. Groups are placed in topological order, so that all of this is known
early.

**Orders of a makespan.** Ops are appended one after the other. Of all that could be next, let o end first, at time c on
device d. Then one of those on d that can start before c is next there: one that starts at c or later, whatever it is,
could let o go first and would start no later. So only these are tried, and each schedule is met once (Giffler and
Thompson 1960). With contention an op that is moved may delay the transfers of another, so there all are tried.

Start times ignore contention, so they are never too large.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.verification.exact import ExactProblem, fits
from placekit.verification.heads import around
from placekit.verification.judge import broken_constraints, not_contiguous, objective
from placekit.verification.partial import least_latency, least_makespan, work_from

MAX_STEPS = 1_000_000
"""Groups placed, and ops looked at in whole placements, at most: some seconds."""
MAX_GROUPS = 100
"""Groups at most: more cannot be enumerated anyway."""
MAX_OPS = 400
"""Ops at most."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Result of an enumeration."""

    # True if nothing was left out, so that there is no placement below the value unless one was found
    is_complete: bool
    # device, step: a feasible placement below the value; None if none was found
    device: list[int] | None = None
    step: list[int] | None = None


class _OutOfStepsError(Exception):
    pass


def enumerate_all(exact: ExactProblem, below: Fraction | None, max_steps: int = MAX_STEPS) -> Exhausted:
    """Look for a feasible placement with an objective below `below` seconds; for any feasible one if None."""
    if any(not devices for devices in exact.allowed):
        return Exhausted(True)
    if len(exact.groups) > MAX_GROUPS or exact.num_ops > MAX_OPS or exact.team_rule != "off":
        return Exhausted(False)
    search = _Search(exact, below, max_steps)
    try:
        for device in search.place(0):
            found = search.confirm(device)
            if found is not None:
                return found
    except _OutOfStepsError:
        return Exhausted(False)
    return Exhausted(True)


@dataclass(eq=False)
class _Search:
    exact: ExactProblem
    below: Fraction | None
    left: int
    device: list[int] = field(init=False)

    def __post_init__(self) -> None:
        exact = self.exact
        variant = exact.problem.objective
        self.device = [-1] * exact.num_ops
        self.used = [0] * exact.num_devices
        self.count = [0] * exact.num_devices
        two = isinstance(variant, Throughput) and variant.schedule == "gpipe"
        self.pass_of = [int(two and backward) for backward in exact.is_backward]
        self.work = [[0, 0] for _ in exact.kind]
        self.moved = [[0, 0] for _ in exact.kind]
        self.touched: list[dict[int, int]] = [{} for _ in exact.producer]  # tensor: groups placed, by device
        self.nets: list[list[int]] = [[] for _ in exact.groups]
        for t, producer in enumerate(exact.producer):
            for group in {exact.group_of[op] for op in (producer, *exact.readers[t])}:
                self.nets[group].append(t)
        self.rest = [0] * (len(exact.groups) + 1)  # least work of the groups not placed yet
        self.order = sorted(range(len(exact.groups)), key=lambda g: min(exact.position[op] for op in exact.groups[g]))
        for at in reversed(range(len(self.order))):
            ops = exact.groups[self.order[at]]
            least = min(sum(exact.ticks(op, d) for op in ops) for d in exact.allowed[self.order[at]])
            self.rest[at] = self.rest[at + 1] + least
        self.most = None if self.below is None else self.below / exact.tick
        self.transfer = exact.transfer
        if exact.has_links:  # at least so much, in half ticks; the judge looks at what is left
            self.transfer = [[ticks // 2 for ticks in row] for row in exact.without_links.transfer]
        nothing: tuple[list[dict[int, int]], list[dict[int, int]]] = [], []
        self.heads, self.tails = around(exact) if isinstance(variant, Makespan) else nothing
        self.rest_from: list[int] | None = None
        if isinstance(variant, OffloadLatency) and all(len(ops) == 1 for ops in exact.groups):
            self.rest_from = work_from(exact)

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise _OutOfStepsError

    def place(self, at: int) -> Iterator[list[int]]:
        """Yield every placement of the groups from `at` on that may be feasible and below the value."""
        if self.is_hopeless(at):
            return
        if at == len(self.order):
            yield list(self.device)
            return
        group = self.order[at]
        tried: set[int] = set()
        for d in self.exact.allowed[group]:
            self.spend(1)
            if not self.count[d]:
                if self.exact.alike[d] in tried:
                    continue
                tried.add(self.exact.alike[d])
            self.put(group, d, 1)
            if fits(self.used[d], self.exact.limit[d]):
                yield from self.place(at + 1)
            self.put(group, d, -1)

    def put(self, group: int, d: int, sign: int) -> None:
        """Place a group, or take it away again; loads hold work, and transfers of nets that are known to be split."""
        exact = self.exact
        self.count[d] += sign
        for op in exact.groups[group]:
            self.device[op] = d if sign > 0 else -1
            self.used[d] += sign * exact.memory[op]
            self.work[d][self.pass_of[op]] += sign * exact.ticks(op, d)
        for t in self.nets[group]:
            self._charge(t, -1)
            held = self.touched[t]
            held[d] = held.get(d, 0) + sign
            if not held[d]:
                del held[d]
            self._charge(t, 1)

    def _charge(self, t: int, sign: int) -> None:
        if len(self.touched[t]) > 1:
            for d in self.touched[t]:
                self.moved[d][self.pass_of[self.exact.producer[t]]] += sign * self.transfer[t][self.exact.kind[d]]

    def is_hopeless(self, at: int) -> bool:
        """Return True if no way to place the rest is feasible and below the value."""
        if self._is_too_much(at):
            return True
        exact, variant = self.exact, self.exact.problem.objective
        self.spend(at)
        if exact.problem.contiguity != "none" and not_contiguous(exact, self.device) is not None:
            return True
        if isinstance(variant, OffloadLatency) and variant.calls_per_device == 1:
            latency = least_latency(exact, self.device, self.rest_from)
            return latency is None or (self.most is not None and latency >= self.most)
        if isinstance(variant, Makespan) and self.most is not None:
            return least_makespan(exact, self.device, self.heads, self.tails) >= self.most
        return False

    def _is_too_much(self, at: int) -> bool:
        """Return True if loads alone say that nothing is below the value."""
        if self.most is None:
            return False
        variant, devices = self.exact.problem.objective, range(self.exact.num_devices)
        if isinstance(variant, Throughput):
            join = max if variant.overlap else operator.add
            largest = sum(max(join(self.work[d][p], self.moved[d][p]) for d in devices) for p in (0, 1))
            total = self.rest[at] + sum(sum(self.work[d]) for d in devices)
            if not variant.overlap:
                total += sum(sum(self.moved[d]) for d in devices)
            return largest >= self.most or total >= self.most * len(devices)
        if isinstance(variant, SerialLatency):
            loads = sum(map(sum, self.work)) + sum(map(sum, self.moved)) + self.rest[at]
            return loads >= self.most
        if isinstance(variant, Makespan):
            return max(sum(self.work[d]) for d in devices) >= self.most
        busy = [sum(self.work[d]) + sum(self.moved[d]) for d in devices if not self.exact.is_host[d]]
        return max(busy, default=0) >= self.most

    def confirm(self, device: list[int]) -> Exhausted | None:
        """Return the placement, with steps where they matter, if the judge finds it feasible and below the value."""
        exact = self.exact
        for step in self.steps(device):
            self.spend(exact.num_ops + len(exact.producer))
            if broken_constraints(exact, device, step):
                continue
            value = objective(exact, device, step)
            if value is not None and (self.below is None or value < self.below):
                return Exhausted(True, device, step)
        return None

    def steps(self, device: list[int]) -> Iterator[list[int] | None]:
        """Yield the steps with which a placement has to be looked at."""
        variant = self.exact.problem.objective
        if isinstance(variant, Makespan) and variant.steps == "runtime" and self.below is not None:
            assert self.most is not None  # it is `below` in ticks
            waits = variant.contention
            yield from _sequences(self.exact, device, self.most, self.tails, self.spend, has_contention=waits)
        elif isinstance(variant, OffloadLatency) and variant.calls_per_device > 1:
            in_calls = [op for op, d in enumerate(device) if not self.exact.is_host[d]]
            for calls in itertools.product(range(variant.calls_per_device), repeat=len(in_calls)):
                self.spend(1)
                step = [0] * len(device)
                for op, call in zip(in_calls, calls, strict=True):
                    step[op] = call
                yield step
        else:
            yield None


class _Next(NamedTuple):
    end: int
    start: int
    op: int


def _sequences(
    exact: ExactProblem,
    device: list[int],
    most: Fraction,
    tails: list[dict[int, int]],
    spend: Callable[[int], None],
    *,
    has_contention: bool,
) -> Iterator[list[int]]:
    """Yield orders of all ops, as steps, in which no op starts too late for a value.

    The makespan has to be below `most` ticks; `tails` are those of `placekit.verification.heads.around`. `spend` is
    called with every op that is appended, and raises if there are no steps left.
    """
    waiting = [len({exact.producer[t] for t in tensors}) for tensors in exact.inputs]
    readers = [sorted({op for t in tensors for op in exact.readers[t]}) for tensors in exact.outputs]
    end: dict[int, int] = {}
    free = [0] * exact.num_devices
    left = [0] * exact.num_devices
    least_tail: list[int | None] = [None] * exact.num_devices
    for op, d in enumerate(device):
        left[d] += exact.ticks(op, d)
        known = least_tail[d]
        least_tail[d] = tails[op][d] if known is None else min(known, tails[op][d])

    def begin(op: int) -> int:
        d = device[op]
        ways = (end[u] + exact.move(t, device[u], d) for t, u in ((t, exact.producer[t]) for t in exact.inputs[op]))
        return max([free[d], *ways])

    def extend(ready: list[int]) -> Iterator[list[int]]:
        able = [_Next((start := begin(op)) + exact.ticks(op, device[op]), start, op) for op in ready]
        if not ready:
            turn = {op: place for place, op in enumerate(end)}
            yield [turn[op] for op in range(exact.num_ops)]
        elif not has_contention:
            first = min(able)
            d = device[first.op]
            able = [each for each in able if device[each.op] == d and (each.start < first.end or each is first)]
        for each in able:
            spend(1)
            op, d = each.op, device[each.op]
            before = free[d]
            free[d], left[d] = each.end, left[d] - exact.ticks(op, d)
            if each.end + tails[op][d] < most and free[d] + left[d] + (least_tail[d] or 0) < most:
                end[op] = each.end
                freed = []
                for reader in readers[op]:
                    waiting[reader] -= 1
                    if not waiting[reader]:
                        freed.append(reader)
                yield from extend([other for other in ready if other != op] + freed)
                for reader in readers[op]:
                    waiting[reader] += 1
                del end[op]
            free[d], left[d] = before, left[d] + exact.ticks(op, d)

    return extend([op for op in range(exact.num_ops) if not waiting[op]])
