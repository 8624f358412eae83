r"""Method ``dp``: the best training plan, exactly, by a dynamic program over ideals.

Question for a target T: is there a plan whose stages all take at most T?

- Chains of stages are built from the end of the pipeline, because the memory of a stage depends on the replicas from
  the stage to the end.
- A chain with all layers outside an ideal has two numbers: the sum of its data-parallel degrees, and its devices. A
  chain is dropped if another chain of the ideal has no more of both, because every stage that fits before the first
  fits before the second.
- The remaining work needs devices, which bounds both numbers from above. So few chains survive if T is tight.
- Choices per layer are an exact knapsack (:func:`placekit.solvers.training_plan.knapsack.choose`). It is solved only
  for stages that would improve a chain and whose fastest choices do not fit.

The search over targets:

0. If there are many ideals, those of a few linear orders give a first plan.
1. Targets grow from the fluid bound (all work on all devices) until one has a plan.
2. Targets halve the gap between the largest target without a plan and the smallest with one.
3. A target just below the best plan, if it has no plan, proves that plan.

Every target without a plan is a lower bound, so an interrupted search has a plan and a bound.

Complexity: O(I^2 * degrees * labels) per target for I ideals, O(I * labels) memory; labels per ideal are at most the
devices that a target leaves idle, plus one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from placekit.model.placement import Violation
from placekit.model.sizes import format_bytes
from placekit.solve.params import read_params
from placekit.solve.result import OPTIMALITY_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.training_plan.search import MAX_NODES, PlanSearch, Stopped
from placekit.solvers.training_plan.tables import Ideals, Tables, all_ideals, linear_orders, some_ideals
from placekit.training.plan import TrainingPlan
from placekit.training.result import PlanRun

IMPROVEMENT = 0.9 * OPTIMALITY_TOLERANCE
"""Smallest relative improvement that is searched for; far above the rounding of sums."""
GROWTH = (1.01, 1.03, 1.1, 1.3)
"""Factors between targets while none has a plan; the largest target of all follows."""
FINE = 2e-3
"""Relative gap below which the target is just below the best plan, not halfway to the bound."""
FINE_OF_SOME = 5e-4
"""The same for the first search over a few linear orders, which proves nothing."""
STEP_DOWN = 0.01
"""Relative distance of the first target over all ideals below the plan of the first search."""
MANY_IDEALS = 1000
"""Number of ideals above which a few linear orders are searched first."""
MEMORY_STEPS, FEWER_MEMORY_STEPS = 40, 3
"""Steps of bisection for the missing bytes."""
FLUID, TARGETS = "work over devices", "DP over ideals"


@dataclass(frozen=True)
class TrainingDpParams:
    """Parameters of `TrainingDp`.

    Parameters
    ----------
    max_ideals
        Largest number of ideals. Above it only prefixes of one topological order are used, and only the fluid bound is
        proven.
    max_nodes
        Largest number of nodes of the search for the choices of one stage.
    """

    max_ideals: int = 60_000
    max_nodes: int = MAX_NODES


class TrainingDp:
    """Method for exact training plans, over ideals, degrees and choices."""

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
        devices = min(run.problem.num_devices, run.problem.num_microbatches * int(tables.tensor_degrees[-1]))
        run.info["ideals"] = self.params.max_ideals + 1 if found is None else len(found.size)
        counts: Counter[str] = Counter()
        try:
            if found is None or len(found.size) > MANY_IDEALS:
                orders = linear_orders(tables)
                search = self._search(run, tables, some_ideals(tables, orders))
                Sweep(run, search, devices, counts, is_complete=False).narrow(FINE_OF_SOME)
                if found is None:
                    return run.should_stop() or StopReason.FINISHED
            return Sweep(run, self._search(run, tables, found), devices, counts, is_complete=True).narrow(FINE)
        except Stopped:
            return run.should_stop() or StopReason.FINISHED

    def _search(self, run: PlanRun, tables: Tables, ideals: Ideals) -> PlanSearch:
        # after the proof that no plan fits, a search finds the missing bytes
        stop = lambda: run.should_stop() not in (None, StopReason.PROVED)  # noqa: E731
        return PlanSearch(tables, ideals, stop, self.params.max_nodes)


class Sweep:
    """Search over targets with one set of ideals, until the largest target without a plan meets the best plan.

    Parameters
    ----------
    run
        Run that receives plans and bounds.
    search
        Search for plans below a target.
    devices
        Number of devices that can be used.
    is_complete
        True if no ideal is missing, so that a target without a plan is a bound.
    counts
        Numbers of targets and of pairs of ideals, over several sweeps.
    """

    def __init__(
        self, run: PlanRun, search: PlanSearch, devices: int, counts: Counter[str], *, is_complete: bool
    ) -> None:
        self.run, self.search, self.counts, self.is_complete = run, search, counts, is_complete
        self.low_s = float(search.ideals.work_s[-1]) / devices * (1 - 1e-12)
        self.slowest_s = search.slowest_s()
        run.raise_bound(self.low_s, FLUID, tolerance=OPTIMALITY_TOLERANCE)

    def narrow(self, fine: float) -> StopReason:
        """Try targets, with all ideals until a proof, else until a gap of `fine`."""
        run = self.run
        factors = list(GROWTH)
        was_given = run.objective is not None  # then few targets remain, and each is worth its time
        while True:
            high_s = run.objective
            if high_s is None:
                target_s = self.low_s * factors.pop(0) if factors and self.low_s > 0 else self.slowest_s
            elif high_s <= self.low_s * (1 + fine):
                if not self.is_complete:
                    return StopReason.FINISHED
                target_s = high_s * (1 - IMPROVEMENT)
            elif was_given and self.is_complete:
                target_s = max(high_s * (1 - STEP_DOWN), (self.low_s * high_s) ** 0.5)
            else:
                target_s = (self.low_s * high_s) ** 0.5 if self.low_s > 0 else high_s / 2
            if target_s <= self.low_s or target_s <= 0:
                return StopReason.FINISHED
            reason = self._try(target_s) or run.should_stop()
            if reason is not None:
                return reason

    def _try(self, target_s: float) -> StopReason | None:
        """Search below the target and keep the plan or the bound; return why to end, or None to continue."""
        run, search = self.run, self.search
        plan, is_proof = _plan_below(search, target_s)
        self.counts.update(targets=1, pairs=search.pairs)
        run.info |= self.counts
        best_s = run.objective
        if plan is not None:
            run.offer(plan)
            if run.objective is None or (best_s is not None and run.objective >= best_s):
                return StopReason.FINISHED  # within rounding of the best, or of the memory limit
            return None
        if not is_proof:
            run.info["knapsacks_given_up"] = search.gave_up
            return StopReason.FINISHED
        if best_s is None and target_s >= self.slowest_s:
            return self._no_plan() if self.is_complete else StopReason.FINISHED
        self.low_s = target_s
        if self.is_complete:
            run.raise_bound(target_s * (1 - 2e-11), TARGETS, tolerance=OPTIMALITY_TOLERANCE)
        return None

    def _no_plan(self) -> StopReason:
        """Prove that no plan fits, and report the missing bytes."""
        run, problem = self.run, self.run.problem
        if not problem.data_degrees:
            message = (
                f"{problem.num_devices} devices are fewer than the smallest tensor-parallel degree, "
                f"{problem.tensor_degrees[0]}"
            )
            lacking = problem.tensor_degrees[0] - problem.num_devices
            return run.prove_infeasible(Violation("devices", message, amount=lacking, unit="devices"))
        limit = problem.memory_bytes
        self._say_lacking(limit)
        with suppress(Stopped):  # infeasibility is already proven
            self._say_lacking(self._refuted_bytes(limit))
        return StopReason.PROVED

    def _say_lacking(self, refuted_bytes: float) -> None:
        problem = self.run.problem
        over = refuted_bytes - problem.memory_bytes
        message = (
            f"no plan fits: {problem.num_devices} devices need more than {format_bytes(refuted_bytes)} each, at least "
            f"{format_bytes(over)} more than the limit of {format_bytes(problem.memory_bytes)}"
        )
        self.run.prove_infeasible(Violation("memory", message, amount=over, unit="bytes"))

    def _refuted_bytes(self, low: float) -> float:
        """Return nearly the largest memory limit with which no plan fits, however slow."""
        search = self.search
        high = float((search.ideals.memory_a + search.ideals.memory_b)[:, -1].max()) * self.run.problem.num_devices
        high, steps = max(high, 2 * low), MEMORY_STEPS if len(search.ideals.size) <= MANY_IDEALS else FEWER_MEMORY_STEPS
        while steps > 0 and high - low > 1e-9 * high:
            middle = (low + high) / 2 if high < 4 * low else (low * high) ** 0.5
            if search.below(self.slowest_s, middle) is None:
                low = middle
            else:
                high = middle
            steps -= 1
        return low


def _plan_below(search: PlanSearch, target_s: float) -> tuple[TrainingPlan | None, bool]:
    """Return a plan below the target, or None and whether that is a proof."""
    plan = search.below(target_s)
    if plan is not None or search.gave_up == 0:
        return plan, True
    gave_up = search.gave_up
    proven = search.below(target_s, is_optimistic=True) is None
    search.gave_up = gave_up
    return None, proven
