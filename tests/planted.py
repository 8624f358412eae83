"""Problems with a feasible placement that is hard to come by: memory limits are what a random placement uses."""

from __future__ import annotations

import numpy as np

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.platform import Device
from placekit.objectives import Objective

REACH = 6
"""Ops by which an edge reaches back, at most."""
MOVES = 300
"""Moves by which a chain becomes a less regular placement."""


def planted(
    seed: int, objective: Objective, contiguity: Contiguity, *, num_ops: int, num_devices: int, spare: float = 0.0
) -> pk.Problem:
    """Return a random problem whose devices have the memory that a random feasible placement needs.

    Parameters
    ----------
    seed
        Every other problem has ops of equal size.
    objective, contiguity
        Of the problem.
    num_ops, num_devices
        Its size; every device is a kind of its own, as fast as the others.
    spare
        Share of its memory that every device has besides.
    """
    rng = np.random.default_rng(seed)
    names = [f"op{op}" for op in range(num_ops)]
    edges = {
        (int(u), v) for v in range(1, num_ops) for u in rng.integers(max(0, v - REACH), v, int(rng.integers(1, 3)))
    }
    graph = pk.OpGraph.from_edges(names, [(names[u], names[v]) for u, v in sorted(edges)], name=f"planted {seed}")
    num_bytes = np.full(num_ops, 89.0) if seed % 2 else rng.integers(1, 100, num_ops).astype(float)
    kinds = tuple(f"acc{d}" for d in range(num_devices))
    op_time_s, transfer_time_s = rng.random((num_ops, 1)), rng.random((graph.num_tensors, 1)) * 0.3
    ones = np.ones((1, num_devices))
    costs = pk.CostTable(kinds, op_time_s * ones, transfer_time_s * ones, num_bytes)
    problem = pk.Problem(
        graph, pk.Platform(tuple(Device(kind, kind) for kind in kinds)), costs, objective, contiguity=contiguity
    )
    device = rng.integers(0, num_devices, num_ops)
    has_order = not pk.evaluate(problem, pk.Placement.of(problem, device)).is_feasible  # calls that wait for each other
    if contiguity is not Contiguity.NONE or has_order:
        cuts = np.sort(rng.choice(np.arange(1, num_ops), num_devices - 1, replace=False))
        device = rng.permutation(num_devices)[np.searchsorted(cuts, np.arange(num_ops), side="right")]
        for _ in range(MOVES):
            u, v = sorted(edges)[int(rng.integers(len(edges)))]
            moved = device.copy()
            moved[u] = device[v]
            device = moved if pk.evaluate(problem, pk.Placement.of(problem, moved)).is_feasible else device
    used = np.bincount(device, weights=num_bytes, minlength=num_devices) * (1 + spare)
    devices = zip(problem.platform.devices, used.tolist(), strict=True)
    platform = problem.platform.replace(
        devices=tuple(each.replace(memory_bytes=max(room, 1.0)) for each, room in devices)
    )
    return problem.replace(platform=platform)
