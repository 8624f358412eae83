"""Platforms as TOML files: devices, links, and what the analytic cost model should think of them."""

from __future__ import annotations

import json
import math
import re
import reprlib
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placekit.io.atomic import write_text
from placekit.io.files.schemas import PlatformFileModel, TomlDevice
from placekit.io.reading import blaming, read_text, validated
from placekit.model.errors import InvalidFileError
from placekit.model.memory import Pool
from placekit.model.platform import MAX_DEVICES, Device, Platform

_UNITS: dict[str, float] = {"": 1.0, "B": 1.0} | {
    f"{prefix}{suffix}": float(base) ** power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
_MEMORY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def read_platform(path: str | Path) -> Platform:
    """Read the platform in the TOML file `path`.

    Raises
    ------
    InvalidFileError
        The file is broken, has an unknown key, or describes no platform; the message names the place, the value and
        the bound.
    """
    text = read_text(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidFileError(f"{path}: not TOML: {error}") from error
    except (RecursionError, ValueError) as error:
        raise InvalidFileError(f"{path}: not readable TOML: {error}") from error
    model = validated(PlatformFileModel, data, path)
    total = sum(device.count for device in model.device)
    if total > MAX_DEVICES:
        raise InvalidFileError(f"{path}: describes {total} devices; the limit is {MAX_DEVICES}")
    spec_of_kind: dict[str, str] = {}
    for at, device in enumerate(model.device):
        if device.spec is not None and spec_of_kind.setdefault(device.kind, device.spec) != device.spec:
            raise InvalidFileError(
                f"{path}: device[{at}] ({device.name!r}) has spec {device.spec!r}, but its kind {device.kind!r} has "
                f"{spec_of_kind[device.kind]!r}; give them different kinds"
            )
    specs = {name: spec.model_dump(exclude_none=True) for name, spec in model.spec.items()}
    for kind in {device.kind for device in model.device} & specs.keys():
        spec_of_kind.setdefault(kind, kind)  # a kind that is called like a spec of the file has it
    pools = _pools(model, path)
    with blaming(path):
        return Platform(
            tuple(each for at, device in enumerate(model.device) for each in _devices(device, f"{path}: device[{at}]")),
            {kind: link.to_link() for kind, link in model.link.items()},
            tuple(link.to_direct_link() for link in model.direct_link),
            spec_of_kind,
            specs,
            pools,
        )


def _pools(model: PlatformFileModel, path: str | Path) -> tuple[Pool, ...]:
    """Return the memories that devices of a file share: one for each pool and node."""
    members: dict[tuple[str, str | None], list[str]] = {}
    for device in model.device:
        if device.pool is None:
            continue
        if device.pool not in model.pool:
            raise InvalidFileError(
                f"{path}: device {device.name!r} is in pool {device.pool!r}, which has no size; add [pool."
                f"{_quoted(device.pool)}] with its memory"
            )
        members.setdefault((device.pool, device.node), []).extend(_names(device))
    named = {pool for pool, _ in members}
    if unused := [name for name in model.pool if name not in named]:
        raise InvalidFileError(f"{path}: [pool.{_quoted(unused[0])}] has no devices; let some have this pool")
    size = {
        name: _memory_bytes(pool.memory, f"{path}: [pool.{_quoted(name)}] memory") for name, pool in model.pool.items()
    }
    several = [name for name, count in Counter(name for name, _ in members).items() if count > 1]
    return tuple(
        Pool(f"{name} on {node}" if name in several else name, size[name], tuple(names))
        for (name, node), names in members.items()
    )


def _names(entry: TomlDevice) -> list[str]:
    """Return the names of the devices that an entry stands for."""
    return [entry.name] if entry.count == 1 else [f"{entry.name}.{number}" for number in range(entry.count)]


def _devices(entry: TomlDevice, where: str) -> list[Device]:
    device = Device(
        name=entry.name,
        kind=entry.kind,
        memory_bytes=None if entry.memory is None else _memory_bytes(entry.memory, f"{where} ({entry.name!r}): memory"),
        is_host=entry.host,
        openvino=entry.openvino,
        cores=tuple(entry.cores),
        properties={key: _property(value) for key, value in entry.properties.items()},
        node=entry.node,
    )
    if entry.count == 1:
        return [device]
    if entry.cores:
        raise InvalidFileError(f"{where} has count {entry.count} and cores; {entry.count} devices cannot share them")
    return [device.replace(name=name) for name in _names(entry)]


def _memory_bytes(value: Any, where: str) -> float:
    """Return the bytes of a memory limit: a number, or a text with a unit."""
    if isinstance(value, str):
        num_bytes = parse_memory(value, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        num_bytes = float(value)
    else:
        num_bytes = math.nan
    if not (math.isfinite(num_bytes) and num_bytes > 0):
        raise InvalidFileError(
            f'{where} is {reprlib.repr(value)}; it must be more than 0: a number of bytes, or a size such as "16 GiB"; '
            "leave it out for no limit"
        )
    return num_bytes


def _property(value: str | bool | int | float) -> str:
    """Spell a value the way OpenVINO does: ``YES``, ``NO``, or as it is."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value)


def parse_memory(text: str, where: str = "memory") -> float:
    """Return a size such as ``"16 GiB"`` in bytes; `where` says what it is the size of, for the message.

    Units are B, KB, MB, GB, TB (powers of 1000), KiB, MiB, GiB and TiB (powers of 1024).

    Examples
    --------
    >>> parse_memory("1.5 KiB"), parse_memory("16GB")
    (1536.0, 16000000000.0)
    """
    match = _MEMORY.fullmatch(text)
    unit = match[2].replace("k", "K") if match else ""
    if match is None or unit not in _UNITS:
        units = ", ".join(_UNITS)[2:]
        raise InvalidFileError(f"{where} is {reprlib.repr(text)}; it should be a positive number and a unit: {units}")
    return float(match[1]) * _UNITS[unit]


def write_platform(platform: Platform, path: str | Path) -> None:
    """Write a platform to the TOML file `path`; `read_platform` gives an equal one. The write is atomic."""
    lines: list[str] = []
    for device in platform.devices:
        entry = {
            "name": device.name,
            "kind": device.kind,
            "host": device.is_host or None,
            "memory": device.memory_bytes,
            "openvino": device.openvino,
            "cores": list(device.cores) or None,
            "properties": dict(device.properties) or None,
            "node": device.node,
            "spec": platform.spec_of_kind.get(device.kind),
            "pool": next((pool.name for pool in platform.pools if device.name in pool.devices), None),
        }
        lines += _table("[[device]]", {key: value for key, value in entry.items() if value is not None})
    for kind, link in platform.links.items():
        values = {"latency_s": link.latency_s, "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s}
        lines += _table(f"[link.{_quoted(kind)}]", values)
    for direct in platform.direct_links:
        values = {"latency_s": direct.latency_s, "bandwidth_bytes_per_s": direct.bandwidth_bytes_per_s}
        values |= {} if direct.spread is None else {"spread": direct.spread}
        of_pairs = {"kinds": list(direct.kinds)} if direct.kinds else {}
        lines += _table("[[direct_link]]", {**of_pairs, "between_nodes": direct.between_nodes, **values})
    for pool in platform.pools:
        lines += _table(f"[pool.{_quoted(pool.name)}]", {"memory": pool.memory_bytes})
    for name, spec in platform.specs.items():
        lines += _table(f"[spec.{_quoted(name)}]", spec)
    write_text(path, "\n".join(lines))


def _table(header: str, values: Mapping[str, Any]) -> list[str]:
    return [header, *(f"{_quoted(key)} = {_value(value)}" for key, value in values.items()), ""]


def _quoted(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # which TOML has to have escaped
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
