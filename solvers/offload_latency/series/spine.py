r"""Series decomposition: the spine of an offload problem, and the ideals of the gaps between its vertices.

A *spine* vertex is comparable to every other node: each node is its predecessor or its successor. Spine vertices
:math:`a_1 < \dots < a_m` follow each other. Every other node lies in the *gap* between two of them, or before the
first, or after the last. With :math:`I_q` for everything up to :math:`a_q`, the ideals of the order are the
:math:`I_q \cup E` with an ideal E of gap q.

Gaps with too many ideals are thinned: the nodes that cost least are dropped, with their ends of nets, and the order of
the others stays. A placement without those nodes costs no more, so the thinned decomposition is a relaxation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.solvers.offload_latency.flat import OffloadProblem

WORD = 63
"""Nodes of a gap, at most: an ideal is the bits of one whole number."""
FEWEST = 200
"""Ideals that every gap may have."""


@dataclass(frozen=True, eq=False)
class Series:
    """Spine and gaps. Ideals are sorted by gap and size; the first of gap q is everything up to `a_q`."""

    spine: NDArray[np.int64]  # ``[m]`` nodes
    # gap_offsets, gap_nodes: CSR lists of the nodes of each of the ``m + 1`` gaps, in topological order
    gap_offsets: NDArray[np.int64]
    gap_nodes: NDArray[np.int64]
    dropped: NDArray[np.int64]  # nodes that were dropped from the gaps
    between: tuple[NDArray[np.int64], ...]  # all nodes of each of the ``m + 1`` gaps, in topological order
    ideal_offsets: NDArray[np.int64]  # ``[m + 2]`` first ideal of each gap, and the number of ideals
    mask: NDArray[np.int64]  # ``[ideals]`` nodes of the gap that are in the ideal, as bits in the order of `gap_nodes`
    # parent, added: ``[ideals]`` the ideal without its last node, and the place of that node in the gap; -1 for the
    # first of a gap
    parent: NDArray[np.int64]
    added: NDArray[np.int64]

    @property
    def num_ideals(self) -> int:
        """Number of ideals."""
        return len(self.mask)

    @property
    def num_gaps(self) -> int:
        """Number of gaps, empty ones too."""
        return len(self.gap_offsets) - 1

    def nodes_of_gap(self, gap: int) -> NDArray[np.int64]:
        """Return the nodes of a gap in topological order."""
        return self.gap_nodes[self.gap_offsets[gap] : self.gap_offsets[gap + 1]]

    def gap_of_ideal(self) -> NDArray[np.int64]:
        """``[ideals]`` gap of each ideal."""
        return np.repeat(np.arange(self.num_gaps), np.diff(self.ideal_offsets))


def decompose(
    flat: OffloadProblem,
    max_ideals: int,  # approximate number of ideals of all gaps; the gaps with the most are thinned
    should_stop: Callable[[], bool] = lambda: False,  # asked before every gap
    least_kept: int = 0,  # smallest number of kept nodes that is worth the time, as far as known beforehand
) -> Series | None:
    """Return the series decomposition of `flat`; None if told to stop, or if too few nodes are kept.

    O(nodes + edges) for the spine, and O(ideals * nodes of the gap) for the ideals.
    """
    order, _ = topological_order(flat.num_nodes, flat.senders, flat.receivers)
    rank = np.argsort(order)
    spine = _spine(flat, order, rank)
    is_spine = np.zeros(flat.num_nodes, dtype=np.int64)
    is_spine[spine] = 1
    # in a topological order the spine vertices before a node are those that lead to it
    gap_of_node = np.empty(flat.num_nodes, dtype=np.int64)
    gap_of_node[order] = np.cumsum(is_spine[order])
    gap_of_node[spine] = -1
    by_gap = np.argsort(gap_of_node * flat.num_nodes + rank)
    ends = np.searchsorted(gap_of_node[by_gap], np.arange(len(spine) + 2))
    in_order = [by_gap[ends[g] : ends[g + 1]] for g in range(len(spine) + 1)]
    if len(spine) + sum(min(len(nodes), WORD) for nodes in in_order) < least_kept:
        return None
    weight = np.where(np.isfinite(flat.time_s), flat.time_s, 0.0).max(axis=1, initial=0.0)
    np.add.at(weight, flat.net_nodes[flat.net_offsets[:-1]], flat.net_time_s.max(axis=1, initial=0.0))
    senders: list[list[int]] = [[] for _ in range(flat.num_nodes)]
    for u, v in zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True):
        senders[v].append(u)
    most = max_ideals
    while True:
        found = []
        for nodes in in_order:
            if should_stop():
                return None
            found.append(_table(nodes, senders, weight, most))
        if most <= FEWEST or sum(len(table[0]) for _, table in found) <= max_ideals:
            break
        most //= 2
    gap_nodes, tables = [kept for kept, _ in found], [table for _, table in found]
    sizes = [len(mask) for mask, _, _ in tables]
    starts = np.cumsum([0, *sizes])
    kept_nodes = np.concatenate(gap_nodes)
    is_kept = np.zeros(flat.num_nodes, dtype=bool)
    is_kept[kept_nodes] = True
    is_kept[spine] = True
    return Series(
        spine=np.array(spine, dtype=np.int64),
        gap_offsets=np.cumsum([0, *(len(nodes) for nodes in gap_nodes)], dtype=np.int64),
        gap_nodes=kept_nodes.astype(np.int64),
        dropped=np.flatnonzero(~is_kept),
        between=tuple(in_order),
        ideal_offsets=starts.astype(np.int64),
        mask=np.concatenate([mask for mask, _, _ in tables]),
        parent=np.concatenate(
            [np.where(parent >= 0, parent + start, -1) for start, (_, parent, _) in zip(starts, tables, strict=False)]
        ),
        added=np.concatenate([added for _, _, added in tables]),
    )


def along_order(flat: OffloadProblem) -> Series:
    """Return the series in which every node is on the spine, as if each waited for all before it in an order.

    The order follows branches to their end (depth first), which keeps few nets open. Its placements are placements of
    the problem, and end no later than computed. It gives no bound.
    """
    order, _ = topological_order(flat.num_nodes, flat.senders, flat.receivers, depth_first=True)
    nothing = np.zeros(flat.num_nodes + 1, dtype=np.int64)
    return Series(
        spine=order,
        gap_offsets=np.zeros(flat.num_nodes + 2, dtype=np.int64),
        gap_nodes=np.zeros(0, dtype=np.int64),
        dropped=np.zeros(0, dtype=np.int64),
        between=(np.zeros(0, dtype=np.int64),) * (flat.num_nodes + 1),
        ideal_offsets=np.arange(flat.num_nodes + 2),
        mask=nothing,
        parent=nothing - 1,
        added=nothing - 1,
    )


def _spine(flat: OffloadProblem, order: NDArray[np.int64], rank: NDArray[np.int64]) -> list[int]:
    """Return the nodes that are comparable to all others, in order, from a topological order. O(nodes + edges).

    Claim: all nodes before place i of a topological order are predecessors of the node at i if and only if each of them
    has a successor at i or before. Reason: then each has a path that does not jump over i. The same holds for the nodes
    after i and their predecessors.
    """
    num_nodes = flat.num_nodes
    first_next = np.full(num_nodes, num_nodes)  # by place
    last_previous = np.full(num_nodes, -1)
    np.minimum.at(first_next, rank[flat.senders], rank[flat.receivers])
    np.maximum.at(last_previous, rank[flat.receivers], rank[flat.senders])
    places = np.arange(num_nodes)
    latest_next = np.append(-1, np.maximum.accumulate(first_next)[:-1])  # of all nodes before
    earliest_previous = np.append(np.minimum.accumulate(last_previous[::-1])[::-1][1:], num_nodes)
    spine: list[int] = order[(latest_next <= places) & (earliest_previous >= places)].tolist()
    return spine


def _table(
    nodes: NDArray[np.int64], senders: list[list[int]], weight: NDArray[np.float64], most: int
) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Return the nodes of a gap that are kept, and masks, parents and last nodes of their ideals."""
    heaviest = nodes[np.argsort(-weight[nodes], kind="stable")]
    count = min(len(nodes), WORD)
    while True:
        kept = nodes[np.isin(nodes, heaviest[:count])]
        table = _ideals(_needs(nodes.tolist(), kept.tolist(), senders), most)
        if table is not None:
            return kept, table
        count -= max(1, count // 8)


def _needs(nodes: list[int], kept: list[int], senders: list[list[int]]) -> list[int]:
    """Return for each kept node the kept nodes of the gap that lead to it, as bits; paths may use all nodes."""
    bit = {v: 1 << i for i, v in enumerate(kept)}
    before: dict[int, int] = {}
    for v in nodes:
        before[v] = 0
        for u in senders[v]:
            if u in before:
                before[v] |= before[u] | bit.get(u, 0)
    return [before[v] for v in kept]


def _ideals(
    needs: list[int],  # for each node, in topological order, the nodes that must be in an ideal with it, as bits
    most: int,  # number of ideals
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return all ideals by growing size: mask, parent and last node; None if there are more than `most`.

    The ideals with last node i are the ideals of the nodes before i that hold all predecessors of i, each with i added.
    O(ideals * nodes).
    """
    mask, parent, added, size = (np.array([value], dtype=np.int64) for value in (0, -1, -1, 0))
    for i, need in enumerate(needs):
        able = np.flatnonzero(mask & need == need)
        if len(mask) + len(able) > most:
            return None
        mask = np.concatenate([mask, mask[able] | 1 << i])
        parent = np.concatenate([parent, able])
        added = np.concatenate([added, np.full(len(able), i)])
        size = np.concatenate([size, size[able] + 1])
    by_size = np.argsort(size, kind="stable")
    parent = np.where(parent >= 0, np.argsort(by_size)[parent], -1)
    return mask[by_size], parent[by_size], added[by_size]
