r"""Methods that know nothing of direct links between devices: they work on a relaxation that has none.

There all tensors go through host memory, in :math:`c'_{u,k}` for a device of kind :math:`k`: the least that any pair of
a device :math:`a` of that kind and another device :math:`b` can make :math:`a` pay for it,

.. math:: c'_{u,k} = \min_{a \in k,\, b \ne a} \begin{cases} c_{u,k} & \text{through host memory} \\
    s\, p_{u,l} & \text{over the direct link } l \end{cases}

with :math:`s = 1` where both ends pay for a direct transfer, :math:`s = 1/2` where the receiver alone does, in an
objective where only the sum of what the two ends pay counts (`Objective.direct_ends`). No placement costs more there.

Where costs are loads:

- A receiver has one sender; alone it pays :math:`c` or :math:`p`, no less than :math:`c'`.
- A sender pays :math:`c` if some receiver takes the way through host memory. Else all receivers have direct links, and
  it pays :math:`p` for one of them at least if :math:`s = 1`.
- If :math:`s = 1/2`, :math:`p` of a direct receiver is no less than :math:`c'` of the receiver and :math:`c'` of its
  sender together, and one receiver's :math:`p` is enough to account for the sender.

Where costs are delays (the makespan, :math:`s = 1/2`): from device a to b a tensor takes :math:`c'_a + c'_b` there,
which is no more than :math:`c_a + c_b` through host memory, and no more than :math:`p/2 + p/2` over a direct link. Let
every device run its ops in the order in which it runs them here. Then the buses send in the same order, too, every
start is a maximum of sums of ops and transfers that are no longer, and no op ends later. (Without steps a device of the
relaxation may choose another order and end later, but the optimum is over all orders.)

So bounds, and proofs that nothing is feasible, hold; the judge scores what is found under the problem itself. There all
devices of a kind are alike. Here they are not if they are on different nodes, so a placement that is the best yet is
tried with such devices exchanged, too.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import Evaluation
from placekit.solve.lift import Lift, LiftedRun, resumed
from placekit.solve.method import Run

__all__ = ["least_transfer_s", "run_without_links", "without_links"]

KEY = "without links"
"""Of the last run on the relaxation among `Run.parts`."""
MOST_EXCHANGED = 16
"""Devices up to which pairs of them are exchanged."""


def least_transfer_s(problem: Problem) -> NDArray[np.float64]:
    """``[num_tensors, num_kinds]`` the least seconds that a device of each kind pays for a tensor that it moves.

    See the module docstring. O(tensors * pairs of a kind and a node).
    """
    platform, costs = problem.platform, problem.costs
    share = problem.objective.direct_ends / 2
    least = np.full_like(costs.transfer_time_s, np.inf)
    _, first, counts = np.unique(platform.group_of_device, return_index=True, return_counts=True)
    for a, b in itertools.product(range(len(first)), repeat=2):
        if a != b or counts[a] > 1:
            kind, link = platform.kind_of_device[first[a]], int(platform.direct_link(first[a], first[b]))
            pays = costs.transfer_time_s[:, kind] if link < 0 else share * costs.direct_time_s[:, link]
            least[:, kind] = np.minimum(least[:, kind], pays)
    return np.where(np.isfinite(least), least, costs.transfer_time_s)  # a device that is alone moves nothing


def without_links(problem: Problem) -> Problem:
    """Return the problem without direct links in which no placement costs more; itself if it has none."""
    if not problem.has_direct_links:
        return problem
    devices = tuple(device.replace(node=None) for device in problem.platform.devices)
    return problem.replace(
        platform=problem.platform.replace(devices=devices, direct_links=()),
        costs=problem.costs.replace(transfer_time_s=least_transfer_s(problem)),
    )


def run_without_links(run: Run) -> Run:
    """Return a run on the relaxation, which passes on what it finds and proves; `run` itself without links."""
    if not run.problem.has_direct_links:
        return run
    lift = Lift(without_links(run.problem), is_bound=True)
    return resumed(run, KEY, lambda: _Exchanging(run, lift))


class _Exchanging(LiftedRun):
    """A run of the relaxation; its best placements are tried with devices of a kind exchanged between nodes."""

    def keep(self, answer: Placement, at_most: float | None = None) -> Evaluation:
        """Judge a placement here, and, if it may be the best, there, with devices exchanged, too."""
        before = self.objective
        evaluation = super().keep(answer, at_most)
        if evaluation.is_feasible and self.objective != before:
            self._exchange(answer)
        return evaluation

    def _exchange(self, answer: Placement) -> None:
        """Exchange two devices of a kind on different nodes as long as that makes the placement better there."""
        outer, problem = self.outer, self.outer.problem
        platform, kind = problem.platform, problem.platform.kind_of_device
        if platform.num_devices > MOST_EXCHANGED:
            return
        pairs = [
            (a, b)
            for a, b in itertools.combinations(range(platform.num_devices), 2)
            if kind[a] == kind[b] and platform.group_of_device[a] != platform.group_of_device[b]
        ]
        best = outer.judge(answer).objective
        device, is_better = answer.device_of_op, True
        while is_better and best is not None:
            is_better = False
            for a, b in pairs:
                if outer.should_stop() is not None:
                    return
                swap = np.arange(platform.num_devices)
                swap[[a, b]] = b, a
                tried = outer.offer(Placement.of(problem, swap[device], answer.step_of_op))
                if tried.is_feasible and tried.objective is not None and tried.objective < best:
                    device, best, is_better = swap[device], tried.objective, True
