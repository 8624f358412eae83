"""Whole regions of a placement move to another device, then every op chooses once more; what is no worse is kept.

Ops that exchange large tensors cannot part from each other one by one: every single move costs a transfer. So a
connected region of random size is put on one device, drawn by the mean of the policy's probabilities over its ops (and
sometimes any), and the placement is refined (:mod:`placekit.learned.imitation.refinement`) by the loads alone. That is
an iterated local search (Lourenço, Martin and Stützle 2003) whose moves the policy draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.learned.environment import Environment
from placekit.learned.imitation.decoding import Decoder
from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.learned.imitation.refinement import Refinement
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.solvers.lns.operators import adjacency, region

__all__ = ["RegionSearch"]

_POWERS = (32, 8)
"""Norms of the loads by turns: close to the largest, and one that sees the others as well."""
_PASSES = 4
_ANYWHERE = 0.3
"""Weight of a device that is drawn whatever the policy says, next to a probability."""
_WORK = 4_000_000
"""Regions, times ops and devices squared."""
_LARGEST_SHARE = 0.5


class RegionSearch:
    """Moves regions of the placements of one problem, whose objective is a load or a sum of loads.

    Parameters
    ----------
    problem, inputs, decoder
        The problem, what the policy sees of it, and what repairs its placements.
    most
        Most regions; of large problems fewer, so that the time stays about the same.
    """

    def __init__(self, problem: Problem, inputs: Inputs, decoder: Decoder, most: int) -> None:
        is_for = problem.objective.name in OBJECTIVES and problem.objective.name != "makespan"
        work = inputs.num_ops * inputs.num_devices**2
        is_free = problem.contiguity is Contiguity.NONE and inputs.num_ops > 1 and inputs.num_devices > 1
        self.count = min(most, _WORK // work) if is_for and is_free else 0
        self._decoder = decoder
        self._refinements = [Refinement(problem, inputs, passes=_PASSES, trust=0.0, power=power) for power in _POWERS]
        producers = inputs.producer[inputs.edge_tensor]
        self._neighbours = adjacency(producers, inputs.edge_reader, inputs.num_ops)
        self._class_of_op = problem.op_class

    def searched(
        self,
        rows: NDArray[np.int64],
        log_probs: NDArray[np.float64],
        environment: Environment,
        seed: int,
    ) -> NDArray[np.int64]:
        """``[num_ops]`` the best placement that was met, from the best of `rows` ``[count, num_ops]``.

        Parameters
        ----------
        rows
            Placements; each is refined without the policy's word first.
        log_probs
            ``[num_ops, num_devices]`` the policy's word.
        environment
            Scores placements; the search ends where it says to stop.
        seed
            Seed of the regions.

        Notes
        -----
        O(regions passes (ops + edges) devices^2), at most a constant that does not depend on the problem.
        """
        rng = np.random.default_rng(seed)
        polished = np.stack([self._refinements[0].refined(row, log_probs) for row in rows])
        both = np.concatenate([rows, polished])
        values = environment.evaluate(both)
        at = int(np.argmin(values))
        best: NDArray[np.int64] = both[at]
        value = values[at]
        probs = np.exp(log_probs)
        for turn in range(self.count):
            if not environment.has_time():
                break
            moved = self._decoder.repaired(self._moved(best, probs, rng)[None])[0]
            moved = self._refinements[turn % len(_POWERS)].refined(moved, log_probs)
            found = environment.evaluate(moved[None])[0]
            if found <= value:
                best, value = moved, found
        return best

    def _moved(
        self, device: NDArray[np.int64], probs: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the placement with a random region on one device, those of its classes that may go there."""
        num_ops, num_devices = probs.shape
        largest = max(3.0, _LARGEST_SHARE * num_ops)
        size = int(np.exp(rng.uniform(np.log(2.0), np.log(largest))))
        ops = region(self._neighbours, [int(rng.integers(num_ops))], size, rng)
        weight = probs[ops].mean(axis=0) + _ANYWHERE / num_devices
        target = int(rng.choice(num_devices, p=weight / weight.sum()))
        is_in = np.isin(self._class_of_op, self._class_of_op[ops[probs[ops, target] > 0]])
        return np.where(is_in, target, device)
