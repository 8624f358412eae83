"""PyTorch stages as a pipeline of processes, one per device, that hand over tensors in shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.pipeline_memory import TensorSpec
from placekit.cost_models.openvino.pipeline_processes import ProcessPipeline
from placekit.cost_models.pytorch.allocator import keep_freed_memory
from placekit.cost_models.pytorch.devices import torch_device, use_threads
from placekit.cost_models.pytorch.pipeline import RunnablePlan, TorchEnds, TorchStageRunner
from placekit.cost_models.pytorch.stages import Key, StagePart
from placekit.model.platform import Device
from placekit.pytorch.needs import require_torch

if TYPE_CHECKING:
    import torch

__all__ = ["TorchProcesses"]


class TorchProcesses(TorchEnds, ProcessPipeline):
    """A pipeline of processes: stages share neither Python's lock nor anything else but tensors.

    Every worker builds the module of its stages; a program of a file is read there, one of a module in memory is sent.

    Parameters
    ----------
    plan
        The stages.
    queue_size
        Samples that fit between a stage and the next.
    record
        Number of last samples whose stage times are kept.

    Raises
    ------
    DeviceUnavailableError
        A device that torch does not have, cores that this process may not use, or no POSIX system.
    ExecutionError
        A stage that cannot be built, or a worker that did not start.
    PlacekitError
        As :class:`~placekit.cost_models.openvino.pipeline.Pipeline`.
    """

    def __init__(self, plan: RunnablePlan, *, queue_size: int = 2, record: int = 0) -> None:
        super().__init__(plan, queue_size=queue_size, record=record)

    def _check_devices(self) -> None:
        for device in self.plan.devices:
            torch_device(device)

    def _specs(self) -> Mapping[Key, TensorSpec]:
        return {key: TensorSpec(each.dtype, each.shape, int(each.num_bytes)) for key, each in self.plan.tensors.items()}

    def _view(self, data: NDArray[np.uint8], spec: TensorSpec) -> Any:
        return _torch_view(data, spec)

    def _sent_stages(self, plan: RunnablePlan, folder: Path) -> list[_SentStage]:  # noqa: ARG002  # no files are needed
        return [
            _SentStage(node, stage.name, stage.inputs, stage.outputs, part)
            for node, (stage, part) in enumerate(zip(plan.stages, plan.parts, strict=True))
        ]

    def _fill(self, key: Key, sample: int, tensor: torch.Tensor) -> None:
        self._tensor(key, sample).copy_(tensor)


@dataclass(frozen=True)
class _SentStage:
    """A stage as it is sent to a worker."""

    node: int
    name: str
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    part: StagePart

    def open(self, device: Device) -> _Built:
        """Build the module on a device."""
        use_threads(len(device.cores))
        keep_freed_memory()
        return _Built(self, TorchStageRunner(self.part.module(device), torch_device(device)))

    def view(self, data: NDArray[np.uint8], spec: TensorSpec) -> Any:
        """Return the tensor over the bytes of a slot."""
        return _torch_view(data, spec)


class _Built:
    """A stage that is ready to run, in a process of its own."""

    def __init__(self, sent: _SentStage, runner: TorchStageRunner) -> None:
        self.inputs, self.outputs, self._runner = sent.inputs, sent.outputs, runner

    def run(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Compute the outputs into the slots given."""
        with require_torch("running a PyTorch program").inference_mode():
            for slot, made in zip(outputs, self._runner.run(inputs), strict=True):
                slot.copy_(made)


def _torch_view(data: NDArray[np.uint8], spec: TensorSpec) -> Any:
    torch = require_torch("running a PyTorch program")
    dtype = getattr(torch, spec.kind)
    if not data.size:
        return torch.empty(spec.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).view(spec.shape)
