"""OpenVINO as a framework that measures: counters on the CPU, submodels elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placekit.io.needs import require
from placekit.model.errors import DeviceUnavailableError

if TYPE_CHECKING:
    import openvino

    from placekit.cost_models.base import Progress
    from placekit.cost_models.kind_profile import KindProfile
    from placekit.io.models.model import ModelSource
    from placekit.model.platform import Device, Link, Platform


class OpenVinoBackend:
    """See :class:`~placekit.cost_models.base.Backend`.

    Parameters
    ----------
    core
        OpenVINO core; the shared one if None.
    """

    name = "openvino"

    def __init__(self, core: openvino.Core | None = None) -> None:
        self._given_core = core

    @property
    def version(self) -> str:
        """Version of OpenVINO."""
        return str(require("openvino", "measuring").__version__)

    @property
    def _core(self) -> openvino.Core:
        from placekit.cost_models.openvino.devices import shared_core

        return self._given_core or shared_core()

    def require(self, device: Device) -> None:
        """Raise unless OpenVINO has `device`."""
        from placekit.cost_models.openvino.devices import require_device

        if device.openvino is None:
            raise DeviceUnavailableError(
                f"device {device.name!r} of kind {device.kind!r} names no OpenVINO device, so it cannot be measured; "
                "use analytic costs, or give it one"
            )
        require_device(device.openvino, self._core)

    def device_facts(self, device: Device) -> dict[str, Any]:
        """Return the device string, the name of the hardware, and the way of measuring."""
        hardware = str(self._core.get_property(device.openvino, "FULL_DEVICE_NAME"))
        method = "counters" if device.openvino == "CPU" else "submodels"
        return {"device": device.openvino, "hardware": hardware, "method": method}

    def measure(
        self, source: ModelSource, device: Device, *, repetitions: int, seed: int, progress: Progress | None
    ) -> KindProfile:
        """Measure; see :mod:`placekit.cost_models.openvino.counters` and :mod:`~.submodels` there."""
        from placekit.cost_models.openvino.counters import profile_counters
        from placekit.cost_models.openvino.hand_over import with_hand_over
        from placekit.cost_models.openvino.submodels import profile_submodels

        # what the counters of other devices mean is not known
        measure = profile_counters if device.openvino == "CPU" else profile_submodels
        model = source.load()
        profile = measure(
            self._core,
            model,
            source.graph,
            device=device.openvino or device.name,
            properties=device.properties,
            repetitions=repetitions,
            seed=seed,
            progress=progress,
        )
        if device.openvino == "CPU":
            profile = with_hand_over(self._core, model, source.graph, device.properties, profile)
        return profile

    def link(self, device: Device) -> Link:
        """Measure the link; see :mod:`placekit.cost_models.openvino.transfer`."""
        from placekit.cost_models.openvino.transfer import measure_link

        return measure_link(device, self._core)

    def platform(self, devices: str | None, precision: str = "f32") -> Platform:
        """Return devices; two core groups where the CPU is the only one, and none is named."""
        from placekit.cost_models.openvino.devices import default_platform, platform_from_devices

        if devices is None:
            return default_platform(precision=precision)
        return platform_from_devices(devices, precision=precision)
