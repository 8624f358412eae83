"""What serves `Makespan`: one class for every method of the table that serves other objectives, too."""

from __future__ import annotations

from dataclasses import dataclass

from placekit.contiguity import Contiguity
from placekit.method import Method, Run
from placekit.objectives import Makespan
from placekit.problem import Problem
from placekit.result import OPTIMALITY_TOLERANCE
from placekit.solvers.assignment.cpsat.solve import CpsatMethod
from placekit.solvers.assignment.opening import open_run
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bound import BoundMethod, recorded
from placekit.solvers.generic.largest_op import largest_op
from placekit.solvers.lns.uncertain import uncertain_ops
from placekit.solvers.makespan.mechanisms import Mechanisms
from placekit.solvers.params import CpsatParams, LnsParams, LocalSearchParams
from placekit.stop import StopReason

__all__ = ["MakespanBound", "MakespanCpsat", "MakespanLns", "MakespanLocalSearch"]

DEFAULT_WORKERS = 2
"""Neighbourhoods that are searched side by side."""


@dataclass(frozen=True, slots=True)
class MakespanBoundParams:
    """Parameters of `MakespanBound`.

    Parameters
    ----------
    without
        Mechanisms that are switched off, by name and with commas: see `Mechanisms`.
    """

    without: str = ""

    def __post_init__(self) -> None:
        Mechanisms.without(self.without)


@dataclass(frozen=True, slots=True)
class MakespanCpsatParams(CpsatParams):
    """Parameters of `MakespanCpsat`: those of ``cpsat``, and one more.

    Parameters
    ----------
    without
        As of `MakespanBoundParams`: mechanisms that are switched off, by name and with commas.
    """

    without: str = ""

    def __post_init__(self) -> None:
        CpsatParams.__post_init__(self)
        Mechanisms.without(self.without)


@dataclass(frozen=True, slots=True)
class MakespanLocalSearchParams(LocalSearchParams):
    """Parameters of `MakespanLocalSearch`: those of ``local-search``, and one more.

    Parameters
    ----------
    without
        As of `MakespanBoundParams`: mechanisms that are switched off, by name and with commas.
    """

    without: str = ""

    def __post_init__(self) -> None:
        LocalSearchParams.__post_init__(self)
        Mechanisms.without(self.without)


@dataclass(frozen=True, slots=True)
class MakespanLnsParams(LnsParams):
    """Parameters of `MakespanLns`: those of ``lns``, and one more.

    Parameters
    ----------
    without
        As of `MakespanBoundParams`: mechanisms that are switched off, by name and with commas.
    """

    without: str = ""

    def __post_init__(self) -> None:
        LnsParams.__post_init__(self)
        Mechanisms.without(self.without)


class MakespanBound(BoundMethod):
    """Bounds without the constraint program of the whole problem, under any contiguity."""

    params_type = MakespanBoundParams
    params: MakespanBoundParams

    def run(self, run: Run[Makespan]) -> StopReason:
        """Raise every bound."""
        from placekit.solvers.makespan.exact.cp_method import bound_makespan

        return bound_makespan(run, recorded(run), Mechanisms.without(self.params.without))


class MakespanCpsat(CpsatMethod):
    """The program of all orders (:mod:`placekit.solvers.makespan.exact.cp_method`)."""

    params_type = MakespanCpsatParams
    params: MakespanCpsatParams

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity."""
        from placekit.solvers.makespan.exact.cp_method import why_not

        return why_not(problem)

    def run(self, run: Run[Makespan]) -> StopReason:
        """Refute limits below the best makespan."""
        from placekit.solvers.makespan.exact.cp_method import solve_makespan

        if open_run(run) is None:
            return StopReason.PROVED
        return solve_makespan(run, self.workers, Mechanisms.without(self.params.without))


class MakespanLocalSearch(Method):
    """Annealing of placement and order together (:mod:`placekit.solvers.makespan.search.local_search`)."""

    name = "local-search"
    params_type = MakespanLocalSearchParams
    argument = "patience"
    params: MakespanLocalSearchParams

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity."""
        is_free = problem.contiguity is Contiguity.NONE
        return None if is_free else f"for makespan it does not keep parts {problem.contiguity}"

    def run(self, run: Run[Makespan]) -> StopReason:
        """Search until told to stop, or until `patience` cycles in a row brought nothing."""
        from placekit.solvers.makespan.search.local_search import search_makespan

        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)
        return search_makespan(run, self.params, Mechanisms.without(self.params.without))


class MakespanLns(Method):
    """Large-neighbourhood search (:mod:`placekit.solvers.makespan.exact.lns`)."""

    name = "lns"
    params_type = MakespanLnsParams
    argument = "patience"
    params: MakespanLnsParams

    def supports(self, problem: Problem[Makespan]) -> str | None:
        """Return None without contiguity."""
        if problem.contiguity is not Contiguity.NONE:
            return f"its neighbourhoods do not keep parts {problem.contiguity}; use contiguity none"
        return None

    def run(self, run: Run[Makespan]) -> StopReason:
        """Search until told to stop, or until `patience` neighbourhoods in a row brought nothing."""
        from placekit.solvers.makespan.exact.lns import search_neighbourhoods

        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem), tolerance=OPTIMALITY_TOLERANCE)
        weights = uncertain_ops(run) if self.params.uncertainty else None
        limits = self.params.patience, self.params.effort, self.params.workers or DEFAULT_WORKERS
        return search_neighbourhoods(run, *limits, weights, Mechanisms.without(self.params.without))
