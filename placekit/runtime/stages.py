"""A placement as stages: models that run one after another, each on its team, and the tensors between them.

Every way of running a placement through OpenVINO, one stage after another, as a pipeline or exported to files, starts
from the same `StagePlan`. Tensors are known by their key, (friendly name of the producing op, output port): put the
model's inputs under `StagePlan.input_keys` into a dictionary, let every stage read `PlacedStage.inputs` from it and
write `PlacedStage.outputs` to it, and read the outputs under `StagePlan.output_keys`. Some tensors between stages on
CPUs have their channels last (:mod:`placekit.cost_models.openvino.layouts`), which both ends know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.few_stages import few_stages
from placekit.cost_models.openvino.layouts import hand_over_channels_last, images_for_convolutions
from placekit.cost_models.openvino.split import TensorKey, model_input_keys, model_output_keys, split_model
from placekit.io.model import ModelSource
from placekit.io.openvino_graph import STATEFUL
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform

if TYPE_CHECKING:
    import openvino

__all__ = ["CutTensor", "PlacedStage", "StagePlan", "cut_tensors", "plan_stages", "teams_of_model"]


@dataclass(frozen=True, eq=False)
class PlacedStage:
    """One part of the model, on one team of devices.

    Parameters
    ----------
    name
        Unique name: position and team, for example ``"3:GPU.0"`` or ``"3:GPU.0+GPU.1"``.
    members
        Where it runs: devices that share the samples, each holding all of the stage; one, if the device works alone.
    model
        The part as a model; shares weights with the whole model, nothing else.
    inputs, outputs
        Key of each of the model's inputs and outputs, in their order.
    op_names
        Friendly names of the ops inside, constants left out.
    """

    name: str
    members: tuple[Device, ...]
    model: openvino.Model
    inputs: tuple[TensorKey, ...]
    outputs: tuple[TensorKey, ...]
    op_names: tuple[str, ...]

    @property
    def device(self) -> Device:
        """The device that runs it, the first member of a team."""
        return self.members[0]

    @property
    def team_name(self) -> str:
        """Names of the members, ``"GPU.0+GPU.1"``."""
        return "+".join(device.name for device in self.members)

    def __repr__(self) -> str:
        return f"PlacedStage({self.name}: {len(self.op_names)} ops, {len(self.inputs)} in, {len(self.outputs)} out)"


@dataclass(frozen=True)
class CutTensor:
    """A tensor that goes from one stage to others.

    Parameters
    ----------
    key
        Its key.
    producer, consumers
        Index of the stage that writes it, and of those that read it.
    num_bytes
        Its size; None where the shape is only known when the model runs.
    """

    key: TensorKey
    producer: int
    consumers: tuple[int, ...]
    num_bytes: int | None


@dataclass(frozen=True, eq=False)
class StagePlan:
    """A model cut into stages.

    Parameters
    ----------
    name
        Name of the model.
    model
        The whole model, with friendly names as in the op graph.
    stages
        In an order in which they can run. A model whose inputs are its outputs has none.
    input_keys, output_keys
        Key of each of the whole model's inputs and outputs, in its order. Two outputs can have one key, and an
        output can have the key of an input.
    input_names, output_names
        ``[num_inputs]`` friendly names; ``[num_outputs]`` names of the output tensors, or of the Result op where
        the tensor has no name or is an output twice.
    cuts
        Tensors between stages, by producing stage.
    has_state
        Whether the model remembers something from one inference to the next. It has one stage then.
    """

    name: str
    model: openvino.Model
    stages: tuple[PlacedStage, ...]
    input_keys: tuple[TensorKey, ...]
    output_keys: tuple[TensorKey, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    cuts: tuple[CutTensor, ...]
    has_state: bool = False

    @cached_property
    def teams(self) -> tuple[tuple[Device, ...], ...]:
        """The teams that run a stage, in order of first appearance; a device is in one of them only."""
        return tuple({stage.team_name: stage.members for stage in self.stages}.values())

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that run a stage, team by team."""
        return tuple(device for team in self.teams for device in team)

    def require_no_teams(self, what: str) -> None:
        """Raise unless every device works alone.

        Parameters
        ----------
        what
            What cannot run teams, as the start of a sentence: ``"executor serial runs ..."``.

        Raises
        ------
        UnsupportedProblemError
            A team of several devices.
        """
        for stage in self.stages:
            if len(stage.members) > 1:
                raise UnsupportedProblemError(
                    f"{what}, so that team {stage.team_name!r} of stage {stage.name!r} brings nothing; use executor "
                    "threads, or solve with --teams off"
                )

    @property
    def cut_bytes(self) -> int:
        """Bytes of all cut tensors of known size, each counted once."""
        return sum(cut.num_bytes or 0 for cut in self.cuts)

    def __repr__(self) -> str:
        names = ", ".join("+".join(device.name for device in team) for team in self.teams)
        return f"StagePlan({self.name!r}: {len(self.stages)} stages on {names}, {len(self.cuts)} cut tensors)"


def plan_stages(source: ModelSource, placement: Placement, platform: Platform) -> StagePlan:
    """Cut the model of `source` into stages, as `placement` says.

    Any placement can be cut; a device that others interrupt gets several stages (`few_stages`). Constants go with
    their consumers, and where a Parameter or Result is placed plays no role. An op that is placed on a device which
    cannot run it is found when the stage is compiled.

    Parameters
    ----------
    source
        The model; shapes may be dynamic.
    placement
        Team of every op of ``source.graph``.
    platform
        The devices.

    Raises
    ------
    InvalidProblemError
        A placement of another model.
    UnknownNameError
        A device that the platform does not have.
    UnsupportedProblemError
        A team that keeps state, a variable that is read in one stage and assigned in another, or a model that computes
        nothing and yet has a constant output.
    InvalidFileError
        The model file has changed since it was read.

    Notes
    -----
    O(ops + edges) apart from `few_stages`; no weight is copied.
    """
    graph = source.graph
    teams = teams_of_model(source.name, graph, placement, platform)
    model = source.load()
    label_of_op = few_stages(graph, placement.device_of_op)
    stages = _parts(model, placement, teams, label_of_op)
    output_keys = model_output_keys(model)
    available = {*model_input_keys(model), *(key for stage in stages for key in stage.outputs)}
    for key in output_keys:
        if key not in available:
            raise UnsupportedProblemError(
                f"model {source.name!r}: output {key[0]!r} is a constant, and there is no op that a device could run"
            )
    return StagePlan(
        name=source.name,
        model=model,
        stages=stages,
        input_keys=model_input_keys(model),
        output_keys=output_keys,
        input_names=tuple(parameter.get_friendly_name() for parameter in model.get_parameters()),
        output_names=_output_names(model),
        cuts=cut_tensors(stages),
        has_state=not STATEFUL.isdisjoint(graph.op_types),
    )


def teams_of_model(
    name: str, graph: OpGraph, placement: Placement, platform: Platform
) -> dict[int, tuple[Device, ...]]:
    """Return the members of every team of a placement of the model `name`, by the first member's index in it.

    Raises
    ------
    InvalidProblemError
        A placement of another model.
    UnknownNameError
        A device that the platform does not have.
    """
    if placement.op_names != graph.op_names:
        missing = sorted(set(graph.op_names).symmetric_difference(placement.op_names))[:1]
        where = f"op {missing[0]!r} is in one of them only" if missing else "the order of the ops differs"
        raise InvalidProblemError(f"the placement is not one of model {name!r}: {where}")
    devices = [platform.devices[platform.index(each)] for each in placement.device_names]
    return {team[0]: tuple(devices[each] for each in team) for team in placement.teams}


def _parts(
    model: openvino.Model,
    placement: Placement,
    teams: Mapping[int, tuple[Device, ...]],
    label_of_op: NDArray[np.int64],
) -> tuple[PlacedStage, ...]:
    device_of_label = dict(zip(label_of_op.tolist(), placement.device_of_op.tolist(), strict=True))
    parts = split_model(model, dict(zip(placement.op_names, label_of_op.tolist(), strict=True)))
    stages = []
    for index, part in enumerate(sorted(parts, key=lambda each: each.label)):  # labels are an order to run in
        members = teams[device_of_label[part.label]]
        if len(members) > 1 and (variables := part.model.get_variables()):
            raise UnsupportedProblemError(
                f"team {'+'.join(device.name for device in members)} keeps variable "
                f"{variables[0].info.variable_id!r} between inferences, and every member would remember something "
                "else; place its ops on a single device (--teams off)"
            )
        name = f"{index}:{'+'.join(device.name for device in members)}"
        stages.append(PlacedStage(name, members, part.model, part.inputs, part.outputs, part.op_names))
    turned = _between_cpus(stages) & images_for_convolutions(model) - set(model_output_keys(model))
    for stage in stages:
        hand_over_channels_last(stage.model, stage.inputs, stage.outputs, turned)
    return tuple(stages)


def _between_cpus(stages: Sequence[PlacedStage]) -> set[TensorKey]:
    """Return the tensors between stages that no device other than a CPU touches."""
    ends: dict[TensorKey, list[Device]] = {}
    for stage in stages:
        for key in {*stage.inputs, *stage.outputs}:
            ends.setdefault(key, []).extend(stage.members)
    return {key for key, devices in ends.items() if all(each.openvino == "CPU" for each in devices)}


def _output_names(model: openvino.Model) -> tuple[str, ...]:
    names = [min(port.get_names(), default="") for port in model.outputs]
    return tuple(
        name if name and names.count(name) == 1 else result.get_friendly_name()
        for name, result in zip(names, model.get_results(), strict=True)
    )


def cut_tensors(stages: Sequence[PlacedStage]) -> tuple[CutTensor, ...]:
    """Return the tensors between `stages`, by producing stage."""
    readers: dict[TensorKey, list[int]] = {}
    for index, stage in enumerate(stages):
        for key in stage.inputs:
            readers.setdefault(key, []).append(index)
    return tuple(
        CutTensor(key, index, tuple(readers[key]), _num_bytes(port))
        for index, stage in enumerate(stages)
        for key, port in zip(stage.outputs, stage.model.outputs, strict=True)
        if key in readers
    )


def _num_bytes(port: Any) -> int | None:
    if port.get_partial_shape().is_dynamic:
        return None
    num_elements = math.prod(int(size) for size in port.get_shape())
    return math.ceil(num_elements * int(port.get_element_type().bitwidth) / 8)
