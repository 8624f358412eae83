"""Does a placement compute what the whole program computes? Compared at every tensor between stages.

As :mod:`placekit.runtime.output_check` does it, in the same units and with the same tolerances: the
program runs whole on the CPU with the tensors between stages as further outputs, then the stages run one after another,
every member of a team in its turn, and at last the executor itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from placekit.cost_models.pytorch.devices import RUN_FAILURES, computing_with, first_line
from placekit.model.errors import ExecutionError
from placekit.pytorch.inputs import random_inputs
from placekit.pytorch.needs import require_torch
from placekit.runtime.contenders import Executor
from placekit.runtime.tensor_checks import TOLERANCES, OutputCheck, TensorCheck
from placekit.runtime.tensor_errors import relative_errors
from placekit.runtime.torch_pipeline import CompiledTorchPlan, SerialTorch, to_array
from placekit.runtime.torch_runners import torch_pipeline
from placekit.runtime.torch_stages import TorchPlan

__all__ = ["check_torch_placement", "require_equal_torch_outputs"]

_SHORT = {"torch.float16": "f16", "torch.bfloat16": "bf16"}


def require_equal_torch_outputs(plan: TorchPlan, executor: Executor = "threads", *, seed: int = 0) -> OutputCheck:
    """Compare every tensor between stages, then the outputs of `executor`, with the whole program on the CPU.

    Parameters
    ----------
    plan
        The stages.
    executor
        ``"threads"``, or ``"serial"``, for which the stages one after another are all there is.
    seed
        Seed of the inputs.

    Returns
    -------
    OutputCheck
        Of the stages one after another.

    Raises
    ------
    OutputMismatchError
        A tensor differs, or an output does with this executor alone.
    PlacekitError
        The placement does not run.
    """
    return _compared(plan, executor, seed)


def check_torch_placement(plan: TorchPlan, *, seed: int = 0) -> OutputCheck:
    """Compare every tensor between stages with the whole program on the CPU, and say what differs by how much.

    Parameters
    ----------
    plan
        The stages; they run one after another.
    seed
        Seed of the inputs.

    Raises
    ------
    PlacekitError
        The placement does not run.
    """
    return _compared(plan, None, seed)


def _compared(plan: TorchPlan, executor: Executor | None, seed: int) -> OutputCheck:
    """Return what the stages one after another give; with an executor, raise where they or it give something else."""
    torch = require_torch("running a PyTorch program")
    program = plan.lowered.program
    inputs = random_inputs(program, seed)
    probed = [key for stage in plan.stages for key in stage.outputs]
    whole = plan.builder.part(
        range(plan.lowered.graph.num_ops), program.inputs, [*(name for name, _ in probed), *program.outputs]
    )
    # as many threads sum in another order: with one of its numbers of threads the program is the reference, and by what
    # it differs from itself with the others is allowed, too, as OpenVINO's own noise is
    counts = list(dict.fromkeys(len(device.cores) for device in plan.devices)) or [0]
    runs = []
    for count in counts:
        try:
            with torch.inference_mode(), computing_with(count):
                runs.append([(to_array(each), _precision(each)) for each in whole.forward(*inputs)])
        except RUN_FAILURES as error:
            raise ExecutionError(f"model {plan.name!r} does not run on cpu: {first_line(error)}") from error
    expected = [
        (array, precision, max(relative_errors(array, other[at][0])[0] for other in runs))
        for at, (array, precision) in enumerate(runs[0])
    ]
    cuts: list[TensorCheck] = []
    outputs: list[TensorCheck] = []
    stage_of = {key: stage for stage in plan.stages for key in stage.outputs}
    turns = 1 if plan.lowered.states else max((len(stage.members) for stage in plan.stages), default=1)
    with SerialTorch(CompiledTorchPlan(plan)) as serial:
        for turn in range(turns):
            found, _ = serial.run_traced(inputs, turn)
            for key, (array, precision, noise) in zip(probed, expected, strict=False):
                members = stage_of[key].members
                where = stage_of[key].name + (f" on {members[min(turn, len(members) - 1)].name}" if turns > 1 else "")
                if turn < len(members):
                    cuts.append(TensorCheck.compared(key[0], where, array, to_array(found[key]), precision, noise))
            arrays = {name: to_array(found[key]) for name, key in zip(plan.output_names, plan.output_keys, strict=True)}
            outputs += _outputs(plan, expected[len(probed) :], arrays)
    lowest = max((precision for _, precision, _ in expected), key=lambda each: TOLERANCES[each], default="f32")
    checked = OutputCheck("cpu", lowest, tuple(cuts), tuple(outputs))
    if executor is None:
        return checked
    checked.require_equal()
    if executor != "serial":
        with torch_pipeline(plan) as pipe:
            by_executor = _outputs(plan, expected[len(probed) :], pipe(inputs))
        OutputCheck("cpu", lowest, (), tuple(by_executor)).require_equal_by(executor)
    return checked


def _outputs(
    plan: TorchPlan, expected: list[tuple[NDArray[Any], str, float]], found: Mapping[str, NDArray[Any]]
) -> list[TensorCheck]:
    return [
        TensorCheck.compared(name, "", array, found[name], precision, noise)
        for name, (array, precision, noise) in zip(plan.output_names, expected, strict=True)
    ]


def _precision(tensor: Any) -> str:
    return _SHORT.get(str(tensor.dtype), "f32")
