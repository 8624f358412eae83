"""Run placements of an instance: what the judge, the list schedulers, the searches and the learners call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.kernels import FEW_OPS, interpreted
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.kernels import BY_PRIORITY, FIFO, dispatch, list_transfers, run_in_order


class Timeline(NamedTuple):
    """When every op runs."""

    makespan_s: float  # latest finish, in seconds
    # start_s, finish_s: ``[V]`` seconds
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    # ``[V]`` position of every op in the order of starts: `simulate_steps` with these steps gives the same times, bit
    # by bit
    step_of_op: NDArray[np.int64]


class Transfers(NamedTuple):
    """The transfers of a run, as their producers start, then by tensor, then as the receivers of a tensor queue."""

    # tensor, target: ``[M]`` tensor that moves, and device that receives it
    tensor: NDArray[np.int64]
    target: NDArray[np.int64]
    # start_s, finish_s: ``[M]`` seconds at which it leaves and arrives
    start_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]


def simulate(
    instance: MakespanInstance,
    device_of_op: ArrayLike,  # ``[V]`` device of every op, each supported there
    priority: ArrayLike,  # ``[V]`` smaller first
    *,
    has_contention: bool = False,  # True if every device sends one transfer at a time
) -> Timeline:
    """Run a placement; a free device starts the ready op of smallest priority, ties by topological position.

    Notes
    -----
    O((V + E) log V).
    """
    return _dispatch(instance, device_of_op, np.array(priority, dtype=np.float64), BY_PRIORITY, has_contention)


def simulate_fifo(instance: MakespanInstance, device_of_op: ArrayLike, *, has_contention: bool = False) -> Timeline:
    """Run a placement; a free device starts the op that became ready first, ties by topological position.

    The convention of the simulators of Placeto and DOPPLER. Arguments and cost as for `simulate`.
    """
    return _dispatch(instance, device_of_op, np.empty(0), FIFO, has_contention)


def _dispatch(
    instance: MakespanInstance, device_of_op: ArrayLike, priority: NDArray[np.float64], rule: int, has_contention: bool
) -> Timeline:
    num_ops = instance.num_ops
    start, finish, step = np.empty(num_ops), np.empty(num_ops), np.empty(num_ops, dtype=np.int64)
    device = np.array(device_of_op, dtype=np.int64)
    with interpreted(num_ops <= FEW_OPS):
        makespan = dispatch(instance, device, priority, rule, has_contention, start, finish, step)
    return Timeline(float(makespan), start, finish, step)


def simulate_steps(
    instance: MakespanInstance,
    # device_of_op, step_of_op: ``[V]`` device and step of every op
    device_of_op: ArrayLike,
    step_of_op: ArrayLike,
    *,
    has_contention: bool = False,  # True if every device sends one transfer at a time
) -> Timeline | int:
    """Run a placement; every device runs its ops in the order (step, topological position), idling if it must.

    Returns
    -------
    Timeline | int
        The run; or, if the orders of the devices and the graph wait for each other, an op on such a cycle.

    Notes
    -----
    O(V log V + E).
    """
    num_ops = instance.num_ops
    queue = np.lexsort((instance.rank, np.asarray(step_of_op)))
    start, finish = np.empty(num_ops), np.empty(num_ops)
    device = np.array(device_of_op, dtype=np.int64)
    with interpreted(num_ops <= FEW_OPS):
        makespan, stuck = run_in_order(instance, device, queue, has_contention, start, finish)
    if stuck >= 0:
        return int(stuck)
    # stable, and on one device neither starts nor ends fall along the queue: the order of every device is kept
    started = queue[np.lexsort((finish[queue], start[queue]))]
    step = np.empty(num_ops, dtype=np.int64)
    step[started] = np.arange(num_ops)
    return Timeline(float(makespan), start, finish, step)


def transfers_of(
    instance: MakespanInstance, device_of_op: ArrayLike, run: Timeline, *, has_contention: bool = False
) -> Transfers:
    """Return the transfers of a run. O(V log V + E + transfers * devices)."""
    num_edges = len(instance.readers)
    tensor, target = np.empty(num_edges, dtype=np.int64), np.empty(num_edges, dtype=np.int64)
    start, finish = np.empty(num_edges), np.empty(num_edges)
    device, queue = np.array(device_of_op, dtype=np.int64), np.argsort(run.step_of_op)
    with interpreted(instance.num_ops <= FEW_OPS):
        count = list_transfers(instance, device, queue, run.finish_s, has_contention, tensor, target, start, finish)
    return Transfers(tensor[:count], target[:count], start[:count], finish[:count])
