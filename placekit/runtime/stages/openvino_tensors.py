"""Tensors of OpenVINO: inputs of a sample that are checked against the model, copies, and numbers as arrays.

Checks of exports run one sample on the CPU in f32, wherever the model belongs, so that rounding does not hide a tensor
that was mixed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.split import TensorKey
from placekit.io.atomic import disk_error
from placekit.io.models.openvino_graph import short_reason
from placekit.model.errors import ExecutionError, InvalidProblemError, PlacekitError, UnsupportedProblemError
from placekit.runtime.stages.stage_plan import Inputs, in_order

if TYPE_CHECKING:
    import openvino

CPU_F32 = {"INFERENCE_PRECISION_HINT": "f32"}
"""Properties that models are compiled with, so that rounding does not hide a tensor that was mixed up."""


class InputReader:
    """Turns the inputs of a sample into tensors; an array that is contiguous is not copied.

    An input of the model goes by its friendly name or by any name of its tensor; messages call the model `name`.
    """

    def __init__(self, model: openvino.Model, name: str) -> None:
        self._name = name
        self._types = [port.get_element_type() for port in model.inputs]
        self._shapes = [port.get_partial_shape() for port in model.inputs]
        self._fixed = [None if port.get_partial_shape().is_dynamic else port.get_shape() for port in model.inputs]
        # what nearly every sample is made of, so that nothing more needs to be asked: [num_inputs] dtype and shape
        self._usual = [_numpy_type_and_shape(port) for port in model.inputs]
        self._names = [parameter.get_friendly_name() for parameter in model.get_parameters()]
        self._input_of_name: dict[str, int] = {}
        for index, port in enumerate(model.inputs):
            self._input_of_name |= dict.fromkeys((*port.get_names(), self._names[index]), index)

    def read(self, inputs: Inputs) -> list[openvino.Tensor]:
        """Return one tensor per input of the model, in its order."""
        given = in_order(inputs, self._name, self._names, self._input_of_name)
        return [self._tensor(index, value) for index, value in enumerate(given)]

    def _tensor(self, index: int, value: Any) -> openvino.Tensor:
        from openvino import PartialShape, Tensor

        usual = self._usual[index]
        if (
            usual is not None
            and isinstance(value, np.ndarray)
            and (value.dtype, value.shape) == usual
            and value.flags.c_contiguous
        ):
            return Tensor(value, shared_memory=True)
        expected, shape = self._types[index], self._shapes[index]
        fixed = self._fixed[index]
        if fixed is not None and isinstance(value, Tensor) and value.element_type == expected and value.shape == fixed:
            return value
        if isinstance(value, Tensor):
            tensor, kind = value, value.element_type.get_type_name()
        else:
            array = np.ascontiguousarray(value).reshape(np.shape(value))  # a scalar would become a vector
            kind = array.dtype.name
            # an empty array cannot be shared
            tensor = Tensor(array, shared_memory=array.size > 0) if array.dtype.kind in "biuf" else None
        if tensor is None or tensor.element_type != expected or not shape.compatible(PartialShape(list(tensor.shape))):
            raise InvalidProblemError(
                f"model {self._name!r}: input {self._names[index]!r} has type {kind} and shape "
                f"{list(np.shape(value) if tensor is None else tensor.shape)}; it must have type "
                f"{expected.get_type_name()} and shape {shape}"
            )
        return tensor


def _numpy_type_and_shape(port: Any) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return what an array for a port has; None where that is not fixed, nothing, or no numbers of numpy's."""
    from openvino import Type

    kind = port.get_element_type()
    dtype = kind.to_dtype()  # of bf16 that of f16, of packed types that of bytes
    if port.get_partial_shape().is_dynamic or dtype.kind not in "biuf" or Type(dtype) != kind:
        return None
    sizes = tuple(int(size) for size in port.get_shape())
    return (dtype, sizes) if all(sizes) else None


def copy_of(tensor: openvino.Tensor, slot: openvino.Tensor | None = None) -> openvino.Tensor:
    """Return a copy of a tensor, in `slot` if there is one."""
    from openvino import Tensor

    copy = Tensor(tensor.element_type, tensor.shape) if slot is None else slot
    tensor.copy_to(copy)
    return copy


def save_model(model: openvino.Model, path: Path, what: str) -> None:
    """Write a model as IR; a `PlacekitError` calls it `what`, and names the file and its bytes on a full disk."""
    from openvino import save_model

    try:
        save_model(model, path, compress_to_fp16=False)
    except RuntimeError as error:
        weights = sum(int(node.get_byte_size()) for node in model.get_ops() if node.get_type_name() == "Constant")
        full = disk_error(path.with_suffix(".bin"), weights)
        told = short_reason(error) if full is None else full.strerror
        raise PlacekitError(f"cannot write {what}: {told}") from error


def compiled_exactly(model: openvino.Model) -> openvino.CompiledModel:
    """Return a model that is compiled for the CPU in f32."""
    return shared_core().compile_model(model, "CPU", CPU_F32)


def run_once(model: openvino.Model, inputs: Sequence[openvino.Tensor]) -> list[Any]:
    """Return the outputs of a model for one sample, as arrays, on the CPU in f32."""
    return [array_of(tensor) for tensor in run_in_turn(compiled_exactly(model), [inputs])[0]]


def run_in_turn(
    compiled: openvino.CompiledModel, samples: Sequence[Sequence[openvino.Tensor]], stage: str = ""
) -> list[list[openvino.Tensor]]:
    """Return copies of the outputs for samples one after another, which share the states that the model keeps.

    `stage` is empty for the whole model.
    """
    found = []
    try:
        request = compiled.create_infer_request()
        for inputs in samples:
            for index, tensor in enumerate(inputs):
                request.set_input_tensor(index, tensor)
            request.infer(share_outputs=True)
            found.append([copy_of(request.get_output_tensor(index)) for index in range(len(compiled.outputs))])
    except RuntimeError as error:
        if not stage:
            raise
        raise ExecutionError(f"stage {stage!r} does not run on the CPU: {short_reason(error)}") from error
    return found


def probe_model(model: openvino.Model, keys: Sequence[TensorKey]) -> openvino.Model:
    """Return `model` with the tensors of `keys` as its outputs."""
    from openvino import Model
    from openvino import opset13 as opset

    work = model.clone()
    nodes = {op.get_friendly_name(): op for op in work.get_ops()}
    results = [opset.result(nodes[name].output(port)) for name, port in keys]
    return Model(results, work.get_sinks(), work.get_parameters(), f"{model.get_friendly_name()}.probe")


def array_of(tensor: openvino.Tensor) -> NDArray[Any]:
    """Return a copy of a tensor's numbers; numpy has no bf16, so it becomes f32."""
    kind = tensor.element_type.get_type_name()
    if kind == "string":
        raise UnsupportedProblemError("tensors of strings cannot be compared")
    if kind == "bf16":
        upper: NDArray[np.uint32] = tensor.data.view(np.uint16).astype(np.uint32) << 16
        return upper.view(np.float32)
    return np.array(tensor.data)
