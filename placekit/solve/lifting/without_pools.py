"""Problem in which the devices of a pool have memories of their own, for methods that know no pools.

1. Without its pools a problem is a relaxation: each device keeps the limit of its pool, and a placement that fits into
   the pool fits there. So bounds and proofs of infeasibility hold. The judge scores placements under the problem.
2. If no pool can be exceeded, both problems have the same placements.
3. If the best placement of the relaxation exceeds a pool, the method works again on problems in which the pool is
   divided among its devices: those of one kind get what that placement uses, and the others what is left; or those of
   one kind get all of it. Every placement there fits into the pool. Bounds found there are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.solve.lifting.lift import Lift, LiftedRun, left_s, reason_of, resumed
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason

SHARE = 0.5
"""Share of the time left that each problem but the last may take."""
MOST_KINDS = 3
"""Kinds of devices that come first in turn, those that use most; each makes two divisions."""
NOTHING = 1e-13
"""Share of a pool for a device that gets none: a limit is above 0, and the judge forgives as much."""
KEY = "without pools"
"""Key of the last run on the relaxation in `Run.parts`."""


def without_pools(problem: Problem) -> Problem:
    """Return the problem without its pools, which is a relaxation."""
    return problem.replace(platform=problem.platform.without_pools()) if problem.platform.pools else problem


def work_without_pools(method: Method, run: Run, work: Callable[[Method, Run], StopReason]) -> StopReason:
    """Let `method` work on the relaxation of `run`, then with divided pools (see the module); `work` starts it."""
    problem = run.problem
    is_tight = bool(problem.tight_pools)
    lift = Lift(without_pools(problem), is_bound=True, is_exact=not is_tight)
    relaxed = resumed(run, KEY, lambda: LiftedRun(run, lift, SHARE * left_s(run) if is_tight else None))
    reason = work(method, relaxed)
    best, last = relaxed.placement, relaxed
    if is_tight and best is not None and not evaluate(problem, best).is_feasible:
        for divided in _divided(problem, best.device_of_op):
            if run.should_stop() is not None or run.infeasible_because is not None:
                break
            last = LiftedRun(run, Lift(divided), SHARE * left_s(run))
            reason = work(method, last)
    if is_tight and reason is StopReason.TIME and run.should_stop() is None:  # the share of problems not needed
        reason = work(method, LiftedRun(run, last.lift))
    return reason_of(run, reason)


def _divided(problem: Problem, device_of_op: NDArray[np.int64]) -> Iterator[Problem]:
    """Yield problems without pools, whose devices hold no more together than the pools of `problem`."""
    platform = problem.platform
    use = problem.stage_memory.use(device_of_op, platform.num_devices).total
    most_used = [use[platform.kind_of_device == kind].max() for kind in range(len(platform.kinds))]
    tight = np.concatenate([platform.members_of(pool) for pool in problem.tight_pools])
    kinds = sorted(set(platform.kind_of_device[tight].tolist()), key=lambda kind: -most_used[kind])
    for first in kinds[:MOST_KINDS]:
        in_turn = [first, *(kind for kind in kinds if kind != first)]
        for wanted in (most_used[first], np.inf):
            yield _with_parts(problem, in_turn, wanted)


def _with_parts(problem: Problem, kinds: list[int], first_bytes: float) -> Problem:
    """Return the problem whose pools are divided: `first_bytes` for each device of the first kind, the rest in turn."""
    platform = problem.platform
    limits = platform.memory_limits_bytes / (1 + MEMORY_TOLERANCE)
    for pool in problem.tight_pools:
        members, left = platform.members_of(pool), pool.memory_bytes
        for kind in kinds:
            alike = members[platform.kind_of_device[members] == kind]
            if len(alike):
                part = min(left, first_bytes * len(alike)) if kind == kinds[0] else left
                left -= part
                limits[alike] = np.minimum(limits[alike], max(part / len(alike), NOTHING * pool.memory_bytes))
    for kind in kinds:  # devices of a kind have one limit
        limits[platform.kind_of_device == kind] = limits[platform.kind_of_device == kind].min()
    devices = tuple(
        device.replace(memory_bytes=None if np.isinf(limit) else limit)
        for device, limit in zip(platform.devices, limits.tolist(), strict=True)
    )
    return problem.replace(platform=replace(platform, devices=devices, pools=()))
