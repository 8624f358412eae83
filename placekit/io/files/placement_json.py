"""Placements as JSON files: the full shape with model and devices, or plain ``{op: device}``."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placekit.io.atomic import write_json
from placekit.io.files.schemas import PlacementModel
from placekit.io.models.model_inputs import format_shapes, input_shapes
from placekit.io.reading import MAX_NAME_LENGTH, blaming, read_json, validated
from placekit.model.device_groups import JOINT, teams_from_names
from placekit.model.errors import InvalidFileError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.reprs import short_repr

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlacementFile:
    """Content of a placement file, before it is matched with a problem."""

    path: str  # where it was read, for messages
    ops: Mapping[str, str]  # name of a device or team by op name
    devices: tuple[str, ...]  # names of the devices; those that occur, for the plain shape
    default_device: str | None = None  # device of the ops that are not listed; None if all must be
    # model_name, model_hash: the model that it was made for; None where the file does not say
    model_name: str | None = None
    model_hash: str | None = None
    steps: Mapping[str, int] | None = None  # step by op name (`Placement.step_of_op`); None without
    # shapes of the inputs of the model that it was made for, by name, as far as the file says them
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    __repr__ = short_repr

    def for_problem(self, problem: Problem, default: str | None = None) -> Placement:
        """Return the placement of `problem`'s ops.

        Ops that the file leaves out go to the device `default`, or to the file's own default device.

        A file that was made for another version of the model is accepted, with a warning in the log, as long as the
        op names agree.

        Raises
        ------
        InvalidFileError
            An op that the problem does not have or that the file does not place, a device that the platform does not
            have, or a team that the objective does not allow.
        """
        placement = self.for_model(problem.graph, problem.platform, default)
        with blaming(self.path):
            placement.require_teams(problem)
        return placement

    def for_model(self, graph: OpGraph, platform: Platform, default: str | None = None) -> Placement:
        """Return the placement of `graph`'s ops on `platform`; see `for_problem`."""
        here = input_shapes(graph)
        asked = {name: shape for name, shape in self.inputs.items() if here.get(name, shape) != shape}
        differs = ""
        if asked:
            found = format_shapes({name: here[name] for name in asked})
            differs = f"was made for input shapes {format_shapes(asked)}, and here they are {found}: pass "
            differs += f"--shape {format_shapes(self.inputs)}"
        try:
            with blaming(self.path):
                placement = Placement.from_names(graph, platform, self.ops, default or self.default_device, self.steps)
        except InvalidFileError as error:
            if not differs or self.ops.keys() == set(graph.op_names):
                raise
            raise InvalidFileError(
                f"{self.path} {differs} (at other shapes the model has other ops: {error})"
            ) from None
        if differs:
            logger.warning("%s %s to have those", self.path, differs)
        elif self.model_hash is not None and self.model_hash != graph.content_hash:
            logger.warning(
                "%s was made for another version of model %r (hash %r, this one has %r)",
                self.path,
                self.model_name,
                self.model_hash,
                graph.content_hash,
            )
        return placement


def write_placement(
    placement: Placement,
    path: str | Path,
    *,
    problem: Problem | None = None,
    default_device: str | None = None,
    is_plain: bool = False,
) -> None:
    """Write `placement` to the JSON file `path`. The write is atomic.

    `problem`, which it answers, gives the name and the hash of the model. `default_device` is for ops that the reader's
    model has and the placement does not. `is_plain` asks for the shape ``{op: device}``, which has no room for steps.

    Raises
    ------
    UnknownNameError
        `default_device` is none of the placement's devices.
    PlacekitError
        The file cannot be written.
    """
    if default_device is not None and default_device not in {*placement.device_names, *placement.as_dict().values()}:
        raise UnknownNameError(
            f"no device {default_device!r} in the placement; devices are {', '.join(placement.device_names)}"
        )
    if is_plain:
        write_json(path, dict(placement.items()))
    else:
        write_json(path, placement_to_dict(placement, problem=problem, default_device=default_device))


def placement_to_dict(
    placement: Placement, *, problem: Problem | None = None, default_device: str | None = None
) -> dict[str, Any]:
    """Return `placement` as JSON values; see `write_placement` for the parameters."""
    inputs = {} if problem is None else input_shapes(problem.graph)
    # what is served has the graph of a step, in which attention reads its cache: no reading of the file gives it
    is_step = problem is not None and problem.served is not None
    return {
        "schema": "placekit/placement/1",
        "model": {
            "name": "" if problem is None else problem.name,
            "hash": None if problem is None or is_step else problem.graph.content_hash,
            **({"inputs": {name: list(shape) for name, shape in inputs.items()}} if inputs else {}),
        },
        "devices": list(placement.device_names),
        "default_device": default_device,
        "ops": dict(placement.items()),
        "steps": placement.steps_as_dict(),
        "hash": placement.content_hash,
    }


def read_placement(path: str | Path) -> PlacementFile:
    """Read the placement in the JSON file `path`, of either shape.

    Raises
    ------
    InvalidFileError
        The file is broken, or names a device that is not in its own list.
    """
    data = read_json(path)
    if isinstance(data, dict) and not isinstance(data.get("ops"), dict) and data.get("schema") is None:
        return _read_plain(data, path)
    model = validated(PlacementModel, data, path)
    known = set(model.devices)
    if len(known) != len(model.devices):
        raise InvalidFileError(f"{path}: devices names a device twice: {', '.join(model.devices)}")
    named = [("default_device", model.default_device)] if model.default_device is not None else []
    for what, device in (*named, *((f"op {op!r}", device) for op, device in model.ops.items())):
        if device not in known and not known.issuperset(device.split(JOINT)):
            raise InvalidFileError(
                f"{path}: {what} names device {device!r}; devices are {', '.join(model.devices[:20])}"
            )
    with blaming(path):
        teams_from_names((device for _, device in (*named, *model.ops.items())), model.devices)
    return PlacementFile(
        str(path),
        MappingProxyType(model.ops),
        tuple(model.devices),
        model.default_device,
        model.model.name or None,
        model.model.hash,
        model.steps,
        {name: tuple(shape) for name, shape in model.model.inputs.items()},
    )


def _read_plain(data: dict[str, Any], path: str | Path) -> PlacementFile:
    if not data:
        raise InvalidFileError(f"{path}: places no ops")
    for op, device in data.items():
        if not isinstance(device, str) or not 0 < len(device) <= MAX_NAME_LENGTH:
            raise InvalidFileError(
                f"{path}: op {op!r} has device {reprlib.repr(device)}; it should be the name of a device"
            )
    return PlacementFile(str(path), MappingProxyType(data), tuple(dict.fromkeys(data.values())))
