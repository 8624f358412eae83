"""Check of an export: it is read back, and runs one sample as the whole model does.

What is checked is the split and the files, so everything runs on the CPU in f32, wherever the stages belong: devices
that are not here need not be, and rounding does not hide a tensor that was mixed up. One stage is compiled or loaded
at a time. Stages of PyTorch are loaded by the script in the folder and hand over what the script sends, so that only
the transport between processes is left out.
"""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.layouts import axes_of_model, is_channels_last
from placekit.io.models.openvino_graph import short_reason
from placekit.model.errors import ExecutionError, OutputMismatchError, UnsupportedProblemError
from placekit.runtime.bundles.bundle import read_bundle, read_manifest
from placekit.runtime.bundles.manifest import Manifest
from placekit.runtime.bundles.torch_bundle import SCRIPT
from placekit.runtime.stages.openvino_tensors import array_of, compiled_exactly, probe_model, run_in_turn, run_once
from placekit.runtime.stages.stage_plan import PlacedStage, StagePlan
from placekit.runtime.stages.torch_stages import TorchModel, to_array
from placekit.runtime.tensor_checks import MOST_ERROR, relative_errors, require_alike

if TYPE_CHECKING:
    import openvino

CheckProgress = Callable[[int, int, str], None]
"""Takes the number of steps done, of all steps, and what they are."""


def check_bundle(
    plan: StagePlan,
    folder: str | Path,
    progress: CheckProgress | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """Read a bundle back, run one seeded sample through its stages, and return what was checked.

    `plan` has the stages that were written, with the whole model. A model that keeps states gets three samples in a
    row. Open shapes of inputs are those of `shapes`, by name.
    """
    progress = progress or (lambda _done, _total, _what: None)
    read, _ = read_bundle(folder)
    if isinstance(plan.model, TorchModel):
        return _check_script(plan, read_manifest(folder), Path(folder) / SCRIPT, progress)
    keys = [key for stage in plan.stages for key in stage.outputs]
    steps = len(read.stages) + 1
    progress(0, steps, "stages checked")
    probed, turns = probe_model(plan.model, keys), 3 if plan.model.get_variables() else 1
    try:
        samples = [random_inputs(plan.model, seed, shapes) for seed in range(turns)]
        whole = run_in_turn(compiled_exactly(probed), samples) if keys else [[] for _ in samples]
    except (UnsupportedProblemError, RuntimeError) as error:
        for done, stage in enumerate(read.stages, start=2):
            _compiled(stage)
            progress(done, steps, "stages checked")
        return f"read back, {len(read.stages)} stages compiled on the CPU; not run: {short_reason(error)}"
    expected = [dict(zip(keys, map(array_of, outputs), strict=True)) for outputs in whole]
    readers = Counter(key for stage in read.stages for key in stage.inputs)
    tensors: list[dict[Any, openvino.Tensor]] = [dict(zip(read.input_keys, inputs, strict=True)) for inputs in samples]
    for done, stage in enumerate(read.stages, start=2):
        given = [[each[key] for key in stage.inputs] for each in tensors]
        for turn, outputs in enumerate(run_in_turn(_compiled(stage), given, stage.name)):
            for key, tensor, port in zip(stage.outputs, outputs, stage.model.outputs, strict=True):
                true, found = expected[turn][key], array_of(tensor)
                found = axes_of_model(found, true.shape) if is_channels_last(port) else found
                try:
                    require_alike(f"stage {stage.name!r}: its output {key[0]!r}", true, found)
                except OutputMismatchError:
                    if turn or _is_repeatable(plan, key, samples[0], true):
                        raise
                tensors[turn][key] = tensor
        readers -= Counter(stage.inputs)
        tensors = [{key: tensor for key, tensor in each.items() if readers[key]} for each in tensors]
        progress(done, steps, "stages checked")
    what = "one sample" if turns == 1 else f"{turns} samples in a row"
    return f"read back, {what} run through {len(read.stages)} stages on the CPU: outputs as the whole model's"


def _compiled(stage: PlacedStage) -> openvino.CompiledModel:
    try:
        return compiled_exactly(stage.model)
    except RuntimeError as error:
        raise ExecutionError(f"stage {stage.name!r} cannot be compiled on the CPU: {short_reason(error)}") from error


def _is_repeatable(plan: StagePlan, key: Any, inputs: Sequence[openvino.Tensor], expected: Any) -> bool:
    """Return True if the model repeats a tensor exactly; a model with unseeded random numbers does not."""
    (again,) = run_once(probe_model(plan.model, [key]), inputs)
    return relative_errors(np.asarray(expected), again)[1] <= MOST_ERROR


def _check_script(plan: StagePlan, manifest: Manifest, script: Path, progress: CheckProgress) -> str:
    """Call the stages of a PyTorch bundle in turn, as its script loads them."""
    from placekit.cost_models.pytorch.devices import first_line
    from placekit.io.needs import require_torch
    from placekit.pytorch.module import random_inputs as random_program_inputs

    torch = require_torch("checking a bundle of PyTorch")
    load_stage = runpy.run_path(str(script), run_name="check")["load_stage"]
    program, stages = plan.model.lowered.program, manifest.stages
    inputs = random_program_inputs(program)
    names = list(dict.fromkeys(each.op for stage in stages for each in stage.outputs))
    with torch.no_grad():
        whole = plan.model.builder.part(range(plan.model.lowered.graph.num_ops), program.inputs, names)
        expected = dict(zip(names, whole.forward(*(each.clone() for each in inputs)), strict=True))
        sent: Any = [each.unsqueeze(0) for each in inputs]
        for done, stage in enumerate(stages, start=1):
            try:
                sent = load_stage(stage.model_dump(), torch.device("cpu"), done == len(stages))(*sent)
            except Exception as error:  # whatever an operator raises
                reason = first_line(error)
                raise ExecutionError(f"stage {stage.name!r} does not run on the CPU: {reason}") from error
            for output, tensor in zip(stage.outputs, sent, strict=True):
                if not tensor[0].is_contiguous():
                    raise OutputMismatchError(
                        f"stage {stage.name!r}: {output.op!r} is not contiguous, and cannot be sent"
                    )
                pair = map(to_array, (_real(expected[output.op]), _real(tensor[0])))
                require_alike(f"stage {stage.name!r}: its output {output.op!r}", *pair)
            progress(done, len(stages), "stages checked")
    return f"read back, one sample run through {len(stages)} stages on the CPU: outputs as the whole model's"


def _real(tensor: Any) -> Any:
    from placekit.io.needs import require_torch

    torch = require_torch("checking a bundle of PyTorch")
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
