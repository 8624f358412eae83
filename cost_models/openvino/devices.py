"""Devices of OpenVINO on this machine, and the platforms made of them.

On a machine whose only device is the CPU the default platform splits its cores into groups, each a device of its own,
so that pipelines are real and measurable everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from placekit.cost_models.openvino.machine import Core, format_cores, memory_bytes, usable_cores
from placekit.io.needs import require
from placekit.machine import usable_cpus
from placekit.model.errors import DeviceUnavailableError, InvalidProblemError
from placekit.model.platform import Device, Platform

if TYPE_CHECKING:
    import openvino

_LOGGER = logging.getLogger(__name__)

PRECISIONS: tuple[str, ...] = ("f32", "bf16", "f16")
"""Values of OpenVINO's ``INFERENCE_PRECISION_HINT`` that a device can be given."""

_REPORTED = (
    "DEVICE_TYPE",
    "DEVICE_ARCHITECTURE",
    "OPTIMIZATION_CAPABILITIES",
    "INFERENCE_PRECISION_HINT",
    "RANGE_FOR_STREAMS",
    "RANGE_FOR_ASYNC_INFER_REQUESTS",
)
_MEMORY = ("GPU_DEVICE_TOTAL_MEM_SIZE", "NPU_DEVICE_TOTAL_MEM_SIZE")


@dataclass(frozen=True)
class AvailableDevice:
    """One device that OpenVINO sees.

    Parameters
    ----------
    name, full_name
        OpenVINO's device string, and the name of the hardware.
    memory_bytes
        Memory of the device; None if it does not say.
    properties
        What it reports of itself: precisions it computes in, default precision, streams, requests.
    """

    name: str
    full_name: str
    memory_bytes: float | None
    properties: Mapping[str, Any]


@cache
def shared_core() -> openvino.Core:
    """Return the one OpenVINO core of this process, kept until it ends.

    Each core of the CPU plugin gives its thread a stack for signals, and takes back the one before it: where cores end
    in another order than they began in, the thread is left with a stack that was freed, and the next Ctrl-C is a
    segmentation fault (seen in OpenVINO 2026.4).
    """
    core: openvino.Core = require("openvino", "finding devices").Core()
    return core


def available_devices(core: openvino.Core | None = None) -> tuple[AvailableDevice, ...]:
    """Return the devices that OpenVINO sees, in its order."""
    core = core or shared_core()
    found = []
    for name in core.available_devices:
        properties = {key: value for key in _REPORTED if (value := _property(core, name, key)) is not None}
        for key in ("INFERENCE_PRECISION_HINT", "DEVICE_TYPE"):  # OpenVINO's own types, no JSON values
            if key in properties:
                properties[key] = _precision(properties[key]) if "PRECISION" in key else _last(properties[key])
        own = next((value for key in _MEMORY if (value := _property(core, name, key))), None)
        memory = memory_bytes() if name == "CPU" else own
        full_name = str(_property(core, name, "FULL_DEVICE_NAME") or name)
        found.append(AvailableDevice(name, full_name, memory and float(memory), MappingProxyType(properties)))
    return tuple(found)


def _property(core: openvino.Core, device: str, key: str) -> Any:
    try:
        return core.get_property(device, key)
    except RuntimeError:  # a property that this device does not have
        return None


def _last(value: object) -> str:
    return str(value).rsplit(".", maxsplit=1)[-1]


def _precision(value: object) -> str:
    """Return OpenVINO's element type as it is written in properties, ``"f32"``; empty if it leaves the choice open."""
    name = value.get_type_name() if hasattr(value, "get_type_name") else str(value)
    return "" if name in {"dynamic", "undefined"} else str(name)


def require_device(name: str, core: openvino.Core | None = None) -> str:
    """Return `name` if this machine has that device; ``"GPU"`` stands for ``"GPU.0"``, as in OpenVINO.

    Raises
    ------
    DeviceUnavailableError
        The device is absent; the message lists those that are there.
    """
    names = (core or shared_core()).available_devices
    if name in names or f"{name}.0" in names or (name.endswith(".0") and name[:-2] in names and name[:-2] != "CPU"):
        return name
    raise DeviceUnavailableError(f"device {name!r} is not available; OpenVINO offers {', '.join(names)} here")


def refused_ops(core: openvino.Core, model: openvino.Model, device: str, op_names: Iterable[str]) -> list[str]:
    """Return the ops of `op_names` that a device says it does not support; none if the device cannot be asked."""
    try:
        accepted = core.query_model(model, device)
    except RuntimeError as error:
        _LOGGER.info("device %s cannot be asked what it supports: %s", device, error)
        return []
    return [name for name in op_names if name not in accepted]


def all_cores_of(platform: Platform) -> Platform | None:
    """Return a platform of one device: all cores that the groups of cores of `platform` have.

    None unless `platform` is several groups of cores. The device computes in f32 if one of the groups does.
    """
    if len(platform.devices) < 2 or not all(each.cores for each in platform.devices):
        return None
    cores = sorted({core for device in platform.devices for core in device.cores})
    precisions = [device.properties.get("INFERENCE_PRECISION_HINT", "f32") for device in platform.devices]
    return core_groups(1, precision="f32" if "f32" in precisions else precisions[0], cores=cores)


def core_groups(
    num_groups: int | None = None,
    *,
    threads: Sequence[int] | None = None,
    precision: str | Sequence[str] = "f32",
    cores: Sequence[int] | None = None,
) -> Platform:
    """Return a platform whose devices are groups of this machine's CPU cores.

    Groups take the cores in order, socket by socket, and are as equal as the number of cores allows. Groups with the
    same number and type of cores and the same precision are of one kind. Every group may use all of the memory.

    Parameters
    ----------
    num_groups
        Number of groups; as many as `threads` or `precision` list, else 2.
    threads
        Cores of each group, one OpenVINO thread each; an equal split if None.
    precision
        Precision that the groups compute in, one for all or one for each.
    cores
        Logical CPUs to divide; all physical cores that this process may use if None.

    Raises
    ------
    InvalidProblemError
        More cores asked for than there are, lists of different lengths, or an unknown precision.
    DeviceUnavailableError
        A core that this process may not use.

    Examples
    --------
    >>> platform = core_groups(1, threads=[1])
    >>> platform.kinds, platform.devices[0].properties["INFERENCE_NUM_THREADS"]
    (('CPU x1 f32',), '1')
    """
    mine = _chosen_cores(cores)
    lengths = [len(each) for each in (threads, precision) if each is not None and not isinstance(each, str)]
    count = num_groups if num_groups is not None else (lengths[0] if lengths else 2)
    if count < 1 or any(length != count for length in lengths):
        raise InvalidProblemError(
            f"core groups: {count} groups with threads {threads} and precision {precision!r}; "
            "give at least one group, and one entry for each"
        )
    precisions = [precision] * count if isinstance(precision, str) else list(precision)
    for each in precisions:
        if each not in PRECISIONS:
            raise InvalidProblemError(f"core groups: unknown precision {each!r}; one of {', '.join(PRECISIONS)}")
    num_cores = len(mine)
    sizes = list(threads or [])
    if threads is None:  # equal up to one core
        sizes = [num_cores * (i + 1) // count - num_cores * i // count for i in range(count)]
    if min(sizes) < 1 or sum(sizes) > num_cores:
        asked = f"{count} groups" if threads is None else f"{count} groups of {', '.join(map(str, sizes))} cores"
        raise InvalidProblemError(
            f"core groups: {asked} need {max(sum(sizes), count)} cores, this process may use {num_cores} "
            f"({format_cores([core.cpu for core in mine])})"
        )
    ends = [sum(sizes[: i + 1]) for i in range(count)]
    return Platform(
        tuple(
            _cpu_device(mine[end - size : end], each) for size, end, each in zip(sizes, ends, precisions, strict=True)
        )
    )


def core_cuts(*, precision: str = "f32", cores: Sequence[int] | None = None) -> tuple[Platform, ...]:
    """Return every way of cutting this machine's CPU cores into groups of one size, the largest groups first.

    `cores` are the logical CPUs to divide; by default all physical cores that this process may use.

    Raises
    ------
    InvalidProblemError
        An unknown precision.
    DeviceUnavailableError
        A core that this process may not use.

    Examples
    --------
    >>> [cut.num_devices for cut in core_cuts(cores=usable_cpus()[:1])]
    [1]
    """
    count = len(_chosen_cores(cores))
    divisors = [groups for groups in range(1, count + 1) if count % groups == 0]
    return tuple(core_groups(groups, precision=precision, cores=cores) for groups in divisors)


def _chosen_cores(cpus: Sequence[int] | None) -> list[Core]:
    mine = list(usable_cores())
    if cpus is None:
        return mine
    allowed = usable_cpus()
    known = {core.cpu: core for core in mine}
    for cpu in cpus:
        if cpu not in allowed:
            raise DeviceUnavailableError(f"core {cpu} cannot be used; this process may use {format_cores(allowed)}")
    if len(set(cpus)) != len(cpus):
        raise InvalidProblemError(f"cores {list(cpus)}: every core can be given once")
    return [known.get(cpu, Core(cpu, 0, cpu)) for cpu in cpus]


def _cpu_device(cores: Sequence[Core], precision: str, name: str | None = None) -> Device:
    types = [core.core_type for core in cores]
    tag = "+".join(f"{types.count(each)}{each}" for each in sorted(set(types), reverse=True) if each)
    cpus = [core.cpu for core in cores]
    return Device(
        name or f"CPU[{format_cores(cpus)}]",
        f"CPU x{tag or len(cores)} {precision}",
        memory_bytes=memory_bytes(),
        is_host=True,
        openvino="CPU",
        cores=tuple(cpus),
        properties={"INFERENCE_NUM_THREADS": str(len(cores)), "INFERENCE_PRECISION_HINT": precision},
    )


def platform_from_devices(devices: str, *, precision: str = "f32", core: openvino.Core | None = None) -> Platform:
    """Return the platform of the named OpenVINO devices, written as for ``-d``: ``"CPU,GPU"``.

    `precision` is that of the CPU; other devices keep the one that they report, so that it is recorded.

    Raises
    ------
    DeviceUnavailableError
        A device that this machine does not have.
    InvalidProblemError
        No device, or the same one twice.
    """
    core = core or shared_core()
    names = [name.strip() for name in devices.split(",") if name.strip()]
    if not names:
        raise InvalidProblemError(f"devices {devices!r}: name at least one, for example CPU,GPU")
    for name in names:
        require_device(name, core)
    return Platform(tuple(_device(core, name, precision) for name in names))


def _device(core: openvino.Core, name: str, precision: str) -> Device:
    if name == "CPU":
        return _cpu_device(usable_cores(), precision, name)
    reported = {each.name: each for each in available_devices(core)}
    found = reported.get(name) or reported.get(f"{name}.0") or reported[name.removesuffix(".0")]
    base = name.partition(".")[0]
    twins = {each.full_name for each in reported.values() if each.name.partition(".")[0] == base}
    own = str(found.properties.get("INFERENCE_PRECISION_HINT", ""))
    return Device(
        name,
        # two different cards must not share a kind
        base if len(twins) == 1 else f"{base} {found.full_name}",
        memory_bytes=found.memory_bytes,
        openvino=name,
        properties={"INFERENCE_PRECISION_HINT": own} if own else {},
    )


def default_platform(*, precision: str = "f32", core: openvino.Core | None = None) -> Platform:
    """Return all of OpenVINO's devices, or two core groups where the CPU is the only one.

    A CPU with a single usable core is one group.
    """
    names = (core or shared_core()).available_devices
    if any(name != "CPU" for name in names):
        return platform_from_devices(",".join(names), precision=precision, core=core)
    return core_groups(min(2, len(usable_cores())), precision=precision)
