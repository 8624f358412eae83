"""``placekit export``: a placement as files to deploy."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
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
from placekit.exports.kept import require_kept
from placekit.io.atomic import write_json, write_text
from placekit.io.files.detect import kind_of_file, problem_of_file
from placekit.io.files.result_json import read_result
from placekit.io.models.model import ModelSource
from placekit.io.reading import read_json
from placekit.language.runtimes import OWN, RUNTIMES
from placekit.language.runtimes.launch import launch, refuse_apart, servers
from placekit.language.runtimes.record import Placed
from placekit.model.errors import InvalidProblemError, PlacekitError, UnknownNameError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.sizes import format_bytes, format_seconds
from placekit.objectives.serial_latency import SerialLatency
from placekit.solve.result import Result

if TYPE_CHECKING:  # need openvino or torch
    from placekit.runtime.stages.stage_plan import StagePlan

_MAX_STAGES = 20
_TORCH = "torch-pipeline"
_NOT_CHECKED = "nothing (--no-check)"
_KINDS = {".json": "affinities", ".py": "loader", ".xml": "model", ".bin": "weights"}


@dataclass(frozen=True)
class ExportOptions:
    """Runtime of an export, devices of the placement, and the files."""

    panel: ClassVar[str] = COMMON

    to: str = option(
        "openvino",
        f"openvino, torch-pipeline (.pt2), {', '.join(each.name for each in OWN if each.exports != 'affinities')} or "
        "onnxruntime; netron or model-explorer to look at.",
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


@dataclass(frozen=True)
class _Placed:
    """Placement for a runtime that takes names of ops, and the file of the export."""

    model: Path
    source: ModelSource | None  # None for a problem file
    target: Path
    graph: OpGraph
    devices: Platform
    placement: Placement
    modules: tuple[str, ...] | None  # of every op, if known
    problem: Problem[Any] | None  # if a problem file was given
    check: bool  # read the export back and, where that is possible, run it


@dataclass(frozen=True)
class _Written:
    """Written files by kind, with the facts for ``--json``, the lines for people, and the line to copy."""

    files: Mapping[str, str]
    told: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    checked: str | None = None


def _to_onnxruntime(placed: _Placed) -> _Written:
    from placekit.cost_models.openvino.inputs import random_inputs
    from placekit.exports.onnxruntime import check_annotated, write_annotated

    told: list[str] = []

    def check(annotated: Path, setting: str) -> None:
        assert placed.source is not None  # a problem file has another suffix
        model = placed.source.load()
        try:
            values = [tensor.data for tensor in random_inputs(model)]
        except UnsupportedProblemError as error:
            told.append(f"every node annotated; not run: {error}")
            return
        inputs = dict(zip((each.get_friendly_name() for each in model.get_parameters()), values, strict=True))
        told.append(check_annotated(placed.model, annotated, setting, inputs))

    files = write_annotated(
        placed.model, placed.graph, placed.placement, placed.devices, placed.target, check if placed.check else None
    )
    return _Written(files, checked=told[0] if told else None)


def _to_netron(placed: _Placed) -> _Written:
    from placekit.exports.netron import write_netron

    return _Written(write_netron(placed.model, placed.graph, placed.placement, placed.target))


def _to_model_explorer(placed: _Placed) -> _Written:
    from placekit.exports.model_explorer import write_model_explorer

    kind = placed.devices.kind_of_device[placed.placement.device_of_op]
    time_s = None if placed.problem is None else placed.problem.costs.op_time_s[range(len(kind)), kind]
    return _Written(
        write_model_explorer(placed.model, placed.graph, placed.placement, placed.target, placed.modules, time_s)
    )


def _to_device_map(placed: _Placed) -> _Written:
    from placekit.exports.device_map import device_map

    mapped = device_map(placed.graph, placed.devices, placed.placement, placed.modules)
    write_json(placed.target, mapped)
    files = {"device-map": str(placed.target)}
    cards = [device.name for device in placed.devices.devices if not device.is_host]
    entries = [
        f"{format_count(count, 'module')} on {place if isinstance(place, str) else f'{place} ({cards[place]})'}"
        for place, count in Counter(mapped.values()).items()
    ]
    facts = {"device map": ", ".join(entries)}
    if len(set(mapped.values())) > 1 and "cpu" in mapped.values():
        facts["note"] = "accelerate keeps the modules on cpu there, and computes them on the first accelerator"
    return _Written(files, {"device_map": mapped}, facts)


def _to_arguments(runtime: str, placed: _Placed) -> _Written:
    if placed.problem is None:
        started = {"": launch(runtime, Placed(placed.graph, placed.devices, placed.placement))}
    else:
        started = servers(runtime, placed.problem, placed.placement)
    told = {phase: each.to_dict() for phase, each in started.items()}
    told = told.get("", told)
    write_json(placed.target, told)
    files, facts = {runtime: str(placed.target)}, {}
    for phase, each in started.items():
        if each.settings:
            settings = placed.target.with_suffix(".".join(["", *filter(None, [phase]), each.runtime.settings]))
            write_text(settings, each.settings + "\n")
            files[f"{phase} settings".strip()] = str(settings)
        facts[f"{phase} stages".strip()] = ", ".join(each.devices) or "on the CPU"
    return _Written(files, told, facts, "\n".join(each.command for each in started.values()))


def _to_openvino_affinities(placed: _Placed) -> _Written:
    """Write the devices of modules: a model that is given by its numbers has no file to cut."""
    from placekit.exports.device_map import module_affinities

    told = module_affinities(placed.graph, placed.devices, placed.placement)
    write_json(placed.target, told)
    return _Written({"affinities": str(placed.target)}, told, {"device": told["device"]})


_WRITERS: Mapping[str, Callable[[_Placed], _Written]] = {
    "device-map": _to_device_map,
    "onnxruntime": _to_onnxruntime,
    "netron": _to_netron,
    "model-explorer": _to_model_explorer,
}
"""Writers beside the records of runtimes."""
_SERIAL = {"onnxruntime": "onnxruntime", "device-map": "accelerate"}
"""Programs that run one part of the model after another, by their writer."""


def _writer(to: str) -> Callable[[_Placed], _Written]:
    """Return what writes for `to`.

    Raises `UnknownNameError`: nothing of that name.
    """
    if to in _WRITERS:
        return _WRITERS[to]
    if to not in RUNTIMES:
        names = dict.fromkeys(("openvino", _TORCH, *_WRITERS, *RUNTIMES))
        raise UnknownNameError(f"--to {to}: no such runtime; runtimes are {', '.join(names)}")
    by_modules = {"device map": _to_device_map, "affinities": _to_openvino_affinities}
    return by_modules.get(RUNTIMES[to].exports, partial(_to_arguments, to))


def _export_elsewhere(model: Path, placement: Path, asked: ExportOptions) -> None:
    """Write the files for another runtime, and print them."""
    to = asked.to
    write = _writer(to)
    serial = to if to in RUNTIMES and RUNTIMES[to].is_serial else _SERIAL.get(to)
    suffix = {"onnxruntime": ".onnx", "netron": model.suffix}.get(to, ".json")
    target = asked.target(model, placement, f"{model.stem.removesuffix('.problem')}.{to}{suffix}")
    check_writable(target)
    takes_it = to != "onnxruntime" or model.suffix.lower() == ".onnx"  # else its writer says what is wrong
    placed = _placed(model, placement, target, asked)
    if placed.problem is not None and to != "model-explorer":
        refuse_apart(to, placed.problem)
    if serial is not None and takes_it and not asked.force:
        _require_serial(placement, model, serial)
    written = write(placed)
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


def _placed(model: Path, placement: Path, target: Path, asked: ExportOptions) -> _Placed:
    """Return the graph of a model or of a problem file with its placement; modules and costs if they are known."""
    problem = problem_of_file(model, kind_of_file(model))
    if problem is not None:
        placed = read_placed(placement, problem.graph, problem.platform, asked.default_device)
        return _Placed(model, None, target, problem.graph, problem.platform, placed, None, problem, asked.check)
    source, devices, placed = asked.placed(model, placement)
    return _Placed(model, source, target, source.graph, devices, placed, source.module_of_op, None, asked.check)


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
