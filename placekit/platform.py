"""Devices, and the platform that they form together with their links.

Devices of one *kind* are interchangeable: same op times, same memory, same link. Solvers break that symmetry.
A transfer goes through host memory: the device that produced a tensor writes it once over its own link, every
device that needs it reads it once over its own link; a host device without a link pays nothing (Tarnawski et al.
2020, section 3).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.errors import InvalidProblemError, UnknownNameError

__all__ = ["MAX_DEVICES", "Device", "Link", "Platform"]

MAX_DEVICES = 8192
"""More devices than this are taken for a mistake, not for a machine."""


def _frozen_mapping(values: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({str(key): str(value) for key, value in values.items()})


@dataclass(frozen=True)
class Device:
    """One placement target.

    Parameters
    ----------
    name
        Unique name, for example ``"GPU.0"`` or ``"CPU[0-3]"``.
    kind
        Devices of the same kind are interchangeable.
    memory_bytes
        Memory for weights and activations, in bytes; None for no limit.
    is_host
        True for a CPU: it works in host memory.
    openvino
        OpenVINO device string that executes it (``"CPU"``, ``"GPU.0"``); None if it cannot be executed here.
    cores
        Processor ids of a core group; empty for "the whole device".
    properties
        OpenVINO properties, for example ``{"INFERENCE_PRECISION_HINT": "f32"}``.

    Raises
    ------
    InvalidProblemError
        An empty name or kind, or a memory that is not a positive finite number.
    """

    name: str
    kind: str
    memory_bytes: float | None = None
    is_host: bool = False
    openvino: str | None = None
    cores: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or not self.kind:
            raise InvalidProblemError(f"device {self.name!r} of kind {self.kind!r}: name and kind must not be empty")
        if self.memory_bytes is not None and not (math.isfinite(self.memory_bytes) and self.memory_bytes > 0):
            raise InvalidProblemError(
                f"device {self.name!r} has memory_bytes {self.memory_bytes}; it must be finite and > 0, or None"
            )
        object.__setattr__(self, "cores", tuple(int(core) for core in self.cores))
        object.__setattr__(self, "properties", _frozen_mapping(self.properties))

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle
        values = (self.name, self.kind, self.memory_bytes, self.is_host, self.openvino, self.cores)
        return (type(self), (*values, dict(self.properties)))

    def __hash__(self) -> int:
        return hash((self.name, self.kind))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Link:
    """The link between host memory and every device of one kind: ``time = latency_s + bytes / bandwidth``.

    Parameters
    ----------
    latency_s
        Fixed cost of one transfer in seconds.
    bandwidth_bytes_per_s
        Bytes per second; infinity for a link whose time does not depend on size.

    Raises
    ------
    InvalidProblemError
        A negative or non-finite latency, or a bandwidth that is not positive.
    """

    latency_s: float
    bandwidth_bytes_per_s: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.latency_s) and self.latency_s >= 0):
            raise InvalidProblemError(f"link latency_s is {self.latency_s}; it must be finite and >= 0")
        if not self.bandwidth_bytes_per_s > 0:
            raise InvalidProblemError(f"link bandwidth_bytes_per_s is {self.bandwidth_bytes_per_s}; it must be > 0")

    def time_s(self, num_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds to move `num_bytes` (any shape) over this link once."""
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Platform:
    """The set of devices, and the link of every kind that has one.

    Parameters
    ----------
    devices
        At least one device, with unique names; devices of a kind must agree in memory and host flag.
    links
        Link to host memory by kind. A kind without a link moves tensors for free (a CPU).

    Raises
    ------
    InvalidProblemError
        No device, a duplicate name, devices of one kind that differ, or a link of an unknown kind.

    Examples
    --------
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> platform.device_names, platform.kinds
    (('cpu.0', 'gpu.0', 'gpu.1'), ('cpu', 'gpu'))
    """

    devices: tuple[Device, ...]
    links: Mapping[str, Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "links", MappingProxyType(dict(self.links)))
        if not self.devices:
            raise InvalidProblemError("a platform needs at least one device")
        for name, count in Counter(device.name for device in self.devices).items():
            if count > 1:
                raise InvalidProblemError(f"device name {name!r} appears {count} times; it must be unique")
        first: dict[str, Device] = {}
        for device in self.devices:
            twin = first.setdefault(device.kind, device)
            for attribute in ("memory_bytes", "is_host"):
                if getattr(twin, attribute) != getattr(device, attribute):
                    raise InvalidProblemError(
                        f"devices {twin.name!r} and {device.name!r} are both of kind {device.kind!r} but differ in "
                        f"{attribute}: {getattr(twin, attribute)} and {getattr(device, attribute)}; "
                        "give them different kinds"
                    )
        for kind in self.links:
            if kind not in first:
                raise InvalidProblemError(f"link of unknown kind {kind!r}; kinds are {', '.join(first)}")

    @classmethod
    def of(
        cls,
        *,
        host: str | Iterable[str] = (),
        memory_bytes: Mapping[str, float] | None = None,
        links: Mapping[str, Link] | None = None,
        **counts: int,
    ) -> Self:
        """Build a platform from a count per kind; devices are named ``kind.0``, ``kind.1``, ...

        Parameters
        ----------
        host
            Kind or kinds that are CPUs.
        memory_bytes
            Memory limit by kind.
        links
            Link by kind.
        **counts
            Number of devices of each kind, at most `MAX_DEVICES` in all.
        """
        if sum(counts.values()) > MAX_DEVICES:
            raise InvalidProblemError(f"a platform of {sum(counts.values())} devices; the limit is {MAX_DEVICES}")
        hosts = {host} if isinstance(host, str) else set(host)
        memory = memory_bytes or {}
        devices = [
            Device(f"{kind}.{i}", kind, memory_bytes=memory.get(kind), is_host=kind in hosts)
            for kind, count in counts.items()
            for i in range(count)
        ]
        return cls(tuple(devices), links or {})

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.devices)

    @cached_property
    def device_names(self) -> tuple[str, ...]:
        """``[num_devices]`` names."""
        return tuple(device.name for device in self.devices)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """``[num_kinds]`` kinds in order of first appearance."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    @cached_property
    def kind_of_device(self) -> NDArray[np.int64]:
        """``[num_devices]`` index into `kinds` of every device."""
        array = np.array([self.kinds.index(device.kind) for device in self.devices], dtype=np.int64)
        array.setflags(write=False)
        return array

    def devices_of_kind(self, kind: int) -> list[int]:
        """Return the device indices of the kind with index `kind`."""
        return np.flatnonzero(self.kind_of_device == kind).tolist()

    def index(self, name: str) -> int:
        """Return the index of the device called `name`.

        Raises
        ------
        UnknownNameError
            No device has that name.
        """
        try:
            return self.device_names.index(name)
        except ValueError:
            raise UnknownNameError(
                f"no device {name!r} on this platform; devices are {', '.join(self.device_names)}"
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.devices, dict(self.links)))

    def __hash__(self) -> int:
        return hash(self.devices)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        return replace(self, **changes)
