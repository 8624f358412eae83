"""Ways of running a model without a split, scored by the judge, as baselines of a placement.

1. *device*: everything on one device, but for ops that are pinned elsewhere. Devices of one kind are equal but for pins
   and nodes; the best of each kind is told.
2. *all cores*: everything on one device made of all cores of the machine, where its costs are known.
3. *copies*: the whole model on several devices that take samples in turn (throughput only): all devices of one kind,
   and all devices that can hold the model.

`time` adds what the runtime does by itself (*runtime*), with measured seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from placekit.model.device_groups import team_name
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import UNPINNED
from placekit.objectives.evaluate import Evaluation, evaluate
from placekit.solve.split_verdict import Alternative, Form

if TYPE_CHECKING:
    from placekit.model.problem import Problem

ALL_CORES = "all cores"
"""Name of the device that is made of all cores of a machine."""

WITH_PINNED = " with pinned ops elsewhere"
"""End of the name of a device that has all ops but those that are pinned to others."""


def form_of(placement: Placement) -> Form:
    """Return the form of a placement: one device, a copy on each of several, or a split."""
    used = set(placement.device_of_op.tolist())
    if len(used) > 1:
        return "split"
    members = next(team for team in placement.teams if team[0] in used)
    return "device" if len(members) == 1 else "copies"


def alternatives_of(problem: Problem, whole: Problem | None = None) -> tuple[Alternative, ...]:
    """Return every way of running a model without a split, scored by `evaluate`. O(unlike devices) evaluations.

    The problem `whole` is of the same model on one device of all cores of the machine; None where its costs are not
    known.
    """
    singles = tuple(_singles(problem))
    found = [*singles]
    if whole is not None:
        everything = Placement.of(whole, np.zeros(whole.graph.num_ops, dtype=np.int64))
        judged = _judged(ALL_CORES, "all cores", evaluate(whole, everything), None)
        found.append(replace(judged, error=whole.costs.error))
    return (*found, *_copies(problem, singles))


def _singles(problem: Problem) -> Iterator[Alternative]:
    """Yield the model on the best device of each kind; one that ops are pinned to comes first if none is better."""
    platform, pinned = problem.platform, problem.pinned
    for kind in range(len(platform.kinds)):
        unlike = sorted(
            {*problem.twin_of_device[platform.devices_of_kind(kind)].tolist()}, key=lambda d: d not in pinned
        )
        found = []
        for device in unlike:
            device_of_op = np.where(pinned == UNPINNED, device, pinned)
            placement = Placement.of(problem, device_of_op)
            name = platform.device_names[device] + WITH_PINNED * bool((device_of_op != device).any())
            found.append(_judged(name, "device", evaluate(problem, placement), placement))
        yield min(found, key=lambda each: math.inf if each.objective_s is None else each.objective_s)


def _judged(name: str, form: Form, judged: Evaluation, placement: Placement | None) -> Alternative:
    if judged.is_feasible:
        return Alternative(name, form, judged.objective, None, placement)
    return Alternative(name, form, None, str(judged.violations[0]), placement, judged.violations)


def _copies(problem: Problem, singles: tuple[Alternative, ...]) -> Iterator[Alternative]:
    """Yield the copies on all devices of one kind, and on all devices that hold the model.

    A device can hold the model if the single device of its kind in `singles` supports all ops and has the memory. A
    training graph without teams has no copies, since the cost of exchanging gradients is not known.
    """
    objective, platform = problem.objective, problem.platform
    if "teams" not in objective.to_dict():
        return
    if objective.team_rule == "off" and problem.graph.is_backward.any():
        return
    of_kind = [tuple(platform.devices_of_kind(kind)) for kind in range(len(platform.kinds))]
    holding = [equal for equal, single in zip(of_kind, singles, strict=True) if _holds(single)]
    teams = [equal for equal in of_kind if len(equal) > 1]
    if len(holding) > 1:
        teams.append(tuple(sorted(device for equal in holding for device in equal)))
    for members in teams:
        rule: Literal["equal", "any"] = "any" if len({platform.devices[d].kind for d in members}) > 1 else "equal"
        if objective.team_rule not in (rule, "any"):
            if (problem.pinned != UNPINNED).any():
                continue  # a copy would put pinned ops on other devices, too, and nobody asked for teams
            try:
                scored = problem.replace(
                    objective=replace(objective, teams=rule), platform=platform.replace(direct_links=())
                )
            except InvalidProblemError:  # names or nodes of devices, or a schedule, that know no teams
                continue
        else:
            scored = problem
        team = np.arange(platform.num_devices)
        team[list(members)] = members[0]
        placement = Placement.of(scored, np.full(problem.graph.num_ops, members[0]), None, team)
        yield _judged(
            team_name(platform.device_names[d] for d in members), "copies", evaluate(scored, placement), placement
        )


def _holds(single: Alternative) -> bool:
    return not any(each.constraint in ("support", "memory") for each in single.violations)
