"""Methods for `Makespan` whose names in the method table serve other objectives, too."""

from __future__ import annotations

from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives import Makespan
from placekit.solve.method import Method, Run, no_engine_order, no_shared_memory
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.cpsat.method import CpsatMethod
from placekit.solvers.assignment.first_answers import open_run
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.bound import BoundMethod, recorded
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.params import LocalSearchParams


class MakespanBound(BoundMethod):
    """Bounds without the constraint program of the whole problem, under any contiguity."""

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without memory that ops share; its tasks have direct links."""
        return no_shared_memory(problem) or no_engine_order(problem)

    def run(self, run: Run[Makespan]) -> StopReason:
        """Raise every bound."""
        from placekit.solvers.makespan.exact.cp_method import bound_makespan

        return bound_makespan(run, recorded(run))


class MakespanCpsat(CpsatMethod):
    """The program of all orders (:mod:`placekit.solvers.makespan.exact.cp_method`)."""

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity and memory that ops share."""
        if problem.contiguity is not Contiguity.NONE:
            return f"its makespan model does not keep parts {problem.contiguity}; use contiguity none"
        return no_shared_memory(problem) or no_engine_order(problem)

    def run(self, run: Run[Makespan]) -> StopReason:
        """Refute limits below the best makespan."""
        from placekit.solvers.makespan.exact.cp_method import solve_makespan

        if open_run(run) is None:
            return StopReason.PROVED
        return solve_makespan(run, self.workers)


class MakespanLocalSearch(Method):
    """Annealing of placement and order together (:mod:`placekit.solvers.makespan.search.local_search`)."""

    name = "local-search"
    params_type = LocalSearchParams
    argument = "patience"
    params: LocalSearchParams

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity and memory that ops share."""
        if problem.contiguity is not Contiguity.NONE:
            return f"for makespan it does not keep parts {problem.contiguity}"
        return no_shared_memory(problem)

    def run(self, run: Run[Makespan]) -> StopReason:
        """Search until told to stop, or until `patience` cycles in a row brought nothing."""
        from placekit.solvers.makespan.search.engine_order import search_engine_order
        from placekit.solvers.makespan.search.local_search import search_makespan

        offer_single_devices(run)
        raise_bounds_at_once(run)
        if no_engine_order(run.problem) is not None:
            return search_engine_order(run, self.params)
        return search_makespan(run, self.params)
