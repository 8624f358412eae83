"""A placement timed against every device alone and against OpenVINO's own ways, and compared with its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import Progress
from placekit.cost_models.openvino.timing import Timing
from placekit.cost_models.openvino.timing_contenders import Contender, Executor, Placed, baselines, is_serial, singles
from placekit.cost_models.openvino.timing_series import Estimate, Quantity, Series, Timings
from placekit.cost_models.openvino.timing_trace import predicted_stage_times, timing_trace
from placekit.cost_models.stage_costs import Prediction, StageCosts, predict, stage_costs
from placekit.io.model import ModelSource
from placekit.placement import Placement
from placekit.problem import Problem

__all__ = ["PLACEMENT", "PlacementTiming", "time_placement"]

PLACEMENT = "placement"
"""Name of the placement among the contenders."""


@dataclass(frozen=True, eq=False)
class PlacementTiming:
    """How a placement did.

    Parameters
    ----------
    timings
        The placement, under the name `PLACEMENT`, and whatever it was measured against.
    executor
        How it ran.
    singles
        Name of the contender by name of the device that it has alone.
    stages, prediction
        Costs of its stages, and what follows for them.
    device_names
        ``[num_stages]`` name of each stage's device.
    """

    timings: Timings
    executor: Executor
    singles: Mapping[str, str]
    stages: StageCosts
    prediction: Prediction
    device_names: tuple[str, ...]

    @property
    def placed(self) -> Series:
        """What was measured of the placement."""
        return self.timings[PLACEMENT]

    @property
    def best_single_device(self) -> str | None:
        """The device that does best alone, by throughput; None if no device can run all of the model."""
        best = self.timings.best(self.singles.values())
        return next((device for device, name in self.singles.items() if name == best), None)

    @property
    def stage_names(self) -> tuple[str, ...]:
        """``[num_stages]`` names, as in the plan."""
        return tuple(f"{index}:{device}" for index, device in enumerate(self.device_names))

    def speedup(self, quantity: Quantity = "throughput") -> Estimate | None:
        """Return how many times the placement is as good as the best single device; None without one."""
        best = self.best_single_device
        return None if best is None else self.timings.ratio(PLACEMENT, self.singles[best], quantity)

    @property
    def measured_stage_s(self) -> NDArray[np.float64] | None:
        """``[num_stages]`` median seconds of every stage; None if not known."""
        busy_s = self.placed.stage_busy_s
        return busy_s if len(busy_s) == self.stages.num_stages else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; numbers that are not known are None."""
        mine = self.placed.to_dict()
        speedup, faster = self.speedup(), self.speedup("latency")
        throughput, latency = mine.pop("throughput_per_s"), mine.pop("latency_s")
        mine = {name: value for name, value in mine.items() if name not in ("name", "error")}
        return {
            "executor": self.executor,
            "latency_s": latency,
            "throughput_per_s": throughput,
            **mine,
            "best_single_device": self.best_single_device,
            "speedup": speedup and speedup.median,
            "speedup_iqr": speedup and speedup.iqr,
            "latency_speedup": faster and faster.median,
            "latency_speedup_iqr": faster and faster.iqr,
            "predicted_latency_s": self.prediction.latency_s,
            "predicted_throughput_per_s": self.prediction.throughput_per_s,
            "prediction_error": _error(self.prediction.throughput_per_s, throughput),
            "latency_prediction_error": _error(self.prediction.latency_s, latency),
            "stages": self.stage_rows(),
            "contenders": [self._contender(each) for each in self.timings.used],
            "flags": list(self.timings.flags()),
            "is_noisy": self.timings.is_noisy,
            "is_cached": self.timings.is_cached,
            "measured_for_s": self.timings.wall_s,
        }

    def _contender(self, series: Series) -> dict[str, Any]:
        ratio = None if series.name == PLACEMENT else self.timings.ratio(PLACEMENT, series.name)
        return series.to_dict() | {"speedup_of_placement": ratio and ratio.median}

    def stage_rows(self) -> list[dict[str, Any]]:
        """Return name, device, measured and predicted seconds, and the error of every stage."""
        measured_s = self.measured_stage_s
        rows = []
        for index, (name, device) in enumerate(zip(self.stage_names, self.device_names, strict=True)):
            predicted = float(self.prediction.stage_s[index])
            measured = None if measured_s is None else float(measured_s[index])
            rows.append(
                {
                    "name": name,
                    "device": device,
                    "measured_s": measured,
                    "predicted_s": predicted,
                    "prediction_error": _error(predicted, measured),
                }
            )
        return rows

    def trace(self) -> dict[str, Any]:
        """Return what was measured of the last samples, and what was predicted for as many, as a Chrome trace."""
        measured_s = self.placed.stage_times_s
        predicted_s = predicted_stage_times(
            self.stages,
            self.prediction.stage_s,
            max(1, len(measured_s)),
            is_serial=is_serial(self.executor),
        )
        return timing_trace(self.stage_names, self.device_names, measured_s, predicted_s)


def _error(predicted: float, measured: float | None) -> float | None:
    return None if not measured else predicted / measured - 1


def time_placement(
    source: ModelSource,
    problem: Problem,
    placement: Placement,
    *,
    executor: Executor = "threads",
    queue_size: int = 2,
    with_baselines: bool = True,
    timing: Timing | None = None,
    progress: Progress | None = None,
) -> PlacementTiming:
    """Time `placement` against every device alone, and against OpenVINO's own ways of running the model.

    Parameters
    ----------
    source
        The model.
    problem
        Its problem; gives the platform, and the costs that the prediction is made of.
    placement
        What to time.
    executor
        How to run it, and every device alone.
    queue_size
        Samples between two stages of a pipeline.
    with_baselines
        Whether to time AUTO, MULTI and all cores as one device, too.
    timing
        How to measure; as by default if None.
    progress
        Called with (done, total, label) as work goes on.

    Raises
    ------
    PlacekitError
        The placement cannot be predicted, cut, compiled or run.
    """
    platform = problem.platform
    stages = stage_costs(problem, placement)
    alone = singles(source.graph, platform, executor, queue_size)
    contenders: list[Contender] = [Placed(PLACEMENT, placement, platform, executor, queue_size), *alone]
    if with_baselines:
        contenders += baselines(platform)
    timings = (timing or Timing()).measure(source, contenders, progress=progress)
    return PlacementTiming(
        timings=timings,
        executor=executor,
        singles=dict(zip(platform.device_names, (each.name for each in alone), strict=True)),
        stages=stages,
        prediction=predict(problem, placement, is_serial=is_serial(executor)),
        device_names=tuple(platform.device_names[each] for each in stages.device.tolist()),
    )
