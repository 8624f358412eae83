"""Topological order of the classes, and the main group of devices, for the topological baselines."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.solvers.generic.coarsen import Contraction


def needs_chain(problem: Problem) -> bool:
    """Return True if parts must not wait for each other: under a contiguity, or as calls of accelerators."""
    return problem.contiguity is not Contiguity.NONE or problem.objective.avoids_cycles


def class_order(contraction: Contraction) -> NDArray[np.int64]:
    """``[num_classes]`` classes in a topological order that follows branches to their end (depth first).

    Classes on a cycle of the order graph (possible under `none` and `convex`, where colocation can close one) come in
    the order of their first op. O(classes + edges).
    """
    order, stuck = topological_order(
        contraction.num_classes, contraction.senders, contraction.receivers, depth_first=True
    )
    return np.concatenate([order, stuck])


def total_time_s(contraction: Contraction) -> NDArray[np.float64]:
    """``[num_classes, num_kinds]`` seconds of every class, both passes."""
    total: NDArray[np.float64] = contraction.time_s.sum(axis=2)
    return total


def device_work_s(contraction: Contraction) -> NDArray[np.float64]:
    """Return the seconds ``[num_devices]`` that each device would take for all classes.

    Classes that a device may not hold are extrapolated: they take as much longer than on their fastest device as the
    other classes do. A device that may hold nothing is infinitely slow.
    """
    time = total_time_s(contraction)[:, contraction.problem.platform.kind_of_device]
    time = np.where(contraction.allowed, time, np.inf)
    fastest = time.min(axis=1)
    fastest = np.where(np.isfinite(fastest), fastest, 0.0)  # a class without a device: the problem is infeasible
    own = np.where(contraction.allowed, time, 0.0).sum(axis=0)
    ideal = np.where(contraction.allowed, fastest[:, None], 0.0).sum(axis=0)
    pace = np.divide(own, ideal, out=np.ones_like(own), where=ideal > 0)
    return np.where(contraction.allowed.any(axis=0), pace * fastest.sum(), np.inf)


def main_group(problem: Problem, contraction: Contraction) -> list[int]:
    """Return the devices of the kind that together do all work soonest: the "equal devices" of a homogeneous method.

    That is the kind with the smallest time of all work divided by its number of devices, among those that support
    most of the classes.
    """
    platform = problem.platform
    work = device_work_s(contraction)
    kinds = [platform.devices_of_kind(kind) for kind in range(len(platform.kinds))]
    able = [int(contraction.allowed[:, devices].any(axis=1).sum()) for devices in kinds]
    best = max(able)
    rate = [float(work[devices].min()) / len(devices) for devices in kinds]
    kind = min((k for k in range(len(kinds)) if able[k] >= best / 2), key=lambda k: rate[k])
    return kinds[kind]
