"""What serves `Makespan`: one class for every method of the table that serves other objectives, too."""

from __future__ import annotations

from dataclasses import dataclass

from placekit.contiguity import Contiguity
from placekit.loading import wait_for_module
from placekit.method import Method, Run
from placekit.objectives import Makespan
from placekit.problem import Problem
from placekit.result import OPTIMALITY_TOLERANCE
from placekit.solvers.assignment.cpsat.method import CpsatMethod
from placekit.solvers.assignment.opening import open_run
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bound import BoundMethod, recorded
from placekit.solvers.generic.largest_op import largest_op
from placekit.solvers.makespan.mechanisms import Without
from placekit.solvers.params import CpsatParams, LnsParams, LocalSearchParams
from placekit.stop import StopReason

__all__ = ["MakespanBound", "MakespanCpsat", "MakespanLns", "MakespanLocalSearch"]


@dataclass(frozen=True)
class MakespanCpsatParams(Without, CpsatParams):
    """Parameters of `MakespanCpsat`: those of ``cpsat``, and `without`."""


@dataclass(frozen=True)
class MakespanLocalSearchParams(Without, LocalSearchParams):
    """Parameters of `MakespanLocalSearch`: those of ``local-search``, and `without`."""


@dataclass(frozen=True)
class MakespanLnsParams(Without, LnsParams):
    """Parameters of `MakespanLns`: those of ``lns``, and `without`."""


def _begin(run: Run[Makespan]) -> None:
    offer_single_devices(run)
    run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)


class MakespanBound(BoundMethod):
    """Bounds without the constraint program of the whole problem, under any contiguity."""

    params_type = Without
    params: Without
    knows_links = True  # its tasks do

    def run(self, run: Run[Makespan]) -> StopReason:
        """Raise every bound."""
        wait_for_module("placekit.solvers.makespan.exact.cp_method")
        from placekit.solvers.makespan.exact.cp_method import bound_makespan

        return bound_makespan(run, recorded(run), self.params.mechanisms)


class MakespanCpsat(CpsatMethod):
    """The program of all orders (:mod:`placekit.solvers.makespan.exact.cp_method`)."""

    params_type = MakespanCpsatParams
    params: MakespanCpsatParams
    knows_links = True  # its tasks do

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity."""
        is_free = problem.contiguity is Contiguity.NONE
        return None if is_free else f"its makespan model does not keep parts {problem.contiguity}; use contiguity none"

    def run(self, run: Run[Makespan]) -> StopReason:
        """Refute limits below the best makespan."""
        wait_for_module("placekit.solvers.makespan.exact.cp_method")
        from placekit.solvers.makespan.exact.cp_method import solve_makespan

        if open_run(run) is None:
            return StopReason.PROVED
        return solve_makespan(run, self.workers, self.params.mechanisms)


class MakespanLocalSearch(Method):
    """Annealing of placement and order together (:mod:`placekit.solvers.makespan.search.local_search`)."""

    name = "local-search"
    params_type = MakespanLocalSearchParams
    argument = "patience"
    params: MakespanLocalSearchParams
    knows_links = True  # its schedules do

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity."""
        is_free = problem.contiguity is Contiguity.NONE
        return None if is_free else f"for makespan it does not keep parts {problem.contiguity}"

    def run(self, run: Run[Makespan]) -> StopReason:
        """Search until told to stop, or until `patience` cycles in a row brought nothing."""
        wait_for_module("placekit.solvers.makespan.search.local_search")
        from placekit.solvers.makespan.search.local_search import search_makespan

        _begin(run)
        return search_makespan(run, self.params, self.params.mechanisms)


class MakespanLns(Method):
    """Large-neighbourhood search (:mod:`placekit.solvers.makespan.exact.lns`)."""

    name = "lns"
    params_type = MakespanLnsParams
    argument = "patience"
    params: MakespanLnsParams
    knows_links = True  # its tasks do

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity."""
        is_free = problem.contiguity is Contiguity.NONE
        return None if is_free else f"its neighbourhoods do not keep parts {problem.contiguity}; use contiguity none"

    def run(self, run: Run[Makespan]) -> StopReason:
        """Search until told to stop, or until `patience` neighbourhoods in a row brought nothing."""
        wait_for_module("placekit.solvers.makespan.exact.lns")
        from placekit.solvers.makespan.exact.lns import search_neighbourhoods

        _begin(run)
        return search_neighbourhoods(run, self.params, self.params.mechanisms)
