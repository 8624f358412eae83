"""CP-SAT, made anytime: every incumbent and bound as it comes, and a way to stop from outside.

CP-SAT runs in a thread of its own and the calling thread waits in short steps, so that it keeps seeing signals
(Ctrl-C), and asks every now and then whether to stop.

CP-SAT can keep parallel workers in step (``interleave_search``), which would make them reproducible; but stopping such
a search from outside aborts the process now and then (OR-Tools 9.15: "Check failed: solution->size() ==
postsolve_mapping.size()", about one stop in 200). So it is not used: one worker is reproducible, several are not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from ortools.sat.python import cp_model

from placekit.model.errors import SolverUnavailableError
from placekit.solve.method import Run
from placekit.solve.stop import in_this_solve
from placekit.solvers.backends.building import no_step

Answer_co = TypeVar("Answer_co", covariant=True)

POLL_S = 0.02
"""Seconds between two looks at whether to stop."""


class CpStatus(StrEnum):
    """CP-SAT's word on the model."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


_OUTCOMES = {
    cp_model.OPTIMAL: CpStatus.OPTIMAL,
    cp_model.FEASIBLE: CpStatus.FEASIBLE,
    cp_model.INFEASIBLE: CpStatus.INFEASIBLE,
    cp_model.UNKNOWN: CpStatus.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class CpsatLimits:
    """Limits and settings of a search by CP-SAT."""

    workers: int = 1  # number of parallel workers
    presolve: bool = True  # False to solve the model as it is. Small models need no presolve.
    seed: int = 0  # seed; the same one gives the same answer with one worker and no limit on wall time
    time_s: float | None = None  # wall seconds; None for no limit
    gap: float = 0.0  # relative gap at which to stop
    # True where no solution is expected: one worker that learns clauses and has no linear relaxation, whatever
    # `workers` says. On one core it refuted makespans three to four times as fast as eight workers on two.
    refutes: bool = False


class Readable(Protocol[Answer_co]):
    """A model whose solutions can be read."""

    @property
    def proto(self) -> cp_model.CpModel:
        """The model."""
        ...

    def read(self, solution: cp_model.CpSolverSolutionCallback) -> Answer_co:
        """Return the answer that CP-SAT has just found."""
        ...


class WatchedCpModel(cp_model.CpModel):
    """A CP-SAT model that says when it gets a variable or a constraint of the kinds that make it large.

    Parameters
    ----------
    step
        Called each time.
    """

    def __init__(self, step: Callable[[], None] = no_step) -> None:
        super().__init__()
        self._step = step

    def new_bool_var(self, name: str) -> cp_model.IntVar:
        """Add a Boolean."""
        self._step()
        return super().new_bool_var(name)

    def add(self, ct: Any) -> cp_model.Constraint:
        """Add a linear constraint."""
        self._step()
        return super().add(ct)

    def add_bool_or(self, *literals: Any) -> cp_model.Constraint:
        """Add a clause."""
        self._step()
        return super().add_bool_or(*literals)


class _OnSolution(cp_model.CpSolverSolutionCallback):
    def __init__(self, see: Callable[[cp_model.CpSolverSolutionCallback], None]) -> None:
        super().__init__()
        self._see = see

    def on_solution_callback(self) -> None:
        self._see(self)


def search(
    model: Readable[Answer_co],
    limits: CpsatLimits,  # when to stop, and how to search
    # called with the answer (``[C]`` devices) and the integer objective of every improving solution, from another
    # thread; never together with `on_bound`
    on_solution: Callable[[Answer_co, float], None],
    # called with the integer lower bound whenever it rises, from another thread; None for nobody
    on_bound: Callable[[float], None] | None,
    should_stop: Callable[[], bool],  # asked every few hundredths of a second; True ends the search
) -> CpStatus:
    """Solve `model` within `limits`.

    Raises `SolverUnavailableError`: CP-SAT refuses the model.
    """
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1 if limits.refutes else limits.workers
    if limits.refutes:
        parameters.linearization_level = 0
        # with use_dynamic_precedence_in_disjunctive, CP-SAT 9.15 aborts the process on some colocated makespans
        parameters.use_strong_propagation_in_disjunctive = True
    parameters.random_seed = limits.seed % 2**31
    parameters.relative_gap_limit = limits.gap
    parameters.cp_model_presolve = limits.presolve
    if not limits.presolve and not limits.refutes:
        parameters.linearization_level = 2  # small programs with ties: 3 ops took 3.5 s by clauses, 0.04 s by rows
    # presolve of sets inside sets cuts off optima: https://github.com/google/or-tools/issues/5293 (9.15)
    parameters.presolve_inclusion_work_limit = 0
    parameters.catch_sigint_signal = False
    if limits.time_s is not None:
        parameters.max_time_in_seconds = limits.time_s
    lock = threading.Lock()
    errors: list[BaseException] = []

    def guarded(callback: Callable[[], None]) -> None:
        try:
            with lock:
                if not errors:
                    callback()
        except BaseException as error:  # must not cross CP-SAT's frames: kept, and raised again below
            errors.append(error)

    def see_solution(solution: cp_model.CpSolverSolutionCallback) -> None:
        guarded(lambda: on_solution(model.read(solution), solution.objective_value))

    if on_bound is not None:
        solver.best_bound_callback = lambda bound: guarded(lambda: on_bound(bound))
    status = cp_model.UNKNOWN

    def work() -> None:
        nonlocal status
        try:
            status = solver.solve(model.proto, _OnSolution(see_solution))
        except BaseException as error:  # carried to the calling thread
            errors.append(error)

    worker = threading.Thread(target=in_this_solve(work), name="cp-sat")
    worker.start()
    while worker.is_alive():
        worker.join(POLL_S)
        if errors or should_stop():
            solver.stop_search()
    if errors:
        raise errors[0]
    if status not in _OUTCOMES:
        raise SolverUnavailableError(f"cpsat: CP-SAT refuses the model: {model.proto.validate() or status}")
    if on_bound is not None and status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        on_bound(solver.best_objective_bound)
    return _OUTCOMES[status]


def search_for(
    run: Run[Any],
    model: Readable[Answer_co],
    workers: Callable[[int], int],
    on_solution: Callable[[Answer_co, float], None],
    on_bound: Callable[[float], None] | None,
    *,
    no_presolve_up_to: int = 0,
    refutes: bool = False,
    should_stop: Callable[[], bool] | None = None,
) -> CpStatus:
    """Let `search` work within the limits of `run`, whose `info` then has the size of the model and CP-SAT's word.

    `workers` returns their number for a number of variables; up to so many variables there is no presolve.
    """
    num_variables, num_constraints = len(model.proto.proto.variables), len(model.proto.proto.constraints)
    run.info |= {"variables": num_variables, "constraints": num_constraints}
    limits = CpsatLimits(
        workers(num_variables), num_variables > no_presolve_up_to, run.seed, run.remaining_s, run.asked_gap / 2, refutes
    )
    outcome = search(model, limits, on_solution, on_bound, should_stop or (lambda: run.should_stop() is not None))
    run.info["solver_status"] = str(outcome)
    return outcome
