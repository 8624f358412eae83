"""Methods ``ilp`` and ``cpsat`` for `Throughput`: the general programs, started from chains and a search."""

from __future__ import annotations

from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.cpsat.solve import AssignmentCpsat
from placekit.solvers.assignment.ilp.solve import AssignmentIlp
from placekit.solvers.assignment.teams import SpareRun, no_program
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.params import LocalSearchParams
from placekit.solvers.throughput.dp.linear import offer_best_chains, offer_team_chains
from placekit.solvers.throughput.local_search.multilevel import search

LOCAL_SEARCH_FROM = 100
"""Classes times devices above which a local search gives the constraint program its start."""
START_SHARE = 0.1
"""Share of the time limit that this start may take."""


class ThroughputIlp(AssignmentIlp):
    """Exact throughput by integer programming."""

    def supports(self, problem: Problem[Throughput]) -> str | None:
        """Return None without teams, and with teams of equal devices."""
        return no_program(problem) or super().supports(problem)

    def run(self, run: Run[Throughput]) -> StopReason:
        """Build, start and solve; with teams the program of all spare teams."""
        return super().run(_with_spare_teams(run))

    def start(self, run: Run[Throughput], contraction: Contraction[Throughput]) -> None:
        """Offer the best chains."""
        if not isinstance(run, SpareRun):
            offer_best_chains(run, contraction)


class ThroughputCpsat(AssignmentCpsat):
    """Exact throughput by constraint programming."""

    def supports(self, problem: Problem[Throughput]) -> str | None:
        """Return None without teams, and with teams of equal devices."""
        return no_program(problem) or super().supports(problem)

    def run(self, run: Run[Throughput]) -> StopReason:
        """Build, start and solve; with teams the program of all spare teams."""
        return super().run(_with_spare_teams(run))

    def start(self, run: Run[Throughput], contraction: Contraction[Throughput]) -> None:
        """Offer the best chains, then search: a good start allows a fine unit and excludes slow devices."""
        if isinstance(run, SpareRun):
            return
        offer_best_chains(run, contraction)
        if contraction.allowed.size > LOCAL_SEARCH_FROM:
            with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
                search(run, LocalSearchParams(patience=3, steps=100))


def _with_spare_teams(run: Run[Throughput]) -> Run[Throughput]:
    """Return the run itself, or, with teams, a run on spare teams that starts from the best chains."""
    if run.problem.objective.teams == "off":
        return run
    offer_team_chains(run)
    return SpareRun(run)
