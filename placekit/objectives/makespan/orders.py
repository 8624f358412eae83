r"""The order in which a placement is best run, of two that cost no search.

A placement alone leaves open in which order a device runs its ops; the judge then goes by the rule of the objective
(:class:`~placekit.objectives.makespan.objective.Makespan`). Once the devices are known, so is every path that remains
after an op, at the times and transfers of those very devices,

.. math:: rank_d(v) = w_{v, d_v} + \max_{t \in out(v),\, u \in readers(t)} (c_{t, d_v, d_u} + rank_d(u)),

with :math:`c = 0` on one device: the upward rank of HEFT (equation 8 of Topcuoglu et al. 2002) without its means over
devices. Starting the ready op of the largest rank is the second order tried. Methods that choose devices only, as
learned placers and random search do, are scored by the better of both, and answer with its steps; where the runtime
takes no steps, by the objective's rule alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.kernels import BY_PRIORITY, FIFO, dispatch
from placekit.objectives.makespan.moves import move_s
from placekit.objectives.makespan.ranks import mean_upward_rank
from placekit.objectives.makespan.simulate import Timeline, simulate, simulate_fifo


@njit
def placed_rank(instance, device, rank):  # type: ignore[no-untyped-def]  # compiled
    """Write rank_d of the module docstring.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    device : int64[V]
        Device of every op, each supported there.
    rank : float64[V]
        Receives the seconds from the start of every op to the end of the longest path that begins in it.

    Notes
    -----
    O(V + E).
    """
    for position in range(len(device) - 1, -1, -1):
        op = instance.order[position]
        home = device[op]
        longest = 0.0
        for out in range(instance.out_offsets[op], instance.out_offsets[op + 1]):
            tensor = instance.out_tensors[out]
            for at in range(instance.reader_offsets[tensor], instance.reader_offsets[tensor + 1]):
                reader = instance.readers[at]
                path = rank[reader]
                if device[reader] != home:
                    path += move_s(instance, tensor, home, device[reader])
                longest = max(longest, path)
        rank[op] = instance.op_time_s[op, instance.kind[home]] + longest


@njit
def best_order_batch(instance, devices, priority, rule, has_contention, makespan):  # type: ignore[no-untyped-def]
    """Run every row in both orders.

    Parameters
    ----------
    instance : MakespanInstance
        The problem.
    devices : int64[B, V]
        Device of every op, each supported there.
    priority : float64[V]
        Priorities of the objective's rule; read with the rule `BY_PRIORITY` only.
    rule, has_contention
        As for :func:`~placekit.objectives.makespan.kernels.dispatch`.
    makespan : float64[B]
        Receives the smaller makespan in seconds.

    Notes
    -----
    O(B (V + E) log V).
    """
    num_ops = devices.shape[1]
    start, finish, step = np.empty(num_ops), np.empty(num_ops), np.empty(num_ops, dtype=np.int64)
    rank = np.empty(num_ops)
    for row in range(devices.shape[0]):
        ruled = dispatch(instance, devices[row], priority, rule, has_contention, start, finish, step)
        placed_rank(instance, devices[row], rank)
        ranked = dispatch(instance, devices[row], -rank, BY_PRIORITY, has_contention, start, finish, step)
        makespan[row] = min(ruled, ranked)


def rule_of(instance: MakespanInstance, order: str) -> tuple[int, NDArray[np.float64]]:
    """Return the rule of `dispatch` for an order of the objective, and the priorities ``[V]`` that it reads."""
    return (BY_PRIORITY, -mean_upward_rank(instance)) if order == "upward-rank" else (FIFO, np.empty(0))


class EngineOrder:
    """Scores placements of a makespan problem by the rule of an engine that takes no steps.

    Parameters
    ----------
    problem
        The problem.
    order
        The rule, as in the objective.
    has_contention
        True if a device sends one transfer at a time.
    """

    def __init__(self, problem: Problem, order: str, *, has_contention: bool) -> None:
        self._problem, self._has_contention = problem, has_contention
        self._instance: MakespanInstance = instance_of(problem)
        self._rule, self._priority = rule_of(self._instance, order)

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return makespans ``[B]`` in seconds of `placements` ``[B, num_ops]``."""
        rows = np.atleast_2d(np.require(placements, np.int64, ["C", "W"]))
        start, finish = np.empty((2, rows.shape[1]))
        step = np.empty(rows.shape[1], dtype=np.int64)
        rest = self._priority, self._rule, self._has_contention, start, finish, step
        return np.array([dispatch(self._instance, row, *rest) for row in rows])

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement, without steps."""
        return Placement.of(self._problem, device_of_op)


class BestOrder:
    """Scores placements of a makespan problem in the better of two orders.

    Parameters
    ----------
    problem
        The problem.
    objective
        Its objective.

    Examples
    --------
    >>> import placekit as pk
    >>> graph = pk.OpGraph.from_edges(list("abc"), [("b", "c")])
    >>> costs = pk.CostTable(("cpu", "gpu"), [[2.0, 9.0], [1.0, 9.0], [9.0, 3.0]], [[0.0, 0.0]], [0, 0, 0])
    >>> problem = pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1), costs, pk.Makespan())
    >>> order = BestOrder(problem, "fifo", has_contention=False)
    >>> order([[0, 0, 1]])  # b first, since c waits for it; first come, first served would take 6
    array([4.])
    >>> pk.evaluate(problem, order.placement([0, 0, 1])).objective
    4.0
    """

    def __init__(self, problem: Problem, order: str, *, has_contention: bool) -> None:
        self._problem = problem
        self._instance: MakespanInstance = instance_of(problem)
        self._has_contention = has_contention
        self._rule, self._priority = rule_of(self._instance, order)

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return makespans ``[B]`` in seconds of `placements` ``[B, num_ops]``, each in its better order."""
        # a batch can be gigabytes: it is copied only where it must be; kernels are compiled for writable arrays
        rows = np.atleast_2d(np.require(placements, np.int64, ["C", "W"]))
        makespan = np.empty(len(rows))
        best_order_batch(self._instance, rows, self._priority, self._rule, self._has_contention, makespan)
        return makespan

    def timeline(self, device_of_op: NDArray[np.int64], priority: NDArray[np.float64]) -> Timeline:
        """Run a placement ``[num_ops]`` in an order of somebody else's: ready ops of smallest `priority` first."""
        device = np.array(device_of_op, dtype=np.int64)
        return simulate(self._instance, device, priority, has_contention=self._has_contention)

    def placement(self, device_of_op: NDArray[np.int64]) -> Placement:
        """Return the placement with its better order: without steps where that is the objective's own."""
        device, has_contention = np.array(device_of_op, dtype=np.int64), self._has_contention
        rank = np.empty(len(device))
        placed_rank(self._instance, device, rank)
        ranked = simulate(self._instance, device, -rank, has_contention=has_contention)
        if self._rule == FIFO:
            ruled = simulate_fifo(self._instance, device, has_contention=has_contention)
        else:
            ruled = simulate(self._instance, device, self._priority, has_contention=has_contention)
        steps = ranked.step_of_op if ranked.makespan_s < ruled.makespan_s else None
        return Placement.of(self._problem, device, steps)
