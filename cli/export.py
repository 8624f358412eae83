"""``placekit export``: a placement as files to deploy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placekit.cli.facts import model_facts
from placekit.cli.options import (
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

if TYPE_CHECKING:
    from rich.console import RenderableType

    from placekit.cost_models.openvino.stages import StagePlan
    from placekit.io.model import ModelSource

__all__ = ["export"]

_MAX_STAGES = 20


def export(
    model: ModelArgument,
    placement: Annotated[Path, typer.Argument(help="Placement or result (.json) of this model.", show_default=False)],
    device: DevicesOption = None,
    platform: PlatformOption = None,
    groups: GroupsOption = None,
    precision: PrecisionOption = None,
    shape: ShapeOption = None,
    queue_size: Annotated[int, typer.Option(metavar="N", help="Samples that fit between a stage and the next.")] = 2,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder to write (default STEM.bundle).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a placed model as a bundle: a folder that placekit.runtime.load runs as a pipeline."""
    from placekit.cli.console import print_json, show_parts
    from placekit.cost_models.openvino.bundle import write_bundle
    from placekit.cost_models.openvino.stages import plan_stages

    folder = output or Path(f"{model.stem}.bundle")
    source = read_source(model, shape)
    devices = PlatformChoice(device, platform, groups, precision).resolve().platform
    plan = plan_stages(source, read_placed(placement, source.graph, devices), devices)
    write_bundle(plan, folder, queue_size=queue_size)
    if as_json:
        print_json(_document(plan, queue_size) | {"files": {"bundle": str(folder)}})
    else:
        show_parts(_report(source, plan, folder))


def _document(plan: StagePlan, queue_size: int) -> dict[str, Any]:
    return {
        "model": plan.name,
        "queue_size": queue_size,
        "cut_bytes": plan.cut_bytes,
        "stages": [
            {
                "name": stage.name,
                "device": stage.device.name,
                "num_ops": len(stage.op_names),
                "num_inputs": len(stage.inputs),
                "num_outputs": len(stage.outputs),
            }
            for stage in plan.stages
        ],
    }


def _report(source: ModelSource, plan: StagePlan, folder: Path) -> Iterator[RenderableType]:
    from placekit.cli.render import fact_lines, plain_table
    from placekit.cli.units import format_bytes, format_count

    yield fact_lines(model_facts(source))
    yield ""
    table = plain_table("stage", "device", "ops", "tensors in", "tensors out", left=2)
    for stage in plan.stages[:_MAX_STAGES]:
        sizes = (len(stage.op_names), len(stage.inputs), len(stage.outputs))
        table.add_row(stage.name, stage.device.name, *map(str, sizes))
    yield table
    if len(plan.stages) > _MAX_STAGES:
        yield f"and {len(plan.stages) - _MAX_STAGES} more"
    yield ""
    yield fact_lines(
        {
            "between": f"{format_count(len(plan.cuts), 'tensor')}, {format_bytes(plan.cut_bytes)} per sample",
            "wrote bundle": str(folder),
        }
    )
