r"""Parallel tempering: schedules annealed at several temperatures at once, which exchange what they have.

An annealing that cools down ends in some valley, and the next one has to find its own. Replicas walk at constant
temperatures :math:`T_1 < T_2 < \ldots`, and neighbours change places with probability

.. math:: \min\bigl(1, e^{(c_i - c_{i+1}) (1 / T_i - 1 / T_{i+1})}\bigr),

where c is what the walks count: the makespan, and the prices. So the cold ones are offered what the warm ones find, for
as long as there is time, and a valley is left through those that are warm enough for it.

References
----------
Swendsen and Wang, "Replica Monte Carlo simulation of spin glasses", Physical Review Letters 57(21), 1986.
Earl and Deem, "Parallel tempering: theory, applications, and new perspectives", Phys. Chem. Chem. Phys. 7, 2005.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.incumbent import Best, annealed
from placekit.solvers.makespan.search.starts import Start
from placekit.solvers.makespan.search.walk import empty_walk, load

__all__ = ["LEAST_STEPS", "REPLICAS", "Tempering"]

REPLICAS = 12
"""Walks, each at a temperature of its own."""
COLDEST = 2e-4
"""Temperature of the first, in units of the makespan; the others lie between this and the last, geometrically."""
ROUND_STEPS = 25
"""Proposals per op and replica between two exchanges."""
LEAST_STEPS = REPLICAS * ROUND_STEPS
"""Proposals per op from one exchange to the next."""


class Tempering:
    """Replicas that go on from one call to the next.

    Parameters
    ----------
    best
        The best schedule known, which the coldest replica walks from; its run has the seed.
    starts
        Where the others begin, at least one; used in turn.
    hottest
        Temperature of the last replica, in units of the makespan.
    """

    def __init__(self, best: Best, starts: Sequence[Start], hottest: float) -> None:
        self._best = best
        self._rng = np.random.default_rng(best.run.rng.integers(2**63))
        self._unit_s = best.value_s
        self._temperatures = np.geomspace(COLDEST, max(hottest, COLDEST), REPLICAS).tolist()
        self._walks = [empty_walk(best.flat) for _ in range(REPLICAS)]
        for i, walk in enumerate(self._walks):
            load(best.flat, walk, *starts[i % len(starts)])
        self._known_s = math.inf
        self._number = 0

    def walk(self, flat: SequenceProblem, num_steps: int) -> None:
        """Improve the best schedule by about so many proposals in all, or until told to stop.

        O(ops + edges) per proposal, at worst.

        Parameters
        ----------
        flat
            The problem, priced.
        num_steps
            Proposals; at least one round.
        """
        best, ops = self._best, np.arange(flat.instance.num_ops)
        if best.value_s <= 0.0:
            return  # no temperature is low enough
        if best.value_s < self._known_s:  # another search has found it
            load(flat, self._walks[0], best.device, best.sequence)
        for _ in range(max(num_steps // (LEAST_STEPS * len(ops)), 1)):
            costs_s = []
            for walk, temperature in zip(self._walks, self._temperatures, strict=True):
                if best.run.should_stop() is not None:
                    return
                schedule, at_s = (best.device, best.sequence, best.value_s), temperature * self._unit_s
                steps = ROUND_STEPS * len(ops)
                for value_s in annealed(best.run, flat, walk, schedule, (at_s, at_s), steps, self._rng):
                    best.value_s = value_s
                costs_s.append(float(walk.finish_s.max() + flat.price_s[ops, walk.device].sum()))
            best.offer()
            self._exchange(costs_s)
        self._known_s = best.value_s

    def _exchange(self, costs_s: list[float]) -> None:
        """Let neighbours change places: every other pair, and the others the next time."""
        for i in range(self._number % 2, REPLICAS - 1, 2):
            colder_by = 1 / self._temperatures[i] - 1 / self._temperatures[i + 1]
            if math.log(max(self._rng.random(), 1e-300)) < (costs_s[i] - costs_s[i + 1]) / self._unit_s * colder_by:
                self._walks[i], self._walks[i + 1] = self._walks[i + 1], self._walks[i]
        self._number += 1
