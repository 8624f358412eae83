"""``placekit calibrate``: fit costs to a handful of measured splits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from rich.console import RenderableType

from placekit.cli.console import check_writable, tell
from placekit.cli.options import JsonOption, ModelArgument, output_option
from placekit.cli.parameters import option
from placekit.cli.progress import StepBar
from placekit.cli.render import fact_lines, plain_table
from placekit.cli.task import cost_table
from placekit.cli.time import MachineOptions, TimingOptions, flag_lines
from placekit.cost_models.calibration import Calibration
from placekit.cost_models.calibration import calibrate as fit
from placekit.cost_models.splits import calibration_splits
from placekit.io.costs_json import write_costs
from placekit.model.errors import InvalidProblemError
from placekit.runtime.contenders import executor_named
from placekit.runtime.splits import measure_splits
from placekit.runtime.timing import Timing


def calibrate(
    model: ModelArgument,
    *,
    asked: MachineOptions,
    timing: TimingOptions,
    rounds: int = option(7, "Number of undisturbed rounds to measure, at least 3.", "N"),
    output: Path | None = output_option("Costs file (default STEM.costs.json); - for stdout."),
    as_json: JsonOption = False,
) -> None:
    """Measure a few splits of a model, fit its costs to them, and say whether predictions become better."""
    how = executor_named(timing.executor)
    target = check_writable(output or Path(f"{model.stem}.costs.json"))
    serial = how == "serial"
    settings = timing.settings(
        rounds, latency_s=timing.burst if serial else 0.0, throughput_s=0.0 if serial else timing.burst
    )
    source, chosen = asked.resolve(model)
    if chosen.num_devices < 2:
        raise InvalidProblemError(
            f"calibrate measures splits between devices, and there is one, {chosen.device_names[0]}; give several "
            "by -d, or --groups 2"
        )
    problem = source.problem(chosen, cost_table(source, chosen, asked.costs))
    with StepBar() as bar:
        measured = measure_splits(
            source, problem, calibration_splits(problem), how, Timing(settings, cache=None), progress=bar
        )
    found = fit(problem.costs, measured.splits, measured.circumstances())
    write_costs(found.apply(problem.costs, source.graph), source.graph, target)
    document = {"model": source.name} | found.to_dict() | {"files": {"costs": str(target)}}
    tell(as_json, document, chain(_report(found, target), flag_lines(measured.timings)))


def _report(found: Calibration, target: Path) -> Iterator[RenderableType]:
    table = plain_table("split", "error before", "after, held out")
    for name, before, after in zip(found.names, found.before.tolist(), found.after.tolist(), strict=True):
        table.add_row(name, f"{before:+.1%}", f"{after:+.1%}")
    yield table
    yield ""
    facts = {"mean error": f"{found.error_before:.1%} before, {found.error_after:.1%} after on held-out splits"}
    if found.is_better:
        values, spread = found.parameters, found.spread
        for kind, scale, error in zip(found.kinds, values.op_scale, spread.op_scale, strict=True):
            facts[f"ops, {kind}"] = f"x {scale:.3f} +- {error:.3f}"
        facts["transfers"] = f"x {values.transfer_scale:.3f} +- {spread.transfer_scale:.3f}"
        facts["moving"] = f"+ {values.transfer_s_per_byte * 1e9:.3g} +- {spread.transfer_s_per_byte * 1e9:.2g} s/GB"
        facts["a stage"] = f"+ {values.stage_overhead_s * 1e6:.3g} +- {spread.stage_overhead_s * 1e6:.2g} us"
    else:
        facts["verdict"] = "predictions do not become better, so the costs stay as they were"
    yield fact_lines(facts | {"wrote costs": str(target)})
