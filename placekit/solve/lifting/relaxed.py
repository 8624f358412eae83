"""Problem that a method works on: the given one, or a relaxation without what the method does not know.

Without pools: :mod:`placekit.solve.lifting.without_pools`; without direct links:
:mod:`placekit.solve.lifting.without_links`. Without memory that ops share:

1. Without its blocks (:mod:`placekit.model.memory`) a problem is a relaxation: a placement that fits with them fits
   without them. So bounds and proofs of infeasibility hold. The judge scores placements under the problem itself.
2. If the best placement of the relaxation does not fit, the method works again with smaller devices. Each device loses
   the bytes that the ops of that placement share. Bounds found there are dropped.
3. If nothing fits then, every block counts for its first op.

Where the runtime takes no order of ops (`Objective.free_order`), a method that plans one works on the relaxation in
which the runtime does. Its placements are scored by the runtime's own rule, and its bounds say that they are of free
orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from placekit.arrays import sum_by
from placekit.model.errors import ProgramTooLargeError, UnsupportedProblemError
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.lifting.lift import Lift, LiftedRun, left_s, reason_of, resumed
from placekit.solve.lifting.without_links import run_without_links, without_links
from placekit.solve.lifting.without_pools import without_pools, work_without_pools
from placekit.solve.method import Method, Run, no_engine_order
from placekit.solve.stop import StopReason

SHARE = 0.5
"""Share of the time left that each problem but the last may take."""
TRIES = 3
"""Number of times that devices are made smaller."""
KEY = "without shared memory"
"""Key of the last run on the relaxation in `Run.parts`."""
FREE_ORDERS = "of free orders"
"""Key of the last run in which the runtime follows steps, and what is added to the names of bounds from there."""


def why_not(method: Method, problem: Problem) -> str | None:
    """Explain in a sentence why `method` cannot work on `problem`, nor on a relaxation; None if the method can."""
    problem = without_pools(problem)
    reason = method.supports(problem)
    if reason is None or not _can_relax(problem):
        return reason
    return None if _relaxing(method, problem) is not None else method.supports(_without_all(problem))


def knows_links(method: Method, problem: Problem) -> bool:
    """Return True if `method` takes the direct links of `problem` into account."""
    return method.supports(_without_shared_memory(without_pools(problem))) is None


def work(method: Method, run: Run) -> StopReason:
    """Let `method` work on `run`, or on a relaxation whose placements and bounds go to `run`.

    Raises `UnsupportedProblemError`: the method can work on neither.
    """
    problem = run.problem
    if problem.platform.pools and not (method.knows_pools(problem) and method.supports(problem) is None):
        return work_without_pools(method, run, work)
    if not _can_relax(problem) or method.supports(problem) is None:  # which can take long: whoever chose it has asked
        return method.run(run)
    relaxing = _relaxing(method, problem)
    if relaxing is None:
        raise UnsupportedProblemError(
            f"method {method.name!r} cannot solve {problem!r}: {method.supports(_without_all(problem))}"
        )
    return relaxing(run)


def _relaxing(method: Method, problem: Problem) -> Callable[[Run], StopReason] | None:
    """Choose the relaxation that `method` supports, without shared memory first; None if there is none."""
    if problem.has_tight_blocks and method.supports(_without_shared_memory(problem)) is None:
        return partial(_work_without_shared_memory, method)
    if problem.has_direct_links and why_not(method, without_links(problem)) is None:
        return lambda run: reason_of(run, work(method, run_without_links(run)))
    if no_engine_order(problem) is not None and why_not(method, _with_free_order(problem)) is None:
        return lambda run: reason_of(run, work(method, run_with_free_order(run)))
    return None


def _can_relax(problem: Problem) -> bool:
    return problem.has_direct_links or problem.has_tight_blocks or no_engine_order(problem) is not None


def _without_all(problem: Problem) -> Problem:
    return _with_free_order(_without_shared_memory(without_links(problem)))


def _with_free_order(problem: Problem) -> Problem:
    return problem.replace(objective=problem.objective.free_order)


def run_with_free_order(run: Run) -> Run:
    """Return a run in which placements may say the order of ops, and which passes on placements and bounds."""
    lift = Lift(_with_free_order(run.problem), is_bound=True, names_bound=f" {FREE_ORDERS}")
    return resumed(run, FREE_ORDERS, lambda: LiftedRun(run, lift))


def _work_without_shared_memory(method: Method, run: Run) -> StopReason:
    """Let `method` work on the relaxation of `run`, then with smaller devices (see the module)."""
    lift = Lift(_without_shared_memory(run.problem), is_bound=True)
    relaxed = resumed(run, KEY, lambda: LiftedRun(run, lift, SHARE * left_s(run)))
    reason = method.run(relaxed)
    for smaller in _smaller(run, relaxed):
        if run.should_stop() is not None or run.infeasible_because is not None:
            break
        relaxed = smaller
        try:
            reason = method.run(smaller)
        except ProgramTooLargeError:
            break
    if reason is StopReason.TIME and run.should_stop() is None:  # the share of problems that were not needed
        reason = method.run(LiftedRun(run, relaxed.lift))
    return reason_of(run, reason)


def _without_shared_memory(problem: Problem) -> Problem:
    """Return the problem without its blocks, which is a relaxation."""
    return problem.replace(costs=problem.costs.replace(blocks=None))


def _smaller(run: Run, before: LiftedRun) -> Iterator[LiftedRun]:
    """Yield runs with less memory, as long as the best placement of the previous run does not fit."""
    problem, platform = run.problem, run.problem.platform
    missing = np.zeros(len(platform.kinds))
    for _ in range(TRIES):
        best = before.placement
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
        relaxed = _without_shared_memory(problem).replace(platform=platform.replace(devices=tuple(devices)))
        before = LiftedRun(run, Lift(relaxed), SHARE * left_s(run))
        yield before
    if run.placement is None:
        costs = problem.costs
        assert costs.blocks is not None  # else nothing is tight
        first = costs.blocks.ops[costs.blocks.offsets[:-1]]
        everything = costs.op_memory_bytes + sum_by(first, costs.blocks.num_bytes, costs.num_ops)
        yield LiftedRun(run, Lift(problem.replace(costs=costs.replace(blocks=None, op_memory_bytes=everything))))
