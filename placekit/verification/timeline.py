"""The makespan of a placement, twice: by the clock to find the order of ops, and exactly for a given order.

Which op a device starts first can hang on a tie, and the objective's rule is about times in double precision: a sum of
floats may tie with another where the exact sums differ. So the rule is followed in floats, each time one sum
``start + duration`` as the objective says; the times of the order that comes of it are then added up exactly. Upward
ranks, by which the receivers of a tensor queue with contention, are floats for the same reason.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from placekit.verification.exact import ExactProblem

if TYPE_CHECKING:
    from placekit.objectives import Makespan


def makespan(exact: ExactProblem, device: list[int], step: list[int] | None, variant: Makespan) -> int | None:
    """Return the makespan of a supported placement in ticks; None if the steps make devices wait for each other."""
    if step is None or variant.steps == "none":
        start = _dispatched(exact, device, variant)
        turn = sorted(range(exact.num_ops), key=start.__getitem__)
    else:
        turn = sorted(range(exact.num_ops), key=lambda op: (step[op], exact.position[op]))
    ends = ordered_finishes(exact, device, turn, variant.contention)
    return None if ends is None else max(ends)


def ordered_finishes(exact: ExactProblem, device: list[int], turn: list[int], has_contention: bool) -> list[int] | None:
    """``[num_ops]`` ticks at which every op ends if each device runs its ops in the order of `turn`; None: stuck."""
    waiting = [len(tensors) for tensors in exact.inputs]
    next_op: dict[int, int] = {}
    last: dict[int, int] = {}
    for op in turn:
        if device[op] in last:
            next_op[last[device[op]]] = op
            waiting[op] += 1
        last[device[op]] = op
    start, end = [0] * exact.num_ops, [0] * exact.num_ops
    bus_free = [0] * exact.num_devices
    queue = [op for op in turn if not waiting[op]]

    def arrive(op: int, ticks: int) -> None:
        start[op] = max(start[op], ticks)
        waiting[op] -= 1
        if not waiting[op]:
            queue.append(op)

    for op in queue:
        d = device[op]
        end[op] = start[op] + exact.ticks(op, d)
        if op in next_op:
            arrive(next_op[op], end[op])
        for t in exact.outputs[op]:
            readers = set(exact.readers[t])
            at = {d: end[op]}
            for to in _receivers(exact, device, t, has_contention=has_contention):
                leaves = max(bus_free[d], end[op]) if has_contention else end[op]
                at[to] = bus_free[d] = leaves + exact.move(t, d, to)
            for reader in readers:
                arrive(reader, at[device[reader]])
    return end if len(queue) == exact.num_ops else None


def _dispatched(exact: ExactProblem, device: list[int], variant: Makespan) -> list[tuple[float, int]]:
    """``[num_ops]`` start in seconds, and number among all starts, of every op if no device idles by choice."""
    kind, op_time = exact.kind, exact.problem.costs.op_time_s.tolist()
    move = _moves(exact)
    rank = _upward_rank(exact) if variant.order == "upward-rank" else None
    waiting = [len(tensors) for tensors in exact.inputs]
    ready_at = [0.0] * exact.num_ops
    ready: list[list[tuple[float, int, int]]] = [[] for _ in kind]
    bus_free = [0.0] * len(kind)
    is_busy = [False] * len(kind)
    start = [(0.0, -1)] * exact.num_ops
    events: list[tuple[float, int, int]] = []  # seconds, 0 for an end and 1 for an op that becomes ready, op

    def make_ready(op: int) -> None:
        key = ready_at[op] if rank is None else -rank[op]
        heapq.heappush(ready[device[op]], (key, exact.position[op], op))

    def finish(op: int, now: float) -> None:
        d = device[op]
        is_busy[d] = False
        for t in exact.outputs[op]:
            at = {d: now}
            for to in _receivers(exact, device, t, has_contention=variant.contention):
                leaves = max(bus_free[d], now) if variant.contention else now
                at[to] = bus_free[d] = leaves + move(t, d, to)
            for reader in sorted(set(exact.readers[t])):
                ready_at[reader] = max(ready_at[reader], at[device[reader]])
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(events, (ready_at[reader], 1, reader))

    for op in range(exact.num_ops):
        if not waiting[op]:
            make_ready(op)
    now, num_started = 0.0, 0
    while True:
        for d in range(len(kind)):
            if not is_busy[d] and ready[d]:
                _, _, op = heapq.heappop(ready[d])
                start[op], num_started, is_busy[d] = (now, num_started), num_started + 1, True
                heapq.heappush(events, (now + op_time[op][kind[d]], 0, op))
        if not events:
            return start
        now = events[0][0]
        while events and events[0][0] == now:  # all ends and arrivals of a moment, then the starts
            _, is_arrival, op = heapq.heappop(events)
            if is_arrival:
                make_ready(op)
            else:
                finish(op, now)


def _receivers(exact: ExactProblem, device: list[int], t: int, *, has_contention: bool) -> list[int]:
    """Return the devices that receive a tensor, in the order in which its producer's device sends it."""
    readers = _readers_by_rank(exact)[t] if has_contention else exact.readers[t]
    source = device[exact.producer[t]]
    return [d for d in dict.fromkeys(device[reader] for reader in readers) if d != source]


@lru_cache(maxsize=2)
def _readers_by_rank(exact: ExactProblem) -> list[list[int]]:
    """``[num_tensors]`` readers by falling upward rank, ties by topological position."""
    rank = _upward_rank(exact)
    return [sorted(readers, key=lambda op: (-rank[op], exact.position[op])) for readers in exact.readers]


def _moves(exact: ExactProblem) -> Callable[[int, int, int], float]:
    """Return the function that says the seconds of a tensor from one device to another one."""
    transfer, direct = exact.problem.costs.transfer_time_s.tolist(), exact.problem.costs.direct_time_s.tolist()

    def move(t: int, source: int, target: int) -> float:
        link = exact.link[source][target]
        seconds: float = (
            transfer[t][exact.kind[source]] + transfer[t][exact.kind[target]] if link is None else direct[t][link]
        )
        return seconds

    return move


def _mean_move(exact: ExactProblem, move: Callable[[int, int, int], float], t: int) -> float:
    """Return the mean seconds of a tensor over all ordered pairs of devices, added up as the rank's definition says."""
    devices = range(exact.num_devices)
    if exact.num_devices == 1:
        return 0.0
    total = 0.0
    if not exact.problem.platform.direct_links:
        for d in devices:
            total += exact.problem.costs.transfer_time_s[t, exact.kind[d]].item()
        return 2 * total / exact.num_devices
    node = [(device.kind, device.node) for device in exact.problem.platform.devices]
    groups = [[d for d in devices if node[d] == alike] for alike in dict.fromkeys(node)]
    for one in groups:
        for other in groups:
            num_pairs = len(one) * (len(other) - (one is other))
            if num_pairs:
                total += num_pairs * move(t, one[0], next(d for d in other if d != one[0]))
    return total / (exact.num_devices * (exact.num_devices - 1))


def _upward_rank(exact: ExactProblem) -> list[float]:
    """``[num_ops]`` HEFT's rank: mean op times over supporting kinds, mean transfers over pairs of devices."""
    op_time, move = exact.problem.costs.op_time_s.tolist(), _moves(exact)
    mean = [_mean_move(exact, move, t) for t in range(len(exact.producer))]
    rank = [0.0] * exact.num_ops
    for op in reversed(exact.in_order):
        longest = 0.0
        for t in exact.outputs[op]:
            longest = max([longest, *(mean[t] + rank[reader] for reader in exact.readers[t])])
        times = [seconds for seconds, ticks in zip(op_time[op], exact.time[op], strict=True) if ticks is not None]
        total = 0.0
        for seconds in times:
            total += seconds
        rank[op] = total / max(len(times), 1) + longest
    return rank
