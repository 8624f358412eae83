"""Maps from modules to devices as lines of Python or files of JSON, read back: accelerate, OpenVINO and placekit."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from placekit.exports.device_map import entry_of
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.model.served import Served

_MOST_NUMBERS = 100_000


def assigned(text: str) -> dict[str, Any] | None:
    """Return what lines of Python assign, a map by itself under an empty name; None for a text that is no such lines.

    Only constants, dictionaries of them and the runs of blocks of `device_map_line` are read; nothing is run.

    Raises
    ------
    InvalidProblemError
        A dictionary with something else in it.

    Examples
    --------
    >>> assigned('device_map = {"embed": 0, **{f"h.{i}": 1 for i in range(0, 2)}}')
    {'device_map': {'embed': 0, 'h.0': 1, 'h.1': 1}}
    >>> assigned("llama-server -m x")
    """
    try:
        return {"": dict(json.loads(text))}
    except (ValueError, TypeError):
        pass
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        is_named = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        if not (is_named or isinstance(node, ast.Expr)) or not isinstance(node.value, (ast.Dict, ast.Constant)):  # type: ignore[attr-defined]  # both have one
            return None
        name = node.targets[0].id if is_named else ""  # type: ignore[attr-defined]  # of an assignment
        value = node.value  # type: ignore[attr-defined]  # both have one
        try:
            found[name] = _dictionary(value) if isinstance(value, ast.Dict) else value.value
        except (ValueError, TypeError, AttributeError, IndexError):
            raise InvalidProblemError(
                f"line {node.lineno} of the map has more than names, devices and runs of blocks"
            ) from None
    return found or None


def _dictionary(node: ast.Dict) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            found |= _dictionary(value) if isinstance(value, ast.Dict) else _run(value)
        else:
            found[str(ast.literal_eval(key))] = ast.literal_eval(value)
    return found


def _run(node: Any) -> dict[str, Any]:
    """Return the entries of ``{f"h.{i}": 0 for i in range(2, 4)}``."""
    (generator,) = node.generators
    numbers = range(*(ast.literal_eval(each) for each in generator.iter.args))
    if generator.iter.func.id != "range" or generator.ifs or len(numbers) > _MOST_NUMBERS:
        raise ValueError
    parts = [part.value if isinstance(part, ast.Constant) else None for part in node.key.values]
    value = ast.literal_eval(node.value)
    return {"".join(str(number if part is None else part) for part in parts): value for number in numbers}


def read_device_map(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return the plan of a map of accelerate, whose cards count in the order of the platform.

    Raises
    ------
    InvalidProblemError
        A device that is not there, or modules without an entry.
    UnsupportedProblemError
        Weights on a disk.
    """
    mapped, platform = _map_of(launch), problem.platform
    cards = [at for at, device in enumerate(platform.devices) if not device.is_host]
    host = next((at for at, device in enumerate(platform.devices) if device.is_host), None)

    def device_of(path: str, told: object) -> int:
        name = str(told).removeprefix("cuda:").replace("cuda", "0")
        if name == "disk":
            raise UnsupportedProblemError(f"{path!r}: disk: weights on a disk are not read")
        if name == "cpu" and host is not None:
            return host
        if not name.isdecimal() or int(name) >= len(cards):
            there = ["cpu"] * (host is not None) + [str(at) for at in range(len(cards))]
            raise InvalidProblemError(f"{path!r}: {told!r}: devices are {', '.join(there)}")
        return cards[int(name)]

    return _placed(runtime, problem, {path: device_of(path, told) for path, told in mapped.items()})


def read_affinities(runtime: Runtime, launch: Launch, problem: Problem[Any]) -> Placed:
    """Return the plan of the affinities of HETERO.

    Raises `InvalidProblemError`: a device that is not there, or modules without an entry.
    """
    at_name: dict[str, int] = {}
    for at, device in enumerate(problem.platform.devices):
        at_name.setdefault(device.openvino or device.name, at)
    values = assigned("\n".join(launch.code)) or {}
    listed = str(values.get("device", "")).removeprefix("HETERO:").split(",")
    told = [("device", each) for each in listed if each] + list(_map_of(launch).items())
    for path, name in told:
        if str(name) not in at_name:
            raise InvalidProblemError(f"{path!r}: {name!r}: devices are {', '.join(at_name)}")
    return _placed(runtime, problem, {path: at_name[str(name)] for path, name in _map_of(launch).items()})


def _map_of(launch: Launch) -> Mapping[str, Any]:
    values = assigned("\n".join(launch.code)) or {}
    found = next((value for value in values.values() if isinstance(value, dict)), None)
    if not found:
        raise InvalidProblemError(f"the lines of {launch.runtime.name} have no map from modules to devices")
    return found


def _placed(runtime: Runtime, problem: Problem[Any], device_of: Mapping[str, int]) -> Placed:
    """Return the plan of a map; ops outside of all modules are with what they read, or else with what follows."""
    graph, platform = problem.graph, problem.platform
    place = [entry_of(name, device_of) for name in graph.op_names]
    held = graph.op_weight_bytes > 0
    lacking = next(
        (name for name, at, has in zip(graph.op_names, place, held, strict=True) if at is None and has), None
    )
    if lacking is not None:
        raise InvalidProblemError(f"the map has no entry for {lacking!r}: its names are those of the model's modules")
    inputs: list[list[int]] = [[] for _ in place]
    for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        inputs[receiver].append(sender)
    for op in graph.order.tolist():
        if place[op] is None:
            place[op] = next((place[each] for each in inputs[op] if place[each] is not None), None)
    last = next(each for each in place if each is not None)
    found = np.array([last if each is None else each for each in place])
    return Placed(
        graph, platform, Placement(graph.op_names, platform.device_names, found), Served(runtime=runtime.name)
    )
