r"""Longest paths of a makespan on which ops run on one device because it is too late for another.

**Head** :math:`r_{vd}`: no schedule starts op v on device d earlier. Going back from v on d, let :math:`B(u, g)` be the
least time from the end of an ancestor u on g to that start: along every path the ops take their times, and every change
of device takes its transfers. So v starts no earlier than :math:`R_u = \min_g r_{ug} + t_{ug} + B(u, g)`.

Let :math:`R'_u` be the same minimum over devices other than d. If v starts at :math:`\tau`, then all ancestors with
:math:`R'_u > \tau` run on d, before it and one after the other. With the ancestors by falling :math:`R'`, therefore,

.. math:: \tau \ge \min_k \max ( R'_{(k+1)},\; \text{the end of } (1), \ldots, (k) \text{ one after the other on } d ).

Ancestors that must share the device of v have an infinite :math:`R'`. **Tails** are heads of the reversed graph, as a
schedule read backwards is one of it (Papadimitriou and Yannakakis 1990, for ops that run once).

Of devices that are alike two are enough: the one of v, and another.
"""

from __future__ import annotations

import math
from functools import lru_cache

from placekit.verification.exact import ExactProblem

__all__ = ["heads_and_tails"]

MAX_LOOKS = 6_000_000
"""Pairs of devices at edges between ancestors, of all ops together: some seconds."""

_Heads = list[dict[int, int]]


@lru_cache(maxsize=2)
def heads_and_tails(exact: ExactProblem) -> tuple[_Heads, _Heads] | None:
    """``[num_ops]`` by device: ticks before which an op does not start there, and ticks that follow it there.

    None if there is too much to look at. Devices that are alike are left out but for two; none is missing where an op
    has no other.
    """
    places = _representatives(exact)
    if exact.num_ops * len(exact.edges) * len(places) ** 3 > MAX_LOOKS:
        return None
    cost: dict[tuple[int, int], list[list[int]]] = {}
    num_kinds = max(exact.kind) + 1
    for t, u in enumerate(exact.producer):
        over = exact.transfer[t]
        for v in set(exact.readers[t]):
            known = cost.setdefault((u, v), [[0] * num_kinds for _ in range(num_kinds)])
            for a in range(num_kinds):
                for b in range(num_kinds):
                    known[a][b] = max(known[a][b], over[a] + over[b])
    backwards = {(v, u): known for (u, v), known in cost.items()}
    order = exact.in_order
    return _heads(exact, places, order, cost), _heads(exact, places, order[::-1], backwards)


def _representatives(exact: ExactProblem) -> list[int]:
    count: dict[int, int] = {}
    found = []
    for d, alike in enumerate(exact.alike):
        count[alike] = count.get(alike, 0) + 1
        if count[alike] <= 2:
            found.append(d)
    return found


def _heads(
    exact: ExactProblem, places: list[int], order: list[int], cost: dict[tuple[int, int], list[list[int]]]
) -> _Heads:
    """Return the heads of a graph whose edges have costs by the kinds of the two devices, if these are two."""
    kind = exact.kind
    homes = [[d for d in places if d in exact.allowed[exact.group_of[op]]] for op in range(exact.num_ops)]
    before: list[list[int]] = [[] for _ in order]
    for u, v in cost:
        before[v].append(u)
    rank = {op: at for at, op in enumerate(order)}
    ancestors: list[set[int]] = [set() for _ in order]
    heads: _Heads = [{} for _ in order]
    for v in order:
        ancestors[v] = set(before[v]).union(*(ancestors[u] for u in before[v]))
        # the nearest first, so that what an ancestor leads to is known when its turn comes
        nearest = sorted(ancestors[v], key=rank.__getitem__, reverse=True)
        for d in homes[v]:
            until: dict[int, dict[int, int]] = {u: dict.fromkeys(homes[u], 0) for u in nearest}
            for w in (v, *nearest):
                for u in before[w]:
                    over = cost[u, w]
                    for g in homes[u]:
                        if w == v:
                            least = 0 if g == d else over[kind[g]][kind[d]]
                        else:
                            least = min(
                                (0 if g == f else over[kind[g]][kind[f]]) + exact.ticks(w, f) + rest
                                for f, rest in until[w].items()
                            )
                        until[u][g] = max(until[u][g], least)
            ways = {u: {g: heads[u][g] + exact.ticks(u, g) + until[u][g] for g in homes[u]} for u in nearest}
            soonest = max((min(row.values()) for row in ways.values()), default=0)
            heads[v][d] = max(soonest, _shared(exact, v, d, ways, heads))
    return heads


def _shared(exact: ExactProblem, v: int, d: int, ways: dict[int, dict[int, int]], heads: _Heads) -> int:
    """Return ticks before which v does not start on d, because of the ancestors that come too late from elsewhere."""
    late: list[tuple[float, int]] = []
    for u, row in ways.items():
        is_free = exact.group_of[u] != exact.group_of[v]
        late.append((min((at for g, at in row.items() if g != d and is_free), default=math.inf), u))
    late.sort(reverse=True)
    best: float = math.inf
    together: list[tuple[int, int]] = []
    for k in range(len(late) + 1):
        end = 0
        for head, ticks in sorted(together):
            end = max(end, head) + ticks
        elsewhere = late[k][0] if k < len(late) else 0
        best = min(best, max(elsewhere, end))
        if end >= best or k == len(late) or d not in ways[late[k][1]]:
            break
        u = late[k][1]
        together.append((heads[u][d], exact.ticks(u, d)))
    assert best < math.inf  # an ancestor that has to be elsewhere is there in time
    return int(best)
