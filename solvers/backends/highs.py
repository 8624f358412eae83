"""Linear and integer programs in flat arrays, solved by HiGHS for what they prove and nothing else."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.cores import num_usable_cpus
from placekit.errors import SolverUnavailableError
from placekit.patience import is_wanted
from placekit.solvers.backends.beside import run_beside
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.certified import MAX_INTEGERS, Arrays, branch_and_bound, weak_bound

__all__ = [
    "ABSOLUTE_SLACK",
    "RELATIVE_SLACK",
    "ROUNDING",
    "SOUND_OPTIONS",
    "Outcome",
    "Program",
    "round_down",
    "too_wide",
]

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

MOST_COEFFICIENT = 1e7
"""Largest coefficient that HiGHS's tolerances bear: with 1e-7 of a row, and 1e-6 of a whole number, it can hide 10."""
LEAST_SHARE = 1e-7
"""Coefficients that are smaller than this share of their row's largest are left out of what HiGHS is asked, to the side
that lowers the bound: they are below its tolerances, and it drops those below 1e-9 to either side."""

SOUND_OPTIONS: dict[str, object] = {"presolve": "off", "mip_root_presolve_only": True}
"""How HiGHS solves an integer program whose word counts. Of 3,414 programs of a few columns (1.13.1) it called optimal
what is not in 18 with its presolve, in 4 without, and in 2 if nodes are not presolved either; in those two it is within
its tolerances. What is proven in floating point needs none of this: see :mod:`placekit.solvers.backends.certified`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What HiGHS says.

    Parameters
    ----------
    status
        ``"optimal"``, ``"infeasible"`` or ``"stopped"``.
    bound
        Best dual bound, not yet rounded; None if there is none.
    row_dual
        ``[num_rows]`` multipliers of a linear program solved to the end; None otherwise.
    column
        ``[num_columns]`` its solution; None otherwise.
    """

    status: str
    bound: float | None
    row_dual: NDArray[np.float64] | None = None
    column: NDArray[np.float64] | None = None
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
        self._solved: Any = None
        """HiGHS, behind a linear program."""

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

    def require_integers(self, columns: Iterable[int]) -> None:
        """Require variables to be integer from now on."""
        for column in columns:
            self._is_integer[column] = True

    def solve(self, time_limit_s: float, should_stop: Callable[[], bool] | None = None) -> Outcome:
        """Solve for at most `time_limit_s`, or until `should_stop`.

        An integer program of few integers is proven node by node; a larger one is HiGHS's word.
        A linear program that has only got rows since it was last solved is solved from where that ended. An integer
        program runs in a thread of its own, so that the main thread keeps seeing signals.

        Raises
        ------
        SolverUnavailableError
            HiGHS is not installed, or refuses the program.
        """
        try:
            highspy = import_module("highspy")
        except ImportError as error:
            raise SolverUnavailableError("bounds by linear programming need HiGHS: pip install highspy") from error
        num_integers = sum(self._is_integer)
        if 0 < num_integers <= MAX_INTEGERS:
            stop = should_stop or (lambda: False)
            proof = branch_and_bound(self.arrays(), time_limit_s=time_limit_s, should_stop=stop)
            if proof.bound == math.inf:
                return Outcome("infeasible", None, is_certified=True)
            word = "optimal" if proof.is_done else "stopped"
            return Outcome(word, proof.bound if math.isfinite(proof.bound) else None, is_certified=True)
        if num_integers:
            refusal = too_wide(np.array(self._value))
            if refusal is not None:
                logger.info("%s", refusal)
                return Outcome("stopped", None)
            highs = self._loaded(highspy, time_limit_s, is_mip=True)
            return self._run(highspy, highs, time_limit_s, should_stop, is_mip=True)
        if self._solved is None or self._solved.getNumCol() != self.num_columns:
            self._solved = self._loaded(highspy, time_limit_s, is_mip=False)
        else:
            self._extend(self._solved, time_limit_s)
        return self._run(highspy, self._solved, time_limit_s, should_stop, is_mip=False)

    def _run(
        self, highspy: Any, highs: Any, time_limit_s: float, should_stop: Callable[[], bool] | None, *, is_mip: bool
    ) -> Outcome:
        end_s = perf_counter() + time_limit_s

        def is_over() -> bool:
            return perf_counter() > end_s or not is_wanted() or (should_stop is not None and should_stop())

        self._listen(highspy, highs, is_over)
        if run_beside(highs.run, is_over, "highs-bound"):
            return self._outcome(highspy, highs, is_mip=is_mip)
        self._solved = None  # the thread has it
        return Outcome("stopped", None)

    def arrays(self) -> Arrays:
        """Return the program as arrays."""
        from scipy.sparse import csr_array

        entries = (np.array(self._value), np.array(self._index, dtype=np.int64), np.array(self._starts))
        return Arrays(
            np.array(self._cost),
            np.array(self._low),
            np.array(self._high),
            np.array(self._is_integer, dtype=bool),
            csr_array(entries, shape=(self.num_rows, self.num_columns)),
            np.array(self._row_low),
            np.array(self._row_high),
        )

    def _loaded(self, highspy: Any, time_limit_s: float, *, is_mip: bool) -> Any:
        highs = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("time_limit", max(float(time_limit_s), 0.0)),
            ("threads", num_usable_cpus()),  # HiGHS has one pool per process: ask for what `ilp` asks for
            ("dual_feasibility_tolerance", TOLERANCE),
            ("mip_rel_gap", RELATIVE_SLACK / 10),
            ("mip_abs_gap", 0.0),
            *(SOUND_OPTIONS.items() if is_mip else ()),
        ):
            highs.setOptionValue(option, value)
        if highs.passModel(self._as_highs(highspy, is_mip)) == highspy.HighsStatus.kError:
            raise SolverUnavailableError(
                f"bounds: HiGHS refuses a program of {self.num_columns} columns and {self.num_rows} rows"
            )
        return highs

    def _extend(self, highs: Any, time_limit_s: float) -> None:
        """Give HiGHS the rows that it does not have yet."""
        highs.setOptionValue("time_limit", float(highs.getRunTime()) + max(float(time_limit_s), 0.0))
        has = highs.getNumRow()
        begin = self._starts[has]
        highs.addRows(
            self.num_rows - has,
            np.array(self._row_low[has:]),
            np.array(self._row_high[has:]),
            len(self._index) - begin,
            np.array(self._starts[has:-1], dtype=np.int32) - begin,
            np.array(self._index[begin:], dtype=np.int32),
            np.array(self._value[begin:], dtype=np.float64),
        )

    def _as_highs(self, highspy: Any, is_mip: bool) -> Any:
        arrays = self.arrays().without_small(LEAST_SHARE) if is_mip else self.arrays()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.num_columns, self.num_rows
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = arrays.cost, arrays.low, arrays.high
        lp.row_lower_, lp.row_upper_ = arrays.row_low, arrays.row_high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = self.num_columns, self.num_rows
        lp.a_matrix_.start_ = arrays.matrix.indptr.astype(np.int32)
        lp.a_matrix_.index_ = arrays.matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = arrays.matrix.data
        if is_mip:
            kinds = highspy.HighsVarType
            lp.integrality_ = [kinds.kInteger if integer else kinds.kContinuous for integer in self._is_integer]
        return lp

    def _listen(self, highspy: Any, highs: Any, should_stop: Callable[[], bool]) -> None:
        def on_event(event: Any, message: str, out: Any, answer: Any, user_data: Any) -> None:  # noqa: ARG001  # HiGHS's signature
            if should_stop():
                answer.user_interrupt = True

        highs.setCallback(on_event, None)
        events = highspy.cb.HighsCallbackType
        for each in (events.kCallbackMipInterrupt, events.kCallbackSimplexInterrupt, events.kCallbackIpmInterrupt):
            highs.startCallback(each)

    def _outcome(self, highspy: Any, highs: Any, is_mip: bool) -> Outcome:
        status = highs.getModelStatus()
        states = highspy.HighsModelStatus
        if status in (states.kInfeasible, states.kUnboundedOrInfeasible):
            return Outcome("infeasible", None)
        if is_mip:
            bound = float(highs.getInfo().mip_dual_bound)
            word = "optimal" if status == states.kOptimal else "stopped"
            return Outcome(word, bound if math.isfinite(bound) else None)
        if status != states.kOptimal:
            return Outcome("stopped", None)
        solution = highs.getSolution()
        row_dual, column = np.array(solution.row_dual), np.array(solution.col_value)
        return Outcome("optimal", float(highs.getObjectiveValue()), row_dual, column)

    def weak_bound(self, row_dual: NDArray[np.float64]) -> float:
        """Return the bound that multipliers of the first rows prove, whatever they are, if all variables have boxes."""
        y = np.append(row_dual, np.zeros(self.num_rows - len(row_dual)))
        return weak_bound(self.arrays(), y, np.array(self._low), np.array(self._high))

    def proven_s(self, outcome: Outcome, unit_s: float) -> float | None:
        """Return the dual bound of a solved integer program in seconds, rounded down; None if there is none.

        With every reduced cost wrong by at most `TOLERANCE`, and every variable in a box of width 1 (or of the width
        given), the bound of a linear relaxation is wrong by at most `TOLERANCE` times the sum of the widths; the
        pruning of the tree is covered by `RELATIVE_SLACK`.
        """
        if outcome.bound is None:
            return None
        if outcome.is_certified:
            return round_down(outcome.bound * (1 - ROUNDING), unit_s)
        widths = np.array(self._high) - np.array(self._low)
        slack = TOLERANCE * float(widths[np.isfinite(widths)].sum()) + ABSOLUTE_SLACK
        return round_down((outcome.bound - slack) * (1 - RELATIVE_SLACK), unit_s)


def too_wide(coefficients: NDArray[np.float64]) -> str | None:
    """Return why HiGHS's tolerances do not bear a program's coefficients, so that its word is none; None if they do."""
    most = float(np.abs(coefficients).max(initial=0.0))
    if most <= MOST_COEFFICIENT:
        return None
    return f"a coefficient of {most:.0e}: the solver's tolerances bear {MOST_COEFFICIENT:.0e}"


def round_down(bound: float, unit_s: float) -> float | None:
    """Return `bound` in seconds, one rounding step down; None if it says nothing (not above zero)."""
    in_seconds = math.nextafter(bound * unit_s, -math.inf)
    return in_seconds if in_seconds > 0 else None
