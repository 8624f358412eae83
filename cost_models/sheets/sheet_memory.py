"""Memory of devices: that of data sheets, and what stays free."""

from __future__ import annotations

import logging
from dataclasses import replace

from placekit.cost_models.sheets.device_table import memory_of_kind
from placekit.io.files.platform_toml import parse_memory
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Device, Platform
from placekit.model.reprs import short_list
from placekit.model.sizes import format_bytes

_LOGGER = logging.getLogger(__name__)


def leave_free(platform: Platform, headroom: str | None) -> Platform:
    """Return the platform with less memory on every limited device, and in every pool: by ``10%``, or by a size."""
    if headroom is None:
        return platform
    what, share, size = "--memory-headroom", 0.0, 0.0
    if headroom.endswith("%"):
        try:
            share = float(headroom[:-1]) / 100
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            raise InvalidProblemError(f"{what} is {headroom!r}; a share must be from 0% to less than 100%")
    else:
        size = parse_memory(headroom, what)

    def left(name: str, limit: float) -> float:
        if limit * (1 - share) <= size:
            raise InvalidProblemError(f"{what} is {headroom!r}; {name} has {format_bytes(limit)}")
        return limit * (1 - share) - size

    devices = (
        device
        if device.memory_bytes is None
        else device.replace(memory_bytes=left(f"device {device.name!r}", device.memory_bytes))
        for device in platform.devices
    )
    pools = (replace(pool, memory_bytes=left(f"pool {pool.name!r}", pool.memory_bytes)) for pool in platform.pools)
    return platform.replace(devices=tuple(devices), pools=tuple(pools))


def with_sheet_memory(platform: Platform) -> Platform:
    """Return the platform; devices without a memory limit get that of the data sheet of their kind or spec.

    A limit that only comes from the base of a spec is logged as a warning: a base is there for rates.
    """

    def limit(device: Device) -> float | None:
        if device.memory_bytes is not None or device.is_host:
            return device.memory_bytes
        found, entry = memory_of_kind(platform, device.kind)
        if found is not None and entry not in (device.kind, platform.spec_of_kind.get(device.kind)):
            _LOGGER.warning(
                "device %r has no memory limit in the platform file; it counts with the %s of %s, the base of its spec",
                device.name, format_bytes(found), entry,
            )  # fmt: skip
        return found

    return platform.replace(devices=tuple(each.replace(memory_bytes=limit(each)) for each in platform.devices))


def warn_of_unlimited(platform: Platform) -> None:
    """Log a warning for accelerators without a memory limit: every model fits into them."""
    unlimited = [device for device in platform.devices if device.memory_bytes is None and not device.is_host]
    if not unlimited:
        return
    first = unlimited[0]
    found, entry = memory_of_kind(platform, first.kind)
    size = "16GiB" if found is None else format_bytes(found).replace(" ", "")
    sheet = "" if found is None else f", as {entry} has by data sheet"
    _LOGGER.warning(
        "%s without a memory limit: any model fits; give `memory` in the platform file, or --memory %s=%s%s",
        short_list(repr(each.name) for each in unlimited), first.name, size, sheet,
    )  # fmt: skip
