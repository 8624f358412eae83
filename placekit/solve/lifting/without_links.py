r"""Relaxation without direct links between devices, for methods that do not know them.

In the relaxation all tensors go through host memory. A device of kind :math:`k` pays :math:`c'_{u,k}` for tensor
:math:`u`: the least that a device :math:`a` of that kind may pay for it with any other device :math:`b`,

.. math:: c'_{u,k} = \min_{a \in k,\, b \ne a} \begin{cases} c_{u,k} & \text{through host memory} \\
    s\, p_{u,l} & \text{over the direct link } l \end{cases}

with :math:`s = 1` if both ends pay for a direct transfer, and :math:`s = 1/2` if only the receiver pays, in an
objective that adds up both ends (`Objective.direct_ends`).

Claim: no placement costs more in the relaxation. If costs are loads:

1. A receiver has one sender, and pays :math:`c` or :math:`p`. Neither is less than :math:`c'`.
2. A sender pays :math:`c` if some receiver is reached through host memory. Otherwise all receivers have direct links,
   and with :math:`s = 1` the sender pays :math:`p` for at least one of them.
3. With :math:`s = 1/2`, :math:`p` of a direct receiver is no less than :math:`c'` of the receiver plus :math:`c'` of
   its sender. One receiver is enough to account for the sender.

If costs are delays (the makespan, :math:`s = 1/2`; the relaxation has no contention, since the order in which a device
sends depends on all times):

1. From device a to b a tensor takes :math:`c'_a + c'_b` in the relaxation. That is at most :math:`c_a + c_b`, the time
   through host memory, and at most :math:`p/2 + p/2`, the time over a direct link.
2. Let every device run its ops in the same order as in the problem itself. A transfer leaves when its producer ends,
   which is as soon as it can.
3. Every start is a maximum of sums of ops and transfers that are no longer, so no op ends later. The optimum of the
   relaxation is over all orders, and no higher.

So bounds and proofs of infeasibility hold. The judge scores placements under the problem itself. In the relaxation
devices of a kind are equal, but here they may be on different nodes. So the best placement is also tried with such
devices exchanged. A pool of some of them is left out: more fits.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import Pool
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.objectives.evaluate import Evaluation
from placekit.solve.lifting.lift import Lift, LiftedRun, resumed
from placekit.solve.method import Run

KEY = "without links"
"""Key of the last run on the relaxation in `Run.parts`."""
MOST_EXCHANGED = 16
"""Largest number of devices of which pairs are exchanged."""


def least_transfer_s(problem: Problem) -> NDArray[np.float64]:
    """Return the least seconds that a device of each kind pays for each tensor, ``[num_tensors, num_kinds]``.

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
    """Return the relaxation of the problem without direct links; the problem itself if it has none."""
    if not problem.has_direct_links:
        return problem
    platform = problem.platform
    devices = tuple(device.replace(node=None) for device in platform.devices)
    return problem.replace(
        platform=platform.replace(devices=devices, direct_links=(), pools=_pools_of_whole_kinds(platform)),
        costs=problem.costs.replace(transfer_time_s=least_transfer_s(problem)),
        objective=problem.objective.without_queues(),
    )


def _pools_of_whole_kinds(platform: Platform) -> tuple[Pool, ...]:
    """Return the pools that have all devices of their kinds; without its node a device of another is like theirs."""
    kinds = {device.name: device.kind for device in platform.devices}
    of_pools = [{kinds[name] for name in pool.devices} for pool in platform.pools]
    return tuple(
        pool
        for pool, inside in zip(platform.pools, of_pools, strict=True)
        if set(pool.devices) == {name for name, kind in kinds.items() if kind in inside}
    )


def run_without_links(run: Run) -> Run:
    """Return a run on the relaxation that passes on placements and bounds; `run` itself without links."""
    if not run.problem.has_direct_links:
        return run
    lift = Lift(without_links(run.problem), is_bound=True)
    return resumed(run, KEY, lambda: _Exchanging(run, lift))


class _Exchanging(LiftedRun):
    """Run of the relaxation whose best placements are also tried with devices of a kind exchanged between nodes."""

    def keep(self, answer: Placement, at_most: float | None = None) -> Evaluation:
        """Judge a placement, and offer it to the outer run, also with devices exchanged."""
        before = self.objective
        evaluation = super().keep(answer, at_most)
        if evaluation.is_feasible and self.objective != before:
            self._exchange(answer)
        return evaluation

    def _exchange(self, answer: Placement) -> None:
        """Exchange two devices of a kind on different nodes as long as that improves the placement of the outer run."""
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
