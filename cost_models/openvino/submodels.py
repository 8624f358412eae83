"""Seconds per fused group by timing one submodel per group: for devices without usable profiling counters.

The groups are those of the CPU plugin. Each becomes a model of its own, is compiled for the device and timed on the
values that really arrive there. Small groups come out a little slow, as the cost of a call can be subtracted only on
average, and a cut can hinder the device's own fusion across groups.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import Progress, report
from placekit.cost_models.kind_profile import KindProfile
from placekit.cost_models.openvino.compiling import compile_properties, compile_unbound
from placekit.cost_models.openvino.counters import read_counters
from placekit.cost_models.openvino.devices import refused_ops
from placekit.cost_models.openvino.groups import fuse, runtime_nodes
from placekit.cost_models.openvino.inputs import filled_request, idle_model, random_inputs
from placekit.cost_models.openvino.split import SubModel, TensorKey, model_input_keys, split_model
from placekit.model.graph import OpGraph

if TYPE_CHECKING:
    import openvino

_LOGGER = logging.getLogger(__name__)
_BOUNDARY = frozenset({"Parameter", "Result"})
_WARM_UPS = 2
_MIN_TIMED_S = 2e-3  # short groups are repeated for at least this long
_MAX_REPETITIONS = 200


def cpu_groups(core: openvino.Core, model: openvino.Model, graph: OpGraph, seed: int = 0) -> NDArray[np.int64]:
    """``[num_ops]`` fused groups of the CPU plugin, found by running `model` there once."""
    config = compile_properties("CPU", {"INFERENCE_PRECISION_HINT": "f32"}) | {"PERF_COUNT": True}
    compiled = core.compile_model(model, "CPU", config)
    request = filled_request(compiled, random_inputs(model, seed))
    request.infer()
    return fuse(graph, runtime_nodes(compiled, read_counters(request).keys())).op_group


def profile_submodels(
    core: openvino.Core,
    model: openvino.Model,
    graph: OpGraph,
    *,
    device: str,
    properties: Mapping[str, str],
    repetitions: int,
    seed: int = 0,
    progress: Progress | None = None,
) -> KindProfile:
    """Measure `model` on `device`, one submodel per group.

    The groups are those of `cpu_groups`; every group is timed `repetitions` times at least.
    """
    groups = cpu_groups(core, model, graph, seed)
    num_groups = int(groups.max()) + 1
    stages = split_model(model, dict(zip(graph.op_names, groups.tolist(), strict=True)))
    timer = _StageTimer(core, device, compile_properties(device, properties), repetitions)
    computing = [name for name, kind in zip(graph.op_names, graph.op_types, strict=True) if kind not in _BOUNDARY]
    unsupported = set(refused_ops(core, model, device, computing))
    readers = Counter(key for stage in stages for key in stage.inputs)
    values: dict[TensorKey, openvino.Tensor] = dict(
        zip(model_input_keys(model), random_inputs(model, seed), strict=True)
    )
    time_s, spread = np.zeros(num_groups), np.full(num_groups, np.nan)
    supported = np.ones(num_groups, dtype=bool)
    for done, stage in enumerate(stages, start=1):
        inputs = [values[key] for key in stage.inputs]
        measured = None if unsupported.intersection(stage.op_names) else timer.measure(stage, inputs)
        if measured is None:
            supported[stage.label] = False
            outputs = _run(core.compile_model(stage.model, "CPU"), inputs)
        else:
            samples_s, outputs = measured
            low, median, high = np.percentile(samples_s, [25, 50, 75])
            time_s[stage.label] = max(median - timer.call_overhead_s, 0.0)
            spread[stage.label] = (high - low) / median if median > 0 else np.nan
        values.update(zip(stage.outputs, outputs, strict=True))
        for key in stage.inputs:  # a tensor is dropped when its last reader has run
            readers[key] -= 1
            if not readers[key]:
                del values[key]
        report(progress, done, len(stages), f"groups on {device}")
    return KindProfile(
        op_group=groups,
        group_time_s=time_s,
        group_spread=spread,
        group_supported=supported,
        meta={
            "method": "submodels",
            "precision": properties.get("INFERENCE_PRECISION_HINT"),
            "inferences": repetitions,
            "submodels": len(stages),
            "unsupported_groups": int((~supported).sum()),
            "call_overhead_s": timer.call_overhead_s,
            "includes_transfer": not timer.has_device_memory and device != "CPU",
            "model_latency_s": timer.whole_model_s(model, seed),
            "sum_of_op_times_s": float(time_s.sum()),
            "mapped_share": 1.0,
        },
    )


def _run(compiled: openvino.CompiledModel, inputs: Sequence[openvino.Tensor]) -> list[openvino.Tensor]:
    """Run once and return the outputs, which stay valid when the compiled model is gone."""
    request = filled_request(compiled, inputs)
    request.infer()
    return [request.get_output_tensor(index) for index in range(len(compiled.outputs))]


class _StageTimer:
    """Times models on one device, with their tensors in the device's own memory where it has one.

    Parameters
    ----------
    core, device, config
        Where and how to compile.
    repetitions
        Least number of timed inferences.
    """

    def __init__(self, core: openvino.Core, device: str, config: Mapping[str, Any], repetitions: int) -> None:
        self._core, self._device, self._config, self._repetitions = core, device, dict(config), repetitions
        try:
            self._context = core.get_default_context(device)
        except RuntimeError:  # the CPU, for example, has none
            self._context = None
        self.call_overhead_s = self._call_overhead_s()

    @property
    def has_device_memory(self) -> bool:
        """Return True if tensors can be put into the device's memory, so that times exclude transfers."""
        return self._context is not None

    def measure(
        self, stage: SubModel, inputs: Sequence[openvino.Tensor]
    ) -> tuple[NDArray[np.float64], list[openvino.Tensor]] | None:
        """Return ``[num_inferences]`` seconds and the outputs in host memory; None if the device cannot run it."""
        try:
            return self._measure(stage.model, inputs)
        except RuntimeError as error:
            _LOGGER.info("device %s cannot run group %d (%s): %s", self._device, stage.label, stage.op_names[0], error)
            return None

    def whole_model_s(self, model: openvino.Model, seed: int) -> float | None:
        """Return the median seconds of the whole model; None if the device cannot run all of it."""
        try:
            return float(np.median(self._measure(model, random_inputs(model, seed))[0]))
        except RuntimeError:
            return None

    def _measure(
        self, model: openvino.Model, inputs: Sequence[openvino.Tensor]
    ) -> tuple[NDArray[np.float64], list[openvino.Tensor]]:
        from openvino import Tensor

        compiled = compile_unbound(self._core, model, self._device, self._config)
        request = filled_request(compiled, map(self._placed, inputs))
        outputs = []
        for index, port in enumerate(compiled.outputs):
            if self._context is not None and port.get_partial_shape().is_static:
                remote = self._context.create_tensor(port.get_element_type(), port.get_shape(), {})
                request.set_output_tensor(index, remote)
                outputs.append(remote)
        for _ in range(_WARM_UPS):
            request.infer()
        samples_s: list[float] = []
        while len(samples_s) < self._repetitions or (
            sum(samples_s) < _MIN_TIMED_S and len(samples_s) < _MAX_REPETITIONS
        ):
            start = time.perf_counter()
            request.infer()
            samples_s.append(time.perf_counter() - start)
        if len(outputs) < len(compiled.outputs):
            return np.array(samples_s), [request.get_output_tensor(i) for i in range(len(compiled.outputs))]
        host = [Tensor(each.get_element_type(), each.get_shape()) for each in outputs]
        for remote, tensor in zip(outputs, host, strict=True):
            remote.copy_to(tensor)
        return np.array(samples_s), host

    def _placed(self, tensor: openvino.Tensor) -> Any:
        """Return `tensor` in the device's memory, if it has one of its own."""
        if self._context is None:
            return tensor
        remote = self._context.create_tensor(tensor.get_element_type(), tensor.get_shape(), {})
        remote.copy_from(tensor)
        return remote

    def _call_overhead_s(self) -> float:
        """Return the seconds of a call that computes next to nothing."""
        model, number = idle_model()
        try:
            return float(np.median(self._measure(model, [number])[0]))
        except RuntimeError:
            return 0.0
