"""Linear expressions that assign classes to slots, in two formulations.

`AssignmentMembership` has one binary per class and device. `OrderedMembership` has one per class and boundary of a
chain of slots (:mod:`placekit.solvers.assignment.ilp.slots`): ``y[c, s] = 1`` iff class `c` lies in one of the slots
``0 .. s``, so that acyclicity is one row per edge and boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol

import numpy as np
import pulp
from numpy.typing import NDArray

from placekit.solvers.assignment.ilp.slots import devices_of_slots, in_opening_order, slot_chain, slots_of_devices
from placekit.solvers.generic.coarsen import Contraction

Linear = tuple[list[tuple[pulp.LpVariable, float]], float]
"""Terms (variable, coefficient) and a constant."""


def linear_row(*parts: tuple[Linear, float]) -> pulp.LpAffineExpression:
    """Return the sum of linear expressions, each times a factor; a variable may occur more than once."""
    total: dict[pulp.LpVariable, float] = {}
    constant = 0.0
    for (terms, offset), factor in parts:
        constant += factor * offset
        for variable, coefficient in terms:
            total[variable] = total.get(variable, 0.0) + factor * coefficient
    return pulp.LpAffineExpression(total, constant)


class Membership(Protocol):
    """Binary expressions `at(c, s)`: class `c` is in slot `s`."""

    slot_device: list[int]
    """A device of the slot's group, for its kind, memory and allowed classes."""

    def at(self, c: int, slot: int) -> Linear:
        """Return the expression that is 1 iff class `c` is in `slot`."""
        ...

    def encode(self, device_of_class: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[pulp.LpVariable, float]]:
        """Return the slot of every class and the values of the variables for a feasible placement."""
        ...

    def decode(self, value: Mapping[pulp.LpVariable, float]) -> NDArray[np.int64]:
        """Return ``[num_classes]`` devices from the values of the variables."""
        ...


class AssignmentMembership:
    """Slots are the devices; interchangeable devices are opened in the order of the classes, largest first.

    Symmetry: class j (by decreasing time) may use the i-th device of a group only if an earlier class uses the
    (i-1)-th. ``opened[i, j]`` needs two sparse rows for this instead of one dense row.
    """

    def __init__(self, model: pulp.LpProblem, contraction: Contraction) -> None:
        self.contraction = contraction
        num_devices = contraction.problem.platform.num_devices
        self.slot_device = list(range(num_devices))
        classes = range(contraction.num_classes)
        allowed = contraction.allowed
        self.x = {
            (c, d): model.add_variable(f"x_{c}_{d}", cat="Binary")
            for c in classes
            for d in range(num_devices)
            if allowed[c, d]
        }
        for c in classes:
            row = pulp.LpAffineExpression([(self.x[c, d], 1) for d in range(num_devices) if allowed[c, d]])
            model.addConstraint(row == 1, f"placed_{c}")
        self.by_size = np.argsort(-contraction.time_s.sum(axis=(1, 2)), kind="stable").tolist()
        self.opened: dict[tuple[int, int], pulp.LpVariable] = {}
        for group in contraction.interchangeable:
            for before, device in pairwise(group):
                self._open_in_order(model, before, device)

    def _open_in_order(self, model: pulp.LpProblem, before: int, device: int) -> None:
        previous: pulp.LpVariable | None = None
        for j, c in enumerate(self.by_size):
            if (c, device) not in self.x:
                continue
            earlier = [(previous, -1)] if previous is not None else []
            model.addConstraint(pulp.LpAffineExpression([(self.x[c, device], 1), *earlier]) <= 0, f"open_{device}_{j}")
            opened = model.add_variable(f"opened_{before}_{j}", 0, 1)
            row = pulp.LpAffineExpression([(opened, 1), (self.x[c, before], -1), *earlier])
            model.addConstraint(row <= 0, f"opened_{before}_{j}")
            self.opened[before, j] = previous = opened

    def at(self, c: int, slot: int) -> Linear:
        """Return the expression that is 1 iff class `c` is on device `slot`."""
        variable = self.x.get((c, slot))
        return ([(variable, 1.0)], 0.0) if variable is not None else ([], 0.0)

    def encode(self, device_of_class: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[pulp.LpVariable, float]]:
        """Return devices, renamed within each group to the order in which classes open them, and values."""
        renamed = in_opening_order(device_of_class, self.contraction.interchangeable, self.by_size)
        values = {variable: float(renamed[c] == d) for (c, d), variable in self.x.items()}
        opened: dict[int, float] = {}
        for (before, j), variable in self.opened.items():
            opened[before] = max(opened.get(before, 0.0), float(renamed[self.by_size[j]] == before))
            values[variable] = opened[before]
        return renamed, values

    def decode(self, value: Mapping[pulp.LpVariable, float]) -> NDArray[np.int64]:
        """Return the device of the largest binary of each class."""
        best = np.full(self.contraction.num_classes, -1.0)
        device = np.zeros(self.contraction.num_classes, dtype=np.int64)
        for (c, d), variable in self.x.items():
            if value[variable] > best[c]:
                best[c], device[c] = value[variable], d
        return device


class OrderedMembership:
    """Slots in a chain; every edge of the order graph stays or goes forward."""

    def __init__(self, model: pulp.LpProblem, contraction: Contraction) -> None:
        self.contraction = contraction
        groups = contraction.interchangeable
        self.slot_group = slot_chain([len(group) for group in groups])
        self.slot_device = [groups[g][0] for g in self.slot_group]
        num_slots = len(self.slot_group)
        classes = range(contraction.num_classes)
        self.y = {(c, s): model.add_variable(f"y_{c}_{s}", cat="Binary") for c in classes for s in range(num_slots - 1)}
        for c in classes:
            for s in range(num_slots - 2):
                model.addConstraint(
                    pulp.LpAffineExpression([(self.y[c, s], 1), (self.y[c, s + 1], -1)]) <= 0, f"rises_{c}_{s}"
                )
        for u, v in zip(contraction.senders.tolist(), contraction.receivers.tolist(), strict=True):
            for s in range(num_slots - 1):
                model.addConstraint(
                    pulp.LpAffineExpression([(self.y[v, s], 1), (self.y[u, s], -1)]) <= 0, f"order_{u}_{v}_{s}"
                )
        # a group with as many slots as devices needs no count
        self._used = {
            s: model.add_variable(f"used_{s}", cat="Binary")
            for s, g in enumerate(self.slot_group)
            if self.slot_group.count(g) > len(groups[g])
        }
        for g, group in enumerate(groups):
            slots = [variable for s, variable in self._used.items() if self.slot_group[s] == g]
            if slots:
                model.addConstraint(pulp.lpSum(slots) <= len(group), f"count_{g}")
        for s in range(num_slots):
            for c in classes:
                if not contraction.allowed[c, self.slot_device[s]]:
                    model.addConstraint(linear_row((self.at(c, s), 1.0)) == 0, f"forbidden_{c}_{s}")
                elif s in self._used:
                    unused = ([(self._used[s], 1.0)], 0.0)
                    model.addConstraint(linear_row((self.at(c, s), 1.0), (unused, -1.0)) <= 0, f"use_{c}_{s}")

    def at(self, c: int, slot: int) -> Linear:
        """Return the expression that is 1 iff class `c` is in `slot`: the rise of y there."""
        terms = [(self.y[c, slot], 1.0)] if (c, slot) in self.y else []
        if slot > 0:
            terms.append((self.y[c, slot - 1], -1.0))
        return terms, 0.0 if (c, slot) in self.y else 1.0

    def encode(self, device_of_class: NDArray[np.int64]) -> tuple[NDArray[np.int64], dict[pulp.LpVariable, float]]:
        """Return the slots of an acyclic placement, as far left as they fit, and values."""
        contraction = self.contraction
        ends = contraction.senders, contraction.receivers
        found = slots_of_devices(device_of_class, contraction.interchangeable, self.slot_group, *ends)
        if found is None:
            raise ValueError("the placement is not acyclic")
        slot_of_class, slots = found
        values = {variable: float(slot_of_class[c] <= s) for (c, s), variable in self.y.items()}
        values |= {variable: float(s in slots) for s, variable in self._used.items()}
        return slot_of_class, values

    def decode(self, value: Mapping[pulp.LpVariable, float]) -> NDArray[np.int64]:
        """Return the devices: non-empty slots of a group take its devices in order."""
        slot = np.full(self.contraction.num_classes, len(self.slot_group) - 1, dtype=np.int64)
        for (c, s), variable in self.y.items():
            if value.get(variable, 0.0) > 0.5:  # PuLP omits variables that are in no row
                slot[c] = min(slot[c], s)
        return devices_of_slots(slot, self.contraction.interchangeable, self.slot_group)
