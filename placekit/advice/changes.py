"""Changes of a problem, and what a short search finds for each.

A problem without each of its constraints, with more memory, or with one more device of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from placekit.advice.alternatives import alternatives_of
from placekit.advice.rules import rules_of
from placekit.model.contiguity import Contiguity
from placekit.model.errors import UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.solve.result import SOLVER_TOLERANCE, Result
from placekit.solve.solve import solve
from placekit.solve.stop import MaxRuntime

GIB = 2**30
METHODS = ("auto", "greedy")
"""Methods for the what-if problems; the first that supports a problem solves it."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Answer to a changed problem."""

    change: str  # description of the change
    constraint: str | None  # constraint that was dropped; None for more memory or devices, and for no change
    objective_s: float | None  # the best objective found; None if no method supports the problem
    bound_s: float | None  # the best bound proven: no placement of the changed problem is better
    # method, time_s: method that solved the problem, and its seconds
    method: str | None
    time_s: float
    rules: str = ""  # rules that objective and bound hold under, in words
    # copies, copies_s: copies of the whole model that these rules do not allow and that are better, and their objective
    copies: str | None = None
    copies_s: float | None = None


def gain_s(now_s: float, then_s: float | None) -> float:
    """Return the seconds that are gained, if they are more than the tolerance of a solver; else 0."""
    return now_s - then_s if then_s is not None and now_s - then_s > SOLVER_TOLERANCE * now_s else 0.0


def changes(problem: Problem) -> Iterator[tuple[str, str | None, Problem]]:
    """Yield the changed problems: first without each constraint that there is, then with more of something."""
    platform = problem.platform
    if any(device.memory_bytes is not None for device in platform.devices):
        unlimited = tuple(device.replace(memory_bytes=None) for device in platform.devices)
        yield "without memory limits", "memory", problem.replace(platform=platform.replace(devices=unlimited, pools=()))
    if problem.contiguity is not Contiguity.NONE:
        what = f"without contiguity ({problem.contiguity})"
        yield what, "contiguity", problem.replace(contiguity=Contiguity.NONE)
    if (problem.pinned != UNPINNED).any():
        yield "without pins", "pins", problem.replace(pinned=None)
    if len(np.unique(problem.colocation)) < problem.graph.num_ops:
        yield "without colocation", "colocation", problem.replace(colocation=None)
    for kind in platform.kinds:
        limit = next(device.memory_bytes for device in platform.devices if device.kind == kind)
        if limit is not None:
            more = tuple(d.replace(memory_bytes=limit + GIB) if d.kind == kind else d for d in platform.devices)
            names = {d.name for d in more if d.kind == kind}
            pools = tuple(
                replace(pool, memory_bytes=pool.memory_bytes + GIB) if names.intersection(pool.devices) else pool
                for pool in platform.pools
            )
            larger = platform.replace(devices=more, pools=pools)
            yield f"one GiB more on every {kind}", None, problem.replace(platform=larger)
    for kind in platform.kinds:
        yield f"one {kind} more", None, problem.replace(platform=_with_one_more(platform, kind))


def _with_one_more(platform: Platform, kind: str) -> Platform:
    """Return the platform with a twin of the last device of a kind behind all others, so that indices stay."""
    twin = next(device for device in reversed(platform.devices) if device.kind == kind)
    number = 1
    while f"{twin.name}#{number}" in platform.device_names:
        number += 1
    name = f"{twin.name}#{number}"
    pools = tuple(
        replace(pool, devices=(*pool.devices, name)) if twin.name in pool.devices else pool for pool in platform.pools
    )
    return platform.replace(devices=(*platform.devices, twin.replace(name=name)), pools=pools)


def carried(placement: Placement, problem: Problem) -> Placement:
    """Return the placement on a platform that has the same devices first."""
    teams = placement.team_of_device
    if teams is not None:
        teams = np.append(teams, np.arange(len(teams), problem.platform.num_devices))
    return Placement.of(problem, placement.device_of_op, placement.step_of_op, teams)


def what_if(
    problem: Problem, start: Placement, what: str, constraint: str | None, time_limit_s: float
) -> tuple[WhatIf, Placement | None]:
    """Return the answer to a problem, and its placement.

    The verdict on the problem would look at copies, too, that its rules do not allow; so does the answer.
    """
    result = short_search(problem, time_limit_s, start)
    if result is None:
        return WhatIf(what, constraint, None, None, None, 0.0), None
    found_s = result.objective
    copies = [
        (each.objective_s, each.name)
        for each in alternatives_of(problem)
        if each.form == "copies" and each.objective_s is not None
        if found_s is None or gain_s(found_s, each.objective_s) > 0
    ]
    copies_s, name = min(copies, default=(None, None))
    told = WhatIf(
        what,
        constraint,
        found_s,
        result.lower_bound,
        result.method,
        result.runtime_s,
        rules_of(problem),
        name,
        copies_s,
    )
    return told, result.placement


def short_search(problem: Problem, time_limit_s: float, start: Placement | None = None) -> Result | None:
    """Return the result of the first of `METHODS` that supports a problem; None if none does."""
    for method in METHODS:
        try:
            return solve(problem, method, stop=MaxRuntime(time_limit_s), warm_start=start)
        except UnsupportedProblemError:
            continue
    return None
