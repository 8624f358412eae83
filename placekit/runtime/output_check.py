r"""Does a placement compute what the model computes on one device? Compared at every tensor between stages.

The same seeded inputs go through the model on one device and through the stages. Comparing outputs alone would miss
errors where outputs saturate (a softmax that is one-hot whatever goes in), so every tensor that leaves a stage is
compared, with the value that the whole model has there: a *probe*, the model with these tensors as outputs. The
model's outputs are compared with those of the model itself as well, because a probe is fused differently. In f32 what
is allowed there is at least twice what the probe and the model differ from each other (up to a hundred tolerances): a
softmax of large numbers makes much of the rounding before it, whoever computes it.

What is allowed is said in :mod:`placekit.runtime.tensor_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import require_device, shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.layouts import axes_of_model, is_channels_last
from placekit.cost_models.openvino.machine import running_on
from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import DeviceUnavailableError, ExecutionError, UnsupportedProblemError
from placekit.model.platform import Device
from placekit.runtime.compiled_plan import CompiledPlan
from placekit.runtime.serial import SerialExecutor
from placekit.runtime.stages import StagePlan
from placekit.runtime.tensor_checks import TOLERANCES, OutputCheck, TensorCheck
from placekit.runtime.tensor_errors import relative_errors

if TYPE_CHECKING:
    import openvino

__all__ = ["array_of", "check_outputs", "check_placement", "in_f32", "probe_model"]


def in_f32(plan: StagePlan) -> StagePlan:
    """Return the same stages on the same devices computing in f32, for checking the split apart from the precision."""
    stages = []
    for stage in plan.stages:
        members = tuple(
            each.replace(properties={**each.properties, "INFERENCE_PRECISION_HINT": "f32"}) for each in stage.members
        )
        stages.append(replace(stage, members=members))
    return replace(plan, stages=tuple(stages))


def check_placement(
    compiled: CompiledPlan,
    *,
    reference: Device | None = None,
    inputs: Sequence[openvino.Tensor] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    core: openvino.Core | None = None,
) -> OutputCheck:
    """Run the stages one after another, and compare every tensor that leaves one with the whole model on one device.

    Where teams work, the same sample is run again until every member has had it.

    Parameters
    ----------
    compiled
        The stages, compiled.
    reference
        Device of the whole model; None for the first of the plan that computes in f32, else the first.
    inputs
        One tensor per input of the model; None for `random_inputs` with `seed`.
    seed
        Seed of the inputs.
    tolerance
        Largest error allowed; None for what the precision allows, see `TOLERANCES`.
    core
        OpenVINO core; the shared one if None.

    Returns
    -------
    OutputCheck
        What differs by how much; `OutputCheck.require_equal` turns it into an error.

    Raises
    ------
    UnsupportedProblemError
        Inputs of strings, or of unknown shape without `inputs`.
    ExecutionError
        The model or a stage that does not run.
    DeviceUnavailableError
        A reference that this machine does not have.
    """
    plan, core = compiled.plan, core or shared_core()
    inputs = random_inputs(plan.model, seed) if inputs is None else inputs
    runs = []
    for turn in range(compiled.num_turns):
        with SerialExecutor(compiled.turn(turn)) as executor:
            runs.append(executor.run_tensors(inputs))
    precisions = [_precision(stage.compiled) for stage in compiled.stages]
    whole = _Whole(plan, reference, precisions, core)
    turned = {
        key
        for stage in plan.stages
        for key, port in zip(stage.outputs, stage.model.outputs, strict=True)
        if is_channels_last(port)
    }
    stage_of, probed = whole.probe(inputs)
    members = {stage.name: [device.name for device in stage.members] for stage in plan.stages}
    cuts: list[TensorCheck] = []
    outputs: list[TensorCheck] = []
    for turn, found in enumerate(runs):
        for key, expected in probed.items():
            names = members[stage_of[key]]
            if turn < len(names):  # the others have had their turn
                mine = array_of(found[key])
                mine = axes_of_model(mine, expected.shape) if key in turned else mine
                where = stage_of[key] + (f" on {names[turn]}" if len(names) > 1 else "")
                cuts.append(whole.check(f"{key[0]}:{key[1]}", where, expected, mine, tolerance))
        outputs += whole.check_outputs([array_of(found[key]) for key in plan.output_keys], inputs, probed, tolerance)
    return OutputCheck(whole.device.name, whole.precision, tuple(cuts), tuple(outputs))


def check_outputs(
    plan: StagePlan,
    run: Callable[[Sequence[openvino.Tensor]], Mapping[str, NDArray[Any]]],
    *,
    precisions: Sequence[str],
    reference: Device | None = None,
    inputs: Sequence[openvino.Tensor] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    core: openvino.Core | None = None,
) -> OutputCheck:
    """Compare only the outputs, of whatever runs the placement: HETERO, a pipeline.

    Parameters
    ----------
    plan
        The stages, for the whole model and the names of its outputs.
    run
        Takes one tensor per input and returns the outputs by name.
    precisions
        What its devices compute in.
    reference, inputs, seed, tolerance, core
        As for `check_placement`, which also lists what is raised.
    """
    inputs = random_inputs(plan.model, seed) if inputs is None else inputs
    whole = _Whole(plan, reference, precisions, core or shared_core())
    found = run(inputs)
    arrays = [np.asarray(found[name]) for name in plan.output_names]
    checks = whole.check_outputs(arrays, inputs, {}, tolerance)
    if not all(each.is_equal for each in checks):  # only then the model's own noise is worth another compilation
        _, probed = whole.probe(inputs)
        checks = whole.check_outputs(arrays, inputs, probed, tolerance)
    return OutputCheck(whole.device.name, whole.precision, (), checks)


class _Whole:
    """The whole model on one device, and the lowest precision among it and what it is compared with."""

    def __init__(
        self, plan: StagePlan, reference: Device | None, precisions: Sequence[str], core: openvino.Core
    ) -> None:
        self._plan, self._core = plan, core
        exact = (each for each in plan.devices if each.properties.get("INFERENCE_PRECISION_HINT") == "f32")
        cpu = Device("CPU", "CPU", openvino="CPU", properties={"INFERENCE_PRECISION_HINT": "f32"})
        self.device = reference or next(exact, next(iter(plan.devices), cpu))
        self._target = self.device.openvino or ""
        if not self._target:
            raise DeviceUnavailableError(f"device {self.device.name!r} names no OpenVINO device, so it cannot run")
        require_device(self._target, core)
        # compiled in advance, because its precision decides on the tolerance
        self._model = self._compile(plan.model)
        self.precision = max((*precisions, _precision(self._model)), key=lambda each: TOLERANCES.get(each, 0.0))

    def _compile(self, model: openvino.Model) -> openvino.CompiledModel:
        try:
            properties = compile_properties(self._target, self.device.properties)
            return self._core.compile_model(model, self._target, properties)
        except RuntimeError as error:
            raise ExecutionError(f"model {self._plan.name!r} does not run on {self.device.name!r}: {error}") from error

    def probe(self, inputs: Sequence[openvino.Tensor]) -> tuple[dict[TensorKey, str], dict[TensorKey, NDArray[Any]]]:
        """Return the tensors that leave a stage, in topological order: by which stage, and what they should be."""
        rank = {op.get_friendly_name(): at for at, op in enumerate(self._plan.model.get_ordered_ops())}
        stage_of = {
            key: stage.name for stage in self._plan.stages for key in sorted(stage.outputs, key=lambda k: rank[k[0]])
        }
        return stage_of, dict(zip(stage_of, self.run(tuple(stage_of), inputs), strict=True))

    def check(
        self,
        name: str,
        stage: str,
        expected: NDArray[Any],
        found: NDArray[Any],
        tolerance: float | None,
        noise: float = 0.0,
    ) -> TensorCheck:
        """Compare one tensor; a `tolerance` that is given is for the largest error, and `noise` raises it in f32."""
        if tolerance is not None:
            return TensorCheck(name, stage, *relative_errors(expected, found), tolerance)
        return TensorCheck.compared(name, stage, expected, found, self.precision, noise)

    def check_outputs(
        self,
        found: Sequence[NDArray[Any]],
        inputs: Sequence[openvino.Tensor],
        probed: Mapping[TensorKey, NDArray[Any]],
        tolerance: float | None,
    ) -> tuple[TensorCheck, ...]:
        """Compare the model's outputs with those of the model itself."""
        checks = []
        for key, name, expected, mine in zip(
            self._plan.output_keys, self._plan.output_names, self.run(None, inputs), found, strict=True
        ):
            # an output that no stage computes, an input passed through, is in no probe: no noise is known
            noise = relative_errors(expected, probed.get(key, expected))[0]
            checks.append(self.check(name, "", expected, mine, tolerance, noise))
        return tuple(checks)

    def run(self, keys: Sequence[TensorKey] | None, inputs: Sequence[openvino.Tensor]) -> list[NDArray[Any]]:
        """Return the tensors of `keys`, or the model's outputs, of the whole model."""
        if keys is not None and not keys:
            return []
        compiled = self._model if keys is None else self._compile(probe_model(self._plan.model, keys))
        request = compiled.create_infer_request()
        for index, tensor in enumerate(inputs):
            request.set_input_tensor(index, tensor)
        with running_on(self.device.cores):
            try:
                request.infer(share_outputs=True)
            except RuntimeError as error:
                raise ExecutionError(f"model {self._plan.name!r} fails on {self.device.name!r}: {error}") from error
        return [array_of(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]


def probe_model(model: openvino.Model, keys: Sequence[TensorKey]) -> openvino.Model:
    """Return `model` with the tensors of `keys` as its outputs."""
    from openvino import Model
    from openvino import opset13 as opset

    work = model.clone()
    nodes = {op.get_friendly_name(): op for op in work.get_ops()}
    results = [opset.result(nodes[name].output(port)) for name, port in keys]
    return Model(results, work.get_sinks(), work.get_parameters(), f"{model.get_friendly_name()}.probe")


def _precision(compiled: openvino.CompiledModel) -> str:
    """Return what a compiled model computes in; f32 if it does not say."""
    try:
        return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    except (RuntimeError, AttributeError):
        return "f32"


def array_of(tensor: openvino.Tensor) -> NDArray[Any]:
    """Return a copy of a tensor's numbers; numpy has no bf16, so it becomes f32."""
    kind = tensor.element_type.get_type_name()
    if kind == "string":
        raise UnsupportedProblemError("tensors of strings cannot be compared")
    if kind == "bf16":
        upper: NDArray[np.uint32] = tensor.data.view(np.uint16).astype(np.uint32) << 16
        return upper.view(np.float32)
    return np.array(tensor.data)
