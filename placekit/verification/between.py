r"""What must happen between two ops of a makespan: least ticks from the end of s to the start of t.

Let J be the ops behind s and before t, and let k devices run ops of J. They all run in the L ticks between.

- v, the first op of J on a device other than that of s, waits for a predecessor elsewhere: at least
  :math:`\rho_s(v)`, the longest path of least times from the end of s, and the least transfer to another device. At
  least k - 1 of the k devices are not that of s, and their first ops differ: they idle for the k - 1 least
  :math:`\rho_s`. Read backwards, the same holds at t, where they idle for the k - 1 least :math:`\rho'_t`.
- If a tick on device d is worth y_d, an op is worth at least :math:`\min_d y_d t_{vd}`, and the k devices have at most
  the k largest y, times L, less what they idle.

So L is at least the least over k of (worth of J + least y * idle) / (sum of the k largest y), for any y; and at least
the longest path. Equal worths are tried, and some that rise with the speed of the kinds. It is a whole number of ticks:
where no op could start earlier, every time is a sum of whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from heapq import nsmallest
from itertools import accumulate

from placekit.verification.exact import ExactProblem

__all__ = ["Delays", "least_between", "turned"]

MAX_OPS = 250
"""Ops up to which all triples of them are looked at, in some seconds."""
POWERS = (0.0, 0.5, 0.75, 1.0, 1.25)
"""Of the speed: worths of a tick that are tried."""
WHOLE = 1 << 40
"""The largest worth: worths are whole numbers."""

Delays = dict[tuple[int, int], int]
"""Least ticks of each edge if its two ends are on two devices."""


def least_between(exact: ExactProblem, delay: Delays) -> list[dict[int, int]]:
    """``[num_ops]`` by every op behind: least ticks from the end of the first to its start. O(ops**3).

    Nothing for more than `MAX_OPS` ops.
    """
    if exact.num_ops > MAX_OPS:
        return [{} for _ in range(exact.num_ops)]
    least = [min(exact.ticks(op, d) for d in exact.allowed[exact.group_of[op]]) for op in range(exact.num_ops)]
    far = _distances(exact.in_order, list(delay), least)
    wait = _waits(exact.in_order, delay, least, far)
    backwards = {(v, u): ticks for (u, v), ticks in delay.items()}
    wait_back = _waits(exact.in_order[::-1], backwards, least, turned(far))
    found = [dict(row) for row in far]
    for worth in _worths(exact):
        most = list(accumulate(sorted(worth, reverse=True)))
        weighted = [
            min(worth[d] * exact.ticks(op, d) for d in exact.allowed[exact.group_of[op]]) for op in range(exact.num_ops)
        ]
        for s, behind in enumerate(far):
            for t in behind:
                between = [v for v in behind if t in far[v]]
                work = sum(weighted[v] for v in between)
                if work <= found[s][t] * most[0]:
                    continue  # no more than is known, even on one device alone
                early = nsmallest(len(most) - 1, (wait[s][v] for v in between))
                late = nsmallest(len(most) - 1, (wait_back[t][v] for v in between))
                idle = accumulate((a + b for a, b in zip(early, late, strict=True)), initial=0)
                ways = [-(-(work + min(worth) * i) // y) for i, y in zip(idle, most[: len(between)], strict=False)]
                found[s][t] = max(found[s][t], min(ways))
    return found


def _worths(exact: ExactProblem) -> list[list[int]]:
    """Return vectors of positive worths ``[num_devices]`` of a tick on each device."""
    everywhere = [op for op in range(exact.num_ops) if len(exact.allowed[exact.group_of[op]]) == exact.num_devices]
    total = [sum(exact.ticks(op, d) for op in everywhere) for d in range(exact.num_devices)]
    if len(set(total)) == 1 or not all(total):
        return [[WHOLE] * exact.num_devices]
    speed = [Fraction(min(total), ticks) for ticks in total]
    found = [[math.floor(float(each) ** power * WHOLE) for each in speed] for power in POWERS]
    return [worth for worth in found if all(worth)]


def _distances(order: Sequence[int], edges: Sequence[tuple[int, int]], least: list[int]) -> list[dict[int, int]]:
    """``[num_ops]`` by every op behind: the longest path from the end of the first to its start."""
    after: list[list[int]] = [[] for _ in order]
    for u, v in edges:
        after[u].append(v)
    found: list[dict[int, int]] = [{} for _ in order]
    for u in reversed(order):
        row = found[u]
        for v in after[u]:
            row[v] = max(row.get(v, 0), 0)
            for w, ticks in found[v].items():
                row[w] = max(row.get(w, 0), least[v] + ticks)
    return found


def turned(far: list[dict[int, int]]) -> list[dict[int, int]]:
    """Return what is by the first op, then by the second, the other way round."""
    found: list[dict[int, int]] = [{} for _ in far]
    for s, row in enumerate(far):
        for t, ticks in row.items():
            found[t][s] = ticks
    return found


def _waits(order: Sequence[int], delay: Delays, least: list[int], far: list[dict[int, int]]) -> list[dict[int, int]]:
    """``[num_ops]`` rho of the module docstring, by every op behind."""
    found: list[dict[int, int]] = [dict.fromkeys(row, 0) for row in far]
    before: list[list[tuple[int, int]]] = [[] for _ in order]
    for (u, v), ticks in delay.items():
        before[v].append((u, ticks))
    for s, row in enumerate(found):
        for v in row:
            for u, ticks in before[v]:
                if u == s:
                    row[v] = max(row[v], ticks)
                elif u in far[s]:
                    row[v] = max(row[v], far[s][u] + least[u] + ticks)
    return found
