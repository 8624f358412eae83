"""Method ``local-search`` for any objective: annealed moves of classes, each scored by the objective itself.

1. Start from the best known placement. Without one, start from the single devices, ``greedy``, or annealing of the
   excess (:mod:`placekit.solvers.generic.excess`).
2. A proposal moves a class to another allowed device, half of the time to the device of a neighbour in the graph, or
   exchanges the devices of two classes. Proposals are scored in batches of `BATCH` (`Scorer`).
3. Proposals are accepted by the rule of Metropolis, at a falling temperature. After an accepted proposal the rest of
   its batch is out of date and drawn again. A proposal that breaks the contiguity is not accepted.
4. A round ends after `steps` proposals per class; the next one starts at the best placement. The search ends after
   `patience` rounds without a better one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.model.problem import Problem
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.excess import FREE, excess, offer_first_answers, room_of
from placekit.solvers.generic.scoring import Scorer
from placekit.solvers.params import PATIENCE, LocalSearchParams

BATCH = 32
"""Proposals that are scored together."""
FIRST_STEPS = 10
"""Proposals per class in the first round; doubled from round to round up to the parameter."""
HOTTEST, COLDEST = 0.03, 1e-4
"""Temperatures at the beginning and the end of a round, as shares of the objective."""


class LocalSearch(Method):
    """Annealing of single moves and exchanges; see the module docstring."""

    name = "local-search"
    params_type = LocalSearchParams
    argument = "patience"
    params: LocalSearchParams

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: its scores know all."""
        return None

    def run(self, run: Run) -> StopReason:
        """Search until told to stop, or until `patience` rounds in a row bring no improvement."""
        raise_bounds_at_once(run)
        has_start, reason = offer_first_answers(run), run.should_stop()
        if reason is not None or not has_start:  # of many ops, what a walk keeps takes long to set up
            return reason or StopReason.FINISHED
        walk = _Walk(run)
        stale, number, patience = 0, 0, run.tries(self.params.patience, PATIENCE)
        while (reason := run.should_stop()) is None:
            if stale >= patience or number == self.params.max_cycles or not walk.can_move:
                return StopReason.FINISHED
            before = run.objective
            walk.anneal(min(self.params.steps, FIRST_STEPS * 2 ** min(number, 20)))
            number += 1
            stale = 0 if run.objective != before else stale + 1
        return reason


class _Walk:
    """Current placement of classes."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._contraction: Contraction = contract(run.problem)
        self._room = room_of(self._contraction)
        self._score = Scorer(self._contraction)
        allowed = self._contraction.allowed
        self._movable = np.flatnonzero(allowed.sum(axis=1) > 1)

    @property
    def can_move(self) -> bool:
        """True if some class is allowed on another device."""
        return bool(self._movable.size)

    def anneal(self, steps: int) -> None:
        """Go once from hot to cold, `steps` proposals per class, from the best placement."""
        run, rng = self._run, self._run.rng
        assert run.placement is not None  # the method looks first
        device = self._contraction.restrict(run.placement.device_of_op)
        value = float(self._score(device[None])[0])
        best, num = run.objective, max(steps * self._contraction.num_classes // BATCH, 1)
        scale = best if best is not None else value
        for number in range(num):
            if run.should_stop() is not None:
                return
            hot = HOTTEST * (COLDEST / HOTTEST) ** (number / num) * (scale if np.isfinite(scale) else 1.0)
            proposals = self._propose(device, rng)
            values = self._score(proposals)
            limits = value - hot * np.log(rng.random(BATCH)) if np.isfinite(value) else np.full(BATCH, np.inf)
            run.count_evaluations(BATCH)
            for proposal, new, limit in zip(proposals, values.tolist(), limits.tolist(), strict=True):
                if np.isfinite(new) and new <= limit and self._is_kept(proposal):
                    device, value = proposal, new
                    if run.objective is None or value < run.objective:
                        run.offer(self._score.placement(device))
                    break

    def _propose(self, device: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """``[BATCH, num_classes]`` the placement with a move or an exchange in each row."""
        proposals = np.repeat(device[None], BATCH, axis=0)
        allowed = self._contraction.allowed
        for row in proposals:
            c = int(rng.choice(self._movable))
            near = self._room.near_classes[self._room.near_offsets[c] : self._room.near_offsets[c + 1]]
            other = int(rng.choice(near)) if near.size and rng.random() < 0.5 else int(rng.integers(len(device)))
            kind = rng.random()
            if kind < 0.5 and allowed[c, device[other]] and device[other] != device[c]:
                row[c] = device[other]
            elif kind < 0.75 and allowed[c, device[other]] and allowed[other, device[c]]:
                row[c], row[other] = device[other], device[c]
            else:
                row[c] = rng.choice(np.flatnonzero(allowed[c]))
        return proposals

    def _is_kept(self, device: NDArray[np.int64]) -> bool:
        """Return True if a placement keeps the contiguity, which the scorer does not check."""
        return self._room.contiguity == FREE or excess(self._room, device) <= 0.0
