"""Search over orders of ops on devices: every order of a placement that may take less than a value.

Ops are appended one after the other. Of all that could be next, let o end first, at time c on device d. Then one of
those on d that can start before c is next there: one that starts at c or later, whatever it is, could let o go first
and would start no later. So only these are tried, and each schedule is met once (Giffler and Thompson 1960). With
contention an op that is moved may delay the transfers of another, so there all are tried.

Start times ignore contention, so they are never too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from placekit.verification.exact import ExactProblem

__all__ = ["sequences"]


class _Next(NamedTuple):
    end: int
    start: int
    op: int


def sequences(
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
        if not ready:
            turn = {op: place for place, op in enumerate(end)}
            yield [turn[op] for op in range(exact.num_ops)]
            return
        able = [_Next((start := begin(op)) + exact.ticks(op, device[op]), start, op) for op in ready]
        if not has_contention:
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
