"""Check of a pipeline of torch that was written: its script's stages, called in turn, give the program's outputs.

Stages are loaded by the script in the folder, one at a time, and hand over what the script sends, so that only the
transport between processes is left out. Everything runs on the CPU, wherever the stages belong.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

from placekit.model.errors import ExecutionError, OutputMismatchError
from placekit.pytorch.inputs import random_inputs
from placekit.pytorch.needs import require_torch
from placekit.runtime.bundle_check import CheckProgress
from placekit.runtime.stages import StagePlan
from placekit.runtime.tensor_checks import MOST_ERROR, relative_errors
from placekit.runtime.torch_folder import MANIFEST, read_torch_pipeline
from placekit.runtime.torch_stages import to_array

__all__ = ["check_torch_pipeline"]


def check_torch_pipeline(plan: StagePlan, folder: Path, progress: CheckProgress | None = None) -> str:
    """Read a pipeline of torch back, run one seeded sample through its stages, and return what was checked.

    Parameters
    ----------
    plan
        The stages that were written.
    folder
        The pipeline.
    progress
        Called after every stage.

    Raises
    ------
    InvalidFileError
        A folder that `placekit.runtime` cannot read.
    ExecutionError
        A stage that does not run.
    OutputMismatchError
        A tensor between stages, or an output, that is not the whole program's.
    """
    torch = require_torch("checking a pipeline of torch")
    read_torch_pipeline(folder)
    entries = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["stages"]
    load_stage = runpy.run_path(str(folder / "run.py"), run_name="check")["load_stage"]
    program = plan.model.lowered.program
    inputs = random_inputs(program)
    names = list(dict.fromkeys(name for entry in entries for name in entry["outputs"]))
    with torch.no_grad():
        whole = plan.model.builder.part(range(plan.model.lowered.graph.num_ops), program.inputs, names)
        expected = dict(zip(names, whole.forward(*(each.clone() for each in inputs)), strict=True))
        sent: Any = [each.unsqueeze(0) for each in inputs]
        for done, entry in enumerate(entries, start=1):
            is_last = done == len(entries)
            try:
                sent = load_stage(entry, torch.device("cpu"), is_last)(*sent)
            except Exception as error:  # whatever an operator raises
                reason = next(iter(str(error).splitlines()), type(error).__name__)
                raise ExecutionError(f"stage {entry['name']!r} does not run on the CPU: {reason}") from error
            for name, tensor in zip(entry["outputs"], sent, strict=True):
                _require_equal(entry["name"], name, expected[name], tensor[0])
            if progress is not None:
                progress(done, len(entries), "stages checked")
    return f"read back, one sample run through {len(entries)} stages on the CPU: outputs as the whole program's"


def _require_equal(stage: str, name: str, expected: Any, found: Any) -> None:
    torch = require_torch("checking a pipeline of torch")
    if not found.is_contiguous():
        raise OutputMismatchError(f"stage {stage!r}: {name!r} is not contiguous, and cannot be sent")
    pair = [torch.view_as_real(each.resolve_conj()) if each.is_complex() else each for each in (expected, found)]
    error = relative_errors(*map(to_array, pair))[1]
    if error > MOST_ERROR:
        raise OutputMismatchError(
            f"stage {stage!r}: its output {name!r} differs from the whole program's by {error:.2g} of its spread; "
            f"{MOST_ERROR:g} is allowed"
        )
