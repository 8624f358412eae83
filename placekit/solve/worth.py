"""Worth of each device: the objective of the best placement found without the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.model.problem import UNPINNED, Problem


@dataclass(frozen=True, slots=True)
class Worth:
    """Worth of one device."""

    device: str  # name of the device
    objective_s: float | None  # best objective found without the device, in seconds; None if none was found
    bound_s: float | None  # proven bound without the device; None without one
    factor: float | None  # speedup by the device: the objective without the device over the objective with it
    is_proven: bool  # True if no placement without the device is better than `objective_s`, or if there is none at all
    is_needed: bool = False  # True if it is proven that nothing is feasible without the device
    is_used: bool = True  # True if an op of the placement is on the device
    why_not: str | None = None  # why nothing was solved; None if something was


def worth_candidates(problem: Problem, placement: Placement) -> Iterator[tuple[int, bool]]:
    """Yield one device of every kind, and whether the placement uses it. Unused devices are preferred.

    Devices of one kind are equal, so one device stands for its kind.
    """
    used_teams = set(placement.device_of_op.tolist())
    used = {device for team in placement.teams if team[0] in used_teams for device in team}
    for kind in range(len(problem.platform.kinds)):
        equal = problem.platform.devices_of_kind(kind)
        idle = [device for device in equal if device not in used]
        yield (idle[-1], False) if idle else (equal[-1], True)


def without_device(problem: Problem, device: int) -> Problem | str:
    """Return the problem without a device, or why there is none."""
    platform = problem.platform
    if platform.num_devices == 1:
        return "it is the only device"
    if (problem.pinned == device).any():
        return "ops are pinned to it"
    pinned = np.where(problem.pinned > device, problem.pinned - 1, problem.pinned)
    try:
        smaller = platform.with_devices(each for d, each in enumerate(platform.devices) if d != device)
        return problem.replace(platform=smaller, pinned=pinned if (pinned != UNPINNED).any() else None)
    except PlacekitError as error:
        return str(error)
