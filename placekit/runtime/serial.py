"""Stages one after another: what a placement is without HETERO, for one sample at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import ExecutionError
from placekit.runtime.compiled_plan import CompiledPlan
from placekit.runtime.samples import InputReader, Inputs
from placekit.runtime.stage_runner import check_cores, helpers_on, pin_this_thread

if TYPE_CHECKING:
    import openvino

__all__ = ["SerialExecutor", "StageTime"]


@dataclass(frozen=True, slots=True)
class StageTime:
    """When a stage ran, in seconds of ``time.perf_counter``."""

    stage: str
    start_s: float
    end_s: float


class SerialExecutor:
    """Runs the stages of a plan one after another, in the calling thread; shapes may be dynamic.

    A stage reads the tensors where the stages before it have written them: nothing is copied between stages, except
    by a device that has memory of its own. While a stage of a core group runs, the calling thread is bound to the
    group's cores, and put back afterwards; OpenVINO's helper threads for groups of several cores stay on the cores of
    these groups together (`helpers_on`).

    A model with state keeps it from one call to the next.

    Parameters
    ----------
    compiled
        The stages, compiled. They may be used elsewhere, too.

    Raises
    ------
    DeviceUnavailableError
        Cores that this process may not use.
    UnsupportedProblemError
        A team of several devices: it brings nothing to one sample at a time.

    Examples
    --------
    >>> with SerialExecutor(compile_plan(plan)) as run:  # doctest: +SKIP
    ...     scores = run({"image": image})["scores"]
    """

    def __init__(self, compiled: CompiledPlan) -> None:
        self.plan = compiled.plan
        self.plan.require_no_teams("stages one after another run one sample at a time")
        check_cores(self.plan.devices)
        self._requests = [stage.compiled.create_infer_request() for stage in compiled.stages]
        self._reader = InputReader(self.plan.model, self.plan.name)
        self._has_cores = any(device.cores for device in self.plan.devices)
        self._lock = threading.Lock()  # the requests hold one sample
        self._is_closed = False
        self._resources = ExitStack()
        self._resources.enter_context(helpers_on(self.plan.devices))

    def __call__(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        """Run one sample, and return a copy of every output by name; see `run_traced`."""
        return self.run_traced(inputs)[0]

    def run_traced(self, inputs: Inputs) -> tuple[dict[str, NDArray[Any]], tuple[StageTime, ...]]:
        """Run one sample, and say when each stage ran.

        Parameters
        ----------
        inputs
            One array per input, by name or in the model's order, of the input's type and shape.

        Returns
        -------
        tuple[dict[str, NDArray[Any]], tuple[StageTime, ...]]
            A copy of every output by name, and the times of the stages in the order in which they ran.

        Raises
        ------
        InvalidProblemError
            A missing or unknown input, or one of another type or shape.
        ExecutionError
            A stage that fails, by name; or the executor is closed.
        """
        with self._lock:
            tensors, times = self._run(inputs)
            names_and_keys = zip(self.plan.output_names, self.plan.output_keys, strict=True)
            return {name: np.array(tensors[key].data) for name, key in names_and_keys}, times

    def run_tensors(self, inputs: Inputs) -> dict[TensorKey, openvino.Tensor]:
        """Run one sample, and return a copy of every tensor that stages take or give, by key; see `run_traced`."""
        from openvino import Tensor

        copies: dict[TensorKey, openvino.Tensor] = {}
        with self._lock:
            for key, tensor in self._run(inputs)[0].items():
                copies[key] = Tensor(tensor.element_type, tensor.shape)
                tensor.copy_to(copies[key])
        return copies

    def _run(self, inputs: Inputs) -> tuple[dict[TensorKey, openvino.Tensor], tuple[StageTime, ...]]:
        if self._is_closed:
            raise ExecutionError(f"the executor of {self.plan.name!r} is closed")
        tensors = dict(zip(self.plan.input_keys, self._reader.read(inputs), strict=True))
        times = []
        with self._own_thread_moved():
            for stage, request in zip(self.plan.stages, self._requests, strict=True):
                if self._has_cores:
                    pin_this_thread(stage.device.cores)
                start_s = time.perf_counter()
                try:
                    for index, key in enumerate(stage.inputs):
                        request.set_input_tensor(index, tensors[key])
                    request.infer(share_outputs=True)  # else every output is copied into what it returns
                except RuntimeError as error:
                    raise ExecutionError(
                        f"stage {stage.name!r} failed on device {stage.device.name!r}: {error}"
                    ) from error
                # asked for anew each time: one of dynamic shape moves when it grows
                tensors |= {key: request.get_output_tensor(index) for index, key in enumerate(stage.outputs)}
                times.append(StageTime(stage.name, start_s, time.perf_counter()))
        return tensors, tuple(times)

    @contextmanager
    def _own_thread_moved(self) -> Iterator[None]:
        """Put the calling thread back where it was."""
        if not (self._has_cores and hasattr(os, "sched_getaffinity")):
            yield
            return
        home = os.sched_getaffinity(0)
        try:
            yield
        finally:
            os.sched_setaffinity(0, home)

    def close(self) -> None:
        """Give the requests and OpenVINO's threads back. Closing again does nothing."""
        with self._lock:
            self._is_closed = True
            self._requests.clear()
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
