r"""Problems whose teams are fixed: plain problems on a platform whose devices are the teams.

A team of equal devices is like a faster one (:mod:`placekit.model.device_groups`). So what a method does with single
devices it can do with any partition into teams of equals; which partitions are worth it is asked of `promising`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placekit.model.device_groups import costs_of_teams, team_name, teams_of
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import Throughput
from placekit.solve.lifting.lift import Lift, LiftedRun, left_s
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.teams.partitions import partitions

Worker = TypeVar("Worker", bound=Method)


def team_problem(
    problem: Problem[Throughput],  # a problem with teams
    # ``[num_devices]`` first member of the team of every device; members are of one kind
    team_of_device: NDArray[np.int64],
) -> Problem[Throughput]:
    """Return the problem with fixed teams of equal devices as one with single devices."""
    platform = problem.platform
    teams = teams_of(team_of_device)
    types = [(int(platform.kind_of_device[members[0]]), len(members)) for members in teams]
    sizes = list(dict.fromkeys(types))
    costs = costs_of_teams(problem.costs, sizes)
    kinds = dict(zip(sizes, costs.kinds, strict=True))
    names = [team_name(platform.device_names[d] for d in members) for members in teams]
    devices = tuple(
        platform.devices[members[0]].replace(name=name, kind=kinds[each])
        for name, members, each in zip(names, teams, types, strict=True)
    )
    place = {d: at for at, members in enumerate(teams) for d in members}
    pinned = [UNPINNED if d == UNPINNED else place[d] for d in problem.pinned.tolist()]
    return problem.replace(
        platform=Platform(devices),
        costs=costs,
        objective=replace(problem.objective, teams="off"),
        pinned=np.array(pinned),
    )


def promising(run: Run[Throughput]) -> Iterator[NDArray[np.int64]]:
    """Yield partitions into teams of equals: that of the best placement, single devices, and teams of 2, 4, 8, ..."""
    platform = run.problem.platform
    kinds = platform.kind_of_device
    seen: set[bytes] = set()
    found = [np.arange(platform.num_devices)]
    if run.placement is not None and run.placement.team_of_device is not None:
        teams = run.placement.team_of_device
        found += [teams] if (kinds[teams] == kinds).all() else []
    size, largest = 2, int(np.bincount(kinds).max())
    while size < 2 * largest:
        team = np.arange(platform.num_devices)
        for kind in range(len(platform.kinds)):
            members = np.array(platform.devices_of_kind(kind))
            team[members] = members[np.arange(len(members)) // size * size]
        found.append(team)
        size *= 2
    for team in found[1:] + found[:1]:
        if team.tobytes() not in seen:
            seen.add(team.tobytes())
            yield team


def on_partitions(work: Callable[[Worker, Run], StopReason]) -> Callable[[Worker, Run], StopReason]:
    """Let the `run` of a method that knows single devices work on promising partitions into teams, if there are teams.

    What it proves of them does not count. Each partition has its share of the time left; what they leave under a time
    limit, where nothing better is possible with their teams, goes to the other partitions into teams of equals.
    """

    @wraps(work)
    def run_on_partitions(method: Worker, run: Run) -> StopReason:
        if run.problem.objective.team_rule == "off":
            return work(method, run)
        todo = list(promising(run))
        for at, teams in enumerate(todo):
            reason = run.should_stop()
            if reason is not None and run.evaluations:
                return reason
            work(method, LiftedRun(run, with_fixed_teams(run.problem, teams), left_s(run) / (len(todo) - at)))
        for teams in _others(run.problem, todo) if run.remaining_s is not None else ():
            if (reason := run.should_stop()) is not None:
                return reason
            work(method, LiftedRun(run, with_fixed_teams(run.problem, teams)))
        return run.should_stop() or StopReason.FINISHED

    return run_on_partitions


def _others(problem: Problem[Throughput], known: list[NDArray[np.int64]]) -> Iterator[NDArray[np.int64]]:
    """Yield the other partitions into teams of equals, up to a renaming of equal devices."""
    kinds, seen = problem.platform.kind_of_device, {teams.tobytes() for teams in known}
    for teams in partitions(problem):
        if teams.tobytes() not in seen and (kinds[teams] == kinds).all():
            yield teams


def with_fixed_teams(problem: Problem[Throughput], teams: NDArray[np.int64]) -> Lift:
    """Return the problem with fixed teams, whose placements are some of `problem`."""
    plain, place = team_problem(problem, teams), np.zeros(problem.platform.num_devices, dtype=np.int64)
    first = np.unique(teams)
    place[first] = np.arange(len(first))

    def down(placement: Placement) -> Placement | None:
        if placement.teams != teams_of(teams):
            return None
        return Placement.of(plain, place[placement.device_of_op])

    return Lift(plain, lambda placement: Placement.of(problem, first[placement.device_of_op], None, teams), down)
