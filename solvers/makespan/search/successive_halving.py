"""Successive halving: many schedules are begun where work is nearly all that counts, and the good ones get more time.

A beam search and a short annealing end in one of very many valleys. Perturbations go down in each, but hardly ever
leave one for another that is much lower; and how low a valley is shows only after a while. So schedules compete. On
rung r a schedule has had :math:`2^r - 1` units of perturbations. Once it is among the better half of those that have
reached its rung, it gets another :math:`2^r`, and is on the next. When no rung has one to promote, another schedule is
begun. Every rung takes about as much time as every other, and nobody needs to know how much there will be in all.

References
----------
Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016.
Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020 (asynchronous successive halving).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.beam import Beam
from placekit.solvers.makespan.search.incumbent import STRETCH_STEPS, Best, polish, sweep
from placekit.solvers.makespan.search.perturbation import Perturbation
from placekit.solvers.makespan.search.prices import Prices

__all__ = ["SuccessiveHalving"]

UNIT_STEPS = 2_000
"""Proposals per op in a unit of perturbations, and in the annealing after a beam search."""


@dataclass(slots=True)
class _Competitor:
    """A schedule ``[V]``, and its makespan in seconds on every rung that it has reached."""

    device: NDArray[np.int64]
    sequence: NDArray[np.int64]
    values_s: list[float]


class SuccessiveHalving:
    """A search that goes on from one call to the next.

    Parameters
    ----------
    best
        The best schedule known, which takes part, as does every better one that others find; its run has the seed.
    prices
        What ops cost where.
    beam
        What begins the other schedules; None where there are to be none, and only the best is perturbed.
    most_steps
        Proposals per op in a unit, at most.
    """

    def __init__(self, best: Best, prices: Prices, beam: Beam | None, most_steps: int) -> None:
        self._best, self._beam, self._perturbation = best, beam, Perturbation(best.flat, prices)
        self._num_steps = min(UNIT_STEPS, most_steps) * best.flat.instance.num_ops
        self._rungs: list[list[_Competitor]] = []
        self._known_s = np.inf

    def turn(self, flat: SequenceProblem) -> None:
        """Give one schedule as many perturbations as its rung says, or begin another, until done or told to stop.

        O(ops + edges) per proposal at worst; memory O(ops) for every schedule that was begun.

        Parameters
        ----------
        flat
            The problem, priced.
        """
        best = self._best
        if best.value_s <= 0.0:
            return  # nothing is shorter
        if best.value_s < self._known_s:
            self._place(_Competitor(best.device.copy(), best.sequence.copy(), []), best.value_s)
        found = Best(best.run, best.flat, best.value_s, best.mechanisms)
        competitor = self._promoted()
        start = None
        if self._beam is not None and competitor is None:
            start = self._beam.start_in_time(best.value_s, best.run)
        if start is not None:
            polish(found, flat, start, self._num_steps)
            self._place(_Competitor(found.device, found.sequence, []), found.value_s)
        elif competitor is not None:
            self._improve(competitor, found, flat, 2 ** (len(competitor.values_s) - 1))
            self._place(competitor, found.value_s)
        else:  # the best gets a unit, which counts for nothing
            competitor = min(self._rungs[0], key=lambda each: each.values_s[-1])
            self._improve(competitor, found, flat, 1)
            competitor.values_s[-1] = found.value_s
        best.consider(found.device, found.sequence)
        best.offer()
        self._known_s = best.value_s

    def _improve(self, competitor: _Competitor, found: Best, flat: SequenceProblem, num_units: int) -> None:
        """Let `found` be what so many units of perturbations make of a schedule, and the schedule, too."""
        found.consider(competitor.device, competitor.sequence)
        self._perturbation.walk(found, flat, self._num_steps * num_units)
        sweep(found, flat, STRETCH_STEPS)
        competitor.device, competitor.sequence = found.device, found.sequence

    def _place(self, competitor: _Competitor, value_s: float) -> None:
        """Put a schedule, which takes so many seconds now, on its next rung."""
        rung = len(competitor.values_s)
        competitor.values_s.append(value_s)
        if rung == len(self._rungs):
            self._rungs.append([])
        self._rungs[rung].append(competitor)

    def _promoted(self) -> _Competitor | None:
        """Return the best schedule of the better half of the highest rung that has one which has not gone on."""
        for rung in range(len(self._rungs) - 1, -1, -1):
            ranked = sorted(self._rungs[rung], key=lambda each: each.values_s[rung])
            for competitor in ranked[: len(ranked) // 2]:
                if len(competitor.values_s) == rung + 1:
                    return competitor
        return None
