"""PuLP's HiGHS solver, made anytime: warm start, incumbents, bound, interrupt.

PuLP holds the model; this hands it to HiGHS as arrays, at once instead of row by row, and adds what an anytime method
needs and PuLP does not pass through: a MIP start, every improving solution, the dual bound, and a way to stop from
outside. HiGHS runs in a thread of its own, so that the main thread keeps seeing signals (Ctrl-C). Values go to the
callbacks and nowhere else: those of PuLP's variables stay as they were.

A program of few integers is proven once more when HiGHS has ended, by
:mod:`placekit.solvers.backends.certified`: only that bound counts then, and a better solution of its is passed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import highspy
import numpy as np
import pulp
from numpy.typing import NDArray

from placekit.errors import SolverUnavailableError
from placekit.solvers.backends.beside import run_beside
from placekit.solvers.backends.building import no_step
from placekit.solvers.backends.certified import MAX_INTEGERS, Arrays, branch_and_bound
from placekit.solvers.backends.highs import SOUND_OPTIONS, too_wide

__all__ = ["AnytimeHiGHS", "WatchedLp"]

_EVENTS = highspy.cb.HighsCallbackType
_OF_INTEGERS = (_EVENTS.kCallbackMipImprovingSolution, _EVENTS.kCallbackMipInterrupt)
"""What knows a dual bound of the integer program."""


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


class AnytimeHiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP is not typed
    """HiGHS through PuLP, with callbacks.

    Parameters
    ----------
    on_solution
        Called with ``[num_variables]`` values, in the order of `variables`, and the objective of every improving
        solution; from HiGHS's thread.
    on_bound
        Called with every dual bound, and whether it is proven whatever HiGHS did; mostly from HiGHS's thread.
    should_stop
        Asked often; True ends the solve.
    variables
        ``lp.variables()`` of the model to solve, which is slow to ask for again.
    start
        Values of all variables to start from; None for a cold start.
    **options
        `timeLimit`, `threads` and any HiGHS option.

    Attributes
    ----------
    status : highspy.HighsModelStatus
        HiGHS's own word, after the solve.
    bound : float or None
        HiGHS's dual bound after the solve.
    is_certified : bool
        True if the program is small enough to be proven once more; then bounds come at the end only.
    refusal : str or None
        Why HiGHS's bounds do not count, if they do not.
    is_infeasible : bool
        True if there is no solution: HiGHS's word, or, where `is_certified`, proven.
    """

    def __init__(
        self,
        on_solution: Callable[[NDArray[np.float64], float], None],
        on_bound: Callable[[float, bool], None],
        should_stop: Callable[[], bool],
        variables: Sequence[pulp.LpVariable],
        start: Mapping[pulp.LpVariable, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            msg=False,
            callbackTuple=(self._on_event, None),
            callbacksToActivate=[
                _EVENTS.kCallbackMipImprovingSolution,
                _EVENTS.kCallbackMipInterrupt,
                _EVENTS.kCallbackSimplexInterrupt,
                _EVENTS.kCallbackIpmInterrupt,
            ],
            **SOUND_OPTIONS,
            **options,
        )
        self._on_solution, self._on_bound, self._should_stop, self._start = on_solution, on_bound, should_stop, start
        self._variables = variables
        self._error: BaseException | None = None
        self.status: Any = None
        self.bound: float | None = None
        self.is_certified = False
        self.is_infeasible = False
        self.is_abandoned = False
        self.refusal: str | None = None
        self._objective = math.inf

    def _on_event(self, event: Any, message: str, out: Any, answer: Any, user_data: Any) -> None:  # noqa: ARG002  # HiGHS's signature
        if self.is_abandoned:
            answer.user_interrupt = True
            return
        try:
            if event == _EVENTS.kCallbackMipImprovingSolution:
                self._see_solution(np.array(out.mip_solution, dtype=np.float64), float(out.objective_function_value))
            if event in _OF_INTEGERS:
                self._see_bound(out.mip_dual_bound)
            if self._should_stop():
                answer.user_interrupt = True
        except BaseException as error:  # must not cross HiGHS's frames: kept, and raised again by `callSolver`
            self._error = error
            answer.user_interrupt = True

    def _see_bound(self, bound: float) -> None:
        if np.isfinite(bound) and (self.bound is None or bound > self.bound):
            self.bound = float(bound)
            if not self.is_certified and self.refusal is None:
                self._on_bound(self.bound, False)

    def _see_solution(self, values: NDArray[np.float64], objective: float) -> None:
        self._objective = min(self._objective, objective)
        self._on_solution(values, objective)

    def actualSolve(self, lp: pulp.LpProblem) -> int:  # noqa: N802  # PuLP's name
        """Run HiGHS on the model; PuLP's own status says nothing."""
        self.createAndConfigureSolver(lp)
        highs = lp.solverModel
        if highs.passModel(self._as_highs(lp)) == highspy.HighsStatus.kError:
            raise SolverUnavailableError(
                f"ilp: HiGHS refuses a program of {len(self._variables)} columns and {lp.numConstraints()} rows"
            )
        if self._start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = [self._start[variable] for variable in self._variables]
            highs.setSolution(solution)
        self.is_certified = sum(variable.cat == pulp.LpInteger for variable in self._variables) <= MAX_INTEGERS
        if not self.is_certified:
            self.refusal = too_wide(np.array(highs.getLp().a_matrix_.value_))
        self._solve(highs)
        return int(pulp.LpStatusNotSolved)

    def _as_highs(self, lp: pulp.LpProblem) -> highspy.HighsLp:
        column = {variable: at for at, variable in enumerate(self._variables)}
        starts, index, value = [0], [], []
        low, high = [], []
        for row in lp.constraints():
            for variable, coefficient in row.items():
                if coefficient:
                    index.append(column[variable])
                    value.append(coefficient)
            starts.append(len(index))
            low.append(-math.inf if row.sense == pulp.LpConstraintLE else -row.constant)
            high.append(math.inf if row.sense == pulp.LpConstraintGE else -row.constant)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(column), len(low)
        cost = [lp.objective.get(variable, 0.0) for variable in self._variables]
        program.col_cost_ = np.array(cost, dtype=np.float64)
        program.col_lower_ = np.array([_or_infinite(each.lowBound, -1) for each in self._variables], dtype=np.float64)
        program.col_upper_ = np.array([_or_infinite(each.upBound, 1) for each in self._variables], dtype=np.float64)
        program.row_lower_, program.row_upper_ = np.array(low, dtype=np.float64), np.array(high, dtype=np.float64)
        program.offset_ = float(lp.objective.constant)
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.num_col_, program.a_matrix_.num_row_ = len(column), len(low)
        program.a_matrix_.start_ = np.array(starts, dtype=np.int32)
        program.a_matrix_.index_ = np.array(index, dtype=np.int32)
        program.a_matrix_.value_ = np.array(value, dtype=np.float64)
        kinds = highspy.HighsVarType
        program.integrality_ = [
            kinds.kInteger if each.cat == pulp.LpInteger else kinds.kContinuous for each in self._variables
        ]
        return program

    def _solve(self, highs: Any) -> None:
        self.is_abandoned = not run_beside(lambda: self._run(highs), self._should_stop, "highs")
        if self._error is not None:
            raise self._error
        if self.is_abandoned:  # what it has found by now came by callbacks
            self.status = highspy.HighsModelStatus.kInterrupt
            return
        self.status = highs.getModelStatus()
        info = highs.getInfo()
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            # presolve and restarts can find the last solution without a callback
            self._see_solution(np.array(highs.getSolution().col_value), highs.getObjectiveValue())
        self.is_infeasible = self.status == highspy.HighsModelStatus.kInfeasible and self.refusal is None
        self._see_bound(info.mip_dual_bound)
        if self.is_certified:
            self._certify(highs)

    def _certify(self, highs: Any) -> None:
        """Prove that nothing is better than the best solution, or pass on what is; or that there is none."""
        offset = float(highs.getLp().offset_)
        proof = branch_and_bound(Arrays.of_highs(highs.getLp()), self._objective - offset, math.inf, self._should_stop)
        self.is_infeasible = proof.is_done and proof.bound == math.inf
        if proof.column is not None and proof.objective + offset < self._objective:
            self._see_solution(proof.column, proof.objective + offset)
        if math.isfinite(proof.bound):
            self._on_bound(proof.bound + offset, True)

    def _run(self, highs: Any) -> None:
        try:
            highs.run()
        except BaseException as error:  # carried to the calling thread
            self._error = error
        finally:
            highs.setCallback(None, None)  # HiGHS holds this object, which holds HiGHS, where no collector sees it


def _or_infinite(limit: float | None, sign: int) -> float:
    return sign * math.inf if limit is None else limit
