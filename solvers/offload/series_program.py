r"""The series program: an exact dynamic program over calls that contain a spine vertex, and a bound for the others.

A call is convex: whatever lies between two of its nodes waits for the one and is waited for by the other. So a call
that contains spine vertices contains an interval of them with all nodes between, and is the difference
:math:`I \setminus J` of two ideals of different gaps (:mod:`placekit.solvers.offload.series`). All nodes of J end
before it starts and all other nodes outside start after it ends, because each is joined to the spine vertex by a path.
The latency is therefore a sum along the spine, of calls, of spine vertices on the host, and of what runs between:

.. math::

   done(I) &= \min_{J \text{ in an earlier gap}} ready(J) + call(I \setminus J), \quad
   done(I_q) \le ready(I_q \setminus a_q) + t^{host}(a_q) \\
   ready(J) &= \min_{I \subseteq J \text{ in the same gap}} done(I) + between(J \setminus I)

with the number of calls made so far as an index of both. If no call lies within a gap, *between* is the longest path on
the host, and the program is exact. For calls within a gap there are two variants. For a lower bound, *between* becomes
a bound along paths: each node runs on the host, or in a call of which only its own work, that of one path, and the
tensors that must move are counted, and at least one call is used up. For a placement, a call within a gap is the
difference of two ideals as well, and waits for all of the smaller one. If both variants have the same value, the
placement is optimal.

What is left out can only make it a better placement: contiguity, memory over several calls of one device, host memory,
pins among equal devices, colocation over several calls. If there are too many combinations of groups of accelerators,
they are replaced by one that has the best of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.offload.flat import OffloadProblem
from placekit.solvers.offload.series import Series
from placekit.solvers.offload.series_kernels import Gap, Sums, Table, relax_gap, relax_spine_calls

__all__ = ["Plan", "solve_series"]

MAX_STATES = 64
"""Numbers of calls of each group, in all combinations."""
CHUNK = 64
"""Ideals between two looks at whether to stop."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the program found.

    Parameters
    ----------
    latency_s
        Its optimum in seconds, not rounded.
    calls
        Nodes and group of every call, in their order.
    is_placement
        False if there are calls that the bound alone counts: then `latency_s` is only a lower bound.
    """

    latency_s: float
    calls: tuple[tuple[NDArray[np.int64], int], ...]
    is_placement: bool


def solve_series(
    flat: OffloadProblem,
    series: Series,
    *,
    is_bound: bool,
    most_s: float = math.inf,
    should_stop: Callable[[], bool] = lambda: False,
) -> Plan | None:
    """Return the optimum of the series program; None if stopped, or if nothing is at most `most_s`.

    Parameters
    ----------
    flat, series
        The problem and its decomposition.
    is_bound
        True for a lower bound, False for a placement.
    most_s
        Latency that is known to be possible, in seconds: what is above is cut off.
    should_stop
        Asked often.

    Notes
    -----
    O(pairs of ideals that fit into one call * (open nets + states)).
    """
    time_s, net_time_s, limits, counts = _merged(flat)
    sums = _sums(flat, series, time_s, net_time_s, limits)
    less = _states(counts)
    shape = (series.num_ideals, less.shape[1])
    table = Table(
        less,
        done_s=np.full(shape, np.inf),
        done_from=np.full(shape, -1, dtype=np.int64),
        done_group=np.full(shape, -1, dtype=np.int64),
        ready_s=np.full(shape, np.inf),
        ready_from=np.full(shape, -1, dtype=np.int64),
        ready_group=np.full(shape, -1, dtype=np.int64),
    )
    table.done_s[0] = 0.0
    most_s = most_s * (1 + 1e-9) + flat.rounding_s
    last_nodes = _last_nodes(series)
    out_s = _out_times(flat, net_time_s)
    for number in range(series.num_gaps):
        gap = _gap(flat, series, number, last_nodes, time_s, net_time_s, out_s, float(limits.max(initial=0.0)))
        if number > 0:
            table.done_s[gap.begin] = table.ready_s[gap.begin - 1] + flat.host_time_s[series.spine[number - 1]]
        for first in range(gap.begin, gap.end, CHUNK):
            if should_stop():
                return None
            until = min(first + CHUNK, gap.end)
            if number > 0:
                relax_spine_calls(first, until, number, series.ideal_offsets, sums, table, most_s)
            relax_gap(first, until, gap, is_bound, sums, table, most_s)
    return _trace(series, table) if table.ready_s[-1, -1] <= most_s else None


def _merged(
    flat: OffloadProblem,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], list[int]]:
    """Return times, net times, limits and counts of the groups, as one group if their combinations are too many."""
    counts = [min(len(group) * flat.calls_per_device, flat.num_nodes) for group in flat.groups]
    if math.prod(count + 1 for count in counts) <= MAX_STATES or flat.num_groups == 1:
        return flat.time_s, flat.net_time_s, flat.limit_bytes, counts
    return (
        flat.time_s.min(axis=1, keepdims=True),
        flat.net_time_s.min(axis=1, keepdims=True),
        flat.limit_bytes.max(keepdims=True),
        [min(sum(counts), flat.num_nodes)],
    )


def _states(counts: list[int]) -> NDArray[np.int64]:
    """``[G, S]`` the state with one call of the group less, -1 for none; a state is a number in mixed radix."""
    stride = np.cumprod([1, *(count + 1 for count in counts)]).astype(np.int64)
    state = np.arange(stride[-1])
    rows = [
        np.where(state // step % (count + 1) > 0, state - step, -1) for step, count in zip(stride, counts, strict=False)
    ]
    return np.array(rows, dtype=np.int64).reshape(len(counts), int(stride[-1]))


def _out_times(flat: OffloadProblem, net_time_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N]`` least seconds to move one of the node's outputs; 0 without any."""
    least = np.full(flat.num_nodes, np.inf)
    np.minimum.at(least, flat.net_nodes[flat.net_offsets[:-1]], net_time_s.min(axis=1, initial=np.inf))
    # an edge without a net is free, and there may be one beside the nets
    priced = set()
    for n in range(flat.num_nets):
        nodes = flat.nodes_of_net(n).tolist()
        priced |= {(nodes[0], v) for v in nodes[1:]}
    for u, v in zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True):
        if (u, v) not in priced:
            least[u] = 0.0
    return np.where(np.isfinite(least), least, 0.0)


def _gap(
    flat: OffloadProblem,
    series: Series,
    number: int,
    last_nodes: tuple[NDArray[np.int64], NDArray[np.int64]],
    time_s: NDArray[np.float64],
    net_time_s: NDArray[np.float64],
    out_s: NDArray[np.float64],
    largest_bytes: float,
) -> Gap:
    """Return the arrays of a gap. Two nodes can share a call only if all nodes that lie between them fit in, too."""
    nodes = series.nodes_of_gap(number)
    local = {v: i for i, v in enumerate(nodes.tolist())}
    moved: dict[tuple[int, int], float] = {}
    edges = np.isin(flat.receivers, nodes)
    for u, v in zip(flat.senders[edges].tolist(), flat.receivers[edges].tolist(), strict=True):
        moved[u, v] = 0.0
    is_alone = dict.fromkeys(moved, True)
    for n, time in enumerate(net_time_s.min(axis=1, initial=np.inf).tolist()):
        producer, *others = flat.nodes_of_net(n).tolist()
        readers = [(producer, v) for v in others if (producer, v) in moved]
        for edge in readers:
            moved[edge] += time
            is_alone[edge] &= len(readers) == 1
    rows: list[list[tuple[int, float, bool]]] = [[] for _ in nodes]
    for (u, v), time in moved.items():
        rows[local[v]].append((local.get(u, -1), time, is_alone[u, v]))
    up_to = [0] * len(nodes)  # the node and the nodes of the gap that lead to it
    for v, row in enumerate(rows):
        up_to[v] = 1 << v
        for u, _, _ in row:
            up_to[v] |= up_to[u] if u >= 0 else 0
    size = flat.memory_bytes[nodes].tolist()

    def fit(u: int, v: int) -> bool:
        between = sum(size[w] for w in range(u, v + 1) if up_to[w] >> u & 1 and up_to[v] >> w & 1)
        return bool(between <= largest_bytes)

    flags = [[alone, u >= 0 and fit(u, v)] for v, row in enumerate(rows) for u, _, alone in row]
    is_alone_or_fits = np.array(flags, dtype=np.bool_).reshape(-1, 2)
    return Gap(
        begin=int(series.ideal_offsets[number]),
        end=int(series.ideal_offsets[number + 1]),
        mask=series.mask,
        parent=series.parent,
        added=series.added,
        last_offsets=last_nodes[0],
        last_local=last_nodes[1],
        pred_offsets=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        pred_local=np.array([u for row in rows for u, _, _ in row], dtype=np.int64),
        pred_in_s=np.array([time for row in rows for _, time, _ in row], dtype=np.float64),
        is_alone=np.ascontiguousarray(is_alone_or_fits[:, 0]),
        may_share=np.ascontiguousarray(is_alone_or_fits[:, 1]),
        host_s=flat.host_time_s[nodes],
        call_s=time_s[nodes].min(axis=1, initial=np.inf),
        out_s=out_s[nodes],
    )


def _last_nodes(series: Series) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return CSR lists of the nodes that can be taken from each ideal (its maximal ones), by their place in the gap."""
    rows: list[list[int]] = [[] for _ in range(series.num_ideals)]
    for gap in range(series.num_gaps):
        begin, end = series.ideal_offsets[gap : gap + 2].tolist()
        width = int(series.gap_offsets[gap + 1] - series.gap_offsets[gap])
        masks = series.mask[begin:end].tolist()
        known = set(masks)
        for at, mask in enumerate(masks, begin):
            rows[at] = [i for i in range(width) if mask >> i & 1 and mask & ~(1 << i) in known]
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return offsets, np.array([i for row in rows for i in row], dtype=np.int64)


def _sums(
    flat: OffloadProblem,
    series: Series,
    time_s: NDArray[np.float64],
    net_time_s: NDArray[np.float64],
    limits: NDArray[np.float64],
) -> Sums:
    """Return the sums over the nodes of every ideal, and the nets that it cuts."""
    num_groups, num_ideals = time_s.shape[1], series.num_ideals
    is_allowed = np.isfinite(time_s)
    work, bad, size = np.where(is_allowed, time_s, 0.0), (~is_allowed).astype(np.int64), flat.memory_bytes
    work_s, forbidden = np.zeros((num_ideals, num_groups)), np.zeros((num_ideals, num_groups), dtype=np.int64)
    num_bytes = np.zeros(num_ideals)
    edges = set(zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True))
    dropped = set(series.dropped.tolist())
    produced: dict[int, list[int]] = {}
    consumed: dict[int, list[int]] = {}
    num_readers: list[int] = []
    for n in range(flat.num_nets):
        producer, *others = flat.nodes_of_net(n).tolist()
        readers = [v for v in others if (producer, v) in edges and v not in dropped]
        num_readers.append(len(readers))
        if readers and producer not in dropped:
            produced.setdefault(producer, []).append(n)
            for v in readers:
                consumed.setdefault(v, []).append(n)
    open_at: list[dict[int, int]] = []  # by open net, how many of its readers are inside

    def add(at: int, node: int, to: int) -> None:
        work_s[at], forbidden[at] = work_s[to] + work[node], forbidden[to] + bad[node]
        num_bytes[at] = num_bytes[to] + size[node]
        nets = dict(open_at[to])
        for n in consumed.get(node, ()):
            nets[n] += 1
            if nets[n] == num_readers[n]:
                del nets[n]
        for n in produced.get(node, ()):
            nets[n] = 0
        open_at.append(nets)

    for gap in range(series.num_gaps):
        begin, end = series.ideal_offsets[gap : gap + 2].tolist()
        nodes = series.nodes_of_gap(gap).tolist()
        if gap == 0:
            open_at.append({})
        else:
            add(begin, int(series.spine[gap - 1]), begin - 1)
        for at in range(begin + 1, end):
            add(at, nodes[int(series.added[at])], int(series.parent[at]))
    offsets = np.cumsum([0, *map(len, open_at)], dtype=np.int64)
    open_net = np.array([n for nets in open_at for n in sorted(nets)], dtype=np.int64)
    cut_s = np.zeros((num_ideals, num_groups))
    np.add.at(cut_s, np.repeat(np.arange(num_ideals), np.diff(offsets)), net_time_s[open_net])
    return Sums(
        work_s=work_s,
        cut_s=cut_s,
        forbidden=forbidden,
        num_bytes=num_bytes,
        open_offsets=offsets,
        open_net=open_net,
        open_inside=np.array([nets[n] for nets in open_at for n in sorted(nets)], dtype=np.int64),
        net_time_s=np.ascontiguousarray(net_time_s),
        limit_bytes=limits,
    )


def _trace(series: Series, table: Table) -> Plan:
    """Walk back through the choices."""
    gap_of_ideal = series.gap_of_ideal()
    at, state = table.ready_s.shape[0] - 1, table.ready_s.shape[1] - 1
    latency_s = float(table.ready_s[at, state])
    calls: list[tuple[NDArray[np.int64], int]] = []
    is_placement = True
    while True:
        source, inner = int(table.ready_from[at, state]), int(table.ready_group[at, state])
        if inner >= 0:
            is_placement = False
            state = int(table.less[inner, state])
        at = source
        start, group = int(table.done_from[at, state]), int(table.done_group[at, state])
        if start >= 0:
            calls.append((_nodes_between(series, start, at), group))
            at, state = start, int(table.less[group, state])
        elif gap_of_ideal[at] > 0:
            at -= 1  # the spine vertex ran on the host, after all of the gap before it
        else:
            return Plan(latency_s, tuple(calls[::-1]), is_placement)


def _nodes_between(series: Series, low: int, high: int) -> NDArray[np.int64]:
    """Return the nodes of the ideal `high` that are not in the ideal `low`."""
    first, last = (np.searchsorted(series.ideal_offsets, [low, high], side="right") - 1).tolist()
    found: list[int] = []
    for gap in range(first, last + 1):
        if gap > first:
            found.append(int(series.spine[gap - 1]))
        mask = int(series.mask[high]) if gap == last else -1
        mask &= ~int(series.mask[low]) if gap == first else -1
        found += [v for i, v in enumerate(series.nodes_of_gap(gap).tolist()) if mask >> i & 1]
    return np.array(found, dtype=np.int64)
