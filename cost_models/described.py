"""Costs of devices that are not on this machine, beside measured ones: a roofline, anchored at what was measured.

A platform file may name devices that this machine lacks and say what they are (`spec`). Such a device is *described*.

1. Every measured kind has a ratio: the mean of measured over analytic times of its fused groups, as a geometric mean
   weighted by their work. Groups of a few microseconds, and those whose repetitions differ widely, do not count.
2. The analytic times of the described kinds are multiplied by the geometric mean of these ratios, the *anchor*.
3. The anchor is bounded by `MOST_RATIO`: no device is faster than its peak, and the rest is the measured device's own.
4. The spread of the anchor says how far single fused groups of the measured kinds lie from it, as a factor.
5. The error of described kinds is that spread, which largely cancels in a sum of many, and what the bound cut off.

The anchor corrects what the roofline gets wrong about the model, not what a data sheet gets wrong about a device.
Without a group to compare, analytic times are right to within a factor of about two (`TABLE_ERROR`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.analytic import Analytic, roofline
from placekit.cost_models.sheets.cards import GENERAL
from placekit.cost_models.sheets.device_table import DeviceSpec, guess_spec
from placekit.model.errors import DeviceUnavailableError, UnknownNameError

if TYPE_CHECKING:
    from placekit.cost_models.base import Backend
    from placekit.io.models.number_types import NumberTypes
    from placekit.model.graph import OpGraph
    from placekit.model.platform import Device, Platform


MOST_RATIO = 1 / GENERAL.matrix
"""Largest ratio of measured to analytic times that tells something about another device, and the inverse of the least.

Sustained rates of the device table are this share of a peak in a data sheet: no smaller ratio is possible.
"""

TABLE_ERROR = 1.0
"""Relative error of analytic times that nothing was compared with: a factor of two."""

_LEAST_S, _MOST_SPREAD = 10e-6, 0.5
"""Seconds that a group takes at least, and the relative spread of its repetitions at most, to be compared."""


@dataclass(frozen=True)
class Anchor:
    """Ratio of measured to analytic times.

    Parameters
    ----------
    ratio
        Measured over analytic time, within `MOST_RATIO`; 1 where nothing could be compared.
    spread
        Factor, at least 1: a fused group takes its analytic time times `ratio`, times or divided by this (one standard
        deviation of the logarithm, weighted by work). None where nothing could be compared.
    kinds
        Measured kinds that the ratio comes from.
    found
        The ratio before it was bounded.
    """

    ratio: float = 1.0
    spread: float | None = None
    kinds: tuple[str, ...] = ()
    found: float = 1.0

    def error_of(self, time_s: NDArray[np.float64]) -> float | None:
        """Return the relative error of a sum of times: what was cut off, and the spread of each, independent of others.

        `time_s` has ``[num_ops]`` modelled seconds; there is no error without any.
        """
        total_s = float(time_s.sum())
        if total_s <= 0:
            return None
        if self.spread is None:
            return TABLE_ERROR
        cut = max(self.found / self.ratio, self.ratio / self.found) - 1
        return cut + (self.spread - 1) * float(np.sqrt((time_s**2).sum())) / total_s

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
    first = {device.kind: device for device in devices}
    return {
        kind: spec.as_set(first[kind])
        for kind, spec in specs.items()
        if kind in missing and isinstance(spec, DeviceSpec)
    }


def anchor_of(
    graph: OpGraph,
    op_group: NDArray[np.int64],
    platform: Platform,
    measured: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    numbers: NumberTypes | None = None,
) -> Anchor:
    """Return the ratio of measured to analytic times over all measured kinds.

    `measured` has ``[num_ops]`` seconds and relative spread by kind, those of a group on one of its ops; `numbers` are
    those of a `ModelSource`.
    """
    ratios, squares, weights, kinds = [], 0.0, 0.0, []
    for kind, (time_s, spread_of_op) in measured.items():
        spec = _spec_as_measured(platform, kind)
        if spec is None:
            continue
        modelled_s, supported = roofline(graph, op_group, spec, numbers)
        work_s = modelled_s - spec.op_overhead_s  # what a launch costs says nothing about the rates
        steady = ~(spread_of_op > _MOST_SPREAD)  # NaN where a spread is not known
        both = (time_s >= _LEAST_S) & (work_s > 0) & supported & steady
        if not both.any():
            continue
        found, work = np.log(time_s[both] / modelled_s[both]), work_s[both]
        mean = float((work * found).sum() / work.sum())
        squares += float((work * (found - mean) ** 2).sum())
        weights += float(work.sum())
        ratios.append(mean)
        kinds.append(kind)
    if not ratios:
        return Anchor()
    ratio = float(np.exp(np.mean(ratios)))
    spread = float(np.exp(np.sqrt(squares / weights)))
    return Anchor(float(np.clip(ratio, 1 / MOST_RATIO, MOST_RATIO)), spread, tuple(kinds), ratio)


def _spec_as_measured(platform: Platform, kind: str) -> DeviceSpec | None:
    """Return the spec of a measured kind; that of a CPU has the cores of this machine, whatever the file says."""
    from placekit.cost_models.openvino.machine import usable_cores

    device = platform.devices[platform.devices_of_kind(platform.kinds.index(kind))[0]]
    if device.openvino == "CPU":
        cores = device.cores or tuple(core.cpu for core in usable_cores())
        return guess_spec(device.replace(kind="CPU", cores=cores))
    own = Analytic.from_platform_file(platform).specs.get(kind)
    if isinstance(own, DeviceSpec):
        return own.as_set(device)
    try:
        return guess_spec(device).as_set(device)
    except UnknownNameError:
        return None
