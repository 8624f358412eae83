"""Arrays for the kernels of the series program, from a flat problem and its decomposition."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.series.gap_chains import Chains
from placekit.solvers.offload_latency.series.series_kernels import Gap, Sums
from placekit.solvers.offload_latency.series.spine import Series

MAX_STATES = 64
"""Numbers of calls of each group, in all combinations."""
MAX_CHOICES = 40
"""Choices of the groups of calls inside one gap."""


def merged_groups(
    flat: OffloadProblem,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return times, net times and limits of the groups, and the state with one call less.

    If there are too many combinations of numbers of calls, the groups are merged into one with the best of each. If
    there are still too many, calls are not counted.
    """
    counts = [min(len(group) * flat.calls_per_device, flat.num_nodes) for group in flat.groups]
    if math.prod(count + 1 for count in counts) <= MAX_STATES:
        return flat.time_s, flat.net_time_s, flat.limit_bytes, _states(counts)
    total = min(sum(counts), flat.num_nodes)
    return (
        flat.time_s.min(axis=1, keepdims=True),
        flat.net_time_s.min(axis=1, keepdims=True),
        flat.limit_bytes.max(keepdims=True),
        _states([total]) if total < MAX_STATES else np.zeros((1, 1), dtype=np.int64),
    )


def _states(counts: list[int]) -> NDArray[np.int64]:
    """``[G, S]`` the state with one call of the group less, -1 for none; a state is a number in mixed radix."""
    stride = np.cumprod([1, *(count + 1 for count in counts)]).astype(np.int64)
    state = np.arange(stride[-1])
    rows = [
        np.where(state // step % (count + 1) > 0, state - step, -1) for step, count in zip(stride, counts, strict=False)
    ]
    return np.array(rows, dtype=np.int64).reshape(len(counts), int(stride[-1]))


def fewer_calls(less: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[tuple[int, ...]]]:
    """``[M, S]`` the state without a few calls, -1 if it has not so many, and the groups of these calls.

    Choices of one call come first, then those of two, and so on while there are not too many.
    """
    num_groups, num_states = less.shape
    rows: list[NDArray[np.int64]] = []
    choices: list[tuple[int, ...]] = []
    for count in range(1, num_states + 1):
        found = list(itertools.combinations_with_replacement(range(num_groups), count))
        if count > 1 and len(choices) + len(found) > MAX_CHOICES:
            break
        for groups in found:
            state = np.arange(num_states)
            for g in groups:
                state = np.where(state >= 0, less[g, state], -1)
            rows.append(state)
        choices += found
    return np.array(rows, dtype=np.int64).reshape(-1, num_states), choices


def out_times(flat: OffloadProblem, net_time_s: NDArray[np.float64], dropped: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the least seconds ``[N]`` to move an output that is waited for; 0 where none is.

    All waiting readers of a node that ends a call are outside the call, except dropped nodes. A net without other
    waiting readers may have all readers inside, and need not move.
    """
    lost = set(dropped.tolist())
    waits = {(u, v) for u, v in zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True) if v not in lost}
    least = np.full(flat.num_nodes, np.inf)
    priced = set()
    for n, time in enumerate(net_time_s.min(axis=1, initial=np.inf).tolist()):
        producer, *readers = flat.nodes_of_net(n).tolist()
        waiting = waits & {(producer, v) for v in readers}
        if waiting:
            least[producer] = min(least[producer], time)
            priced |= waiting
    # an edge without a net is free, and there may be one beside the nets
    for u, _ in waits - priced:
        least[u] = 0.0
    return np.where(np.isfinite(least), least, 0.0)


def inputs_of(
    flat: OffloadProblem, series: Series, net_time_s: NDArray[np.float64]
) -> list[list[tuple[int, float, bool]]]:
    """Return each node's predecessors, the time to move their outputs in, and if no other of its gap reads them.

    Dropped nodes are left out: they may be in the call of their readers.
    """
    lost = set(series.dropped.tolist())
    edges = zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True)
    moved = dict.fromkeys(((u, v) for u, v in edges if u not in lost), 0.0)
    is_alone = dict.fromkeys(moved, True)
    gap_of_node = np.full(flat.num_nodes, -1)
    gap_of_node[series.gap_nodes] = np.repeat(np.arange(series.num_gaps), np.diff(series.gap_offsets))
    gap = gap_of_node.tolist()
    for n, time in enumerate(net_time_s.min(axis=1, initial=np.inf).tolist()):
        producer, *others = flat.nodes_of_net(n).tolist()
        readers = [(producer, v) for v in others if (producer, v) in moved]
        counts = Counter(gap[v] for _, v in readers)
        for edge in readers:
            moved[edge] += time
            is_alone[edge] &= counts[gap[edge[1]]] == 1
    rows: list[list[tuple[int, float, bool]]] = [[] for _ in range(flat.num_nodes)]
    for (u, v), time in moved.items():
        rows[v].append((u, time, is_alone[u, v]))
    return rows


def gap_of(
    flat: OffloadProblem,
    series: Series,
    number: int,
    last_nodes: tuple[NDArray[np.int64], NDArray[np.int64]],
    inputs: list[list[tuple[int, float, bool]]],
    call_s: NDArray[np.float64],
    out_s: NDArray[np.float64],
    largest_bytes: float,
    chains: Chains,
) -> Gap:
    """Return the arrays of a gap. Two nodes can share a call only if all nodes that lie between them fit in, too."""
    nodes = series.nodes_of_gap(number)
    begin, end = series.ideal_offsets[number : number + 2].tolist()
    local = {v: i for i, v in enumerate(nodes.tolist())}
    rows = [[(local.get(u, -1), time, alone) for u, time, alone in inputs[v]] for v in nodes.tolist()]
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
        begin=begin,
        end=end,
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
        call_s=call_s[nodes],
        out_s=out_s[nodes],
        chains=chains,
        inside_s=np.full(2, -np.inf),
        before_s=np.zeros(end - begin),
        behind_s=np.zeros(end - begin),
    )


def host_paths(
    flat: OffloadProblem, series: Series, number: int, receivers_of: list[list[int]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """``[ideals of the gap]`` longest paths on the host of all its nodes that may be in the ideal, and may be outside.

    A dropped node may be in the ideal if all its kept predecessors are, and outside if none of its kept successors is.
    """
    nodes, mask = series.between[number].tolist(), series.mask[slice(*series.ideal_offsets[number : number + 2])]
    bit = {v: 1 << i for i, v in enumerate(series.nodes_of_gap(number).tolist())}
    up_to, from_on = ({v: bit.get(v, 0) for v in nodes} for _ in range(2))
    ends, tails = ({v: float(flat.host_time_s[v]) for v in nodes} for _ in range(2))
    readers = {u: [v for v in receivers_of[u] if v in up_to] for u in nodes}
    for u in nodes:
        for v in readers[u]:
            up_to[v] |= up_to[u]
            ends[v] = max(ends[v], ends[u] + float(flat.host_time_s[v]))
    before_s, behind_s = np.zeros((2, len(mask)))
    for u in nodes[::-1]:
        for v in readers[u]:
            from_on[u] |= from_on[v]
            tails[u] = max(tails[u], tails[v] + float(flat.host_time_s[u]))
        np.maximum(before_s, ends[u], out=before_s, where=mask & up_to[u] == up_to[u])
        np.maximum(behind_s, tails[u], out=behind_s, where=mask & from_on[u] == 0)
    return before_s, behind_s


def last_nodes_of(series: Series) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return CSR lists of the maximal nodes of each ideal, by their place in the gap."""
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


def sums_of(
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
