"""Method ``dpl``: the dynamic program over the prefixes of one topological order, for several orders.

A chain of blocks whose borders are prefixes of a fixed order is acyclic, and the best one is found in
O(states * crews * prefixes^2 * cut), which is milliseconds for a thousand classes and single devices. It is no optimum
over all chains, but close to it: that makes it the start of the exact program.

References
----------
Tarnawski et al., NeurIPS 2020, section 5.1.2 (DPL). The choice among orders and of prefixes is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.objectives import Throughput
from placekit.solve.method import Method, Run, no_links
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.throughput.dp.chains import ChainSearch
from placekit.solvers.throughput.dp.ideals import IdealSet
from placekit.solvers.throughput.dp.instance import Instance
from placekit.solvers.throughput.dp.orders import named_orders

MAX_PREFIXES = 1000
"""Prefixes of an order, unless another number is asked for."""
COARSE_PREFIXES = 50
"""Prefixes of the first chain with teams."""
CHAINS = "chains"
"""Name of the chains among what a run has done."""
CHAINS_SHARE = 0.3
"""Share of the time that chains may take as a start."""


@dataclass(frozen=True, slots=True)
class LinearDpParams:
    """Parameters of `LinearDp`.

    Parameters
    ----------
    max_prefixes
        Largest number of prefixes of an order; of longer orders the cheapest cuts are taken, spread evenly over the
        work.
    """

    max_prefixes: int = MAX_PREFIXES

    def __post_init__(self) -> None:
        if self.max_prefixes < 2:
            raise InvalidProblemError(f"dpl: max_prefixes is {self.max_prefixes}; it must be >= 2")


def acyclic_only(problem: Problem) -> str | None:
    """Say why a dynamic program over ideals does not apply; None if it does."""
    if problem.contiguity is not Contiguity.ACYCLIC:
        return f"its placements are acyclic; the problem asks for contiguity {problem.contiguity}, which allows more"
    return None


def choose_prefixes(instance: Instance, max_prefixes: int) -> NDArray[np.int64]:
    """``[num_prefixes]`` sizes of the prefixes to cut at: all, or the cheapest cut in each of equal shares of work."""
    num_classes = instance.num_classes
    every = np.arange(num_classes + 1)
    if len(every) <= max_prefixes:
        return every
    cost = instance.net_times.sum(axis=1).max(axis=0)
    # a net costs from its first pin inside to its last
    owner = np.repeat(np.arange(len(cost)), np.diff(instance.net_offsets))
    first, last = np.full(len(cost), num_classes), np.zeros(len(cost), dtype=np.int64)
    np.minimum.at(first, owner, instance.net_pins)
    np.maximum.at(last, owner, instance.net_pins)
    steps = np.bincount(first + 1, weights=cost, minlength=num_classes + 2)
    steps -= np.bincount(last + 1, weights=cost, minlength=num_classes + 2)
    cut = np.cumsum(steps)[: num_classes + 1]
    done = np.concatenate([[0.0], np.cumsum(instance.work)])
    share = np.minimum(done / max(done[-1], 1e-300) * (max_prefixes - 2), max_prefixes - 3).astype(np.int64)
    cheapest_first = np.lexsort((every, cut, share))
    chosen = cheapest_first[np.unique(share[cheapest_first], return_index=True)[1]]
    return np.unique(np.concatenate([[0], chosen, [num_classes]]))


def offer_chains(run: Run, contraction: Contraction, max_prefixes: int = MAX_PREFIXES) -> StopReason | None:
    """Offer the best chain of each order; return why to stop, or None at the end of the orders."""

    def offer(name: str, order: NDArray[np.int64], max_prefixes: int) -> None:
        """Offer the best chain of an order, if it is better than any before; of many ops each step takes 0.1 s."""
        if run.should_stop() is not None:
            return
        instance = Instance(contraction, order, np.inf if run.objective is None else run.objective)
        if run.should_stop() is not None:
            return
        prefixes = IdealSet.prefixes(instance, choose_prefixes(instance, max_prefixes))
        found = ChainSearch(prefixes, lambda: run.should_stop() is not None).best()
        if found is not None and found[1] is not None:
            run.offer(instance.placement(found[1]), at_most=found[0] * (1 + 1e-9) + instance.rounding_s)
            run.info["order"] = name

    has_teams = run.problem.objective.team_rule != "off"
    for number, (name, order) in enumerate(named_orders(contraction)):
        if has_teams and number == 0:  # there are many crews: let a coarse chain narrow the windows first
            offer(name, order, min(COARSE_PREFIXES, max_prefixes))
        offer(name, order, max_prefixes)
        reason = run.should_stop()
        if reason is not None:
            return reason
    run.done.add(CHAINS)
    return None


def offer_best_chains(run: Run[Throughput], contraction: Contraction[Throughput]) -> None:
    """Offer the chains of ``dpl`` once in a run: they are acyclic, which every contiguity allows.

    Their objective sets the scale of a program and excludes slow devices from the start.
    """
    problem = run.problem
    if CHAINS in run.done or run.should_stop() is not None:
        return
    if problem.contiguity is not Contiguity.ACYCLIC:
        contraction = contract(problem.replace(contiguity=Contiguity.ACYCLIC))
        if not contraction.allowed.any(axis=1).all():
            return
    with run.limited_to(None if run.remaining_s is None else CHAINS_SHARE * run.remaining_s):
        offer_chains(run, contraction)


def offer_team_chains(run: Run[Throughput]) -> None:
    """With teams, offer the best chains over all of them, as a start for methods that know single devices only."""
    problem = run.problem
    if problem.objective.teams == "off" or run.should_stop() is not None:
        return
    offer_single_devices(run)
    with run.limited_to(None if run.remaining_s is None else CHAINS_SHARE * run.remaining_s):
        offer_chains(run, contract(problem.replace(contiguity=Contiguity.ACYCLIC)))


class LinearDp(Method):
    """The best chain of blocks over the prefixes of several topological orders."""

    name = "dpl"
    params_type = LinearDpParams
    params: LinearDpParams

    def supports(self, problem: Problem) -> str | None:
        """Return None for acyclic throughput."""
        return no_links(problem) or acyclic_only(problem)

    def run(self, run: Run) -> StopReason:
        """Offer the single devices, then the best chain of each order."""
        offer_single_devices(run)
        reason = run.should_stop()
        if reason is not None:
            return reason
        return offer_chains(run, contract(run.problem), self.params.max_prefixes) or StopReason.FINISHED
