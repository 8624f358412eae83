"""A placement left to OpenVINO's HETERO plugin, which cuts the model by itself where the device of a node changes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import numpy as np

from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import refused_ops, require_device, shared_core
from placekit.cost_models.openvino.machine import format_cores, usable_cores
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

__all__ = ["HeteroExecutor", "hetero_devices"]


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

    Before anything is compiled it is checked that HETERO can tell the devices apart, and that every device supports
    the ops placed on it. Devices that wait for each other in a circle run as several submodels each.

    Parameters
    ----------
    plan
        The stages. HETERO cuts anew, in places of its own where a device has several turns.
    core
        OpenVINO core; the shared one if None.

    Raises
    ------
    UnsupportedProblemError
        A core group, two devices of one OpenVINO name, an op that its device does not support, or a model that
        computes nothing.
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
        set_affinities(model, {op: targets[stage.device.name] for stage in plan.stages for op in stage.op_names})
        self.target = f"HETERO:{','.join(targets.values())}"
        properties = {
            targets[each.name]: compile_properties(targets[each.name], each.properties) for each in plan.devices
        }
        try:
            self._compiled = core.compile_model(model, self.target, {"DEVICE_PROPERTIES": properties})
        except RuntimeError as error:
            raise ExecutionError(f"model {plan.name!r} cannot be compiled for {self.target}: {error}") from error
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


def _check_supported(stage: PlacedStage, names: set[str], target: str, core: openvino.Core) -> None:
    """Refuse an op (one of `names`: the others are folded away) that the device says it does not support."""
    refused = refused_ops(core, stage.model, target, [op for op in stage.op_names if op in names])
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise UnsupportedProblemError(
            f"op {refused[0]!r}{more} is placed on {stage.device.name!r}, but {target} does not support it"
        )
