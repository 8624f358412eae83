"""Cost of a cut on a CPU: calls of stages, and tensors that change their layout at the border.

Stages of a CPU pass tensors on in memory, without a copy. But between them a tensor has the form that OpenVINO
promises, f32 numbers in the model's order, and inside the form that the plugin likes: bf16 numbers, images with their
channels last. Where these differ, and :mod:`placekit.cost_models.openvino.layouts` cannot help, the stage converts what
it takes and what it gives. Three small models tell how long that takes; no split of the model itself is measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.kind_profile import KindProfile
from placekit.cost_models.openvino.compiling import compile_properties, compile_unbound
from placekit.cost_models.openvino.counters import deaverage, read_counters
from placekit.cost_models.openvino.inputs import idle_model
from placekit.cost_models.openvino.layouts import FLOATS, hand_over_channels_last, images, images_for_convolutions
from placekit.model.graph import OpGraph

if TYPE_CHECKING:
    import openvino

_CONVERSIONS = frozenset({"Convert", "Reorder", "Transpose"})
_IMAGE = (1, 64, 112, 112)  # more than a core's own cache holds, as what another core has written is not in it
_WARM_UPS, _REPETITIONS, _CALLS = 2, 12, 50
_MICROSECOND_S = 1e-6


@dataclass(frozen=True, slots=True)
class HandOver:
    """Seconds that a stage on a CPU takes besides its ops.

    Parameters
    ----------
    image_s_per_byte
        Per byte of an image that enters or leaves in the model's order.
    other_s_per_byte
        Per byte of any other tensor of floating-point numbers, and of an image with its channels last.
    call_s
        Per call of a stage.
    """

    image_s_per_byte: float
    other_s_per_byte: float
    call_s: float

    def tensor_time_s(self, model: openvino.Model, graph: OpGraph) -> NDArray[np.float64]:
        """``[num_tensors]`` seconds for every tensor where it leaves a stage, and where it enters one.

        The model's inputs count nothing: their conversion is part of the ops that read them.
        """
        as_they_are = images(model) - images_for_convolutions(model)
        s_per_byte = np.zeros(graph.num_ops)
        for node in model.get_ops():
            op, name = graph.op_index.get(node.get_friendly_name()), node.get_friendly_name()
            if op is None or node.get_type_name() == "Parameter":
                continue
            kinds = {port.get_element_type().get_type_name() for port in node.outputs()}
            if any((name, port) in as_they_are for port in range(node.get_output_size())):
                s_per_byte[op] = self.image_s_per_byte
            elif kinds & FLOATS:
                s_per_byte[op] = self.other_s_per_byte
        return s_per_byte[graph.tensor_producer] * graph.tensor_bytes


def with_hand_over(
    core: openvino.Core, model: openvino.Model, graph: OpGraph, properties: Mapping[str, str], profile: KindProfile
) -> KindProfile:
    """Return a profile of a CPU with what stages cost besides their ops.

    What lies between the nodes of a whole inference, less one call, is shared out among the ops: the counters miss it,
    and in models of a few milliseconds it is up to a tenth.
    """
    found = measure_hand_over(core, "CPU", properties)
    sum_s = float(profile.group_time_s.sum())
    more_s = max(profile.meta.get("between_ops_s", 0.0) - found.call_s, 0.0)
    scale = 1 + more_s / sum_s if sum_s > 0 else 1.0
    return replace(
        profile,
        group_time_s=profile.group_time_s * scale,
        tensor_time_s=found.tensor_time_s(model, graph),
        meta={**profile.meta, **asdict(found), "scaled_by": scale},
    )


def measure_hand_over(core: openvino.Core, device: str, properties: Mapping[str, str]) -> HandOver:
    """Measure on `device`, a CPU, compiled with `properties`, in the calling thread."""
    config = compile_properties(device, properties)
    (model, given), (_, taken) = idle_model(), idle_model()
    request = compile_unbound(core, model, device, config).create_infer_request()
    calls_s = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        request.set_input_tensor(0, given)  # as a stage is called
        request.set_output_tensor(0, taken)
        request.infer(share_outputs=True)
        calls_s.append(time.perf_counter() - start)
    num_bytes = 2 * 4 * float(np.prod(_IMAGE))  # in and out
    image_s, turned_s = (
        _conversions_s(compile_unbound(core, _convolution(is_turned=each), device, config | {"PERF_COUNT": True}))
        for each in (False, True)
    )
    return HandOver(image_s / num_bytes, turned_s / num_bytes, float(np.median(calls_s)))


def _convolution(*, is_turned: bool) -> openvino.Model:
    """Return a convolution of an image that comes and goes in the model's order, or with its channels last."""
    from openvino import Model, Type
    from openvino import opset13 as opset

    image = opset.parameter(_IMAGE, Type.f32)
    channels = _IMAGE[1]
    weights = opset.constant(np.full((channels, channels, 1, 1), 0.01, dtype=np.float32))
    out = opset.relu(opset.convolution(image, weights, [1, 1], [0, 0], [0, 0], [1, 1]))
    model = Model([opset.result(out)], [image], "image")
    if is_turned:
        keys = [("image", 0), ("out", 0)]
        hand_over_channels_last(model, (keys[0],), (keys[1],), keys)
    return model


def _conversions_s(compiled: openvino.CompiledModel) -> float:
    """Return the seconds that all conversions of an undisturbed inference take together."""
    request = compiled.create_infer_request()
    readings = []
    for count in range(_WARM_UPS + _REPETITIONS):
        request.infer(share_outputs=True)
        if count >= _WARM_UPS - 1:
            readings.append(read_counters(request))
    converts = {each.node_name for each in request.get_profiling_info() if each.node_type in _CONVERSIONS}
    names, time_us = deaverage(readings, _WARM_UPS)
    chosen = time_us[:, [index for index, name in enumerate(names) if name in converts]]
    return max(float(np.percentile(chosen.sum(axis=1), 25)), 0.0) * _MICROSECOND_S
