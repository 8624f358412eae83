r"""Lower bound and placement from the calls that follow one another along one path of the graph.

Where no op lies on every path, the series program (:mod:`placekit.solvers.offload_latency.series`) has no spine. A
single path :math:`p_1 \to \dots \to p_m` gives a bound without one.

1. Claim: a call holds neighbours :math:`p_i, \dots, p_j` of the path, with every node between two nodes of the call,
   and neither a node that leads to :math:`p_{i-1}` nor one to which :math:`p_{j+1}` leads. Reason: such a node would
   wait for the call and be waited for by it.
2. Claim: the latency is at least the sum of the calls that hold nodes of the path, and of its nodes on the host.
   Reason: each of them waits for the one before it.
3. Claim: a call of an accelerator of group g with exactly :math:`p_i, \dots, p_j` takes at least

   .. math:: d_{gij} = \max_{\lambda \ge 0} \min_S \sum_{v \in S} t_{vg} + \sum_{u \text{ split by } S} c_{ug} +
      \lambda \Bigl(\sum_{v \in S} size_v - limit_g\Bigr)

   with S among the sets that claim 1 allows, without the nodes that do not fit beside those that must be in S. Reason:
   a net moves once if it has nodes on both sides; the set of the call fits, so its memory price is not positive.
   Every minimum is a minimum cut.
4. So a shortest path is a lower bound: over the places of the path and the calls that are left, along host nodes and
   :math:`d_{gij}`.

Few of the :math:`d_{gij}` are needed. At first each is the work of the nodes that must be in the call, and the nets
that they split whatever else is in S. Then the minimum cuts along the shortest path replace these, until all calls of
the shortest path have theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, topological_order
from placekit.model.contiguity import edges_along_order
from placekit.solve.method import Run
from placekit.solvers.backends.flow import CutCost, Nets
from placekit.solvers.offload_latency.bounds import rounded_down
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.plans import offer_calls
from placekit.solvers.offload_latency.series.series_arrays import merged_groups

CALLS_ALONG_PATH = "calls along a path"
MAX_CELLS = 4_000_000
"""Pairs of places of the path, for every group, and places of every net, up to which the bound is looked for."""
MAX_CUTS = 2000
"""Minimum cuts, at most: two thousand of a hundred nodes take two seconds."""
MAX_PRICES = 12
"""Prices of memory for one call, at most."""
LIMIT_SLACK = 1e-12
"""Relative error of a sum of bytes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Shortest path over the places of the path and the calls that are left."""

    latency_s: float  # its length in seconds, not rounded
    calls: tuple[tuple[int, int, int], ...]  # group, first and last place of each call, in their order


def raise_along_path(
    run: Run, flat: OffloadProblem, on_bound: Callable[[float, str], None], should_stop: Callable[[], bool]
) -> None:
    """Raise the bound by the calls along the heaviest path, and offer the placement that has those calls."""
    path = heaviest_path(flat)
    time_s, net_time_s, limits, less = merged_groups(flat)
    cells = len(path) * (len(path) * max(1, len(limits)) + flat.num_nets)
    if not len(path) or not len(limits) or cells > MAX_CELLS:
        return
    calls = PathCalls(flat, path, time_s, net_time_s, limits)
    while True:
        plan = shortest(calls.least_s, flat.host_time_s[path], less)
        if plan is None:
            return
        on_bound(rounded_down(flat, plan.latency_s), CALLS_ALONG_PATH)
        missing = [call for call in plan.calls if call not in calls.members]
        if not missing or calls.num_cuts >= MAX_CUTS or should_stop():
            break
        for call in missing:
            calls.find(*call)
    if not missing:
        _offer(run, flat, plan, calls.members)


def heaviest_path(flat: OffloadProblem) -> NDArray[np.int64]:
    """Return the nodes of a path with most seconds at each node's best; of equal ones that with most memory and nodes.

    O(nodes + edges).
    """
    seconds = np.minimum(flat.time_s.min(axis=1, initial=np.inf), flat.host_time_s).tolist()
    size, sender = flat.memory_bytes.tolist(), flat.senders.tolist()
    order, _ = topological_order(flat.num_nodes, flat.senders, flat.receivers)
    first, incoming = (each.tolist() for each in csr_lists(flat.receivers, np.arange(len(sender)), flat.num_nodes))
    weight, before = [(0.0, 0.0, 0)] * flat.num_nodes, [-1] * flat.num_nodes
    for v in order.tolist():
        for edge in incoming[first[v] : first[v + 1]]:
            if weight[sender[edge]] > weight[v] or before[v] < 0:
                weight[v], before[v] = weight[sender[edge]], sender[edge]
        weight[v] = (weight[v][0] + seconds[v], weight[v][1] + size[v], weight[v][2] + 1)
    at = max(range(flat.num_nodes), key=weight.__getitem__, default=-1)
    path = []
    while at >= 0:
        path.append(at)
        at = before[at]
    return np.array(path[::-1], dtype=np.int64)


def shortest(
    least_s: NDArray[np.float64],  # ``[G, m, m]`` seconds of a call of the group from one place to another
    host_s: NDArray[np.float64],  # ``[m]`` seconds on the host
    less: NDArray[np.int64],  # ``[G, states]`` the state with one call of the group less, -1 for none
) -> Plan | None:
    """Return the shortest path; None if there is none. O(groups * states * m ** 2)."""
    num_groups, num_states = less.shape
    length = len(host_s)
    done = np.full((length + 1, num_states), np.inf)  # up to a place, with the calls of the state
    done[0] = 0.0
    start = np.full((length + 1, num_states), -1)  # first place of the last call; -1 for the host
    group = np.zeros((length + 1, num_states), dtype=np.int64)
    states = np.arange(num_states)
    for j in range(length):
        done[j + 1] = done[j] + host_s[j]
        for g in range(num_groups):
            through = done[: j + 1, less[g]] + least_s[g, : j + 1, j, None]
            through[:, less[g] < 0] = np.inf
            first = through.argmin(axis=0)
            value = through[first, states]
            better = value < done[j + 1]
            done[j + 1, better], start[j + 1, better], group[j + 1, better] = value[better], first[better], g
    at, state = length, num_states - 1
    latency_s = float(done[at, state])
    if not np.isfinite(latency_s):
        return None
    calls: list[tuple[int, int, int]] = []
    while at > 0:
        first_place, g = int(start[at, state]), int(group[at, state])
        if first_place >= 0:
            calls.append((g, first_place, at - 1))
            at, state = first_place, int(less[g, state])
        else:
            at -= 1
    return Plan(latency_s, tuple(calls[::-1]))


class PathCalls:
    """Lower bounds on the calls along a path, and the sets of nodes that reach them."""

    def __init__(
        self,
        flat: OffloadProblem,
        path: NDArray[np.int64],
        time_s: NDArray[np.float64],
        net_time_s: NDArray[np.float64],
        limits: NDArray[np.float64],
    ) -> None:
        self._size, self._time_s, self._limits = flat.memory_bytes, time_s, limits * (1 + LIMIT_SLACK)
        self._nets = [Nets(flat.net_offsets, flat.net_nodes, net_time_s[:, g]) for g in range(len(limits))]
        self._length = len(path)
        # last place of the path that leads to each node, or is it; first place that the node leads to, or is
        self._after, self._until = _neighbours(flat, path)
        # ``[G, m, m]`` lower bounds in seconds; infinity where no call is possible
        self.least_s = np.stack([self._at_once(g) for g in range(len(limits))])
        # nodes of the best call, for each group, first and last place with a minimum cut
        self.members: dict[tuple[int, int, int], NDArray[np.bool_]] = {}
        self.num_cuts = 0

    def find(self, group: int, first: int, last: int) -> None:
        """Replace the lower bound on a call by that of minimum cuts."""
        size, limit = self._size, self._limits[group]
        must = (self._after >= first) & (self._until <= last)
        work = self._time_s[:, group]
        may = (self._after <= last) & (self._until >= first) & np.isfinite(work)
        may &= size + size[must].sum() <= limit
        may |= must
        choice = CutCost(np.where(may, work, np.inf), np.where(must, np.inf, 0.0), split=self._nets[group])
        cut = choice.minimise()
        self.num_cuts += 1
        members, bound = cut.is_first, cut.bound
        large, large_s = members, cut.value
        small, small_s = must, choice.value(must)
        if size[members].sum() <= limit:
            small = members
        for _ in range(MAX_PRICES if small is must else 0):
            # the price at which the largest set that does not fit and the best that fits cost the same
            price = (small_s - large_s) / (size[large].sum() - size[small].sum())
            if price <= 0:
                break
            priced = CutCost(np.where(may, work + price * size, np.inf), choice.second, split=self._nets[group])
            cut = priced.minimise()
            self.num_cuts += 1
            bound = max(bound, cut.bound - price * limit)
            value_s = choice.value(cut.is_first)
            if cut.value >= (small_s + price * size[small].sum()) * (1 - LIMIT_SLACK):
                break
            if size[cut.is_first].sum() <= limit:
                small, small_s = cut.is_first, value_s
            else:
                large, large_s = cut.is_first, value_s
        self.least_s[group, first, last] = max(self.least_s[group, first, last], bound)
        self.members[group, first, last] = small

    def _at_once(self, group: int) -> NDArray[np.float64]:
        """``[m, m]`` seconds of the nodes that must be in a call, and of the nets that they split in any case."""
        length, work = self._length, self._time_s[:, group]
        places = np.arange(length)
        is_allowed, is_inside = np.isfinite(work), (self._after >= 0) & (self._until < length)

        def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
            """``[m, m]`` sum over the nodes that must be in the call."""
            table = np.zeros((length, length))
            np.add.at(table, (self._after[is_inside], self._until[is_inside]), values[is_inside])
            return np.asarray(table[::-1].cumsum(axis=0)[::-1].cumsum(axis=1))

        least = total(np.where(is_allowed, work, 0.0))
        nets = self._nets[group]
        change = np.zeros((length, length + 1))
        for n, weight in enumerate(nets.weight.tolist()):
            pins = nets.pins[nets.offsets[n] : nets.offsets[n + 1]]
            after, until = self._after[pins], self._until[pins]
            inside = after >= 0
            # last place from which on a node of the net is in the call, for each first place
            soonest = np.full(length, length)
            np.minimum.at(soonest, after[inside], until[inside])
            begin = np.maximum(np.minimum.accumulate(soonest[::-1])[::-1], places)
            # a node before the first place is outside whatever the last place; one after the last place, up to it
            end = np.where(places > until.min(), length, np.maximum(after.max(), begin))
            counts = begin < end
            np.add.at(change, (places[counts], begin[counts]), weight)
            np.add.at(change, (places[counts], end[counts]), -weight)
        least += change.cumsum(axis=1)[:, :length]
        fits = (total(self._size) <= self._limits[group]) & (total((~is_allowed).astype(float)) == 0)
        fits &= places[:, None] <= places
        return np.where(fits, least, np.inf)


def _neighbours(flat: OffloadProblem, path: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the last place that leads to each node (-1 for none), and the first that it leads to (m for none)."""
    after, until = np.full(flat.num_nodes, -1), np.full(flat.num_nodes, len(path))
    after[path] = until[path] = np.arange(len(path))
    senders, receivers = edges_along_order(flat.num_nodes, flat.senders, flat.receivers)
    edges = list(zip(senders.tolist(), receivers.tolist(), strict=True))
    a, u = after.tolist(), until.tolist()
    for sender, receiver in edges:
        a[receiver] = max(a[receiver], a[sender])
    for sender, receiver in reversed(edges):
        u[sender] = min(u[sender], u[receiver])
    return np.array(a, dtype=np.int64), np.array(u, dtype=np.int64)


def _offer(run: Run, flat: OffloadProblem, plan: Plan, members: dict[tuple[int, int, int], NDArray[np.bool_]]) -> None:
    """Offer the placement of a plan, if its calls fit on devices; every other node is on the host."""
    call_of_node = np.full(flat.num_nodes, -1, dtype=np.int64)
    for number, call in enumerate(plan.calls):
        call_of_node[members[call] & (call_of_node < 0)] = number
    offer_calls(run, flat, call_of_node, np.flatnonzero(call_of_node < 0), [group for group, _, _ in plan.calls])
