"""Linear and integer programs built row by row, and solved by HiGHS for what they prove and nothing else."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from placekit.machine import num_usable_cpus
from placekit.solve.stop import in_this_solve, is_wanted
from placekit.solvers.backends.arrays import Arrays, too_wide
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.certified import MAX_INTEGERS, branch_and_bound
from placekit.solvers.backends.highs import SOUND_OPTIONS, Highs

logger = logging.getLogger(__name__)

TOLERANCE = 1e-9
"""Dual feasibility that HiGHS is asked for, in units of the objective."""
RELATIVE_SLACK = 4e-7
"""Taken off the dual bound of an integer program: HiGHS prunes nodes within its own gap and tolerances."""
ABSOLUTE_SLACK = 2e-5
"""The same in units of the objective, whose best value known is about 100: HiGHS takes a row for kept within 1e-7, and
1e-6 for a whole number. A row is off by some of that only, and to the side that lowers the bound."""
ROUNDING = 1e-12
"""Relative: what the coefficients of a program, and the judge's sums, may be rounded by."""
LEAST_SHARE = 1e-7
"""Coefficients that are smaller than this share of their row's largest are left out of what HiGHS is asked, to the side
that lowers the bound: they are below its tolerances, and it drops those below 1e-9 to either side."""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """Result of a program that HiGHS solved."""

    status: str  # ``"optimal"``, ``"infeasible"`` or ``"stopped"``
    bound: float | None  # best dual bound, not yet rounded; None if there is none
    # ``[num_rows]`` multipliers of a linear program solved to the end; None otherwise
    row_dual: NDArray[np.float64] | None = None
    column: NDArray[np.float64] | None = None  # ``[num_columns]`` its solution; None otherwise
    is_certified: bool = False
    """True if the bound holds whatever HiGHS did: see :mod:`placekit.solvers.backends.certified`."""


class Program:
    """A program ``min cost . x`` with ``low <= A x <= high`` on every row, built row by row.

    Parameters
    ----------
    step
        Called with every row.
    """

    def __init__(self, step: Callable[[], None] = no_step) -> None:
        self._step = step
        self._cost: list[float] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self._is_integer: list[bool] = []
        self._starts: list[int] = [0]
        self._index: list[int] = []
        self._value: list[float] = []
        self._row_low: list[float] = []
        self._row_high: list[float] = []
        self._solved: Highs | None = None  # behind a linear program, of so many columns and rows
        self._num_solved = (0, 0)

    @property
    def num_columns(self) -> int:
        """Number of variables."""
        return len(self._cost)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self._row_low)

    def column(self, low: float = 0.0, high: float = 1.0, *, cost: float = 0.0, is_integer: bool = False) -> int:
        """Add a variable and return its index."""
        self._cost.append(cost)
        self._low.append(low)
        self._high.append(high)
        self._is_integer.append(is_integer)
        return len(self._cost) - 1

    def row(self, terms: dict[int, float], low: float = -math.inf, high: float = math.inf) -> int:
        """Add a row, variable -> coefficient, and return its index."""
        self._step()
        for column, coefficient in terms.items():
            if coefficient:
                self._index.append(column)
                self._value.append(coefficient)
        self._starts.append(len(self._index))
        self._row_low.append(low)
        self._row_high.append(high)
        return len(self._row_low) - 1

    def solve(self, time_limit_s: float, should_stop: Callable[[], bool] | None = None) -> ProgramResult:
        """Solve for at most `time_limit_s`, or until `should_stop`.

        An integer program of few integers is proven node by node; a larger one is HiGHS's word.
        A linear program that has only got rows since it was last solved is solved from where that ended.

        Raises
        ------
        SolverUnavailableError
            HiGHS is not installed, or refuses the program.
        """
        end_s = perf_counter() + time_limit_s
        is_told, goes_on = should_stop or (lambda: False), in_this_solve(is_wanted)  # asked in threads of the solver

        def is_over() -> bool:
            return perf_counter() > end_s or not goes_on() or is_told()

        num_integers = sum(self._is_integer)
        if num_integers > MAX_INTEGERS:
            return self._claimed(time_limit_s, is_over)
        if num_integers:
            return self._certified(time_limit_s, is_told)
        return self._relaxed(time_limit_s, is_over)

    def _certified(self, time_limit_s: float, should_stop: Callable[[], bool]) -> ProgramResult:
        proof = branch_and_bound(self.arrays(), time_limit_s=time_limit_s, should_stop=should_stop)
        if proof.bound == math.inf:
            return ProgramResult("infeasible", None, is_certified=True)
        word = "optimal" if proof.is_done else "stopped"
        return ProgramResult(word, proof.bound if math.isfinite(proof.bound) else None, is_certified=True)

    def _claimed(self, time_limit_s: float, is_over: Callable[[], bool]) -> ProgramResult:
        refusal = too_wide(np.array(self._value))
        if refusal is not None:
            logger.info("%s", refusal)
            return ProgramResult("stopped", None)
        highs = Highs(
            self.arrays().without_small(LEAST_SHARE),
            **_options(time_limit_s),
            mip_rel_gap=RELATIVE_SLACK / 10,
            mip_abs_gap=0.0,
            **SOUND_OPTIONS,
        )
        if not highs.run(is_over):
            return ProgramResult("stopped", None)
        if highs.status in _INFEASIBLE:
            return ProgramResult("infeasible", None)
        bound = highs.dual_bound
        word = "optimal" if highs.status == "kOptimal" else "stopped"
        return ProgramResult(word, bound if math.isfinite(bound) else None)

    def _relaxed(self, time_limit_s: float, is_over: Callable[[], bool]) -> ProgramResult:
        highs = self._solved
        if highs is None or self._num_solved[0] != self.num_columns:
            highs = Highs(self.arrays(), **_options(time_limit_s))
        else:
            highs.set_options(time_limit=highs.run_time_s + max(float(time_limit_s), 0.0))
            has = self._num_solved[1]
            highs.add_rows(self._matrix(has), np.array(self._row_low[has:]), np.array(self._row_high[has:]))
        self._solved, self._num_solved = highs, (self.num_columns, self.num_rows)
        if not highs.run(is_over):
            self._solved = None  # the thread has it
            return ProgramResult("stopped", None)
        if highs.status in _INFEASIBLE:
            return ProgramResult("infeasible", None)
        if highs.status != "kOptimal":
            return ProgramResult("stopped", None)
        return ProgramResult("optimal", highs.objective, highs.row_dual, highs.column)

    def arrays(self) -> Arrays:
        """Return the program as arrays."""
        return Arrays(
            np.array(self._cost),
            np.array(self._low),
            np.array(self._high),
            np.array(self._is_integer, dtype=bool),
            self._matrix(0),
            np.array(self._row_low),
            np.array(self._row_high),
        )

    def _matrix(self, first: int) -> csr_array:
        begin = self._starts[first]
        entries = np.array(self._value[begin:]), np.array(self._index[begin:], dtype=np.int64)
        starts = np.array(self._starts[first:]) - begin
        return csr_array((*entries, starts), shape=(self.num_rows - first, self.num_columns))

    def proven_s(self, result: ProgramResult, unit_s: float) -> float | None:
        """Return the dual bound of a solved integer program in seconds, rounded down; None if there is none.

        With every reduced cost wrong by at most `TOLERANCE`, and every variable in a box of width 1 (or of the width
        given), the bound of a linear relaxation is wrong by at most `TOLERANCE` times the sum of the widths; the
        pruning of the tree is covered by `RELATIVE_SLACK`.
        """
        if result.bound is None:
            return None
        if result.is_certified:
            return round_down(result.bound * (1 - ROUNDING), unit_s)
        widths = np.array(self._high) - np.array(self._low)
        slack = TOLERANCE * float(widths[np.isfinite(widths)].sum()) + ABSOLUTE_SLACK
        return round_down((result.bound - slack) * (1 - RELATIVE_SLACK), unit_s)


def _options(time_limit_s: float) -> dict[str, object]:
    return {
        "time_limit": max(float(time_limit_s), 0.0),
        "threads": num_usable_cpus(),  # HiGHS has one pool per process: ask for what `ilp` asks for
        "dual_feasibility_tolerance": TOLERANCE,
    }


_INFEASIBLE = ("kInfeasible", "kUnboundedOrInfeasible")


def round_down(bound: float, unit_s: float) -> float | None:
    """Return `bound` in seconds, one rounding step down; None if it says nothing (not above zero)."""
    in_seconds = math.nextafter(bound * unit_s, -math.inf)
    return in_seconds if in_seconds > 0 else None
