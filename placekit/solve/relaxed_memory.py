"""Methods that know nothing of memory that ops share: they work on problems that have none.

Without its blocks (:mod:`placekit.model.memory`) a problem is a relaxation: what fits with them fits without them. So
bounds, and proofs that nothing is feasible, hold; what a method finds the judge looks at under the problem itself. If
the best of the relaxation does not fit, the method works again with smaller devices: less what the ops of the best
placement needed together and not alone. If that finds nothing, every block counts for its first op. What is proven then
does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from placekit.model.errors import ProgramTooLargeError
from placekit.model.graph import sum_by
from placekit.model.placement import Placement, Violation
from placekit.model.problem import Problem
from placekit.objectives.evaluate import Evaluation, evaluate
from placekit.solve.certificates import Certificate, CertificateSource
from placekit.solve.method import Method, Run
from placekit.solve.result import SOLVER_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solve.within import Within

__all__ = ["View", "is_relaxed", "left_s", "reason_of", "view_of", "work"]

SHARE = 0.5
"""Of the time left, the part that each but the last of the problems may take."""
TRIES = 3
"""Times that devices are made smaller."""
RELAXED = "relaxed memory"
"""Key of the last run on the relaxation among `Run.parts`."""


class View(Run):
    """A run of another problem with the same placements, such as one without blocks, that go to the run of the problem.

    Parameters
    ----------
    outer
        The run of the problem itself.
    problem
        The other one.
    seconds
        Of this run; infinity for no limit of its own.
    is_bound
        True if it is a relaxation, so that what is proven is passed on, too.
    """

    def __init__(self, outer: Run, problem: Problem, seconds: float, *, is_bound: bool) -> None:
        super().__init__(problem, Within(outer, seconds), outer.seed, outer.warm_start)
        self.outer, self.is_bound = outer, is_bound
        self.interrupted, self.info = outer.interrupted, outer.info
        if outer.placement is not None:
            self.offer(outer.placement)

    def keep(self, answer: Placement, at_most: float | None = None) -> Evaluation:
        """Judge a placement here, and, if it may be the best, there."""
        evaluation = super().keep(answer, at_most)
        outer, objective = self.outer, evaluation.objective
        may_be_best = objective is not None and (outer.objective is None or objective < outer.objective)
        if outer.evaluation is None or (evaluation.is_feasible and may_be_best):
            outer.offer(answer)
        return evaluation

    def raise_bound(
        self, bound: float, name: str, certificate: CertificateSource = None, *, tolerance: float = SOLVER_TOLERANCE
    ) -> None:
        """Raise the bound here, and there if it holds there."""
        super().raise_bound(bound, name, certificate, tolerance=tolerance)
        if self.is_bound:
            self.outer.raise_bound(bound, name, certificate, tolerance=tolerance)

    def prove_infeasible(self, *violations: Violation, certificate: Certificate | None = None) -> StopReason:
        """Record that nothing is feasible here, and there if it holds there."""
        if self.is_bound:
            self.outer.prove_infeasible(*violations, certificate=certificate)
        return super().prove_infeasible(*violations, certificate=certificate)


def is_relaxed(method: Method, problem: Problem) -> bool:
    """Return True if `method` has to work on a relaxation of `problem`."""
    return problem.has_tight_blocks and not method.knows_blocks


def work(method: Method, run: Run) -> StopReason:
    """Let `method` work on `run`: directly if it knows what there is to know, else as the module docstring says."""
    if not is_relaxed(method, run.problem):
        return method.run(run)
    relaxed = _without_blocks(run.problem)
    view = view_of(run, RELAXED, lambda: View(run, relaxed, SHARE * left_s(run), is_bound=True))
    reason = method.run(view)
    for smaller in _smaller(run, view):
        if run.should_stop() is not None or run.infeasible_because is not None:
            break
        try:
            method.run(smaller)
        except ProgramTooLargeError:
            break
    return reason_of(run, reason)


def reason_of(run: Run, relaxed: StopReason) -> StopReason:
    """Return why work on `run` ended, from why that on a relaxation did: its optimum proves a bound only."""
    return run.should_stop() or (StopReason.FINISHED if relaxed is StopReason.PROVED else relaxed)


def view_of(run: Run, key: str, make: Callable[[], View]) -> View:
    """Return the view of `run` that `make` makes, with what the last one under this key found and proved."""
    view, before = make(), run.parts.get(key)
    if before is not None:
        view.parts, view.done = before.parts, before.done
        if before.placement is not None:
            view.offer(before.placement)
        if before.bound is not None:
            view.raise_bound(before.bound, before.bound_name or "", before.certificate)
    run.parts[key] = view
    return view


def left_s(run: Run) -> float:
    """Return the seconds left to `run`; infinity without a limit."""
    return math.inf if run.remaining_s is None else run.remaining_s


def _without_blocks(problem: Problem) -> Problem:
    return problem.replace(costs=problem.costs.replace(blocks=None))


def _smaller(run: Run, view: View) -> Iterator[View]:
    """Yield runs with less memory, as long as the best placement of the one before does not fit."""
    problem, platform = run.problem, run.problem.platform
    missing = np.zeros(len(platform.kinds))
    for _ in range(TRIES):
        best = view.placement
        if best is None or evaluate(problem, best).is_feasible:
            break
        use = problem.stage_memory.use(best.device_of_op, platform.num_devices)
        own = sum_by(best.device_of_op, problem.costs.op_memory_bytes, platform.num_devices)
        np.maximum.at(missing, platform.kind_of_device, use.total - own)
        limits = [
            None if device.memory_bytes is None else device.memory_bytes - missing[kind]
            for device, kind in zip(platform.devices, platform.kind_of_device.tolist(), strict=True)
        ]
        if any(limit is not None and limit <= 0 for limit in limits):
            break
        devices = (d.replace(memory_bytes=limit) for d, limit in zip(platform.devices, limits, strict=True))
        relaxed = _without_blocks(problem).replace(platform=platform.replace(devices=tuple(devices)))
        view = View(run, relaxed, SHARE * left_s(run), is_bound=False)
        yield view
    if run.placement is None:
        costs = problem.costs
        assert costs.blocks is not None  # else nothing is tight
        first = costs.blocks.ops[costs.blocks.offsets[:-1]]
        everything = costs.op_memory_bytes + sum_by(first, costs.blocks.num_bytes, costs.num_ops)
        yield View(
            run,
            problem.replace(costs=costs.replace(blocks=None, op_memory_bytes=everything)),
            left_s(run),
            is_bound=False,
        )
