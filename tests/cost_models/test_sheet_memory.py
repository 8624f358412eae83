"""Memory of devices by data sheet, what stays free of it, and what is said where there is no limit."""

from __future__ import annotations

import pytest

import placekit as pk
from placekit.cost_models.sheets.sheet_memory import leave_free, warn_of_unlimited, with_sheet_memory
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Device, Platform

GIB = 2**30


def limits(platform: Platform) -> list[float | None]:
    """Return the memory of every device in GiB."""
    return [None if device.memory_bytes is None else device.memory_bytes / GIB for device in platform.devices]


def test_some_memory_stays_free() -> None:
    """A share or a size of every limit; where there is none, none is made."""
    platform = Platform((Device("a", "x", memory_bytes=8 * GIB), Device("b", "y"), Device("c", "z", memory_bytes=GIB)))
    assert leave_free(platform, None) is platform
    assert limits(leave_free(platform, "25%")) == [6, None, 0.75]
    assert limits(leave_free(platform, "0%")) == [8, None, 1]
    assert limits(leave_free(platform, "512 MiB")) == [7.5, None, 0.5]
    for wrong in ("100%", "-1%", "some%"):
        with pytest.raises(
            InvalidProblemError, match=f"--memory-headroom is '{wrong}'; a share must be from 0% to less"
        ):
            leave_free(platform, wrong)
    with pytest.raises(InvalidProblemError, match="--memory-headroom is '1 GiB'; device 'c' has 1 GiB"):
        leave_free(platform, "1 GiB")
    one_byte_more = Platform((Device("a", "x", memory_bytes=GIB + 1),))
    assert [device.memory_bytes for device in leave_free(one_byte_more, "1 GiB").devices] == [1]


def test_memory_of_data_sheets(caplog: pytest.LogCaptureFixture) -> None:
    """By kind or spec without a word; by the base of a spec with one; a limit that is given stays, and so do hosts."""
    devices = (
        Device("h", "a100", is_host=True), Device("k", "rtx4090"), Device("s", "card"), Device("n", "unknown"),
        Device("g", "h100", memory_bytes=GIB),
    )  # fmt: skip
    platform = Platform(devices, spec_of_kind={"card": "l4"})
    assert limits(with_sheet_memory(platform)) == [None, 24, 24, None, 1]
    assert not caplog.records
    based = Platform((Device("d", "mine"),), spec_of_kind={"mine": "spec"}, specs={"spec": {"base": "rtx4090"}})
    assert limits(with_sheet_memory(based)) == [24]
    assert caplog.messages == [
        "device 'd' has no memory limit in the platform file; it counts with the 24 GiB of rtx4090, the base of its "
        "spec"
    ]


def test_no_limit_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """With the first device, and what it would have by data sheet; hosts have room enough."""
    warn_of_unlimited(pk.Platform((Device("h", "cpu", is_host=True), Device("d", "x", memory_bytes=GIB))))
    assert not caplog.records
    warn_of_unlimited(Platform((Device("d", "x", memory_bytes=GIB), Device("a", "l4"), Device("b", "y"))))
    warn_of_unlimited(Platform((Device("b", "x"),)))
    assert caplog.messages == [
        "'a', 'b' without a memory limit: any model fits; give `memory` in the platform file, or --memory a=24GiB, as "
        "l4 has by data sheet",
        "'b' without a memory limit: any model fits; give `memory` in the platform file, or --memory b=16GiB",
    ]
