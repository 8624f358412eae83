r"""Method ``dp``: the best training plan, exactly, by a dynamic program over ideals.

A target T splits plans: is there one whose stages all take at most T? Chains of stages are built from the end of the
pipeline, because the memory of a stage depends on the replicas from it to the end. A chain that covers everything
outside an ideal is described by two numbers, the sum of its data-parallel degrees and its devices, and only chains
that no other one undercuts in both are kept: whatever fits in front of a chain fits in front of one with less. Work
that is left needs devices, which bounds the numbers from above; so few chains of an ideal survive where T is tight.
Choices per layer are an exact knapsack (:func:`placekit.solvers.training_plan.kernels.choose`), asked only where the
fastest choices do not fit, and only for stages that would improve a chain.

1. Targets grow from the fluid bound (all work on all devices) until one has a plan.
2. Targets between the largest without and the smallest with a plan halve the gap.
3. A target just below the best plan that has none proves it.

Every target without a plan is a lower bound, so an interrupted search has a plan and a bound.

Complexity: O(I^2 * degrees * labels) per target for I ideals, O(I * labels) memory; labels per ideal are at most the
devices that a target leaves idle, plus one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from placekit.placement import Violation
from placekit.solvers.params import read_params
from placekit.solvers.training_plan.search import MAX_NODES, PlanSearch, Stopped
from placekit.solvers.training_plan.tables import Tables, all_ideals, prefix_ideals
from placekit.stop import StopReason
from placekit.training.plan import TrainingPlan
from placekit.training.run import PlanRun

__all__ = ["TrainingDp", "TrainingDpParams", "least_memory_bytes"]

IMPROVEMENT = 1e-9
"""Relative: plans within this of the best known are not looked for; far above what sums of floats can lose."""
GROWTH = (1.01, 1.03, 1.1, 1.3)
"""Factors between targets while none has a plan; then comes the largest target of all."""
FINE = 2e-3
"""Relative gap from which on the target is just below the best plan, not between it and the bound."""
FLUID, TARGETS = "work over devices", "DP over ideals"


@dataclass(frozen=True, slots=True)
class TrainingDpParams:
    """Parameters of `TrainingDp`.

    Parameters
    ----------
    max_ideals
        Beyond so many, only prefixes of one topological order are cut, and nothing is proven beyond the fluid bound.
    max_nodes
        Nodes of the search for the choices of one stage.
    """

    max_ideals: int = 60_000
    max_nodes: int = MAX_NODES


class TrainingDp:
    """Exact training plans over ideals, degrees and choices."""

    name: ClassVar[str] = "dp"
    guarantee: ClassVar[str] = "proven optimum"

    def __init__(self, params: TrainingDpParams | None = None) -> None:
        self.params = params or TrainingDpParams()

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Make the method."""
        return cls(read_params(TrainingDpParams, cls.name, params))

    def run(self, run: PlanRun) -> StopReason:
        """Narrow the gap between targets with and without a plan."""
        tables = Tables.of(run.problem)
        found = all_ideals(tables, self.params.max_ideals)
        ideals = prefix_ideals(tables) if found is None else found
        is_complete = found is not None
        run.info["ideals"] = len(ideals)
        search = PlanSearch(tables, ideals, lambda: run.should_stop() is not None, self.params.max_nodes)
        devices = min(run.problem.num_devices, run.problem.num_microbatches * int(tables.tensor_degrees[-1]))
        fluid_s = float(ideals.work_s[-1]) / devices * (1 - 1e-12)
        run.raise_bound(fluid_s, FLUID)
        try:
            return self._narrow(run, search, fluid_s, is_complete=is_complete)
        except Stopped:
            return run.should_stop() or StopReason.FINISHED
        finally:
            run.info["pairs"] = search.pairs

    def _narrow(self, run: PlanRun, search: PlanSearch, fluid_s: float, *, is_complete: bool) -> StopReason:
        """Return once the largest target without a plan meets the best plan."""
        slowest_s = search.slowest_s()
        low_s, factors = fluid_s, list(GROWTH)
        targets = 0
        while True:
            high_s = run.objective
            if high_s is None:
                target_s = low_s * factors.pop(0) if factors and low_s > 0 else slowest_s
            elif high_s <= low_s * (1 + FINE):
                target_s = high_s * (1 - IMPROVEMENT)
            else:
                target_s = (low_s * high_s) ** 0.5 if low_s > 0 else high_s / 2
            if target_s <= low_s or target_s <= 0:
                return StopReason.FINISHED
            targets += 1
            run.info["targets"] = targets
            plan, is_proof = _plan_below(search, target_s)
            if plan is None:
                if not is_proof:
                    run.info["knapsacks_given_up"] = search.gave_up
                    return StopReason.FINISHED
                if target_s >= slowest_s and run.objective is None:
                    return self._no_plan(run, search) if is_complete else StopReason.FINISHED
                low_s = target_s
                if is_complete:
                    run.raise_bound(low_s * (1 - 2e-11), TARGETS)
            else:
                before = run.objective
                run.offer(plan)
                if run.objective is None or (before is not None and run.objective >= before):
                    return StopReason.FINISHED  # within rounding of the best, or of the memory limit
            reason = run.should_stop()
            if reason is not None:
                return reason
            if plan is None and high_s is not None and target_s >= high_s * (1 - 2 * IMPROVEMENT):
                return StopReason.FINISHED

    def _no_plan(self, run: PlanRun, search: PlanSearch) -> StopReason:
        """Prove that nothing fits, with the bytes that lack."""
        problem = run.problem
        if not problem.data_degrees:
            message = (
                f"{problem.num_devices} devices are fewer than the smallest tensor-parallel degree, "
                f"{problem.tensor_degrees[0]}"
            )
            lacking = problem.tensor_degrees[0] - problem.num_devices
            return run.prove_infeasible(Violation("devices", message, amount=lacking, unit="devices"))
        needed = least_memory_bytes(search)
        over = needed - problem.memory_bytes
        message = (
            f"no plan fits: {problem.num_devices} devices need at least {needed:.0f} bytes each, {over:.0f} more than "
            f"the limit of {problem.memory_bytes:.0f}"
        )
        return run.prove_infeasible(Violation("memory", message, amount=over, unit="bytes"))


def _plan_below(search: PlanSearch, target_s: float) -> tuple[TrainingPlan | None, bool]:
    """Return a plan below the target, or None and whether that is a proof."""
    plan = search.below(target_s)
    if plan is not None or search.gave_up == 0:
        return plan, True
    gave_up = search.gave_up
    proven = search.below(target_s, is_optimistic=True) is None
    search.gave_up = gave_up
    return None, proven


def least_memory_bytes(search: PlanSearch, precision: float = 1e-6) -> float:
    """Return the largest memory limit, up to `precision`, with which no plan fits, however slow it is."""
    slowest_s = search.slowest_s()
    low = search.tables.problem.memory_bytes
    high = float((search.ideals.memory_a + search.ideals.memory_b)[:, -1].max()) * search.tables.problem.num_devices
    high = max(high, 2 * low)
    while high - low > precision * high:
        middle = (low + high) / 2 if high < 4 * low else (low * high) ** 0.5
        if search.below(slowest_s, middle) is None:
            low = middle
        else:
            high = middle
    return low
