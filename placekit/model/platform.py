"""Devices, and the platform that they form together with their links.

Devices of one *kind* are interchangeable: same op times, same memory, same link. Solvers break that symmetry.
A transfer goes through host memory: the device that produced a tensor writes it once over its own link, every
device that needs it reads it once over its own link; a host device without a link pays nothing (Tarnawski et al.
2020, section 3). Pairs of devices may have a *direct link* instead, inside a node or between nodes: then the tensor
goes from one device to the other without host memory, once for every device that needs it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.memory import MEMORY_TOLERANCE, Pool
from placekit.model.reprs import short_list, short_repr

MAX_DEVICES = 8192
"""More devices than this are taken for a mistake, not for a machine."""


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
    node
        Name of the machine that it is in; None if the platform does not tell machines apart.
    members
        Names of the devices that compute every op together, each with its part (tensor parallelism); empty for a single
        device. The memory is that of all members.

    Raises
    ------
    InvalidProblemError
        An empty name, kind or node, or a memory that is not a positive finite number.
    """

    name: str
    kind: str
    memory_bytes: float | None = None
    is_host: bool = False
    openvino: str | None = None
    cores: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name or not self.kind:
            raise InvalidProblemError(f"device {self.name!r} of kind {self.kind!r}: name and kind must not be empty")
        if self.node == "":
            raise InvalidProblemError(f"device {self.name!r} has an empty node; it must have a name, or be None")
        if self.memory_bytes is not None and not (math.isfinite(self.memory_bytes) and self.memory_bytes > 0):
            raise InvalidProblemError(
                f"device {self.name!r} has memory_bytes {self.memory_bytes}; it must be finite and > 0, or None"
            )
        object.__setattr__(self, "cores", tuple(int(core) for core in self.cores))
        properties = {str(key): str(value) for key, value in self.properties.items()}
        object.__setattr__(self, "properties", MappingProxyType(properties))
        object.__setattr__(self, "members", tuple(self.members))

    @property
    def degree(self) -> int:
        """Number of devices that compute together: the tensor-parallel degree."""
        return max(1, len(self.members))

    @property
    def member_names(self) -> tuple[str, ...]:
        """Names of the members, or its own."""
        return self.members or (self.name,)

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle
        values = (self.name, self.kind, self.memory_bytes, self.is_host, self.openvino, self.cores)
        return (type(self), (*values, dict(self.properties), self.node, self.members))

    __repr__ = short_repr

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

    def to_dict(self) -> dict[str, Any]:
        """Return latency and bandwidth as JSON values; JSON has no infinity, which is None there."""
        bandwidth = self.bandwidth_bytes_per_s
        return {"latency_s": self.latency_s, "bandwidth_bytes_per_s": bandwidth if math.isfinite(bandwidth) else None}


@dataclass(frozen=True, slots=True)
class DirectLink(Link):
    """Direct link between pairs of devices, used instead of the way through host memory.

    Parameters
    ----------
    latency_s, bandwidth_bytes_per_s
        As of `Link`, for the whole way from one device to the other.
    kinds
        Kinds of the two devices, in any order; None for all pairs that no other link names.
    between_nodes
        True for pairs on different nodes, False for those on one node (or where there are no nodes).
    spread
        Interquartile range over median of the times that it was measured by; None if it was not. Equality ignores it.
    """

    kinds: tuple[str, ...] | None = None
    between_nodes: bool = False
    spread: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        Link.__post_init__(self)
        if self.kinds is not None:
            if len(self.kinds) != 2:
                raise InvalidProblemError(f"direct link of kinds {', '.join(self.kinds)}; there must be two")
            object.__setattr__(self, "kinds", tuple(sorted(self.kinds)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**Link.to_dict(self), "kinds": self.kinds, "between_nodes": self.between_nodes}

    @property
    def name(self) -> str:
        """Its name in files: ``"gpu-gpu"``, ``"gpu-gpu between nodes"``, or ``"any"`` for all kinds."""
        return ("any" if self.kinds is None else "-".join(self.kinds)) + " between nodes" * self.between_nodes


@dataclass(frozen=True)
class Platform:
    """The set of devices, the link of every kind that has one, and direct links between devices.

    Parameters
    ----------
    devices
        At least one device, with unique names; devices of a kind must agree in memory and host flag.
    links
        Link to host memory by kind. A kind without a link moves tensors for free (a CPU).
    direct_links
        Links between pairs of devices. A pair takes the link of its two kinds, else the one of any kinds, else the way
        through host memory; that way ends at the border of a node, so pairs on different nodes need a link.
    spec_of_kind, specs
        For analytic costs only: name of the spec by kind, for kinds that name one; and specs of a platform file's own,
        some fields of :class:`placekit.cost_models.sheets.device_table.DeviceSpec` by name. Equality ignores both.
    pools
        Memories that several devices share. The limit of a device in a pool is the pool's, or its own if that is less.

    Raises
    ------
    InvalidProblemError
        No device, a duplicate name, devices of one kind that differ, a link of an unknown kind, two direct links of the
        same pairs, a device without a node where others have one, or two devices on different nodes without a link; a
        pool of an unknown device, a device in two pools, or interchangeable devices of which only some are in a pool.

    Examples
    --------
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> platform.device_names, platform.kinds
    (('cpu.0', 'gpu.0', 'gpu.1'), ('cpu', 'gpu'))
    """

    devices: tuple[Device, ...]
    links: Mapping[str, Link] = field(default_factory=dict)
    direct_links: tuple[DirectLink, ...] = ()
    spec_of_kind: Mapping[str, str] = field(default_factory=dict, compare=False)
    specs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)
    pools: tuple[Pool, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "spec_of_kind", MappingProxyType(dict(self.spec_of_kind)))
        specs = {name: MappingProxyType(dict(values)) for name, values in self.specs.items()}
        object.__setattr__(self, "specs", MappingProxyType(specs))
        object.__setattr__(self, "links", MappingProxyType(dict(self.links)))
        object.__setattr__(self, "direct_links", tuple(self.direct_links))
        object.__setattr__(self, "pools", tuple(self.pools))
        if self.pools:
            self._limit_by_pools()
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
        self._check_nodes()
        if self.direct_links:
            self._check_direct_links()
        for pool in self.pools:
            inside = np.isin(self.group_of_device, self.group_of_device[self.members_of(pool)])
            alike = [self.device_names[d] for d in np.flatnonzero(inside).tolist()]
            if out := [name for name in alike if name not in pool.devices]:
                raise InvalidProblemError(
                    f"device {out[0]!r} is not in pool {pool.name!r}, but interchangeable with devices in it; give it "
                    "another kind"
                )

    def _limit_by_pools(self) -> None:
        """Let no device hold more than its pool."""
        limit: dict[str, float] = {}
        for pool in self.pools:
            for name in pool.devices:
                if name in limit or name not in {device.name for device in self.devices}:
                    what = "in two pools" if name in limit else "no device of the platform"
                    raise InvalidProblemError(f"pool {pool.name!r} names {name!r}, which is {what}")
                limit[name] = pool.memory_bytes
        devices = tuple(
            device.replace(memory_bytes=limit[device.name])
            if device.name in limit and (device.memory_bytes is None or device.memory_bytes > limit[device.name])
            else device
            for device in self.devices
        )
        object.__setattr__(self, "devices", devices)

    def _check_nodes(self) -> None:
        homeless = [device.name for device in self.devices if device.node is None]
        at_home = [device for device in self.devices if device.node is not None]
        if homeless and at_home:
            raise InvalidProblemError(
                f"device {homeless[0]!r} has no node, but {at_home[0].name!r} is on {at_home[0].node!r}; "
                "give every device a node, or none"
            )
        if at_home and not self.direct_links and len({device.node for device in at_home}) > 1:
            one, other = next((a, b) for a, b in pairwise(at_home) if a.node != b.node)
            raise InvalidProblemError(_no_way(one, other))

    def _check_direct_links(self) -> None:
        for link in self.direct_links:
            for kind in link.kinds or ():
                if kind not in self.kinds:
                    raise InvalidProblemError(
                        f"direct link {link.name!r} of unknown kind {kind!r}; kinds are {', '.join(self.kinds)}"
                    )
            if link.between_nodes and self.devices[0].node is None:
                raise InvalidProblemError(f"direct link {link.name!r}: no device has a node")
        for name, count in Counter(self.direct_link_names).items():
            if count > 1:
                raise InvalidProblemError(f"direct link {name!r} appears {count} times; it must be unique")
        member = np.unique(self.group_of_device, return_index=True)[1].tolist()
        for a, b in np.argwhere(self.link_of_groups < 0).tolist():
            one, other = self.devices[member[a]], self.devices[member[b]]
            if one.node != other.node:
                raise InvalidProblemError(_no_way(one, other))

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

    @property
    def direct_link_names(self) -> tuple[str, ...]:
        """``[num_direct_links]`` names."""
        return tuple(link.name for link in self.direct_links)

    @cached_property
    def memory_limits_bytes(self) -> NDArray[np.float64]:
        """``[num_devices]`` bytes that the judge lets every device hold, `MEMORY_TOLERANCE` included; inf for no limit.

        A bound that adds the same bytes in another order must allow `MEMORY_TOLERANCE` once more.
        """
        limits = [math.inf if device.memory_bytes is None else device.memory_bytes for device in self.devices]
        array = np.array(limits, dtype=np.float64) * (1 + MEMORY_TOLERANCE)
        array.setflags(write=False)
        return array

    def members_of(self, pool: Pool) -> NDArray[np.int64]:
        """``[devices of the pool]`` indices of the devices that share `pool`."""
        return np.array([self.device_names.index(name) for name in pool.devices], dtype=np.int64)

    @property
    def most_bytes(self) -> float:
        """Bytes that all devices hold together at most, without `MEMORY_TOLERANCE`; infinity if one has no limit."""
        limits = {d.name: math.inf if d.memory_bytes is None else d.memory_bytes for d in self.devices}
        pooled = sum(min(pool.memory_bytes, sum(limits.pop(name) for name in pool.devices)) for pool in self.pools)
        return pooled + sum(limits.values())

    def with_more_memory(self, *, of_member: float = 0.0, of_host: float = 0.0) -> Self:
        """Return the platform with more bytes on every member of a limited device or host, and in the pool it is in."""
        extra = {each.name: each.degree * of_member + (of_host if each.is_host else 0.0) for each in self.devices}
        devices = tuple(
            each if each.memory_bytes is None else each.replace(memory_bytes=each.memory_bytes + extra[each.name])
            for each in self.devices
        )
        pools = (replace(p, memory_bytes=p.memory_bytes + sum(extra[name] for name in p.devices)) for p in self.pools)
        return self.replace(devices=devices, pools=tuple(pools))

    def without_pools(self) -> Self:
        """Return the platform whose devices have memories of their own, each with its limit."""
        return self.replace(pools=())

    @cached_property
    def group_of_device(self) -> NDArray[np.int64]:
        """``[num_devices]`` label of the interchangeable devices: one kind and, with direct links, one node."""
        if not self.direct_links:
            return self.kind_of_device
        label: dict[tuple[str, str | None], int] = {}
        array = np.array([label.setdefault((d.kind, d.node), len(label)) for d in self.devices], dtype=np.int64)
        array.setflags(write=False)
        return array

    @cached_property
    def link_of_groups(self) -> NDArray[np.int64]:
        """``[num_groups, num_groups]`` direct link of two devices by their `group_of_device`; -1 without one."""
        at = {(link.kinds, link.between_nodes): number for number, link in enumerate(self.direct_links)}
        first = np.unique(self.group_of_device, return_index=True)[1].tolist()
        table = np.full((len(first), len(first)), -1, dtype=np.int64)
        for a, one in enumerate(first):
            for b, other in enumerate(first):
                left, right = sorted((self.devices[one].kind, self.devices[other].kind))
                is_between = self.devices[one].node != self.devices[other].node
                table[a, b] = at.get(((left, right), is_between), at.get((None, is_between), -1))
        return table

    def direct_times_s(self, num_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[..., num_direct_links]`` seconds to move `num_bytes` (any shape) over every direct link once."""
        times = [link.time_s(num_bytes) for link in self.direct_links]
        return np.stack(times, axis=-1) if times else np.zeros((*np.shape(num_bytes), 0))

    def direct_link(self, source: ArrayLike, target: ArrayLike) -> NDArray[np.int64]:
        """Return the direct link from every device `source` to another one, `target`; -1 for through host memory.

        Parameters
        ----------
        source, target
            Device indices, of any shapes that broadcast; what a device has with itself means nothing.
        """
        if not self.direct_links:
            return np.full(np.broadcast_shapes(np.shape(source), np.shape(target)), -1)
        group = self.group_of_device
        return np.asarray(self.link_of_groups[group[np.asarray(source)], group[np.asarray(target)]])

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
        specs = {name: dict(values) for name, values in self.specs.items()}
        links, named = dict(self.links), dict(self.spec_of_kind)
        return (type(self), (self.devices, links, self.direct_links, named, specs, self.pools))

    def __hash__(self) -> int:
        return hash(self.devices)

    def __repr__(self) -> str:
        counts = Counter(device.kind for device in self.devices)
        return f"Platform({self.num_devices} devices: {short_list(f'{n} x {kind}' for kind, n in counts.items())})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        return replace(self, **changes)

    def with_devices(self, devices: Iterable[Device]) -> Self:
        """Return the platform with some of its devices, the links of their kinds, and the pools that they share."""
        kept = tuple(devices)
        kinds, names = {device.kind for device in kept}, {device.name for device in kept}
        left = [replace(p, devices=both) for p in self.pools if (both := tuple(n for n in p.devices if n in names))]
        return self.replace(
            devices=kept,
            pools=tuple(left),
            links={kind: link for kind, link in self.links.items() if kind in kinds},
            direct_links=tuple(link for link in self.direct_links if kinds.issuperset(link.kinds or ())),
        )


def _no_way(one: Device, other: Device) -> str:
    return (
        f"devices {one.name!r} on node {one.node!r} and {other.name!r} on node {other.node!r} have no direct link "
        "between nodes, and the way through host memory ends at the border of a node"
    )
