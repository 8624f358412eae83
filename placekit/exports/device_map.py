"""Device maps as Hugging Face accelerate takes them: ``{module path: device}``, for `accelerate.dispatch_model`.

accelerate moves the inputs of the modules that have an entry. What their parents compute themselves, such as the sum of
a residual connection, runs where its inputs are, and those must be on one device. ``"cpu"`` beside accelerators is
where weights are kept: such a module is computed on the first accelerator of the map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from placekit.exports.blocks import refuse_teams
from placekit.exports.kept import require_kept
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform

Entry = TypeVar("Entry", int, int | str)
_BLOCK = re.compile(r"(?:[^./]+\.)*?\d+(?=[./])")
_OF_GGUF = re.compile(r"(?:blk\.\d+\..+|token_embd)$")
"""Names of llama.cpp's tensors, which no module has."""


def device_map(
    graph: OpGraph, platform: Platform, placement: Placement, module_of_op: Sequence[str] | None = None
) -> dict[str, int | str]:
    """Return the device of every module that holds weights, by the shortest paths that tell them apart.

    Accelerators are numbered in the order of the platform, hosts are ``"cpu"``. The path of the module of every op is
    in `module_of_op`, ``[num_ops]``; the ops' own names if None. Raises `UnsupportedProblemError`: a team, no op with
    weights, a module whose own weights are on two devices, or a placement that accelerate would load but could not run:
    a block on two devices (without `module_of_op`, where only names of blocks are sure), or inputs of an op on two
    devices outside of all modules that have an entry.

    Examples
    --------
    >>> names = ("embed", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp")
    >>> graph = OpGraph.from_edges(names, list(zip(names, names[1:]))).replace(op_weight_bytes=[1.0] * 5)
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> device_map(graph, platform, Placement(names, platform.device_names, [1, 1, 1, 2, 2]))
    {'embed': 0, 'h.0': 0, 'h.1': 1}
    """
    refuse_teams("a device map", platform, placement)
    cards = [d for d, device in enumerate(platform.devices) if not device.is_host]
    found_at = _by_module(graph, placement, module_of_op)
    told = {device: cards.index(device) if device in cards else "cpu" for device in set(found_at.values())}
    found = {path: told[device] for path, device in found_at.items()}
    hosts = [d for d, device in enumerate(platform.devices) if device.is_host]
    _require_kept(
        "a device map",
        graph,
        placement,
        module_of_op,
        {path: cards[place] if isinstance(place, int) else hosts[0] for path, place in found.items()},
    )
    if module_of_op is None:
        _require_whole_blocks(graph, placement)
    else:
        _require_one_place(graph, module_of_op, found)
    return found


def _require_kept(
    runtime: str, graph: OpGraph, placement: Placement, modules: Sequence[str] | None, device_of: Mapping[str, int]
) -> None:
    """Refuse a map that has ops with work elsewhere than the placement: what a module computes goes with its weights.

    `device_of` has the device of the paths in the map, by index.
    """
    found = ((op, entry_of(path, device_of)) for op, path in enumerate(modules or graph.op_names))
    places = ((op, placement.team_name(int(device))) for op, device in found if device is not None)
    require_kept(runtime, graph, placement, places, (graph.op_flops > 0) | (graph.op_weight_bytes > 0))


def _by_module(graph: OpGraph, placement: Placement, module_of_op: Sequence[str] | None = None) -> dict[str, int]:
    """Return the device of every module that holds weights, by the shortest paths that tell them apart.

    Raises `UnsupportedProblemError`: names of a GGUF, no op with weights, or a module whose own weights are on two
    devices.
    """
    paths = module_of_op or graph.op_names
    alien = next((name for name in paths if _OF_GGUF.match(name)), None)
    if alien is not None:
        raise UnsupportedProblemError(
            f"a device map is by module, but {alien!r} is a name of a GGUF, which no module has: plan for the folder "
            "of the model's config.json, or for llama.cpp"
        )
    home: dict[str, int] = {}
    for path, device, held in zip(paths, placement.device_of_op.tolist(), graph.op_weight_bytes.tolist(), strict=True):
        if held > 0 and home.setdefault(path, device) != device:
            names = " and ".join(repr(placement.device_names[d]) for d in (home[path], device))
            raise UnsupportedProblemError(
                f"a device map is by module, but weights of {path or 'the top module'!r} are on {names}"
            )
    if not home:
        raise UnsupportedProblemError(f"{graph.name!r} has no op with weights: there is nothing to map")
    return _shortest(home, "")


def _require_whole_blocks(graph: OpGraph, placement: Placement) -> None:
    """Refuse a block on two devices: inside blocks, ops are not called as modules are."""
    home: dict[str, int] = {}
    for name, device in zip(graph.op_names, placement.device_of_op.tolist(), strict=True):
        block = _BLOCK.match(name)
        if block and home.setdefault(block[0], device) != device:
            names = " and ".join(repr(placement.device_names[d]) for d in (home[block[0]], device))
            raise UnsupportedProblemError(
                f"a device map takes whole blocks, but {block[0]!r} is on {names}; place with --granularity layer"
            )


def _require_one_place(graph: OpGraph, modules: Sequence[str], entries: Mapping[str, int | str]) -> None:
    """Refuse inputs on two devices of an op that is outside of all modules with an entry."""
    first = next((device for device in entries.values() if device != "cpu"), "cpu")
    inputs: list[list[int]] = [[] for _ in modules]
    for sender, receiver in zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True):
        inputs[receiver].append(sender)
    runs_on: list[int | str | None] = [None] * graph.num_ops  # None: wherever the inputs of the model are
    for op in graph.order.tolist():
        own = entry_of(modules[op], entries)
        places = list(dict.fromkeys(runs_on[each] for each in inputs[op] if runs_on[each] is not None))
        if own is None and len(places) > 1:
            raise UnsupportedProblemError(
                f"a device map moves what enters a module, but {graph.op_names[op]!r}, which "
                f"{modules[op] or 'the top module'!r} computes itself, takes inputs from {places[0]!r} and "
                f"{places[1]!r}: place all of that module on one device (what lies inside is not moved), or export "
                "--to torch-pipeline"
            )
        runs_on[op] = (first if own == "cpu" else own) if own is not None else next(iter(places), None)


def entry_of(path: str, entries: Mapping[str, Entry]) -> Entry | None:
    """Return what the longest prefix of a module's path says; None if there is none."""
    while path not in entries:
        if not path:
            return None
        path = path.rpartition(".")[0]
    return entries[path]


def _shortest(home: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return entries for the paths at and below `prefix`: one if they agree, else those of its children."""
    if len(set(home.values())) == 1:
        return {prefix: next(iter(home.values()))}
    begin = len(prefix) + 1 if prefix else 0
    children: dict[str, dict[str, int]] = {}
    found: dict[str, int] = {}
    for path, device in home.items():
        if path == prefix:
            raise UnsupportedProblemError(
                f"a device map is by module, but {path or 'the top module'!r} holds weights itself, and modules inside "
                "it are on other devices"
            )
        children.setdefault(path[: begin + len(path[begin:].partition(".")[0])], {})[path] = device
    for child, inside in children.items():
        found |= _shortest(inside, child)
    return found


def device_map_line(mapped: Mapping[str, int | str], name: str = "device_map") -> str:
    """Return a device map as an expression of Python, runs of blocks in one piece.

    Examples
    --------
    >>> line = device_map_line({"embed": 0, "h.0": 0, "h.1": 0, "h.2": 1, "head": 1})
    >>> line
    'device_map = {"embed": 0, **{f"h.{i}": 0 for i in range(0, 2)}, "h.2": 1, "head": 1}'
    """
    runs: list[tuple[str, int, int, int | str]] = []  # stem, first, last, place; a module by itself has first -1
    for path, place in mapped.items():
        stem, _, number = path.rpartition(".")
        at = int(number) if number.isdecimal() else -1
        if at > 0 and runs and runs[-1][::3] == (stem, place) and runs[-1][2] == at - 1:
            runs[-1] = (stem, runs[-1][1], at, place)
        else:
            runs.append((stem if at >= 0 else path, at, at, place))
    told = []
    for stem, first, last, place in runs:
        value = json.dumps(place)
        if first == last:
            told.append(f"{json.dumps(stem if first < 0 else f'{stem}.{first}')}: {value}")
        else:
            told.append(f'**{{f"{stem}.{{i}}": {value} for i in range({first}, {last + 1})}}')
    return f"{name} = {{{', '.join(told)}}}"


def module_affinities(graph: OpGraph, platform: Platform, placement: Placement) -> dict[str, Any]:
    """Return the device string of OpenVINO's HETERO, and the device of every module.

    A converted model calls its operators after modules (``__module.model.layers.3.self_attn.q_proj/...``): the affinity
    of an operator is that of the longest module path in its name, or else of the operator before it. Raises
    `UnsupportedProblemError`: a team, or a module on two devices.

    Examples
    --------
    >>> names = ("embed", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp")
    >>> graph = OpGraph.from_edges(names, list(zip(names, names[1:]))).replace(op_weight_bytes=[1.0] * 5)
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> module_affinities(graph, platform, Placement(names, platform.device_names, [1, 1, 1, 2, 2]))
    {'device': 'HETERO:gpu.0,gpu.1', 'affinities': {'embed': 'gpu.0', 'h.0': 'gpu.0', 'h.1': 'gpu.1'}}
    """
    refuse_teams("HETERO", platform, placement)
    names = [device.openvino or device.name for device in platform.devices]
    found_at = _by_module(graph, placement)
    first_of = {name: at for at, name in reversed(list(enumerate(names)))}
    _require_kept("HETERO", graph, placement, None, {path: first_of[names[at]] for path, at in found_at.items()})
    found = {path: names[device] for path, device in found_at.items()}
    return {"device": f"HETERO:{','.join(dict.fromkeys(found.values()))}", "affinities": found}
