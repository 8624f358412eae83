"""Stages, pipelines, timing and bundles: what runs a placement.

`load` runs what ``placekit export`` wrote as a callable pipeline, without any solver.

>>> from placekit import runtime
>>> with runtime.load("bundle") as pipe:  # doctest: +SKIP
...     scores = pipe([image])["scores"]  # one sample
...     futures = [pipe.submit([each]) for each in images]  # many in flight
...     results = [future.result() for future in futures]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placekit.runtime.pipelines.pipeline import Pipeline

__all__ = ["load"]


def load(
    folder: str | Path, *, queue_size: int | None = None, record: int = 0, cache_dir: str | Path | None = None
) -> Pipeline:
    """Return the pipeline in a folder, compiled and ready.

    Parameters
    ----------
    folder
        A bundle of OpenVINO or PyTorch; of the latter nothing is executed but registered operators.
    queue_size
        Samples that fit between a stage and the next; the bundle's own, or 2, if None.
    record
        Number of last samples whose stage times are kept, see `Pipeline.stage_times_s`.
    cache_dir
        Folder where OpenVINO keeps compiled models, which saves compiling at the next start; None for none. A bundle
        cannot say this: paths in it are ignored.

    Raises
    ------
    InvalidFileError
        No such folder, or one that was changed.
    DeviceUnavailableError
        A device or a core of the folder that this machine does not have.
    ExecutionError
        A stage that cannot be compiled.
    UnsupportedProblemError
        `cache_dir` for a bundle of PyTorch.
    SolverUnavailableError
        A bundle of PyTorch without torch.
    """
    # here, so that the module can be looked at without OpenVINO
    from placekit.runtime.bundles.bundle import read_bundle
    from placekit.runtime.pipelines.pipeline import Pipeline
    from placekit.runtime.stages.plans import compile_plan

    plan, own_queue_size = read_bundle(folder, cache_dir=cache_dir)
    size = own_queue_size if queue_size is None else queue_size
    return Pipeline(compile_plan(plan), queue_size=size, record=record)
