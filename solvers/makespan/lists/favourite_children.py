"""Favourite children for m-SCT: the best successor of each op on its device, by a linear program."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.objectives.makespan.arrays import MakespanInstance

logger = logging.getLogger(__name__)

MAX_EDGES = 10_000
"""Graphs with more edges get their favourites without the program, whose time grows faster than its size."""

MAX_ITERATIONS = 50_000
"""Iterations of the program's solver: a limit in time would make the answer depend on the machine's load."""


class Favourites(NamedTuple):
    """Favourite child of every op."""

    child: NDArray[np.int64]  # ``[V]`` favourite child of every op, -1 for none; no op is the favourite of two
    # ``[V]`` seconds of the slowest tensor from every op to its favourite child; 0 without one
    transfer_s: NDArray[np.float64]
    by: str  # ``"linear program"`` or ``"slowest transfers first"``


def favourite_children(
    instance: MakespanInstance,
    # time_s, transfer_s: ``[V]`` seconds of each op and ``[T]`` of each tensor, on a typical device
    time_s: NDArray[np.float64],
    transfer_s: NDArray[np.float64],
) -> Favourites:
    r"""Return the favourite child of every op.

    The program of Hanen and Munier for unboundedly many equal devices: with a start :math:`s_i \ge 0` of every op of
    :math:`k_i` seconds, and :math:`x_{ij} \in [0, 1]` for every edge, 0 if the child j follows i on its device and so
    pays no transfer :math:`c_{ij}`,

    .. math:: \min w, \quad s_i + k_i \le w, \quad s_i + k_i + c_{ij} x_{ij} \le s_j, \quad
              \sum_j x_{ij} \ge |succ(i)| - 1, \quad \sum_i x_{ij} \ge |pred(j)| - 1 .

    The last two rows leave every op at most one child, and one parent, with :math:`x_{ij} < 1/2`: the favourites.
    Graphs of more than `MAX_EDGES` edges, and programs that are not solved within `MAX_ITERATIONS`, get their
    favourites greedily: edges by falling transfer time, each taken if neither end has a partner yet.

    References
    ----------
    Hanen, Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small communication
    delays", 1995. Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020, section 3.
    """
    num_ops = instance.num_ops
    sender, receiver, cost = _edges(instance, transfer_s)
    by, order = "slowest transfers first", np.argsort(-cost, kind="stable")
    if 0 < len(cost) <= MAX_EDGES:
        apart = _solve(num_ops, time_s, sender, receiver, cost)
        if apart is not None:
            by, order = "linear program", np.argsort(apart, kind="stable")
            order = order[apart[order] < 0.5]
    child = np.full(num_ops, -1, dtype=np.int64)
    wait = np.zeros(num_ops)
    has_parent = np.zeros(num_ops, dtype=bool)
    # the greedy choice needs this check; the program gives no op two partners, except by rounding
    for edge in order.tolist():
        i, j = sender[edge], receiver[edge]
        if child[i] < 0 and not has_parent[j]:
            child[i], wait[i], has_parent[j] = j, cost[edge], True
    return Favourites(child, wait, by)


def _edges(
    instance: MakespanInstance, transfer_s: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return sender, receiver and slowest tensor of every distinct edge."""
    sender = np.repeat(np.arange(instance.num_ops), np.diff(instance.edge_offsets))
    keys, edge = np.unique(sender * instance.num_ops + instance.edge_readers, return_inverse=True)
    cost = np.zeros(len(keys))
    np.maximum.at(cost, edge, transfer_s[instance.edge_tensors])
    return *np.divmod(keys, instance.num_ops), cost


def _solve(
    num_ops: int,
    time_s: NDArray[np.float64],
    sender: NDArray[np.int64],
    receiver: NDArray[np.int64],
    cost: NDArray[np.float64],
) -> NDArray[np.float64] | None:
    """``[num_edges]`` values of x; None if the solver did not finish."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    num_edges = len(sender)
    scale = max(float(time_s.max()), float(cost.max()), 1e-300)  # the solver's tolerances are absolute
    time_s, cost = time_s / scale, cost / scale
    # columns: w, s, x; rows: ends before w, edges, children, parents
    edge, op = np.arange(num_edges), np.arange(num_ops)
    w, s, x = 0, 1, 1 + num_ops
    ends, edges, children, parents = 0, num_ops, num_ops + num_edges, 2 * num_ops + num_edges
    entries = [
        (ends + op, s + op, np.ones(num_ops)),
        (ends + op, np.full(num_ops, w), -np.ones(num_ops)),
        (edges + edge, s + sender, np.ones(num_edges)),
        (edges + edge, s + receiver, -np.ones(num_edges)),
        (edges + edge, x + edge, cost),
        (children + sender, x + edge, -np.ones(num_edges)),
        (parents + receiver, x + edge, -np.ones(num_edges)),
    ]
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = coo_array((value, (row, column)), shape=(3 * num_ops + num_edges, x + num_edges)).tocsr()
    num_children = np.bincount(sender, minlength=num_ops)
    num_parents = np.bincount(receiver, minlength=num_ops)
    limit = np.concatenate([-time_s, -time_s[sender], 1.0 - num_children, 1.0 - num_parents])
    goal = np.zeros(x + num_edges)
    goal[w] = 1
    upper = np.full(x + num_edges, np.inf)
    upper[x:] = 1
    found = linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
        goal,
        A_ub=matrix,
        b_ub=limit,
        bounds=np.stack([np.zeros(x + num_edges), upper], axis=1),
        method="highs",
        options={"maxiter": MAX_ITERATIONS},
    )
    if found.status != 0:
        logger.info("favourite children: HiGHS says %r; taking the slowest transfers first", found.message)
        return None
    values: NDArray[np.float64] = found.x[x:]
    return values
