r"""Steady-state pipeline throughput: the largest device load.

Samples stream through the devices; in the steady state a new one finishes every :math:`\max_d load(d)` seconds.
For a device :math:`d` of kind :math:`k` that holds the ops :math:`S`,

.. math:: load(d) = \sum_{v \in S} t_{v,k} + \sum_{u \in \partial S} c_{u,k}

where :math:`\partial S` are the tensors with one end in :math:`S` and one outside, each counted once however many
edges carry it. A device pays what the costs give its kind: zero for a CPU in host memory, but a host whose kind has
transfer times pays them. With `overlap` the sum of the two terms becomes their maximum.

In a training graph a tensor belongs to the pass of the op that produces it. Under the 1F1B schedule of PipeDream a
device does both passes for every sample: :math:`\max_d load(d)` with all ops and tensors in one load, so that `overlap`
takes the larger of all compute and all transfers. Under GPipe all forward passes come first, and the passes have loads
of their own: :math:`\max_d fw(d) + \max_d bw(d)`, each with its own maximum under `overlap`.

Over a direct link (:class:`placekit.model.platform.DirectLink`) a tensor goes once to every device that needs it: its
time is part of the load of that receiver and of the sender, in place of :math:`c` for these two. A sender with
receivers of both sorts pays :math:`c_{u,k}` once and every direct transfer.

With `teams` devices may form teams: every member holds the same ops :math:`S` (memory counts on each), and every sample
of theirs is one member's, forward and backward. Members take samples in proportion to their speed, so with
:math:`l_i(S)` the load of member :math:`i` alone

.. math:: load(team) = \frac{1}{\sum_i 1 / l_i(S)},

:math:`l(S) / r` for :math:`r` equal devices: the limit of a long stream. A tensor that crosses between two teams is
paid by the members that handle the sample, as compute is; contiguity is that of the quotient over teams. The team of
all devices is what a runtime does that hands whole samples to the next free device, so no optimum is slower than that.

References
----------
Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms for Device Placement of DNN Graph
Operators", NeurIPS 2020, arXiv 2006.16423, sections 3 and 5.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.model.contiguity import Contiguity
from placekit.model.device_groups import TEAM_RULES
from placekit.model.errors import InvalidProblemError
from placekit.objectives.base import (
    BatchScore,
    Loads,
    Objective,
    Score,
    class_times_s,
    device_transfers,
    fastest_class_s,
    moved_tensors,
)

if TYPE_CHECKING:
    from placekit.model.platform import Platform
    from placekit.model.problem import Problem

_SCHEDULES = ("1f1b", "gpipe")


@dataclass(frozen=True, slots=True)
class Throughput(Objective):
    """Minimise the largest device load, the time per sample of a steady pipeline.

    Parameters
    ----------
    overlap
        True if a device computes and transfers at the same time: its load is the larger of the two, not their sum.
    schedule
        Training schedule: ``"1f1b"`` (PipeDream, max of forward + backward) or ``"gpipe"`` (max forward + max
        backward). Without backward ops the two agree.
    teams
        Which devices may form a team that holds the same ops and shares the samples: ``"off"`` none, ``"equal"``
        devices of one kind, ``"any"`` all.

    Raises
    ------
    InvalidProblemError
        A schedule or a rule of teams that does not exist, or ``"any"`` with GPipe: how members of different speed share
        the samples then depends on which pass is to be fast.
    """

    name: ClassVar[str] = "throughput"
    summary: ClassVar[str] = "time per sample of a steady pipeline: the largest device load"

    merges_free_leaves: ClassVar[bool] = True
    has_pipeline: ClassVar[bool] = True
    direct_ends: ClassVar[int] = 2

    overlap: bool = False
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    teams: Literal["off", "equal", "any"] = "off"

    def __post_init__(self) -> None:
        if self.schedule not in _SCHEDULES:
            raise InvalidProblemError(f"throughput: schedule is {self.schedule!r}; it must be one of {_SCHEDULES}")
        if self.teams not in TEAM_RULES:
            raise InvalidProblemError(f"throughput: teams is {self.teams!r}; it must be one of {TEAM_RULES}")
        if self.teams == "any" and self.schedule == "gpipe":
            raise InvalidProblemError("throughput: teams 'any' has no schedule 'gpipe'; teams 'equal' has")

    @property
    def team_rule(self) -> str:
        """`teams`."""
        return self.teams

    @property
    def rules(self) -> tuple[str, ...]:
        """The rule of teams, unless any devices may be one."""
        return () if self.teams == "any" else (f"teams {self.teams}",)

    def identity(self) -> dict[str, Any]:
        """Return the variant; without teams it is what it was before there were any."""
        return {name: value for name, value in self.to_dict().items() if (name, value) != ("teams", "off")}

    @property
    def default_contiguity(self) -> Contiguity:
        """`Contiguity.ACYCLIC`: what a runnable pipeline needs."""
        return Contiguity.ACYCLIC

    def score(
        self,
        problem: Problem,
        device_of_op: NDArray[np.int64],
        step_of_op: NDArray[np.int64] | None = None,  # noqa: ARG002  # the model has no clock
    ) -> Score:
        """Score a placement; see the module docstring for the formula. O(ops + edges log edges)."""
        graph, platform = problem.graph, problem.platform
        times = problem.costs.op_time_s[np.arange(graph.num_ops), platform.kind_of_device[device_of_op]]
        work, moved = [], []
        for included in self._passes(problem):
            work.append(sum_by(device_of_op, times * included, platform.num_devices))
            moved.append(device_transfers(problem, device_of_op, included[graph.tensor_producer]))
        return self._combined(np.array(work), np.array(moved))

    def team_score(self, problem: Problem, device_of_op: NDArray[np.int64], team_of_device: NDArray[np.int64]) -> Score:
        """Score a placement with teams; loads of a member are those of its share of the samples.

        O(kinds * (ops + edges log edges)).
        """
        graph, platform, costs = problem.graph, problem.platform, problem.costs
        passes = self._passes(problem)
        work, moved = np.zeros((2, len(passes), platform.num_devices))
        for p, included in enumerate(passes):
            tensor, team = moved_tensors(problem, device_of_op, included[graph.tensor_producer])
            for k in range(len(platform.kinds)):
                mine = platform.kind_of_device == k
                of_team = sum_by(device_of_op, costs.op_time_s[:, k] * included, platform.num_devices)
                work[p, mine] = of_team[team_of_device[mine]]
                of_team = sum_by(team, costs.transfer_time_s[tensor, k], platform.num_devices)
                moved[p, mine] = of_team[team_of_device[mine]]
        alone = (np.maximum(work, moved) if self.overlap else work + moved).sum(axis=0)
        samples = samples_per_turn(alone, team_of_device)
        score = self._combined(work / samples, moved / samples)
        return replace(score, share=1 / samples)

    def _passes(self, problem: Problem) -> list[NDArray[np.bool_]]:
        """``[num_passes][num_ops]`` the ops of every pass that has a load of its own."""
        backward = problem.graph.is_backward
        if self.schedule == "gpipe" and backward.any():
            return [~backward, backward]
        return [np.ones(len(backward), dtype=bool)]

    def _combined(self, work: NDArray[np.float64], moved: NDArray[np.float64]) -> Score:
        """Return the score of loads ``[num_passes, num_devices]``."""
        load = np.maximum(work, moved) if self.overlap else work + moved
        objective = sum(load.max(axis=1).tolist())
        return Score(objective, work.sum(axis=0), moved.sum(axis=0), load.sum(axis=0))

    def constants_s(self) -> tuple[float, ...] | None:
        """Return nothing: only times are added up; None with teams, which divide them."""
        return () if self.teams == "off" else None

    def quick_bound(self, problem: Problem) -> tuple[float, str] | None:
        """Bound by the largest class: the load of its device contains it, under GPipe and with overlap too.

        With teams, the largest team that there can be has a share of it on every member.
        """
        most = largest_teams(problem)
        if self.teams != "any":
            fastest = fastest_class_s(problem, most)
        else:
            with np.errstate(divide="ignore"):  # what takes no time
                rate = (most / class_times_s(problem)).sum(axis=1)
            fastest = 1 / rate[rate > 0]
        return float(fastest.max(initial=0.0)) * (1 - 1e-12), "largest op"  # one rounding per addition

    def busy_devices(self, platform: Platform) -> NDArray[np.bool_]:
        """Return True for every device: each runs one op at a time."""
        return np.ones(platform.num_devices, dtype=np.bool_)

    def batch_score(self, problem: Problem) -> BatchScore:
        """Return the compiled form for batches."""
        from placekit.objectives.batch import ThroughputBatch

        return ThroughputBatch(problem, self.schedule == "gpipe", self.overlap)

    def loads(self, problem: Problem) -> Loads:
        """Return that the largest load counts, under GPipe that of every pass."""
        has_passes = self.schedule == "gpipe" and bool(problem.graph.is_backward.any())
        return Loads(has_passes=has_passes, has_overlap=self.overlap)


def largest_teams(problem: Problem) -> NDArray[np.int64]:
    """``[num_kinds]`` devices of each kind that can be in one team, as the objective allows."""
    num_kinds = len(problem.platform.kinds)
    if problem.objective.team_rule == "off":
        return np.ones(num_kinds, dtype=np.int64)
    return np.bincount(problem.platform.kind_of_device, minlength=num_kinds)


def samples_per_turn(
    alone_s: NDArray[np.float64],  # ``[num_devices]`` seconds that each device needs for a sample
    team_of_device: NDArray[np.int64],  # ``[num_devices]`` first member of its team
) -> NDArray[np.float64]:
    """``[num_devices]`` samples that the team of each device finishes while the device finishes one.

    Members work all the time. Those that need no time for a sample take all of them: infinity for the others.

    Examples
    --------
    >>> samples_per_turn(np.array([2.0, 4.0, 1.0]), np.array([0, 0, 2]))
    array([1.5, 3. , 1. ])
    """
    num_devices = len(alone_s)
    fastest = np.full(num_devices, np.inf)
    np.minimum.at(fastest, team_of_device, alone_s)
    fastest = fastest[team_of_device]
    # relative to the fastest member: equal members add up to a whole number, and nothing overflows
    relative = np.ones(num_devices)
    with np.errstate(over="ignore"):  # infinity is an answer
        np.divide(alone_s, fastest, out=relative, where=fastest > 0)
    relative[(fastest == 0) & (alone_s > 0)] = np.inf
    rate = sum_by(team_of_device, 1 / relative, num_devices)[team_of_device]
    return np.asarray(relative * rate)
