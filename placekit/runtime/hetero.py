"""A placement left to OpenVINO's HETERO plugin, which cuts the model by itself where the device of a node changes."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import refused_ops, require_device, shared_core
from placekit.cost_models.openvino.machine import format_cores, usable_cores
from placekit.cost_models.openvino.split import TensorKey, split_model
from placekit.model.errors import (
    DeviceUnavailableError,
    ExecutionError,
    UnsupportedProblemError,
)
from placekit.runtime.hetero_script import fold_constants, set_affinities
from placekit.runtime.openvino_inputs import InputReader
from placekit.runtime.stages import Inputs, Outputs, PlacedStage, StagePlan

if TYPE_CHECKING:
    import openvino

__all__ = ["HeteroExecutor", "explain_turns", "hetero_devices"]

_LOGGER = logging.getLogger(__name__)


def hetero_devices(plan: StagePlan) -> dict[str, str]:
    """Return the OpenVINO device string of every device that runs a stage, by its name.

    Raises
    ------
    UnsupportedProblemError
        HETERO knows devices by OpenVINO's names only: a core group, which is part of ``CPU``, or two devices of one
        name cannot be told apart by it. And it runs one sample at a time, to which a team brings nothing.
    DeviceUnavailableError
        A device that names no OpenVINO device.
    """
    plan.require_no_teams("HETERO runs one sample at a time")
    remedy = "HETERO tells devices apart by OpenVINO's names; run the stages one after another or as a pipeline instead"
    whole_cpu = {core.cpu for core in usable_cores()}
    name_of_target: dict[str, str] = {}
    for device in plan.devices:
        if device.openvino is None:
            raise DeviceUnavailableError(f"device {device.name!r} names no OpenVINO device, so HETERO cannot use it")
        if device.cores and set(device.cores) != whole_cpu:
            raise UnsupportedProblemError(
                f"device {device.name!r} is a group of cores ({format_cores(device.cores)}) of "
                f"{device.openvino!r}, which HETERO cannot use; {remedy}"
            )
        other = name_of_target.setdefault(device.openvino, device.name)
        if other != device.name:
            raise UnsupportedProblemError(
                f"devices {other!r} and {device.name!r} are both {device.openvino!r} for HETERO; {remedy}"
            )
    return {name: target for target, name in name_of_target.items()}


class HeteroExecutor:
    """Runs a placement as one compiled model on ``HETERO:...``, with affinities by friendly name.

    Before anything is compiled it is checked that HETERO can tell the devices apart, that every device supports the
    ops placed on it, and that the shapes on both sides of every cut agree. Devices that wait for each other in a
    circle (`explain_turns`) run as several submodels each; they are logged as a warning.

    Parameters
    ----------
    plan
        The stages. HETERO cuts anew, in places of its own where a device has several turns.
    core
        OpenVINO core; the shared one if None.

    Raises
    ------
    UnsupportedProblemError
        A core group, two devices of one OpenVINO name, an op that its device does not support, a shape that is
        computed on another device, or a model that computes nothing.
    DeviceUnavailableError
        A device that is not there.
    ExecutionError
        HETERO refuses the model, or cannot connect its parts.
    """

    def __init__(self, plan: StagePlan, core: openvino.Core | None = None) -> None:
        core = core or shared_core()
        self.plan = plan
        targets = hetero_devices(plan)
        if not targets:
            raise UnsupportedProblemError(f"model {plan.name!r} computes nothing; HETERO has nothing to place")
        for target in targets.values():
            require_device(target, core)
        model = plan.model.clone()
        fold_constants(model)
        names = {op.get_friendly_name() for op in model.get_ops() if op.get_type_name() != "Constant"}
        for stage in plan.stages:
            _check_supported(stage, names, targets[stage.device.name], core)
        _check_shapes(plan, model)
        turns = explain_turns(plan)
        if turns:
            _LOGGER.warning("%s", turns)
        set_affinities(model, {op: targets[stage.device.name] for stage in plan.stages for op in stage.op_names})
        self.target = f"HETERO:{','.join(targets.values())}"
        properties = {
            targets[each.name]: compile_properties(targets[each.name], each.properties) for each in plan.devices
        }
        try:
            self._compiled = core.compile_model(model, self.target, {"DEVICE_PROPERTIES": properties})
        except RuntimeError as error:
            raise ExecutionError(
                f"model {plan.name!r} cannot be compiled for {self.target}: {error} {turns}"
            ) from error
        try:
            self._request = self._compiled.create_infer_request()  # connects the submodels
        except RuntimeError as error:
            raise ExecutionError(
                f"HETERO cannot connect the {self.num_submodels} parts of model {plan.name!r}, probably because shapes "
                f"are computed from data that comes from another part; give the inputs fixed shapes, or run the stages "
                f"one after another: {error}"
            ) from error
        self._reader = InputReader(plan.model, plan.name)
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def num_submodels(self) -> int:
        """Number of parts into which HETERO has cut the model."""
        return int(self._compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))

    @property
    def execution_devices(self) -> tuple[str, ...]:
        """OpenVINO's names of the devices that really run a part."""
        return tuple(self._compiled.get_property("EXECUTION_DEVICES"))

    def __call__(self, inputs: Inputs) -> Outputs:
        """Run one sample, and return a copy of every output by name.

        Parameters
        ----------
        inputs
            One array per input, by name or in the model's order, of the input's type and shape.

        Raises
        ------
        InvalidProblemError
            A missing or unknown input, or one of another type or shape.
        ExecutionError
            The inference fails, or the executor is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ExecutionError(f"the executor of {self.plan.name!r} is closed")
            try:
                for index, tensor in enumerate(self._reader.read(inputs)):
                    self._request.set_input_tensor(index, tensor)
                self._request.infer(share_outputs=True)
            except RuntimeError as error:
                raise ExecutionError(f"model {self.plan.name!r} failed on {self.target}: {error}") from error
            tensors = [self._request.get_output_tensor(index) for index in range(len(self.plan.output_names))]
            return {name: np.array(each.data) for name, each in zip(self.plan.output_names, tensors, strict=True)}

    def close(self) -> None:
        """Give the model back. Closing again does nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                del self._request, self._compiled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def explain_turns(plan: StagePlan) -> str:
    """Say why a device cannot do its work in one go; empty if all can.

    Devices that wait for each other in a circle are cut into several submodels by HETERO, each with a fixed cost.
    Versions of OpenVINO before the fix of https://github.com/openvinotoolkit/openvino/issues/35750 fail on some.
    """
    first_of: dict[str, int] = {}
    writer = {key: stage for stage in plan.stages for key in stage.outputs}
    for index, stage in enumerate(plan.stages):
        first = first_of.setdefault(stage.device.name, index)
        if first == index:
            continue
        foreign = (key for key in stage.inputs if key in writer and writer[key].device.name != stage.device.name)
        key = next(foreign, None)
        if key is None:
            continue
        repeated = len(plan.stages) - len(plan.devices)
        return (
            f"devices wait for each other in a circle: stage {stage.name!r} (op {stage.op_names[0]!r}) needs "
            f"{key[0]!r} of stage {writer[key].name!r}, but {stage.device.name!r} has already worked in stage "
            f"{plan.stages[first].name!r}; {len(plan.devices)} devices take {repeated} more turns than one each"
        )
    return ""


def _check_supported(stage: PlacedStage, names: set[str], target: str, core: openvino.Core) -> None:
    """Refuse an op (one of `names`: the others are folded away) that the device says it does not support."""
    refused = refused_ops(core, stage.model, target, [op for op in stage.op_names if op in names])
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise UnsupportedProblemError(
            f"op {refused[0]!r}{more} is placed on {stage.device.name!r}, but {target} does not support it"
        )


def _check_shapes(plan: StagePlan, model: openvino.Model) -> None:
    """Refuse a cut tensor of which the stage behind knows a dimension that the stage before does not.

    HETERO gives each submodel's input the shape that the whole model has there, and connects it before the first
    inference, when a tensor of unknown shape is empty.

    Parameters
    ----------
    plan
        The stages.
    model
        The whole model with constants folded.
    """
    stage_of_op = {op: index for index, stage in enumerate(plan.stages) for op in stage.op_names}
    kinds = {op.get_friendly_name(): op.get_type_name() for op in model.get_ops()}
    left = {op: index for op, index in stage_of_op.items() if kinds.get(op, "Constant") != "Constant"}
    if not left:
        return
    shapes: dict[TensorKey, Any] = {}
    for part in split_model(model, left):
        part.model.validate_nodes_and_infer_types()  # without what was known in the whole model
        for key, port in zip(part.inputs, part.model.inputs, strict=True):
            known = shapes.get(key)
            if known is None:
                continue
            wanted = port.get_partial_shape()
            if known.rank.is_dynamic or any(
                before.is_dynamic and behind.is_static for before, behind in zip(known, wanted, strict=True)
            ):
                raise UnsupportedProblemError(
                    f"op {key[0]!r} in stage {plan.stages[stage_of_op[key[0]]].name!r} gets its shape from another "
                    f"device: its output is {known} there and {wanted} in the whole model, which HETERO cannot "
                    "connect; place what computes the shape on the same device, or run the stages one after another"
                )
        shapes |= {key: port.get_partial_shape() for key, port in zip(part.outputs, part.model.outputs, strict=True)}
