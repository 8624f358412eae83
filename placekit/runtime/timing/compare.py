"""A placement timed against every device alone and against OpenVINO's own ways, and compared with its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from placekit.advice.alternatives import form_of
from placekit.advice.decision import Accuracy, Evidence, decide
from placekit.cost_models.base import Progress
from placekit.cost_models.measured.stage_costs import Prediction, StageCosts, predict, stage_costs
from placekit.io.models.model import ModelSource
from placekit.model.device_groups import team_name
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.model.reprs import short_repr
from placekit.runtime.stages.plans import engine_named
from placekit.runtime.timing.contenders import Contender, Executor, PlacedContender, singles
from placekit.runtime.timing.measurements import Estimate, Measurements, Quantity, Timings
from placekit.runtime.timing.timing import Timing
from placekit.runtime.timing.trace import predicted_stage_times, timing_trace
from placekit.solve.split_verdict import Alternative, Form, Verdict

Outcome: TypeAlias = Literal["wins", "draws", "loses"]

OF_ROUNDS = "the error of this measurement"
PLACEMENT = "placement"
"""Name of the placement among the contenders."""


@dataclass(frozen=True, eq=False)
class PlacementTiming:
    """Measured comparison of a placement with other contenders."""

    timings: Timings  # the placement, under the name `PLACEMENT`, and whatever it was measured against
    executor: Executor  # how it ran
    singles: Mapping[str, str]  # name of the contender by name of the device that it has alone
    # names of the contenders that are OpenVINO's own ways of running the whole model, or the ways of running a PyTorch
    # program that need no plan; none if they were left out
    runtime: tuple[str, ...]
    # stages, prediction: costs of its stages, and what follows for them
    stages: StageCosts
    prediction: Prediction
    team_names: tuple[tuple[str, ...], ...]  # ``[num_stages]`` names of the members of each stage's team
    placement: Placement  # what was timed

    __repr__ = short_repr

    @property
    def placed(self) -> Measurements:
        """Measurements of the placement."""
        return self.timings[PLACEMENT]

    @property
    def best_single_device(self) -> str | None:
        """The device that does best alone, by throughput; None if no device can run all of the model."""
        best = self.timings.best(self.singles.values())
        return next((device for device, name in self.singles.items() if name == best), None)

    @property
    def best_of_runtime(self) -> str | None:
        """The best of OpenVINO's own ways of running the whole model, by throughput; None if none of them ran."""
        return self.timings.best(self.runtime)

    @property
    def over_runtime(self) -> Estimate | None:
        """Speedup of the placement over the best of OpenVINO's own ways; None without one."""
        return self.timings.over_best(PLACEMENT, self.runtime)

    @property
    def outcome(self) -> Outcome | None:
        """Comparison with the best of OpenVINO's own ways: better or worse beyond the spread of the ratio, or equal."""
        over = self.over_runtime
        if over is None:
            return None
        if abs(over.median - 1) <= over.iqr / 2:
            return "draws"
        return "wins" if over.median > 1 else "loses"

    @property
    def whose(self) -> str:
        """Whose ways `runtime` are, after their number."""
        is_own = any(each.startswith(("AUTO", "MULTI")) for each in self.runtime)
        return "of the runtime" if is_own else "that need no plan"

    @property
    def stage_names(self) -> tuple[str, ...]:
        """``[num_stages]`` names, as in the plan."""
        return tuple(f"{index}:{team_name(team)}" for index, team in enumerate(self.team_names))

    def speedup(self, quantity: Quantity = "throughput") -> Estimate | None:
        """Return how many times the placement is as good as the best single device; None without one."""
        best = self.best_single_device
        return None if best is None else self.timings.ratio(PLACEMENT, self.singles[best], quantity)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; numbers that are not known are None."""
        mine = self.placed.to_dict()
        contenders = []
        for each in self.timings.used:
            ratio = None if each.name == PLACEMENT else self.timings.ratio(PLACEMENT, each.name)
            contenders.append(each.to_dict() | {"speedup_of_placement": ratio and ratio.median})
        speedup, faster, over = self.speedup(), self.speedup("latency"), self.over_runtime
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
            "outcome": self.outcome,
            "best_of_runtime": self.best_of_runtime,
            "over_runtime": over and over.median,
            "over_runtime_iqr": over and over.iqr,
            "predicted_latency_s": self.prediction.latency_s,
            "predicted_throughput_per_s": self.prediction.throughput_per_s,
            "prediction_error": _error(self.prediction.throughput_per_s, throughput),
            "latency_prediction_error": _error(self.prediction.latency_s, latency),
            "stages": self.stage_rows(),
            "contenders": contenders,
            "flags": list(self.timings.flags()),
            "is_noisy": self.timings.is_noisy,
            "is_cached": self.timings.is_cached,
            "measured_for_s": self.timings.wall_s,
            "verdict": self.verdict.to_dict(),
        }

    @property
    def verdict(self) -> Verdict:
        """Verdict on the split, from the measured seconds per sample of everything that ran.

        Half of the interquartile range of the ratio to the best other way is the error of the measurement. Other ways
        of splitting the model, such as equal shares of its layers, are not part of the question.
        """
        forms: dict[str, Form] = {"all cores": "all cores", "MULTI of groups": "copies"}
        own = [each for each in self.runtime if each in forms or each.startswith(("AUTO", "MULTI", "all cores"))]
        named: list[tuple[str, str, Form]] = [(device, name, "device") for device, name in self.singles.items()]
        named += [(name, name, forms.get(name, "runtime")) for name in own]
        others = [self._measured(name, form, contender) for name, contender, form in named]
        placed = self.placement
        used = ", ".join(placed.team_name(d) for d in np.unique(placed.device_of_op).tolist())
        mine = self._measured(used, form_of(placed), PLACEMENT)
        over = self.timings.over_best(PLACEMENT, (*self.singles.values(), *own))
        latency = self.placed.to_dict()["latency_s"]
        evidence = Evidence(
            Accuracy(None if over is None else over.iqr / 2 / over.median, OF_ROUNDS, "between rounds"),
            latency_s=latency,
            why_none=None if mine.objective_s is not None else "The placement did not run",
            remedy="to know, measure again on a quiet machine, with more `--rounds`",
        )
        return decide(mine if mine.objective_s is not None else None, others, evidence)

    def _measured(self, name: str, form: Form, contender: str) -> Alternative:
        """Return a contender as an alternative, with its measured seconds per sample."""
        told = next((each.to_dict() for each in self.timings.used if each.name == contender), None)
        rate = None if told is None else told["throughput_per_s"]
        error = None if told is None else told["error"]
        return Alternative(name, form, 1 / rate if rate else None, None if rate else str(error or "it did not run"))

    def stage_rows(self) -> list[dict[str, Any]]:
        """Return name, device, measured and predicted seconds, and the error, of every stage on every member."""
        rows = []
        for row, stage in enumerate(self.stages.stage.tolist()):
            name, team = self.stage_names[stage], self.team_names[stage]
            member = row - int(self.stages.rows_of(stage)[0])
            predicted = float(self.prediction.stage_s[row])
            measured = self.placed.member_busy_s(stage, member)
            rows.append(
                {
                    "name": name,
                    "device": team[member],
                    "measured_s": measured,
                    "predicted_s": predicted,
                    "prediction_error": _error(predicted, measured),
                }
            )
        return rows

    def trace(self) -> dict[str, Any]:
        """Return what was measured of the last samples, and what was predicted for as many, as a Chrome trace."""
        measured = self.placed.stage_times_s, self.placed.stage_members
        predicted = predicted_stage_times(
            self.stages, self.prediction.stage_s, max(1, len(measured[0])), is_serial=self.executor == "serial"
        )
        return timing_trace(self.stage_names, self.team_names, measured, predicted)


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
    """Time `placement` against every device alone, and against all that the runtime offers by itself.

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
        Whether to time other ways, too: AUTO, MULTI and all cores as one device; of a PyTorch program, equal shares of
        its layers and bytes, and random cuts.
    timing
        How to measure; as by default if None.
    progress
        Called with (done, total, label) as work goes on.

    Raises
    ------
    UnsupportedProblemError
        A team of several devices under an executor that runs one sample at a time.
    PlacekitError
        The placement cannot be predicted, cut, compiled or run.
    """
    platform = problem.platform
    stages = stage_costs(problem, placement)
    alone = singles(source.graph, platform, executor, queue_size)
    contenders: list[Contender] = [PlacedContender(PLACEMENT, placement, platform, executor, queue_size), *alone]
    runtime = engine_named(source.engine).baselines(source, problem, executor, queue_size) if with_baselines else ()
    contenders += runtime
    timings = (timing or Timing()).measure(source, contenders, progress=progress)
    return PlacementTiming(
        timings=timings,
        executor=executor,
        singles=dict(zip(platform.device_names, (each.name for each in alone), strict=True)),
        runtime=tuple(each.name for each in runtime),
        stages=stages,
        prediction=predict(problem, placement, is_serial=executor == "serial"),
        placement=placement,
        team_names=tuple(
            tuple(platform.device_names[each] for each in stages.device[stages.rows_of(stage)].tolist())
            for stage in range(stages.num_stages)
        ),
    )
