"""``placekit time``: a placement that is run, and compared with the ways of the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rich.console import RenderableType

from placekit.cli.commands.measure import (
    CacheOption,
    ClusterOption,
    SourceOptions,
    TimingOptions,
    connected,
    flag_lines,
)
from placekit.cli.console import check_writable, tell
from placekit.cli.inputs.answers import order_facts
from placekit.cli.inputs.task import cost_table, read_placed, require_known_shapes
from placekit.cli.options import DefaultDeviceOption, DetailsOption, JsonOption, ModelArgument, PlacementArgument
from placekit.cli.output.facts import model_facts
from placekit.cli.output.progress import StepBar
from placekit.cli.output.render import fact_lines, many_stages_note, paragraphs, plain_table
from placekit.cli.output.units import format_count, format_ms, format_time
from placekit.cli.output.verdicts import answer_lines
from placekit.cli.parameters import OUTPUT, option
from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.profiled import Profiled
from placekit.io.atomic import write_json
from placekit.io.models.model import ModelSource
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.runtime.tensor_checks import OutputCheck
from placekit.runtime.timing.compare import PlacementTiming, time_placement
from placekit.runtime.timing.contenders import Executor, executor_named
from placekit.runtime.timing.timing import Timing, TimingSettings

_MAX_STAGES = 20
_CLUSTER = "cluster"
_WORTH_CALIBRATING = 0.1
"""Relative error of the predicted throughput from which a calibration is suggested."""


@dataclass(frozen=True)
class ComparisonOptions:
    """Ways of running a model that a placement is compared with."""

    panel: ClassVar[str] = "Measuring"

    rounds: int = option(9, "Number of undisturbed rounds to measure, at least 3.", "N")
    queue_size: int = option(2, "Samples that wait between two stages, at most.", "N")
    baselines: bool = option(True, "Also time the ways of the runtime: AUTO, MULTI, all cores, streams.")
    check: bool = option(True, "Compare outputs and cut tensors with a single device first.")
    cache: CacheOption = True
    default_device: DefaultDeviceOption = None
    cluster: ClusterOption = None
    trace: Path | None = option(
        None, "Chrome trace of measured and predicted times, for Perfetto.", "FILE", panel=OUTPUT
    )


def time(
    model: ModelArgument,
    placement: PlacementArgument,
    *,
    asked: SourceOptions,
    timing: TimingOptions,
    against: ComparisonOptions,
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a placement, and compare it with the ways of the runtime, single devices and the prediction."""
    how = executor_named(timing.executor)
    if against.trace is not None:
        check_writable(against.trace)
    settings = timing.settings(against.rounds, latency_s=timing.burst / 2, throughput_s=timing.burst)
    source, chosen = asked.resolve(model, placement)
    require_known_shapes(source, placement)
    placed = read_placed(placement, source.graph, chosen, against.default_device)
    if against.cluster is not None:
        _time_there(source, chosen, placed, settings, asked.costs, against, details=details, as_json=as_json)
        return
    problem = source.problem(chosen, cost_table(source, chosen, asked.costs))
    # refuses what does not run
    checked = _checked(source, placed, chosen, how, timing.seed) if against.check else None
    with StepBar() as bar:
        timed = time_placement(
            source,
            problem,
            placed,
            executor=how,
            queue_size=against.queue_size,
            with_baselines=against.baselines,
            timing=Timing(settings, ProfileCache() if against.cache else None),
            progress=bar,
        )
    files = {}
    if against.trace is not None:
        write_json(against.trace, timed.trace())
        files["trace"] = str(against.trace)
    told = {
        "max_relative_error": checked and checked.max_relative_error,
        "check_precision": checked and checked.precision,
    }
    order = order_facts(placement)
    document = {"model": source.name} | timed.to_dict() | told | {"files": files} | order
    tell(as_json, document, _timing_report(source, timed, checked, files, order, details=details))


def _time_there(
    source: ModelSource, platform: Platform, placed: Placement, settings: TimingSettings, costs: str | None,
    against: ComparisonOptions, *, details: bool, as_json: bool,
) -> None:  # fmt: skip
    """Time a placement on the workers of a cluster, which also measure the costs if there are none."""
    if against.trace is not None:
        raise InvalidProblemError("--trace goes without --cluster: the clocks of machines differ")
    with StepBar() as bar, connected(against.cluster) as nodes:
        from placekit.cluster.stages import EMPTY, time_on_cluster

        assert nodes is not None
        if costs in (None, "profiled"):
            table = Profiled(nodes=nodes).cost_table(source, platform, progress=bar)
            platform = nodes.linked[-1]
        else:
            table = cost_table(source, platform, costs)
        problem = source.problem(platform, table)
        timed, checked = time_on_cluster(nodes.cluster, source, problem, placed, settings, bar)
    told = {"max_relative_error": checked.max_relative_error, "check_precision": checked.precision}
    document = {"model": source.name, "cluster": against.cluster} | timed.to_dict() | told | {"files": {}}
    empty = timed.timings[EMPTY].to_dict()
    engine = f"; its engine takes {format_time(empty['latency_s'])} of a sample by itself, "
    engine += f"and {format_time(1 / empty['throughput_per_s'])} of one in a stream"
    facts = {_CLUSTER: f"{against.cluster}{engine}"}
    tell(as_json, document, _timing_report(source, timed, checked, {}, facts, details=details))


def _checked(
    source: ModelSource, placement: Placement, platform: Platform, executor: Executor, seed: int
) -> OutputCheck:
    """Compare the outputs of the stages and of the executor with those of the model on one device."""
    from placekit.runtime.output_check import require_equal_outputs
    from placekit.runtime.stages.plans import compile_plan, plan_stages

    return require_equal_outputs(compile_plan(plan_stages(source, placement, platform)), executor, seed=seed)


def _timing_report(
    source: ModelSource,
    timed: PlacementTiming,
    checked: OutputCheck | None,
    files: Mapping[str, str],
    order: Mapping[str, str],
    *,
    details: bool,
) -> Iterator[RenderableType]:
    told = timed.to_dict()
    table = plain_table("", "latency ms", "IQR", "samples/s", "IQR", "speedup of the plan")
    for each in told["contenders"]:
        if each["error"] is not None:
            table.add_row(each["name"], "-", "-", "-", "-", "-")
            continue
        table.add_row(
            each["name"],
            format_ms(each["latency_s"]),
            format_ms(each["latency_s_iqr"], 2),
            _number(each["throughput_per_s"]),
            _number(each["throughput_per_s_iqr"], 2),
            _times(each["speedup_of_placement"]),
        )
    failed = [each for each in told["contenders"] if each["error"] is not None]
    more = len(told["stages"]) - _MAX_STAGES
    error, notes = told["prediction_error"], [*flag_lines(timed.timings)]
    is_here = _CLUSTER not in order
    if error is not None and abs(error) > _WORTH_CALIBRATING and not timed.timings.is_noisy and is_here:
        notes.append(
            f"note: the prediction is {_percent(error)} off; `placekit calibrate` fits the costs to measured splits"
        )
    notes += many_stages_note(timed.stages.num_stages, len(set(timed.team_names)))
    yield from paragraphs(
        answer_lines(timed.verdict),
        [fact_lines({f"wrote {kind}": name for kind, name in files.items()})] if files else None,
        [table, *(f"{each['name']} did not run: {' '.join(str(each['error']).split())[:200]}" for each in failed)],
        [fact_lines(dict(_facts(timed, told, checked)) | dict(order)), *notes],
        [_stages(told["stages"]), *([f"and {more} more"] if more > 0 else [])] if details else None,
        fact_lines(model_facts(source)) if details else None,
    )


def _stages(rows: list[dict[str, Any]]) -> RenderableType:
    has_teams = len({row["name"] for row in rows}) < len(rows)
    table = plain_table(
        "stage", *(["member"] if has_teams else []), "measured ms", "predicted ms", "error", left=1 + has_teams
    )
    for row in rows[:_MAX_STAGES]:
        table.add_row(
            row["name"],
            *([row["device"]] if has_teams else []),
            format_ms(row["measured_s"]),
            format_ms(row["predicted_s"]),
            _percent(row["prediction_error"]),
        )
    return table


def _facts(timed: PlacementTiming, told: Mapping[str, Any], checked: OutputCheck | None) -> Iterator[tuple[str, str]]:
    kept = ", from the cache" if timed.timings.is_cached else ""
    if told["outcome"] is not None:
        ran = sum(each["name"] in timed.runtime and each["error"] is None for each in told["contenders"])
        yield (
            "plan",
            f"{told['outcome']}: {_times(told['over_runtime'])} (IQR {_number(told['over_runtime_iqr'], 2)}) of the "
            f"best of {format_count(ran, 'way')} {timed.whose}, chosen in half of the rounds, compared in the others",
        )
    yield "executor", f"{timed.executor}, {format_count(told['rounds'], 'round')}{kept}"
    if told["best_single_device"] is not None:
        spread = f" (IQR {_number(told['speedup_iqr'], 2)})" if told["speedup_iqr"] is not None else ""
        yield "speedup", f"{_times(told['speedup'])}{spread} over {told['best_single_device']} alone"
    for name, unit in (("throughput", "per_s"), ("latency", "s")):
        measured, predicted = told[f"{name}_{unit}"], told[f"predicted_{name}_{unit}"]
        error = told["prediction_error" if name == "throughput" else "latency_prediction_error"]
        shown = [f"{_number(x)} samples/s" if name == "throughput" else format_time(x) for x in (measured, predicted)]
        yield name, f"{shown[0]} measured, {shown[1]} predicted ({_percent(error)})"
    if checked is not None:
        count = format_count(len(checked.cuts) + len(checked.outputs), "tensor")
        yield (
            "outputs",
            f"equal to {checked.reference}: {count}, largest error {checked.max_relative_error:.2g} of spread",
        )


def _number(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}g}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{error:+.1%}"
