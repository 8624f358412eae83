"""Recurrent lattices: layers times time steps, each op feeding the next step and the next layer, with constants.

An op of the lattice reads its layer at the step before, the layer below at its own step, and some constants of its
own, which take no time but memory. With attention one op reads all of the last layer. A training graph has a backward
op for every op, on the same device, with all edges reversed.
"""

from __future__ import annotations

import numpy as np

from placekit.benchmarks.generators.families import HOST_SLOWNESS, MAX_DEVICES, MAX_OPS, MEAN_OP_S, require_ranges
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Platform
from placekit.model.problem import Problem
from placekit.objectives import Objective, Throughput

BACKWARD_WORK = 2.0
"""Relative op time of a backward op."""
CONSTANT_BYTES, STATE_BYTES = 1e6, 3e6


def recurrent_lattice(
    num_layers: int,
    num_steps: int,
    seed: int = 0,
    *,
    has_attention: bool = True,
    is_training: bool = False,
    num_constants: int = 2,
    num_devices: int = 4,
    transfer_ratio: float = 0.3,
    memory_factor: float | None = 2.0,
    objective: Objective | None = None,
) -> Problem:
    """Return a lattice on accelerators and one CPU that pays no transfers; same arguments, same instance.

    Parameters
    ----------
    num_layers, num_steps
        Size of the lattice.
    seed
        Seed of every random choice.
    has_attention
        True for an op behind all of the last layer.
    is_training
        True for backward ops.
    num_constants
        Constants that each op of the lattice reads.
    num_devices
        Number of equal accelerators.
    transfer_ratio
        Mean time of a tensor into or out of an accelerator over the mean op time.
    memory_factor
        Memory of an accelerator: so many times its fair share of all bytes. None for no limit.
    objective
        What to minimise; `Throughput` by default.

    Raises
    ------
    InvalidProblemError
        A size below 1, or beyond what the families of suites may have.

    Examples
    --------
    >>> recurrent_lattice(2, 3, has_attention=False)
    Problem('recurrent-2x3-0': 18 ops in 18 classes on 5 devices, throughput, acyclic)
    """
    num_ops = num_layers * num_steps * (1 + num_constants)
    require_ranges(
        "recurrent lattice",
        ("num_layers", num_layers, 1, MAX_OPS),
        ("num_steps", num_steps, 1, MAX_OPS),
        ("num_constants", num_constants, 0, MAX_OPS),
        ("number of ops", num_ops, 1, MAX_OPS),
        ("num_devices", num_devices, 1, MAX_DEVICES),
    )
    rng = np.random.default_rng(seed)
    names, work, edges = _forward(num_layers, num_steps, num_constants, has_attention, rng)
    forward = len(names)
    if is_training:
        edges += [(f"{b}'", f"{a}'") for a, b in edges]
        last = {*names} - {a for a, b in edges if not b.endswith("'")}
        edges += [(name, f"{name}'") for name in names if name in last]
        names += [f"{name}'" for name in names]
        work += [BACKWARD_WORK * amount for amount in work]
    is_backward = np.arange(len(names)) >= forward
    graph = OpGraph.from_edges(names, edges, name=f"recurrent-{num_layers}x{num_steps}-{seed}")
    graph = graph.replace(is_backward=is_backward)
    op_time_s = MEAN_OP_S * np.array(work)
    op_time_s = np.stack([op_time_s, HOST_SLOWNESS * op_time_s * rng.lognormal(0.0, 0.1, len(names))], axis=1)
    transfer_s = MEAN_OP_S * transfer_ratio * rng.lognormal(0.0, 0.1, len(names))[graph.tensor_producer]
    size = np.where(np.array(work) > 0, STATE_BYTES, CONSTANT_BYTES) * ~is_backward
    limit = None if memory_factor is None else memory_factor * float(size.sum()) / num_devices
    devices = [Device(f"ACC.{d}", "accelerator", memory_bytes=limit) for d in range(num_devices)]
    costs = CostTable(
        ("accelerator", "cpu"), op_time_s, np.stack([transfer_s, np.zeros_like(transfer_s)], axis=1), size
    )
    platform = Platform((*devices, Device("CPU.0", "cpu", is_host=True)))
    objective = Throughput() if objective is None else objective
    return Problem(graph, platform, costs, objective, colocation=np.arange(len(names)) % forward)


def _forward(
    num_layers: int, num_steps: int, num_constants: int, has_attention: bool, rng: np.random.Generator
) -> tuple[list[str], list[float], list[tuple[str, str]]]:
    """Return names, relative work and edges of the forward ops."""
    layer_work = rng.lognormal(0.0, 0.3, num_layers)
    names: list[str] = []
    work: list[float] = []
    edges: list[tuple[str, str]] = []
    for step in range(num_steps):
        for layer in range(num_layers):
            cell = f"cell{layer}.{step}"
            constants = [f"constant{layer}.{step}.{number}" for number in range(num_constants)]
            names += [*constants, cell]
            work += [*[0.0] * num_constants, float(layer_work[layer] * rng.lognormal(0.0, 0.05))]
            edges += [(constant, cell) for constant in constants]
            edges += [(f"cell{layer - 1}.{step}", cell)] if layer else []
            edges += [(f"cell{layer}.{step - 1}", cell)] if step else []
    if has_attention:
        names.append("attention")
        work.append(2.0)
        edges += [(f"cell{num_layers - 1}.{step}", "attention") for step in range(num_steps)]
    return names, work, edges
