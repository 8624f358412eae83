"""Whether the way of running that was chosen gives what the stages give one after another."""

from __future__ import annotations

from placekit.runtime.compiled_plan import CompiledPlan
from placekit.runtime.contenders import Executor
from placekit.runtime.hetero import HeteroExecutor
from placekit.runtime.output_check import check_outputs, check_placement
from placekit.runtime.tensor_checks import OutputCheck
from placekit.runtime.threads import ThreadPipeline

__all__ = ["require_equal_outputs"]


def require_equal_outputs(compiled: CompiledPlan, executor: Executor, *, seed: int = 0) -> OutputCheck:
    """Compare every tensor between stages, then the outputs of `executor`, with the whole model on one device.

    Parameters
    ----------
    compiled
        The stages, compiled.
    executor
        How the placement is going to run. Only running stages one after another shows the tensors between them.
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
    found = check_placement(compiled, seed=seed)
    found.require_equal()
    if executor == "serial":
        return found
    with _started(compiled, executor) as run:
        check_outputs(compiled.plan, run, precisions=[found.precision], seed=seed).require_equal_by(executor)
    return found


def _started(compiled: CompiledPlan, executor: Executor) -> ThreadPipeline | HeteroExecutor:
    if executor == "threads":
        return ThreadPipeline(compiled)
    return HeteroExecutor(compiled.plan)
