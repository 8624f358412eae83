"""The loop of every large-neighbourhood search: draw some, solve them side by side, take what is better."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from placekit.model.placement import Placement
from placekit.objectives.evaluate import Evaluation
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.backends.cpsat import CpsatLimits, Outcome, Readable, search
from placekit.solvers.backends.scale import TimeScale
from placekit.solvers.lns.operators import Operator, choose_operators
from placekit.solvers.params import PATIENCE, LnsParams

__all__ = ["Drawn", "NeighbourhoodSearch", "offer_answers"]

DEFAULT_WORKERS = 2
"""Neighbourhoods that are searched side by side."""

Whole = TypeVar("Whole")


class Scaled(Readable[Any], Protocol):
    """A program of CP-SAT, with its unit of time."""

    scale: TimeScale


@dataclass(frozen=True, eq=False)
class Drawn(Generic[Whole]):
    """A neighbourhood to search.

    Parameters
    ----------
    model
        Its program, started at what is known.
    whole
        What an answer of the program makes of the whole.
    is_everything
        True if nothing is fixed: closing it is a proof.
    ceiling_s
        What the program speaks of, at most: its bounds prove no more.
    """

    model: Scaled
    whole: Callable[[Any], Whole]
    is_everything: bool
    ceiling_s: float = math.inf


class NeighbourhoodSearch(ABC, Generic[Whole]):
    """A large-neighbourhood search; kinds of neighbourhoods that succeed are drawn more often.

    Sizes adapt to what CP-SAT closes in its limit.

    Parameters
    ----------
    run, params
        The solve, and how to search.
    operators
        The kinds of neighbourhoods.
    num_items
        Size of the largest neighbourhood.
    """

    restart_after: ClassVar[int]
    """Rounds without an improvement after which the search goes on from elsewhere."""

    def __init__(self, run: Run, params: LnsParams, operators: Sequence[Operator], num_items: int) -> None:
        self.run, self.params, self.operators, self.num_items = run, params, operators, num_items

    @abstractmethod
    def draw(self, operator: Operator) -> Drawn[Whole] | None:
        """Return a random neighbourhood of the operator's kind and size; None if nothing in it can become better."""

    @abstractmethod
    def take(self, found: Sequence[Sequence[Whole]]) -> list[bool]:
        """Go on from the best of the answers of every neighbourhood, the last ones first; return which improve."""

    @abstractmethod
    def restart(self) -> None:
        """Go on from elsewhere."""

    def search(self) -> StopReason:
        """Search until told to stop, or until `patience` rounds in a row brought nothing."""
        run, stale, idle = self.run, 0, 0
        patience = run.tries(self.params.patience, PATIENCE)
        while (reason := run.should_stop()) is None:
            if stale >= patience:
                return StopReason.FINISHED
            before_s = run.objective
            if idle >= self.restart_after:
                self.restart()
                idle = 0
            else:
                improved, is_proven = self._round()
                if is_proven:
                    return run.should_stop() or StopReason.FINISHED
                idle = 0 if improved else idle + 1
            is_better = before_s is not None and run.objective is not None and run.objective < before_s * (1 - 1e-9)
            stale = 0 if is_better else stale + 1
        return reason

    def _round(self) -> tuple[bool, bool]:
        """Search some neighbourhoods; return whether one improved, and whether one proved the optimum."""
        rng, workers = self.run.rng, self.params.workers or DEFAULT_WORKERS
        chosen = [(operator, self.draw(operator)) for operator in choose_operators(rng, self.operators, workers)]
        drawn = [(operator, each, int(rng.integers(2**31))) for operator, each in chosen if each is not None]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._solve, each, seed) for _, each, seed in drawn]
            while wait(futures, timeout=0.05).not_done:
                pass  # in short steps, so that this thread keeps seeing signals
        outcomes = [future.result()[0] for future in futures]
        improved = self.take([future.result()[1] for future in futures])
        is_proven = False
        for (operator, each, _), outcome, has_improved in zip(drawn, outcomes, improved, strict=True):
            was_closed = outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE)
            operator.learn(succeeded=has_improved, was_closed=was_closed, largest=self.num_items)
            is_proven |= each.is_everything and outcome is Outcome.OPTIMAL
        return any(improved), is_proven

    def _solve(self, drawn: Drawn[Whole], seed: int) -> tuple[Outcome, list[Whole]]:
        """Let CP-SAT re-optimise a neighbourhood; return its word, and what it found, the best first."""
        run, answers = self.run, list[Any]()

        def see_bound(bound: float) -> None:
            run.raise_bound(min(drawn.model.scale.bound_s(bound), drawn.ceiling_s), "CP-SAT bound")

        outcome = search(
            drawn.model,
            CpsatLimits(workers=1, seed=seed, time_s=run.remaining_s, deterministic_time=self.params.effort),
            lambda answer, _: answers.append(answer),
            see_bound if drawn.is_everything else None,
            lambda: run.should_stop() is not None,
        )
        return outcome, [drawn.whole(answer) for answer in reversed(answers)]


def offer_answers(
    run: Run, found: Sequence[Sequence[Placement]], value_s: float
) -> tuple[list[bool], tuple[Placement, Evaluation] | None]:
    """Offer the best answer of every neighbourhood.

    Returns
    -------
    tuple[list[bool], tuple[Placement, Evaluation] | None]
        Which of them take less than `value_s`, and the best of those that take no more, the last of equal ones.
    """
    improved, best_s, best = [], value_s, None
    for answers in found:
        evaluation = run.offer(answers[0]) if answers else None
        objective = evaluation.objective if evaluation is not None and evaluation.is_feasible else None
        improved.append(objective is not None and objective < value_s * (1 - 1e-9))
        if evaluation is not None and objective is not None and objective <= best_s:
            best_s, best = objective, (answers[0], evaluation)
    return improved, best
