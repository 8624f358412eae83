"""One run of the benchmark of warm starts: a learner that is counted, or a search that is timed."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from placekit.errors import PlacekitError
from placekit.evaluate import evaluate
from placekit.method import Run
from placekit.placement import Placement
from placekit.problem import Problem
from placekit.solve import solve
from placekit.solvers.registry import get_method
from placekit.stop import MaxRuntime, StopReason

if TYPE_CHECKING:
    from placekit.learned.method import LearnedMethod

__all__ = ["LEARNER", "CountingReward", "Row", "WarmCase", "run_learner", "run_search"]

Row = dict[str, Any]

LEARNER = "hsdag"
GUIDES = {"evaluations": "mincut", "onwards": "heft"}
"""Whose placement a learner begins with."""
NEAR = 0.02
"""How near the optimum a learner has to come, relative to it."""


@dataclass(frozen=True, slots=True)
class WarmCase:
    """One run.

    Parameters
    ----------
    part
        ``"evaluations"``, ``"onwards"`` or ``"time"``.
    instance
        Name of a zoo model, of a workload, or of a generated problem.
    method
        What runs. `LEARNER` in the part ``time`` makes the learned start of the same instance and seed.
    start
        What it begins with.
    seed
        Its seed.
    """

    part: str
    instance: str
    method: str
    start: str
    seed: int


class CountingReward:
    """The judge, counting until the first placement that is good enough.

    Parameters
    ----------
    problem
        The problem; every placement of it is feasible.
    target_s
        What is good enough.

    Attributes
    ----------
    count : int
        Placements so far.
    reached_after : int or None
        Placements up to the first one that is good enough, itself included.
    """

    def __init__(self, problem: Problem, target_s: float) -> None:
        from placekit.learned.rewards import judge_reward

        self._judge = judge_reward(problem)
        self.target_s = target_s
        self.count = 0
        self.reached_after: int | None = None

    def __call__(self, placements: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the objectives of `placements`."""
        objectives = self._judge(placements)
        good = np.flatnonzero(objectives <= self.target_s)
        if self.reached_after is None and good.size:
            self.reached_after = self.count + int(good[0]) + 1
        self.count += len(placements)
        return objectives


def run_learner(problem: Problem, case: WarmCase, max_evaluations: int) -> Row:
    """Let a method learn; in the part ``evaluations`` until it is near the optimum.

    Parameters
    ----------
    problem
        A problem without limits, so that every placement is feasible; for ``mincut`` one that it can solve.
    case
        The start is ``"cold"``, ``"biased"`` or ``"cloned"``.
    max_evaluations
        When to give up, at the end of an update.
    """
    from placekit.learned.cloning import clone
    from placekit.learned.environment import Environment
    from placekit.learned.method import seeded_learner
    from placekit.learned.training import Training

    guide = solve(problem, GUIDES[case.part]).placement
    if guide is None:
        raise PlacekitError(f"{GUIDES[case.part]} has no placement for {problem.name!r}")
    wanted = guide.device_of_op
    # without the order of its ops, if it has one: learners place, no more
    start_s = evaluate(problem, Placement.of(problem, wanted)).objective
    if start_s is None:
        raise PlacekitError(f"the placement by {GUIDES[case.part]} breaks a constraint of {problem.name!r}")
    reward = CountingReward(problem, start_s * (1 + NEAR) if case.part == "evaluations" else 0.0)
    method = cast("LearnedMethod", get_method(case.method, {"clone": 0} if case.start == "biased" else {}))
    begin = perf_counter()
    environment = Environment(problem, reward)
    learner = seeded_learner(method, environment, case.seed)
    training = Training.begin(learner, environment, method.params, case.seed)
    if case.start != "cold":
        learner.prefer(wanted)
        training.wanted = wanted[None]
    clone(training, lambda: None, lambda _: None)
    cloned_s = perf_counter() - begin
    first_cost: list[float] = []

    def should_stop() -> StopReason | None:
        is_over = reward.reached_after is not None or reward.count >= max_evaluations
        return StopReason.ITERATIONS if is_over and first_cost else None

    reason = type(method).loop(
        training, should_stop, lambda told: first_cost.append(-told.values["charts/episodic_return"])
    )
    return {
        "reached_after": reward.reached_after,
        "evaluations": reward.count,
        "max_evaluations": max_evaluations,
        "updates": training.update,
        "cloning_updates": training.cloned,
        "cloning_s": cloned_s,
        "first_mean_s": first_cost[0] * environment.reference_s,
        "objective_s": environment.best_objective,
        "start_s": start_s,
        "stop_reason": str(reason),
        "runtime_s": perf_counter() - begin,
    }


def run_search(problem: Problem, case: WarmCase, learned: Row | None, time_limit_s: float) -> Row:
    """Run one method for a time.

    Parameters
    ----------
    problem
        The problem.
    case
        Which method, start and seed.
    learned
        The row of the learner; not needed for a cold start.
    time_limit_s
        Wall seconds.
    """
    start = None
    if case.start != "cold":
        if learned is None:
            raise PlacekitError(f"{case}: the learner has no row")
        # the order counts for the makespan; rows from before it was kept have none
        start = Placement.of(problem, learned["device_of_op"], learned.get("step_of_op"))
    is_uncertain = case.start.endswith("uncertainty")
    method = get_method(case.method, {"uncertainty": True} if is_uncertain else {})
    run = Run(problem, MaxRuntime(time_limit_s), case.seed, start)
    if start is not None and learned is not None:
        run.offer(start)
        uncertainty = np.array(learned["uncertainty"])
        run.uncertainty = lambda: uncertainty
    reason = method.run(run)
    row: Row = {
        "time_limit_s": time_limit_s,
        "objective_s": run.objective,
        "bound_s": run.bound,
        "stop_reason": str(reason),
        "runtime_s": run.elapsed_s,
        "evaluations": run.evaluations,
        "trace": [[line.time_s, line.objective, line.bound] for line in run.trace],
    }
    if case.method == LEARNER and run.placement is not None and run.uncertainty is not None:
        row["device_of_op"] = run.placement.device_of_op.tolist()
        row["step_of_op"] = None if run.placement.step_of_op is None else run.placement.step_of_op.tolist()
        row["uncertainty"] = [round(value, 4) for value in run.uncertainty().tolist()]
    return row
