"""Costs of devices that are not on this machine, beside measured ones: a roofline, anchored at what was measured.

A platform file may name devices that this machine lacks and say what they are (`spec`). Such a device is *described*.

1. Every measured kind has a ratio: the sum of its measured times over the sum of its analytic times.
2. The analytic times of the described kinds are multiplied by the geometric mean of these ratios, the *anchor*.
3. The spread of the anchor says how far single fused groups of the measured kinds lie from it, as a factor.

4. Their error is that spread over single ops, which largely cancels in a sum of many.

The anchor corrects what the roofline gets wrong about the model, not what a data sheet gets wrong about a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.analytic import Analytic, roofline
from placekit.cost_models.device_table import DeviceSpec, guess_spec
from placekit.model.errors import DeviceUnavailableError, UnknownNameError

if TYPE_CHECKING:
    from placekit.cost_models.base import Backend
    from placekit.model.graph import OpGraph
    from placekit.model.platform import Device, Platform


@dataclass(frozen=True)
class Anchor:
    """Ratio of measured to analytic times.

    Parameters
    ----------
    ratio
        Measured over analytic time; 1 where nothing could be compared.
    spread
        Factor, at least 1: a fused group takes its analytic time times `ratio`, times or divided by this (one standard
        deviation of the logarithm, weighted by measured time). None where nothing could be compared.
    kinds
        Measured kinds that the ratio comes from.
    """

    ratio: float = 1.0
    spread: float | None = None
    kinds: tuple[str, ...] = ()

    def error_of(self, time_s: NDArray[np.float64]) -> float | None:
        """Return the relative error of a sum of times, each of which is off by the spread, independently of the others.

        `time_s` has ``[num_ops]`` modelled seconds; without a spread there is no error.
        """
        total_s = float(time_s.sum())
        if self.spread is None or total_s <= 0:
            return None
        return (self.spread - 1) * float(np.sqrt((time_s**2).sum())) / total_s

    def to_dict(self) -> dict[str, Any]:
        """Return the anchor as JSON values."""
        return asdict(self) | {"kinds": list(self.kinds)}


def described_specs(platform: Platform, devices: Sequence[Device], backend: Backend) -> dict[str, DeviceSpec]:
    """Return the spec of every kind that is modelled, because this machine lacks its first device.

    Raises
    ------
    DeviceUnavailableError
        A device that is not here and has no spec, or no device of the platform is here.
    """
    specs = Analytic.from_platform_file(platform).specs
    missing: dict[str, DeviceUnavailableError] = {}
    for device in devices:
        try:
            backend.require(device)
        except DeviceUnavailableError as error:
            if device.kind not in specs:
                raise DeviceUnavailableError(f"{error}; a `spec` in the platform file would have it modelled") from None
            missing[device.kind] = error
    if len(missing) == len(devices):
        raise DeviceUnavailableError(f"no device of the platform can be measured here: {next(iter(missing.values()))}")
    return {kind: spec for kind, spec in specs.items() if kind in missing and isinstance(spec, DeviceSpec)}


def anchor_of(
    graph: OpGraph, op_group: NDArray[np.int64], platform: Platform, measured: Mapping[str, NDArray[np.float64]]
) -> Anchor:
    """Return the ratio of measured to analytic times over all measured kinds.

    `measured` has ``[num_ops]`` seconds by kind, the time of a group on one of its ops.
    """
    ratios, squares, weights, kinds = [], 0.0, 0.0, []
    for kind, time_s in measured.items():
        spec = _spec_as_measured(platform, kind)
        if spec is None:
            continue
        modelled_s, supported = roofline(graph, op_group, spec)
        both = (time_s > 0) & (modelled_s > 0) & supported
        if not both.any():
            continue
        here, there = time_s[both], modelled_s[both]
        ratio = float(here.sum() / there.sum())
        squares += float((here * np.log(here / there / ratio) ** 2).sum())
        weights += float(here.sum())
        ratios.append(ratio)
        kinds.append(kind)
    if not ratios:
        return Anchor()
    spread = float(np.exp(np.sqrt(squares / weights)))
    return Anchor(float(np.exp(np.log(ratios).mean())), spread, tuple(kinds))


def _spec_as_measured(platform: Platform, kind: str) -> DeviceSpec | None:
    """Return the spec of a measured kind; that of a CPU has the cores of this machine, whatever the file says."""
    from placekit.cost_models.openvino.machine import usable_cores

    device = platform.devices[platform.devices_of_kind(platform.kinds.index(kind))[0]]
    if device.openvino == "CPU":
        cores = device.cores or tuple(core.cpu for core in usable_cores())
        return guess_spec(device.replace(kind="CPU", cores=cores))
    own = Analytic.from_platform_file(platform).specs.get(kind)
    if isinstance(own, DeviceSpec):
        return own
    try:
        return guess_spec(device)
    except UnknownNameError:
        return None
