"""Plans with teams against the runtime, measured: ``python -m placekit.benchmarks.teams``.

``groups``
    The plan of ``--groups auto`` with teams of equal devices, against all that the runtime offers on the same cores.
``mixed``
    One group of cores in f32 and one in bf16, teams of any: the plan against a copy of the model on each group.
``memory``
    Two groups that a whole copy of the model does not fit, at 40, 60 and 80 % of its bytes each: is there a plan, is it
    proven, and what does it measure? Every way of the runtime needs a whole copy.
``prediction``
    A whole copy on each of two groups (f32, bf16, one of each), in threads and in processes: what the costs predict,
    before and after a calibration with placements of single devices, and what is measured.

One row per case is appended to ``benchmarks/rows/teams.jsonl``; what has a row there is left out, and a case that
failed is tried again. All contenders of a case are measured in turns, and ratios are within a round.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from placekit.benchmarks.circumstances import ROOT
from placekit.benchmarks.part_driver import PartBenchmark, Row
from placekit.cost_models.calibration import calibrate
from placekit.cost_models.openvino.devices import core_cuts, core_groups
from placekit.cost_models.openvino.measured_splits import measure_splits
from placekit.cost_models.openvino.timing import Timing, TimingSettings
from placekit.cost_models.openvino.timing_contenders import Contender, Copies, Executor, Placed, baselines
from placekit.cost_models.openvino.timing_series import Timings
from placekit.cost_models.profiled import Profiled
from placekit.cost_models.splits import split_placement
from placekit.cost_models.stage_costs import predict
from placekit.errors import InvalidFileError
from placekit.io.model import ModelSource, read_model
from placekit.objectives import Throughput
from placekit.placement import Placement
from placekit.platform import Platform
from placekit.problem import Problem
from placekit.result import Result
from placekit.solve import solve
from placekit.solvers.sequence.choice import solve_best
from placekit.stop import MaxRuntime

__all__ = ["BENCHMARK", "PARTS", "TeamCase", "describe", "run_case", "summary", "team_cases"]

ROWS = ROOT / "benchmarks" / "rows" / "teams.jsonl"
ZOO = ("resnet50", "inception_v3", "mobilenet_v2", "bert_base", "gpt2", "decoder")
LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "light_resnet50", "shufflenet", "squeezenet",
    "vgg19", "zfnet512",
)  # fmt: skip
"""Light models of the package `onnx`; the one that has a twin in the zoo keeps its prefix."""
_FEW = ("resnet50", "inception_v3", "mobilenet_v2", "bert_base", "densenet121")
_SHARES = ("40", "60", "80")
_PRECISIONS: Mapping[str, tuple[str, str]] = {"f32": ("f32", "f32"), "bf16": ("bf16", "bf16"), "both": ("f32", "bf16")}
_SOLVE_S = 30.0
_PLAN, _COPY = "plan", "MULTI of groups"


@dataclass(frozen=True, slots=True)
class TeamCase:
    """What is measured.

    Parameters
    ----------
    part
        One of `PARTS`.
    model
        Name of a zoo model or of a light one.
    variant
        ``memory``: per cent of the bytes; ``prediction``: precisions and executor; empty else.
    """

    part: str
    model: str
    variant: str = ""


def team_cases(parts: Sequence[str], models: Sequence[str] | None) -> list[TeamCase]:
    """Return the cases of the `parts`, of all their models or of those given."""
    variants = {
        "memory": _SHARES,
        "prediction": tuple(f"{precision} {how}" for precision in _PRECISIONS for how in ("threads", "processes")),
    }
    cases = []
    for part in parts:
        for model in _FEW if part in variants else (*ZOO, *LIGHT):
            if models is None or model in models:
                cases += [TeamCase(part, model, variant) for variant in variants.get(part, ("",))]
    return cases


def run_case(case: TeamCase, folder: Path, *, is_quick: bool = False) -> Row:
    """Measure a case and return its row.

    Parameters
    ----------
    case
        The case.
    folder
        Where the zoo models are, or are built first.
    is_quick
        True for a smoke run, whose numbers mean little.

    Raises
    ------
    PlacekitError
        A model that cannot be had, or whatever keeps the case from running.
    """
    # predictions are of many placements at once, and asked for to the per cent
    burst_s, rounds = (0.05, 3) if is_quick else (0.4, 5) if case.part == "prediction" else (0.8, 7)
    settings = TimingSettings(
        rounds=rounds, max_rounds=2 * rounds, warm_up_s=burst_s / 4, latency_s=0.0, throughput_s=burst_s
    )
    return PARTS[case.part](case, _source(case.model, folder), Timing(settings, cache=None))


def _source(name: str, folder: Path) -> ModelSource:
    """Return a model, built or found.

    Raises
    ------
    InvalidFileError
        A light model without the package `onnx`.
    PlacekitError
        A zoo model that cannot be built.
    """
    from placekit.zoo.builder import build

    if name in ZOO:
        path = folder / f"{name}.xml"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            build(name, path)
        return read_model(path)
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        raise InvalidFileError(f"model {name!r} comes with the package onnx, which is not installed")
    stem = f"light_{name.removeprefix('light_')}"
    return read_model(Path(spec.origin).parent / "backend" / "test" / "data" / "light" / f"{stem}.onnx")


def _problem(source: ModelSource, platform: Platform, teams: Any) -> Problem:
    """Return the problem with costs measured right now."""
    costs = Profiled(cache=None).cost_table(source, platform)
    return source.problem(platform, costs, objective=Throughput(teams=teams))


def _solved(result: Result) -> Row:
    placement = result.placement
    return {
        "method": result.method,
        "status": str(result.status),
        "objective_s": result.objective,
        "gap": result.gap,
        "runtime_s": result.runtime_s,
        "teams": None if placement is None else sorted(set(placement.as_dict().values())),
    }


def _measured(timings: Timings) -> Row:
    return {
        "contenders": [each.to_dict() for each in timings.used],
        "flags": list(timings.flags()),
        "noisy": timings.is_noisy,
        "measured_for_s": timings.wall_s,
    }


def _against(timings: Timings, result: Result, others: Sequence[str]) -> Row:
    best, over = timings.best(others), timings.over_best(_PLAN, others)
    rate = timings[_PLAN].throughput
    return {
        "solved": _solved(result),
        "best_other": best,
        "over_best": over and over.median,
        "over_best_iqr": over and over.iqr,
        "prediction_error": rate and result.objective and 1 / result.objective / rate.median - 1,
        **_measured(timings),
    }


def _placement(result: Result) -> Placement:
    if result.placement is None:
        raise InvalidFileError(f"{result.problem_name}: {result.method} found no placement in its time")
    return result.placement


def _groups(_: TeamCase, source: ModelSource, timing: Timing) -> Row:
    problems = {f"{(n := cut.num_devices)} group{'s' * (n > 1)}": _problem(source, cut, "equal") for cut in core_cuts()}
    name, result = solve_best(problems, "dp", stop=MaxRuntime(_SOLVE_S))
    platform = problems[name].platform
    runtime = baselines(platform)
    timings = timing.measure(source, [Placed(_PLAN, _placement(result), platform), *runtime])
    told = _against(timings, result, [each.name for each in runtime])
    return told | {"chosen": name, "compared": result.info["compared"]}


def _mixed(_: TeamCase, source: ModelSource, timing: Timing) -> Row:
    platform = core_groups(precision=_PRECISIONS["both"])
    result = solve(_problem(source, platform, "any"), "dp", stop=MaxRuntime(_SOLVE_S))
    contenders: list[Contender] = [Placed(_PLAN, _placement(result), platform), Copies(_COPY, platform)]
    return _against(timing.measure(source, contenders), result, [_COPY])


def _memory(case: TeamCase, source: ModelSource, timing: Timing) -> Row:
    problem = _problem(source, core_groups(2), "equal")
    everywhere = np.zeros(problem.graph.num_ops, dtype=np.int64)
    num_bytes = float(problem.stage_memory.use(everywhere, problem.platform.num_devices).total[0])
    limit = num_bytes * int(case.variant) / 100
    devices = tuple(device.replace(memory_bytes=limit) for device in problem.platform.devices)
    limited = problem.replace(platform=problem.platform.replace(devices=devices))
    result = solve(limited, "auto", stop=MaxRuntime(_SOLVE_S))
    row = {"solved": _solved(result), "limit_bytes": limit, "copy_bytes": num_bytes, "noisy": False}
    if result.placement is None:
        return row
    # for comparison only: whole copies break the limit
    copies = Copies(_COPY, limited.platform)
    timings = timing.measure(source, [Placed(_PLAN, result.placement, limited.platform), copies])
    return row | _against(timings, result, [_COPY])


_SPLITS: tuple[tuple[str, tuple[int, ...], tuple[float, ...]], ...] = (
    ("first alone", (0,), (1.0,)),
    ("second alone", (1,), (1.0,)),
    ("cut at 30 %", (0, 1), (0.3, 0.7)),
    ("cut at 50 %", (0, 1), (0.5, 0.5)),
    ("cut at 70 %", (0, 1), (0.7, 0.3)),
)
"""Placements without teams, which the calibration sees."""


def _prediction(case: TeamCase, source: ModelSource, timing: Timing) -> Row:
    precision, _, how = case.variant.partition(" ")
    executor: Executor = "threads" if how == "threads" else "processes"
    platform = core_groups(precision=_PRECISIONS[precision])
    problem = _problem(source, platform, "any")
    names = source.graph.op_names
    plan = Placement(
        names, platform.device_names, np.zeros(len(names), dtype=np.int64), team_of_device=np.zeros(2, dtype=np.int64)
    )
    splits = {name: split_placement(problem, pattern, shares) for name, pattern, shares in _SPLITS}
    # in the same rounds, so that what the machine does meanwhile is no error of the calibration
    measured = measure_splits(source, problem, {**splits, _PLAN: plan}, executor, timing)
    rate = measured.timings[_PLAN].throughput
    calibrated = calibrate(problem.costs, measured.splits, measured.circumstances()).apply(problem.costs, source.graph)
    before, after = (
        predict(problem.replace(costs=costs), plan, is_serial=False).throughput_per_s
        for costs in (problem.costs, calibrated)
    )
    return {
        "measured_per_s": rate and rate.median,
        "error_before": rate and before / rate.median - 1,
        "error_after": rate and after / rate.median - 1,
        **_measured(measured.timings),
    }


PARTS: Mapping[str, Callable[[TeamCase, ModelSource, Timing], Row]] = {
    "groups": _groups,
    "mixed": _mixed,
    "memory": _memory,
    "prediction": _prediction,
}
"""What is measured, by name."""


def describe(row: Row) -> str:
    """Return what a row says, in a few words."""
    if row["part"] == "prediction":
        return f"error {row['error_before']:+.1%} before, {row['error_after']:+.1%} after calibration"
    if row.get("over_best") is None:
        return str(row["solved"]["status"])
    return f"{row['over_best']:.3f}x of {row['best_other']} ({row['solved']['status']})"


def summary(rows: Sequence[Row]) -> list[str]:
    """Return what the rows say together, one line per part."""
    lines = []
    for part in PARTS:
        mine = [row for row in rows if row["part"] == part]
        if part == "prediction" and mine:
            before, after = (
                float(np.abs([row[f"error_{when}"] for row in mine]).mean()) for when in ("before", "after")
            )
            lines.append(f"{part}: {len(mine)} plans, mean error {before:.1%} before, {after:.1%} after calibration")
            continue
        known = [row["over_best"] for row in mine if row.get("over_best") is not None]
        if known:
            lines.append(f"{part}: {len(known)} plans, median {np.median(known):.3f}x, least {min(known):.3f}x")
        if part == "memory" and mine:
            states = [row["solved"]["status"] for row in mine]
            told = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))
            lines.append(f"{part}: of {len(mine)} limits {told}")
    return lines


_HEADS: dict[str, tuple[str, ...]] = {
    "groups": ("model", "plan", "over the best of the runtime", "IQR", "error of prediction"),
    "mixed": ("model", "plan", "over a copy on each group", "IQR", "error of prediction"),
    "memory": ("model, limit", "plan", "over copies, which break the limit", "IQR", "error of prediction"),
    "prediction": ("model", "plan", "error before calibration", "after"),
}


def _cells(row: Row) -> list[str]:
    if row["part"] == "prediction":
        return [row["model"], row["variant"], f"{row['error_before']:+.1%}", f"{row['error_after']:+.1%}"]
    name = f"{row['model']}, {row['variant']} %" if row["variant"] else row["model"]
    if row.get("over_best") is None:
        return [name, row["solved"]["status"], "", "", ""]
    plan = f"{row['chosen']}: " if "chosen" in row else ""
    plan += f"{', '.join(row['solved']['teams'])} ({row['solved']['status']})"
    ratio, error = f"{row['over_best']:.2f}x of {row['best_other']}", f"{row['prediction_error']:+.1%}"
    return [name, plan.replace("[", "\\["), ratio, f"{row['over_best_iqr']:.3f}", error]


BENCHMARK = PartBenchmark(
    "teams", "Measure plans with teams against the runtime on this machine.", ROWS, TeamCase, _HEADS, team_cases,
    run_case, describe, summary, _cells, num_text=2,
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
