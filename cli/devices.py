"""``placekit devices``: list the devices of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from placekit.cli.console import check_writable, tell
from placekit.cli.options import JsonOption
from placekit.cli.parameters import OUTPUT, option
from placekit.cli.render import fact_lines, paragraphs, plain_table, platform_table
from placekit.cli.units import format_count
from placekit.cost_models.openvino.devices import AvailableDevice, available_devices, default_platform
from placekit.cost_models.openvino.machine import cpu_name, format_cores, memory_bytes, usable_cores
from placekit.io.platform_toml import write_platform
from placekit.machine import usable_cpus
from placekit.model.platform import Platform
from placekit.model.sizes import format_bytes


def devices(
    output: Path | None = option(
        None, "Write the suggested platform (.toml).", "FILE", names="--output -o", panel=OUTPUT
    ),
    as_json: JsonOption = False,
) -> None:
    """List the OpenVINO devices, the CPU cores and the memory of this machine, and suggest a platform."""
    if output is not None:
        check_writable(output)
    found, suggested = available_devices(), default_platform()
    if output is not None:
        write_platform(suggested, output)
    files = {"files": {"platform": str(output)}} if output else {}
    tell(as_json, _document(found, suggested) | files, _report(found, suggested, output))


def _machine() -> dict[str, Any]:
    cores = usable_cores()
    return {
        "cpu": cpu_name(),
        "cores": [core.cpu for core in cores],
        "logical_cpus": list(usable_cpus()),
        "sockets": len({core.package for core in cores}),
        "memory_bytes": memory_bytes(),
    }


def _document(found: tuple[AvailableDevice, ...], suggested: Platform) -> dict[str, Any]:
    told = ("name", "kind", "memory_bytes", "is_host", "openvino", "cores", "properties")
    return {
        "machine": _machine(),
        "devices": [_plain(vars(device)) for device in found],
        "suggested_platform": [{name: _plain(getattr(each, name)) for name in told} for each in suggested.devices],
    }


def _plain(value: Any) -> Any:
    """Return a property as a JSON value; OpenVINO has types of its own."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return str(value)


def _report(found: tuple[AvailableDevice, ...], suggested: Platform, output: Path | None) -> Iterator[RenderableType]:
    machine = _machine()
    cores = f"{format_count(len(machine['cores']), 'physical core')} ({format_cores(machine['cores'])})"
    facts = {
        "CPU": machine["cpu"],
        "cores": f"{cores}, {format_count(machine['sockets'], 'socket')}, usable by this process",
        "memory": format_bytes(machine["memory_bytes"]),
    }
    table = plain_table("OpenVINO device", "full name", "precisions", "memory", left=3)
    for device in found:
        precisions = _plain(device.properties.get("OPTIMIZATION_CAPABILITIES", []))
        shown = [each for each in map(str, precisions) if re.fullmatch(r"(BF|FP|INT)\d+", each)]  # not WINOGRAD
        table.add_row(device.name, device.full_name, " ".join(shown), format_bytes(device.memory_bytes))
    told = "Suggested platform (what `solve` and `profile` use without -d, --platform or --groups):"
    wrote = None if output is None else fact_lines({"wrote platform": str(output)})
    yield from paragraphs(fact_lines(facts), table, [told, platform_table(suggested)], wrote)
