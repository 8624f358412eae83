"""PuLP's HiGHS solver, made anytime: warm start, incumbents, bound, interrupt.

PuLP builds the HiGHS model and reads the answer; this adds what an anytime method needs and PuLP does not pass
through: a MIP start, every improving solution, the dual bound, and a way to stop from outside. HiGHS runs in a thread
of its own, so that the main thread keeps seeing signals (Ctrl-C).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import highspy
import numpy as np
import pulp
from numpy.typing import NDArray

from placekit.solvers.backends.highs import UNSOUND_PRESOLVE_RULES

__all__ = ["AnytimeHiGHS"]

_EVENTS = highspy.cb.HighsCallbackType


class AnytimeHiGHS(pulp.HiGHS):  # type: ignore[misc]  # PuLP is not typed
    """HiGHS through PuLP, with callbacks.

    Parameters
    ----------
    on_solution
        Called with ``[num_variables]`` values, in the order of ``lp.variables()``, and the objective of every
        improving solution; from HiGHS's thread.
    on_bound
        Called with the dual bound whenever HiGHS reports one; from HiGHS's thread.
    should_stop
        Asked often; True ends the solve.
    start
        Values of all variables to start from; None for a cold start.
    **options
        `timeLimit`, `threads` and any HiGHS option.

    Attributes
    ----------
    status : highspy.HighsModelStatus
        HiGHS's own word, after the solve.
    bound : float or None
        Dual bound after the solve.
    """

    def __init__(
        self,
        on_solution: Callable[[NDArray[np.float64], float], None],
        on_bound: Callable[[float], None],
        should_stop: Callable[[], bool],
        start: Mapping[pulp.LpVariable, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            msg=False,
            callbackTuple=(self._on_event, None),
            callbacksToActivate=[_EVENTS.kCallbackMipImprovingSolution, _EVENTS.kCallbackMipInterrupt],
            presolve_rule_off=UNSOUND_PRESOLVE_RULES,
            **options,
        )
        self._on_solution, self._on_bound, self._should_stop, self._start = on_solution, on_bound, should_stop, start
        self._error: BaseException | None = None
        self.status: Any = None
        self.bound: float | None = None

    def _on_event(self, event: Any, message: str, out: Any, answer: Any, user_data: Any) -> None:  # noqa: ARG002  # HiGHS's signature
        try:
            if event == _EVENTS.kCallbackMipImprovingSolution:
                self._on_solution(np.array(out.mip_solution, dtype=np.float64), float(out.objective_function_value))
            self._see_bound(out.mip_dual_bound)
            if self._should_stop():
                answer.user_interrupt = True
        except BaseException as error:  # must not cross HiGHS's frames: kept, and raised again by `callSolver`
            self._error = error
            answer.user_interrupt = True

    def _see_bound(self, bound: float) -> None:
        if np.isfinite(bound) and (self.bound is None or bound > self.bound):
            self.bound = float(bound)
            self._on_bound(self.bound)

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802  # PuLP's name
        """Run HiGHS on the model that PuLP built."""
        highs = lp.solverModel
        highs.changeObjectiveOffset(lp.objective.constant)  # which PuLP leaves out
        if self._start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = [self._start[variable] for variable in lp.variables()]
            highs.setSolution(solution)
        worker = threading.Thread(target=self._run, args=(highs,), name="highs")
        worker.start()
        while worker.is_alive():
            worker.join(0.05)
        if self._error is not None:
            raise self._error
        self.status = highs.getModelStatus()
        info = highs.getInfo()
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            # presolve and restarts can find the last solution without a callback
            self._on_solution(np.array(highs.getSolution().col_value), highs.getObjectiveValue())
        is_mip = any(variable.cat == pulp.LpInteger for variable in lp.variables())
        if is_mip:
            self._see_bound(info.mip_dual_bound)
        elif self.status == highspy.HighsModelStatus.kOptimal:
            self._see_bound(highs.getObjectiveValue())

    def _run(self, highs: Any) -> None:
        try:
            highs.run()
        except BaseException as error:  # carried to the calling thread
            self._error = error
