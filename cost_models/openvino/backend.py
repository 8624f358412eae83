"""OpenVINO as a framework that measures: counters on the CPU, submodels elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placekit.model.errors import DeviceUnavailableError, ProfileError

if TYPE_CHECKING:
    import openvino

    from placekit.cost_models.base import Progress
    from placekit.cost_models.kind_profile import KindProfile
    from placekit.io.model import ModelSource
    from placekit.model.platform import Device, Link

__all__ = ["OpenVinoBackend"]


class OpenVinoBackend:
    """See :class:`~placekit.cost_models.backend.Backend`.

    Parameters
    ----------
    method
        ``"counters"``, ``"submodels"``, or ``"auto"``.
    core
        OpenVINO core; the shared one if None.
    """

    name = "openvino"

    def __init__(self, method: str = "auto", core: openvino.Core | None = None) -> None:
        self._method = method
        self._given_core = core

    @property
    def version(self) -> str:
        """Version of OpenVINO."""
        import openvino

        return str(openvino.__version__)

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

    def method(self, device: Device) -> str:
        """Return how `device` is measured; counters mean what they mean on the CPU only."""
        on_cpu = device.openvino == "CPU"
        if self._method == "counters" and not on_cpu:
            raise ProfileError(
                f"device {device.name!r} ({device.openvino}) cannot be measured with counters, which are understood "
                "for the CPU only; use submodels"
            )
        if self._method != "auto":
            return self._method
        return "counters" if on_cpu else "submodels"

    def device_facts(self, device: Device) -> dict[str, Any]:
        """Return the device string and the name of the hardware."""
        hardware = str(self._core.get_property(device.openvino, "FULL_DEVICE_NAME"))
        return {"device": device.openvino, "hardware": hardware}

    def measure(
        self, source: ModelSource, device: Device, *, repetitions: int, seed: int, progress: Progress | None
    ) -> KindProfile:
        """Measure; see :mod:`placekit.cost_models.openvino.counters` and :mod:`~.submodels` there."""
        from placekit.cost_models.openvino.counters import profile_counters
        from placekit.cost_models.openvino.hand_over import with_hand_over
        from placekit.cost_models.openvino.submodels import profile_submodels

        measure = profile_counters if self.method(device) == "counters" else profile_submodels
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
