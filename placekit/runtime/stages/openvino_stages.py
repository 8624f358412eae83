"""Stages through OpenVINO: cut out of the model, compiled for their devices, and run.

Constants go with their consumers, and where a Parameter or Result is placed plays no role. Some tensors between stages
on CPUs have their channels last (:mod:`placekit.cost_models.openvino.layouts`), which both ends know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.compiling import compile_properties, compile_unbound
from placekit.cost_models.openvino.counters import last_line
from placekit.cost_models.openvino.devices import refused_ops, require_device, shared_core
from placekit.cost_models.openvino.few_stages import few_stages
from placekit.cost_models.openvino.layouts import hand_over_channels_last, images_for_convolutions
from placekit.cost_models.openvino.split import TensorKey, model_input_keys, model_output_keys, split_model
from placekit.io.models.model import ModelSource
from placekit.model.device_groups import team_name
from placekit.model.errors import DeviceUnavailableError, ExecutionError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.cores import helpers_on, pin_this_thread
from placekit.runtime.stages.openvino_tensors import InputReader, copy_of
from placekit.runtime.stages.stage_plan import (
    Inputs,
    PlacedStage,
    Stage,
    StagePlan,
    cut_tensors,
    name_of_stage,
    teams_of_model,
)

if TYPE_CHECKING:
    import openvino

_NUM_THREADS = "INFERENCE_NUM_THREADS"


def plan_openvino_stages(source: ModelSource, placement: Placement, platform: Platform) -> StagePlan:
    """Cut a model into stages; see :func:`placekit.runtime.stages.plans.plan_stages`. No weight is copied."""
    graph = source.graph
    teams = teams_of_model(source.name, graph, placement, platform)
    model = source.load()
    label_of_op = few_stages(graph, placement.device_of_op, source.colocation)
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
        cuts=cut_tensors(stages, bytes_of_outputs(stages)),
    )


def _parts(
    model: openvino.Model, placement: Placement, teams: Mapping[int, tuple[Device, ...]], label_of_op: NDArray[np.int64]
) -> tuple[PlacedStage, ...]:
    device_of_label = dict(zip(label_of_op.tolist(), placement.device_of_op.tolist(), strict=True))
    parts = split_model(model, dict(zip(placement.op_names, label_of_op.tolist(), strict=True)))
    stages = []
    for index, part in enumerate(sorted(parts, key=lambda each: each.label)):  # labels are an order to run in
        members = teams[device_of_label[part.label]]
        if len(members) > 1 and (variables := part.model.get_variables()):
            raise UnsupportedProblemError(
                f"team {team_name(device.name for device in members)} keeps variable "
                f"{variables[0].info.variable_id!r} between inferences, and every member would remember something "
                "else; place its ops on a single device (--teams off)"
            )
        stages.append(
            PlacedStage(name_of_stage(index, members), members, part.model, part.inputs, part.outputs, part.op_names)
        )
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


def bytes_of_outputs(stages: Iterable[PlacedStage]) -> dict[TensorKey, int | None]:
    """Return the size of every tensor that stages give; None where the shape is only known when the model runs."""
    return {
        key: _num_bytes(port) for stage in stages for key, port in zip(stage.outputs, stage.model.outputs, strict=True)
    }


def _num_bytes(port: Any) -> int | None:
    if port.get_partial_shape().is_dynamic:
        return None
    num_elements = math.prod(int(size) for size in port.get_shape())
    return math.ceil(num_elements * int(port.get_element_type().bitwidth) / 8)


@dataclass(frozen=True, eq=False)
class CompiledPlan:
    """A plan whose stages are compiled; see :class:`~placekit.runtime.stages.stage_plan.ReadyPlan`.

    `compiled` has ``[num_stages][team_size]`` models; members of a team can have one together. Several executors may
    use a plan at once.
    """

    plan: StagePlan
    compiled: tuple[tuple[openvino.CompiledModel, ...], ...]

    def open(self) -> list[list[Stage]]:
        """Return every stage on each member, with requests of its own."""
        made: list[list[Stage]] = []
        for index, models in enumerate(self.compiled):
            count = self.num_requests(index)
            if len(models) > 1 and models[0] is models[1]:
                made.append([_StageRunner(models[0], count * len(models))] * len(models))
            else:
                made.append([_StageRunner(each, count) for each in models])
        return made

    def num_requests(self, stage: int) -> int:
        """Return two for a team of one stage, of which one sample waits inside OpenVINO while the other computes."""
        # requests of one compiled model wait for each other inside OpenVINO; those of several would compute at once.
        # A device alone has nothing to gain: what is ready next is mostly still being computed by the stage before
        members = self.plan.stages[stage].members
        return 2 if len(members) > 1 and _is_only_stage(self.plan, members) else 1

    @cached_property
    def _reader(self) -> InputReader:
        return InputReader(self.plan.model, self.plan.name)

    @cached_property
    def _ports(self) -> dict[TensorKey, Any]:
        ports: dict[TensorKey, Any] = dict(zip(self.plan.input_keys, self.plan.model.inputs, strict=True))
        for stage in self.plan.stages:
            ports |= dict(zip(stage.outputs, stage.model.outputs, strict=True))
        for port in (*self.plan.model.inputs, *self.plan.model.outputs):
            if port.get_element_type().get_type_name() == "string":
                raise UnsupportedProblemError(
                    f"model {self.plan.name!r}: {port.get_any_name()!r} is a tensor of strings"
                )
        return ports

    def read(self, inputs: Inputs) -> list[openvino.Tensor]:
        """Return one tensor per input, in the caller's memory."""
        return self._reader.read(inputs)

    def slot(self, key: TensorKey) -> openvino.Tensor | None:
        """Return memory for a tensor of known shape."""
        from openvino import Tensor

        port = self._ports[key]
        if port.get_partial_shape().is_dynamic:
            return None
        return Tensor(port.get_element_type(), port.get_shape())

    def copy(self, tensor: openvino.Tensor, slot: openvino.Tensor | None) -> openvino.Tensor:
        """Return a copy of a tensor."""
        return copy_of(tensor, slot)

    def view(self, tensor: openvino.Tensor) -> NDArray[Any]:
        """Return the numbers of a tensor where they are."""
        numbers: NDArray[Any] = tensor.data
        return numbers

    @contextmanager
    def at_home(self, device: Device) -> Iterator[None]:
        """Bind the calling thread to the cores of a device."""
        pin_this_thread(device.cores)
        yield

    def helpers(self) -> AbstractContextManager[None]:
        """Keep OpenVINO's threads on the cores of the devices that have several."""
        return helpers_on(self.plan.devices)

    def reason(self, error: Exception) -> str:
        """Return what OpenVINO said."""
        return str(error)


def compile_openvino_plan(plan: StagePlan, core: openvino.Core | None = None) -> CompiledPlan:
    """Compile every stage for its device.

    Each device is compiled as it is profiled: one stream, its own properties, OpenVINO's pinning off. The cores of a
    core group are not OpenVINO's business; whoever runs the stage binds its threads.

    Equal members of a team, groups of as many cores with the same properties, have one compiled model with a stream for
    each: OpenVINO keeps its weights once, so that one member finds in the cache what another has just read. This is
    so if the team has one stage only; of several, the streams of the one would know nothing of those of the other. The
    members of any other team have one each.
    """
    core = core or shared_core()
    for device in plan.devices:
        if device.openvino is None:
            raise DeviceUnavailableError(f"device {device.name!r} names no OpenVINO device, so it cannot run a stage")
        require_device(device.openvino, core)
    compiled: list[tuple[openvino.CompiledModel, ...]] = []
    for stage in plan.stages:
        count = len(stage.members)
        if _are_equal(stage.members) and _is_only_stage(plan, stage.members):
            compiled.append((_compile(stage, stage.device, core, num_streams=count),) * count)
        else:
            compiled.append(tuple(_compile(stage, device, core) for device in stage.members))
    return CompiledPlan(plan, tuple(compiled))


def _is_only_stage(plan: StagePlan, members: Sequence[Device]) -> bool:
    return [each.members for each in plan.stages].count(tuple(members)) == 1


def _are_equal(members: Sequence[Device]) -> bool:
    """Return whether devices are groups of CPU cores, of the same size, that compute in the same way."""
    properties = dict(members[0].properties)
    return (
        all(each.openvino == "CPU" and dict(each.properties) == properties for each in members)
        and len({len(each.cores) for each in members}) == 1
        and "NUM_STREAMS" not in properties
        and properties.get(_NUM_THREADS, "").isdigit()  # without it a stream would take all cores
    )


def _compile(
    stage: PlacedStage, device: Device, core: openvino.Core, *, num_streams: int = 1
) -> openvino.CompiledModel:
    target = device.openvino or device.name
    config = compile_properties(target, device.properties)
    if num_streams > 1:
        # the hint is for streams side by side: as many as the other hint's are slower by some per cent
        threads = num_streams * int(device.properties[_NUM_THREADS])
        config |= {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": num_streams, _NUM_THREADS: threads}
    try:
        return compile_unbound(core, stage.model, target, config)
    except RuntimeError as error:
        refused = refused_ops(core, stage.model, target, stage.op_names)
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        what = f"it does not support op {refused[0]!r}{more}; " if refused else ""
        raise ExecutionError(
            f"stage {stage.name!r} ({len(stage.op_names)} ops from {stage.op_names[0]!r}) cannot be compiled for "
            f"{target}: {what}{last_line(error)}"
        ) from error


class _StageRunner:
    """Runs a compiled stage, synchronously and in the calling thread; `num_requests` threads may run it at once.

    One infer request per thread is enough for any number of samples in flight: its tensors are set for each, which
    costs a microsecond, and what it writes to is a slot that no reader needs any more.
    """

    def __init__(self, compiled: openvino.CompiledModel, num_requests: int = 1) -> None:
        self._idle = [compiled.create_infer_request() for _ in range(num_requests)]

    def run(self, inputs: Sequence[openvino.Tensor], slots: Sequence[openvino.Tensor | None]) -> list[openvino.Tensor]:
        """Compute the outputs into the slots; one of dynamic shape is copied, as the request uses its memory again."""
        request = self._idle.pop()
        for index, tensor in enumerate(inputs):
            request.set_input_tensor(index, tensor)
        for index, slot in enumerate(slots):
            if slot is not None:
                request.set_output_tensor(index, slot)
        request.infer(share_outputs=True)  # else every output is copied into the dictionary that it returns
        written = [
            copy_of(request.get_output_tensor(index)) if slot is None else slot for index, slot in enumerate(slots)
        ]
        self._idle.append(request)
        return written
