r"""A few passes over a decoded placement, in which every op chooses its device once more, now that it knows all others.

Throughput and serial latency: what counts is the p-norm of the loads (close to the largest) or their sum, in units of
the mean op time, and the policy's word beside it: op v on device d costs

.. math:: \lVert load(v \to d) \rVert - trust \cdot \log p_{v,d}

Loads are those of :mod:`placekit.objectives.throughput`, and ops that share a device are one op, whose tensors are
those that leave it. A pass visits the ops in topological order; passes end when nothing moves. Makespan: ops of a
critical path try other devices, the likeliest first, and take the first with which the makespan falls
(:func:`placekit.learned.imitation.kernels.refine_makespan`).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.learned.imitation.kernels import refine_loads, refine_makespan
from placekit.model.graph import sum_by
from placekit.model.problem import Problem
from placekit.objectives.makespan.instance import MakespanInstance, csr_offsets, frozen, instance_of

__all__ = ["Refinement"]

_POWER = 8
_TRUST = 0.1
_OP_EVALUATIONS = 400_000
"""Makespans of a refinement, times ops: at most some 0.1 s, whatever the size."""
_MAKESPAN, _SERIAL = OBJECTIVES.index("makespan"), OBJECTIVES.index("serial-latency")


class Refinement:
    """Passes over placements of one problem.

    Parameters
    ----------
    problem, inputs
        The problem, and what the policy sees of it.
    passes
        Most passes over loads.
    trust
        Weight of the policy's word.
    power
        Norm of the loads that counts for throughput.
    """

    def __init__(
        self, problem: Problem, inputs: Inputs, *, passes: int = 8, trust: float = _TRUST, power: int = _POWER
    ) -> None:
        instance: MakespanInstance = instance_of(problem)
        self._instance, self._inputs, self._passes, self._trust = instance, inputs, passes, trust
        shape = inputs.num_ops, inputs.num_devices
        self._leader = np.unique(instance.class_of_op, return_index=True)[1]
        self._time = np.zeros((len(self._leader), inputs.num_devices))
        np.add.at(self._time, instance.class_of_op, inputs.time.reshape(shape).astype(np.float64))
        self._transfer = inputs.transfer.astype(np.float64)
        self._allowed = inputs.allowed.reshape(shape)
        self._power = 1 if inputs.objective == _SERIAL else power
        self._is_single = np.bincount(instance.class_of_op)[instance.class_of_op] == 1
        self._has_contention = bool(getattr(problem.objective, "contention", False))

    @cached_property
    def _classes(self) -> MakespanInstance:
        return _joined(self._instance)

    def refined(self, device_of_op: NDArray[np.int64], log_probs: NDArray[np.float64]) -> NDArray[np.int64]:
        """``[num_ops]`` devices after the passes; for a makespan, ops that others must follow stay where they are.

        Notes
        -----
        Loads: O(passes (ops + edges) devices^2). Makespan: a fixed number of makespans.
        """
        known = self._allowed & np.isfinite(log_probs)
        if self._inputs.objective == _MAKESPAN:
            device = device_of_op.copy()
            penalty = np.where(known, -log_probs, np.inf)
            most = max(1, _OP_EVALUATIONS // self._inputs.num_ops)
            refine_makespan(self._instance, penalty, self._is_single, self._has_contention, most, device)
            return device
        penalty = np.where(known, -self._trust * np.where(known, log_probs, 0.0), np.inf)[self._leader]
        of_class = device_of_op[self._leader]
        refine_loads(self._classes, self._time, self._transfer, penalty, self._power, self._passes, of_class)
        refined: NDArray[np.int64] = of_class[self._instance.class_of_op]
        return refined


def _joined(instance: MakespanInstance) -> MakespanInstance:
    """Return the instance with one op for every class, as far as `refine_loads` reads it; the tensors stay."""
    class_of_op, num_tensors = instance.class_of_op, len(instance.producer)
    num_classes = int(class_of_op.max()) + 1
    producer = class_of_op[instance.producer]
    tensor = instance.tensor_of_reader
    reader = class_of_op[instance.readers]
    leaves = reader != producer[tensor]
    reader, tensor = np.divmod(np.unique(reader[leaves] * num_tensors + tensor[leaves]), max(num_tensors, 1))
    first = np.full(num_classes, len(class_of_op))
    np.minimum.at(first, class_of_op, instance.rank)
    return frozen(
        instance._replace(
            memory_bytes=sum_by(class_of_op, instance.memory_bytes, num_classes),
            order=np.argsort(first, kind="stable"),
            out_offsets=csr_offsets(producer, num_classes),
            out_tensors=np.argsort(producer, kind="stable"),
            in_offsets=csr_offsets(reader, num_classes),
            in_tensors=tensor,
            producer=producer,
        )
    )
