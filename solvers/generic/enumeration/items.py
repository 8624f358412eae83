r"""Items of an enumeration, decided one after the other, each with a few places.

An *item* is a class of ops that share a device, a *place* a device, or a team of devices under its first member. For
`OffloadLatency` with several calls per device an item is an op and a place is a call that a device may make. Items come
in topological order of their first ops. The devices of a group of equals are opened in the order of their indices,
because every placement can be renamed so.

Shapes: ``B`` beginnings, of which the first ``k`` items have places; ``I`` items, ``P`` places, ``V`` ops, ``D``
devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import all_by, sum_by
from placekit.model.contiguity import Contiguity, edges_along_order
from placekit.model.device_groups import teams_of
from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.problem import Problem
from placekit.objectives import OffloadLatency

Beginnings = NDArray[np.int8]
"""``[B, k]`` place of each of the first k items."""


@dataclass(frozen=True, eq=False)
class Items:
    """A problem as items and places."""

    problem: Problem
    item_of_op: NDArray[np.int64]  # ``[V]`` item of every op
    # device_of_place, slot_of_place: ``[P]`` device of each place, and which of its calls it is (0 but for several
    # calls per device)
    device_of_place: NDArray[np.int64]
    slot_of_place: NDArray[np.int64]
    allowed: NDArray[np.bool_]  # ``[I, P]`` where each item may go
    opened_after: NDArray[np.int64]  # ``[P]`` device that must be in use before the place's own; -1 for none
    teams: Mapping[int, tuple[int, ...]]  # members of every team of several devices by the first; empty without teams

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self.allowed)

    @cached_property
    def num_placements(self) -> float:
        """Number of ways to give every item a place, at most."""
        with np.errstate(over="ignore"):  # infinity is an answer
            return float(np.prod(self.allowed.sum(axis=1).astype(np.float64)))

    @cached_property
    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distinct edges between ops, along a topological order."""
        graph = self.problem.graph
        rank = graph.rank
        keys = np.unique(rank[graph.senders] * graph.num_ops + rank[graph.receivers])
        senders, receivers = np.divmod(keys, graph.num_ops)
        return graph.order[senders], graph.order[receivers]

    def expand(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``[V]`` devices and steps from ``[I]`` places."""
        place = places[self.item_of_op]
        return self.device_of_place[place], self.slot_of_place[place]

    def extended(self, beginnings: Beginnings) -> Beginnings:
        """``[B', k + 1]`` beginnings with one item more, without those that break a constraint for sure."""
        item = beginnings.shape[1]
        device = self.device_of_place[beginnings]
        found = []
        for place in np.flatnonzero(self.allowed[item]).tolist():
            opener = int(self.opened_after[place])
            rows = beginnings if opener < 0 else beginnings[(device == opener).any(axis=1)]
            found.append(np.column_stack([rows, np.full(len(rows), place, dtype=np.int8)]))
        longer = np.concatenate(found) if found else np.zeros((0, item + 1), dtype=np.int8)
        return longer[self._keeps_memory(longer) & self._keeps_together(longer)]

    @cached_property
    def _num_bytes(self) -> NDArray[np.float64]:
        return sum_by(self.item_of_op, self.problem.costs.op_memory_bytes, self.num_items)

    def _keeps_memory(self, beginnings: Beginnings) -> NDArray[np.bool_]:
        device = self.device_of_place[beginnings]
        keeps = np.ones(len(beginnings), dtype=bool)
        limits = self.problem.platform.memory_limits_bytes
        for d in range(len(limits)):
            limit = limits[list(self.teams.get(d, (d,)))].min()
            if np.isfinite(limit):
                used = (device == d) @ self._num_bytes[: device.shape[1]]
                keeps &= used <= limit * (1 + MEMORY_TOLERANCE)  # the judge has the last word
        for pool in self.problem.tight_pools if not self.teams else ():
            used = np.isin(device, self.problem.platform.members_of(pool)) @ self._num_bytes[: device.shape[1]]
            keeps &= used <= pool.most_bytes * (1 + 2 * MEMORY_TOLERANCE)
        return keeps

    def _keeps_together(self, beginnings: Beginnings) -> NDArray[np.bool_]:
        """Return True if ops of one class share a device, even if they are separate items."""
        last = beginnings.shape[1] - 1
        keeps = np.ones(len(beginnings), dtype=bool)
        leader = int(self._first_of_class[last])
        if leader != last:
            device = self.device_of_place[beginnings]
            keeps &= device[:, leader] == device[:, last]
        return keeps

    @cached_property
    def _first_of_class(self) -> NDArray[np.int64]:
        """``[I]`` the first item whose ops must share a device with this one's."""
        op_of_item = np.unique(self.item_of_op, return_index=True)[1]
        label = self.problem.op_class[op_of_item]
        return np.unique(label, return_index=True)[1][np.unique(label, return_inverse=True)[1]]

    def is_contiguous(self, beginnings: Beginnings) -> NDArray[np.bool_]:
        """``[B]`` False where the items that have places break the contiguity, whatever the others do."""
        contiguity = self.problem.contiguity
        num_items = beginnings.shape[1]
        keeps = np.ones(len(beginnings), dtype=bool)
        if contiguity is Contiguity.NONE:
            return keeps
        senders, receivers = self._order_edges
        known = (self.item_of_op[senders] < num_items) & (self.item_of_op[receivers] < num_items)
        senders, receivers = senders[known], receivers[known]
        device = self.device_of_place[beginnings]
        at = {op: device[:, self.item_of_op[op]] for op in {*senders.tolist(), *receivers.tolist()}}
        edges = list(zip(senders.tolist(), receivers.tolist(), strict=True))
        num_devices = self.problem.platform.num_devices
        if contiguity is Contiguity.ACYCLIC:
            reach = np.zeros((len(beginnings), num_devices, num_devices), dtype=bool)
            rows = np.arange(len(beginnings))
            for u, v in edges:
                crosses = at[u] != at[v]
                reach[rows[crosses], at[u][crosses], at[v][crosses]] = True
            for d in range(num_devices):
                reach |= reach[:, :, d, None] & reach[:, None, d, :]
            for d in range(num_devices):
                keeps &= ~reach[:, d, d]
            return keeps
        for d in range(num_devices):
            left = {op: np.zeros(len(beginnings), dtype=bool) for op in at}
            for u, v in edges:
                left[v] |= left[u] | ((at[u] == d) & (at[v] != d))
            for op, gone in left.items():
                keeps &= ~(gone & (at[op] == d))
        return keeps

    @cached_property
    def _order_edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Edges of the order graph along a topological order of it."""
        return edges_along_order(self.problem.graph.num_ops, *self.problem.order_edges)


def items_of(problem: Problem, team_of_device: NDArray[np.int64] | None = None) -> Items:
    """Return the items and places of `problem`, with fixed teams if given. O(ops * devices + edges log edges)."""
    graph, platform, costs = problem.graph, problem.platform, problem.costs
    num_devices = platform.num_devices
    class_allowed = all_by(problem.op_class, costs.supported[:, platform.kind_of_device], problem.num_classes)
    alone = np.arange(num_devices)
    team = alone if team_of_device is None else team_of_device
    members = {each[0]: each for each in teams_of(team)}
    for first, each in members.items():
        class_allowed[:, first] = class_allowed[:, each].all(axis=1)
    for op in np.flatnonzero(problem.pinned >= 0).tolist():
        class_allowed[problem.op_class[op], alone != team[problem.pinned[op]]] = False
    calls = problem.objective.calls_per_device if isinstance(problem.objective, OffloadLatency) else 1
    calls = min(calls, graph.num_ops)
    label = problem.op_class if calls == 1 else np.arange(graph.num_ops)
    # items in topological order of their first ops
    _, first_at, of_order = np.unique(label[graph.order], return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first_at))
    item_of_op = np.empty(graph.num_ops, dtype=np.int64)
    item_of_op[graph.order] = number[of_order]
    allowed = all_by(item_of_op, class_allowed[problem.op_class], len(number))
    places = [
        (d, slot)
        for d, device in enumerate(platform.devices)
        if team[d] == d
        for slot in range(1 if device.is_host or calls == 1 else calls)
    ]
    device_of_place = np.array([d for d, _ in places], dtype=np.int64)
    return Items(
        problem,
        item_of_op,
        device_of_place,
        np.array([slot for _, slot in places], dtype=np.int64),
        allowed[:, device_of_place],
        _opened_after(platform.group_of_device, allowed, members)[device_of_place],
        {first: each for first, each in members.items() if len(each) > 1},
    )


def _opened_after(
    group: NDArray[np.int64], allowed: NDArray[np.bool_], members: Mapping[int, tuple[int, ...]]
) -> NDArray[np.int64]:
    """``[D]`` the device before each one in its group of equals, as first members of their teams; -1 for the first."""
    before = np.full(len(group), -1)
    last: dict[tuple[tuple[int, ...], bytes], int] = {}
    for d, each in sorted(members.items()):
        key = tuple(sorted(group[list(each)].tolist())), allowed[:, d].tobytes()
        before[d] = last.get(key, -1)
        last[key] = d
    return before
