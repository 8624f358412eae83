"""Devices of modules for HETERO of OpenVINO, where only the names of the modules are known.

A converted model calls its operators after modules (``__module.model.layers.3.self_attn.q_proj/...``): the affinity of
an operator is that of the longest module path in its name, or else of the operator before it.
"""

from __future__ import annotations

from typing import Any

from placekit.exports.blocks import refuse_teams
from placekit.exports.device_map import by_module
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform

__all__ = ["module_affinities"]


def module_affinities(graph: OpGraph, platform: Platform, placement: Placement) -> dict[str, Any]:
    """Return the device string of HETERO, and the device of every module.

    Raises
    ------
    UnsupportedProblemError
        A team, or a module on two devices.

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
    found = {path: names[device] for path, device in by_module(graph, placement).items()}
    return {"device": f"HETERO:{','.join(dict.fromkeys(found.values()))}", "affinities": found}
