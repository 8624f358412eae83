r"""Lower bounds in linear time, for problems of any size: shared work, and the longest path.

**Shared work.** Let :math:`\lambda_d \ge 0` be weights of the devices that work one op at a time, with sum 1. The
objective is at least the time for which each of these devices works, so it is at least the weighted mean:

.. math:: objective \ge \sum_d \lambda_d \, load_d \ge \sum_v \min_d \lambda_d \, t_{vd} .

This holds for throughput (with teams a device works for its share of the samples), makespan and offload latency
(there hosts have weight 0, because host ops run side by side). Transfers and memory are left out. Good weights come
from multiplicative updates: a kind of device that would get more work than the others becomes more expensive.

**Longest path.** The makespan and the offload latency are at least the time of every path, each op where it is fastest.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists
from placekit.model.problem import Problem
from placekit.objectives.base import class_times_s
from placekit.solve.certificates import Prices
from placekit.solve.method import Run
from placekit.solve.result import OPTIMALITY_TOLERANCE

ROUNDS = 10
"""Updates of the weights from each of two starts."""
AT_ONCE = "bounds at once"
"""Name of these bounds in `Run.done`."""
STEP = 1.0
"""Exponent of the first update; it falls with the number of updates."""


def raise_bounds_at_once(run: Run) -> None:
    """Raise the objective's own quick bound, and the bounds of the module docstring where they hold; once in a run.

    Searches that prove nothing raise them before they begin: an answer that meets them ends the search.
    """
    if AT_ONCE in run.done:
        return
    run.done.add(AT_ONCE)
    own = run.problem.objective.quick_bound(run.problem)
    if own is not None:
        run.raise_bound(*own, tolerance=OPTIMALITY_TOLERANCE)
    work = shared_work(run.problem)
    if work is not None:
        run.raise_bound(work[0], "shared work", work[1], tolerance=OPTIMALITY_TOLERANCE)
    path_s = longest_path_s(run.problem)
    if path_s is not None:
        run.raise_bound(path_s, "critical path", tolerance=OPTIMALITY_TOLERANCE)


def shared_work(problem: Problem) -> tuple[float, Prices] | None:
    """Return the bound by shared work in seconds and its certificate; None if the objective has none, or it is 0.

    O(ops * kinds).
    """
    is_busy = problem.objective.busy_devices(problem.platform)
    if is_busy is None:
        return None
    kind = problem.platform.kind_of_device
    times = class_times_s(problem)
    count = np.bincount(kind, minlength=times.shape[1])
    times[:, count == 0] = np.inf
    count[kind[~is_busy]] = 0
    times = times[np.isfinite(times).any(axis=1)]
    if not count.any():
        return None
    best_s, best = 0.0, _normed(np.ones(len(count)), count)
    for start in (best, _normed(_speeds(times), count)):
        weight = start
        for number in range(ROUNDS):
            price = np.where(np.isfinite(times), np.nan_to_num(times, posinf=0.0) * weight, np.inf)
            at = price.argmin(axis=1)
            value = math.fsum(price[np.arange(len(at)), at].tolist())
            if value > best_s:
                best_s, best = value, weight
            load = np.bincount(at, times[np.arange(len(at)), at], len(count)) / np.maximum(count, 1)
            most = float(load[count > 0].max())
            if most <= 0:
                break
            before = weight
            weight = _normed(weight * np.exp(STEP / (1 + number) * np.minimum(load / most, 1.0)), count)
            if np.array_equal(weight, before):  # one kind
                break
    best_s *= 1 - 1e-15 * (problem.graph.num_ops + 16)  # a rounding error for every term of every sum
    if not best_s > 0:
        return None
    num_passes = 2 if problem.objective.to_dict().get("schedule") == "gpipe" else 1
    return best_s, Prices(
        profile_of_device=tuple(kind.tolist()),
        work_weight=tuple((w,) * num_passes for w in best.tolist()),
        transfer_weight=((0.0,) * num_passes,) * len(best),
        memory_price=(0.0,) * len(best),
    )


def _speeds(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``[num_kinds]`` the mean speed of each kind: with these weights no device is cheaper than the others."""
    total_s = np.where(np.isfinite(times), times, 0.0).sum(axis=0)
    mean_s = total_s / np.maximum(np.isfinite(times).sum(axis=0), 1)
    speed = np.divide(1.0, mean_s, out=np.zeros_like(mean_s), where=mean_s > 0)
    return np.where(speed > 0, speed, speed.max(initial=0.0) or 1.0)


def _normed(weight: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weights scaled so that those of all devices add up to a little less than 1."""
    weight = np.where(count > 0, weight, 0.0)
    return np.asarray(weight / (weight @ count) * (1 - 1e-14), dtype=np.float64)


def longest_path_s(problem: Problem) -> float | None:
    """Return the time of the longest path in seconds, each op where it is fastest; None for other objectives.

    O(ops * kinds + edges).
    """
    if not problem.objective.follows_paths:
        return None
    graph, costs = problem.graph, problem.costs
    used = np.unique(problem.platform.kind_of_device)
    fastest = np.where(costs.supported, costs.op_time_s, np.inf)[:, used].min(axis=1)
    takes = np.where(np.isfinite(fastest), fastest, 0.0).tolist()
    first, receivers = (each.tolist() for each in csr_lists(graph.senders, graph.receivers, graph.num_ops))
    start = [0.0] * graph.num_ops
    longest = 0.0
    for u in graph.order.tolist():
        end = start[u] + takes[u]
        longest = max(longest, end)
        for v in receivers[first[u] : first[u + 1]]:
            start[v] = max(start[v], end)
    return longest * (1 - 1e-15 * (graph.num_ops + 16))
