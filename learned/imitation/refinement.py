r"""A few passes over a decoded placement, in which every op chooses its device once more, now that it knows all others.

Throughput and serial latency: what counts is the p-norm of the loads (close to the largest) or their sum, in units of
the mean op time, and the policy's word beside it: op v on device d costs

.. math:: \lVert load(v \to d) \rVert - trust \cdot \log p_{v,d}

Loads are those of :mod:`placekit.objectives.throughput`. A pass visits the ops in topological order; passes end when
nothing moves. Makespan: ops of a critical path try other devices, the likeliest first, and take the first with which
the makespan falls (:func:`placekit.learned.imitation.kernels.refine_makespan`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.learned.imitation.kernels import refine_loads, refine_makespan
from placekit.makespan.instance import MakespanInstance, instance_of
from placekit.problem import Problem

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
        self._time = inputs.time.reshape(shape).astype(np.float64)
        self._transfer = inputs.transfer.astype(np.float64)
        self._allowed = inputs.allowed.reshape(shape)
        self._power = 1 if inputs.objective == _SERIAL else power
        self.is_single = np.bincount(instance.class_of_op)[instance.class_of_op] == 1
        self._has_contention = bool(getattr(problem.objective, "contention", False))

    def refined(self, device_of_op: NDArray[np.int64], log_probs: NDArray[np.float64]) -> NDArray[np.int64]:
        """``[num_ops]`` devices after the passes; ops that others must follow stay where they are.

        Notes
        -----
        Loads: O(passes (ops + edges) devices^2). Makespan: a fixed number of makespans.
        """
        device = device_of_op.copy()
        known = self._allowed & np.isfinite(log_probs)
        if self._inputs.objective == _MAKESPAN:
            penalty = np.where(known, -log_probs, np.inf)
            most = max(1, _OP_EVALUATIONS // self._inputs.num_ops)
            refine_makespan(self._instance, penalty, self.is_single, self._has_contention, most, device)
        else:
            penalty = np.where(known, -self._trust * np.where(known, log_probs, 0.0), np.inf)
            arrays = self._instance, self._time, self._transfer, penalty, self.is_single
            refine_loads(*arrays, self._power, self._passes, device)
        return device
