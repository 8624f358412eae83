"""A PuLP model solved by HiGHS, made anytime: warm start, incumbents, bound, interrupt.

A program of few integers is proven once more when HiGHS has ended, by
:mod:`placekit.solvers.backends.certified`: only that bound counts then, and a better solution of its is passed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pulp
from numpy.typing import NDArray
from scipy.sparse import csr_array

from placekit.solvers.backends.arrays import Arrays, too_wide
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.certified import MAX_INTEGERS, branch_and_bound
from placekit.solvers.backends.highs import SOUND_OPTIONS, Highs


class WatchedLp(pulp.LpProblem):  # type: ignore[misc]  # PuLP is not typed
    """A PuLP model that says when it gets a row or a column.

    Parameters
    ----------
    name
        Its name.
    step
        Called each time.
    """

    def __init__(self, name: str, step: Callable[[], None] = no_step) -> None:
        super().__init__(name, pulp.LpMinimize)
        self._step = step

    def add_variable(self, *args: Any, **kwargs: Any) -> pulp.LpVariable:
        """Add a column."""
        self._step()
        return super().add_variable(*args, **kwargs)

    def addConstraint(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802  # PuLP's name
        """Add a row."""
        self._step()
        super().addConstraint(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class HighsReport:
    """Outcome of a solve."""

    status: str  # HiGHS's own word
    is_infeasible: bool  # True if there is no solution: HiGHS's word, or, for few integers, proven
    refusal: str | None  # why HiGHS's bounds do not count, if they do not


def solve_with_highs(
    lp: pulp.LpProblem,
    variables: Sequence[pulp.LpVariable],  # ``lp.variables()``, which is slow to ask for again
    # called with ``[num_variables]`` values and the objective of every improving solution; mostly from HiGHS's thread
    on_solution: Callable[[NDArray[np.float64], float], None],
    # called with every dual bound, and whether it is proven whatever HiGHS did; mostly from HiGHS's thread
    on_bound: Callable[[float, bool], None],
    should_stop: Callable[[], bool],  # asked often; True ends the solve
    # values of all variables to start from; None for a cold start
    start: Mapping[pulp.LpVariable, float] | None = None,
    **options: object,  # options of HiGHS by its names
) -> HighsReport:
    """Minimise a model."""
    arrays = arrays_of(lp, variables)
    is_certified = int(arrays.is_integer.sum()) <= MAX_INTEGERS  # then bounds come at the end only
    refusal = None if is_certified else too_wide(arrays.matrix.data)
    best, proven = math.inf, -math.inf

    def see_solution(values: NDArray[np.float64], objective: float) -> None:
        nonlocal best
        best = min(best, objective)
        on_solution(values, objective)

    def see_bound(bound: float) -> None:
        nonlocal proven
        if is_certified or refusal is not None or not math.isfinite(bound) or bound <= proven:
            return
        proven = bound
        on_bound(bound, False)

    highs = Highs(arrays, **SOUND_OPTIONS, **options)
    if start is not None:
        highs.start_from(np.array([start[variable] for variable in variables]))
    if not highs.run(should_stop, see_solution, see_bound):
        return HighsReport("kInterrupt", False, refusal)  # what it has found by now came by callbacks
    if highs.has_solution:  # presolve and restarts can find the last solution without a callback
        see_solution(highs.column, highs.objective)
    see_bound(highs.dual_bound)
    if not is_certified:
        return HighsReport(highs.status, highs.status == "kInfeasible" and refusal is None, refusal)
    # prove that nothing is better than the best solution, or pass on what is; or that there is none
    proof = branch_and_bound(arrays, best - arrays.offset, math.inf, should_stop)
    if proof.column is not None and proof.objective + arrays.offset < best:
        see_solution(proof.column, proof.objective + arrays.offset)
    if math.isfinite(proof.bound):
        on_bound(proof.bound + arrays.offset, True)
    return HighsReport(highs.status, proof.is_done and proof.bound == math.inf, None)


def arrays_of(lp: pulp.LpProblem, variables: Sequence[pulp.LpVariable]) -> Arrays:
    """Return a model that minimises as arrays."""
    rows = lp.constraints()
    index = {variable: i for i, variable in enumerate(variables)}
    entries = [[(index[variable], factor) for variable, factor in row.items() if factor] for row in rows]
    column = np.array([i for entry in entries for i, _ in entry], dtype=np.int64)
    value = np.array([factor for entry in entries for _, factor in entry], dtype=np.float64)
    starts = np.cumsum([0, *map(len, entries)])

    def or_infinite(sides: list[float | None], default: float) -> NDArray[np.float64]:
        return np.array([default if side is None else side for side in sides], dtype=np.float64)

    return Arrays(
        cost=np.array([lp.objective.get(variable, 0.0) for variable in variables], dtype=np.float64),
        low=or_infinite([variable.lowBound for variable in variables], -math.inf),
        high=or_infinite([variable.upBound for variable in variables], math.inf),
        is_integer=np.array([variable.cat == pulp.LpInteger for variable in variables], dtype=bool),
        matrix=csr_array((value, column, starts), shape=(len(rows), len(variables))),
        row_low=or_infinite([row.getLb() for row in rows], -math.inf),
        row_high=or_infinite([row.getUb() for row in rows], math.inf),
        offset=float(lp.objective.constant),
    )
