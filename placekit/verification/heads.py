r"""Longest paths of a makespan on which ops run on one device because it is too late for another.

**Head** :math:`r_{vd}`: no schedule starts op v on device d earlier. Going back from v on d, let :math:`B(u, g)` be the
least time from the end of an ancestor u on g to that start: along every path the ops take their times, ops that must
share a device do, and every change of device takes its transfers. So v starts no earlier than
:math:`R_u = \min_g r_{ug} + t_{ug} + B(u, g)`.

Let :math:`R'_u` be the same minimum over devices other than d. If v starts at :math:`\tau`, then all ancestors with
:math:`R'_u > \tau` run on d, before it and one after the other. With the ancestors by falling :math:`R'`, therefore,

.. math:: \tau \ge \min_k \max ( R'_{(k+1)},\; \text{the end of } (1), \ldots, (k) \text{ one after the other on } d ).

Ancestors that must share the device of v have an infinite :math:`R'`. **Tails** are heads of the reversed graph, as a
schedule read backwards is one of it (Papadimitriou and Yannakakis 1990, for ops that run once).

Of devices that are alike two are enough, the one of v and another: moving to a third is no shorter than to one of them.
"""

from __future__ import annotations

import math
from functools import lru_cache

from placekit.objectives import OffloadLatency
from placekit.verification.exact import ExactProblem

MAX_LOOKS = 6_000_000
"""Pairs of devices at edges between ancestors, of all ops together: some seconds. Beyond that, plain paths."""

_Heads = list[dict[int, int]]
_Costs = dict[tuple[int, int], dict[tuple[int, int], int]]


@lru_cache(maxsize=2)
def around(exact: ExactProblem) -> tuple[_Heads, _Heads]:
    """``[num_ops]`` by device that may hold the op: ticks before it starts there, and ticks that follow its end."""
    places = _representatives(exact)
    is_small = exact.num_ops * len(exact.edges) * len(places) ** 3 <= MAX_LOOKS
    costs = _costs(exact, places)
    backwards = {(v, u): known for (u, v), known in costs.items()}
    if is_small:
        heads = _heads(exact, places, exact.in_order, costs)
        tails = _heads(exact, places, exact.in_order[::-1], backwards)
    else:
        heads = _plain_heads(exact, places, exact.in_order, costs)
        tails = _plain_heads(exact, places, exact.in_order[::-1], backwards)
    twin = {d: next(each for each in places if exact.alike[each] == alike) for d, alike in enumerate(exact.alike)}
    for row in (*heads, *tails):
        row |= {d: row[twin[d]] for d in twin if d not in row and twin[d] in row}
    return heads, tails


def _costs(exact: ExactProblem, places: list[int]) -> _Costs:
    found: _Costs = {}
    for t, u in enumerate(exact.producer):
        for v in set(exact.readers[t]):
            known = found.setdefault((u, v), {(g, d): 0 for g in places for d in places})
            for g, d in known:
                known[g, d] = max(known[g, d], exact.move(t, g, d))
    return found


def _representatives(exact: ExactProblem) -> list[int]:
    count: dict[int, int] = {}
    found = []
    for d, alike in enumerate(exact.alike):
        count[alike] = count.get(alike, 0) + 1
        if count[alike] <= 2:
            found.append(d)
    return found


def _homes(exact: ExactProblem, places: list[int]) -> list[list[int]]:
    return [[d for d in places if d in exact.allowed[exact.group_of[op]]] for op in range(exact.num_ops)]


def _before(exact: ExactProblem, costs: _Costs) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in range(exact.num_ops)]
    for u, v in costs:
        before[v].append(u)
    return before


def _plain_heads(exact: ExactProblem, places: list[int], order: list[int], costs: _Costs) -> _Heads:
    """Return heads from what leads to an op directly, each where it is soonest done."""
    homes, before = _homes(exact, places), _before(exact, costs)
    heads: _Heads = [{} for _ in order]
    for v in order:
        for d in homes[v]:
            heads[v][d] = 0
            for u in before[v]:
                over = costs[u, v]
                soonest = min(head + exact.ticks(u, g) + over[g, d] for g, head in heads[u].items())
                heads[v][d] = max(heads[v][d], soonest)
    return heads


def _heads(exact: ExactProblem, places: list[int], order: list[int], costs: _Costs) -> _Heads:
    homes, before, group = _homes(exact, places), _before(exact, costs), exact.group_of
    rank = {op: at for at, op in enumerate(order)}
    ancestors: list[set[int]] = [set() for _ in order]
    heads: _Heads = [{} for _ in order]
    for v in order:
        ancestors[v] = set(before[v]).union(*(ancestors[u] for u in before[v]))
        # the nearest first, so that what an ancestor leads to is known when its turn comes
        nearest = sorted(ancestors[v], key=rank.__getitem__, reverse=True)
        for d in homes[v]:
            until = {u: dict.fromkeys([d] if group[u] == group[v] else homes[u], 0) for u in nearest}
            for w in (v, *nearest):
                for u in before[w]:
                    over, is_bound = costs[u, w], group[u] == group[w]
                    for g, known_until in until[u].items():
                        least = over[g, d]
                        if w != v:
                            options = {g: until[w][g]} if is_bound and g in until[w] else until[w]
                            least = min(over[g, f] + exact.ticks(w, f) + rest for f, rest in options.items())
                        until[u][g] = max(known_until, least)
            ways = {u: {g: heads[u][g] + exact.ticks(u, g) + rest for g, rest in until[u].items()} for u in nearest}
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


def longest_path(exact: ExactProblem) -> int:
    """Return the ticks of the longest path: no makespan or offload latency is below."""
    if isinstance(exact.problem.objective, OffloadLatency):
        return max(_offload_ends(exact))
    return max(
        min(head + exact.ticks(op, d) + after[d] for d, head in before.items())
        for op, (before, after) in enumerate(zip(*around(exact), strict=True))
    )


def _offload_ends(exact: ExactProblem) -> list[int]:
    """``[num_ops]`` ticks before which no op ends, on a host or in a call.

    A host op starts when its inputs are in host memory. In a call an input was either made in the same call before, or
    it was in host memory when the call started and its tensors moved in. What a call makes is in host memory after it
    has moved out, which is later than the op itself ended.
    """
    moves: dict[tuple[int, int], list[int]] = {}
    for t, source in enumerate(exact.producer):
        for reader in set(exact.readers[t]):
            moves.setdefault((source, reader), []).append(t)
    before: list[list[int]] = [[] for _ in range(exact.num_ops)]
    for source, reader in moves:
        before[reader].append(source)
    on_host: list[int | None] = [None] * exact.num_ops
    in_call: list[dict[int, int]] = [{} for _ in range(exact.num_ops)]
    hosts = {exact.kind[d] for d, is_host in enumerate(exact.is_host) if is_host}

    def published(op: int, t: int) -> int:
        """Return the least ticks at which tensor `t` of `op` is in host memory."""
        host = on_host[op]
        calls = [end + exact.transfer[t][k] for k, end in in_call[op].items()]
        return min([*calls, *([] if host is None else [host])])

    for op in exact.in_order:
        for k in {exact.kind[d] for d in exact.allowed[exact.group_of[op]]}:
            start = 0
            for source in before[op]:
                tensors = moves[source, op]
                known = max(published(source, t) for t in tensors)
                if k not in hosts:
                    known += sum(exact.transfer[t][k] for t in tensors)
                    known = min([known, *([in_call[source][k]] if k in in_call[source] else [])])
                start = max(start, known)
            end = start + (exact.time[op][k] or 0)
            if k in hosts:
                host = on_host[op]
                on_host[op] = end if host is None else min(host, end)
            else:
                in_call[op][k] = end
    ends = []
    for host, calls in zip(on_host, in_call, strict=True):
        ends.append(min([*calls.values(), *([] if host is None else [host])]))
    return ends
