"""Relaxation without memory that ops share, for methods that do not know such memory.

1. Without its blocks (:mod:`placekit.model.memory`) a problem is a relaxation: a placement that fits with them fits
   without them. So bounds and proofs of infeasibility hold. The judge scores placements under the problem itself.
2. If the best placement of the relaxation does not fit, the method works again with smaller devices. Each device loses
   the bytes that the ops of that placement share. Bounds found there are dropped.
3. If nothing fits then, every block counts for its first op.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placekit.model.errors import ProgramTooLargeError
from placekit.model.graph import sum_by
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.lift import Lift, LiftedRun, left_s, reason_of, resumed
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason

__all__ = ["without_shared_memory", "work_without_shared_memory"]

SHARE = 0.5
"""Share of the time left that each problem but the last may take."""
TRIES = 3
"""Number of times that devices are made smaller."""
KEY = "without shared memory"
"""Key of the last run on the relaxation in `Run.parts`."""


def work_without_shared_memory(method: Method, run: Run) -> StopReason:
    """Let `method` work on the relaxation of `run`, then with smaller devices (see the module)."""
    lift = Lift(without_shared_memory(run.problem), is_bound=True)
    relaxed = resumed(run, KEY, lambda: LiftedRun(run, lift, SHARE * left_s(run)))
    reason = method.run(relaxed)
    for smaller in _smaller(run, relaxed):
        if run.should_stop() is not None or run.infeasible_because is not None:
            break
        try:
            method.run(smaller)
        except ProgramTooLargeError:
            break
    return reason_of(run, reason)


def without_shared_memory(problem: Problem) -> Problem:
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
        relaxed = without_shared_memory(problem).replace(platform=platform.replace(devices=tuple(devices)))
        before = LiftedRun(run, Lift(relaxed), SHARE * left_s(run))
        yield before
    if run.placement is None:
        costs = problem.costs
        assert costs.blocks is not None  # else nothing is tight
        first = costs.blocks.ops[costs.blocks.offsets[:-1]]
        everything = costs.op_memory_bytes + sum_by(first, costs.blocks.num_bytes, costs.num_ops)
        yield LiftedRun(run, Lift(problem.replace(costs=costs.replace(blocks=None, op_memory_bytes=everything))))
