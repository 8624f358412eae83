"""Translation between nodes in calls and placements of ops."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import edges_along_order
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.solve.method import Run
from placekit.solvers.offload_latency.flat import OffloadProblem


def host_of_node(flat: OffloadProblem) -> NDArray[np.int64]:
    """Return the fastest host of each node ``[N]``, by device index; -1 for none."""
    contraction = flat.contraction
    if not flat.hosts:
        return np.full(flat.num_nodes, -1)
    hosts = np.array(flat.hosts)
    kinds = contraction.problem.platform.kind_of_device[hosts]
    time = np.where(contraction.allowed[:, hosts], contraction.time_s.sum(axis=2)[:, kinds], np.inf)
    return np.where(np.isfinite(time.min(axis=1)), hosts[np.argmin(time, axis=1)], -1)


def insert_nodes(flat: OffloadProblem, call_of_node: NDArray[np.int64], nodes: NDArray[np.int64]) -> None:
    """Put each of `nodes` into the call that surrounds it, or leave it on the host (-1)."""
    before: list[set[int]] = [set() for _ in range(flat.num_nodes)]  # calls that lead to a node
    behind: list[set[int]] = [set() for _ in range(flat.num_nodes)]
    along = edges_along_order(flat.num_nodes, flat.senders, flat.receivers)
    edges = list(zip(*(ends.tolist() for ends in along), strict=True))
    for u, v in edges:
        before[v] |= before[u] | {int(call_of_node[u])}
    for u, v in reversed(edges):
        behind[u] |= behind[v] | {int(call_of_node[v])}
    for v in nodes.tolist():
        inside = (before[v] & behind[v]) - {-1}
        if inside:
            call_of_node[v] = min(inside)


def assign_devices(
    flat: OffloadProblem, call_of_node: NDArray[np.int64], group_of_call: list[int]
) -> NDArray[np.int64] | None:
    """Assign calls to devices, large calls first, each to the first device with room; None if a call finds none.

    The given group of equal accelerators is tried first. O(calls * devices * nodes).
    """
    num_devices = flat.contraction.problem.platform.num_devices
    calls_left, room = np.zeros(num_devices, dtype=np.int64), np.zeros(num_devices)
    for group, limit in zip(flat.groups, flat.limit_bytes.tolist(), strict=True):
        calls_left[list(group)], room[list(group)] = flat.calls_per_device, limit
    device = np.full(len(group_of_call), -1, dtype=np.int64)
    members = [np.flatnonzero(call_of_node == call) for call in range(len(group_of_call))]
    size = [float(flat.memory_bytes[nodes].sum()) for nodes in members]
    for call in sorted(range(len(size)), key=lambda call: -size[call]):
        groups = [group_of_call[call], *(g for g in range(flat.num_groups) if g != group_of_call[call])]
        for d in (d for g in groups for d in flat.groups[g]):
            if calls_left[d] and size[call] <= room[d] and flat.contraction.allowed[members[call], d].all():
                device[call] = d
                calls_left[d] -= 1
                room[d] -= size[call]
                break
        if device[call] < 0:
            return None
    return device


def placement_of(
    flat: OffloadProblem,
    call_of_node: NDArray[np.int64],  # ``[N]`` call, -1 for the host
    device_of_call: NDArray[np.int64],  # ``[calls]`` device index
) -> Placement | None:
    """Return the placement with these calls, numbered in the order of their steps; None if a node has no host."""
    device = host_of_node(flat)
    in_call = call_of_node >= 0
    device[in_call] = device_of_call[call_of_node[in_call]]
    if (device < 0).any():
        return None
    steps = None if flat.calls_per_device == 1 else np.where(in_call, call_of_node, 0)
    expand = flat.contraction.expand
    return Placement.of(flat.contraction.problem, expand(device), None if steps is None else expand(steps))


def offer_calls(
    run: Run, flat: OffloadProblem, call_of_node: NDArray[np.int64], left_out: NDArray[np.int64], groups: list[int]
) -> None:
    """Offer the placement of calls of these groups, numbered in their order, if they fit on devices.

    `call_of_node` is changed: nodes that were left out join a call where that is possible, or stay on the host.
    """
    insert_nodes(flat, call_of_node, left_out)
    device_of_call = assign_devices(flat, call_of_node, groups)
    placement = None if device_of_call is None else placement_of(flat, call_of_node, device_of_call)
    if placement is not None:
        run.offer(placement)


def _first_places(flat: OffloadProblem) -> dict[int, int]:
    """Return the first place of every device; that of an equal host for a host without a place of its own."""
    first = {int(d): p for p, d in reversed(list(enumerate(flat.device_of_place.tolist())))}
    for group in flat.contraction.interchangeable:
        first |= {d: first[group[0]] for d in group if d not in first}
    return first


def equal_slots(flat: OffloadProblem) -> list[list[int]]:
    """Return the first slots of the accelerators of every group of equals."""
    first = _first_places(flat)
    return [[first[d] for d in group] for group in flat.groups]


def ordered_slots(
    flat: OffloadProblem,
    placement: Placement,  # a feasible placement
    starts_s: NDArray[np.float64],  # ``[num_ops]`` start of each op, or of the call that it belongs to
) -> dict[int, int]:
    """Return a first place for every device, so that the first calls of equal accelerators start in order."""
    device = placement.device_of_op
    first_place = _first_places(flat)
    for group, slots in zip(flat.groups, equal_slots(flat), strict=True):
        earliest = {d: float(starts_s[device == d].min(initial=np.inf)) for d in group}
        first_place |= dict(zip(sorted(group, key=earliest.__getitem__), slots, strict=True))
    return first_place


def placement_at(flat: OffloadProblem, node_place: NDArray[np.int64]) -> Placement:
    """Return the placement with ``[N]`` places."""
    place = flat.contraction.expand(node_place)
    steps = None
    if flat.calls_per_device > 1:
        num_slots = len(flat.device_of_place) - len(flat.hosts)
        steps = np.where(place < num_slots, place % flat.calls_per_device, 0)
    return Placement.of(flat.contraction.problem, flat.device_of_place[place], steps)


def moves(graph: OpGraph, place: NDArray[np.int64], tensor: int, slot: int, enters: bool) -> bool:
    """Return whether a tensor moves into a slot, or else out of it, with the ops at ``[num_ops]`` places."""
    is_made, is_read = place[graph.tensor_producer[tensor]] == slot, place[graph.consumers_of(tensor)] == slot
    return bool(not is_made and is_read.any() if enters else is_made and not is_read.all())


def node_places(
    flat: OffloadProblem,
    placement: Placement,  # a feasible placement
    # first place of every device; by default its own. Equal devices may exchange theirs.
    first_place: Mapping[int, int] | None = None,
) -> NDArray[np.int64] | None:
    """Return the places ``[N]`` of a placement; None if it has too many calls on a device, or splits a node."""
    if first_place is None:
        first_place = _first_places(flat)
    device = placement.device_of_op
    place = np.array([first_place[d] for d in device.tolist()], dtype=np.int64)
    if placement.step_of_op is not None and flat.calls_per_device > 1:
        on_call = np.array([not d.is_host for d in flat.contraction.problem.platform.devices])[device]
        for d in np.unique(device[on_call]).tolist():
            rank = np.unique(placement.step_of_op[device == d], return_inverse=True)[1]
            if rank.max() >= flat.calls_per_device:
                return None
            place[device == d] += rank
    of_node = np.zeros(flat.num_nodes, dtype=np.int64)
    of_node[flat.contraction.class_of_op] = place
    return of_node if np.array_equal(flat.contraction.expand(of_node), place) else None
