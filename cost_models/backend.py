"""Interface of a framework to `Profiled`: its devices, and a measurement of every op on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from placekit.cost_models.base import Progress
    from placekit.cost_models.kind_profile import KindProfile
    from placekit.io.model import ModelSource
    from placekit.model.platform import Device, Link

__all__ = ["Backend"]


class Backend(Protocol):
    """A framework that runs models.

    Attributes
    ----------
    name
        Name of the framework, under which its version stands in the provenance.
    """

    name: str

    @property
    def version(self) -> str:
        """Version of the framework."""

    def require(self, device: Device) -> None:
        """Raise unless `device` is there and can be measured.

        Raises
        ------
        DeviceUnavailableError
            With the reason.
        """

    def device_facts(self, device: Device) -> dict[str, Any]:
        """Return what a measurement depends on beside model, cores and properties: JSON values."""

    def measure(
        self, source: ModelSource, device: Device, *, repetitions: int, seed: int, progress: Progress | None
    ) -> KindProfile:
        """Measure every op of `source` on `device`, where this thread is bound to.

        Raises
        ------
        PlacekitError
            The model does not run there.
        """

    def link(self, device: Device) -> Link:
        """Measure the link between host memory and `device`."""
