r"""Programs for teams of equal devices: every possible team becomes a device of its own.

1. For every size :math:`r \le n`, a kind of :math:`n` devices becomes :math:`\lfloor n / r \rfloor` *spare teams*. A
   spare team is a device with the memory of one member, on which everything takes :math:`1/r` of the time. There are
   about :math:`n \ln n` of them.
2. A placement of this plain problem is a placement with teams if the used spare teams of a kind have at most
   :math:`n` devices together. This is one more row per kind, :math:`\sum_s r_s u_s \le n`, with a binary :math:`u_s`
   for a used team.
3. Ops that are pinned to one member share a team, and a team of r has at most r members with pins. This is one more row
   per spare team, :math:`\sum_c p_c x_{c,s} \le r_s`, with the number :math:`p_c` of pinned members of a class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placekit.model.device_groups import costs_of_teams
from placekit.model.placement import Placement, Violation
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solve.lifting.lift import Lift, LiftedRun
from placekit.solve.method import Run


@dataclass(frozen=True, eq=False)
class TeamRows:
    """Rows that a program of spare teams adds to the plain program."""

    takes: NDArray[np.int64]  # ``[num_kinds, num_spare]`` number of devices of each kind that a used spare team takes
    most: NDArray[np.int64]  # ``[num_kinds]`` number of devices
    seats: NDArray[np.int64]  # ``[num_classes]`` number of members that the ops of a class are pinned to


NO_ROWS = TeamRows(np.zeros((0, 0), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
"""Rows of a problem without teams."""


@dataclass(frozen=True, eq=False)
class SpareTeams:
    """Plain problem of all spare teams."""

    teamed: Problem[Throughput]  # the problem with teams
    problem: Problem[Throughput]  # the plain problem
    # kind, size: ``[num_spare]`` kind of `teamed`, and number of devices, of every spare team
    kind: NDArray[np.int64]
    size: NDArray[np.int64]

    @classmethod
    def of(cls, problem: Problem[Throughput]) -> SpareTeams:
        """Return the spare teams of a problem with teams of equal devices."""
        platform = problem.platform
        counts = np.bincount(platform.kind_of_device).tolist()
        types = [(kind, size) for kind, count in enumerate(counts) for size in range(1, count + 1)]
        spare = [
            (at, copy) for at, (kind, size) in enumerate(types) for copy in range(counts[kind] // size)
        ]  # fmt: skip
        first = [platform.devices[platform.devices_of_kind(kind)[0]] for kind, _ in types]
        costs = costs_of_teams(problem.costs, types)
        devices = tuple(
            first[at].replace(name=f"{costs.kinds[at]} ({copy})", kind=costs.kinds[at]) for at, copy in spare
        )
        columns, sizes = np.array(types).T
        supported = costs.supported.copy()
        pinned = problem.pinned
        together = []
        for device in np.unique(pinned[pinned >= 0]).tolist():
            ops = np.flatnonzero(pinned == device)
            supported[ops] &= columns == platform.kind_of_device[device]
            together.append([problem.graph.op_names[op] for op in ops.tolist()])
        plain = problem.colocate(*together).replace(
            platform=Platform(devices),
            costs=costs.replace(supported=supported),
            objective=replace(problem.objective, teams="off"),
            pinned=None,
        )
        at = [at for at, _ in spare]
        return cls(problem, plain, columns[at], sizes[at])

    def rows(self, class_of_op: NDArray[np.int64]) -> TeamRows:
        """Return the rows that a program adds to the plain problem; `class_of_op` has the class of every op."""
        counts, pinned = np.bincount(self.teamed.platform.kind_of_device), self.teamed.pinned
        takes = np.where(self.kind == np.arange(len(counts))[:, None], self.size, 0)
        chosen = np.unique(np.stack([class_of_op, pinned])[:, pinned >= 0], axis=1)
        return TeamRows(takes, counts, np.bincount(chosen[0], minlength=int(class_of_op.max(initial=-1)) + 1))

    def lift(self, placement: Placement) -> Placement | Violation:
        """Return a placement of `problem` as one of `teamed`; a violation if its teams need too many devices."""
        platform, pinned = self.teamed.platform, self.teamed.pinned
        wanted = set(pinned[pinned >= 0].tolist())
        free = [
            [each for each in platform.devices_of_kind(kind) if each not in wanted]
            for kind in range(len(platform.kinds))
        ]
        team, first = np.arange(platform.num_devices), np.zeros(len(self.kind), dtype=np.int64)
        for spare in np.unique(placement.device_of_op).tolist():
            members = np.unique(pinned[(placement.device_of_op == spare) & (pinned >= 0)]).tolist()
            have, take = free[self.kind[spare]], int(self.size[spare]) - len(members)
            if not 0 <= take <= len(have):
                return Violation("team", "the teams have more devices than there are")
            members, have[:take] = sorted(members + have[:take]), []
            first[spare] = team[members] = members[0]
        return Placement.of(self.teamed, first[placement.device_of_op], None, team)

    def encode(self, placement: Placement) -> Placement | None:
        """Return a placement of `teamed` as one of `problem`; None if a team is of unequal devices."""
        kinds = self.teamed.platform.kind_of_device
        spare_of = np.zeros(len(kinds), dtype=np.int64)
        used: set[int] = set()
        for members in placement.teams:
            alike = (self.kind == kinds[members[0]]) & (self.size == len(members))
            if (kinds[list(members)] != kinds[members[0]]).any():
                return None
            spare_of[members[0]] = next(int(s) for s in np.flatnonzero(alike) if int(s) not in used)
            used.add(int(spare_of[members[0]]))
        return Placement.of(self.problem, spare_of[placement.device_of_op])


class SpareRun(LiftedRun):
    """Run on the plain problem of spare teams that passes placements and bounds to the run of the teamed problem."""

    def __init__(self, outer: Run[Throughput]) -> None:
        self.spare = SpareTeams.of(outer.problem)
        lift = Lift(
            self.spare.problem, self.spare.lift, self.spare.encode, is_bound=True, certifies=False, is_exact=True
        )
        super().__init__(outer, lift)


def rows_of(run: Run, class_of_op: NDArray[np.int64]) -> TeamRows:
    """Return the rows that a program of `run` needs: none without spare teams."""
    return run.spare.rows(class_of_op) if isinstance(run, SpareRun) else NO_ROWS


def no_program(problem: Problem[Throughput]) -> str | None:
    """Return why teams cannot be programmed; None if they can, or if the problem has no teams."""
    rule = problem.objective.teams
    return "the load of a team of unequal devices is not linear; use dp, or teams 'equal'" if rule == "any" else None
