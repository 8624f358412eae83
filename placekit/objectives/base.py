"""What an objective is: a formula that scores a placement.

A new execution model is one more module beside this one, and one line in the table of
:mod:`placekit.objectives`; nothing else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from placekit.graph import sum_by

if TYPE_CHECKING:
    from placekit.contiguity import Contiguity
    from placekit.problem import Problem

__all__ = ["Objective", "Score", "Segment", "device_transfers"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of one device's time in a schedule.

    Parameters
    ----------
    device
        Index of the device.
    start_s, end_s
        Seconds from the start of the sample.
    label
        The op or subgraph that runs, or the tensor that moves.
    is_transfer
        True for a transfer.
    """

    device: int
    start_s: float
    end_s: float
    label: str
    is_transfer: bool = False


@dataclass(frozen=True, slots=True)
class Score:
    """What an objective says of a placement.

    Parameters
    ----------
    objective_s
        The value to minimise, in seconds.
    compute_s, transfer_s, load_s
        ``[num_devices]`` seconds of work, of transfers, and of the two as the execution model combines them.
    schedule
        When what runs where, for the execution models that have a clock.
    """

    objective_s: float
    compute_s: NDArray[np.float64]
    transfer_s: NDArray[np.float64]
    load_s: NDArray[np.float64]
    schedule: tuple[Segment, ...] | None = None


class Objective(Protocol):
    """An execution model. Implementations are frozen dataclasses whose fields are the variants."""

    name: ClassVar[str]
    """Name on the command line and in files."""
    summary: ClassVar[str]
    """One line for people."""

    @property
    def default_contiguity(self) -> Contiguity:
        """What the ops of one device must form unless the user says otherwise."""
        ...

    def score(self, problem: Problem, device_of_op: NDArray[np.int64]) -> Score:
        """Score a placement in which every op is supported by its device.

        Parameters
        ----------
        problem
            The problem.
        device_of_op
            ``[num_ops]`` device index of every op.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the variant as JSON values; ``type(self)(**values)`` makes the same objective."""
        ...


def device_transfers(
    problem: Problem, device_of_op: NDArray[np.int64], tensors: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """``[num_devices]`` seconds that every device spends on tensors that enter or leave it, each once.

    The transfer terms of Tarnawski et al. 2020, section 3, from the original edges.

    Parameters
    ----------
    problem
        The problem.
    device_of_op
        ``[num_ops]`` device index of every op.
    tensors
        ``[num_tensors]`` which tensors count; all by default.

    Notes
    -----
    O(edges log edges).
    """
    graph, platform = problem.graph, problem.platform
    tensor = graph.consumed_tensor
    source = device_of_op[graph.tensor_producer[tensor]]
    target = device_of_op[graph.consumers]
    crossing = source != target
    if tensors is not None:
        crossing &= tensors[tensor]
    ends = np.concatenate([source[crossing], target[crossing]])
    touched = np.unique(np.tile(tensor[crossing], 2) * platform.num_devices + ends)
    tensor, device = np.divmod(touched, platform.num_devices)
    times = problem.costs.transfer_time_s[tensor, platform.kind_of_device[device]]
    return sum_by(device, times, platform.num_devices)
