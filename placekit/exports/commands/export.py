"""``placekit export``: a placement as files to deploy."""

from __future__ import annotations

import pkgutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import RenderableType

from placekit.advice.alternatives import alternatives_of
from placekit.advice.decision import LEAST_GAIN
from placekit.advice.verdict import serial_latency_s
from placekit.cli.console import check_writable, print_line, refuse_overwriting, tell
from placekit.cli.inputs.answers import order_facts, result_file
from placekit.cli.inputs.kept_problems import kept_problem
from placekit.cli.inputs.platforms import PlatformChoice
from placekit.cli.inputs.task import placement_file, read_placed, read_source
from placekit.cli.options import DefaultDeviceOption, JsonOption, ModelArgument, PlacementArgument, ShapeOption
from placekit.cli.output.facts import model_facts
from placekit.cli.output.progress import StepBar
from placekit.cli.output.render import fact_lines, many_stages_note, paragraphs, plain_table
from placekit.cli.output.units import format_count
from placekit.cli.parameters import COMMON, OUTPUT, option
from placekit.exports.commands.writers import WRITERS, ExportTask, Writer
from placekit.exports.kept import require_kept
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.result_json import read_result
from placekit.io.models.model import ModelSource
from placekit.io.reading import read_json
from placekit.model.errors import InvalidProblemError, PlacekitError, UnknownNameError
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.sizes import format_bytes, format_seconds
from placekit.objectives.serial_latency import SerialLatency
from placekit.solve.result import Result

if TYPE_CHECKING:  # need openvino or torch
    from placekit.runtime.stages.stage_plan import StagePlan

_MAX_STAGES = 20
_TORCH = "torch-pipeline"
_TABLES: tuple[Mapping[str, Writer], ...] = (
    WRITERS,
    pkgutil.resolve_name("placekit.language.commands.launch_files:WRITERS"),
)
"""Writers of this product and of language models, by their names; no import, as this product knows no other."""
_NAMES = tuple(dict.fromkeys(("openvino", _TORCH, *(name for table in _TABLES for name in table))))
_NOT_CHECKED = "nothing (--no-check)"
_KINDS = {".json": "affinities", ".py": "loader", ".xml": "model", ".bin": "weights"}


@dataclass(frozen=True)
class ExportOptions:
    """Runtime of an export, devices of the placement, and the files."""

    panel: ClassVar[str] = COMMON

    to: str = option(
        "openvino",
        f"{', '.join(_NAMES)}; torch-pipeline takes .pt2, netron and model-explorer show plans.",
        "RUNTIME",
    )
    hetero: bool = option(False, "Write op affinities for HETERO of OpenVINO, and a script that loads them.")
    queue_size: int | None = option(None, "Samples that wait between two stages of a bundle, at most (2).", "N")
    shape: ShapeOption = None
    platform: PlatformChoice = field(default_factory=PlatformChoice)
    default_device: DefaultDeviceOption = None
    check: bool = option(True, "Read the export back and run one sample first.", panel=OUTPUT)
    force: bool = option(False, "Export a placement that the runtime runs in another way than it was solved for.")
    output: Path | None = option(
        None,
        "Folder or file (default STEM.bundle, STEM.pipeline or STEM.RUNTIME.json).",
        "PATH",
        names="--output -o",
        panel=OUTPUT,
    )
    as_json: JsonOption = False

    def target(self, model: Path, placement: Path, default: str) -> Path:
        """Return the path of the export."""
        target = self.output or Path(default)
        refuse_overwriting(target, model, placement)
        return target

    def placed(self, model: Path, placement: Path) -> tuple[ModelSource, Platform, Placement]:
        """Return the model, its devices and its placement."""
        source = read_source(model, self.shape)
        devices = self.platform.of_answer(placement).resolve(source)
        return source, devices, read_placed(placement, source, devices, self.default_device)


def export(model: ModelArgument, placement: PlacementArgument, *, asked: ExportOptions) -> None:
    """Write a placed model to deploy it: a bundle that placekit.runtime.load runs, HETERO affinities, or --to others.

    Runtimes of language models need the names of ops only: they take problem files and .pt2 files, too.
    """
    if asked.to != "openvino" and (asked.hetero or asked.queue_size is not None):
        raise InvalidProblemError(f"--hetero and --queue-size go with --to openvino, not with --to {asked.to}")
    if asked.hetero and asked.queue_size is not None:
        raise InvalidProblemError("--queue-size goes with a bundle, not with --hetero")
    if asked.to in ("openvino", _TORCH, "placekit") and kind_of_file(model) == "model":
        _export_stages(model, placement, asked)
    else:
        _export_elsewhere(model, placement, asked)


def _export_stages(model: Path, placement: Path, asked: ExportOptions) -> None:
    """Write a bundle for OpenVINO or torch, or affinities for HETERO, and print the stages."""
    from placekit.exports.hetero_sidecar import check_sidecar, write_sidecar
    from placekit.runtime.bundles.bundle import write_bundle
    from placekit.runtime.bundles.bundle_check import check_bundle
    from placekit.runtime.bundles.torch_bundle import SCRIPT, start_lines
    from placekit.runtime.stages.plans import ops_of_stages, plan_stages

    kind = "pipeline" if asked.to == _TORCH else "bundle"
    target = asked.target(model, placement, f"{model.stem}.{'hetero.json' if asked.hetero else kind}")
    if asked.hetero and not asked.force:
        _require_serial(placement, model, "HETERO")
    source, devices, placed = asked.placed(model, placement)
    if asked.to not in source.exports:
        source.load()  # where OpenVINO does not run it, the message says what to export to
        raise InvalidProblemError(f"--to {_TORCH}: {model} is no PyTorch program (.pt2)")
    plan = plan_stages(source, placed, devices)
    require_kept(asked.to, source.graph, placed, ops_of_stages(plan, source.graph))
    told: list[str] = []
    shapes = placement_file(placement).inputs  # of a model with open ones, for the sample of the check
    with StepBar() as bar:
        if asked.hetero:
            by_script = (lambda *files: told.append(check_sidecar(plan, *files))) if asked.check else None
            files = write_sidecar(source, placed, devices, target, check=by_script)
            written = {_KINDS[path.suffix]: str(path) for path in files}
        else:
            by_bundle = (lambda new: told.append(check_bundle(plan, new, bar, shapes))) if asked.check else None
            write_bundle(plan, target, queue_size=2 if asked.queue_size is None else asked.queue_size, check=by_bundle)
            written = {kind: str(target)}
    checked = told[0] if told else _NOT_CHECKED
    order = order_facts(placement)
    start = start_lines(plan, f"{target}/{SCRIPT}") if kind == "pipeline" else {}
    document = _document(plan) | {"checked": checked, "files": dict(written), "start": start} | order
    lines = {f"start on {node}": line for node, line in start.items()}
    tell(asked.as_json, document, _report(source, plan, written, {**order, "checked": checked, **lines}))


def _writer(to: str) -> Writer:
    """Return what writes for `to`.

    Raises `UnknownNameError`: nothing of that name.
    """
    for table in _TABLES:
        if to in table:
            return table[to]
    raise UnknownNameError(f"--to {to}: no such runtime; runtimes are {', '.join(_NAMES)}")


def _export_elsewhere(model: Path, placement: Path, asked: ExportOptions) -> None:
    """Write the files for another runtime, and print them."""
    to = asked.to
    writer = _writer(to)
    suffix = model.suffix if writer.suffix is None else writer.suffix
    target = asked.target(model, placement, f"{model.stem.removesuffix('.problem')}.{to}{suffix}")
    check_writable(target)
    task = _task(model, placement, target, asked)
    takes_it = suffix == ".json" or model.suffix.lower() == suffix  # else its writer says what is wrong
    if writer.serial is not None and takes_it and not asked.force:
        _require_serial(placement, model, writer.serial)
    written = writer.write(task)
    checked = (written.checked or _read_back(to, written.files)) if asked.check else _NOT_CHECKED
    paths = {f"wrote {kind}": path for kind, path in written.files.items()}
    order = order_facts(placement)
    document = {**written.told, "checked": checked, "files": dict(written.files)} | order
    tell(asked.as_json, document, [fact_lines({**written.facts, **order, "checked": checked, **paths})])
    if written.command is not None and not asked.as_json:
        print_line(f"\n{written.command}")


def _read_back(to: str, files: Mapping[str, str]) -> str:
    """Read back files of a runtime that cannot run here; return a description of the check."""
    for path in files.values():
        if path.endswith(".json"):
            read_json(path)
        elif path.endswith(".xml"):
            ET.parse(path)  # noqa: S314  the file was just written
    return f"format only: read back, {to} was not run"


def _task(model: Path, placement: Path, target: Path, asked: ExportOptions) -> ExportTask:
    """Return the graph of a model or of a problem file with its placement; modules and costs if they are known."""
    problem = problem_of_file(model, kind_of_file(model))
    if problem is not None:
        placed = read_placed(placement, problem.graph, problem.platform, asked.default_device)
        return ExportTask(model, None, target, problem.graph, problem.platform, placed, None, problem, asked.check)
    source, devices, placed = asked.placed(model, placement)
    return ExportTask(model, source, target, source.graph, devices, placed, source.module_of_op, None, asked.check)


def _document(plan: StagePlan) -> dict[str, Any]:
    return {
        "model": plan.name,
        "cut_bytes": plan.cut_bytes,
        "stages": [
            {
                "name": stage.name,
                "device": stage.team_name,
                "members": [device.name for device in stage.members],
                "num_ops": len(stage.op_names),
                "num_inputs": len(stage.inputs),
                "num_outputs": len(stage.outputs),
            }
            for stage in plan.stages
        ],
    }


def _report(
    source: ModelSource, plan: StagePlan, written: Mapping[str, str], told: Mapping[str, str]
) -> Iterator[RenderableType]:
    has_teams = any(len(team) > 1 for team in plan.teams)
    table = plain_table("stage", "team" if has_teams else "device", "ops", "tensors in", "tensors out", left=2)
    for stage in plan.stages[:_MAX_STAGES]:
        sizes = (len(stage.op_names), len(stage.inputs), len(stage.outputs))
        table.add_row(stage.name, stage.team_name, *map(str, sizes))
    more = len(plan.stages) - _MAX_STAGES
    one = [f"one stage: all runs on {plan.stages[0].team_name}, and nothing is split"] if len(plan.stages) == 1 else []
    notes = [*one, *([f"and {more} more"] if more > 0 else []), *many_stages_note(len(plan.stages), len(plan.teams))]
    between = f"{format_count(len(plan.cuts), 'tensor')}, {format_bytes(plan.cut_bytes)} per sample"
    paths = {f"wrote {kind}": path for kind, path in written.items()}
    facts = {"between": between, **told, **paths}
    yield from paragraphs(fact_lines(model_facts(source)), [table, *notes], fact_lines(facts))


def _require_serial(placement: Path, model: Path, runtime: str) -> None:
    """Refuse a placement that loses its gain if `runtime` runs its parts one after another.

    A placement for a pipeline, or for devices that work at the same time, is slower there than its objective promises,
    and often slower than one device alone. One whose result is not known was made by hand, for a reason of its own: it
    is not looked at. The message has the time of one sample there, the promise, and the command that solves for it.
    """
    try:
        result = read_result(result_file(placement))
    except PlacekitError:
        return
    placed, promised = result.placement, result.objective
    if placed is None or promised is None or result.objective_name == SerialLatency.name:
        return
    if len(set(placed.device_of_op.tolist())) == 1:
        return
    serial_s, alone = _as_it_runs(result)
    if serial_s is not None and serial_s <= promised * (1 + LEAST_GAIN):
        return
    takes = "slower" if serial_s is None else f"{format_seconds(serial_s)} per sample"
    raise InvalidProblemError(
        f"{runtime} runs the parts of a placement one after another: {takes}, not the {format_seconds(promised)} of "
        f"{result.objective_name}{alone}; solve for it with `placekit solve {model} --objective serial-latency` "
        "and your other options, or export this one with --force"
    )


def _as_it_runs(result: Result) -> tuple[float | None, str]:
    """Return the seconds of one sample that goes through the parts one by one, and how one device alone compares."""
    problem = kept_problem(result.problem_hash)
    if problem is None or result.placement is None:
        return None if result.verdict is None else result.verdict.latency, ""
    placed = Placement.from_mapping(problem, result.placement.as_dict())
    serial_s = serial_latency_s(problem, placed)
    try:
        singles = alternatives_of(problem.replace(objective=SerialLatency(), contiguity=None))
    except InvalidProblemError:
        return serial_s, ""
    known = [(each.objective_s, each.name) for each in singles if each.objective_s is not None]
    if not known:
        return serial_s, ""
    seconds, name = min(known)
    return serial_s, f", and {format_seconds(seconds)} on {name} alone"
