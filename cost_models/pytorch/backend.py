"""Torch as a framework that measures; see :mod:`placekit.cost_models.pytorch.profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from placekit.cost_models.openvino.transfer import TRANSFER_SIZES_BYTES, fit_link
from placekit.cost_models.pytorch.allocator import keep_freed_memory
from placekit.cost_models.pytorch.devices import (
    computing_with,
    default_platform,
    hardware_name,
    platform_from_devices,
    torch_device,
)
from placekit.cost_models.pytorch.profile import profile_ops, time_calls
from placekit.io.needs import require_torch
from placekit.model.errors import InvalidProblemError

if TYPE_CHECKING:
    from placekit.cost_models.base import Progress
    from placekit.cost_models.kind_profile import KindProfile
    from placekit.io.models.model import ModelSource
    from placekit.model.platform import Device, Link, Platform
    from placekit.pytorch.source import TorchSource


class TorchBackend:
    """See :class:`~placekit.cost_models.base.Backend`."""

    name = "torch"

    @property
    def version(self) -> str:
        """Version of torch."""
        return str(require_torch("measuring a PyTorch program").__version__)

    def require(self, device: Device) -> None:
        """Raise unless torch has `device`."""
        torch_device(device)

    def device_facts(self, device: Device) -> dict[str, Any]:
        """Return what torch calls the device, the hardware, the number of threads, and the way of measuring."""
        name = torch_device(device)
        return {"device": name, "hardware": hardware_name(name), "threads": len(device.cores), "method": "ops"}

    def measure(
        self, source: ModelSource, device: Device, *, repetitions: int, seed: int, progress: Progress | None
    ) -> KindProfile:
        """Measure every op with as many threads as the device has cores."""
        name = torch_device(device)
        keep_freed_memory()  # as where it runs
        with computing_with(len(device.cores) if name == "cpu" else 0):
            return profile_ops(cast("TorchSource", source), name, repetitions=repetitions, seed=seed, progress=progress)

    def link(self, device: Device) -> Link:
        """Measure copies from host memory to the device and back, the mean of both; within host memory on a CPU."""
        torch = require_torch("measuring a link")
        name = torch_device(device)
        times = []
        for size in TRANSFER_SIZES_BYTES:
            here = torch.ones(size // 4)
            there = here.to(name, copy=True)
            both = (lambda here=here: here.to(name, copy=True), lambda there=there: there.to("cpu", copy=True))
            times.append(float(np.mean([np.median(time_calls([each], 9, name)) for each in both])))
        return fit_link(TRANSFER_SIZES_BYTES, times)

    def platform(self, devices: str | None, precision: str = "f32") -> Platform:
        """Return torch's devices."""
        if precision != "f32":
            raise InvalidProblemError(
                f"precision {precision}: a PyTorch program computes in the types that it was exported with"
            )
        return default_platform() if devices is None else platform_from_devices(devices)
