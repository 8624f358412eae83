"""A placement of a PyTorch program as stages: calls that run one after another, each on its team.

Tensors are known by their key, (name in the program, 0), as those of other plans are; see
:mod:`placekit.runtime.stages` for what a plan promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.cost_models.openvino.few_stages import NO_STAGE, few_stages
from placekit.cost_models.pytorch.devices import torch_device
from placekit.model.errors import UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.pytorch.lowering import NO_NODE, Lowered
from placekit.pytorch.module import Builder
from placekit.pytorch.program import TorchTensor
from placekit.runtime.stages import teams_of_model

if TYPE_CHECKING:
    from placekit.pytorch.source import TorchSource

__all__ = ["Key", "StagePart", "TorchPlan", "TorchStage", "plan_torch_stages"]

Key = tuple[str, int]
"""Name of a tensor in the program, and 0."""


@dataclass(frozen=True, eq=False)
class TorchStage:
    """One part of the program, on one team of devices.

    Parameters
    ----------
    name
        Unique name: position and team, for example ``"3:cuda:0"``.
    members
        Where it runs.
    inputs, outputs
        Key of every tensor that it reads from others, and that others or the caller read from it.
    ops
        Indices of its ops.
    op_names
        Their names.
    """

    name: str
    members: tuple[Device, ...]
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    ops: tuple[int, ...]
    op_names: tuple[str, ...]

    @property
    def team_name(self) -> str:
        """Names of the members, ``"cuda:0+cuda:1"``."""
        return "+".join(device.name for device in self.members)


@dataclass(frozen=True, eq=False)
class StagePart:
    """What a stage computes: ops of a program, and what this calls the tensors at the ends.

    Parameters
    ----------
    source
        The program; it can be sent to another process.
    ops
        Indices of its ops.
    inputs, outputs
        Names of what is read and given.
    """

    source: TorchSource
    ops: Sequence[int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def module(self, device: Device, builder: Builder | None = None) -> Any:
        """Return what torch runs on a device, made by the program's own builder unless there is one already."""
        builder = self.source.builder() if builder is None else builder
        return builder.part(self.ops, self.inputs, self.outputs, torch_device(device))


@dataclass(frozen=True, eq=False)
class TorchPlan:
    """A program cut into stages.

    Parameters
    ----------
    source
        The program.
    builder
        Builds the modules.
    stages
        In an order in which they can run.
    """

    source: TorchSource
    builder: Builder
    stages: tuple[TorchStage, ...]

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.source.name

    @property
    def lowered(self) -> Lowered:
        """The program and its ops."""
        return self.builder.lowered

    @property
    def inputs(self) -> Mapping[str, TorchTensor]:
        """Type and shape of the program's inputs by name, in its order."""
        program = self.lowered.program
        return {name: program.tensors[name] for name in program.inputs}

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the program's inputs."""
        return self.lowered.program.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the program's outputs; a tensor that is an output twice gets a number."""
        names = self.lowered.program.outputs
        seen = [names[:at].count(name) for at, name in enumerate(names)]
        return tuple(f"{name}#{number + 1}" if number else name for name, number in zip(names, seen, strict=True))

    @property
    def input_keys(self) -> tuple[Key, ...]:
        """Keys of the inputs."""
        return tuple((name, 0) for name in self.lowered.program.inputs)

    @property
    def output_keys(self) -> tuple[Key, ...]:
        """Keys of the outputs."""
        return tuple((name, 0) for name in self.lowered.program.outputs)

    @cached_property
    def teams(self) -> tuple[tuple[Device, ...], ...]:
        """The teams that run a stage, in order of first appearance."""
        return tuple({stage.team_name: stage.members for stage in self.stages}.values())

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that run a stage, team by team."""
        return tuple(device for team in self.teams for device in team)

    @property
    def cuts(self) -> tuple[Key, ...]:
        """Keys of the tensors that one stage writes and another reads, in the order of the program."""
        read = {key for stage in self.stages for key in stage.inputs}
        return tuple(key for stage in self.stages for key in stage.outputs if key in read)

    @property
    def cut_bytes(self) -> int:
        """Bytes of these tensors."""
        return int(sum(self.lowered.program.tensors[name].num_bytes for name, _ in self.cuts))

    @property
    def parts(self) -> tuple[StagePart, ...]:
        """What every stage computes."""
        return tuple(
            StagePart(self.source, each.ops, _names(each.inputs), _names(each.outputs)) for each in self.stages
        )

    @property
    def tensors(self) -> Mapping[Key, TorchTensor]:
        """Type and shape of the inputs, and of everything that a stage gives."""
        keys = (*self.input_keys, *(key for stage in self.stages for key in stage.outputs))
        return {key: self.lowered.program.tensors[key[0]] for key in keys}

    def modules(self) -> list[list[Any]]:
        """Return ``[num_stages][team_size]`` the module of every stage, on each member of its team."""
        return [
            [part.module(each, self.builder) for each in stage.members]
            for part, stage in zip(self.parts, self.stages, strict=True)
        ]

    def __repr__(self) -> str:
        names = ", ".join("+".join(device.name for device in team) for team in self.teams)
        return f"TorchPlan({self.name!r}: {len(self.stages)} stages on {names}, {len(self.cuts)} cut tensors)"


def plan_torch_stages(source: TorchSource, placement: Placement, platform: Platform) -> TorchPlan:
    """Cut a program into stages, as `placement` says.

    Parameters
    ----------
    source
        The program.
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
        Ops that need the same memory in different stages, state on a team, or an output that no op makes.
    PlacekitError
        The program cannot be run here, see :meth:`TorchSource.builder`.
    """
    graph, lowered = source.graph, source.lowered
    assert lowered is not None
    teams = teams_of_model(source.name, graph, placement, platform)
    stage_of_op = few_stages(graph, placement.device_of_op)
    _require_memory_together(source, lowered, stage_of_op.tolist())
    wiring = _Wiring(lowered, stage_of_op.tolist())
    stages = []
    for index in range(int(stage_of_op.max(initial=NO_STAGE)) + 1):
        ops = np.flatnonzero(stage_of_op == index).tolist()
        members = teams[int(placement.device_of_op[ops[0]])]
        if lowered.states and len(members) > 1:
            raise UnsupportedProblemError(
                f"model {source.name!r} changes its buffer {min(lowered.states)!r}, and team "
                f"{'+'.join(each.name for each in members)!r} would have several of it; place it on single devices"
            )
        inputs, outputs = wiring.ends(index, ops)
        name = f"{index}:{'+'.join(each.name for each in members)}"
        stages.append(TorchStage(name, members, inputs, outputs, tuple(ops), tuple(graph.op_names[op] for op in ops)))
    made = {name for stage in stages for name, _ in stage.outputs} | set(lowered.program.inputs)
    for name in lowered.program.outputs:
        if name not in made:
            raise UnsupportedProblemError(
                f"model {source.name!r}: output {name!r} is a weight, and there is no op that a device could run"
            )
    return TorchPlan(source, source.builder(), tuple(stages))


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(name for name, _ in keys)


def _require_memory_together(source: TorchSource, lowered: Lowered, stage_of_op: list[int]) -> None:
    """Raise unless ops that need the same memory are in one stage."""
    first: dict[int, int] = {}
    for op, label in enumerate(lowered.colocation.tolist()):
        if stage_of_op[op] == NO_STAGE:
            continue
        other = first.setdefault(label, op)
        if stage_of_op[other] != stage_of_op[op]:
            names = source.graph.op_names
            raise UnsupportedProblemError(
                f"ops {names[other]!r} and {names[op]!r} of model {source.name!r} work on the same memory, and the "
                "placement has them in different stages; place them on one device, with what is between them"
            )


class _Wiring:
    """Who makes and who reads every tensor."""

    def __init__(self, lowered: Lowered, stage_of_op: list[int]) -> None:
        self._lowered = lowered
        program, graph = lowered.program, lowered.graph
        op_of_node = {node: op for op, node in enumerate(lowered.node_of_op) if node != NO_NODE}
        #: stage by name of a tensor that an op makes; that of the caller for inputs
        self._maker = dict.fromkeys(program.inputs, NO_STAGE)
        for index, node in enumerate(program.nodes):
            if index in op_of_node:
                self._maker |= dict.fromkeys(node.outputs, stage_of_op[op_of_node[index]])
        assignments = [op for op, kind in enumerate(graph.op_types) if kind == "Assign"]
        self._assigned = dict(zip(assignments, program.mutations, strict=True))
        self._readers: dict[str, set[int]] = {}
        for op, stage in enumerate(stage_of_op):
            for name in self._reads(op):
                self._readers.setdefault(name, set()).add(stage)
        for name in program.outputs:
            self._readers.setdefault(name, set()).add(NO_STAGE)

    def _reads(self, op: int) -> Iterable[str]:
        node = self._lowered.node_of_op[op]
        if node == NO_NODE:
            return [self._assigned[op]] if op in self._assigned else []
        return self._lowered.program.nodes[node].refs()

    def ends(self, stage: int, ops: list[int]) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
        """Return what a stage reads from others, and what others read from it."""
        nodes = self._lowered.program.nodes
        read = dict.fromkeys(name for op in ops for name in self._reads(op))
        made = [
            name
            for op in ops
            if self._lowered.node_of_op[op] != NO_NODE
            for name in nodes[self._lowered.node_of_op[op]].outputs
        ]
        inputs = tuple((name, 0) for name in read if self._maker.get(name, stage) != stage)
        outputs = tuple((name, 0) for name in made if self._readers.get(name, set()) - {stage})
        return inputs, outputs
