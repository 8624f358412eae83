"""Stages one after another: one sample at a time, whatever framework runs them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import ExecutionError
from placekit.runtime.cores import check_cores
from placekit.runtime.stages.stage_plan import Inputs, Outputs, ReadyPlan


class SerialExecutor:
    """Runs the stages of a plan one after another, in a thread of its own that goes to the cores of each device.

    A stage reads the tensors where the stages before it have written them: nothing is copied between stages, except
    by a device that has memory of its own. A model with state keeps it from one call to the next.

    Of each team the member number `turn` runs, modulo the size of the team. Without a turn teams are refused: they
    bring nothing to one sample at a time.

    Examples
    --------
    >>> with SerialExecutor(compile_plan(plan)) as run:  # doctest: +SKIP
    ...     scores = run({"image": image})["scores"]
    """

    def __init__(self, ready: ReadyPlan, *, turn: int | None = None) -> None:
        self.plan = ready.plan
        if turn is None:
            self.plan.require_no_teams("stages one after another run one sample at a time")
        check_cores(self.plan.devices)
        self._ready = ready
        self._member = [(turn or 0) % len(stage.members) for stage in self.plan.stages]
        self._stages = [members[at] for members, at in zip(ready.open(), self._member, strict=True)]
        self._slots = [[ready.slot(key) for key in stage.outputs] for stage in self.plan.stages]
        self._thread = ThreadPoolExecutor(1, f"placekit-{self.plan.name}")
        self._is_closed = False
        self._resources = ExitStack()
        self._resources.enter_context(ready.helpers())

    def __call__(self, inputs: Inputs) -> Outputs:
        """Run one sample, and return a copy of every output by name; see `run_traced`."""
        return self.run_traced(inputs)[0]

    def run_traced(self, inputs: Inputs) -> tuple[Outputs, list[tuple[float, float]]]:
        """Run one sample, and say when each stage ran.

        Outputs are copies. Times are start and end of every stage, in seconds of ``time.perf_counter``.
        """
        self._require_open()
        return self._thread.submit(self._outputs, inputs).result()

    def run_tensors(self, inputs: Inputs) -> dict[TensorKey, Any]:
        """Run one sample, and return a copy of every tensor that stages take or give, by key; see `run_traced`."""
        self._require_open()
        return self._thread.submit(self._copies, inputs).result()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ExecutionError(f"the executor of {self.plan.name!r} is closed")

    def _outputs(self, inputs: Inputs) -> tuple[Outputs, list[tuple[float, float]]]:
        tensors, times = self._run(inputs)
        names_and_keys = zip(self.plan.output_names, self.plan.output_keys, strict=True)
        return {name: np.array(self._ready.view(tensors[key])) for name, key in names_and_keys}, times

    def _copies(self, inputs: Inputs) -> dict[TensorKey, Any]:
        return {key: self._ready.copy(tensor, None) for key, tensor in self._run(inputs)[0].items()}

    def _run(self, inputs: Inputs) -> tuple[dict[TensorKey, Any], list[tuple[float, float]]]:
        tensors = dict(zip(self.plan.input_keys, self._ready.read(inputs), strict=True))
        times = []
        for at, placed in enumerate(self.plan.stages):
            device = placed.members[self._member[at]]
            with self._ready.at_home(device):
                start_s = time.perf_counter()
                try:
                    made = self._stages[at].run([tensors[key] for key in placed.inputs], self._slots[at])
                except Exception as error:
                    raise ExecutionError(
                        f"stage {placed.name!r} failed on device {device.name!r}: {self._ready.reason(error)}"
                    ) from error
                times.append((start_s, time.perf_counter()))
            tensors |= dict(zip(placed.outputs, made, strict=True))
        return tensors, times

    def close(self) -> None:
        """End the thread, and give the framework's threads back. Closing again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.shutdown()
            self._stages.clear()
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
