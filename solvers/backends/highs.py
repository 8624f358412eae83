"""HiGHS: the one place that calls it.

HiGHS runs in a thread of its own, so that the calling thread keeps seeing signals (Ctrl-C), and is told to stop through
its callbacks.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from placekit.io.needs import require
from placekit.model.errors import SolverUnavailableError
from placekit.solvers.backends.arrays import Arrays
from placekit.solvers.backends.thread import run_beside

SOUND_OPTIONS: dict[str, object] = {"presolve": "off", "mip_root_presolve_only": True}
"""How HiGHS solves an integer program whose word counts. Of 3,414 programs of a few columns (1.13.1) it called optimal
what is not in 18 with its presolve, in 4 without, and in 2 if nodes are not presolved either; in those two it is within
its tolerances. What is proven in floating point needs none of this: see :mod:`placekit.solvers.backends.certified`."""


_loading = threading.Lock()


def _highspy() -> Any:
    with _loading:
        return _loaded()


@cache
def _loaded() -> Any:
    """Import HiGHS, and keep out of stdout what 1.16 prints there when a process makes its first solver."""
    highspy: Any = require("highspy", "a linear or integer program")
    with suppress(OSError), Path(os.devnull).open("w") as nowhere:
        stdout = os.dup(1)
        try:
            os.dup2(nowhere.fileno(), 1)
            highspy.Highs()
            ctypes.CDLL(None).fflush(None)  # while it goes nowhere: C keeps lines for a pipe
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
    return highspy


class Highs:
    """HiGHS with a program in it.

    Parameters
    ----------
    **options
        Options of HiGHS by its names.

    Raises
    ------
    SolverUnavailableError
        HiGHS is not installed, or refuses the program.
    """

    def __init__(self, arrays: Arrays, **options: object) -> None:
        self._highspy = highspy = _highspy()
        self._highs = highspy.Highs()
        self._error: BaseException | None = None
        self._is_abandoned = False
        self.set_options(output_flag=False, **options)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(arrays.cost), len(arrays.row_low)
        lp.offset_ = arrays.offset
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = arrays.cost, arrays.low, arrays.high
        lp.row_lower_, lp.row_upper_ = arrays.row_low, arrays.row_high
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
        lp.a_matrix_.start_ = arrays.matrix.indptr.astype(np.int32)
        lp.a_matrix_.index_ = arrays.matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = arrays.matrix.data
        if arrays.is_integer.any():
            kinds = highspy.HighsVarType
            lp.integrality_ = [kinds.kInteger if integer else kinds.kContinuous for integer in arrays.is_integer]
        if self._highs.passModel(lp) == highspy.HighsStatus.kError:
            raise SolverUnavailableError(
                f"HiGHS refuses a program of {len(arrays.cost)} columns and {len(arrays.row_low)} rows"
            )

    def set_options(self, **options: object) -> None:
        """Set options of HiGHS by its names."""
        for option, value in options.items():
            self._highs.setOptionValue(option, value)

    def add_rows(self, matrix: csr_array, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        """Add rows to the program, which is then solved from where it ended."""
        starts, index = matrix.indptr[:-1].astype(np.int32), matrix.indices.astype(np.int32)
        self._highs.addRows(len(low), low, high, matrix.nnz, starts, index, matrix.data)

    def change_boxes(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        """Change the boxes of all variables."""
        self._highs.changeColsBounds(len(low), np.arange(len(low), dtype=np.int32), low, high)

    def start_from(self, column: NDArray[np.float64]) -> None:
        """Give HiGHS a solution to start from."""
        solution = self._highspy.HighsSolution()
        solution.col_value = column.tolist()
        self._highs.setSolution(solution)

    def run_here(self) -> None:
        """Solve without a thread and without callbacks: for what takes no time."""
        self._highs.run()

    def run(
        self,
        should_stop: Callable[[], bool],  # asked often, from HiGHS's thread, too; True ends the solve
        # called with ``[num_columns]`` values and the objective of every improving solution of an integer program, from
        # HiGHS's thread
        on_solution: Callable[[NDArray[np.float64], float], None] | None = None,
        on_bound: Callable[[float], None] | None = None,  # called with its dual bound, from HiGHS's thread
    ) -> bool:
        """Solve in a thread.

        Returns
        -------
        bool
            False if HiGHS was told to stop and does not listen: then it must not be asked anything any more.

        Raises
        ------
        BaseException
            What one of the functions raised.
        """
        events = self._highspy.cb.HighsCallbackType
        improving, of_integers = events.kCallbackMipImprovingSolution, events.kCallbackMipInterrupt

        def on_event(event: Any, message: str, out: Any, answer: Any, user_data: Any) -> None:  # noqa: ARG001  # HiGHS's signature
            if self._is_abandoned:
                answer.user_interrupt = True
                return
            try:
                if event == improving and on_solution is not None:
                    on_solution(np.array(out.mip_solution, dtype=np.float64), float(out.objective_function_value))
                if event in (improving, of_integers) and on_bound is not None:
                    on_bound(float(out.mip_dual_bound))
                if should_stop():
                    answer.user_interrupt = True
            except BaseException as error:  # must not cross HiGHS's frames: kept, and raised again below
                self._error = error
                answer.user_interrupt = True

        self._highs.setCallback(on_event, None)
        for each in (improving, of_integers, events.kCallbackSimplexInterrupt, events.kCallbackIpmInterrupt):
            self._highs.startCallback(each)
        self._is_abandoned = not run_beside(self._run, should_stop, "highs")
        if self._error is not None:
            raise self._error
        return not self._is_abandoned

    def _run(self) -> None:
        try:
            self._highs.run()
        except BaseException as error:  # carried to the calling thread
            self._error = error
        finally:
            self._highs.setCallback(None, None)  # HiGHS would hold this object, where no collector sees it

    @property
    def status(self) -> str:
        """HiGHS's own word: ``"kOptimal"``, ``"kInfeasible"``, ..."""
        return str(self._highs.getModelStatus().name)

    @property
    def objective(self) -> float:
        """Objective of the best solution, offset included."""
        return float(self._highs.getObjectiveValue())

    @property
    def dual_bound(self) -> float:
        """Bound of an integer program, offset included."""
        return float(self._highs.getInfo().mip_dual_bound)

    @property
    def has_solution(self) -> bool:
        """True if there is a feasible solution."""
        status = self._highs.getInfo().primal_solution_status
        return bool(status == self._highspy.SolutionStatus.kSolutionStatusFeasible)

    @property
    def column(self) -> NDArray[np.float64]:
        """``[num_columns]`` the best solution."""
        return np.array(self._highs.getSolution().col_value)

    @property
    def row_dual(self) -> NDArray[np.float64]:
        """``[num_rows]`` multipliers of a linear program; positive ones are of lower sides."""
        return np.array(self._highs.getSolution().row_dual)

    @property
    def dual_ray(self) -> NDArray[np.float64] | None:
        """``[num_rows]`` multipliers that prove a linear program infeasible, up to their sign; None without any."""
        _, has_ray, ray = self._highs.getDualRay()
        return np.array(ray) if has_ray else None

    @property
    def run_time_s(self) -> float:
        """Seconds that HiGHS has run, which its own limit counts."""
        return float(self._highs.getRunTime())
