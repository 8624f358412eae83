"""Worth of each device: the objective of the best placement found without the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placekit.advice.changes import short_search
from placekit.advice.rules import rules_of
from placekit.model.errors import PlacekitError
from placekit.model.placement import Placement
from placekit.model.problem import UNPINNED, Problem
from placekit.solve.result import SOLVER_TOLERANCE, Status
from placekit.solve.stop import relative_gap


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
    rules: str = ""  # rules that the proof holds under, in words


def worth_candidates(problem: Problem, placement: Placement) -> Iterator[tuple[int, bool]]:
    """Yield one of every set of interchangeable devices, unused if possible, and whether the placement uses it."""
    used_teams = set(placement.device_of_op.tolist())
    used = {device for team in placement.teams if team[0] in used_teams for device in team}
    for twin in np.unique(problem.twin_of_device).tolist():
        equal = np.flatnonzero(problem.twin_of_device == twin).tolist()
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


def worth(problem: Problem, device: int, is_used: bool, now: tuple[float, float | None], time_limit_s: float) -> Worth:
    """Return the worth of a device beside the objective and the bound with it.

    A device that the placement does not use needs no solve.
    """
    name, (now_s, bound_s) = problem.platform.device_names[device], now
    if not is_used:
        gap = relative_gap(now_s, bound_s)
        is_proven = gap is not None and gap <= SOLVER_TOLERANCE
        return Worth(name, now_s, bound_s, 1.0, is_proven=is_proven, is_used=False, rules=rules_of(problem))
    changed = without_device(problem, device)
    if isinstance(changed, str):
        return Worth(name, None, None, None, is_proven=False, why_not=changed)
    result = short_search(changed, time_limit_s)
    if result is None:
        return Worth(name, None, None, None, is_proven=False, why_not="no method supports the problem without it")
    found, is_proven = result.objective, result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    factor = found / now_s if found is not None and now_s > 0 else None
    return Worth(
        name, found, result.lower_bound, factor,
        is_proven=is_proven, is_needed=result.status is Status.INFEASIBLE, rules=rules_of(changed),
    )  # fmt: skip
