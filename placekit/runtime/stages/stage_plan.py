"""A placement as stages: parts of a model that run one after another, each on its team, and the tensors between them.

Every way of running a placement starts from the same `StagePlan`, whatever framework runs it. Tensors are known by
their key, (friendly name of the producing op, output port): put the model's inputs under `StagePlan.input_keys` into
a dictionary, let every stage read `PlacedStage.inputs` from it and write `PlacedStage.outputs` to it, and read the
outputs under `StagePlan.output_keys`. :mod:`placekit.runtime.stages.plans` makes a `ReadyPlan` of it, whose parts are a
`Stage` each: OpenVINO (:mod:`placekit.runtime.stages.openvino_stages`) and PyTorch
(:mod:`placekit.runtime.stages.torch_stages`) are the two implementations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from placekit.cost_models.openvino.split import TensorKey
from placekit.io.models.model import ModelSource
from placekit.model.device_groups import team_name
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform

Inputs: TypeAlias = "Sequence[Any] | Mapping[str, Any]"
"""Inputs of one sample: arrays (or tensors of the framework) in the model's order, or by name."""

Outputs: TypeAlias = dict[str, NDArray[Any]]
"""Outputs of one sample by name, in the model's order."""


@dataclass(frozen=True, eq=False)
class PlacedStage:
    """One part of the model, on one team of devices."""

    name: str  # unique name: position and team, for example ``"3:GPU.0"`` or ``"3:GPU.0+GPU.1"``
    # where it runs: devices that share the samples, each holding all of the stage; one, if the device works alone
    members: tuple[Device, ...]
    # the part: an ``openvino.Model``, which shares weights with the whole model and nothing else, or a
    # :class:`~placekit.runtime.stages.torch_stages.TorchPart`
    model: Any
    # inputs, outputs: key of each of the part's inputs and outputs, in their order
    inputs: tuple[TensorKey, ...]
    outputs: tuple[TensorKey, ...]
    op_names: tuple[str, ...]  # names of the ops inside, constants left out

    @property
    def device(self) -> Device:
        """The device that runs it, the first member of a team."""
        return self.members[0]

    @property
    def team_name(self) -> str:
        """Names of the members, ``"GPU.0+GPU.1"``."""
        return team_name(device.name for device in self.members)

    def __repr__(self) -> str:
        return f"PlacedStage({self.name}: {len(self.op_names)} ops, {len(self.inputs)} in, {len(self.outputs)} out)"


@dataclass(frozen=True)
class CutTensor:
    """A tensor that goes from one stage to others."""

    key: TensorKey  # its key
    # producer, consumers: index of the stage that writes it, and of those that read it
    producer: int
    consumers: tuple[int, ...]
    num_bytes: int | None  # its size; None where the shape is only known when the model runs


@dataclass(frozen=True, eq=False)
class StagePlan:
    """A model cut into stages."""

    name: str  # name of the model
    # the whole model: an ``openvino.Model`` with friendly names as in the op graph, or a
    # :class:`~placekit.runtime.stages.torch_stages.TorchModel`
    model: Any
    stages: tuple[PlacedStage, ...]  # in an order in which they can run. A model whose inputs are its outputs has none
    # input_keys, output_keys: key of each of the whole model's inputs and outputs, in its order. Two outputs can have
    # one key, and an output can have the key of an input
    input_keys: tuple[TensorKey, ...]
    output_keys: tuple[TensorKey, ...]
    # input_names, output_names: ``[num_inputs]`` names of the inputs; ``[num_outputs]`` unique names of the outputs
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    cuts: tuple[CutTensor, ...]  # tensors between stages, by producing stage
    engine: str = ModelSource.engine  # what runs it, as `ModelSource.engine`

    @cached_property
    def teams(self) -> tuple[tuple[Device, ...], ...]:
        """The teams that run a stage, in order of first appearance; a device is in one of them only."""
        return tuple({stage.team_name: stage.members for stage in self.stages}.values())

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that run a stage, team by team."""
        return tuple(device for team in self.teams for device in team)

    @property
    def num_turns(self) -> int:
        """Size of the largest team: so many samples one after another can be on every member of every team once."""
        return max((len(stage.members) for stage in self.stages), default=1)

    def require_no_teams(self, what: str) -> None:
        """Raise unless every device works alone; `what`, such as ``"HETERO runs one sample at a time"``, says why."""
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
        names = ", ".join(team_name(device.name for device in team) for team in self.teams)
        return f"StagePlan({self.name!r}: {len(self.stages)} stages on {names}, {len(self.cuts)} cut tensors)"


class Stage(Protocol):
    """A part of a model that is ready to run on a device: what OpenVINO or PyTorch made of it."""

    def run(self, inputs: Sequence[Any], slots: Sequence[Any], /) -> list[Any]:
        """Compute in the calling thread, and return the outputs.

        `slots` has one tensor per output, which is written to and returned; None where the stage has to make a new one.
        """


class ReadyPlan(Protocol):
    """A plan whose stages are ready to run, with all that a pipeline has to know about the framework."""

    @property
    def plan(self) -> StagePlan:
        """The stages."""

    def open(self) -> list[list[Stage]]:
        """Return ``[num_stages][team_size]`` every stage on each member, for one executor.

        Members that share a compiled model are the same object; the runtime does not tell which of them ran a sample.
        """

    def num_requests(self, stage: int) -> int:
        """Return how many samples each member of a stage's team may have begun at once."""

    def read(self, inputs: Inputs) -> list[Any]:
        """Return one tensor per input of the model, in its order: checked, and not copied where that is possible."""

    def slot(self, key: TensorKey) -> Any:
        """Return memory that a tensor is written to; None where stages have to make a new tensor for each sample."""

    def copy(self, tensor: Any, slot: Any) -> Any:
        """Return a copy of a tensor, in `slot` unless that is None."""

    def view(self, tensor: Any) -> NDArray[Any]:
        """Return the numbers of a tensor where they are, if numpy has their type and they are in host memory."""

    def at_home(self, device: Device) -> AbstractContextManager[None]:
        """Bind the calling thread, which works for `device` inside the block."""

    def helpers(self) -> AbstractContextManager[None]:
        """Keep the framework's own threads where they belong inside the block."""

    def reason(self, error: Exception) -> str:
        """Return why a stage failed, in one line."""


def in_order(inputs: Inputs, model: str, names: Sequence[str], index_of: Mapping[str, int] | None = None) -> list[Any]:
    """Return the inputs of a sample in the order of `names`.

    Inputs are given by name, or in that order already. `index_of` has all names by which an input may be called.
    """
    listed = ", ".join(names)
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise InvalidProblemError(f"model {model!r}: {len(inputs)} inputs given, it has {len(names)}: {listed}")
        return list(inputs)
    index_of = index_of or {name: index for index, name in enumerate(names)}
    given: dict[int, Any] = {}
    for name, value in inputs.items():
        if name not in index_of:
            raise InvalidProblemError(f"model {model!r}: no input {name!r}; inputs are {listed}")
        given[index_of[name]] = value
    for index, name in enumerate(names):
        if index not in given:
            raise InvalidProblemError(f"model {model!r}: input {name!r} is missing; inputs are {listed}")
    return [given[index] for index in range(len(names))]


def name_of_stage(index: int, members: Sequence[Device]) -> str:
    """Return the name of a stage, of its position and its team."""
    return f"{index}:{team_name(device.name for device in members)}"


def teams_of_model(
    name: str, graph: OpGraph, placement: Placement, platform: Platform
) -> dict[int, tuple[Device, ...]]:
    """Return the members of every team of a placement of the model `name`, by the first member's index in it."""
    if placement.op_names != graph.op_names:
        missing = sorted(set(graph.op_names).symmetric_difference(placement.op_names))[:1]
        where = f"op {missing[0]!r} is in one of them only" if missing else "the order of the ops differs"
        raise InvalidProblemError(f"the placement is not one of model {name!r}: {where}")
    devices = [platform.devices[platform.index(each)] for each in placement.device_names]
    return {team[0]: tuple(devices[each] for each in team) for team in placement.teams}


def cut_tensors(stages: Sequence[PlacedStage], num_bytes: Mapping[TensorKey, int | None]) -> tuple[CutTensor, ...]:
    """Return the tensors between `stages`, by producing stage; `num_bytes` has the sizes of what stages give."""
    readers: dict[TensorKey, list[int]] = {}
    for index, stage in enumerate(stages):
        for key in stage.inputs:
            readers.setdefault(key, []).append(index)
    return tuple(
        CutTensor(key, index, tuple(readers[key]), num_bytes[key])
        for index, stage in enumerate(stages)
        for key in stage.outputs
        if key in readers
    )
