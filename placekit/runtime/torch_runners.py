"""PyTorch placements that can be timed, see :mod:`placekit.runtime.runners`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.model.errors import UnsupportedProblemError
from placekit.pytorch.inputs import random_inputs
from placekit.runtime.contenders import Contender, Placed
from placekit.runtime.runners import OneByOne, PipelineRunner
from placekit.runtime.torch_pipeline import CompiledTorchPlan, RunnablePlan, SerialTorch, TorchPipeline
from placekit.runtime.torch_stages import plan_torch_stages
from placekit.runtime.trace import StageTimes

if TYPE_CHECKING:
    from placekit.pytorch.source import TorchSource
    from placekit.runtime.pipeline import Pipeline
    from placekit.runtime.runners import Runner

__all__ = ["require_torch_executor", "start_torch_runner", "torch_pipeline"]

_EXECUTORS = ("threads", "serial")


def require_torch_executor(executor: str) -> None:
    """Raise unless PyTorch programs run by `executor`.

    Raises
    ------
    UnsupportedProblemError
        They do not.
    """
    if executor not in _EXECUTORS:
        raise UnsupportedProblemError(f"executor {executor} does not run PyTorch programs; {', '.join(_EXECUTORS)} do")


def start_torch_runner(source: TorchSource, contender: Contender, seed: int, record: int) -> Runner:
    """Cut and build, and return what can be run; `record` is the number of samples whose stage times are kept.

    Raises
    ------
    PlacekitError
        Whatever keeps it from running.
    """
    if not isinstance(contender, Placed):
        raise UnsupportedProblemError(f"{contender.name}: OpenVINO's own way, which a PyTorch program does not have")
    require_torch_executor(contender.executor)
    plan = plan_torch_stages(source, contender.placement, contender.platform)
    inputs = random_inputs(plan.lowered.program, seed)
    if contender.executor == "serial":
        return _SerialRunner(SerialTorch(CompiledTorchPlan(plan)), inputs, record)
    return PipelineRunner(torch_pipeline(plan, contender.queue_size, record), inputs, contender.queue_size)


def torch_pipeline(plan: RunnablePlan, queue_size: int = 2, record: int = 0) -> Pipeline:
    """Return the pipeline of a plan, ready to take samples.

    Raises
    ------
    PlacekitError
        Whatever keeps it from running.
    """
    return TorchPipeline(CompiledTorchPlan(plan), queue_size=queue_size, record=record)


class _SerialRunner(OneByOne):
    """Stages one after another."""

    def __init__(self, executor: SerialTorch, inputs: list[Any], record: int) -> None:
        self._executor, self._inputs = executor, inputs
        self._recorded: deque[list[tuple[float, float]]] = deque(maxlen=record)

    def run(self) -> None:
        self._recorded.append(self._executor.run_traced(self._inputs)[1])

    def stage_times(self) -> StageTimes:
        times_s = np.array(list(self._recorded), dtype=np.float64)
        return times_s, np.zeros(times_s.shape[:2], dtype=np.int64)

    def close(self) -> None:
        self._executor.close()
