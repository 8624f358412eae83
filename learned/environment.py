"""The environment of every learner: placements in, objectives out.

Observation: the features of the ops (:mod:`placekit.learned.features`). Action: a device for every group of ops. Mask:
`Environment.mask`, where each group may go. Reward: minus the cost of the placement, `Environment.costs`. End: after
one action per group; nothing carries over to the next placement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import all_by, number_by_first, topological_order
from placekit.learned.kernels import SharedMemory, batch_infeasibility, batch_shared_excess, line_up
from placekit.learned.rewards import Reward, RewardStopped
from placekit.model.contiguity import Contiguity, edges_along_order
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import BatchScore
from placekit.objectives.makespan.arrays import csr_offsets
from placekit.objectives.makespan.instance import instance_of
from placekit.solve.stop import StopReason
from placekit.solvers.generic.scoring import batch_score_of

INFEASIBLE_COST = 2.0
"""Cost of a placement that only just breaks a constraint, in units of the best single device."""

ROWS_AT_ONCE = 8
"""Placements that are scored between two questions whether to stop: some take 30 ms each."""

LINED_UP = 16
"""Placements of a batch that are brought into line where contiguity forbids them; one where each takes a second."""

_RULES = {Contiguity.NONE: 0, Contiguity.CONVEX: 1, Contiguity.ACYCLIC: 2}


class Environment:
    """Scores batches of placements, counts them, and remembers the best.

    Parameters
    ----------
    problem
        What to place.
    reward
        ``"judge"`` for the problem's own objective, or anything that turns feasible placements into seconds.
    group_of_op
        ``[num_ops]`` labels ``0 .. num_groups - 1``: ops with the same label get one action. By default the classes of
        ops that must share a device, which every grouping must respect.

    Attributes
    ----------
    evaluations : int
        Placements scored so far.
    best : NDArray[np.int64] or None
        ``[num_ops]`` best feasible placement so far.
    best_objective : float or None
        Its objective in seconds.

    Raises
    ------
    InvalidProblemError
        Labels that separate ops of one class, or that are not ``0 .. num_groups - 1``.
    UnsupportedProblemError
        A group that may go to no device.

    Examples
    --------
    >>> import placekit as pk
    >>> graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    >>> costs = pk.CostTable(("cpu", "gpu"), [[1.0, 2.0], [8.0, 1.0]], [[0.0, 0.5]], [0, 0])
    >>> problem = pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1, host="cpu"), costs, pk.SerialLatency())
    >>> environment = Environment(problem)
    >>> environment.evaluate([[0, 0], [0, 1], [1, 1]])
    array([9. , 2.5, 3. ])
    """

    def __init__(
        self,
        problem: Problem,
        reward: Literal["judge"] | Reward = "judge",
        group_of_op: NDArray[np.int64] | None = None,
    ) -> None:
        self.problem = problem
        self.reward: Reward = batch_score_of(problem) if reward == "judge" else reward
        self.evaluations = 0
        self.best: NDArray[np.int64] | None = None
        self.best_objective: float | None = None
        self.infeasible = 0
        """Placements so far that broke a constraint; some of the last ones are `refused`."""
        self.refused = np.empty((0, problem.graph.num_ops), dtype=np.int64)
        self.should_stop: Callable[[], StopReason | None] | None = None
        """Asked in the middle of an update; None to let every update come to its end."""
        self._instance = instance_of(problem)
        self._leader = np.unique(problem.op_class, return_index=True)[1][problem.op_class]
        self._order_edges = edges_along_order(problem.graph.num_ops, *problem.order_edges)
        self.group_of_op = problem.op_class if group_of_op is None else self._checked(np.asarray(group_of_op))
        nowhere = np.flatnonzero(~self.mask.any(axis=1))
        if nowhere.size:
            name = problem.graph.op_names[int(np.flatnonzero(self.group_of_op == nowhere[0])[0])]
            raise UnsupportedProblemError(f"the group of op {name!r} may go to no device")

    def _checked(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        name, num_ops = self.problem.name, self.problem.graph.num_ops
        if groups.shape != (num_ops,) or not np.array_equal(np.unique(groups), np.arange(groups.max() + 1)):
            raise InvalidProblemError(f"problem {name!r}: groups must label {num_ops} ops by 0 .. num_groups - 1")
        apart = np.flatnonzero(groups != groups[self._leader])
        if apart.size:
            op, leader = (self.problem.graph.op_names[v] for v in (apart[0], self._leader[apart[0]]))
            raise InvalidProblemError(f"problem {name!r}: groups separate ops {op!r} and {leader!r} of one class")
        return groups.astype(np.int64)

    @property
    def num_groups(self) -> int:
        """Number of groups, each an action."""
        return len(self.mask)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return self.problem.platform.num_devices

    @cached_property
    def op_mask(self) -> NDArray[np.bool_]:
        """``[num_ops, num_devices]`` where each op may go: support, pins and colocation of its class."""
        return self._instance.allowed

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """``[num_groups, num_devices]`` where all ops of each group may go."""
        return all_by(self.group_of_op, self.op_mask, int(self.group_of_op.max()) + 1)

    @cached_property
    def first_op(self) -> NDArray[np.int64]:
        """``[num_groups]`` the first op of each group."""
        return np.unique(self.group_of_op, return_index=True)[1]

    def expand(self, actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return placements ``[batch, num_ops]`` from actions ``[batch, num_groups]``."""
        return np.asarray(actions, dtype=np.int64)[:, self.group_of_op]

    @cached_property
    def homogeneous(self) -> NDArray[np.int64]:
        """``[num_devices, num_groups]`` actions: everything on one device, but for groups that may not go there.

        Those go to the first device of their mask.
        """
        first = np.argmax(self.mask, axis=1)
        return np.stack([np.where(self.mask[:, d], d, first) for d in range(self.num_devices)])

    @cached_property
    def single_devices(self) -> NDArray[np.float64]:
        """``[num_devices]`` objectives of the homogeneous placements; infinity where one breaks a constraint."""
        return self.evaluate(self.expand(self.homogeneous))

    @cached_property
    def reference_s(self) -> float:
        """The unit of `costs`: the best single device, or all ops where they are slowest if none is feasible."""
        best = float(self.single_devices.min())
        if not np.isfinite(best):
            best = float(self.problem.costs.op_time_s.max(axis=1).sum())
        return best if best > 0 else 1.0

    def infeasibility(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[batch]`` how far placements ``[batch, num_ops]`` are from feasible; 0 exactly where the judge agrees.

        Execution models can have constraints of their own beside these, such as the number of calls.
        """
        degree = np.empty(len(placements))
        rule = _RULES[self.problem.contiguity]
        batch_infeasibility(self._instance, self._leader, *self._order_edges, rule, placements, degree)
        return degree + self._shared_excess(placements)

    def _shared_excess(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[batch]`` bytes that exceed a limit where ops share memory, as a share of the most that anything needs."""
        problem, excess = self.problem, np.zeros(len(placements))
        if problem.has_tight_blocks:
            batch_shared_excess(self._shared_memory, self._instance.limit_bytes, placements, excess)
            excess /= problem.stage_memory.most_bytes
        return excess

    @cached_property
    def _shared_memory(self) -> SharedMemory:
        return SharedMemory.of(self.problem.stage_memory, self.problem.costs.op_memory_bytes)

    def evaluate(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[batch]`` objectives in seconds of placements ``[batch, num_ops]``; infinity where infeasible.

        Raises
        ------
        RewardStopped
            `should_stop` said so before all of them were scored.
        """
        return self._score(np.atleast_2d(placements))[0]

    def costs(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[batch]`` costs of placements ``[batch, num_ops]``: finite, and comparable between problems.

        A feasible placement costs its objective divided by `reference_s`; an infeasible one `INFEASIBLE_COST` plus its
        degree of infeasibility, so that of two of them the one nearer to feasible is cheaper.

        Most placements of a policy that knows nothing of contiguity break it. Some of them are brought into line and
        scored, so that there is a `best` to learn from; the costs stay those of the placements. Raises `RewardStopped`:
        `should_stop` said so before all of them were scored.
        """
        objectives, degree = self._score(placements)
        if self.problem.contiguity is not Contiguity.NONE:
            most = LINED_UP if isinstance(self.reward, BatchScore) else 1
            self._line_up(placements[np.flatnonzero(degree > 0)[:most]])
        with np.errstate(over="ignore"):  # times may span more than a double does
            relative = np.minimum(objectives / self.reference_s, np.finfo(np.float64).max)
        return np.where(np.isfinite(objectives), relative, INFEASIBLE_COST + degree)

    def _line_up(self, placements: NDArray[np.int64]) -> None:
        """Score placements ``[batch, num_ops]`` with their devices in a chain; what is feasible may be the best."""
        if len(placements):
            rows = np.ascontiguousarray(placements, dtype=np.int64).copy()
            line_up(*self._class_graph, rows)
            before = self.infeasible, self.refused
            self._score(rows)
            self.infeasible, self.refused = before  # the policy did not make these

    @cached_property
    def _class_graph(self) -> tuple[NDArray[Any], ...]:
        """Arguments of `line_up` from the problem."""
        classes, num_classes = self.problem.op_class, self.problem.num_classes
        senders, receivers = (classes[ends] for ends in self._order_edges)
        crossing = senders != receivers
        senders, receivers = senders[crossing], receivers[crossing]
        order = np.concatenate(topological_order(num_classes, senders, receivers))
        allowed = self.op_mask[np.unique(classes, return_index=True)[1]]
        by_reader = senders[np.argsort(receivers, kind="stable")]
        return order, csr_offsets(receivers, num_classes), by_reader, np.array(classes), allowed

    def why_refused(self) -> str | None:
        """Return the constraint that most placements in `refused` break first; None if nothing was refused."""
        if not self.infeasible:
            return None
        degree = np.empty(len(self.refused))
        batch_infeasibility(self._instance, self._leader, *self._order_edges, 0, self.refused, degree)
        degree += self._shared_excess(self.refused)
        is_contiguity = self.problem.contiguity is not Contiguity.NONE and 2 * (degree == 0).sum() >= len(degree)
        return f"contiguity {self.problem.contiguity}" if is_contiguity else "memory"

    def has_time(self) -> bool:
        """Return False if `should_stop` says so; for what can end early and still has an answer."""
        return self.should_stop is None or self.should_stop() is None

    def check_stop(self) -> None:
        """Raise RewardStopped if `should_stop` says so; for what takes long in the middle of an update."""
        reason = None if self.should_stop is None else self.should_stop()
        if reason is not None:
            raise RewardStopped(reason)

    def _score(self, placements: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        num_rows = len(placements)
        at_once = max(num_rows, 1) if self.should_stop is None else ROWS_AT_ONCE
        objectives, degree = np.empty(num_rows), np.empty(num_rows)
        for first in range(0, num_rows, at_once):
            if first:
                self.check_stop()
            part = slice(first, first + at_once)
            objectives[part], degree[part] = self._score_rows(placements[part])
        return objectives, degree

    def _score_rows(self, placements: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # a batch can be gigabytes: it is copied only where it must be
        rows = np.require(placements, np.int64, ["C", "W"])  # W: kernels are compiled for such arrays
        degree = self.infeasibility(rows)
        feasible = np.flatnonzero(degree == 0)
        if feasible.size < len(rows):
            self.refused = rows[degree > 0][:LINED_UP].copy()
            self.infeasible += len(rows) - feasible.size
        objectives = np.full(len(rows), np.inf)
        if 0 < feasible.size == len(rows):
            objectives = self.reward(rows)
        elif feasible.size:
            objectives[feasible] = self.reward(rows[feasible])
        self.evaluations += len(rows)
        if len(rows):
            best = int(np.argmin(objectives))
            if np.isfinite(objectives[best]) and (
                self.best_objective is None or objectives[best] < self.best_objective
            ):
                self.best, self.best_objective = rows[best].copy(), float(objectives[best])
        return objectives, degree

    def answer(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return devices ``[num_ops]`` as the placement that was scored: with steps where the reward chose an order."""
        if isinstance(self.reward, BatchScore):
            return self.reward.placement(device_of_op)
        return Placement.of(self.problem, device_of_op)

    def coarsened(self, group_of_op: NDArray[np.int64]) -> Environment:
        """Return an environment of its own for the same problem and reward, with other groups."""
        return Environment(self.problem, self.reward, number_by_first(group_of_op))
