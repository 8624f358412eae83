"""``placekit export``: a placement as files to deploy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placekit.cli.facts import model_facts
from placekit.cli.options import (
    DefaultDeviceOption,
    DevicesOption,
    GroupsOption,
    JsonOption,
    ModelArgument,
    PlatformOption,
    PrecisionOption,
    ShapeOption,
)
from placekit.cli.platforms import PlatformChoice
from placekit.cli.task import read_placed, read_source
from placekit.errors import InvalidProblemError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from placekit.cost_models.openvino.stages import StagePlan
    from placekit.io.model import ModelSource

__all__ = ["export"]

_MAX_STAGES = 20
_KINDS = {".json": "affinities", ".py": "loader", ".xml": "model", ".bin": "weights"}


def export(
    model: ModelArgument,
    placement: Annotated[Path, typer.Argument(help="Placement or result (.json) of this model.", show_default=False)],
    default_device: DefaultDeviceOption = None,
    device: DevicesOption = None,
    platform: PlatformOption = None,
    groups: GroupsOption = None,
    precision: PrecisionOption = None,
    shape: ShapeOption = None,
    queue_size: Annotated[
        int | None, typer.Option(metavar="N", help="Bundle: samples that fit between a stage and the next (2).")
    ] = None,
    hetero: Annotated[
        bool, typer.Option("--hetero", help="Write op affinities for OpenVINO's HETERO and a script that loads them.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Default: STEM.bundle, a folder; STEM.hetero.json."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a placed model to deploy it: a bundle that placekit.runtime.load runs, or affinities for HETERO."""
    from placekit.cli.console import print_json, show_parts
    from placekit.cost_models.openvino.bundle import write_bundle
    from placekit.cost_models.openvino.sidecar import write_sidecar
    from placekit.cost_models.openvino.stages import plan_stages

    if hetero and queue_size is not None:
        raise InvalidProblemError("--queue-size goes with a bundle, not with --hetero")
    target = output or Path(f"{model.stem}.hetero.json" if hetero else f"{model.stem}.bundle")
    _refuse_overwriting(target, (model, placement))
    source = read_source(model, shape)
    devices = PlatformChoice(device, platform, groups, precision).of_answer(placement).resolve(source).platform
    placed = read_placed(placement, source.graph, devices, default_device)
    plan = plan_stages(source, placed, devices)
    if hetero:
        written = {_KINDS[path.suffix]: str(path) for path in write_sidecar(source, placed, devices, target)}
    else:
        write_bundle(plan, target, queue_size=2 if queue_size is None else queue_size)
        written = {"bundle": str(target)}
    if as_json:
        print_json(_document(plan) | {"files": written})
    else:
        show_parts(_report(source, plan, written))


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


def _report(source: ModelSource, plan: StagePlan, written: Mapping[str, str]) -> Iterator[RenderableType]:
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
    yield ""
    between = f"{format_count(len(plan.cuts), 'tensor')}, {format_bytes(plan.cut_bytes)} per sample"
    yield fact_lines({"between": between} | {f"wrote {kind}": path for kind, path in written.items()})
