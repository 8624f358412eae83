"""The cases of the timing benchmark: what is measured, and the row that comes of it.

``speedup``
    The placement of `ilp` for throughput on two equal groups of cores, as threads and as processes, against one group
    alone, and against OpenVINO with both: one device of all cores, with streams, AUTO, MULTI.
``unequal``
    Two groups of one size, one in f32 and one in bf16: the cut that `ilp` finds against the cut into equal halves and
    against random contiguous cuts.
``prediction``
    Splits of all shapes: what the costs predict, before and after calibration, and what is measured. "After" is by
    parameters from the other splits of the same case, never from the split itself.
``compile``
    How long placements take to compile, with and without OpenVINO's model cache.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placekit.benchmarks.timing_compile import compile_times
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.base import CostModel, Progress
from placekit.cost_models.calibration import calibrate
from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.openvino.measured_splits import measure_splits
from placekit.cost_models.openvino.noise import LoadMeter
from placekit.cost_models.openvino.timing import Timing, TimingSettings
from placekit.cost_models.openvino.timing_contenders import Contender, Executor, Placed, baselines, is_serial, singles
from placekit.cost_models.openvino.timing_series import Timings
from placekit.cost_models.profiled import Profiled
from placekit.cost_models.splits import split_placement
from placekit.cost_models.stage_costs import predict, stage_overhead_s
from placekit.errors import InvalidFileError
from placekit.io.model import ModelSource, read_model
from placekit.placement import Placement
from placekit.problem import Problem
from placekit.result import Result
from placekit.solve import solve
from placekit.stop import MaxRuntime, TargetGap

__all__ = ["EXECUTORS", "PARTS", "TimingCase", "run_case", "timing_cases"]

Row = dict[str, Any]

EXECUTORS: tuple[Executor, ...] = ("threads", "processes", "serial")
"""Ways of running splits whose predictions are judged."""

_SPEEDUP_MODELS = ("resnet50", "inception_v3", "bert_base")
_PREDICTION_MODELS = (*_SPEEDUP_MODELS, "mobilenet_v2", "densenet121")
_PRECISIONS: Mapping[str, tuple[str, str]] = {"equal": ("f32", "f32"), "unequal": ("f32", "bf16")}
_LIGHT = "backend/test/data/light/light_{}.onnx"
NUM_RANDOM_CUTS = 20
_CUTS_AT_ONCE = 5
"""Random cuts that are measured in turns with the solver's: each is a process that holds the model."""
_BURST_S = 0.6
_SOLVE_S, _GAP = 30.0, 1e-3


@dataclass(frozen=True, slots=True)
class TimingCase:
    """What is measured.

    Parameters
    ----------
    part
        One of `PARTS`.
    model
        Name of a zoo model, or of a light model of the `onnx` package.
    groups
        ``"equal"`` or ``"unequal"`` groups of cores.
    executor
        How splits run; ``"threads"`` where the part says it.
    is_quick
        True for a smoke run, whose numbers mean little.
    """

    part: str
    model: str
    groups: str
    executor: Executor
    is_quick: bool


def timing_cases(parts: tuple[str, ...], models: tuple[str, ...] | None, *, is_quick: bool) -> list[TimingCase]:
    """Return the cases of the `parts`, of all their models or of those given."""
    cases = []
    for part in parts:
        for model in _SPEEDUP_MODELS if part in {"speedup", "unequal"} else _PREDICTION_MODELS:
            if part == "compile":
                cases.append(TimingCase(part, model, "equal", "serial", is_quick))
                continue
            if part != "prediction":
                cases.append(TimingCase(part, model, "equal" if part == "speedup" else "unequal", "threads", is_quick))
                continue
            for executor in EXECUTORS:
                cases.append(TimingCase(part, model, "equal", executor, is_quick))
                if executor != "serial":
                    cases.append(TimingCase(part, model, "unequal", executor, is_quick))
    return [case for case in cases if models is None or case.model in models]


def run_case(case: TimingCase, folder: Path, progress: Progress | None = None) -> Row:
    """Measure a case and return its row.

    Parameters
    ----------
    case
        The case.
    folder
        Where the models are, or are built first.
    progress
        Called with (done, total, label) as work goes on.

    Raises
    ------
    PlacekitError
        A model that cannot be had, or whatever keeps the case from running.
    """
    source = _source(case.model, folder)
    platform = core_groups(2, precision=_PRECISIONS[case.groups])
    costs = _cost_model(case).cost_table(source, platform, progress=progress)
    problem = source.problem(platform, costs)
    profile = {name: costs.provenance.get(name) for name in ("source", "noisy", "kinds")}
    row = {"benchmark": "timing", **asdict(case), "num_ops": problem.graph.num_ops, "profile": profile}
    return row | PARTS[case.part](case, source, problem, progress)


def _cost_model(case: TimingCase) -> CostModel:
    if case.part == "compile":
        return Analytic()  # blocks of about the same work will do
    # anew for predictions: a machine that is shared is not as fast in the evening as it was in the morning
    return Profiled(cache=None) if case.part == "prediction" else Profiled()


def _source(name: str, folder: Path) -> ModelSource:
    """Return a model, built or found.

    Raises
    ------
    InvalidFileError
        A light model without the `onnx` package.
    PlacekitError
        A zoo model that cannot be built.
    """
    from placekit.zoo.builder import build
    from placekit.zoo.registry import ZOO

    if name in ZOO:
        path = folder / f"{name}.xml"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            build(name, path)
        return read_model(path)
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        raise InvalidFileError(f"model {name!r} comes with the package onnx, which is not installed")
    return read_model(Path(spec.origin).parent / _LIGHT.format(name))


def _settings(case: TimingCase, *, rounds: int, stream_s: float, alone_s: float) -> TimingSettings:
    if case.is_quick:
        rounds, stream_s, alone_s = 3, stream_s / 8, alone_s / 8
    return TimingSettings(
        rounds=rounds, max_rounds=2 * rounds, warm_up_s=0.2, latency_s=alone_s, throughput_s=stream_s, time_limit_s=60.0
    )


def _solve(case: TimingCase, problem: Problem) -> tuple[Result, Row]:
    """Return what `ilp` answers, and what of it stands in the row."""
    stop = MaxRuntime(_SOLVE_S / 6 if case.is_quick else _SOLVE_S) | TargetGap(_GAP)
    result = solve(problem, "ilp", stop=stop)
    return result, {
        "method": result.method,
        "objective_s": result.objective,
        "gap": result.gap,
        "status": str(result.status),
        "runtime_s": result.runtime_s,
    }


def _measured(timings: Timings) -> Row:
    return {
        "contenders": [each.to_dict() for each in timings.used],
        "flags": list(timings.flags()),
        "noisy": timings.is_noisy,
        "measured_for_s": timings.wall_s,
    }


def _speedup(case: TimingCase, source: ModelSource, problem: Problem, progress: Progress | None) -> Row:
    result, told = _solve(case, problem)
    placement = _placement(result)
    alone = singles(source.graph, problem.platform, "threads")
    contenders: list[Contender] = [
        Placed("threads", placement, problem.platform, "threads"),
        Placed("processes", placement, problem.platform, "processes"),
        *alone,
        *baselines(problem.platform),
    ]
    settings = _settings(case, rounds=7, stream_s=0.8, alone_s=0.3)
    timings = Timing(settings, cache=None).measure(source, contenders, progress=progress)
    best = timings.best(each.name for each in alone)
    prediction = predict(problem, placement, is_serial=False)
    rate = timings["threads"].throughput
    return {
        "solved": told,
        "best_single": best,
        # of each way to run the placement over each of the others
        "speedup": {
            how: {each.name: _median(timings, how, each.name) for each in contenders[2:]}
            for how in ("threads", "processes")
        },
        "speedup_over_best_single": best and _median(timings, "threads", best),
        "predicted_throughput_per_s": prediction.throughput_per_s,
        "prediction_error": rate and prediction.throughput_per_s / rate.median - 1,
        **_measured(timings),
    }


def _median(timings: Timings, name: str, other: str) -> float | None:
    ratio = timings.ratio(name, other)
    return None if ratio is None else ratio.median


def _placement(result: Result) -> Placement:
    if result.placement is None:
        raise InvalidFileError(f"{result.problem_name}: {result.method} found no placement in its time")
    return result.placement


def _unequal(case: TimingCase, source: ModelSource, problem: Problem, progress: Progress | None) -> Row:
    result, told = _solve(case, problem)
    rng = np.random.default_rng(0)
    cuts = {"equal halves": split_placement(problem, [0, 1], [0.5, 0.5])}
    for number in range(_CUTS_AT_ONCE if case.is_quick else NUM_RANDOM_CUTS):
        share = float(rng.uniform(0.05, 0.95))
        pattern = [0, 1] if rng.integers(2) else [1, 0]
        cuts[f"random {number}: {problem.platform.device_names[pattern[0]]} first, {share:.0%}"] = split_placement(
            problem, pattern, [share, 1 - share]
        )
    settings = _settings(case, rounds=3, stream_s=_BURST_S, alone_s=0.0)
    names, measured = list(cuts), []
    ratios: dict[str, float | None] = {}
    for begin in range(0, len(names), _CUTS_AT_ONCE):
        chosen = names[begin : begin + _CUTS_AT_ONCE]
        contenders = [Placed("solver", _placement(result), problem.platform)]
        contenders += [Placed(name, cuts[name], problem.platform) for name in chosen]
        timings = Timing(settings, cache=None).measure(source, contenders, progress=progress)
        ratios |= {name: _median(timings, "solver", name) for name in chosen}
        measured.append(_measured(timings))
    known = [ratio for name, ratio in ratios.items() if name.startswith("random") and ratio is not None]
    return {
        "solved": told,
        "speedup_over_equal_halves": ratios["equal halves"],
        "speedup_over_best_random": min(known, default=None),
        "speedup_over_each": ratios,
        "groups_of_cuts": measured,
        "noisy": any(each["noisy"] for each in measured),
    }


_SPLITS: tuple[tuple[str, tuple[int, ...], tuple[float, ...]], ...] = (
    ("first alone", (0,), (1.0,)),
    ("second alone", (1,), (1.0,)),
    ("cut at 30 %", (0, 1), (0.3, 0.7)),
    ("cut at 50 %", (0, 1), (0.5, 0.5)),
    ("cut at 70 %", (0, 1), (0.7, 0.3)),
    ("cut at 15 %, second first", (1, 0), (0.15, 0.85)),
    ("ABA", (0, 1, 0), (0.25, 0.5, 0.25)),
    ("ABABAB", (0, 1) * 3, (1.0,) * 6),
    ("BABABA", (1, 0) * 3, (1.0,) * 6),
)


def _prediction(case: TimingCase, source: ModelSource, problem: Problem, progress: Progress | None) -> Row:
    placements: dict[str, Placement] = {}
    for name, pattern, shares in _SPLITS:
        placements[name] = split_placement(problem, pattern, shares)
    alone_s = _BURST_S if is_serial(case.executor) else 0.0
    settings = _settings(case, rounds=5, stream_s=_BURST_S - alone_s, alone_s=alone_s)
    measured = measure_splits(
        source, problem, placements, case.executor, Timing(settings, cache=None), progress=progress
    )
    found = calibrate(problem.costs, measured.splits, measured.circumstances())
    splits = []
    for split, before, after in zip(measured.splits, found.before.tolist(), found.after.tolist(), strict=True):
        splits.append(
            {
                "name": split.name,
                "num_stages": split.stages.num_stages,
                "measured_s": split.sample_s,
                "predicted_s": split.sample_s * (1 + before),
                "calibrated_s": split.sample_s * (1 + after),
                "error_before": before,
                "error_after": after,
                "stage_device": split.stages.device.tolist(),
                "stage_transfer_s": split.stages.transfer_s.tolist(),
                "stage_op_time_s": split.stages.op_time_s.tolist(),
                "stage_busy_s": split.busy_s.tolist(),
                "stage_moved_bytes": split.stages.moved_bytes.tolist(),
            }
        )
    return {
        "stage_overhead_s": stage_overhead_s(problem.costs),
        "splits": splits,
        "calibration": found.to_dict(),
        **_measured(measured.timings),
    }


def _compile(case: TimingCase, source: ModelSource, problem: Problem, progress: Progress | None) -> Row:
    with LoadMeter() as meter:
        row = compile_times(source, problem, is_quick=case.is_quick, progress=progress)
    load = meter.reading.foreign_load
    return row | {"foreign_load": load, "noisy": load > TimingSettings().max_foreign_load}


PARTS: Mapping[str, Callable[[TimingCase, ModelSource, Problem, Progress | None], Row]] = {
    "speedup": _speedup,
    "unequal": _unequal,
    "prediction": _prediction,
    "compile": _compile,
}
"""What is measured, by name."""
