"""Writers of ``placekit export --to``: what goes into the files of a runtime that takes names of ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placekit.cli.output.units import format_count
from placekit.io.atomic import write_json
from placekit.io.models.model import ModelSource
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem


@dataclass(frozen=True)
class ExportTask:
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
class Written:
    """Written files by kind, with the facts for ``--json``, the lines for people, and the line to copy."""

    files: Mapping[str, str]
    told: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    checked: str | None = None


@dataclass(frozen=True)
class Writer:
    """Writer for one name of ``--to``."""

    write: Callable[[ExportTask], Written]
    suffix: str | None = ".json"  # of the written file; None for that of the model
    serial: str | None = None  # the program, if it runs one part of the model after another


def _to_onnxruntime(task: ExportTask) -> Written:
    from placekit.cost_models.openvino.inputs import random_inputs
    from placekit.exports.onnxruntime import check_annotated, write_annotated

    told: list[str] = []

    def check(annotated: Path, setting: str) -> None:
        assert task.source is not None  # a problem file has another suffix
        model = task.source.load()
        try:
            values = [tensor.data for tensor in random_inputs(model)]
        except UnsupportedProblemError as error:
            told.append(f"every node annotated; not run: {error}")
            return
        inputs = dict(zip((each.get_friendly_name() for each in model.get_parameters()), values, strict=True))
        told.append(check_annotated(task.model, annotated, setting, inputs))

    files = write_annotated(
        task.model, task.graph, task.placement, task.devices, task.target, check if task.check else None
    )
    return Written(files, checked=told[0] if told else None)


def _to_netron(task: ExportTask) -> Written:
    from placekit.exports.netron import write_netron

    return Written(write_netron(task.model, task.graph, task.placement, task.target))


def _to_model_explorer(task: ExportTask) -> Written:
    from placekit.exports.model_explorer import write_model_explorer

    kind = task.devices.kind_of_device[task.placement.device_of_op]
    time_s = None if task.problem is None else task.problem.costs.op_time_s[range(len(kind)), kind]
    return Written(write_model_explorer(task.model, task.graph, task.placement, task.target, task.modules, time_s))


def to_device_map(task: ExportTask) -> Written:
    """Write the device of modules, as accelerate takes it."""
    from placekit.exports.device_map import device_map

    mapped = device_map(task.graph, task.devices, task.placement, task.modules)
    write_json(task.target, mapped)
    files = {"device-map": str(task.target)}
    cards = [device.name for device in task.devices.devices if not device.is_host]
    entries = [
        f"{format_count(count, 'module')} on {place if isinstance(place, str) else f'{place} ({cards[place]})'}"
        for place, count in Counter(mapped.values()).items()
    ]
    facts = {"device map": ", ".join(entries)}
    if len(set(mapped.values())) > 1 and "cpu" in mapped.values():
        facts["note"] = "accelerate keeps the modules on cpu there, and computes them on the first accelerator"
    return Written(files, {"device_map": mapped}, facts)


def to_affinities(task: ExportTask) -> Written:
    """Write the devices of modules: a model that is given by its numbers has no file to cut."""
    from placekit.exports.device_map import module_affinities

    told = module_affinities(task.graph, task.devices, task.placement)
    write_json(task.target, told)
    return Written({"affinities": str(task.target)}, told, {"device": told["device"]})


WRITERS: Mapping[str, Writer] = {
    "onnxruntime": Writer(_to_onnxruntime, ".onnx", "onnxruntime"),
    "netron": Writer(_to_netron, None),
    "model-explorer": Writer(_to_model_explorer),
}
"""Writers beside those of language models."""
