"""Check of what an export has written: it is read back, and runs one sample as the whole model does.

What is checked is the split and the files, so everything runs on the CPU in f32, wherever the stages belong: devices
that are not here need not be, and rounding does not hide a tensor that was mixed up. One stage is compiled at a time,
after the whole model is gone again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.inputs import random_inputs
from placekit.cost_models.openvino.layouts import axes_of_model, is_channels_last
from placekit.io.openvino_graph import short_reason
from placekit.model.errors import ExecutionError, OutputMismatchError, UnsupportedProblemError
from placekit.runtime.bundle import read_bundle
from placekit.runtime.one_sample import CPU_F32, array_of, probe_model, run_compiled, run_once
from placekit.runtime.stages import PlacedStage, StagePlan
from placekit.runtime.tensor_checks import MOST_ERROR, relative_errors

if TYPE_CHECKING:
    import openvino

__all__ = ["CheckProgress", "check_bundle"]

CheckProgress = Callable[[int, int, str], None]
"""Takes the number of steps done, of all steps, and what they are."""


def check_bundle(plan: StagePlan, folder: str | Path, progress: CheckProgress | None = None) -> str:
    """Read a bundle back, run one seeded sample through its stages, and return what was checked.

    Parameters
    ----------
    plan
        The stages that were written, with the whole model.
    folder
        The bundle.
    progress
        Called after every step.

    Raises
    ------
    InvalidFileError
        A bundle that cannot be read.
    ExecutionError
        A stage that does not run.
    OutputMismatchError
        A stage whose output is not that of the whole model.
    """
    read, _ = read_bundle(folder)
    keys = [key for stage in plan.stages for key in stage.outputs]
    progress = progress or (lambda _done, _total, _what: None)
    steps = len(read.stages) + 1
    progress(0, steps, "stages checked")
    try:
        inputs = random_inputs(plan.model)
        expected = dict(zip(keys, run_once(probe_model(plan.model, keys), inputs) if keys else [], strict=True))
    except (UnsupportedProblemError, RuntimeError) as error:
        for done, stage in enumerate(read.stages, start=2):
            _compiled(stage)
            progress(done, steps, "stages checked")
        return f"read back, {len(read.stages)} stages compiled on the CPU; not run: {short_reason(error)}"
    readers = Counter(key for stage in read.stages for key in stage.inputs)
    tensors: dict[Any, openvino.Tensor] = dict(zip(read.input_keys, inputs, strict=True))
    for done, stage in enumerate(read.stages, start=2):
        outputs = run_compiled(_compiled(stage), [tensors[key] for key in stage.inputs], stage.name)
        for key, tensor, port in zip(stage.outputs, outputs, stage.model.outputs, strict=True):
            found = array_of(tensor)
            found = axes_of_model(found, expected[key].shape) if is_channels_last(port) else found
            difference = relative_errors(expected[key], found)[1]
            if difference > MOST_ERROR and _is_repeatable(plan, key, inputs, expected[key]):
                raise OutputMismatchError(
                    f"stage {stage.name!r}: its output {key[0]!r} differs from the whole model's by "
                    f"{difference:.2g} of its spread; {MOST_ERROR:g} is allowed"
                )
            tensors[key] = tensor
        readers -= Counter(stage.inputs)
        tensors = {key: tensor for key, tensor in tensors.items() if readers[key]}
        progress(done, steps, "stages checked")
    return f"read back, one sample run through {len(read.stages)} stages on the CPU: outputs as the whole model's"


def _compiled(stage: PlacedStage) -> openvino.CompiledModel:
    try:
        return shared_core().compile_model(stage.model, "CPU", CPU_F32)
    except RuntimeError as error:
        raise ExecutionError(f"stage {stage.name!r} cannot be compiled on the CPU: {short_reason(error)}") from error


def _is_repeatable(plan: StagePlan, key: Any, inputs: Sequence[openvino.Tensor], expected: Any) -> bool:
    """Whether the model gives a tensor again as it gave it before; one of unseeded random numbers does not."""
    (again,) = run_once(probe_model(plan.model, [key]), inputs)
    return relative_errors(np.asarray(expected), again)[1] <= MOST_ERROR
