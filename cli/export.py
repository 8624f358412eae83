"""``placekit export``: a placement as files to deploy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from placekit.cli.choices import with_choices
from placekit.cli.facts import model_facts
from placekit.cli.options import (
    DefaultDeviceOption,
    JsonOption,
    ModelArgument,
    ShapeOption,
)
from placekit.cli.platforms import PlatformChoice
from placekit.cli.scattered import scattered_lines
from placekit.cli.task import read_placed, read_source
from placekit.exports.arguments import ARGUMENT_RUNTIMES
from placekit.model.errors import InvalidProblemError, UnknownNameError, UnsupportedProblemError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from placekit.io.model import ModelSource
    from placekit.model.costs import CostTable
    from placekit.model.graph import OpGraph
    from placekit.model.placement import Placement
    from placekit.model.platform import Platform
    from placekit.runtime.stages import StagePlan

__all__ = ["export"]

_MAX_STAGES = 20
_TORCH = "torch-pipeline"
_NOT_CHECKED = "nothing (--no-check)"
_KINDS = {".json": "affinities", ".py": "loader", ".xml": "model", ".bin": "weights"}


@with_choices
def export(
    model: ModelArgument,
    placement: Annotated[Path, typer.Argument(help="Placement or result (.json) of this model.", show_default=False)],
    default_device: DefaultDeviceOption = None,
    *,
    choice: PlatformChoice,
    shape: ShapeOption = None,
    queue_size: Annotated[
        int | None, typer.Option(metavar="N", help="Bundle: samples that fit between a stage and the next (2).")
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="RUNTIME",
            help="openvino (default), torch-pipeline (.pt2), device-map (accelerate), vllm, megatron, llama.cpp, "
            "onnxruntime; to look at: netron, model-explorer.",
        ),
    ] = "openvino",
    hetero: Annotated[
        bool, typer.Option("--hetero", help="Write op affinities for OpenVINO's HETERO and a script that loads them.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Default: STEM.bundle or STEM.pipeline, folders; STEM.RUNTIME.json."
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read the export back and run one sample before it is in place.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Write a placed model to deploy it: a bundle that placekit.runtime.load runs, HETERO affinities, or --to others.

    Runtimes of language models need the names of ops only: they take problem files and .pt2 files, too.
    """
    from placekit.cli.progress import StepBar
    from placekit.pytorch.source import TorchSource
    from placekit.runtime.bundle import write_bundle
    from placekit.runtime.bundle_check import check_bundle
    from placekit.runtime.hetero import check_sidecar, write_sidecar
    from placekit.runtime.stages import plan_stages

    if to != "openvino":
        if hetero or queue_size is not None:
            raise InvalidProblemError(f"--hetero and --queue-size go with --to openvino, not with --to {to}")
        asked = _Request(model, placement, choice, shape, default_device, output, check, as_json)
        if to == _TORCH:
            _export_to_torch(asked)
        else:
            _export_elsewhere(to, asked)
        return
    if hetero and queue_size is not None:
        raise InvalidProblemError("--queue-size goes with a bundle, not with --hetero")
    target = output or Path(f"{model.stem}.hetero.json" if hetero else f"{model.stem}.bundle")
    _refuse_overwriting(target, (model, placement))
    source = read_source(model, shape)
    if isinstance(source, TorchSource):
        source.load()  # raises, and says what to export to
    devices = choice.of_answer(placement).resolve(source)
    placed = read_placed(placement, source.graph, devices, default_device)
    plan = plan_stages(source, placed, devices)
    told: list[str] = []
    with StepBar() as bar:
        if hetero:
            by_script = (lambda *files: told.append(check_sidecar(plan, *files))) if check else None
            files = write_sidecar(source, placed, devices, target, check=by_script)
            written = {_KINDS[path.suffix]: str(path) for path in files}
        else:
            by_bundle = (lambda new: told.append(check_bundle(plan, new, bar))) if check else None
            write_bundle(plan, target, queue_size=2 if queue_size is None else queue_size, check=by_bundle)
            written = {"bundle": str(target)}
    _show(source, plan, written, told, as_json=as_json)


def _show(source: ModelSource, plan: StagePlan, written: Mapping[str, str], told: list[str], *, as_json: bool) -> None:
    from placekit.cli.console import print_json, show_parts

    checked = told[0] if told else _NOT_CHECKED
    if as_json:
        print_json(_document(plan) | {"checked": checked, "files": dict(written)})
    else:
        show_parts(_report(source, plan, written, checked))


class _Request(NamedTuple):
    """What the options of an export say that all runtimes take."""

    model: Path
    placement: Path
    choice: PlatformChoice
    shape: str | None
    default_device: str | None
    output: Path | None
    check: bool
    as_json: bool


def _export_to_torch(asked: _Request) -> None:
    """Write stages for torch.distributed.pipelining, and print them."""
    from placekit.cli.progress import StepBar
    from placekit.pytorch.source import TorchSource
    from placekit.runtime.bundle import write_bundle
    from placekit.runtime.bundle_check import check_bundle
    from placekit.runtime.stages import plan_stages

    target = asked.output or Path(f"{asked.model.stem}.pipeline")
    _refuse_overwriting(target, (asked.model, asked.placement))
    source = read_source(asked.model, asked.shape)
    if not isinstance(source, TorchSource):
        raise InvalidProblemError(f"--to {_TORCH}: {asked.model} is no PyTorch program (.pt2)")
    devices = asked.choice.of_answer(asked.placement).resolve(source)
    placed = read_placed(asked.placement, source.graph, devices, asked.default_device)
    plan = plan_stages(source, placed, devices)
    told: list[str] = []
    with StepBar() as bar:
        check = (lambda new: told.append(check_bundle(plan, new, bar))) if asked.check else None
        write_bundle(plan, target, check=check)
    _show(source, plan, {"pipeline": str(target)}, told, as_json=asked.as_json)


@dataclass(frozen=True)
class _Placed:
    """A placement for a runtime that takes the names of ops, and where it goes.

    Parameters
    ----------
    model, target
        The file that was placed, and the one to write.
    graph, devices, placement
        What was placed, and where.
    modules
        Module of every op, if it is known.
    costs
        Its costs, if they are known.
    check
        Whether the export is read back and, where that is possible, run.
    """

    model: Path
    target: Path
    graph: OpGraph
    devices: Platform
    placement: Placement
    modules: tuple[str, ...] | None
    costs: CostTable | None
    check: bool


@dataclass(frozen=True)
class _Written:
    """Files by what they are, what ``--json`` prints beside them, what people read, and what they copy, on one line."""

    files: Mapping[str, str]
    told: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    checked: str | None = None


def _to_onnxruntime(placed: _Placed) -> _Written:
    from placekit.cost_models.openvino.inputs import random_inputs
    from placekit.exports.onnxruntime import check_annotated, write_annotated
    from placekit.io.model import read_model

    told: list[str] = []

    def check(annotated: Path, setting: str) -> None:
        model = read_model(placed.model).load()
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
    time_s = None if placed.costs is None else placed.costs.op_time_s[range(len(kind)), kind]
    return _Written(
        write_model_explorer(placed.model, placed.graph, placed.placement, placed.target, placed.modules, time_s)
    )


def _to_device_map(placed: _Placed) -> _Written:
    from placekit.exports.device_map import device_map
    from placekit.io.atomic import write_json

    mapped = device_map(placed.graph, placed.devices, placed.placement, placed.modules)
    write_json(placed.target, mapped)
    files = {"device-map": str(placed.target)}
    facts = {"device map": ", ".join(_entries_by_device(mapped, placed.devices))}
    if len(set(mapped.values())) > 1 and "cpu" in mapped.values():
        facts["note"] = "accelerate keeps the modules on cpu there, and computes them on the first accelerator"
    return _Written(files, {"device_map": mapped}, facts)


def _entries_by_device(mapped: Mapping[str, int | str], platform: Platform) -> Iterator[str]:
    from placekit.cli.units import format_count

    cards = [device.name for device in platform.devices if not device.is_host]
    for place, count in Counter(mapped.values()).items():
        yield f"{format_count(count, 'module')} on {place if isinstance(place, str) else f'{place} ({cards[place]})'}"


def _to_arguments(runtime: str, placed: _Placed) -> _Written:
    from placekit.exports.arguments import runtime_arguments
    from placekit.io.atomic import write_json

    arguments = runtime_arguments(runtime, placed.graph, placed.devices, placed.placement)
    told = arguments.to_dict()
    write_json(placed.target, told)
    facts = {"stages": ", ".join(arguments.devices) or "on the CPU"}
    return _Written({runtime: str(placed.target)}, told, facts, arguments.command)


_WRITERS: Mapping[str, Callable[[_Placed], _Written]] = {
    "device-map": _to_device_map,
    **{runtime: partial(_to_arguments, runtime) for runtime in ARGUMENT_RUNTIMES},
    "onnxruntime": _to_onnxruntime,
    "netron": _to_netron,
    "model-explorer": _to_model_explorer,
}
"""What writes for a runtime that takes the names of ops."""


def _export_elsewhere(to: str, asked: _Request) -> None:
    """Write what another runtime takes, and print it."""
    from placekit.cli.console import check_writable, print_json, print_line, show_parts
    from placekit.cli.render import fact_lines

    if to not in _WRITERS:
        raise UnknownNameError(f"--to {to}: no such runtime; runtimes are {', '.join(('openvino', _TORCH, *_WRITERS))}")
    suffix = {"onnxruntime": ".onnx", "netron": asked.model.suffix}.get(to, ".json")
    target = asked.output or Path(f"{asked.model.stem.removesuffix('.problem')}.{to}{suffix}")
    _refuse_overwriting(target, (asked.model, asked.placement))
    check_writable(target)
    graph, devices, modules, costs = _graph_of(asked)
    placement = read_placed(asked.placement, graph, devices, asked.default_device)
    written = _WRITERS[to](_Placed(asked.model, target, graph, devices, placement, modules, costs, asked.check))
    checked = (written.checked or _read_back(to, written.files)) if asked.check else _NOT_CHECKED
    if asked.as_json:
        print_json({**written.told, "checked": checked, "files": dict(written.files)})
    else:
        paths = {f"wrote {kind}": path for kind, path in written.files.items()}
        show_parts([fact_lines({**written.facts, "checked": checked, **paths})])
        if written.command is not None:
            print_line()
            print_line(written.command)


def _read_back(to: str, files: Mapping[str, str]) -> str:
    """Read files of a runtime that is not run here, and return what was checked."""
    import xml.etree.ElementTree as ET

    from placekit.io.reading import read_json

    for path in files.values():
        if path.endswith(".json"):
            read_json(path)
        elif path.endswith(".xml"):
            ET.parse(path)  # noqa: S314  the file was just written
    return f"format only: read back, {to} was not run"


def _graph_of(asked: _Request) -> tuple[OpGraph, Platform, tuple[str, ...] | None, CostTable | None]:
    """Return the graph of a model or of a problem file and its devices; modules of ops and costs if they are known."""
    from placekit.io.detect import kind_of_file
    from placekit.io.problem_json import read_problem
    from placekit.pytorch.source import TorchSource

    if kind_of_file(asked.model) == "problem":
        problem = read_problem(asked.model)
        return problem.graph, problem.platform, None, problem.costs
    source = read_source(asked.model, asked.shape)
    devices = asked.choice.of_answer(asked.placement).resolve(source)
    return source.graph, devices, source.module_of_op if isinstance(source, TorchSource) else None, None


def _refuse_overwriting(target: Path, inputs: Iterable[Path]) -> None:
    for path in inputs:
        if target.exists() and path.exists() and target.samefile(path):
            raise InvalidProblemError(f"-o {target}: it is an input; it would be overwritten")


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


def _report(source: ModelSource, plan: StagePlan, written: Mapping[str, str], checked: str) -> Iterator[RenderableType]:
    from placekit.cli.render import fact_lines, plain_table
    from placekit.cli.units import format_bytes, format_count

    yield fact_lines(model_facts(source))
    yield ""
    has_teams = any(len(team) > 1 for team in plan.teams)
    table = plain_table("stage", "team" if has_teams else "device", "ops", "tensors in", "tensors out", left=2)
    for stage in plan.stages[:_MAX_STAGES]:
        sizes = (len(stage.op_names), len(stage.inputs), len(stage.outputs))
        table.add_row(stage.name, stage.team_name, *map(str, sizes))
    yield table
    if len(plan.stages) > _MAX_STAGES:
        yield f"and {len(plan.stages) - _MAX_STAGES} more"
    yield from scattered_lines(len(plan.stages), len(plan.teams))
    yield ""
    between = f"{format_count(len(plan.cuts), 'tensor')}, {format_bytes(plan.cut_bytes)} per sample"
    paths = {f"wrote {kind}": path for kind, path in written.items()}
    yield fact_lines({"between": between, "checked": checked} | paths)
