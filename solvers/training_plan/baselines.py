"""Baselines without proofs: plans made by hand, and by simpler planners.

- ``equal-split``: what users of Megatron-LM do by hand. The same degrees everywhere, equal numbers of layers per stage,
  recomputation everywhere or nowhere; the best of all degrees and numbers of stages.
- ``pipedream-2bw``: the same degrees everywhere, stages balanced by time, recomputation everywhere or nowhere
  (Narayanan et al., ICML 2021, whose planner searches depth and width).
- ``data-parallel``: one stage. ``pipeline``: stages of one device each. Both with the best choices.
- ``piper-greedy``: the dynamic program with recomputation chosen greedily, as Piper's public code chooses it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.training_plan.dp import Sweep, TrainingDp, TrainingDpParams
from placekit.solvers.training_plan.knapsack import GREEDY
from placekit.solvers.training_plan.search import PlanSearch, Stopped
from placekit.solvers.training_plan.tables import Tables, some_ideals
from placekit.training.plan import PlanStage, TrainingPlan
from placekit.training.problem import TrainingProblem
from placekit.training.result import PlanRun

FINE = 1e-9
"""Relative gap to which baselines that search are narrowed."""


class EqualSplit:
    """Baseline with the same degrees everywhere, and equal numbers of layers."""

    name: ClassVar[str] = "equal-split"
    guarantee: ClassVar[str] = "none (by hand)"

    def run(self, run: PlanRun) -> StopReason:
        """Try every number of stages and every pair of degrees."""
        problem = run.problem
        order = problem.topological_order
        for t in problem.tensor_degrees:
            policies = _policies(problem, t)
            for d in problem.data_degrees:
                most = min(problem.num_devices // (d * t), problem.num_microbatches // d, problem.num_layers)
                for num_stages in range(1, most + 1):
                    reason = run.should_stop()
                    if reason is not None:
                        return reason
                    parts = [part.tolist() for part in np.array_split(np.array(order), num_stages)]
                    for picked in policies:
                        run.offer(_uniform_plan(parts, d, t, picked))
        return StopReason.FINISHED


class PipeDream2BW:
    """Baseline with the same degrees everywhere, and stages of about equal time."""

    name: ClassVar[str] = "pipedream-2bw"
    guarantee: ClassVar[str] = "none (same degrees everywhere)"

    def run(self, run: PlanRun) -> StopReason:
        """For every pair of degrees, balance stages of one order by time, from the end of the pipeline."""
        problem = run.problem
        tables = Tables.of(problem)
        order = tables.order.tolist()
        for ti, t in enumerate(problem.tensor_degrees):
            moved_s = _moved_s(tables, ti)
            for picked in _policies(problem, t):
                rows = [problem.layers[v].choices[t][picked[v]] for v in order]
                sums = [
                    np.concatenate([[0.0], np.cumsum([getattr(row, name) for row in rows])])
                    for name in (
                        "time_s", "parameter_bytes", "memory_per_microbatch_bytes", "memory_fixed_bytes"
                    )
                ]  # fmt: skip
                time_s, gradients, a, b = (total[None, :] - total[:, None] for total in sums)
                for d in problem.data_degrees:
                    reason = run.should_stop()
                    if reason is not None:
                        return reason
                    seconds = (time_s + moved_s + (d - 1) * tables.gradient_s_per_byte * gradients) / d
                    most = min(problem.num_devices // (d * t), problem.num_microbatches // d, len(order))
                    for ends in _balanced(seconds, a, b, problem.memory_bytes, most):
                        parts = [order[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
                        run.offer(_uniform_plan(parts, d, t, picked))
        return StopReason.FINISHED


def _policies(problem: TrainingProblem, t: int) -> list[list[int]]:
    """Return the fastest choice of every layer, and the choice with the least memory of every layer."""
    fastest, lightest = [], []
    for v in range(problem.num_layers):
        choices = problem.choices(v, t)
        fastest.append(min(choices, key=lambda pair: pair[1].time_s)[0])
        lightest.append(min(choices, key=lambda pair: pair[1].memory_per_microbatch_bytes)[0])
    return [fastest] if fastest == lightest else [fastest, lightest]


def _uniform_plan(parts: list[list[int]], d: int, t: int, picked: list[int]) -> TrainingPlan:
    stages = [PlanStage(tuple(sorted(part)), d, t, tuple(picked[v] for v in sorted(part))) for part in parts]
    return TrainingPlan(tuple(stages))


def _moved_s(tables: Tables, ti: int) -> NDArray[np.float64]:
    """``[L + 1, L + 1]`` seconds of the edges between positions ``[begin, end)`` and the rest."""
    n = tables.num_layers
    found = np.zeros((n + 1, n + 1))
    for e, (u, v) in enumerate(zip(tables.edge_source.tolist(), tables.edge_target.tolist(), strict=True)):
        found[u + 1 : v + 1, v + 1 :] += tables.edge_in_s[ti, e]
        found[: u + 1, u + 1 : v + 1] += tables.edge_out_s[ti, e]
    return found


def _balanced(
    seconds: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64], memory_bytes: float, most: int
) -> list[list[int]]:
    """Return, for 1, 2, ..., `most` stages, the ends of the stages of the best division that fits.

    With equal degrees the j-th stage from the end holds j microbatches. O(most * layers^2).
    """
    n = len(seconds) - 1
    best = np.full(n + 1, np.inf)
    best[n] = 0.0
    ends: list[NDArray[np.int64]] = []
    found = []
    later = np.triu(np.ones((n + 1, n + 1), dtype=bool), 1)
    for in_flight in range(1, most + 1):
        fits = later & (a * in_flight + b <= memory_bytes * (1 + MEMORY_TOLERANCE))
        worst = np.where(fits, np.maximum(seconds, best[None, :]), np.inf)
        chosen = worst.argmin(axis=1)
        best = worst[np.arange(n + 1), chosen]
        ends.append(chosen)
        if np.isfinite(best[0]):
            at, cuts = 0, []
            for stage in reversed(ends):
                at = int(stage[at])
                cuts.append(at)
            found.append(cuts)
    return found


class DataParallel:
    """Baseline with one stage, on the best number of replicas."""

    name: ClassVar[str] = "data-parallel"
    guarantee: ClassVar[str] = "none (one stage)"

    def run(self, run: PlanRun) -> StopReason:
        """Look for the best plan without a cut, without tensor parallelism."""
        inner = _restricted_run(run, data_parallel=True)
        tables = Tables.of(inner.problem)
        ideals = some_ideals(tables, [])
        search = PlanSearch(tables, ideals, lambda: run.should_stop() is not None)
        with suppress(Stopped):
            Sweep(inner, search, inner.problem.num_devices, Counter(), is_complete=False).narrow(FINE)
        return _take(run, inner)


class Pipeline:
    """Baseline with stages of one device each."""

    name: ClassVar[str] = "pipeline"
    guarantee: ClassVar[str] = "none (one device per stage)"

    def run(self, run: PlanRun) -> StopReason:
        """Let the dynamic program plan without data and tensor parallelism."""
        inner = _restricted_run(run, data_parallel=False)
        TrainingDp().run(inner)
        return _take(run, inner)


class PiperGreedy:
    """Baseline by the dynamic program with greedy choices."""

    name: ClassVar[str] = "piper-greedy"
    guarantee: ClassVar[str] = "none (greedy recomputation)"

    def run(self, run: PlanRun) -> StopReason:
        """Let the dynamic program plan with choices that trade the most bytes per second first."""
        inner = PlanRun(run.problem, run.stop, run.seed)
        inner.interrupted = run.interrupted
        TrainingDp(TrainingDpParams(max_nodes=GREEDY)).run(inner)
        return _take(run, inner)


def _restricted_run(run: PlanRun, *, data_parallel: bool) -> PlanRun:
    rules = replace(run.problem.restrictions, tensor_parallel=False)
    rules = rules if data_parallel else replace(rules, data_parallel=False)
    inner = PlanRun(run.problem.replace(restrictions=rules), run.stop, run.seed)
    inner.interrupted = run.interrupted
    return inner


def _take(run: PlanRun, inner: PlanRun) -> StopReason:
    """Offer the answer of an inner run, without its bounds, which are of a narrower problem."""
    if inner.plan is not None:
        run.offer(inner.plan)
    return run.should_stop() or StopReason.FINISHED
