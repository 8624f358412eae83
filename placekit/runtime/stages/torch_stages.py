"""Stages through PyTorch: calls of the program that run one after another, each on its team.

Tensors are known by their key, (name in the program, 0). Torch computes without Python's lock; between two ops every
stage needs it for some microseconds, so that stages of many small ops slow each other down. Tensors are handed over
without a copy between CPUs, and copied where a device is not a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.few_stages import NO_STAGE, few_stages
from placekit.cost_models.openvino.split import TensorKey
from placekit.cost_models.pytorch.allocator import keep_freed_memory
from placekit.cost_models.pytorch.devices import first_line, synchronised, torch_device, use_threads
from placekit.io.needs import require_torch
from placekit.model.device_groups import team_name
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.pytorch.lowering import Lowered
from placekit.pytorch.module import Builder
from placekit.pytorch.program import TorchTensor
from placekit.runtime.cores import pin_this_thread
from placekit.runtime.stages.stage_plan import (
    Inputs,
    PlacedStage,
    Stage,
    StagePlan,
    cut_tensors,
    in_order,
    name_of_stage,
    teams_of_model,
)

if TYPE_CHECKING:
    import torch

    from placekit.pytorch.source import TorchSource


@dataclass(frozen=True, eq=False)
class TorchModel:
    """The program that a plan cuts: type and shape of its inputs by name, and what builds modules of it.

    There is no builder if its stages are programs of their own, read from a bundle.
    """

    inputs: Mapping[str, TorchTensor]
    builder: Builder | None = None

    @property
    def lowered(self) -> Lowered:
        """The program and its ops."""
        assert self.builder is not None  # of a bundle nobody asks
        return self.builder.lowered


@dataclass(frozen=True, eq=False)
class TorchPart:
    """Ops of a program that a stage computes, and the names of the tensors at its borders.

    `builder` builds the module; the program's own if None.
    """

    source: TorchSource
    ops: Sequence[int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    builder: Builder | None = None

    def module(self, device: str) -> Any:
        """Return what torch runs on a device of its own naming."""
        builder = self.source.builder() if self.builder is None else self.builder
        return builder.part(self.ops, self.inputs, self.outputs, device)


def plan_torch_stages(source: TorchSource, placement: Placement, platform: Platform) -> StagePlan:
    """Cut a program into stages; see :func:`placekit.runtime.stages.plans.plan_stages`."""
    graph, lowered = source.graph, source.lowered
    program = lowered.program
    teams = teams_of_model(source.name, graph, placement, platform)
    stage_of_op = few_stages(graph, placement.device_of_op, lowered.colocation)
    first_of: dict[int, int] = {}
    for op in np.flatnonzero(stage_of_op != NO_STAGE).tolist():
        other = first_of.setdefault(int(lowered.colocation[op]), op)
        if stage_of_op[other] != stage_of_op[op]:
            raise UnsupportedProblemError(
                f"ops {graph.op_names[other]!r} and {graph.op_names[op]!r} of model {source.name!r} work on the same "
                "memory, and the placement has them in different stages; place them on one device, with what is "
                "between them"
            )
    builder = source.builder()
    tensor, reader = graph.consumed_tensor, stage_of_op[graph.consumers]
    maker = stage_of_op[graph.tensor_producer[tensor]]
    stages = []
    for index in range(int(stage_of_op.max(initial=NO_STAGE)) + 1):
        ops = np.flatnonzero(stage_of_op == index).tolist()
        members = teams[int(placement.device_of_op[ops[0]])]
        if lowered.states and len(members) > 1:
            raise UnsupportedProblemError(
                f"model {source.name!r} changes its buffer {min(lowered.states)!r}, and team "
                f"{team_name(each.name for each in members)!r} would have several of it; place it on single devices"
            )
        inputs, outputs = (
            tuple(lowered.tensor_names[each] for each in np.unique(tensor[(here == index) & (there != index)]).tolist())
            for here, there in ((reader, maker), (maker, reader))
        )
        part = TorchPart(source, ops, inputs, outputs, builder)
        read, given = (tuple((name, 0) for name in names) for names in (inputs, outputs))
        names = tuple(graph.op_names[op] for op in ops)
        stages.append(PlacedStage(name_of_stage(index, members), members, part, read, given, names))
    made = {name for stage in stages for name, _ in stage.outputs} | set(program.inputs)
    for name in program.outputs:
        if name not in made:
            raise UnsupportedProblemError(
                f"model {source.name!r}: output {name!r} is a weight, and there is no op that a device could run"
            )
    seen = [program.outputs[:at].count(name) for at, name in enumerate(program.outputs)]
    sizes = {key: int(program.tensors[key[0]].num_bytes) for stage in stages for key in stage.outputs}
    return StagePlan(
        name=source.name,
        model=TorchModel({name: program.tensors[name] for name in program.inputs}, builder),
        stages=tuple(stages),
        input_keys=tuple((name, 0) for name in program.inputs),
        output_keys=tuple((name, 0) for name in program.outputs),
        input_names=program.inputs,
        # a tensor that is an output twice gets a number
        output_names=tuple(
            f"{name}#{number + 1}" if number else name for name, number in zip(program.outputs, seen, strict=True)
        ),
        cuts=cut_tensors(stages, sizes),
        engine=source.engine,
    )


class ReadyTorchPlan:
    """A plan with a module for every stage and member of its team; see `stage_plan.ReadyPlan`."""

    def __init__(self, plan: StagePlan) -> None:
        keep_freed_memory()
        self.plan = plan
        self._stages: list[list[Stage]] = []
        for stage in plan.stages:
            names = [torch_device(device) for device in stage.members]
            self._stages.append([_TorchStage(stage.model.module(name), name) for name in names])

    def open(self) -> list[list[Stage]]:
        """Return every stage on each member; modules keep nothing of a sample, so that all executors share them."""
        return [list(stage) for stage in self._stages]

    def num_requests(self, stage: int) -> int:  # noqa: ARG002
        """Return one: nothing keeps two samples of a member from being computed at once."""
        return 1

    def read(self, inputs: Inputs) -> list[torch.Tensor]:
        """Return one tensor per input; arrays are taken as they are, without a copy."""
        torch = require_torch("running a PyTorch program")
        metas, what = self.plan.model.inputs, f"model {self.plan.name!r}"
        tensors = []
        for (name, meta), value in zip(metas.items(), in_order(inputs, self.plan.name, tuple(metas)), strict=True):
            try:
                tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
            except TypeError as error:
                raise InvalidProblemError(f"{what}: input {name!r}: {error}") from None
            if tuple(tensor.shape) != meta.shape or str(tensor.dtype) != f"torch.{meta.dtype}":
                raise InvalidProblemError(
                    f"{what}: input {name!r} has type {str(tensor.dtype).removeprefix('torch.')} and shape "
                    f"{list(tensor.shape)}; it must have type {meta.dtype} and shape {list(meta.shape)}"
                )
            tensors.append(tensor)
        return tensors

    def slot(self, key: TensorKey) -> None:
        """Return nothing: stages give new tensors."""

    def copy(self, tensor: torch.Tensor, slot: None) -> torch.Tensor:  # noqa: ARG002
        """Return a copy of a tensor."""
        return tensor.clone()

    def view(self, tensor: torch.Tensor) -> NDArray[Any]:
        """Return the numbers of a tensor."""
        return to_array(tensor)

    @contextmanager
    def at_home(self, device: Device) -> Iterator[None]:
        """Bind the calling thread to the cores of a device, and let it compute with as many threads."""
        torch = require_torch("running a PyTorch program")
        pin_this_thread(device.cores)
        use_threads(len(device.cores))
        with torch.inference_mode():
            yield

    def helpers(self) -> AbstractContextManager[None]:
        """Do nothing: OpenMP's threads belong to the thread that they help, and are born on its cores."""
        return nullcontext()

    def reason(self, error: Exception) -> str:
        """Return the first line of what torch said; whole stacks follow it."""
        return first_line(error)


class _TorchStage:
    """The module of a stage on one device."""

    def __init__(self, module: Any, device: str) -> None:
        # forward itself: calling a module of torch.fx prints its code when it fails
        self._forward, self._device = module.forward, device
        self._wait = synchronised(device)

    def run(self, inputs: Sequence[Any], _slots: Sequence[Any] = (), /) -> list[Any]:
        """Return the outputs; they stay on the device."""
        outputs = list(self._forward(*(each.to(self._device) for each in inputs)))
        self._wait()
        return outputs


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers, not copied if it is on a CPU; bf16 and 8-bit floats, which numpy lacks, become f32."""
    torch = require_torch("running a PyTorch program")
    tensor = tensor.detach().to("cpu").resolve_conj().resolve_neg()
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.to(torch.float32)
    found: NDArray[Any] = tensor.numpy()
    return found
