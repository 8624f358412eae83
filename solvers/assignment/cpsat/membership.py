"""Booleans that assign classes to slots: one per device, or a chain of slots for acyclic quotients."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.assignment.ilp.slots import devices_of_slots, in_opening_order, slot_chain, slots_of_devices

Values = dict[int, int]
"""Values of variables by their index in the model."""


def interchangeable(flat: FlatProblem) -> list[list[int]]:
    """Return the devices in groups of equals: same kind, limit, and the same classes allowed."""
    groups: dict[tuple[int, float, bytes], list[int]] = {}
    for d, kind in enumerate(flat.kind.tolist()):
        groups.setdefault((kind, float(flat.limit_bytes[d]), flat.allowed[:, d].tobytes()), []).append(d)
    return list(groups.values())


class Membership(Protocol):
    """Booleans ``x[c, s]``: class `c` is in slot `s`; absent if not allowed there."""

    x: dict[tuple[int, int], cp_model.IntVar]
    device_of_slot: list[int]
    """A device of the slot's group, for its kind and limit."""

    def encode(self, device: NDArray[np.int64]) -> tuple[NDArray[np.int64], Values] | None:
        """Return the slot of every class and values of the variables, or None if the placement has none."""
        ...

    def decode(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return ``[C]`` devices from ``[C]`` slots."""
        ...


class ByDevice:
    """Slots are the devices; interchangeable devices are opened in the order of the classes, largest first.

    Class j (by decreasing time) may use the i-th device of a group only if an earlier class uses the (i-1)-th:
    ``opened[i - 1, j - 1]``. Every placement satisfies this after renaming devices within groups.
    """

    def __init__(self, model: cp_model.CpModel, flat: FlatProblem) -> None:
        num_classes, num_devices = flat.allowed.shape
        self.groups = interchangeable(flat)
        self.device_of_slot = list(range(num_devices))
        self.x = {
            (c, d): model.new_bool_var(f"x_{c}_{d}")
            for c in range(num_classes)
            for d in range(num_devices)
            if flat.allowed[c, d]
        }
        for c in range(num_classes):
            model.add_exactly_one(self.x[c, d] for d in range(num_devices) if (c, d) in self.x)
        self.by_size = np.argsort(-flat.time_s.sum(axis=(1, 2)), kind="stable").tolist()
        self.opened: dict[tuple[int, int], cp_model.IntVar] = {}
        for group in self.groups:
            for before, device in pairwise(group):
                self._open_in_order(model, before, device)

    def _open_in_order(self, model: cp_model.CpModel, before: int, device: int) -> None:
        previous: list[cp_model.IntVar] = []
        for j, c in enumerate(self.by_size):
            if (c, device) not in self.x:
                continue
            model.add_bool_or(*previous, ~self.x[c, device])
            opened = model.new_bool_var(f"opened_{before}_{j}")
            model.add_bool_or(*previous, self.x[c, before], ~opened)
            self.opened[before, j] = opened
            previous = [opened]

    def encode(self, device: NDArray[np.int64]) -> tuple[NDArray[np.int64], Values] | None:
        """Return devices, renamed within each group to the order in which classes open them, and values."""
        renamed = in_opening_order(device, self.groups, self.by_size)
        if any((c, d) not in self.x for c, d in enumerate(renamed.tolist())):
            return None
        values = {variable.index: int(renamed[c] == d) for (c, d), variable in self.x.items()}
        opened: dict[int, int] = {}
        for (before, j), variable in self.opened.items():
            opened[before] = max(opened.get(before, 0), int(renamed[self.by_size[j]] == before))
            values[variable.index] = opened[before]
        return renamed, values

    def decode(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the slots: they are the devices."""
        return slot


class BySlot:
    """Slots in a chain that contains every order of the devices; every edge of the order graph stays or goes forward.

    ``y[c, s]`` says that class `c` lies in one of the slots ``0 .. s``; ``x[c, s]`` is the step of y there.
    """

    def __init__(self, model: cp_model.CpModel, flat: FlatProblem) -> None:
        self.groups = interchangeable(flat)
        self.slot_group = slot_chain([len(group) for group in self.groups])
        self.device_of_slot = [self.groups[g][0] for g in self.slot_group]
        num_classes, num_slots = len(flat.memory_bytes), len(self.slot_group)
        self.senders = np.repeat(np.arange(num_classes), np.diff(flat.next_offsets))
        self.receivers = flat.next_classes
        self.y = {(c, s): model.new_bool_var(f"y_{c}_{s}") for c in range(num_classes) for s in range(num_slots - 1)}
        self.x: dict[tuple[int, int], cp_model.IntVar] = {}
        for c in range(num_classes):
            for s in range(num_slots - 2):
                model.add_implication(self.y[c, s], self.y[c, s + 1])
            for s in range(num_slots):
                inside: list[cp_model.LiteralT] = [self.y[c, s]] if s < num_slots - 1 else []
                inside += [~self.y[c, s - 1]] if s > 0 else []
                if not flat.allowed[c, self.device_of_slot[s]]:
                    model.add_bool_or(*(~literal for literal in inside))
                    continue
                x = self.x[c, s] = model.new_bool_var(f"x_{c}_{s}")
                model.add_bool_or(x, *(~literal for literal in inside))
                for literal in inside:
                    model.add_implication(x, literal)
            model.add_exactly_one(self.x[c, s] for s in range(num_slots) if (c, s) in self.x)
        for u, v in set(zip(self.senders.tolist(), self.receivers.tolist(), strict=True)):
            for s in range(num_slots - 1):
                model.add_implication(self.y[v, s], self.y[u, s])
        # a group with as many slots as devices needs no count
        self.used = {
            s: model.new_bool_var(f"used_{s}")
            for s, g in enumerate(self.slot_group)
            if self.slot_group.count(g) > len(self.groups[g])
        }
        for (_, s), x in self.x.items():
            if s in self.used:
                model.add_implication(x, self.used[s])
        for g, group in enumerate(self.groups):
            slots = [variable for s, variable in self.used.items() if self.slot_group[s] == g]
            if slots:
                model.add(sum(slots) <= len(group))

    def encode(self, device: NDArray[np.int64]) -> tuple[NDArray[np.int64], Values] | None:
        """Return the slots of an acyclic placement, as far left as they fit, and values."""
        found = slots_of_devices(device, self.groups, self.slot_group, self.senders, self.receivers)
        if found is None or any((c, s) not in self.x for c, s in enumerate(found[0].tolist())):
            return None
        slot, slots = found
        values = {variable.index: int(slot[c] <= s) for (c, s), variable in self.y.items()}
        values |= {variable.index: int(slot[c] == s) for (c, s), variable in self.x.items()}
        values |= {variable.index: int(s in slots) for s, variable in self.used.items()}
        return slot, values

    def decode(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the devices: non-empty slots of a group take its devices in order."""
        return devices_of_slots(slot, self.groups, self.slot_group)
