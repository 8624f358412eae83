"""A placement as a folder that ``torch.distributed.pipelining`` runs without placekit, or `placekit.runtime`.

==================  ================================================================================================
``manifest.json``   stages in order: device, torch's name of it, cores, file and its hash; the model's ends
``stages/N.pt2``    the program of a stage with its weights: ``torch.export.load(...)``, and ``.state_dict`` of that
``run.py``          one process per stage, over gloo, or NCCL where all stages are on CUDA
==================  ================================================================================================

Stages form a chain, as a pipeline of torch does: a tensor that skips stages is handed on by each of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from placekit.cost_models.pytorch.devices import torch_device
from placekit.io.atomic import write_json, write_text
from placekit.io.file_hash import file_hash
from placekit.io.folders import write_folder
from placekit.model.errors import PlacekitError, UnsupportedProblemError
from placekit.pytorch.inputs import random_inputs
from placekit.pytorch.needs import require_torch
from placekit.runtime.stages import StagePlan
from placekit.runtime.torch_folder import FORMAT, MANIFEST, is_torch_pipeline

__all__ = ["chain_of", "write_torch_pipeline"]


def chain_of(plan: StagePlan) -> list[tuple[str, ...]]:
    """Return ``[num_stages + 1]`` names of the tensors before, between and after the stages.

    The first are the model's inputs, the last its outputs; between are all that a later stage reads.
    """
    program = plan.model.lowered.program
    later = [{name for name, _ in stage.inputs} for stage in plan.stages]
    found = [tuple(program.inputs)]
    available = list(program.inputs)
    for at, stage in enumerate(plan.stages[:-1]):
        available += [name for name, _ in stage.outputs]
        needed = set(program.outputs).union(*later[at + 1 :])
        found.append(tuple(name for name in available if name in needed))
    return [*found, tuple(program.outputs)]


def write_torch_pipeline(plan: StagePlan, folder: str | Path, *, check: Callable[[Path], object] | None = None) -> None:
    """Write `plan` as a folder that runs by itself. It appears complete or not at all, and replaces one of its kind.

    Parameters
    ----------
    plan
        The stages.
    folder
        Where to write; its parent must exist.
    check
        Called with the new folder before it takes its place; what it raises leaves everything as it was.

    Raises
    ------
    UnsupportedProblemError
        A team of several devices, or a stage that torch.export cannot write.
    PlacekitError
        The folder exists and is something else, or cannot be written.
    """
    for stage in plan.stages:
        if len(stage.members) > 1:
            raise UnsupportedProblemError(
                f"stage {stage.name!r} is on team {stage.team_name!r}: a pipeline of torch has one device per stage; "
                "use executor threads, or solve with --teams off"
            )
    if not plan.stages:
        raise UnsupportedProblemError(f"model {plan.name!r} has no ops to run")

    def write(new: Path) -> None:
        _write(plan, new)
        if check is not None:
            check(new)

    write_folder(folder, "pipeline of torch", _reason, write)


def _reason(folder: Path) -> str | None:
    """Return why a folder is no pipeline of torch; None if it is one."""
    try:
        return None if is_torch_pipeline(folder) else f"its {MANIFEST} is another's"
    except PlacekitError:
        return f"it has no {MANIFEST}"


def _write(plan: StagePlan, folder: Path) -> None:
    torch = require_torch("writing a pipeline of torch")
    program, chain = plan.model.lowered.program, chain_of(plan)
    (folder / "stages").mkdir()
    tensors: dict[str, Any] = dict(zip(program.inputs, random_inputs(program), strict=True))
    entries = []
    for at, stage in enumerate(plan.stages):
        module = plan.model.builder.part(stage.model.ops, chain[at], chain[at + 1])
        given = tuple(tensors[name].clone() for name in chain[at])  # no views, which torch.export cannot copy
        file = f"stages/{at}.pt2"
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about tied weights of one stage
            try:
                torch.export.save(torch.export.export(module, given), folder / file)
            except Exception as error:  # torch.export raises everything there is
                first = next(iter(str(error).splitlines()), type(error).__name__)
                raise UnsupportedProblemError(
                    f"stage {stage.name!r} cannot be written by torch.export: {first}"
                ) from error
            tensors = dict(zip(chain[at + 1], module.forward(*given), strict=True))
        device = stage.members[0]
        entries.append(
            {
                "name": stage.name,
                "device": device.name,
                "torch": torch_device(device),
                "cores": list(device.cores),
                "file": file,
                "hash": file_hash(folder / file),
                "inputs": list(chain[at]),
                "outputs": list(chain[at + 1]),
            }
        )
    inputs = [(name, program.tensors[name]) for name in program.inputs]
    write_json(
        folder / MANIFEST,
        {
            "format": FORMAT,
            "model": plan.name,
            "torch": str(torch.__version__),
            "inputs": [{"name": name, "dtype": each.dtype, "shape": list(each.shape)} for name, each in inputs],
            "outputs": list(plan.output_names),
            "stages": entries,
        },
    )
    write_text(folder / "run.py", files("placekit.runtime").joinpath("run_pipeline.py").read_text())
