"""Methods for `OffloadLatency`: one class for every name in the method table."""

from __future__ import annotations

from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives import OffloadLatency
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.cpsat.method import CpsatMethod
from placekit.solvers.assignment.ilp.solve import IlpMethod
from placekit.solvers.backends.building import PULP, Building, time_left
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.bound import BoundMethod, recorded
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.rescaled import rescaled
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.params import DpParams, LocalSearchParams


class OffloadLatencyDp(Method):
    """Series program (:mod:`placekit.solvers.offload_latency.series.series_program`) with a moment of annealing."""

    name = "dp"
    params_type = DpParams
    params: DpParams

    def run(self, run: Run[OffloadLatency]) -> StopReason:
        """Solve calls along the spine of the graph."""
        from placekit.solvers.offload_latency.first_answers import solve_offload

        return solve_offload(run)


class OffloadLatencyBound(BoundMethod):
    """Critical path, largest op, and the series program's bound."""

    def run(self, run: Run[OffloadLatency]) -> StopReason:
        """Raise every bound."""
        from placekit.solvers.offload_latency.first_answers import bound_offload

        return bound_offload(run, recorded(run))


class OffloadLatencyIlp(IlpMethod):
    """Exact offload latency by integer programming."""

    def supports(self, problem: Problem[OffloadLatency]) -> str | None:
        """Return None without contiguity."""
        if problem.contiguity is not Contiguity.NONE:
            return f"for offload-latency it does not keep parts {problem.contiguity}; use contiguity none"
        return super().supports(problem)

    def run(self, run: Run[OffloadLatency]) -> StopReason:
        """Start from the series program and a search, and solve the integer program."""
        from placekit.solvers.offload_latency.bounds import longest_latency
        from placekit.solvers.offload_latency.first_answers import search_before
        from placekit.solvers.offload_latency.ilp_model import OffloadIlp, count_coefficients

        if (stopped := search_before(run)) is not None:
            return stopped
        flat = flatten_calls(run.problem)

        def solve(ceiling_s: float | None) -> StopReason:
            step = Building("integer program", count_coefficients(run.problem, flat), PULP, lambda: time_left(run))
            longest_s = longest_latency(run.problem) if ceiling_s is None else ceiling_s
            model = OffloadIlp(run.problem, flat, longest_s, step)
            return self.solve(run, model, model.encode)

        return rescaled(run, solve)


class OffloadLatencyCpsat(CpsatMethod):
    """Exact offload latency by constraint programming."""

    def run(self, run: Run[OffloadLatency]) -> StopReason:
        """Start from the series program and a search, and solve the constraint program."""
        from placekit.solvers.offload_latency.cp_method import solve_offload_program
        from placekit.solvers.offload_latency.first_answers import search_before

        if (stopped := search_before(run)) is not None:
            return stopped
        return solve_offload_program(run, self.workers)


class OffloadLatencyLocalSearch(Method):
    """Annealing of whole calls (:mod:`placekit.solvers.offload_latency.search`)."""

    name = "local-search"
    params_type = LocalSearchParams
    argument = "patience"
    params: LocalSearchParams

    def run(self, run: Run[OffloadLatency]) -> StopReason:
        """Search until told to stop, or until `patience` rounds in a row bring no improvement."""
        from placekit.solvers.offload_latency.search import search_offload

        offer_single_devices(run)
        raise_bounds_at_once(run)
        return search_offload(run, self.params)
