r"""Pipelines whose devices share one bus: it carries one tensor at a time, while the devices compute.

The time per sample of a steady pipeline is :math:`\max(\max_d work(d), \sum_d transfers(d))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import placekit as pk
from placekit.objectives import device_transfers, fastest_class_s


@dataclass(frozen=True, slots=True)
class SharedBus(pk.Objective):
    """Minimise the larger of the busiest device's work and the time on the bus.

    Parameters
    ----------
    bus_slowness
        Factor on all transfer times.
    """

    name: ClassVar[str] = "shared-bus"
    summary: ClassVar[str] = "time per sample of a steady pipeline whose devices share one bus"

    bus_slowness: float = 1.0

    @property
    def default_contiguity(self) -> pk.Contiguity:
        """A pipeline runs only without cycles between devices."""
        return pk.Contiguity.ACYCLIC

    def score(
        self,
        problem: pk.Problem,
        device_of_op: NDArray[np.int64],
        step_of_op: NDArray[np.int64] | None = None,  # noqa: ARG002  # the model has no clock
    ) -> pk.Score:
        """Score a placement; see the module docstring for the formula."""
        times = problem.costs.op_time_s[np.arange(len(device_of_op)), problem.platform.kind_of_device[device_of_op]]
        work = np.bincount(device_of_op, weights=times, minlength=problem.platform.num_devices)
        moved = device_transfers(problem, device_of_op) * self.bus_slowness
        return pk.Score(max(float(work.max()), float(moved.sum())), work, moved, work)

    def quick_bound(self, problem: pk.Problem) -> tuple[float, str] | None:
        """Bound by the largest op: some device does it."""
        return float(fastest_class_s(problem).max(initial=0.0)) * (1 - 1e-12), "largest op"
