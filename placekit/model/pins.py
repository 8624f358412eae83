"""Pins of ops to devices: the devices that they leave to a class of ops, and pins that contradict one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.model.contiguity import Contiguity
from placekit.model.placement import Violation
from placekit.model.problem import Problem

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]


def homes_of_pins(problem: Problem, can_run: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[num_classes, num_devices]`` devices that pins leave to every class of ops that must share one.

    The device of the pins alone, if they agree. If they name several, a team has to have all of these: they are left if
    the objective allows such a team and every one of them can run the class.
    """
    pins = pins_of_classes(problem.op_class, problem.pinned, *can_run.shape)
    open_to = pins | ~pins.any(axis=1, keepdims=True)
    for c in np.flatnonzero(pins.sum(axis=1) > 1).tolist():
        members = np.flatnonzero(pins[c])
        if not may_be_team(problem, members.tolist()) or not can_run[c, members].all():
            open_to[c] = False
    return open_to


def may_be_team(problem: Problem, devices: Iterable[int]) -> bool:
    """Return whether the objective lets the devices be in one team."""
    rule, kinds = problem.objective.team_rule, problem.platform.kind_of_device
    return rule == "any" or (rule == "equal" and len({int(kinds[d]) for d in devices}) == 1)


def pins_against_class(problem: Problem, ops: NDArray[np.int64]) -> str | None:
    """Return why the pins of ops that must share a device leave none to them; None if pins are not the reason."""
    names, devices, costs = problem.graph.op_names, problem.platform.device_names, problem.costs
    pins = problem.pinned[ops]
    first_of = {int(d): int(ops[at]) for d, at in zip(*np.unique(pins, return_index=True), strict=True) if d >= 0}
    for d, op in first_of.items():
        lacking = ops[~costs.supported[ops, problem.platform.kind_of_device[d]]]
        if lacking.size:
            other = int(lacking[0])
            which = "which does not support it" if other == op else f"which does not support {names[other]!r} beside it"
            return f"op {names[op]!r} is pinned to {devices[d]!r}, {which}"
    if len(first_of) > 1 and not may_be_team(problem, first_of):
        (d, op), (e, other) = list(first_of.items())[:2]
        return (
            f"op {names[op]!r} is pinned to {devices[d]!r} and op {names[other]!r} to {devices[e]!r}, but they must "
            "share a device"
        )
    return None


def pins_against_order(problem: Problem) -> Violation | None:
    """Return pins that no placement of the problem's contiguity can respect, if some come one after the other so.

    Two devices are looked at at a time, and pins only: None says that they may be respected, not that they can be.

    Notes
    -----
    Acyclic: an op of device d before one of e, and one of e before one of d, make a cycle whatever is in between.
    Convex: an op of e between two of d. One sweep over the edges each way, with the devices of the pins behind an op
    as bits.
    """
    pinned, contiguity = problem.pinned, problem.contiguity
    ops = np.flatnonzero(pinned >= 0)
    if contiguity is Contiguity.NONE or np.unique(pinned[ops]).size < 2:
        return None
    senders, receivers = problem.order_edges
    before = _devices_before((senders, receivers), pinned)
    behind = _devices_before((receivers, senders), pinned)
    if before is None or behind is None:
        return None
    for op in ops.tolist():
        for d in _devices(before[op] & behind[op], without=int(pinned[op])):
            if not may_be_team(problem, (d, int(pinned[op]))):
                return _told(problem, op, d, op)
    if contiguity is Contiguity.CONVEX:
        return None
    behind_device: dict[tuple[int, int], int] = {}
    for op in ops.tolist():
        e = int(pinned[op])
        for d in _devices(before[op], without=e):
            behind_device.setdefault((d, e), op)
            if (e, d) in behind_device and not may_be_team(problem, (d, e)):
                return _told(problem, op, d, behind_device[e, d])
    return None


def _devices(bits: int, *, without: int) -> Iterator[int]:
    """Yield the devices that bits stand for."""
    bits &= ~(1 << without)
    while bits:
        device = bits.bit_length() - 1
        bits ^= 1 << device
        yield device


def _devices_before(edges: Edges, pinned: NDArray[np.int64]) -> list[int] | None:
    """Return for every op the devices, as bits, that ops before it are pinned to; None if the edges have a cycle."""
    num_ops = len(pinned)
    order, stuck = topological_order(num_ops, *edges)
    if stuck.size:
        return None
    own = [1 << device if device >= 0 else 0 for device in pinned.tolist()]
    before = [0] * num_ops
    along = np.argsort(np.argsort(order)[edges[0]], kind="stable")
    for u, v in zip(edges[0][along].tolist(), edges[1][along].tolist(), strict=True):
        before[v] |= before[u] | own[u]
    return before


def _nearest(edges: Edges, pinned: NDArray[np.int64], op: int, device: int) -> int:
    """Return an op pinned to `device` from which `op` is reached."""
    senders_of: dict[int, list[int]] = {}
    for u, v in zip(edges[0].tolist(), edges[1].tolist(), strict=True):
        senders_of.setdefault(v, []).append(u)
    seen, todo = {op}, [op]
    for at in todo:
        for u in senders_of.get(at, ()):
            if pinned[u] == device:
                return u
            if u not in seen:
                seen.add(u)
                todo.append(u)
    raise AssertionError("the device is before the op")


def _told(problem: Problem, op: int, d: int, second: int) -> Violation:
    """Return that `op` is behind an op of `d`, and, as `second` is behind one of its own device, before one of `d`."""
    names, devices, pinned = problem.graph.op_names, problem.platform.device_names, problem.pinned
    senders, receivers = problem.order_edges
    e = int(pinned[op])
    first = _nearest((senders, receivers), pinned, op, d)
    if second == op:
        middle, last = op, _nearest((receivers, senders), pinned, op, d)
    else:
        middle, last = _nearest((senders, receivers), pinned, second, e), second
    again = "which" if middle == op else f"and {names[middle]!r} on {devices[e]!r}"
    message = (
        f"pins contradict contiguity {problem.contiguity}: {names[first]!r} on {devices[d]!r} comes before "
        f"{names[op]!r} on {devices[e]!r}, {again} comes before {names[last]!r} on {devices[d]!r}"
    )
    return Violation("pin", message, names[op], devices[e])


def pins_of_classes(
    class_of_op: NDArray[np.int64], pinned: NDArray[np.int64], num_classes: int, num_devices: int
) -> NDArray[np.bool_]:
    """``[num_classes, num_devices]`` True where an op of the class is pinned to the device."""
    pins = np.zeros((num_classes, num_devices), dtype=bool)
    ops = np.flatnonzero(pinned >= 0)
    pins[class_of_op[ops], pinned[ops]] = True
    return pins
