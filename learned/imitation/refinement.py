r"""A few passes over a decoded placement, in which every op chooses its device once more, now that it knows all others.

What counts is the p-norm of the loads (throughput: close to the largest) or their sum (serial latency), in units of the
mean op time, and the policy's word beside it: op v on device d costs

.. math:: \lVert load(v \to d) \rVert - trust \cdot \log p_{v,d}

Loads are those of :mod:`placekit.objectives.throughput`. A pass visits the ops in topological order; passes end when
nothing moves. Makespans are not refined: loads say too little of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.makespan.instance import MakespanInstance, instance_of
from placekit.problem import Problem

__all__ = ["Refinement"]

_NORM = 8.0
_MAKESPAN, _SERIAL = OBJECTIVES.index("makespan"), OBJECTIVES.index("serial-latency")


class Refinement:
    """Passes over placements of one problem.

    Parameters
    ----------
    problem, inputs
        The problem, and what the policy sees of it.
    passes
        Most passes.
    trust
        Weight of the policy's word.
    """

    def __init__(self, problem: Problem, inputs: Inputs, *, passes: int = 4, trust: float = 0.1) -> None:
        self._instance: MakespanInstance = instance_of(problem)
        self._inputs, self._passes, self._trust = inputs, passes, trust
        shape = inputs.num_ops, inputs.num_devices
        self._time = inputs.time.reshape(shape).astype(np.float64)
        self._transfer = inputs.transfer.astype(np.float64)
        instance = self._instance
        self._class_bytes = np.bincount(instance.class_of_op, weights=instance.memory_bytes)
        self._is_single = np.bincount(instance.class_of_op)[instance.class_of_op] == 1

    @property
    def applies(self) -> bool:
        """True if loads are what the objective is about."""
        return self._inputs.objective != _MAKESPAN

    def refined(self, device_of_op: NDArray[np.int64], log_probs: NDArray[np.float64]) -> NDArray[np.int64]:
        """``[num_ops]`` devices after the passes; ops that others must follow stay where they are.

        Notes
        -----
        O(passes (ops + edges) devices^2).
        """
        instance = self._instance
        device = device_of_op.copy()
        num_devices = self._inputs.num_devices
        readers = np.zeros(self._transfer.shape)
        edge_tensor = np.repeat(np.arange(len(readers)), np.diff(instance.reader_offsets))
        np.add.at(readers, (edge_tensor, device[instance.readers]), 1.0)
        load = np.bincount(device, weights=self._time[np.arange(len(device)), device], minlength=num_devices)
        load = load + self._moved(np.arange(len(readers)), device[instance.producer], readers).sum(axis=0)
        room = instance.limit_bytes - np.bincount(device, weights=instance.memory_bytes, minlength=num_devices)
        penalty = np.where(np.isfinite(log_probs), -self._trust * log_probs, np.inf)
        for _ in range(self._passes):
            has_moved = False
            for op in instance.order[self._is_single[instance.order]].tolist():
                home = int(device[op])
                out = instance.out_tensors[instance.out_offsets[op] : instance.out_offsets[op + 1]]
                read = instance.in_tensors[instance.in_offsets[op] : instance.in_offsets[op + 1]]
                sources = device[instance.producer[read]]
                readers[read, home] -= 1
                now = self._time[op, home] * (np.arange(num_devices) == home)
                kept = readers[read]
                kept[:, home] += 1
                before = load - now - self._moved(out, np.full(len(out), home), readers[out]).sum(axis=0)
                before -= self._moved(read, sources, kept).sum(axis=0)
                fits = room >= instance.memory_bytes[op]
                fits[home] = True
                candidates = np.flatnonzero(instance.allowed[op] & fits & np.isfinite(penalty[op]))
                loads = np.repeat(before[None], len(candidates), axis=0)
                for at, target in enumerate(candidates.tolist()):
                    with_op = readers[read]
                    with_op[:, target] += 1
                    loads[at, target] += self._time[op, target]
                    loads[at] += self._moved(out, np.full(len(out), target), readers[out]).sum(axis=0)
                    loads[at] += self._moved(read, sources, with_op).sum(axis=0)
                chosen = home
                if candidates.size:
                    best = int(np.argmin(self._value(loads) + penalty[op, candidates]))
                    if home not in candidates or candidates[best] != home:
                        chosen = int(candidates[best])
                    load = loads[int(np.flatnonzero(candidates == chosen)[0])]
                readers[read, chosen] += 1
                if chosen != home:
                    has_moved = True
                    device[op] = chosen
                    room[home] += instance.memory_bytes[op]
                    room[chosen] -= instance.memory_bytes[op]
            if not has_moved:
                break
        return device

    def _moved(
        self, tensors: NDArray[np.int64], home: NDArray[np.int64], readers: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """``[len(tensors), num_devices]`` transfers of tensors from `home`, by the number of readers everywhere."""
        rows = np.arange(len(tensors))
        crosses = readers > 0
        crosses[rows, home] = False
        crosses[rows, home] = crosses.any(axis=1)
        return np.where(crosses, self._transfer[tensors], 0.0)

    def _value(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[candidates]`` what is minimised, of loads ``[candidates, num_devices]``."""
        if self._inputs.objective == _SERIAL:
            return np.asarray(loads.sum(axis=1))
        largest = max(float(loads.max()), 1e-30)
        return np.asarray(largest * ((np.maximum(loads, 0.0) / largest) ** _NORM).sum(axis=1) ** (1 / _NORM))
