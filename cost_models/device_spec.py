"""The sustained rates of one class of devices: what an entry of the device table is."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Link

__all__ = ["SOCKET_BANDWIDTH", "DeviceSpec"]

_ADDED_CORE = 0.9
_FORK_JOIN_S = 2e-6

SOCKET_BANDWIDTH = 100e9
"""Bytes per second of all cores together: four channels of DDR5-4800 are 154e9 by data sheet, 65 % of it sustained."""


@dataclass(frozen=True)
class DeviceSpec:
    """The sustained rates of one class of devices.

    Parameters
    ----------
    name
        Name of the entry.
    dense_flops_per_s
        Convolutions, matrix products, attention, recurrent cells.
    depthwise_flops_per_s
        Depthwise and grouped convolutions, which reuse little.
    other_flops_per_s
        Everything else: elementwise ops, reductions, normalisation, pooling.
    memory_bandwidth_bytes_per_s
        Between the compute units and the device's own memory.
    op_overhead_s
        Fixed cost of starting one op (or one fused group of ops).
    link
        Default link to host memory, for platforms that give none; None for a device that works in host memory.
    memory_bytes
        What such a device has, for `platform_of_specs`; None for a device that works in host memory.
    unsupported_op_types
        Op types that the device cannot run.
    source
        Where the numbers come from.

    Raises
    ------
    InvalidProblemError
        A rate that is not positive and finite, or a negative overhead.
    """

    name: str
    dense_flops_per_s: float
    depthwise_flops_per_s: float
    other_flops_per_s: float
    memory_bandwidth_bytes_per_s: float
    op_overhead_s: float
    link: Link | None = None
    memory_bytes: float | None = None
    unsupported_op_types: frozenset[str] = frozenset()
    source: str = "given"

    def __post_init__(self) -> None:
        object.__setattr__(self, "unsupported_op_types", frozenset(self.unsupported_op_types))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_per_s") and not (math.isfinite(value) and value > 0):
                raise InvalidProblemError(f"spec {self.name!r}: {field.name} is {value}; it must be finite and > 0")
        if not (math.isfinite(self.op_overhead_s) and self.op_overhead_s >= 0):
            raise InvalidProblemError(
                f"spec {self.name!r}: op_overhead_s is {self.op_overhead_s}; it must be finite and >= 0"
            )

    def on_cores(self, num_cores: int) -> Self:
        """Return this one-core spec for a group of `num_cores` cores.

        Compute grows by 0.9 per added core (fork and join, shared caches), bandwidth until `SOCKET_BANDWIDTH` fills.
        """
        if num_cores == 1:
            return self
        factor = 1 + _ADDED_CORE * (num_cores - 1)
        return replace(
            self,
            name=f"{self.name} x{num_cores}",
            dense_flops_per_s=self.dense_flops_per_s * factor,
            depthwise_flops_per_s=self.depthwise_flops_per_s * factor,
            other_flops_per_s=self.other_flops_per_s * factor,
            memory_bandwidth_bytes_per_s=min(self.memory_bandwidth_bytes_per_s * num_cores, SOCKET_BANDWIDTH),
            op_overhead_s=self.op_overhead_s + _FORK_JOIN_S,
            source=f"{self.source}; {num_cores} cores at {factor:.1f} times one",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON values, for the provenance of a cost table."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["unsupported_op_types"] = sorted(self.unsupported_op_types)
        link = self.link
        values["link"] = link and {
            "latency_s": link.latency_s,
            # JSON has no infinity
            "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s if math.isfinite(link.bandwidth_bytes_per_s) else None,
        }
        return values
