"""Workloads of our own in the public format: small models whose optima every checkout can prove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

Links = list[tuple[int, int]]


def _layers(num_layers: int) -> tuple[list[float], Links]:
    """Return the weights of a chain of layers in which every fourth layer also reads the one three before it."""
    chain = [(at, at + 1) for at in range(num_layers - 1)]
    return [1.0] * num_layers, chain + [(at, at + 3) for at in range(0, num_layers - 3, 4)]


def _branches(num_cells: int) -> tuple[list[float], Links]:
    """Return the weights of cells of four branches of one to three ops, each cell joined at its end."""
    weights, links, joint = [1.0], [], 0
    for _ in range(num_cells):
        ends = []
        for length in (1, 2, 3, 1):
            before = joint
            for _ in range(length):
                weights.append(1.0 / length)
                links.append((before, len(weights) - 1))
                before = len(weights) - 1
            ends.append(before)
        weights.append(0.2)
        joint = len(weights) - 1
        links += [(end, joint) for end in ends]
    return weights, links


def _operators(num_blocks: int) -> tuple[list[float], Links]:
    """Return the weights of the operators of a transformer encoder."""
    # norm, query, key, value, scores, softmax, mix, project, add, norm, expand, activation, contract, add
    block = [0.1, 0.5, 0.5, 0.5, 0.3, 0.1, 0.3, 0.5, 0.1, 0.1, 2.0, 0.1, 2.0, 0.1]
    inside = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (4, 5), (5, 6), (3, 6), (6, 7), (7, 8)]
    inside += [(8, 9), (9, 10), (10, 11), (11, 12), (12, 13), (8, 13)]
    weights, links = [0.2], []
    for _ in range(num_blocks):
        first = len(weights)
        links += [(first - 1, first), (first - 1, first + 8)]
        links += [(first + source, first + target) for source, target in inside]
        weights += block
    return weights, links


def _workload(model: tuple[list[float], Links], rng: Generator, *, training: bool = False, accs: int) -> dict[str, Any]:
    """Return the file: times in ms, an accelerator ten times as fast as the CPU, memory for 1.5 times its share.

    A training workload has a backward op for every op, of the same colour, twice as slow, and the links turned round.
    """
    weights, links = model
    num_ops = len(weights)
    scale = np.round(rng.uniform(0.5, 1.5, num_ops) * weights, 3).tolist()
    sizes = np.round(rng.uniform(5, 15, num_ops) * weights, 3).tolist()
    costs = np.round(rng.uniform(0.02, 0.3, 2 * num_ops), 3).tolist()
    nodes = [(op, scale[op], 0) for op in range(num_ops)]
    edges = [(source, target, costs[source]) for source, target in links]
    if training:
        nodes += [(num_ops + op, 2 * scale[op], 1) for op in range(num_ops)]
        edges += [(num_ops + target, num_ops + source, costs[num_ops + target]) for source, target in links]
        edges += [(op, num_ops + op, costs[op]) for op in range(num_ops)]
    return {
        "maxSizePerFPGA": round(1.5 * sum(sizes) / accs, 3),
        "maxFPGAs": accs,
        "maxCPUs": 1,
        "nodes": [
            {
                "id": op,
                "name": f"op{op}",
                "supportedOnFpga": 1,
                "cpuLatency": round(10 * time, 3),
                "fpgaLatency": round(time, 3),
                "isBackwardNode": backward,
                "size": sizes[op % num_ops] / (2 if training else 1),
                **({"colorClass": op % num_ops} if training else {}),
            }
            for op, time, backward in nodes
        ],
        "edges": [{"sourceId": source, "destId": target, "cost": cost, "size": 4} for source, target, cost in edges],
    }


WORKLOADS: dict[str, dict[str, Any]] = {
    "layers": {"model": _layers(24), "accs": 3},
    "layers_training": {"model": _layers(12), "training": True, "accs": 3},
    "branches": {"model": _branches(4), "accs": 3},
    "operators": {"model": _operators(2), "accs": 3},
}
"""By name, like those of the public workloads: layers or operators, inference or training."""


def write_own_workload(name: str, folder: Path) -> Path:
    """Write a workload of `WORKLOADS`, the same one every time, and return its file."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(_workload(**WORKLOADS[name], rng=np.random.default_rng(len(name)))))
    return path
