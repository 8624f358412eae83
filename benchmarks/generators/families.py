"""Families of generated problems, of any size and seed: shapes with costs.

Costs are of no real machine. They are spread as measured ones are (log-normal around the work of the op's type), all
positive, and normalised, so that instances of all families and sizes can be compared:

* the mean op time over ops and accelerators is `MEAN_OP_S`;
* the mean time of a tensor from one accelerator to another is `transfer_ratio` times that;
* a tensor with several consumers is one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.benchmarks.generators import shapes
from placekit.benchmarks.generators.shapes import Topology
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem
from placekit.objectives import Objective, Throughput

MAX_OPS = 1_000_000
MAX_DEVICES = 4096
MEAN_OP_S = 1e-3
"""Mean seconds of an op over ops and accelerators."""
MEAN_TENSOR_BYTES = 1e6
WEIGHT_BYTES = 4e6
"""Bytes of the weights of an op of relative weight 1."""
OP_SPREAD = 0.5
"""Standard deviation of the logarithm of op times around the work of their type."""
SIZE_SPREAD = 0.4
"""The same of tensor sizes."""
KIND_SPREAD = 0.3
"""The same of an op's time on a kind around the kind's speed: the machines are unrelated, not just slower."""
SLOWNESS = (1.0, 1.8, 3.0)
"""Relative op time of the unequal kinds of accelerator."""
LINK_SLOWNESS = (1.0, 1.5, 2.0)
"""Relative transfer time of the unequal kinds."""
HOST_SLOWNESS = 8.0
"""Relative op time of the CPU."""

FAMILIES: Mapping[str, Callable[[int, np.random.Generator], Topology]] = MappingProxyType(
    {
        "chains": shapes.chains,
        "transformer": shapes.transformer,
        "feed-forward-shards": shapes.feed_forward_shards,
        "inception": shapes.inception,
        "chained-matmuls": shapes.chained_matmuls,
        "layered": shapes.layered,
    }
)
"""Every family by its name: what makes its graphs."""


def generate(
    family: str,  # a name of `FAMILIES`
    # size. ``chains`` and ``layered`` have exactly so many ops, the others repeat a block: at least half, at most all
    # of them.
    num_ops: int,
    seed: int = 0,  # seed of every random choice
    *,
    # number of accelerators. Under `Throughput` there is a CPU beside them, as in the workloads of Tarnawski et al.:
    # without transfers and memory limit, slower than they are.
    num_devices: int = 4,
    equal: bool = True,  # True for accelerators of one kind; False for up to three kinds of different speed
    transfer_ratio: float = 1.0,  # mean time of a tensor from one accelerator to another over the mean op time
    # memory of an accelerator as a multiple of its fair share, with the largest op on top; at least 1, under
    # `Throughput` at least 0. None for no limit.
    memory_factor: float | None = None,
    objective: Objective | None = None,  # what to minimise; `Throughput` by default
    host: bool | None = None,  # whether there is a CPU; None for what the objective has by itself
) -> Problem:
    """Return an instance of `family`; same arguments, same instance.

    Raises `UnknownNameError`: no family has that name; the message lists them; `InvalidProblemError`: a size, number of
    devices, ratio or factor out of its range.

    Examples
    --------
    >>> generate("transformer", 100, seed=1, num_devices=2)
    Problem('transformer-100-1': 89 ops in 89 classes on 3 devices, throughput, acyclic)
    """
    if family not in FAMILIES:
        raise UnknownNameError(f"no family {family!r}; families are {', '.join(FAMILIES)}")
    objective = Throughput() if objective is None else objective
    whose, least = f"family {family!r}", 0 if isinstance(objective, Throughput) else 1
    require_ranges(whose, ("num_ops", num_ops, shapes.MIN_OPS, MAX_OPS), ("num_devices", num_devices, 1, MAX_DEVICES))
    if not (math.isfinite(transfer_ratio) and transfer_ratio > 0):
        raise InvalidProblemError(f"{whose}: transfer_ratio is {transfer_ratio}; it must be finite and > 0")
    if memory_factor is not None and not (math.isfinite(memory_factor) and memory_factor >= least):
        raise InvalidProblemError(f"{whose}: memory_factor is {memory_factor}; it must be finite and >= {least}")
    rng = np.random.default_rng((seed, *family.encode()))
    shape = FAMILIES[family](num_ops, rng)
    graph = _graph(f"{family}-{num_ops}-{seed}", shape, rng)

    num_kinds = 1 if equal else min(num_devices, len(SLOWNESS))
    kind_of_device = np.arange(num_devices) % num_kinds
    base = shape.work * rng.lognormal(0.0, OP_SPREAD, shape.num_ops)
    affinity = rng.lognormal(0.0, KIND_SPREAD, (shape.num_ops, num_kinds + 1))
    if equal:
        affinity[:, 0] = 1.0
    times = base[:, None] * affinity * np.array([*SLOWNESS[:num_kinds], HOST_SLOWNESS])
    times *= MEAN_OP_S / times[:, kind_of_device].mean()
    # a tensor leaves one device and enters another: over all pairs that is twice the mean time over one link
    link_slowness = np.array(LINK_SLOWNESS[:num_kinds])
    mean_bandwidth = 2 * MEAN_TENSOR_BYTES / (transfer_ratio * MEAN_OP_S)
    bandwidth = mean_bandwidth * link_slowness[kind_of_device].mean() / link_slowness
    kinds = ["accelerator"] if equal else [f"accelerator-{kind}" for kind in range(num_kinds)]
    return on_accelerators(
        graph,
        times,
        {kind: Link(0.0, float(speed)) for kind, speed in zip(kinds, bandwidth, strict=True)},
        num_devices,
        objective,
        memory_factor=memory_factor,
        has_host=objective.has_pipeline if host is None else host,
        provenance={"source": "generated", "family": family, "num_ops": num_ops, "seed": seed},
    )


def require_ranges(whose: str, *values: tuple[str, int, int, int]) -> None:
    """Raise InvalidProblemError for the first of (name, value, smallest, largest) that is out of its range."""
    for what, value, least, most in values:
        if not least <= value <= most:
            raise InvalidProblemError(f"{whose}: {what} is {value}; it must be >= {least} and <= {most}")


def _graph(name: str, shape: Topology, rng: np.random.Generator) -> OpGraph:
    size = shape.tensor_size * rng.lognormal(0.0, SIZE_SPREAD, len(shape.tensor_size))
    return OpGraph(
        name=name,
        op_names=tuple(f"{op_type}_{op}" for op, op_type in enumerate(shape.op_types)),
        op_types=shape.op_types,
        tensor_producer=shape.tensor_producer,
        consumer_offsets=shape.consumer_offsets,
        consumers=shape.consumers,
        tensor_bytes=size * (MEAN_TENSOR_BYTES / size.mean()),
        op_weight_bytes=shape.weight * WEIGHT_BYTES,
    )


def on_accelerators(
    graph: OpGraph,
    times: NDArray[np.float64],
    links: Mapping[str, Link],
    num_devices: int,
    objective: Objective,
    *,
    memory_factor: float | None,
    has_host: bool,
    provenance: Mapping[str, object] = MappingProxyType({}),
) -> Problem:
    """Return a graph on accelerators whose kinds take turns, and a CPU that pays no transfers.

    Columns of `times` ``[num_ops, num_kinds + 1]`` are the kinds of accelerator in the order of `links`, and the CPU,
    which is left out without `has_host`. `memory_factor` is that of `generate`.
    """
    op_memory = graph.op_weight_bytes + sum_by(graph.tensor_producer, graph.tensor_bytes, graph.num_ops)
    limit = None
    if memory_factor is not None:
        limit = memory_factor * float(op_memory.sum()) / num_devices + float(op_memory.max())
    kinds = list(links)
    devices = [Device(f"ACC.{d}", kinds[d % len(links)], memory_bytes=limit) for d in range(num_devices)]
    transfers = [links[kind].time_s(graph.tensor_bytes) for kind in kinds]
    if has_host:
        devices.append(Device("CPU.0", "cpu", is_host=True))
        kinds.append("cpu")
        transfers.append(np.zeros(graph.num_tensors))
    costs = CostTable(
        kinds=tuple(kinds),
        op_time_s=times[:, : len(kinds)],
        transfer_time_s=np.stack(transfers, axis=1),
        op_memory_bytes=op_memory,
        provenance=dict(provenance),
    )
    return Problem(graph, Platform(tuple(devices), links), costs, objective)
