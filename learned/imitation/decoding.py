"""From scores to placements: one op after another, where the policy and the time that it would cost both have a say.

Devices drawn op by op on their own collide: two ops that each like two devices equally may end on one. So ops are
placed one after another, each on the device that minimises

    added time - trust * log-probability

in units of the mean op time. The added time is when the op would end (makespan; ops by the starts that the network
expects, and once more by the ranks of HEFT, each into the earliest gap that holds it), what its device's load would
become with the transfers that it causes (throughput), or its own time and those transfers (serial latency). A large
`trust` follows the policy, a small one the costs. A device without room is passed over. Answers of several `TRUSTS`
are scored, and the best is kept.

A makespan is then *scheduled again*: once the devices are known, so is the longest path that remains after every op
(:func:`placekit.objectives.makespan.orders.placed_rank`), a better priority than its mean over devices. Ops choose
their devices anew in that order, with the policy's word as before; then there are other paths. Some chains of such
schedules mix the new priority into the old one (`DAMPINGS`), since the order may otherwise swing between two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.learned.imitation.kernels import place_by_load
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import MakespanInstance, frozen
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.orders import placed_rank
from placekit.objectives.makespan.ranks import mean_upward_rank
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.repair import make_acyclic, relieve_memory
from placekit.solvers.makespan.lists.insertion import schedule_by_priority

TRUSTS = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
DAMPINGS = (0.0, 0.8)
"""Shares of the old priority in that of the next schedule."""
_THROUGHPUT = OBJECTIVES.index("throughput")


class KnownSchedule(NamedTuple):
    """Schedule to improve: ``[num_ops]`` devices and steps, the priorities (smaller first), and the trust."""

    device: NDArray[np.int64]
    step: NDArray[np.int64]
    priority_s: NDArray[np.float64]
    trust: float


class ScoreDecoder:
    """Places the ops of one problem by scores.

    Parameters
    ----------
    problem, inputs
        The problem, and what the policy sees of it.
    """

    def __init__(self, problem: Problem, inputs: Inputs) -> None:
        self._problem, self._inputs = problem, inputs
        instance: MakespanInstance = instance_of(problem)
        self._instance = instance
        shape = inputs.num_ops, inputs.num_devices
        self._time = np.where(inputs.allowed.reshape(shape), inputs.time.reshape(shape), np.inf).astype(np.float64)
        self._transfer = inputs.transfer.astype(np.float64)
        self._class_bytes = np.bincount(instance.class_of_op, weights=instance.memory_bytes)
        self._by_device = frozen(  # every device a kind of its own: the policy's word differs between equal ones
            instance._replace(
                op_time_s=instance.op_time_s[:, instance.kind],
                is_supported=instance.is_supported[:, instance.kind],
                kind=np.arange(inputs.num_devices),
                transfer_s=instance.transfer_s[:, instance.kind],
            )
        )
        self._contraction: Contraction | None = None

    @cached_property
    def heft_order(self) -> NDArray[np.float64]:
        """``[num_ops]`` priorities of HEFT in seconds, smaller first."""
        return -mean_upward_rank(self._instance)

    def place(self, log_probs: NDArray[np.float64], trust: float) -> NDArray[np.int64]:
        """``[num_ops]`` devices by scores ``[num_ops, num_devices]`` and loads, in topological order.

        Notes
        -----
        O((ops + edges) devices).
        """
        balances = self._inputs.objective == _THROUGHPUT
        penalty = _penalty(log_probs, trust)
        return self._repaired(
            place_by_load(self._instance, self._time, self._transfer, penalty, self._class_bytes, balances)
        )

    def schedule(self, log_probs: NDArray[np.float64], priority_s: NDArray[np.float64], trust: float) -> KnownSchedule:
        """Schedule ops by scores ``[num_ops, num_devices]`` and priorities ``[num_ops]``, with insertion.

        Notes
        -----
        As :func:`~placekit.solvers.makespan.lists.insertion.schedule_by_priority`.
        """
        anywhere = np.full(self._inputs.num_ops, -1)
        lookahead_s = _penalty(log_probs, trust) * self._inputs.unit_s
        device, start, finish, fits = schedule_by_priority(self._by_device, -priority_s, lookahead_s, anywhere, True)
        if fits:
            return KnownSchedule(device, self._steps(start, finish), priority_s, trust)
        device = self._repaired(device)
        return KnownSchedule(device, self.order_on(device, priority_s), priority_s, trust)

    def schedule_again(
        self, log_probs: NDArray[np.float64], before: KnownSchedule, damping: float, count: int
    ) -> Iterator[KnownSchedule]:
        """Yield `count` schedules, each by the paths that remain in the one before it."""
        for _ in range(count):
            order_s = self.remaining_order(before.device)
            before = self.schedule(log_probs, damping * before.priority_s + (1 - damping) * order_s, before.trust)
            yield before

    def remaining_order(self, device: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[num_ops]`` priorities by the longest path that remains on known devices, in seconds, smaller first."""
        rank_s = np.empty(self._inputs.num_ops)
        placed_rank(self._instance, device, rank_s)
        return -rank_s

    def order_on(self, device: NDArray[np.int64], priority: NDArray[np.float64]) -> NDArray[np.int64]:
        """``[num_ops]`` steps on devices that are known: by priority, each op into the earliest gap that holds it."""
        nothing = np.zeros(self._time.shape)
        _, start, finish, _ = schedule_by_priority(self._by_device, -priority, nothing, device, True)
        return self._steps(start, finish)

    def _steps(self, start: NDArray[np.float64], finish: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.argsort(np.lexsort((self._instance.rank, finish, start)))

    def _repaired(self, device: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the devices, moved as little as it takes to respect memory and contiguity."""
        problem = self._problem
        has_limit = bool(np.isfinite(self._instance.limit_bytes).any())
        if problem.contiguity is Contiguity.NONE and not has_limit:
            return device
        if self._contraction is None:
            rule = Contiguity.ACYCLIC if problem.contiguity is not Contiguity.NONE else Contiguity.NONE
            self._contraction = contract(problem.replace(contiguity=rule))
        restricted = self._contraction.restrict(device)
        if problem.contiguity is not Contiguity.NONE:
            restricted = make_acyclic(self._contraction, restricted)
        elif has_limit:
            restricted = relieve_memory(self._contraction, restricted)
        moved: NDArray[np.int64] = self._contraction.expand(restricted)
        return moved

    def repaired(self, devices: NDArray[np.int64]) -> NDArray[np.int64]:
        """``[count, num_ops]`` placements, each moved as little as it takes to respect memory and contiguity."""
        return np.stack([self._repaired(row) for row in devices]) if len(devices) else devices

    @staticmethod
    def uniform(allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """``[num_ops, num_devices]`` log-probabilities of somebody who knows nothing."""
        count = np.maximum(allowed.sum(axis=1, keepdims=True), 1)
        return np.where(allowed, -np.log(count), -math.inf)


def _penalty(log_probs: NDArray[np.float64], trust: float) -> NDArray[np.float64]:
    """``[num_ops, num_devices]`` what the policy's word costs; infinity where an op may not go."""
    return np.where(np.isfinite(log_probs), -trust * log_probs, np.inf)
