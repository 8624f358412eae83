"""List schedulers for `makespan`: ops in some order of urgency, each to the device that seems best.

Every method here makes one schedule, and offers its devices and the order of its starts. The judge runs that order, and
no op starts later. All of them

- choose the device of a class when its first op is placed, by that op only;
- respect pins and support, and skip devices without room for the whole class. If no device has room, classes are moved
  until the limits hold, as far as single moves can do that, and the ops are scheduled again on these devices;
- plan without contention; the judge scores the schedule with contention;
- take milliseconds for 1,000 ops and seconds for 100,000 (`m-sct` solves a linear program first, see
  :mod:`placekit.solvers.makespan.lists.favourite_children`);
- do not know contiguity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.model.contiguity import Contiguity
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives import Makespan
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.ranks import (
    mean_time_s,
    mean_transfer_s,
    mean_upward_rank,
)
from placekit.solve.method import Method, Run, no_engine_order, no_shared_memory
from placekit.solve.stop import StopReason
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.generic.repair import relieve_memory
from placekit.solvers.makespan.lists.earliest_start import schedule_earliest_start
from placekit.solvers.makespan.lists.favourite_children import favourite_children
from placekit.solvers.makespan.lists.insertion import schedule_by_priority


class ListSchedule(NamedTuple):
    """Schedule of a list scheduler."""

    device: NDArray[np.int64]  # ``[V]`` device of every op
    # start_s, finish_s: ``[V]`` seconds
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    fits: bool  # False if a device exceeds its memory limit


class ListScheduler(Method):
    """Base of the list schedulers; subclasses implement `plan`."""

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity and memory that ops share.

        Direct links count where an op can start; ranks take the mean over all pairs of devices.
        """
        if problem.contiguity is not Contiguity.NONE:
            return f"it does not look at contiguity {problem.contiguity}"
        return no_shared_memory(problem) or no_engine_order(problem)

    def plan(self, run: Run, instance: MakespanInstance) -> ListSchedule:
        """Make the schedule."""
        raise NotImplementedError

    def run(self, run: Run[Makespan]) -> StopReason:
        """Offer the one placement, with its order."""
        reason = run.should_stop()
        if reason is not None:
            return reason
        instance = instance_of(run.problem)
        _offer(run, instance, self.plan(run, instance))
        return StopReason.FINISHED


def _offer(run: Run[Makespan], instance: MakespanInstance, plan: ListSchedule) -> None:
    problem = run.problem
    if not plan.fits:
        contraction = contract(problem)
        device = contraction.expand(relieve_memory(contraction, contraction.restrict(plan.device)))
        rank = mean_upward_rank(instance)
        plan = _by_priority(instance, rank, wanted=device)
        run.info["repaired"] = "no device had room: classes were moved until the memory limits held, as far as possible"
    # a graph edge or a neighbour on a device never goes back in this order, zero-time ops included
    step = np.argsort(np.lexsort((instance.rank, plan.finish_s, plan.start_s)))
    planned = None if problem.objective.contention else float(plan.finish_s.max())
    run.offer(Placement.of(problem, plan.device, step), at_most=planned)


def _by_priority(
    instance: MakespanInstance,
    priority: NDArray[np.float64],
    *,
    wanted: NDArray[np.int64] | None = None,
    has_insertion: bool = True,
) -> ListSchedule:
    nothing = np.zeros(instance.op_time_s.shape)
    devices = np.full(instance.num_ops, -1) if wanted is None else wanted
    return ListSchedule(*schedule_by_priority(instance, priority, nothing, devices, has_insertion))


class Heft(ListScheduler):
    """Heterogeneous earliest finish time.

    Ops by falling upward rank, each into the earliest gap of the device with the earliest end.

    References
    ----------
    Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE
    TPDS 13(3), 2002, doi:10.1109/71.993206, section 4.1.
    """

    name = "heft"

    def plan(self, run: Run, instance: MakespanInstance) -> ListSchedule:  # noqa: ARG002  # the signature of all plans
        """Make the schedule."""
        return _by_priority(instance, mean_upward_rank(instance))


class MTopo(ListScheduler):
    """Memory-constrained topological placement.

    Devices are filled one after another with ops in topological order, up to the mean share of the bytes plus the
    largest class, and at most the limit. The last device takes the rest. If ops have no bytes, shares are of mean
    times. Every device runs its ops in topological order.

    References
    ----------
    Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020, section 3.
    """

    name = "m-topo"

    def plan(self, run: Run, instance: MakespanInstance) -> ListSchedule:  # noqa: ARG002
        """Make the schedule."""
        device, fits = _fill_devices(instance, mean_time_s(instance))
        in_order = -instance.rank.astype(np.float64)
        plan = _by_priority(instance, in_order, wanted=device, has_insertion=False)
        return plan._replace(fits=fits and plan.fits)


class MEtf(ListScheduler):
    """Memory-constrained earliest task first.

    Of all ready ops and all devices with room, the pair that can start earliest. Ties go to the op of larger upward
    rank, then to the device with the earliest end.

    References
    ----------
    Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor communication times", SIAM J.
    Computing 18(2), 1989; with memory limits Jeon et al., as for `MTopo`.
    """

    name = "m-etf"

    def plan(self, run: Run, instance: MakespanInstance) -> ListSchedule:  # noqa: ARG002
        """Make the schedule."""
        nobody = np.full(instance.num_ops, -1)
        return ListSchedule(*schedule_earliest_start(instance, _places(instance), nobody, np.zeros(instance.num_ops)))


class MSct(ListScheduler):
    """Memory-constrained small communication times.

    Earliest task first, but a device waits for the favourite child of its last op as long as a transfer to another
    device would take, unless an urgent op comes. Favourites come from a linear program, or from the slowest transfers
    in graphs of more than `MAX_EDGES` edges; ``info`` says which.

    References
    ----------
    Hanen, Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small communication
    delays", 1995; with memory limits Jeon et al., as for `MTopo`.
    """

    name = "m-sct"

    def plan(self, run: Run, instance: MakespanInstance) -> ListSchedule:
        """Make the schedule."""
        favourites = favourite_children(instance, mean_time_s(instance), mean_transfer_s(instance))
        run.info["favourite_children"] = favourites.by
        places = _places(instance)
        return ListSchedule(*schedule_earliest_start(instance, places, favourites.child, favourites.transfer_s))


def _places(instance: MakespanInstance) -> NDArray[np.int64]:
    """Return the place of every op by falling upward rank ``[V]``, ties in topological order."""
    rank = mean_upward_rank(instance)
    return np.argsort(np.lexsort((instance.rank, -rank)))


def _fill_devices(
    instance: MakespanInstance,
    time_s: NDArray[np.float64],  # ``[V]`` seconds of every op, which are shared out if no op has bytes
) -> tuple[NDArray[np.int64], bool]:
    """Place classes in the order of their first ops, one device after the other.

    A device is full if the next class would exceed its share: the mean bytes over the devices plus the largest class,
    and at most the limit. The last device has only its limit. A class that may not run on the current device goes to
    the next one, in a circle, that may run it and has room; if none has, to the device that exceeds its limit least.

    Returns
    -------
    tuple[NDArray[np.int64], bool]
        ``[V]`` device of every op, and False if a limit is broken. O(V + classes * devices).
    """
    num_devices, class_of_op = instance.num_devices, instance.class_of_op
    num_classes = int(class_of_op.max()) + 1
    size = sum_by(class_of_op, instance.memory_bytes, num_classes)
    weight = size if size.any() else sum_by(class_of_op, time_s, num_classes)
    share = np.full(num_devices, weight.sum() / num_devices + weight.max())
    share[-1] = np.inf
    ordered = class_of_op[instance.order]
    classes, first = np.unique(ordered, return_index=True)
    device_of_class = np.zeros(num_classes, dtype=np.int64)
    carried, used = np.zeros(num_devices), np.zeros(num_devices)
    limit, fits, at = instance.limit_bytes, True, 0
    leader = instance.order[first]
    for c in classes[np.argsort(first)].tolist():
        allowed = instance.allowed[leader[c]]
        while allowed[at] and (carried[at] + weight[c] > share[at] or used[at] + size[c] > limit[at]):
            if at == num_devices - 1:
                break
            at += 1
        circle = (at + np.arange(num_devices)) % num_devices
        room = allowed & (used + size[c] <= limit)
        if room[circle].any():
            d = int(circle[np.argmax(room[circle])])
        else:
            fits = False
            d = int(np.argmin(np.where(allowed, used + size[c] - limit, np.inf)))
        device_of_class[c] = d
        carried[d] += weight[c]
        used[d] += size[c]
    return device_of_class[class_of_op], fits
