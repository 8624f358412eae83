"""Partitions of the devices into teams, without those that differ only by the names of equal devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solvers.generic.coarsen import Contraction, contract

Crew = tuple[int, ...]
"""How many devices of each group of equals form one team, ``[num_groups]``."""


def equal_devices(contraction: Contraction[Throughput]) -> tuple[tuple[int, ...], ...]:
    """Return the devices in groups of equals: of one kind, with pins of the same classes of ops."""
    groups: dict[tuple[int, bytes], list[int]] = {}
    for device, kind in enumerate(contraction.problem.platform.kind_of_device.tolist()):
        groups.setdefault((kind, contraction.pins[:, device].tobytes()), []).append(device)
    return tuple(map(tuple, groups.values()))


def crews(counts: Sequence[int], kinds: Sequence[int], rule: str) -> list[Crew]:
    """Return every team that a rule (:mod:`placekit.model.device_groups`) allows, by the devices of each group in it.

    Parameters
    ----------
    counts, kinds
        ``[num_groups]`` number of devices, and kind, of every group of equals.
    """
    if rule == "off":
        return [tuple(int(h == g) for h in range(len(counts))) for g in range(len(counts))]
    found: set[Crew] = set()
    for kind in dict.fromkeys(kinds) if rule == "equal" else (None,):
        most = [count if kind in (None, own) else 0 for count, own in zip(counts, kinds, strict=True)]
        found |= set(itertools.product(*(range(count + 1) for count in most)))
    return sorted((crew for crew in found if any(crew)), key=lambda crew: (sum(crew), crew))


def partitions(problem: Problem[Throughput]) -> Iterator[NDArray[np.int64]]:
    """Yield ``[num_devices]`` first members of the teams of every partition of the devices that the objective allows.

    Partitions that differ by a renaming of equal devices come once. All are teams of one first, the largest teams last.
    """
    groups = equal_devices(contract(problem))
    counts = [len(group) for group in groups]
    kinds = [int(problem.platform.kind_of_device[group[0]]) for group in groups]
    every = crews(counts, kinds, problem.objective.team_rule)

    def divide(left: tuple[int, ...], first: int) -> Iterator[list[Crew]]:
        if not any(left):
            yield []
            return
        for at in range(first, len(every)):
            rest = tuple(have - take for have, take in zip(left, every[at], strict=True))
            if min(rest) >= 0:
                for others in divide(rest, at):
                    yield [every[at], *others]

    for parts in divide(tuple(counts), 0):
        yield _assigned(groups, parts)


def _assigned(groups: Sequence[Sequence[int]], parts: Sequence[Crew]) -> NDArray[np.int64]:
    free = [list(group) for group in groups]
    team = np.zeros(sum(map(len, groups)), dtype=np.int64)
    for crew in parts:
        members = [free[g].pop(0) for g, take in enumerate(crew) for _ in range(take)]
        team[members] = min(members)
    return team
