r"""Offload latency: one sample, with accelerators that are called like functions.

The ops of an accelerator form *calls*: the ops with the same `Placement.step_of_op` are one call, all ops of the
device if there are no steps. A call is atomic. It starts when all tensors that it reads are in host memory and the
earlier calls of its device (those with lower steps) are done, works serially,

.. math:: \sum_{u \in in(S)} c_{u,k} + \sum_{v \in S} t_{v,k} + \sum_{u \in out(S)} c_{u,k}

with every tensor moved once however many edges carry it, and publishes all its outputs in host memory when it ends.
Everything passes through host memory, also from one call to the next of the same device. A device with
:attr:`~placekit.model.platform.Device.is_host` set works in host memory, at the width of the graph: its ops start when
their inputs are there, any number of them at the same time, and it pays for no transfer even if its kind has a link.

The latency is the time when the last op or call ends. It is the longest path in the graph of host ops and calls, so it
depends on the placement (and the steps) alone; there are no ties to break. A placement whose calls wait for each other,
or that makes more calls than a device may, cannot be executed and has no latency.

References
----------
Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino, "Efficient Algorithms for Device Placement of DNN Graph
Operators", NeurIPS 2020, arXiv 2006.16423, appendix A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, number_by_first, sum_by, topological_order
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Violation
from placekit.objectives.base import Objective, Schedule, Score, class_times_s

if TYPE_CHECKING:
    from placekit.model.platform import Platform
    from placekit.model.problem import Problem


@dataclass(frozen=True, slots=True)
class OffloadLatency(Objective):
    """Minimise the time of one sample when accelerators are called like functions.

    Parameters
    ----------
    calls_per_device
        Largest number of calls that one accelerator makes per sample.
    """

    name: ClassVar[str] = "offload-latency"
    summary: ClassVar[str] = "time of one sample when every accelerator is called like a function"

    avoids_cycles: ClassVar[bool] = True
    follows_paths: ClassVar[bool] = True

    calls_per_device: int = 1

    def __post_init__(self) -> None:
        calls = self.calls_per_device
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
            raise InvalidProblemError(f"offload-latency: calls_per_device is {calls!r}; it must be a whole number >= 1")

    @property
    def rules(self) -> tuple[str, ...]:
        """The rule of calls."""
        calls = self.calls_per_device
        return (f"at most {calls} {'call' if calls == 1 else 'calls'} of each accelerator",)

    def score(
        self, problem: Problem, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64] | None = None
    ) -> Score:
        """Score a placement; see the module docstring. O(ops log ops + edges log edges)."""
        graph, platform, costs = problem.graph, problem.platform, problem.costs
        kind = platform.kind_of_device
        times = costs.op_time_s[np.arange(graph.num_ops), kind[device_of_op]]
        compute = sum_by(device_of_op, times, platform.num_devices)
        unit, device_of_unit, step_of_unit = _units(problem, device_of_op, step_of_op)
        num_units = len(device_of_unit)
        is_call = step_of_unit >= 0

        # every tensor once per call that it leaves and once per call that it enters
        tensor = graph.consumed_tensor
        source, target = unit[graph.tensor_producer[tensor]], unit[graph.consumers]
        crossing = source != target
        tensor, source, target = tensor[crossing], source[crossing], target[crossing]
        leaves = np.unique(tensor[is_call[source]])
        out_unit = unit[graph.tensor_producer[leaves]]
        entering = np.unique(tensor[is_call[target]] * num_units + target[is_call[target]])
        enters, in_unit = np.divmod(entering, num_units)
        in_s = costs.transfer_time_s[enters, kind[device_of_unit[in_unit]]]
        out_s = costs.transfer_time_s[leaves, kind[device_of_unit[out_unit]]]
        transfer_of_unit = sum_by(in_unit, in_s, num_units) + sum_by(out_unit, out_s, num_units)
        transfer = sum_by(device_of_unit, transfer_of_unit, platform.num_devices)
        load = compute + transfer

        senders, receivers = _waits(source, target, device_of_unit, step_of_unit)
        order, stuck = topological_order(num_units, senders, receivers)
        violations = _too_many_calls(problem, device_of_unit[is_call], self.calls_per_device)
        if stuck.size:
            _, ahead = topological_order(num_units, receivers, senders)
            stuck = np.intersect1d(stuck, ahead)  # neither behind nor before every cycle
            violations += (_waiting(problem, device_of_unit[stuck], is_call[stuck]),)
        if violations:
            return Score(0.0, compute, transfer, load, violations=violations)

        duration = sum_by(unit, times, num_units) + transfer_of_unit
        start = [0.0] * num_units
        first, waiting = (each.tolist() for each in csr_lists(senders, receivers, num_units))
        takes = duration.tolist()
        for u in order.tolist():
            end = start[u] + takes[u]
            for v in waiting[first[u] : first[u + 1]]:
                start[v] = max(start[v], end)
        start_of_unit = np.array(start)
        schedule = _schedule(
            graph.order, device_of_op, unit, times, start_of_unit, (enters, in_unit, in_s), (leaves, out_unit, out_s)
        )
        schedule.op[schedule.is_transfer] = graph.tensor_producer[schedule.op[schedule.is_transfer]]
        return Score(float((start_of_unit + duration).max()), compute, transfer, load, schedule)

    def constants_s(self) -> tuple[float, ...]:
        """Return nothing: only times are added up."""
        return ()

    def quick_bound(self, problem: Problem) -> tuple[float, str] | None:
        """Bound by the largest op where its class can be: hosts are wide, its ops may run at the same time."""
        is_home = np.isfinite(class_times_s(problem))[problem.op_class]
        fastest = np.where(is_home, problem.costs.op_time_s, np.inf).min(axis=1)
        return float(fastest[np.isfinite(fastest)].max(initial=0.0)) * (1 - 1e-12), "largest op"

    def busy_devices(self, platform: Platform) -> NDArray[np.bool_]:
        """Return True for accelerators: a host runs any number of ops at the same time."""
        return np.array([not device.is_host for device in platform.devices], dtype=np.bool_)

    def crossing_s(self, problem: Problem, tensor: int, source: int, targets: Sequence[int]) -> dict[int, float]:
        """Sender and receivers once each; hosts pay nothing."""
        price = Objective.crossing_s(self, problem, tensor, source, targets)
        return {d: 0.0 if problem.platform.devices[d].is_host else seconds for d, seconds in price.items()}


def _units(
    problem: Problem, device_of_op: NDArray[np.int64], step_of_op: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the unit of every op (a call, or a host op on its own), and per unit its device and step (-1: host op)."""
    num_ops = problem.graph.num_ops
    is_host = np.array([device.is_host for device in problem.platform.devices])[device_of_op]
    rank = np.zeros(num_ops, dtype=np.int64)
    if step_of_op is not None:
        rank = np.unique(step_of_op, return_inverse=True)[1]
    num_ranks = int(rank.max()) + 1
    calls = problem.platform.num_devices * num_ranks
    unit = number_by_first(np.where(is_host, calls + np.arange(num_ops), device_of_op * num_ranks + rank))
    one = np.unique(unit, return_index=True)[1]
    return unit, device_of_op[one], np.where(is_host, -1, rank)[one]


def _waits(
    source: NDArray[np.int64], target: NDArray[np.int64], device: NDArray[np.int64], step: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return who waits for whom: distinct edges between units that carry tensors, or join calls of one device."""
    num_units = len(device)
    calls = np.flatnonzero(step >= 0)
    calls = calls[np.lexsort((step[calls], device[calls]))]
    same = device[calls[:-1]] == device[calls[1:]]
    keys = np.concatenate([source * num_units + target, calls[:-1][same] * num_units + calls[1:][same]])
    senders, receivers = np.divmod(np.unique(keys), num_units)
    return senders, receivers


def _too_many_calls(problem: Problem, device_of_call: NDArray[np.int64], most: int) -> tuple[Violation, ...]:
    names = problem.platform.device_names
    counts = np.bincount(device_of_call, minlength=len(names)).tolist()
    return tuple(
        Violation(
            "calls",
            f"device {name!r} is called {count} times per sample, it may be called {most}",
            None,
            name,
            float(count - most),
            "calls",
        )
        for name, count in zip(names, counts, strict=True)
        if count > most
    )


def _waiting(problem: Problem, device: NDArray[np.int64], is_call: NDArray[np.bool_]) -> Violation:
    """Name the devices with calls on a cycle, or between two cycles; there is at least one."""
    stuck = [problem.platform.device_names[d] for d in np.unique(device[is_call]).tolist()]
    shown = ", ".join(map(repr, stuck))
    verb = "waits for its own output" if len(stuck) == 1 else "wait for each other"
    message = f"the calls of {shown} cannot start: {'it' if len(stuck) == 1 else 'they'} {verb}"
    return Violation("order", message, None, stuck[0], float(len(stuck)), "devices")


def _schedule(
    order: NDArray[np.int64],
    device_of_op: NDArray[np.int64],
    unit: NDArray[np.int64],
    times: NDArray[np.float64],
    start_of_unit: NDArray[np.float64],
    moved_in: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
    moved_out: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]],
) -> Schedule:
    """Return every call's transfers in, its ops in topological order and its transfers out, one after the other.

    Transfers carry their tensor in `op` until the caller replaces it by the producer.
    """
    device_of_unit = np.zeros(len(start_of_unit), dtype=np.int64)
    device_of_unit[unit] = device_of_op
    item = np.concatenate([moved_in[0], order, moved_out[0]])
    of_unit = np.concatenate([moved_in[1], unit[order], moved_out[1]])
    takes = np.concatenate([moved_in[2], times[order], moved_out[2]])
    phase = np.repeat([0, 1, 2], [len(moved_in[0]), len(order), len(moved_out[0])])
    by_unit = np.lexsort((phase, of_unit))  # stable: topological within a phase
    item, of_unit, takes, phase = item[by_unit], of_unit[by_unit], takes[by_unit], phase[by_unit]
    start, finish = np.zeros(len(item)), np.zeros(len(item))
    clock, at = 0.0, -1
    for event, (u, time) in enumerate(zip(of_unit.tolist(), takes.tolist(), strict=True)):
        if u != at:
            clock, at = float(start_of_unit[u]), u
        start[event] = clock
        clock += time
        finish[event] = clock
    return Schedule(
        device=device_of_unit[of_unit],
        op=item,
        start_s=start,
        finish_s=finish,
        is_transfer=phase != 1,
        peer=np.full(len(item), -1, dtype=np.int64),
    )
