"""The devices of this machine that run a model: those of its framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.model.errors import InvalidProblemError

if TYPE_CHECKING:
    from placekit.io.models.model import ModelSource
    from placekit.model.platform import Platform


def platform_for(source: ModelSource | None, devices: str | None, *, precision: str = "f32") -> Platform:
    """Return devices by the names that a model's framework gives them.

    Parameters
    ----------
    source
        The model; OpenVINO runs it, or torch runs it if it is a PyTorch program. None for OpenVINO's devices.
    devices
        ``"CPU,GPU"``, or of torch ``"cpu,cuda:0"``; None for all that there are.
    precision
        Precision of OpenVINO's CPU.

    Raises
    ------
    DeviceUnavailableError
        A device that is not there.
    InvalidProblemError
        No device, or the same one twice; a precision for a PyTorch program.
    """
    from placekit.pytorch.source import TorchSource

    if isinstance(source, TorchSource):
        from placekit.cost_models.pytorch import devices as of_torch

        if precision != "f32":
            raise InvalidProblemError(
                f"precision {precision}: a PyTorch program computes in the types that it was exported with"
            )
        return of_torch.default_platform() if devices is None else of_torch.platform_from_devices(devices)
    from placekit.cost_models.openvino.devices import default_platform, platform_from_devices

    if devices is None:
        return default_platform(precision=precision)
    return platform_from_devices(devices, precision=precision)
