"""Method ``dp``: the exact dynamic program over ideals, for acyclic throughput.

1. Start from the best chain over the prefixes of a few orders (:mod:`placekit.solvers.throughput.dp.linear`).
2. Enumerate only the ideals inside the balance windows of that objective T
   (:mod:`placekit.solvers.throughput.dp.instance`).
3. Find the best chain below T through them. It is optimal; if there is none, nothing is below T.

Where constants hang on the ops that read them, a relaxation comes first that does not enumerate them
(:mod:`placekit.solvers.throughput.dp.light_leaves`): if its best chain costs as much in truth, that is the proof.

If the ideals for T are too many for the memory, smaller targets are tried by bisection between the bound and T: their
windows are narrower. A target without a chain below it is a lower bound.

With teams a block goes to any crew of free devices (:class:`placekit.solvers.throughput.dp.instance.Crew`), and a
chain to an ideal is kept only if it beats every chain there with fewer devices: more devices than that do not help it.

Complexity: O(states * crews * I^2 * (cut + words)) for I ideals inside the windows, O(I * (words + cut)) memory.
Without teams there is one crew for every group of equal devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from placekit.model.problem import Problem
from placekit.solve.method import Method, Run, no_links
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.first_answers import open_run
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.params import DpParams
from placekit.solvers.throughput.dp.chains import ChainSearch
from placekit.solvers.throughput.dp.ideals import IdealSet
from placekit.solvers.throughput.dp.instance import Instance
from placekit.solvers.throughput.dp.light_leaves import relax_light_leaves
from placekit.solvers.throughput.dp.linear import acyclic_only, offer_chains
from placekit.solvers.throughput.dp.orders import named_orders

MAX_NODES = 300_000_000
"""Most nodes of the search tree for ideals, some seconds."""
IMPROVEMENT = 2e-10
"""Relative: chains within this of the best known are not looked for. It is taken off twice: by the limit of the search,
and off its value, for the step along the front of GPipe; both together are less than `OPTIMALITY_TOLERANCE`."""
MOST_LOST = 7e-10
"""Relative: what a bound may lose to its roundings beside the limit and still prove `OPTIMALITY_TOLERANCE`."""
SAMPLED_PREFIXES = 1000
"""Prefixes of which the mean size of a cut is taken, to tell how much memory an ideal needs."""
FINEST_STEP = 1e-4
"""Relative: bisection for a bound ends when the targets are this close."""


class _Attempt(Enum):
    """Outcome of an attempt at a target."""

    FOUND = auto()
    NONE = auto()
    TOO_MANY = auto()
    STOPPED = auto()


@dataclass(frozen=True, slots=True)
class Version:
    """The problem, or a relaxation or restriction of it."""

    contraction: Contraction
    is_exact: bool = True  # a placement costs what it says; not in a relaxation
    is_bound: bool = True  # its optimum is a lower bound; not in a restriction


class ThroughputDp(Method):
    """Exact acyclic throughput by dynamic programming over ideals, for any number of kinds."""

    name = "dp"
    params_type = DpParams
    params: DpParams

    def supports(self, problem: Problem) -> str | None:
        """Return None if parts must be acyclic."""
        return no_links(problem) or acyclic_only(problem)

    def run(self, run: Run) -> StopReason:
        """Start from `dpl`, then prove."""
        contraction = open_run(run)
        if contraction is None:
            return StopReason.PROVED
        reason = run.should_stop() or offer_chains(run, contraction)
        if reason is not None:
            return reason
        joined = None
        if run.objective is not None and not run.problem.has_tight_blocks:  # a leaf that moves may not fit
            joined = relax_light_leaves(contraction, run.objective)
        if joined is not None:
            relaxed, restricted = joined
            for version in (Version(relaxed, is_exact=False), Version(restricted, is_bound=False)):
                reason = self._search(run, version)
                if reason is not StopReason.FINISHED:
                    return reason
        return self._search(run, Version(contraction))

    def _search(self, run: Run, version: Version) -> StopReason:
        """Look for chains below the best known objective, and for a bound if there are too many ideals."""
        # classes numbered by the narrow order let the search tree close whole regions early
        order = next(order for name, order in named_orders(version.contraction) if name == "narrow")
        target_s, too_many_at_s = np.inf if run.objective is None else run.objective, np.inf
        while True:
            instance = Instance(version.contraction, order, target_s * (1 - IMPROVEMENT))
            outcome = self._attempt(run, instance, version)
            reason = run.should_stop()
            if reason is not None or outcome is _Attempt.STOPPED:
                return reason or StopReason.FINISHED
            low_s = run.bound or 0.0
            if outcome is _Attempt.TOO_MANY:
                too_many_at_s = target_s
                if not version.is_bound:
                    return StopReason.FINISHED
            elif outcome is _Attempt.FOUND:
                if not version.is_exact or run.objective is None or run.objective >= target_s:
                    return StopReason.FINISHED
                # so far below the target that its roundings hide the rest of the gap
                target_s = run.objective
                continue
            if too_many_at_s == np.inf or too_many_at_s - low_s <= FINEST_STEP * too_many_at_s:
                return StopReason.FINISHED
            target_s = (low_s + too_many_at_s) / 2

    def _attempt(self, run: Run, instance: Instance, version: Version) -> _Attempt:
        """Look for the best chain below the instance's limit, and report what that proves."""
        ideals = IdealSet.all_within(
            instance, self._max_ideals(instance), MAX_NODES, lambda: run.should_stop() is not None
        )
        if ideals is None:
            return _Attempt.TOO_MANY
        run.info["ideals"] = len(ideals.bits)
        floor_s = max(run.bound or 0.0, instance.least_s)
        found = ChainSearch(ideals, lambda: run.should_stop() is not None, floor_s).best()
        if found is None:
            return _Attempt.STOPPED
        value_s, chain = found
        if chain is not None:
            promised_s = value_s * (1 + IMPROVEMENT) + instance.rounding_s if version.is_exact else None
            run.offer(instance.placement(chain), at_most=promised_s)
        if version.is_bound:
            if chain is None and instance.limit_s == np.inf:
                run.prove_infeasible(clash())
                return _Attempt.STOPPED
            # the best chain below the limit is the best of all; without one, nothing is below the limit
            lost_s = value_s * IMPROVEMENT + 4 * instance.rounding_s
            tolerance = OPTIMALITY_TOLERANCE if lost_s <= MOST_LOST * value_s else SOLVER_TOLERANCE
            run.raise_bound(value_s - lost_s, "DP over ideals", tolerance=tolerance)
        return _Attempt.NONE if chain is None else _Attempt.FOUND

    def _max_ideals(self, instance: Instance) -> int:
        """Return how many ideals fit into the memory: bits and cut lists twice, sums, and a value per state."""
        # a sample: all prefixes of a long order would themselves not fit
        ends = np.linspace(0, instance.num_classes, min(instance.num_classes, SAMPLED_PREFIXES) + 1).astype(np.int64)
        prefixes = IdealSet.prefixes(instance, ends)
        cut = 2 * len(prefixes.cut_nets) / len(prefixes.bits)
        num_states = int(np.prod([count + 1 for count in instance.counts]))
        columns = 3 + len(instance.closed_rows) + len(instance.groups) * 2 * instance.num_passes
        per_state = 32 if instance.has_teams else 24
        per_ideal = 16 * prefixes.bits.shape[1] + 24 * columns + 16 * cut + per_state * num_states
        return max(1000, int(self.params.max_memory_bytes / per_ideal))
