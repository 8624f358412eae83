"""``placekit devices``: list the devices of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from placekit.cli.console import check_writable, tell
from placekit.cli.inputs.machine_line import CardsOptions
from placekit.cli.options import JsonOption
from placekit.cli.output.render import fact_lines, paragraphs, plain_table, platform_table
from placekit.cli.output.units import format_count
from placekit.cli.parameters import OUTPUT, option
from placekit.cost_models.openvino.devices import AvailableDevice, available_devices, default_platform
from placekit.cost_models.openvino.machine import cpu_name, format_cores, memory_bytes, usable_cores
from placekit.cost_models.sheets.cards import KERNELS, MEMORIES, cards, processors
from placekit.io.files.platform_toml import write_platform
from placekit.machine import usable_cpus
from placekit.model.platform import Platform
from placekit.model.sizes import format_bytes, format_seconds


def devices(
    *,
    line: CardsOptions,
    output: Path | None = option(
        None, "Write the suggested platform (.toml).", "FILE", names="--output -o", panel=OUTPUT
    ),
    has_table: bool = option(False, "List cards and processors that are known by name instead.", names="--table"),
    as_json: JsonOption = False,
) -> None:
    """List the OpenVINO devices, the CPU cores and the memory of this machine, and suggest a platform.

    With --cards or --ram, describe the machine that they name instead.
    """
    if has_table:
        tell(as_json, _known(), _known_tables())
        return
    if output is not None:
        check_writable(output)
    if line.is_given:
        named = line.platform()
        if output is not None:
            write_platform(named, output)
        wrote = {} if output is None else {"wrote platform": str(output)}
        parts = paragraphs(platform_table(named), fact_lines(wrote) if wrote else None)
        tell(as_json, {"platform": _devices_told(named), "files": wrote}, parts)
        return
    found, suggested = available_devices(), default_platform()
    if output is not None:
        write_platform(suggested, output)
    files = {"files": {"platform": str(output)}} if output else {}
    tell(as_json, _document(found, suggested) | files, _report(found, suggested, output))


def _known() -> dict[str, Any]:
    """Return all devices with a name, and the shares of their peaks that kernels sustain."""
    return {
        "cards": [asdict(card) for card in cards().values()],
        "processors": [asdict(processor) for processor in processors().values()],
        "kernels": {name: asdict(kernels) for name, kernels in KERNELS.items()},
    }


def _known_tables() -> Iterator[RenderableType]:
    named = plain_table("card", "f32 TFLOP/s", "16 bits", "sums in 16 bits", "int8", "GB/s", "GiB")
    for card in cards().values():
        rates = (card.f32_flops_per_s, card.f16_flops_per_s, card.f16_sum16_flops_per_s, card.int8_ops_per_s)
        sizes = (card.bandwidth_bytes_per_s / 1e9, card.memory_bytes / 2**30)
        named.add_row(card.name, *(f"{rate / 1e12:.4g}" for rate in rates), *(f"{size:.4g}" for size in sizes))
    hosts = plain_table("processor", "f32 TFLOP/s", "cores", "channels of memory")
    for each in processors().values():
        hosts.add_row(each.name, f"{each.f32_flops_per_s / 1e12:.3g}", str(each.cores), str(each.channels))
    shares = plain_table("kernels", "matrix", "plain", "GDDR", "HBM", "unified", "bus", "launch", "handover")
    for name, kernels in KERNELS.items():
        told = (kernels.matrix, kernels.plain, *(kernels.bandwidth[each] for each in MEMORIES), kernels.bus)
        fixed = (kernels.launch_s, kernels.handover_s)
        shares.add_row(name, *(f"{share:.0%}" for share in told), *map(format_seconds, fixed))
    yield from paragraphs(named, hosts, ["Shares of the peaks that kernels sustain:", shares])


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
    return {
        "machine": _machine(),
        "devices": [_plain(vars(device)) for device in found],
        "suggested_platform": _devices_told(suggested),
    }


def _devices_told(platform: Platform) -> list[dict[str, Any]]:
    told = ("name", "kind", "memory_bytes", "is_host", "openvino", "cores", "properties")
    return [{name: _plain(getattr(each, name)) for name in told} for each in platform.devices]


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
