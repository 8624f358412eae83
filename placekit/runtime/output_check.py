"""Does a placement compute what the model computes on one device? Compared at every tensor between stages.

The same seeded inputs go through the whole model and through the stages. Comparing outputs alone would miss errors
where outputs saturate (a softmax that is one-hot whatever goes in), so every tensor that leaves a stage is compared,
with the value that the whole model has there.

OpenVINO shows that value in a *probe*, the model with these tensors as outputs. The model's outputs are compared with
those of the model itself as well, because a probe is fused differently. In f32 what is allowed there is at least
twice what the probe and the model differ from each other (up to a hundred tolerances): a softmax of large numbers
makes much of the rounding before it, whoever computes it. A PyTorch program runs whole on the CPU, once with as many
threads as each of the devices has; by what it differs from itself is allowed in the same way.

What else is allowed is said in :mod:`placekit.runtime.tensor_checks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.compiling import compile_properties, compile_unbound
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.inputs import filled_request, random_inputs
from placekit.cost_models.openvino.layouts import axes_of_model, is_channels_last
from placekit.cost_models.openvino.machine import running_on
from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import ExecutionError, OutputMismatchError
from placekit.model.platform import Device
from placekit.runtime.pipelines.pipeline import Pipeline
from placekit.runtime.pipelines.serial import SerialExecutor
from placekit.runtime.stages.openvino_stages import CompiledPlan
from placekit.runtime.stages.openvino_tensors import array_of, probe_model
from placekit.runtime.stages.stage_plan import ReadyPlan, StagePlan
from placekit.runtime.stages.torch_stages import TorchModel, to_array
from placekit.runtime.tensor_checks import TOLERANCES, OutputCheck, TensorCheck, relative_errors
from placekit.runtime.timing.contenders import Executor

if TYPE_CHECKING:
    import openvino


def in_f32(plan: StagePlan) -> StagePlan:
    """Return the same stages on the same devices computing in f32, for checking the split apart from the precision."""

    def exact(device: Device) -> Device:
        return device.replace(properties={**device.properties, "INFERENCE_PRECISION_HINT": "f32"})

    return replace(
        plan, stages=tuple(replace(stage, members=tuple(map(exact, stage.members))) for stage in plan.stages)
    )


def require_equal_outputs(ready: ReadyPlan, executor: Executor, *, seed: int = 0) -> OutputCheck:
    """Compare every tensor between stages, then the outputs of `executor`, with the whole model on one device.

    Only running stages one after another shows the tensors between them, which the returned check is of.
    """
    whole = _whole_of(ready, None, seed)
    found = _compare_stages(ready, whole)
    found.require_equal()
    if executor != "serial":
        with Pipeline(ready) as run:
            arrays = run(whole.inputs)
        outputs = _checked(ready.plan, whole.outputs(with_noise=False), arrays)
        if not all(each.is_equal for each in outputs):  # only then the model's own noise is worth a compilation
            outputs = _checked(ready.plan, whole.outputs(with_noise=True), arrays)
        first = next((each for each in outputs if not each.is_equal), None)
        if first is not None:
            told = f"{first} with executor {executor}; with the stages one after another all tensors are equal"
            raise OutputMismatchError(told)
    return found


def check_placement(ready: ReadyPlan, *, inputs: Sequence[Any] | None = None, seed: int = 0) -> OutputCheck:
    """Run the stages one after another, and compare every tensor that leaves one with the whole model on one device.

    Where teams work, the same sample is run again until every member has had it. Without `inputs`, tensors of the
    model, they are random.
    """
    return _compare_stages(ready, _whole_of(ready, inputs, seed))


class _Expected(NamedTuple):
    """Expected value of a tensor, its precision, and the noise of the whole model between two runs."""

    array: NDArray[Any]
    precision: str
    noise: float


def _whole_of(ready: ReadyPlan, inputs: Sequence[Any] | None, seed: int) -> _WholeModel | _WholeProgram:
    plan = ready.plan
    if isinstance(plan.model, TorchModel):
        return _WholeProgram(plan, inputs, seed)
    assert isinstance(ready, CompiledPlan)
    precisions = [_precision(each) for models in ready.compiled for each in models]
    given = random_inputs(plan.model, seed) if inputs is None else inputs
    return _WholeModel(plan, precisions, given)


def _compare_stages(ready: ReadyPlan, whole: _WholeModel | _WholeProgram) -> OutputCheck:
    plan, runs = ready.plan, []
    for turn in range(plan.num_turns):
        with SerialExecutor(ready, turn=turn) as executor:
            runs.append(executor.run_tensors(whole.inputs))
    stage_of = {key: stage for stage in plan.stages for key in stage.outputs}
    tensors, expected = whole.tensors(), whole.outputs(with_noise=True)
    cuts: list[TensorCheck] = []
    outputs: list[TensorCheck] = []
    for turn, found in enumerate(runs):
        for key, each in tensors.items():
            stage = stage_of[key]
            if turn < len(stage.members):  # the others have had their turn
                where = stage.name + (f" on {stage.members[turn].name}" if len(stage.members) > 1 else "")
                mine = whole.numbers(key, found[key])
                name = f"{key[0]}:{key[1]}"
                cuts.append(TensorCheck.compared(name, where, each.array, mine, each.precision, each.noise))
        arrays = {
            name: whole.numbers(key, found[key]) for name, key in zip(plan.output_names, plan.output_keys, strict=True)
        }
        outputs += _checked(plan, expected, arrays)
    return OutputCheck(whole.device_name, whole.precision, tuple(cuts), tuple(outputs))


def _checked(plan: StagePlan, expected: Sequence[_Expected], found: Mapping[str, NDArray[Any]]) -> list[TensorCheck]:
    return [
        TensorCheck.compared(name, "", each.array, np.asarray(found[name]), each.precision, each.noise)
        for name, each in zip(plan.output_names, expected, strict=True)
    ]


class _WholeModel:
    """A model through OpenVINO, on the first device of the plan that computes in f32, else the first."""

    def __init__(self, plan: StagePlan, precisions: Sequence[str], inputs: Sequence[openvino.Tensor]) -> None:
        self.inputs = inputs
        self._plan, self._core = plan, shared_core()
        exact = (each for each in plan.devices if each.properties.get("INFERENCE_PRECISION_HINT") == "f32")
        cpu = Device("CPU", "CPU", openvino="CPU", properties={"INFERENCE_PRECISION_HINT": "f32"})
        self._device = next(exact, next(iter(plan.devices), cpu))
        self.device_name, self._target = self._device.name, self._device.openvino or ""
        # compiled in advance, because its precision decides on the tolerance
        self._model = self._compile(plan.model)
        self.precision = max((*precisions, _precision(self._model)), key=lambda each: TOLERANCES.get(each, 0.0))
        self._turned = {
            key
            for stage in plan.stages
            for key, port in zip(stage.outputs, stage.model.outputs, strict=True)
            if is_channels_last(port)
        }
        self._tensors: dict[TensorKey, _Expected] | None = None
        self._outputs: list[NDArray[Any]] | None = None

    def tensors(self) -> Mapping[TensorKey, _Expected]:
        """Return what every tensor that leaves a stage should be, in topological order."""
        if self._tensors is None:
            rank = {op.get_friendly_name(): at for at, op in enumerate(self._plan.model.get_ordered_ops())}
            keys = [key for stage in self._plan.stages for key in sorted(stage.outputs, key=lambda k: rank[k[0]])]
            arrays = self._run(self._compile(probe_model(self._plan.model, keys))) if keys else []
            self._tensors = {
                key: _Expected(array, self.precision, 0.0) for key, array in zip(keys, arrays, strict=True)
            }
        return self._tensors

    def outputs(self, *, with_noise: bool) -> list[_Expected]:
        """Return what the outputs should be; by what they differ from themselves may cost another compilation."""
        if self._outputs is None:
            self._outputs = self._run(self._model)
        probed = self.tensors() if with_noise else {}
        # an output that no stage computes, an input passed through, is in no probe: no noise is known
        noises = [
            relative_errors(array, probed[key].array)[0] if key in probed else 0.0
            for key, array in zip(self._plan.output_keys, self._outputs, strict=True)
        ]
        return [_Expected(array, self.precision, noise) for array, noise in zip(self._outputs, noises, strict=True)]

    def numbers(self, key: TensorKey, tensor: openvino.Tensor) -> NDArray[Any]:
        """Return a copy of the numbers of a tensor that a stage gave, with the axes of the model."""
        found = array_of(tensor)
        return axes_of_model(found, self.tensors()[key].array.shape) if key in self._turned else found

    def _compile(self, model: openvino.Model) -> openvino.CompiledModel:
        try:
            properties = compile_properties(self._target, self._device.properties)
            return compile_unbound(self._core, model, self._target, properties)
        except RuntimeError as error:
            raise ExecutionError(f"model {self._plan.name!r} does not run on {self.device_name!r}: {error}") from error

    def _run(self, compiled: openvino.CompiledModel) -> list[NDArray[Any]]:
        request = filled_request(compiled, self.inputs)
        with running_on(self._device.cores):
            try:
                request.infer(share_outputs=True)
            except RuntimeError as error:
                raise ExecutionError(f"model {self._plan.name!r} fails on {self.device_name!r}: {error}") from error
        return [array_of(request.get_output_tensor(index)) for index in range(len(compiled.outputs))]


class _WholeProgram:
    """A PyTorch program on the CPU."""

    _SHORT: Mapping[str, str] = {"torch.float16": "f16", "torch.bfloat16": "bf16"}
    device_name = "cpu"

    def __init__(self, plan: StagePlan, inputs: Sequence[Any] | None, seed: int) -> None:
        from placekit.cost_models.pytorch.devices import RUN_FAILURES, computing_with, first_line
        from placekit.io.needs import require_torch
        from placekit.pytorch.module import random_inputs as random_program_inputs

        torch = require_torch("running a PyTorch program")
        lowered, builder = plan.model.lowered, plan.model.builder
        program = lowered.program
        self.inputs = random_program_inputs(program, seed) if inputs is None else inputs
        self._keys = [key for stage in plan.stages for key in stage.outputs]
        names = [*(name for name, _ in self._keys), *program.outputs]
        whole = builder.part(range(lowered.graph.num_ops), program.inputs, names)
        # as many threads sum in another order: with one of its numbers of threads the program is the reference
        runs = []
        for count in list(dict.fromkeys(len(device.cores) for device in plan.devices)) or [0]:
            try:
                with torch.inference_mode(), computing_with(count):
                    runs.append([(to_array(each), str(each.dtype)) for each in whole.forward(*self.inputs)])
            except RUN_FAILURES as error:
                raise ExecutionError(f"model {plan.name!r} does not run on cpu: {first_line(error)}") from error
        self._expected = [
            _Expected(
                array, self._SHORT.get(dtype, "f32"), max(relative_errors(array, other[at][0])[0] for other in runs)
            )
            for at, (array, dtype) in enumerate(runs[0])
        ]
        found = (each.precision for each in self._expected)
        self.precision = max(found, key=lambda each: TOLERANCES[each], default="f32")

    def tensors(self) -> Mapping[TensorKey, _Expected]:
        return dict(zip(self._keys, self._expected, strict=False))

    def outputs(self, *, with_noise: bool) -> list[_Expected]:  # noqa: ARG002
        return self._expected[len(self._keys) :]

    def numbers(self, key: TensorKey, tensor: Any) -> NDArray[Any]:  # noqa: ARG002
        return to_array(tensor)


def _precision(compiled: openvino.CompiledModel) -> str:
    """Return what a compiled model computes in; f32 if it does not say."""
    try:
        return str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    except (RuntimeError, AttributeError):
        return "f32"
