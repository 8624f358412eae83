"""Measured rewards in a suite: ``reward = "measured"`` among the parameters of a learner.

Such a case learns as ``placekit learn --reward measured`` does, but in less time. A placement is measured by one burst,
and not cached, so that every seed pays for its own. Every device alone is measured before the clock starts, once for
all runs of a worker. The best placements are not compared at the end, because a suite measures them after all solves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import Progress
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.model.errors import PlacekitError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.objectives.evaluate import evaluate
from placekit.runtime.timing.contenders import Contender
from placekit.runtime.timing.measurements import Measurements, Timings
from placekit.runtime.timing.timed_process import Mode, TimedProcess
from placekit.runtime.timing.timing import Timing, TimingSettings
from placekit.solve.method import Method
from placekit.solve.registry import get_method

if TYPE_CHECKING:
    from placekit.learned.method import LearnedMethod

REWARD = "reward"
"""Parameter of a suite's method that names the reward of a learner."""
_ALONE: dict[tuple[Path, str], list[tuple[NDArray[np.int64], float]]] = {}
"""Placements on one device and their seconds, by model file and executor."""


def without_reward(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that the method itself knows."""
    return {name: value for name, value in params.items() if name != REWARD}


def why_not_measured(
    method: Method, params: Mapping[str, Any], problem: Problem, model_file: Path | None
) -> str | None:
    """Return why the placements of a method cannot be measured while it learns; None if they can, or need not be."""
    if REWARD not in params:
        return None
    if params[REWARD] != "measured":
        return f"there is no reward {params[REWARD]!r}; a suite knows 'measured', and the judge without one"
    if model_file is None:
        return "measured rewards need a model to run"
    try:
        _require_learner(method)
        from placekit.learned.measured_reward import executor_for

        executor_for(problem)
    except PlacekitError as error:
        return str(error)
    return None


def measured_method(name: str, params: Mapping[str, Any], problem: Problem, model_file: Path) -> Method:
    """Return a learner whose placements are measured, with small batches but where `params` name a published form."""
    from placekit.learned.measured_reward import SMALL_BATCHES, MeasuredReward, executor_for

    own = without_reward(params)
    learner = _require_learner(get_method(name, own if "fidelity" in own else {**SMALL_BATCHES.get(name, {}), **own}))
    executor, source = executor_for(problem), read_model(model_file)
    latency_s, stream_s = (0.1, 0.0) if executor == "serial" else (0.0, 0.1)
    timing = _OneBurst(TimingSettings(latency_s=latency_s, throughput_s=stream_s, timeout_s=60.0), cache=None)
    key = model_file, executor
    if key not in _ALONE:
        rows = [np.full(problem.graph.num_ops, device) for device in range(problem.platform.num_devices)]
        able = [row for row in rows if evaluate(problem, Placement.of(problem, row)).is_feasible]
        seconds = MeasuredReward(source, problem, timing=timing)(np.array(able)) if able else ()
        _ALONE[key] = list(zip(able, map(float, seconds), strict=True))
    reward = MeasuredReward(source, problem, timing=timing, candidates=0)  # the suite compares
    for row, time_s in _ALONE[key]:
        reward.remember(row, time_s)
    learner.session = replace(learner.session, measured=reward)
    return learner


class _OneBurst(Timing):
    """Timing of a single contender by one short burst in a process of its own."""

    def _measure(self, source: ModelSource, contenders: Sequence[Contender], progress: Progress | None) -> Timings:  # noqa: ARG002
        (contender,), settings, begun = contenders, self.settings, perf_counter()
        mode: Mode = "latency" if settings.latency_s else "throughput"
        with TimedProcess(source, contender, seed=settings.seed, timeout_s=settings.timeout_s) as process:
            burst = process.burst(mode, settings.latency_s or settings.throughput_s)
        series = Measurements(contender.name).with_round(0, {mode: burst}, 0.0)
        return Timings((series,), settings.max_foreign_load, perf_counter() - begun)


def _require_learner(method: Method) -> LearnedMethod:
    from placekit.learned.method import LearnedMethod

    if not isinstance(method, LearnedMethod):
        raise UnsupportedProblemError(f"{method.name} does not learn: it has no reward")
    return method
