"""From scores to placements: one op after another, where the policy and the time that it would cost both have a say.

Devices drawn op by op on their own collide: two ops that each like two devices equally may end on one. So ops are
placed one after another (makespan: by the starts that the network expects, and once more by the ranks of HEFT), each on
the device that minimises

    added time / unit - trust * log-probability

where the added time is when the op would end (makespan), what its device's load would become with the transfers that it
causes (throughput), or its own time and those transfers (serial latency). A large `trust` follows the policy, a small
one the costs. A device without room is passed over. Answers of several `TRUSTS` are scored, and the best is kept.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from placekit.coarsen import Contraction, contract
from placekit.contiguity import Contiguity
from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.makespan.instance import MakespanInstance, instance_of
from placekit.makespan.ranks import mean_upward_rank
from placekit.problem import Problem
from placekit.solvers.generic.repair import make_acyclic, relieve_memory

__all__ = ["TRUSTS", "Decoder"]

TRUSTS = (0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
_MAKESPAN, _THROUGHPUT = OBJECTIVES.index("makespan"), OBJECTIVES.index("throughput")


class Decoder:
    """Places the ops of one problem by scores.

    Parameters
    ----------
    problem, inputs
        The problem, and what the policy sees of it.
    """

    def __init__(self, problem: Problem, inputs: Inputs) -> None:
        self._problem, self._inputs = problem, inputs
        self._instance: MakespanInstance = instance_of(problem)
        shape = inputs.num_ops, inputs.num_devices
        self._time = np.where(inputs.allowed.reshape(shape), inputs.time.reshape(shape), np.inf).astype(np.float64)
        self._transfer = inputs.transfer.astype(np.float64)
        instance = self._instance
        self._class_bytes = np.bincount(instance.class_of_op, weights=instance.memory_bytes)
        offsets, tensors = instance.in_offsets.tolist(), instance.in_tensors.tolist()
        self._reads = [tensors[offsets[op] : offsets[op + 1]] for op in range(inputs.num_ops)]
        self._contraction: Contraction | None = None

    def heft_order(self) -> NDArray[np.float64]:
        """``[num_ops]`` priorities of HEFT, smaller first."""
        return -mean_upward_rank(self._instance)

    def orders(self, start: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Return priorities to place ops by: makespan: the expected starts, and HEFT's; else topological order."""
        if self._inputs.objective == _MAKESPAN:
            return start, self.heft_order()
        return (self._instance.rank.astype(np.float64),)

    def place(self, log_probs: NDArray[np.float64], order: NDArray[np.float64], trust: float) -> NDArray[np.int64]:
        """``[num_ops]`` devices by scores ``[num_ops, num_devices]`` and priorities ``[num_ops]``, smaller first.

        Notes
        -----
        O((ops + edges) devices + ops log ops).
        """
        instance, objective = self._instance, self._inputs.objective
        penalty = np.where(np.isfinite(log_probs), -trust * log_probs, np.inf)
        device = np.full(self._inputs.num_ops, -1, dtype=np.int64)
        of_class = np.full(len(self._class_bytes), -1, dtype=np.int64)
        room = instance.limit_bytes.copy()
        busy = np.zeros(self._inputs.num_devices)  # load so far, or when the device is free
        finish = np.zeros(self._inputs.num_ops)
        producer = instance.producer.tolist()
        is_there = np.zeros(self._transfer.shape, dtype=bool)  # tensor already on that device
        for op in self._order(order):
            added = self._time[op].copy()
            ready = np.zeros(len(busy))
            for tensor in self._reads[op]:
                source = producer[tensor]
                home = device[source]
                moves = ~is_there[tensor]
                enter = np.where(moves, self._transfer[tensor], 0.0)
                leaves = 0.0 if is_there[tensor].sum() > 1 else self._transfer[tensor, home]
                if objective == _MAKESPAN:
                    arrival = finish[source] + np.where(np.arange(len(busy)) == home, 0.0, self._arrival(tensor, home))
                    ready = np.maximum(ready, arrival)
                else:
                    added += enter + np.where(moves, leaves, 0.0)
            if objective == _MAKESPAN:
                measure = np.maximum(ready, busy) + self._time[op]
            elif objective == _THROUGHPUT:
                measure = busy + added
            else:
                measure = added
            group = int(instance.class_of_op[op])
            chosen = int(of_class[group])
            if chosen < 0:
                fits = room >= self._class_bytes[group]
                price = measure + penalty[op]
                can = np.isfinite(price) & fits
                chosen = int(
                    np.argmin(np.where(can, price, np.inf) if can.any() else np.where(fits, penalty[op], price))
                )
                if not instance.allowed[op, chosen]:
                    chosen = int(np.argmax(instance.allowed[op]))
                of_class[group] = chosen
                room[chosen] -= self._class_bytes[group]
            device[op] = chosen
            if objective == _MAKESPAN:
                finish[op] = busy[chosen] = measure[chosen]
            else:
                busy[chosen] += self._time[op, chosen]
                self._pay(op, chosen, busy, device, is_there)
            for tensor in self._writes(op):
                is_there[tensor, chosen] = True
        return self._repaired(device)

    def _arrival(self, tensor: int, home: int) -> NDArray[np.float64]:
        seconds: NDArray[np.float64] = self._transfer[tensor, home] + self._transfer[tensor]
        return seconds

    def _writes(self, op: int) -> list[int]:
        instance = self._instance
        written: list[int] = instance.out_tensors[instance.out_offsets[op] : instance.out_offsets[op + 1]].tolist()
        return written

    def _pay(
        self, op: int, chosen: int, busy: NDArray[np.float64], device: NDArray[np.int64], is_there: NDArray[np.bool_]
    ) -> None:
        """Add the transfers that `op` causes to the loads of their devices."""
        for tensor in self._reads[op]:
            if is_there[tensor, chosen]:
                continue
            home = device[self._instance.producer[tensor]]
            if is_there[tensor].sum() <= 1:
                busy[home] += self._transfer[tensor, home]
            busy[chosen] += self._transfer[tensor, chosen]
            is_there[tensor, chosen] = True

    def _order(self, start: NDArray[np.float64]) -> list[int]:
        """Return the ops by expected start, producers before readers."""
        instance = self._instance
        waiting = np.diff(instance.in_offsets).copy()
        heap = [(float(start[op]), int(instance.rank[op]), op) for op in np.flatnonzero(waiting == 0).tolist()]
        heapq.heapify(heap)
        order: list[int] = []
        while heap:
            op = heapq.heappop(heap)[2]
            order.append(op)
            for reader in instance.edge_readers[instance.edge_offsets[op] : instance.edge_offsets[op + 1]].tolist():
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(heap, (float(start[reader]), int(instance.rank[reader]), reader))
        return order

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
