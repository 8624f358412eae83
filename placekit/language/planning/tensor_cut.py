"""The best cut of devices into tensor-parallel teams of several degrees, each stage with a degree of its own.

1. Claim: one dynamic program over runs of blocks, whose stages take any number of devices that a team of a degree (or
   several teams that share the requests) may have, finds the best plan of all cuts.
2. Reason: what a stage takes depends on its kind of devices, its degree, its replicas and its blocks only; teams of the
   devices that stages take are a cut, and every plan of every cut is such a row of stages.
3. Conclusion: the problem of the cut found has an optimum that no other cut beats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placekit.language.task import LanguageTask
from placekit.language.tensor_parallel import Teams
from placekit.model.platform import Platform
from placekit.objectives import SerialLatency
from placekit.solvers.chain.costs import chain_of, device_costs
from placekit.solvers.chain.dynamic_program import StageSort, best_chain
from placekit.solvers.chain.method import MAX_WORK, Chain


def all_teams(platform: Platform, degrees: Sequence[int]) -> list[tuple[int, ...]]:
    """Return a team of every degree for every kind: the menu of `best_teams`. A host is a team of one only.

    Examples
    --------
    >>> all_teams(Platform.of(cpu=1, l4=3, host="cpu"), [1, 2, 4])
    [(0,), (1,), (1, 2)]
    """
    teams = []
    for kind in range(len(platform.kinds)):
        members = platform.devices_of_kind(kind)
        sizes = [1] if platform.devices[members[0]].is_host else degrees
        teams += [tuple(members[:size]) for size in sizes if size <= len(members)]
    return teams


def best_teams(menu: LanguageTask, platform: Platform, degrees: Sequence[int]) -> Teams | None:
    """Return the cut of a platform that has the best plan; None if `Chain` cannot plan such a problem.

    The devices of the task `menu` are `all_teams`.
    """
    chain = chain_of(menu.problem)
    if chain is None or Chain().supports(menu.problem) is not None:
        return None
    sizes = [len(platform.devices_of_kind(kind)) for kind in range(len(platform.kinds))]
    work = np.prod(np.array(sizes) + 1.0) * sum(sizes) * len(degrees) * (chain.num_blocks + 1) ** 2
    if work > MAX_WORK:
        return None
    has_replicas = menu.problem.objective.team_rule == "equal"
    sorts, degree_of = [], []
    devices = menu.problem.platform.devices
    for device, cost in zip(devices, device_costs(menu.problem, chain, range(len(devices))), strict=True):
        kind = platform.kinds.index(platform.devices[platform.index(device.member_names[0])].kind)
        for replicas in range(1, sizes[kind] // device.degree + 1 if has_replicas else 2):
            sorts.append(StageSort(kind, replicas * device.degree, cost / replicas))
            degree_of.append(device.degree)
    is_sum = isinstance(menu.problem.objective, SerialLatency)
    found = best_chain(sorts, sizes, chain.num_blocks, is_sum=is_sum)
    free = [platform.devices_of_kind(kind) for kind in range(len(platform.kinds))]
    teams: list[tuple[int, ...]] = []
    for stage in () if found is None else found[1]:
        sort, degree = sorts[stage.sort], degree_of[stage.sort]
        for _ in range(sort.devices // degree):
            members, free[sort.group] = free[sort.group][:degree], free[sort.group][degree:]
            teams.append(tuple(members))
    for left in free:  # what is left over is in teams of the smallest degree
        size = 1 if left and platform.devices[left[0]].is_host else min(degrees)
        teams += [tuple(left[at : at + size]) for at in range(0, len(left) - size + 1, size)]
    return sorted(teams)
