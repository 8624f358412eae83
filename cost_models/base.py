"""Interfaces of cost models, which turn a model and a platform into a cost table, and of frameworks that measure."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from placekit.cost_models.kind_profile import KindProfile
    from placekit.io.models.model import ModelSource
    from placekit.model.costs import CostTable
    from placekit.model.graph import OpGraph
    from placekit.model.platform import Device, Link, Platform


class Progress(Protocol):
    """Called as work goes on; whoever shows it decides how."""

    def __call__(self, done: int, total: int, label: str) -> None:
        """Say that `done` of `total` steps are finished and that `label` is what happens now."""


def report(progress: Progress | None, done: int, total: int, label: str) -> None:
    """Call `progress`, if there is one."""
    if progress is not None:
        progress(done, total, label)


@runtime_checkable
class CostModel(Protocol):
    """Turns a model and a platform into seconds and bytes per op and kind of device.

    Attributes
    ----------
    name
        Short name, as on the command line: ``"analytic"``, ``"profiled"``.
    """

    @property
    def name(self) -> str:
        """Short name of the cost model."""

    def cost_table(
        self, source: ModelSource | OpGraph, platform: Platform, *, progress: Progress | None = None
    ) -> CostTable:
        """Return the costs of every op of `source` on every kind of `platform`.

        Parameters
        ----------
        source
            A model file that was read, or a bare graph. A cost model that computes from sizes alone takes both
            (see `graph_of`); one that has to run the model needs the `ModelSource` and refuses a bare graph.
        platform
            The devices; the table has one column per kind, in the order of ``platform.kinds``.
        progress
            Called with (done, total, label) as work goes on.

        Raises
        ------
        UnsupportedProblemError
            The cost model needs more than a bare graph.
        """


class Backend(Protocol):
    """A framework that runs models, as `Profiled` needs it.

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

    def platform(self, devices: str | None, precision: str = "f32") -> Platform:
        """Return devices of this machine by the framework's own names, ``"CPU,GPU"``; all that there are if None.

        Raises
        ------
        DeviceUnavailableError
            A device that is not there.
        InvalidProblemError
            No device, or the same one twice; a precision that the framework does not choose.
        """


def backend_of(source: ModelSource | None) -> Backend:
    """Return the framework that measures `source`, which says it; OpenVINO if there is no model."""
    from placekit.io.models.model import ModelSource

    backend: Backend = pkgutil.resolve_name((source or ModelSource).backend)()
    return backend


def graph_of(source: ModelSource | OpGraph) -> OpGraph:
    """Return the graph of `source`, whichever of the two it is."""
    from placekit.model.graph import OpGraph

    return source if isinstance(source, OpGraph) else source.graph
