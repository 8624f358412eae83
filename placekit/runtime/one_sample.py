"""One sample through a model of OpenVINO on the CPU in f32, wherever the model belongs: for checks of exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.inputs import filled_request
from placekit.cost_models.openvino.split import TensorKey
from placekit.io.openvino_graph import short_reason
from placekit.model.errors import ExecutionError, UnsupportedProblemError
from placekit.runtime.openvino_stages import copy_of

if TYPE_CHECKING:
    import openvino

__all__ = ["CPU_F32", "array_of", "probe_model", "run_compiled", "run_once"]

CPU_F32 = {"INFERENCE_PRECISION_HINT": "f32"}
"""What a model is compiled with, so that rounding does not hide a tensor that was mixed up."""


def run_once(model: openvino.Model, inputs: Sequence[openvino.Tensor]) -> list[Any]:
    """Return the outputs of a model for one sample, as arrays, on the CPU in f32."""
    return [array_of(tensor) for tensor in run_compiled(shared_core().compile_model(model, "CPU", CPU_F32), inputs)]


def run_compiled(
    compiled: openvino.CompiledModel, inputs: Sequence[openvino.Tensor], stage: str = ""
) -> list[openvino.Tensor]:
    """Return copies of the outputs, which outlive the compiled model; `stage` is empty for the whole model."""
    try:
        request = filled_request(compiled, inputs)
        request.infer(share_outputs=True)
    except RuntimeError as error:
        if not stage:
            raise
        raise ExecutionError(f"stage {stage!r} does not run on the CPU: {short_reason(error)}") from error
    return [copy_of(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]


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
