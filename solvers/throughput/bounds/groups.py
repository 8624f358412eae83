"""Input of the bounds: groups of interchangeable devices, and the cost of each class there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solvers.generic.coarsen import Contraction, contract


@dataclass(frozen=True, eq=False)
class Machines:
    """A throughput problem as machines: groups of equal devices."""

    contraction: Contraction
    # devices of each group: equals; with teams all devices of a kind, wherever pins are
    groups: tuple[tuple[int, ...], ...]
    # the passes that the schedule separates: one pass of everything, or forward and backward
    passes: tuple[tuple[int, ...], ...]
    count: NDArray[np.int64]  # ``[num_groups]`` devices of each group
    time_s: NDArray[np.float64]  # ``[num_classes, num_groups, num_passes]`` seconds
    # ``[num_nets, num_groups, num_passes]`` seconds of a net that touches a device and leaves it
    net_time_s: NDArray[np.float64]
    # ``[num_groups]`` limit of one device, with the judge's tolerance; infinity for no limit
    memory_limit_bytes: NDArray[np.float64]
    allowed: NDArray[np.bool_]  # ``[num_classes, num_groups]`` True where a device of the group can hold the class
    has_overlap: bool  # True if a device's load is the larger of work and transfers, not their sum
    # ``[num_groups]`` devices of the group that can share the samples of a class, 1 without teams; None if devices of
    # different groups can
    largest_team: NDArray[np.int64] | None

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.allowed)

    @property
    def num_groups(self) -> int:
        """Number of groups of interchangeable devices."""
        return len(self.count)

    @property
    def has_home(self) -> bool:
        """True if every class has a group; otherwise the problem is infeasible and no bound is needed."""
        return bool(self.allowed.any(axis=1).all())


def machines_of(
    problem: Problem[Throughput],
    # objective of a feasible placement: a class may then not go where it alone takes longer, because no placement at
    # most that good puts it there
    upper_bound_s: float | None = None,
) -> Machines:
    """Return the machines of a throughput problem."""
    objective = problem.objective
    contraction = contract(problem)
    platform = problem.platform
    separate = objective.schedule == "gpipe" and bool(problem.graph.is_backward.any())
    passes: tuple[tuple[int, ...], ...] = ((0,), (1,)) if separate else ((0, 1),)
    groups = contraction.interchangeable
    if objective.teams != "off":
        groups = tuple(tuple(platform.devices_of_kind(kind)) for kind in range(len(platform.kinds)))
    first = [group[0] for group in groups]
    count = np.array([len(group) for group in groups], dtype=np.int64)
    largest_team = {"off": np.ones_like(count), "equal": count, "any": None}[objective.teams]
    kinds = platform.kind_of_device[first]
    limits = platform.memory_limits_bytes[first] * (1 + MEMORY_TOLERANCE)  # the judge's sum is rounded, too
    time_s = np.stack([contraction.time_s[:, kinds][:, :, list(p)].sum(axis=2) for p in passes], axis=2)
    net_time_s = np.stack([contraction.net_time_s[:, kinds][:, :, list(p)].sum(axis=2) for p in passes], axis=2)
    allowed = contraction.allowed[:, first] if objective.teams == "off" else _team_kinds(contraction, first)
    allowed = allowed & (contraction.memory_bytes[:, None] <= limits)
    if upper_bound_s is not None and largest_team is not None:
        allowed &= time_s.sum(axis=2) <= upper_bound_s * (1 + 1e-9) * largest_team
    return Machines(
        contraction,
        groups,
        passes,
        count,
        np.where(allowed[:, :, None], time_s, 0.0),
        net_time_s,
        limits,
        allowed,
        objective.overlap,
        largest_team,
    )


def _team_kinds(contraction: Contraction[Throughput], first: list[int]) -> NDArray[np.bool_]:
    """``[num_classes, num_groups]`` where a class can be on a team with devices of each kind; `first` is one of each.

    With teams of equal devices the team is of the kind of the devices that the class is pinned to.
    """
    supported = contraction.supported[:, first]
    if contraction.problem.objective.teams == "any":
        return supported
    kinds = contraction.problem.platform.kind_of_device
    elsewhere = np.stack([contraction.pins[:, kinds != kinds[d]].any(axis=1) for d in first], axis=1)
    return np.asarray(supported & ~elsewhere)
