"""PyTorch stages that run: one after another, or as a pipeline of threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.pytorch.allocator import keep_freed_memory
from placekit.cost_models.pytorch.devices import RUN_FAILURES, first_line, synchronised, torch_device, use_threads
from placekit.model.errors import ExecutionError, InvalidProblemError
from placekit.model.platform import Device
from placekit.pytorch.needs import require_torch
from placekit.runtime.stage_runner import pin_this_thread
from placekit.runtime.threads import ThreadPipeline
from placekit.runtime.torch_folder import FolderPlan
from placekit.runtime.torch_stages import Key, TorchPlan

if TYPE_CHECKING:
    import torch

__all__ = [
    "CompiledTorchPlan",
    "RunnablePlan",
    "SerialTorch",
    "TorchEnds",
    "TorchPipeline",
    "TorchStageRunner",
    "to_array",
]

RunnablePlan: TypeAlias = TorchPlan | FolderPlan
"""Stages of a program in memory, or of a folder."""


class CompiledTorchPlan:
    """A plan with a module for every stage and member of its team.

    Parameters
    ----------
    plan
        The plan.
    """

    def __init__(self, plan: RunnablePlan) -> None:
        keep_freed_memory()
        self.plan = plan
        self.members = [
            [
                TorchStageRunner(module, torch_device(device))
                for module, device in zip(modules, stage.members, strict=True)
            ]
            for modules, stage in zip(plan.modules(), plan.stages, strict=True)
        ]


class TorchStageRunner:
    """The module of a stage on one device.

    Parameters
    ----------
    module
        The module, whose weights are there.
    device
        The device, as torch says it.
    """

    def __init__(self, module: Any, device: str) -> None:
        # forward itself: calling a module of torch.fx prints its code when it fails
        self._forward = module.forward
        self._device = device
        self._wait = synchronised(device)

    def run(self, inputs: Sequence[Any], _slots: Sequence[Any] = ()) -> list[Any]:
        """Return the outputs; they stay on the device."""
        outputs = list(self._forward(*(each.to(self._device) for each in inputs)))
        self._wait()
        return outputs


def to_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers, not copied if it is on a CPU; bf16 and 8-bit floats, which numpy lacks, become f32."""
    torch = require_torch("running a PyTorch program")
    tensor = tensor.detach().to("cpu").resolve_conj().resolve_neg()
    if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        tensor = tensor.to(torch.float32)
    found: NDArray[Any] = tensor.numpy()
    return found


def read_inputs(plan: RunnablePlan, inputs: Any) -> list[torch.Tensor]:
    """Return one tensor per input, in the program's order; arrays are taken as they are, without a copy.

    Raises
    ------
    InvalidProblemError
        A missing or unknown input, or one of another type or shape.
    """
    torch = require_torch("running a PyTorch program")
    names, what = plan.input_names, f"model {plan.name!r}"
    if isinstance(inputs, Mapping):
        unknown = next((name for name in inputs if name not in names), None)
        if unknown is not None:
            raise InvalidProblemError(f"{what}: no input {unknown!r}; inputs are {', '.join(names)}")
        missing = next((name for name in names if name not in inputs), None)
        if missing is not None:
            raise InvalidProblemError(f"{what}: input {missing!r} is missing; inputs are {', '.join(names)}")
        inputs = [inputs[name] for name in names]
    if len(inputs) != len(names):
        raise InvalidProblemError(f"{what}: {len(inputs)} inputs given, it has {len(names)}: {', '.join(names)}")
    tensors = []
    for (name, meta), value in zip(plan.inputs.items(), inputs, strict=True):
        try:
            tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
        except TypeError as error:
            raise InvalidProblemError(f"{what}: input {name!r}: {error}") from None
        if tuple(tensor.shape) != meta.shape or str(tensor.dtype) != f"torch.{meta.dtype}":
            raise InvalidProblemError(
                f"{what}: input {name!r} has type {str(tensor.dtype).removeprefix('torch.')} and shape "
                f"{list(tensor.shape)}; it must have type {meta.dtype} and shape {list(meta.shape)}"
            )
        tensors.append(tensor)
    return tensors


class TorchEnds:
    """How samples of a PyTorch program come into a pipeline and out of it; for one that runs stages somehow."""

    plan: Any
    _tensor: Callable[[Key, int], Any]

    def _prepare(self, plan: Any) -> None:
        self.plan = plan

    def _read(self, inputs: Any) -> list[Any]:
        return read_inputs(self.plan, inputs)

    def _output(self, key: Key, sample: int) -> NDArray[Any]:
        return to_array(self._tensor(key, sample))


class TorchPipeline(TorchEnds, ThreadPipeline):
    """A pipeline of threads in one process, one per device, bound to the device's cores.

    Torch computes without Python's lock; between two ops every stage needs it for some microseconds, so that stages of
    many small ops slow each other down. Tensors are handed over without a copy between CPUs, and copied where a device
    is not a CPU.

    Parameters
    ----------
    compiled
        The stages.
    queue_size
        Samples that fit between a stage and the next.
    record
        Number of last samples whose stage times are kept.

    Raises
    ------
    DeviceUnavailableError
        Cores that this process may not use.
    PlacekitError
        As :class:`~placekit.runtime.pipeline.Pipeline`.
    """

    def __init__(self, compiled: CompiledTorchPlan, *, queue_size: int = 2, record: int = 0) -> None:
        super().__init__(compiled, queue_size=queue_size, record=record)  # type: ignore[arg-type]  # the same parts

    def _make_runners(self, compiled: Any) -> list[list[Any]]:
        return [list(stage) for stage in compiled.members]

    def _num_requests(self, owner: int) -> int:  # noqa: ARG002
        return 1  # nothing keeps two samples from being computed at once

    def _helpers(self, devices: Sequence[Device]) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()  # OpenMP's threads belong to the thread that they help, and are born on its cores

    @contextmanager
    def _at_home(self, device: Device) -> Iterator[None]:
        torch = require_torch("running a PyTorch program")
        pin_this_thread(device.cores)
        use_threads(len(device.cores))
        with torch.inference_mode():
            yield

    def _make_rings(self) -> None:
        for key, node in self._wiring.writer.items():
            self._rings[key] = [None] * self._wiring.depth[node]

    def _is_dynamic(self, key: Key) -> bool:  # noqa: ARG002
        return True  # stages give new tensors, which go into the ring as they are

    def _fill(self, key: Key, sample: int, tensor: Any) -> None:
        self._put(key, sample, tensor.clone())


class SerialTorch:
    """Stages one after another, in a thread of their own that goes to the cores of each device. Close it after use.

    Parameters
    ----------
    compiled
        The stages.
    """

    def __init__(self, compiled: CompiledTorchPlan) -> None:
        self._compiled = compiled
        self._thread = ThreadPoolExecutor(1, f"placekit-{compiled.plan.name}")

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run_traced(self, inputs: Sequence[Any], member: int = 0) -> tuple[dict[Key, Any], list[tuple[float, float]]]:
        """Return every tensor by its key, and start and end of every stage.

        Parameters
        ----------
        inputs
            One tensor per input.
        member
            Which member of a team runs a stage; where it has fewer, the last.

        Raises
        ------
        ExecutionError
            A stage fails; the message names it.
        """
        return self._thread.submit(self._run, inputs, member).result()

    def _run(self, inputs: Sequence[Any], member: int) -> tuple[dict[Key, Any], list[tuple[float, float]]]:
        torch = require_torch("running a PyTorch program")
        plan = self._compiled.plan
        tensors: dict[Key, Any] = dict(zip(plan.input_keys, inputs, strict=True))
        times = []
        with torch.inference_mode():
            for stage, members in zip(plan.stages, self._compiled.members, strict=True):
                at = min(member, len(members) - 1)
                device = stage.members[at]
                pin_this_thread(device.cores)
                use_threads(len(device.cores))
                start_s = time.perf_counter()
                try:
                    made = members[at].run([tensors[key] for key in stage.inputs])
                except RUN_FAILURES as error:
                    raise ExecutionError(
                        f"stage {stage.name!r} failed on device {device.name!r}: {first_line(error)}"
                    ) from error
                times.append((start_s, time.perf_counter()))
                tensors |= dict(zip(stage.outputs, made, strict=True))
        return tensors, times
