"""Run what ``placekit export`` wrote: a bundle, or a pipeline of torch, as a callable pipeline, without any solver.

>>> from placekit import runtime
>>> with runtime.load("bundle") as pipe:  # doctest: +SKIP
...     scores = pipe([image])["scores"]  # one sample
...     futures = [pipe.submit([each]) for each in images]  # many in flight
...     results = [future.result() for future in futures]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from placekit.model.errors import UnsupportedProblemError

if TYPE_CHECKING:
    from placekit.runtime.pipeline import Pipeline

__all__ = ["load"]


def load(
    folder: str | Path,
    *,
    queue_size: int | None = None,
    record: int = 0,
    cache_dir: str | Path | None = None,
) -> Pipeline:
    """Return the pipeline in a folder, compiled and ready.

    Parameters
    ----------
    folder
        A bundle, or what ``export --to torch-pipeline`` wrote; of the latter nothing is executed but registered
        operators.
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
        `cache_dir` for a pipeline of torch.
    SolverUnavailableError
        A pipeline of torch without torch.
    """
    # here, so that the module can be looked at without OpenVINO
    from placekit.runtime.pipeline import Pipeline
    from placekit.runtime.stages import compile_plan
    from placekit.runtime.torch_folder import MANIFEST, is_torch_pipeline, read_torch_pipeline

    own_queue_size = 2
    if (Path(folder) / MANIFEST).is_file() and is_torch_pipeline(folder):
        if cache_dir is not None:
            raise UnsupportedProblemError(f"{folder}: cache_dir is OpenVINO's; this is a pipeline of torch")
        plan = read_torch_pipeline(folder)
    else:
        from placekit.runtime.bundle import read_bundle

        plan, own_queue_size = read_bundle(folder, cache_dir=cache_dir)
    size = own_queue_size if queue_size is None else queue_size
    return Pipeline(compile_plan(plan), queue_size=size, record=record)
