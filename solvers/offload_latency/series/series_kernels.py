"""Kernels of the series program (:mod:`placekit.solvers.offload_latency.series.series_program`), on flat arrays.

Shapes
------
``I`` ideals, ``G`` groups, ``S`` states (how many calls of each group may have been made so far), ``n`` nodes of a gap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.offload_latency.series.gap_chains import Chains, one_call

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Sums(NamedTuple):
    """Sums over the nodes of every ideal, and the nets that the ideal cuts."""

    # work_s, cut_s: ``[I, G]`` seconds of the nodes, and of the nets with the producer inside and a consumer outside
    work_s: Floats
    cut_s: Floats
    forbidden: Ints  # ``[I, G]`` number of nodes that the group may not take
    num_bytes: Floats  # ``[I]`` bytes
    # open_offsets, open_net, open_inside: CSR lists of the cut nets in ascending order, and the number of their
    # consumers inside
    open_offsets: Ints
    open_net: Ints
    open_inside: Ints
    net_time_s: Floats  # ``[nets, G]`` seconds to move a net
    limit_bytes: Floats  # ``[G]`` most bytes of a call


class Table(NamedTuple):
    """The program's values and choices."""

    less: Ints  # ``[G, S]`` the state with one call of the group less; -1 if the state has none
    # fewer, taken: ``[M, S]`` the state without a few calls, -1 if it has too few; ``[M]`` number of these calls,
    # rising
    fewer: Ints
    taken: Ints
    # done_s, done_from, done_group: ``[I, S]`` seconds when a call or spine vertex that completes the ideal ends; the
    # ideal where the call started (-1 for no call) and its group
    done_s: Floats
    done_from: Ints
    done_group: Ints
    # ready_s, ready_from, ready_group: ``[I, S]`` seconds when everything in the ideal is done; the ideal after which
    # only nodes between calls ran, and the row of `fewer` with the calls among them (-1 for none)
    ready_s: Floats
    ready_from: Ints
    ready_group: Ints


class Gap(NamedTuple):
    """One gap."""

    # begin, end: its ideals
    begin: int
    end: int
    # mask, parent, added: ``[I]`` as in :class:`~placekit.solvers.offload_latency.series.spine.Series`, of all gaps
    mask: Ints
    parent: Ints
    added: Ints
    # last_offsets, last_local: CSR lists of the maximal nodes of each ideal, of all gaps
    last_offsets: Ints
    last_local: Ints
    # pred_offsets, pred_local: CSR lists of the predecessors of each node by place in the gap, -1 for one before the
    # gap
    pred_offsets: Ints
    pred_local: Ints
    # pred_in_s, is_alone, may_share: for each predecessor: seconds to move its output in, whether no other node of the
    # gap reads it, and whether the two can be in one call
    pred_in_s: Floats
    is_alone: NDArray[np.bool_]
    may_share: NDArray[np.bool_]
    # host_s, call_s, out_s: ``[n]`` least seconds of each node on a host, in a call, and to move one of its outputs
    host_s: Floats
    call_s: Floats
    out_s: Floats
    # ``[C]`` least seconds of the whole gap with so many calls inside, one or more; with the last, so many or more
    inside_s: Floats
    # before_s, behind_s: ``[end - begin]`` seconds on the host, at most, of all nodes of the gap in an ideal, and of
    # all others
    before_s: Floats
    behind_s: Floats
    chains: Chains  # its chains, for pieces with one call inside


@njit(inner=True)
def _relax_call(source: int, target: int, sums: Sums, table: Table) -> None:
    """Lower ``done_s[target, :]`` by the call of the nodes between two ideals.

    It costs their work, and the nets that it cuts: those that are open at either end, less those that are open at both
    and pass by. A net that is open at both has its producer before the call, so it does not leave the call; and it
    does not enter it if no consumer lies between.
    """
    size = sums.num_bytes[target] - sums.num_bytes[source]
    for g in range(len(table.less)):
        if size > sums.limit_bytes[g] or sums.forbidden[target, g] > sums.forbidden[source, g]:
            continue
        lasts = sums.work_s[target, g] - sums.work_s[source, g] + sums.cut_s[target, g] + sums.cut_s[source, g]
        a, b = sums.open_offsets[source], sums.open_offsets[target]
        end_a, end_b = sums.open_offsets[source + 1], sums.open_offsets[target + 1]
        while a < end_a and b < end_b:
            if sums.open_net[a] < sums.open_net[b]:
                a += 1
            elif sums.open_net[a] > sums.open_net[b]:
                b += 1
            else:
                passes = 2.0 if sums.open_inside[a] == sums.open_inside[b] else 1.0
                lasts -= passes * sums.net_time_s[sums.open_net[a], g]
                a += 1
                b += 1
        for s in range(table.less.shape[1]):
            before = table.less[g, s]
            if before >= 0:
                value = table.ready_s[source, before] + lasts
                if value < table.done_s[target, s]:
                    table.done_s[target, s] = value
                    table.done_from[target, s] = source
                    table.done_group[target, s] = g


@njit
def relax_spine_calls(
    first: int, until: int, gap_of_target: int, ideal_offsets: Ints, sums: Sums, table: Table, most_s: float
) -> None:
    """Lower ``done_s[first:until, :]`` by every call that starts in an ideal of an earlier gap and ends in these."""
    last = table.ready_s.shape[1] - 1
    largest = 0.0
    for g in range(len(sums.limit_bytes)):
        largest = max(largest, sums.limit_bytes[g])
    for target in range(first, until):
        for gap in range(gap_of_target - 1, -1, -1):
            if sums.num_bytes[target] - sums.num_bytes[ideal_offsets[gap + 1] - 1] > largest:
                break
            for source in range(ideal_offsets[gap], ideal_offsets[gap + 1]):
                size = sums.num_bytes[target] - sums.num_bytes[source]
                if size <= largest and table.ready_s[source, last] < most_s:
                    _relax_call(source, target, sums, table)


@njit(inner=True)
def _relax_gap_calls(target: int, gap: Gap, sums: Sums, table: Table, most_s: float) -> None:
    """Lower ``done_s[target, :]`` by every call that starts in a smaller ideal of the same gap.

    The call waits for all of that ideal and everything else waits for the call, which need not be so: the result is
    at least the latency of a placement.
    """
    last = table.ready_s.shape[1] - 1
    for source in range(gap.begin, target):
        if not gap.mask[source] & ~gap.mask[target] and table.ready_s[source, last] < most_s:
            _relax_call(source, target, sums, table)


@njit(inner=True)
def _paths_from(mask: int, gap: Gap, plain: Floats, inner_end: Floats, inner_out: Floats) -> None:
    """Fill the times of the nodes of a gap that are not in `mask`, counted from the moment when all of `mask` is done.

    ``plain[v]``: v ends on the host, with everything before it on the host. ``inner_end[v]``, ``inner_out[v]``: v ends
    in a call at the earliest, and its output is in host memory at the earliest, if calls inside the gap are made at
    will.

    A call with v in it takes in all tensors that v reads from outside before it works: those from `mask`, and for each
    predecessor u in the gap either u is outside, then it waits for u and takes in u's output as well, or u is in the
    same call, which then had to end u first and take in what v alone reads from `mask`.
    """
    for v in range(len(plain)):
        if mask >> v & 1:
            continue
        host_start, outside, enters, enters_alone = 0.0, 0.0, 0.0, 0.0
        for e in range(gap.pred_offsets[v], gap.pred_offsets[v + 1]):
            u = gap.pred_local[e]
            if u < 0 or mask >> u & 1:
                enters += gap.pred_in_s[e]
                if gap.is_alone[e]:
                    enters_alone += gap.pred_in_s[e]
            else:
                host_start = max(host_start, plain[u])
                outside = max(outside, inner_out[u])
        start = enters
        for e in range(gap.pred_offsets[v], gap.pred_offsets[v + 1]):
            u = gap.pred_local[e]
            if u >= 0 and not mask >> u & 1:
                earliest = inner_out[u] + gap.pred_in_s[e] + enters
                if gap.may_share[e]:
                    earliest = min(earliest, inner_end[u] + enters_alone)
                start = max(start, earliest)
        plain[v] = host_start + gap.host_s[v]
        inner_end[v] = start + gap.call_s[v]
        inner_out[v] = min(outside + gap.host_s[v], inner_end[v] + gap.out_s[v])


class Paths(NamedTuple):
    """Times of the nodes of a gap (:func:`_paths_from`), and the latest of those up to each ideal."""

    plain: Floats
    inner_end: Floats
    inner_out: Floats
    on_host: Floats
    in_calls: Floats


@njit(inner=True)
def _relax_between(
    source: int,
    gap: Gap,
    with_calls: bool,
    table: Table,
    paths: Paths,
    chains: tuple[Floats, Ints],
) -> None:
    """Lower ``ready_s`` of all ideals of the gap by the nodes between `source`, after which a call ended, and them.

    They run on the host, or, if `with_calls`, in calls inside the gap, for whose time lower bounds are used: that of
    `_paths_from`, and what the whole gap takes with so many calls, less what the rest of it takes on the host before
    and behind. `chains` are scratch of `one_call`.
    """
    plain, inner_end, inner_out, on_host, in_calls = paths
    length, chain = chains
    num_states, most_taken = table.fewer.shape[1], len(gap.inside_s)
    begin, mask = gap.begin, gap.mask
    best = table.done_s[source, num_states - 1]
    on_host[source - begin] = 0.0
    in_calls[source - begin] = 0.0
    for s in range(num_states):
        if table.done_s[source, s] < table.ready_s[source, s]:
            table.ready_s[source, s] = table.done_s[source, s]
            table.ready_from[source, s] = source
            table.ready_group[source, s] = -1
    for target in range(source + 1, gap.end):
        if mask[source] & ~mask[target]:
            continue
        v, before = gap.added[target], gap.parent[target]
        if mask[source] >> v & 1:  # the parent does not hold the source
            slowest, earliest = 0.0, 0.0
            for u in range(len(plain)):
                if mask[target] >> u & 1 and not mask[source] >> u & 1:
                    slowest = max(slowest, plain[u])
                    earliest = max(earliest, min(inner_end[u], inner_out[u]))
        else:
            slowest = max(on_host[before - begin], plain[v])
            earliest = max(in_calls[before - begin], min(inner_end[v], inner_out[v]))
        on_host[target - begin] = slowest
        in_calls[target - begin] = earliest
        for s in range(num_states):
            value = table.done_s[source, s] + slowest
            if value < table.ready_s[target, s]:
                table.ready_s[target, s] = value
                table.ready_from[target, s] = source
                table.ready_group[target, s] = -1
        if not with_calls or best + earliest >= table.ready_s[target, 0]:
            continue
        for e in range(gap.last_offsets[target], gap.last_offsets[target + 1]):
            u = gap.last_local[e]
            if not mask[source] >> u & 1:
                earliest = max(earliest, inner_out[u])
        around = gap.before_s[source - begin] + gap.behind_s[target - begin]
        alone = -1.0  # not looked at
        for m in range(len(table.taken)):
            if table.taken[m] > most_taken:
                break
            lasts = gap.inside_s[table.taken[m] - 1] - around
            if not lasts > earliest:  # also where both are infinite
                lasts = earliest
            for s in range(num_states):
                if table.fewer[m, s] >= 0:
                    value = table.done_s[source, table.fewer[m, s]] + lasts
                    if value < table.ready_s[target, s] and table.taken[m] == 1:
                        if alone < 0.0:
                            alone = one_call(source - begin, target - begin, gap.chains, length, chain)
                        value = max(value, table.done_s[source, table.fewer[m, s]] + alone)
                    if value < table.ready_s[target, s]:
                        table.ready_s[target, s] = value
                        table.ready_from[target, s] = source
                        table.ready_group[target, s] = m


@njit
def relax_gap(first: int, until: int, gap: Gap, with_calls: bool, sums: Sums, table: Table, most_s: float) -> None:
    """Go through the ideals ``first:until`` of a gap: calls inside the gap that end there, then what follows them.

    With `with_calls` the calls inside the gap are those of the lower bound, without it those between two ideals.
    """
    num_local, last = len(gap.host_s), table.ready_s.shape[1] - 1
    plain, inner_end, inner_out = np.zeros(num_local), np.zeros(num_local), np.zeros(num_local)
    num_ideals = gap.end - gap.begin
    paths = Paths(plain, inner_end, inner_out, np.zeros(num_ideals), np.zeros(num_ideals))
    chains = np.zeros(len(gap.chains.length_s)), np.zeros(len(gap.chains.length_s), dtype=np.int64)
    for at in range(first, until):
        if not with_calls:
            _relax_gap_calls(at, gap, sums, table, most_s)
        if table.done_s[at, last] < most_s:
            _paths_from(gap.mask[at], gap, plain, inner_end, inner_out)
            _relax_between(at, gap, with_calls, table, paths, chains)
