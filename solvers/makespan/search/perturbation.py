"""Iterated local search where work is nearly all that counts: a few classes move at once, and all devices stay as busy.

There the makespan is what all ops cost at least at the prices of the linear program, and what those that are not on
their cheapest device pay more. Such an op can be anywhere in the schedule. It can go where it is cheap if others, at
other times, come in return; until the order has been mended all of that is worse, so an annealing that is cold never
finds it, and one that is warm loses the rest.

A perturbation moves a random class to a random device, and up to two others, which are chosen among the cheapest moves
so that the busiest device is not much busier than it need be. A short cold annealing follows. What comes out is where
the next perturbation begins, unless it is longer than the best by more than a threshold (record-to-record travel).

References
----------
Lourenço, Martin, Stützle, "Iterated local search", Handbook of Metaheuristics, 2003.
Dueck, "New optimization heuristics: the great deluge algorithm and the record-to-record travel", J. Comput. Phys. 104,
1993.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.graph import sum_by
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.anneal import anneal
from placekit.solvers.makespan.search.incumbent import COLD, MEAN_WEIGHT, Best
from placekit.solvers.makespan.search.prices import Prices
from placekit.solvers.makespan.search.walk import empty_walk, load

__all__ = ["PERTURBED_STEPS", "Perturbation"]

PERTURBED_STEPS = 40
"""Proposals per op after a perturbation."""
THRESHOLD = 2.5e-4
"""How much longer than the best a schedule may be that the next perturbation starts from, in units of its makespan."""
CHEAPEST = 120
"""Moves among which those of the others are chosen."""
BUSIER = 7.5e-4
"""How much busier the busiest device may be than it need be, in units of the makespan."""


class Perturbation:
    """The search for one problem.

    Parameters
    ----------
    flat
        The problem.
    prices
        What ops cost where.
    """

    def __init__(self, flat: SequenceProblem, prices: Prices) -> None:
        of_class, num_classes = flat.instance.class_of_op, len(flat.class_bytes)
        time_s = np.stack([sum_by(of_class, times_s, num_classes) for times_s in flat.time_s.T], axis=1)
        price_s = np.stack([sum_by(of_class, prices_s, num_classes) for prices_s in prices.price_s.T], axis=1)
        self._time_s = np.where(flat.allowed, time_s, 0.0)
        self._price_s = np.where(flat.allowed, price_s, np.inf)
        self._first = flat.class_ops[flat.class_offsets[:-1]]
        self._walk = empty_walk(flat)

    def walk(self, best: Best, flat: SequenceProblem, num_steps: int) -> None:
        """Improve a schedule by about so many proposals in all, or until told to stop.

        O(ops + edges) per proposal at worst, and O(classes * devices + CHEAPEST**2 * devices) per perturbation.

        Parameters
        ----------
        best
            The schedule; its run has the seed.
        flat
            The problem, priced.
        num_steps
            Proposals; at least one perturbation.
        """
        rng, steps = np.random.default_rng(best.run.rng.integers(2**63)), PERTURBED_STEPS * flat.instance.num_ops
        here_device, here_sequence = best.device.copy(), best.sequence.copy()
        for _ in range(max(num_steps // steps, 1)):
            if best.run.should_stop() is not None:
                break
            of_class = self._perturbed(here_device[self._first], best.value_s, rng)
            device, sequence = of_class[flat.instance.class_of_op], here_sequence.copy()
            load(flat, self._walk, device, sequence)
            if (self._walk.used_bytes > flat.instance.limit_bytes).any():
                continue
            cold_s, seed = COLD * best.value_s, int(rng.integers(2**32))
            value_s = anneal(flat, self._walk, device, sequence, np.inf, MEAN_WEIGHT, cold_s, cold_s, steps, seed)
            if value_s <= best.value_s * (1 + THRESHOLD):
                here_device, here_sequence = device, sequence
            if value_s < best.value_s:
                best.consider(device, sequence)
                best.offer()

    def _perturbed(self, device: NDArray[np.int64], makespan_s: float, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the devices of the classes ``[C]`` after a perturbation; `device` before."""
        device = device.copy()
        num_classes, num_devices = self._time_s.shape
        idle_s = makespan_s - self._busy_s(device)
        perturbed = int(rng.integers(num_classes))
        device[perturbed] = rng.choice(np.flatnonzero(np.isfinite(self._price_s[perturbed])))
        end_s = idle_s + self._busy_s(device)
        # the cheapest moves of other classes, and when every device ends after each of them, or two
        more_s = self._price_s - self._price_s[np.arange(num_classes), device, None]
        more_s[perturbed], more_s[np.arange(num_classes), device] = np.inf, np.inf
        cheapest = np.argsort(more_s, axis=None)[:CHEAPEST]
        cheapest = cheapest[np.isfinite(more_s.ravel()[cheapest])]
        moved, to = np.divmod(cheapest, num_devices)
        change_s = np.zeros((len(moved), num_devices))
        change_s[np.arange(len(moved)), to] = self._time_s[moved, to]
        change_s[np.arange(len(moved)), device[moved]] -= self._time_s[moved, device[moved]]
        one, other = np.triu_indices(len(moved))
        last_s = (end_s + change_s[one] + change_s[other] * (one != other)[:, None]).max(axis=1)
        last_s[(one != other) & (moved[one] == moved[other])] = np.inf
        alone_s = float(end_s.max())
        limit_s = min(alone_s, float(last_s.min(initial=np.inf))) + BUSIER * makespan_s
        choices = np.flatnonzero(last_s <= limit_s)
        choice = int(rng.integers(len(choices) + (alone_s <= limit_s)))
        if choice < len(choices):
            for i in (one[choices[choice]], other[choices[choice]]):
                device[moved[i]] = to[i]
        return device

    def _busy_s(self, device: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[D]`` seconds of work of each device."""
        num_classes, num_devices = self._time_s.shape
        return sum_by(device, self._time_s[np.arange(num_classes), device], num_devices)
