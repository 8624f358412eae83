"""From ``-d``, ``--platform``, ``--groups``, ``--precision`` and ``--memory`` to a platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from placekit.cli.inputs.machine_line import CardsOptions
from placekit.cli.options import parse_pairs
from placekit.cli.parameters import PLATFORM, option
from placekit.cost_models.base import backend_of
from placekit.cost_models.openvino.devices import PRECISIONS, core_cuts, core_groups
from placekit.cost_models.sheets.sheet_memory import leave_free
from placekit.io.files.detect import kind_of_file
from placekit.io.files.placement_json import read_placement
from placekit.io.files.platform_toml import parse_memory, read_platform
from placekit.io.files.result_json import read_result
from placekit.io.models.model import ModelSource
from placekit.model.device_groups import JOINT
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Platform


@dataclass(frozen=True)
class PlatformChoice:
    """Devices that the user chose; None where nothing was said."""

    panel: ClassVar[str] = PLATFORM

    devices: str | None = option(
        None, "Devices by OpenVINO's names; cpu,cuda:0 for a .pt2.", "CPU,GPU", names="--device -d"
    )
    file: Path | None = option(None, "Platform file (.toml): devices, memory, links.", "FILE", names="--platform")
    groups: str | None = option(
        None, "Split the CPU into N groups of cores, each a device; auto: the best N.", "N|auto"
    )
    precision: str | None = option(None, "Precision of the CPU, or of each group of cores: f32,bf16.", "f32|bf16|f16")
    line: CardsOptions = field(default_factory=CardsOptions)

    def __post_init__(self) -> None:
        given = [
            option
            for option, value in (
                ("-d", self.devices),
                ("--platform", self.file),
                ("--groups", self.groups),
                ("--cards or --ram", self.line.is_given or None),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise InvalidProblemError(f"{' and '.join(given)} both choose the devices; give one of them")
        if (self.file is not None or self.line.is_given) and self.precision is not None:
            raise InvalidProblemError("--precision goes with devices of this machine, not with --platform or --cards")
        if self.groups is not None and not self.is_open:
            try:
                int(self.groups)
            except ValueError:
                raise InvalidProblemError(f"--groups {self.groups}: it is a number of groups, or auto") from None
        if self.is_open and "," in (self.precision or ""):
            raise InvalidProblemError(f"--precision {self.precision}: --groups auto takes one precision for all groups")

    @property
    def is_open(self) -> bool:
        """True if there are several ways to cut the CPU into groups, of which the best is wanted."""
        return self.groups == "auto"

    def cuts(self) -> list[Platform]:
        """Return every platform that `is_open` leaves the choice of."""
        return list(core_cuts(precision=self._precisions()[0]))

    def _precisions(self) -> list[str]:
        precisions = (self.precision or "f32").split(",")
        for each in precisions:
            if each not in PRECISIONS:
                raise UnknownNameError(f"no precision {each!r}; precisions are {', '.join(PRECISIONS)}")
        return precisions

    def of_answer(self, path: Path) -> PlatformChoice:
        """Return the choice with the number of groups taken from the devices of the placement or result in `path`."""
        if not self.is_open:
            return self
        named = set(devices_named(path))
        for cut in self.cuts():
            if named <= set(cut.device_names):
                return replace(self, groups=str(cut.num_devices))
        raise InvalidProblemError(
            f"--groups auto: {path} is for devices {', '.join(sorted(named))}, which no way of cutting the cores of "
            "this machine gives"
        )

    @property
    def is_given(self) -> bool:
        """True if the user chose devices in any way."""
        given = any(value is not None for value in (self.devices, self.file, self.groups, self.precision))
        return given or self.line.is_given

    def resolve(self, source: ModelSource | None = None) -> Platform:
        """Return the chosen platform; without a choice all devices, or two groups of cores on a plain CPU.

        Parameters
        ----------
        source
            The model: a PyTorch program runs on torch's devices, all others on OpenVINO's.
        """
        if self.file is not None:
            return read_platform(self.file)
        if self.line.is_given:
            return self.line.platform()

        precisions = self._precisions()
        if self.is_open:
            raise InvalidProblemError("--groups auto: only solve chooses; give the number of groups here")
        if self.groups is not None or len(precisions) > 1:
            if self.devices is not None:
                raise InvalidProblemError(
                    f"--precision {self.precision}: several precisions need core groups (--groups), not -d"
                )
            count = None if self.groups is None else int(self.groups)
            return core_groups(count, precision=precisions if len(precisions) > 1 else precisions[0])
        return backend_of(source).platform(self.devices, precisions[0])


def devices_named(path: Path) -> list[str]:
    """Return the devices, members of teams one by one, that a placement or result file names."""
    is_result = kind_of_file(path) == "result"
    names = [load.device for load in read_result(path).device_loads] if is_result else read_placement(path).devices
    return list(dict.fromkeys(member for name in names for member in name.split(JOINT)))


def _family(name: str) -> str:
    cpu, bracket, _ = name.partition("[")
    return cpu if bracket else name.rpartition(".")[0]


@dataclass(frozen=True)
class MemoryLimits:
    """Memory of devices that the user limited; None where nothing was said."""

    panel: ClassVar[str] = PLATFORM

    limits: list[str] | None = option(
        None, "Memory limit of a device, family or kind; repeatable.", "DEVICE=8GiB", names="--memory"
    )
    headroom: str | None = option(
        None, "Memory of every device that stays free: 10% or 1GiB.", "10%", names="--memory-headroom"
    )

    def __bool__(self) -> bool:
        return bool(self.limits or self.headroom)

    def apply(self, platform: Platform) -> Platform:
        """Return the platform with the limits, and with less memory on every limited device by the headroom."""
        return leave_free(_limit_memory(platform, self.limits), self.headroom)


def _limit_memory(platform: Platform, limits: list[str] | None) -> Platform:
    """Return the platform with the memory limits that ``--memory NAME=8GiB`` gives to devices, families, kinds, pools.

    A family is what a platform file makes of one entry with a count: ``GPU`` stands for ``GPU.0``, ``GPU.1``, ...; and
    ``CPU`` for groups of its cores, ``CPU[0-3]``, ``CPU[4-7]``, ...
    """
    sizes: Mapping[str, float] = {
        name: parse_memory(text, f"--memory {name}")
        for name, text in parse_pairs("--memory", limits, "DEVICE=SIZE, for example GPU=8GiB").items()
    }
    families = {device.name: _family(device.name) for device in platform.devices}
    pools = {pool.name for pool in platform.pools}
    known = {*platform.device_names, *filter(None, families.values()), *platform.kinds, *pools}
    for name in sizes:
        if name not in known:
            raise UnknownNameError(
                f"--memory: no device or kind {name!r}; devices are {', '.join(platform.device_names)}; "
                f"kinds are {', '.join(platform.kinds)}" + f"; pools are {', '.join(sorted(pools))}" * bool(pools)
            )

    def size(device: Device) -> float | None:
        names = (device.name, families[device.name], device.kind)
        return next((sizes[name] for name in names if name in sizes), device.memory_bytes)

    devices = tuple(each.replace(memory_bytes=size(each)) for each in platform.devices)
    shared = tuple(replace(pool, memory_bytes=sizes.get(pool.name, pool.memory_bytes)) for pool in platform.pools)
    return platform.replace(devices=devices, pools=shared)
