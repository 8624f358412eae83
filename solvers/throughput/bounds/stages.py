r"""Bound of acyclic placements: stages in a row, each of which does nearly all of a stretch of the graph.

In an acyclic placement the devices have an order such that every edge stays on its device or goes to a later one. So
the classes on the first s devices are an *ideal*: it has all the ancestors of its members. Let the classes be numbered
along a topological order.

1. :math:`A_v` is such that all classes numbered below :math:`A_v` are ancestors of v. A nonempty ideal whose last
   member is v holds all classes below :math:`A_v`, and none after v.
2. So with v in a cell of the numbers, :math:`(g_{i-1}, g_i]`, the ideal holds all classes below
   :math:`F_i = \min A_v` over the cell, none from :math:`g_i` on, and perhaps some in the *zone* between.
3. If one stage begins with an ideal of cell i and ends with one of cell j, all classes of :math:`[g_i, F_j)` are on its
   device, and those of the zone up to :math:`g_j` are anywhere.
4. Let :math:`\lambda_d \ge 0` be weights of the devices with sum 1. The objective is at least
   :math:`\sum_d \lambda_d \, load_d`. So it is at least the length of the shortest path of at most D steps from the
   empty ideal to the whole graph, where a step from i to j costs

.. math:: \min_d \lambda_d \sum_{v \in [g_i, F_j)} t_{vd} + \sum_{v \in [\max(g_i, F_j), g_j)} \min_d \lambda_d t_{vd} .

Without the order, each class could be on the device that suits it best, which :mod:`.machines` allows. In graphs with
independent branches the zones are wide, and the bound is that of shared work
(:mod:`placekit.solvers.generic.bounds.work_and_path`).

Transfers and memory are left out; a device may have several stages in the path, which is a relaxation. It holds with
overlap, and for the sum of both passes under GPipe. With teams several devices share a stage: no bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, topological_order
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solve.stop import is_wanted
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.throughput.bounds.groups import machines_of

MAX_CLASSES = 100_000
"""Classes up to which ancestors are looked at: a quarter of a second for 50,000 of them."""
MAX_ANCESTORS = 4096
"""Ancestors of a class above its :math:`A_v` that are remembered; others count as none, which weakens the bound."""
MAX_CELLS, MAX_STEPS = 400, 30_000_000
"""Cells of the numbers, and elementary steps of all paths together: a quarter of a second."""
ROUNDS = 12
"""Vectors of weights that are tried."""
STEP = 0.5
"""Exponent of the first change of the weights; it falls with the number of rounds."""


def contiguous_stages(problem: Problem[Throughput]) -> float | None:
    """Return the bound of the module docstring in seconds; None if nothing is known, or the solve has to end."""
    if problem.contiguity is not Contiguity.ACYCLIC or problem.objective.teams != "off":
        return None
    machines = machines_of(problem)
    if not machines.has_home or not 0 < machines.num_classes <= MAX_CLASSES or not is_wanted():
        return None  # from here on without a look at the clock: a busy machine gets the same bound
    order, stuck = topological_order(machines.num_classes, machines.contraction.senders, machines.contraction.receivers)
    if len(stuck):
        return None
    covered = _common_ancestors(machines.contraction, order)
    time_s = np.where(machines.allowed, machines.time_s.sum(axis=2), np.inf)[order]
    paths = _Paths.of(time_s, covered, machines.count)
    known = np.where(np.isfinite(time_s), time_s, 0.0)
    total_s = known.sum(axis=0)
    most_s = float(total_s.max())
    weight = np.where(total_s > 0, np.isfinite(time_s).sum(axis=0) / np.maximum(total_s, 1e-300), 0.0)
    if not most_s > 0 or not weight.any():
        return None
    best_s = 0.0
    for number in range(ROUNDS):
        # those of all devices add up to a little less than 1
        weight = weight / (weight @ machines.count) * (1 - 1e-14)
        found_s, load_s = paths.shortest(weight)
        if not np.isfinite(found_s):  # no device may have some stretch
            return None
        # differences of sums of as many terms as there are classes, each of them rounded
        error = 2.5e-16 * (len(time_s) + 16) * (int(machines.count.sum()) + 1) * float((weight * total_s).max())
        best_s = max(best_s, found_s - error)
        load_s = load_s / machines.count
        weight = weight * np.exp(STEP / (1 + number) * (load_s / max(float(load_s.max()), 1e-300) - 1))
    return best_s or None


def _common_ancestors(contraction: Contraction[Throughput], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[C]`` for every class by its number in `order` an :math:`A_v`."""
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    lists = csr_lists(number[contraction.receivers], number[contraction.senders], len(order))
    first, senders = (each.tolist() for each in lists)
    most = (1 << MAX_ANCESTORS) - 1
    covered = [0] * len(order)
    beyond = [0] * len(order)  # bit i: the class numbered A + i is an ancestor
    for v in range(len(order)):
        before = senders[first[v] : first[v + 1]]
        if not before:
            continue
        low = max(covered[u] for u in before)
        bits = 0
        for u in before:
            bits |= beyond[u] >> (low - covered[u])
            if u >= low:
                bits |= 1 << (u - low)
        full = (~bits & (bits + 1)).bit_length() - 1  # ones at the end
        covered[v], beyond[v] = low + full, bits >> full & most
    return np.array(covered, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Paths:
    """Shortest paths over the cells of the module docstring."""

    time_s: NDArray[np.float64]  # ``[C, G]`` seconds in topological order; infinity where a class cannot be
    count: NDArray[np.int64]  # ``[G]`` devices of each group
    # full, end: ``[B]`` :math:`F_i` and :math:`g_i`; first the empty ideal, last the whole graph
    full: NDArray[np.int64]
    end: NDArray[np.int64]
    total_s: NDArray[np.float64]  # ``[C + 1, G]`` sums of the times of the first classes, infinite ones left out
    closed: NDArray[np.int64]  # ``[C + 1, G]`` how many of the first classes cannot be there

    @classmethod
    def of(cls, time_s: NDArray[np.float64], covered: NDArray[np.int64], count: NDArray[np.int64]) -> _Paths:
        """Cut the numbers into cells."""
        num_classes, num_groups = time_s.shape
        most = int(np.sqrt(MAX_STEPS / (ROUNDS * (num_groups + count.sum()))))
        num_cells = max(1, min(MAX_CELLS, most, num_classes))
        end = np.linspace(0, num_classes, num_cells + 1).astype(np.int64)
        within = np.minimum.reduceat(covered, end[:-1])
        can = np.isfinite(time_s)
        zero = np.zeros((1, num_groups))
        return cls(
            time_s,
            count,
            np.concatenate([[0], within, [num_classes]]),
            np.append(end, num_classes),
            np.concatenate([zero, np.cumsum(np.where(can, time_s, 0.0), axis=0)]),
            np.concatenate([zero.astype(np.int64), np.cumsum(~can, axis=0)]),
        )

    def shortest(self, weight: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the length of the shortest path, and ``[G]`` the seconds of each group on it."""
        can = np.isfinite(self.time_s)
        priced = np.where(can, np.where(can, self.time_s, 0.0) * weight, np.inf)
        best = priced.argmin(axis=1)
        anywhere = np.concatenate([[0.0], np.cumsum(priced[np.arange(len(best)), best])])
        begin, end = self.end[:, None], self.end[None, :]
        sure = np.maximum(begin, self.full[None, :])
        cost = np.full((len(self.end), len(self.end)), np.inf)
        who = np.zeros(cost.shape, dtype=np.int64)
        for g, price in enumerate(weight.tolist()):
            alone = price * (self.total_s[sure, g] - self.total_s[begin, g])
            is_less = (alone < cost) & (self.closed[sure, g] == self.closed[begin, g])
            cost[is_less], who[is_less] = alone[is_less], g
        cost += anywhere[np.maximum(end, sure)] - anywhere[sure]
        cost[np.tril_indices(len(cost), -1)] = np.inf
        np.fill_diagonal(cost, 0.0)  # a device without ops
        length = np.full(len(cost), np.inf)
        length[0] = 0.0
        steps = []
        for _ in range(int(self.count.sum())):
            through = length[:, None] + cost
            steps.append(through.argmin(axis=0))
            length = through.min(axis=0)
        load_s = np.zeros(len(weight))
        at = len(cost) - 1
        for step in reversed(steps):
            last, at = at, int(step[at])
            if at == last:
                continue
            low, g = int(sure[at, last]), int(who[at, last])
            load_s[g] += self.total_s[low, g] - self.total_s[self.end[at], g]
            zone = np.arange(low, max(int(self.end[last]), low))
            np.add.at(load_s, best[zone], self.time_s[zone, best[zone]])
        return float(length[-1]), load_s
