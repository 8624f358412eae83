"""Interface of objectives: a formula that scores a placement.

A new execution model is one module: a frozen dataclass, derived from `Objective`, with a name, a summary and a `score`.
That is enough for every generic method, for ``auto``, files, ``explain`` and the command line. What it can say beyond
that (a bound, a score of whole batches, what a tensor costs) are the other methods of `Objective`; each has a default.
Those that come with placekit are listed in :mod:`placekit.objectives`, others are registered with `register_objective`
or by the entry point ``placekit.objectives`` of a package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import distinct, sum_by
from placekit.model.contiguity import Contiguity
from placekit.model.placement import Placement, Violation
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.reprs import short_repr


@dataclass(frozen=True, eq=False)
class Schedule:
    """When what runs where: one event per op and per transfer, as flat arrays.

    Parameters
    ----------
    device
        ``[num_events]`` index of the device that the event keeps busy; the sender of a transfer between two devices.
    op
        ``[num_events]`` the op that runs, or the op whose tensor moves.
    start_s, finish_s
        ``[num_events]`` seconds from the start of the sample.
    is_transfer
        ``[num_events]`` True for a transfer.
    peer
        ``[num_events]`` the device that receives the transfer; -1 for host memory, and for ops.
    peak_memory_bytes
        ``[num_devices]`` largest number of bytes on each device at any time: its ops' memory and the live tensors.
        None where the execution model does not say.
    memory
        ``[num_changes, 3]`` device, seconds, and the bytes on that device from then on, sorted by device and time;
        None where the execution model does not say.
    """

    device: NDArray[np.int64]
    op: NDArray[np.int64]
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    is_transfer: NDArray[np.bool_]
    peer: NDArray[np.int64]
    peak_memory_bytes: NDArray[np.float64] | None = None
    memory: NDArray[np.float64] | None = None

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.device)

    def to_dict(self) -> dict[str, Any]:
        """Return the schedule as JSON values."""
        return {
            name: None if value is None else value.tolist()
            for name, value in ((field.name, getattr(self, field.name)) for field in fields(self))
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the schedule that `to_dict` wrote (the data must already be validated)."""
        peak, memory = data["peak_memory_bytes"], data["memory"]
        return cls(
            device=np.array(data["device"], dtype=np.int64),
            op=np.array(data["op"], dtype=np.int64),
            start_s=np.array(data["start_s"], dtype=np.float64),
            finish_s=np.array(data["finish_s"], dtype=np.float64),
            is_transfer=np.array(data["is_transfer"], dtype=np.bool_),
            peer=np.array(data["peer"], dtype=np.int64),
            peak_memory_bytes=None if peak is None else np.array(peak, dtype=np.float64),
            memory=None if memory is None else np.array(memory, dtype=np.float64).reshape(-1, 3),
        )


@dataclass(frozen=True, slots=True)
class Score:
    """Score of a placement under an objective.

    Parameters
    ----------
    objective_s
        The value to minimise, in seconds.
    compute_s, transfer_s, load_s
        ``[num_devices]`` seconds of work, of transfers, and of the two as the execution model combines them.
    schedule
        When what runs where, for the execution models that have a clock.
    violations
        Constraints of the execution model itself that the placement breaks (devices that wait for each other, too many
        calls). With any of them the numbers mean nothing.
    share
        ``[num_devices]`` share of its team's samples that each device takes; None if no team has several devices.
    """

    objective_s: float
    compute_s: NDArray[np.float64]
    transfer_s: NDArray[np.float64]
    load_s: NDArray[np.float64]
    schedule: Schedule | None = None
    violations: tuple[Violation, ...] = ()
    share: NDArray[np.float64] | None = None

    __repr__ = short_repr


@runtime_checkable
class BatchScore(Protocol):
    """Scores many placements at once, as the judge would one by one, up to the rounding of sums."""

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return seconds ``[batch]`` of ``[batch, num_ops]`` devices; infinity for one that cannot be executed.

        Only support is promised of the placements; memory, pins and contiguity are not looked at.
        """
        ...

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement that was scored: with steps where the score chose an order."""
        ...


@dataclass(frozen=True, slots=True)
class Loads:
    """Objective from the loads of devices, for execution models that consist of loads alone.

    Parameters
    ----------
    is_total
        True if the loads of all devices are added up, False if the largest counts.
    has_passes
        True if forward and backward pass have loads of their own, which are added after that.
    has_overlap
        True if a load is the larger of work and transfers, not their sum.
    subgraph_cost_s
        Seconds for every subgraph, as in :mod:`placekit.objectives.serial_latency`.
    """

    is_total: bool = False
    has_passes: bool = False
    has_overlap: bool = False
    subgraph_cost_s: float = 0.0


class Objective(ABC):
    """An execution model. Implementations are frozen dataclasses whose fields are the variants, each with a default."""

    __slots__ = ()

    name: ClassVar[str]
    """Name on the command line and in files."""
    summary: ClassVar[str]
    """One line for people."""
    avoids_cycles: ClassVar[bool] = False
    """True if devices that wait for each other are of no use even where contiguity allows them."""
    merges_free_leaves: ClassVar[bool] = False
    """True if an op may follow its one neighbour without loss where `placekit.solvers.generic.coarsen` allows it."""
    has_pipeline: ClassVar[bool] = False
    """True if samples stream through the devices, so that work on a slow host may be hidden."""

    follows_paths: ClassVar[bool] = False
    """True if the objective is at least the time of every path of the graph, each op where it is fastest."""

    direct_ends: ClassVar[int] = 0
    """How many ends of a direct transfer pay for it in full: sender and receiver (2), or the receiver alone (1), then
    in an objective where only the sum of what the two ends pay counts. 0 (the default): it knows no direct links."""

    @property
    def default_contiguity(self) -> Contiguity:
        """Default contiguity rule of the objective; `Contiguity.NONE` unless overridden."""
        return Contiguity.NONE

    @property
    def team_rule(self) -> str:
        """Devices that may form teams, of `TEAM_RULES` in :mod:`placekit.model.device_groups`; ``"off"`` for none."""
        return "off"

    @property
    def rules(self) -> tuple[str, ...]:
        """Rules, in words, by which placements are left out that a device could run; none unless overridden."""
        return ()

    @abstractmethod
    def score(
        self, problem: Problem, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64] | None = None
    ) -> Score:
        """Score a placement in which every op is supported by its device.

        Parameters
        ----------
        problem
            The problem.
        device_of_op
            ``[num_ops]`` device index of every op.
        step_of_op
            ``[num_ops]`` `Placement.step_of_op`; None lets the execution model choose. Ignored by the execution
            models without a clock.
        """

    def team_score(self, problem: Problem, device_of_op: NDArray[np.int64], team_of_device: NDArray[np.int64]) -> Score:
        """Score a placement with teams of several devices, as `team_rule` allows them.

        Parameters
        ----------
        problem
            The problem.
        device_of_op
            ``[num_ops]`` first member of the team of every op.
        team_of_device
            ``[num_devices]`` first member of the team of every device.
        """
        raise NotImplementedError(f"objective {self.name!r} has no teams")

    def quick_bound(self, problem: Problem) -> tuple[float, str] | None:  # noqa: ARG002  # the hook's signature
        """Return a lower bound in seconds that is quick to prove, and its name; None (the default) without one."""
        return None

    def busy_devices(self, platform: Platform) -> NDArray[np.bool_] | None:  # noqa: ARG002  # the hook's signature
        """Return ``[num_devices]`` True for devices whose op times add up to at most the objective (per sample).

        None (the default) if the objective is made of anything else.
        """
        return None

    def batch_score(self, problem: Problem) -> BatchScore | None:  # noqa: ARG002  # the hook's signature
        """Return what scores many placements at once; None (the default) if only one by one."""
        return None

    def loads(self, problem: Problem) -> Loads | None:  # noqa: ARG002  # the hook's signature
        """Return how loads make the objective; None (the default) if it is made of anything else."""
        return None

    def without_queues(self) -> Self:
        """Return a relaxation that never rises when times fall and the rest stays; by default the objective itself."""
        return self

    @property
    def free_order(self) -> Objective:
        """The relaxation in which a placement may say the order of ops; by default the objective itself."""
        return self

    def constants_s(self) -> tuple[float, ...] | None:
        """Return what objectives add up beside op and transfer times, in seconds.

        None (the default) if they are anything but sums of these, or the largest of such sums.
        """
        return None

    def crossing_s(self, problem: Problem, tensor: int, source: int, targets: Sequence[int]) -> dict[int, float]:
        """Return the seconds that each device spends on a tensor that leaves one device for others.

        By default the sender pays once and every receiver once, as where all transfers go through host memory. Over
        direct links the receiver pays for each, and the sender, too, if `direct_ends` says so.

        Parameters
        ----------
        problem
            The problem.
        tensor
            Index of the tensor.
        source, targets
            Device of its producer, and the other devices that read it.
        """
        kind, costs = problem.platform.kind_of_device, problem.costs
        links = problem.platform.direct_link(source, list(targets)).tolist()
        own_s = float(costs.transfer_time_s[tensor, kind[source]]) if -1 in links else 0.0
        price: dict[int, float] = {}
        for d, link in zip(targets, links, strict=True):
            price[d] = float(costs.transfer_time_s[tensor, kind[d]] if link < 0 else costs.direct_time_s[tensor, link])
            if link >= 0 and self.direct_ends == 2:
                own_s += price[d]
        return {**price, source: own_s}

    def to_dict(self) -> dict[str, Any]:
        """Return the variant as JSON values; ``type(self)(**values)`` makes the same objective."""
        values: dict[str, Any] = asdict(self)  # type: ignore[call-overload]  # implementations are dataclasses
        return values

    def identity(self) -> dict[str, Any]:
        """Return what of `to_dict` goes into the hash of a problem.

        A variant that came later leaves its default out, so that the hashes in files stay what they are.
        """
        return self.to_dict()


def class_times_s(problem: Problem) -> NDArray[np.float64]:
    """``[num_classes, num_kinds]`` seconds of every class of ops that must share a device; infinity if not supported.

    O(ops * kinds).
    """
    costs = problem.costs
    times = np.zeros((problem.num_classes, len(costs.kinds)))
    np.add.at(times, problem.op_class, np.where(costs.supported, costs.op_time_s, np.inf))
    return times


def fastest_class_s(
    problem: Problem,
    devices: NDArray[np.int64] | int = 1,  # ``[num_kinds]`` devices of each kind that share the samples
) -> NDArray[np.float64]:
    """Seconds of every class of ops that must share a device, on the kind that runs all of it soonest.

    Classes that no kind can run are left out. O(ops * kinds).
    """
    fastest: NDArray[np.float64] = (class_times_s(problem) / devices).min(axis=1)
    return fastest[np.isfinite(fastest)]


def device_transfers(
    problem: Problem,
    device_of_op: NDArray[np.int64],  # ``[num_ops]`` device index of every op
    tensors: NDArray[np.bool_] | None = None,  # ``[num_tensors]`` which tensors count; all by default
) -> NDArray[np.float64]:
    """``[num_devices]`` seconds that every device spends on tensors that enter or leave it, each once.

    The transfer terms of Tarnawski et al. 2020, section 3, from the original edges. Over a direct link the tensor is
    moved once for every receiver, who pays for it, and so does the sender if the objective's `direct_ends` is 2.
    O(edges log edges).
    """
    num_devices = problem.platform.num_devices
    tensor, device = moved_tensors(problem, device_of_op, tensors)
    times = problem.costs.transfer_time_s[tensor, problem.platform.kind_of_device[device]]
    total = sum_by(device, times, num_devices)
    if problem.has_direct_links:
        source, target, times = _direct_moves(problem, device_of_op, tensors)
        total = total + sum_by(target, times, num_devices)
        if problem.objective.direct_ends == 2:
            total += sum_by(source, times, num_devices)
    return total


def _direct_moves(
    problem: Problem, device_of_op: NDArray[np.int64], tensors: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return sender, receiver and seconds of every move over a direct link."""
    graph, num_devices = problem.graph, problem.platform.num_devices
    tensor, target = graph.consumed_tensor, device_of_op[graph.consumers]
    source = device_of_op[graph.tensor_producer[tensor]]
    crossing = (source != target) & (problem.platform.direct_link(source, target) >= 0)
    if tensors is not None:
        crossing &= tensors[tensor]
    tensor, target = np.divmod(distinct(tensor[crossing] * num_devices + target[crossing]), num_devices)
    source = device_of_op[graph.tensor_producer[tensor]]
    return source, target, problem.costs.direct_time_s[tensor, problem.platform.direct_link(source, target)]


def moved_tensors(
    problem: Problem, device_of_op: NDArray[np.int64], tensors: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return distinct (tensor, device) pairs: the device sends or receives the tensor through host memory."""
    graph, platform = problem.graph, problem.platform
    tensor = graph.consumed_tensor
    source = device_of_op[graph.tensor_producer[tensor]]
    target = device_of_op[graph.consumers]
    crossing = source != target
    if problem.has_direct_links:
        crossing &= platform.direct_link(source, target) < 0
    if tensors is not None:
        crossing &= tensors[tensor]
    ends = np.concatenate([source[crossing], target[crossing]])
    touched = distinct(np.tile(tensor[crossing], 2) * platform.num_devices + ends)
    tensor, device = np.divmod(touched, platform.num_devices)
    return tensor, device
