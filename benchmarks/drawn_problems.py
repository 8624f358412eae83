"""Random problems of every sort, to learn from and to test on: graph, platform, costs, objective, limits.

Two splits share nothing but the recipe: families of graphs in `TEST_FAMILIES` are in no training problem, and platforms
of the test split also have numbers of devices that training never had. Same split, seed and number: same problem.

======================== ==================================================
what is drawn            from
======================== ==================================================
family, size             `TRAIN_FAMILIES` or `TEST_FAMILIES`; 20 to `max_ops` ops, log-uniform
objective                ``serial-latency``, ``makespan``, ``throughput`` without contiguity
devices                  2, 3, 4, 6 (test: 2, 4, 5, 8), of 1 to 3 kinds and, beside them, a host or none
transfer over op time    0.01 to 10, log-uniform
memory                   none, or (one in four) 1.2 to 3 times the fair share and the largest op
======================== ==================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

from placekit.benchmarks.families import HOST_SLOWNESS, LINK_SLOWNESS, MEAN_OP_S, SLOWNESS, generate
from placekit.benchmarks.recurrent import recurrent_lattice
from placekit.learned.architectures import ARCHITECTURES
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Objective, SerialLatency, Throughput

__all__ = ["SPLITS", "TEST_FAMILIES", "TRAIN_FAMILIES", "Split", "draw_problem"]

Split: TypeAlias = Literal["train", "test"]
SPLITS: tuple[str, ...] = get_args(Split)
TRAIN_FAMILIES = (
    "chains",
    "transformer",
    "feed-forward-shards",
    "layered",
    "model-residual",
    "model-transformer",
    "model-layered",
)
"""Families of the training split; ``model-...`` are those of :mod:`placekit.learned.architectures`."""
TEST_FAMILIES = ("inception", "chained-matmuls", "recurrent", "model-branching")
"""Families of the test split."""
MIN_OPS = 20
OBJECTIVES: Mapping[str, Callable[[], Objective]] = MappingProxyType(
    {"serial-latency": SerialLatency, "makespan": Makespan, "throughput": Throughput}
)
_DEVICES: Mapping[str, tuple[int, ...]] = MappingProxyType({"train": (2, 3, 4, 6), "test": (2, 4, 5, 8)})
_RATIOS = (0.01, 10.0)
_MEMORY_SHARE, _MEMORY_FACTORS = 0.25, (1.2, 3.0)
_TYPE_SPREAD, _OP_SPREAD = 0.5, 0.15
"""Standard deviation of the logarithm of a type's time on a kind, and of an op's around that."""
_FLOPS_PER_BYTE = 8.0
"""Operations in the time of one byte moved, where an op's time is the larger of the two."""
_DRAWS = 200


def draw_problem(split: str, seed: int, number: int, *, max_ops: int = 500, objective: str | None = None) -> Problem:
    """Return problem `number` of a split; same arguments, same problem.

    Parameters
    ----------
    split
        ``"train"`` or ``"test"``.
    seed, number
        Seed of the data set, and which of its problems.
    max_ops
        Most ops.
    objective
        Name of the objective; drawn as well if None.

    Raises
    ------
    UnknownNameError
        Another split or objective.
    InvalidProblemError
        A bound on the ops that leaves no choice, or a negative seed or number.

    Examples
    --------
    >>> draw_problem("test", 0, 2, max_ops=60)  # doctest: +ELLIPSIS
    Problem(...)
    """
    if split not in SPLITS:
        raise UnknownNameError(f"no split {split!r}; splits are {', '.join(SPLITS)}")
    if objective is not None and objective not in OBJECTIVES:
        raise UnknownNameError(f"no drawn problems for objective {objective!r}; they are for {', '.join(OBJECTIVES)}")
    for what, value, least in (("max_ops", max_ops, 2 * MIN_OPS), ("seed", seed, 0), ("number", number, 0)):
        if value < least:
            raise InvalidProblemError(f"drawn problems: {what} is {value}; it must be >= {least}")
    rng = np.random.default_rng((SPLITS.index(split), seed, number))
    name = objective or str(rng.choice(list(OBJECTIVES)))
    family = str(rng.choice(TRAIN_FAMILIES if split == "train" else TEST_FAMILIES))
    num_ops = int(np.exp(rng.uniform(np.log(MIN_OPS), np.log(max_ops))))
    num_devices = int(rng.choice(_DEVICES[split]))
    ratio = float(np.exp(rng.uniform(*np.log(_RATIOS))))
    memory = float(rng.uniform(*_MEMORY_FACTORS)) if rng.random() < _MEMORY_SHARE else None
    is_equal = name != "serial-latency" and bool(rng.random() < 0.4)  # on equal devices one is the best
    draw = partial(_drawn, family, rng, num_ops, max_ops, num_devices, ratio, memory, is_equal, OBJECTIVES[name]())
    return draw().replace(contiguity="none")


def _drawn(
    family: str,
    rng: np.random.Generator,
    num_ops: int,
    max_ops: int,
    num_devices: int,
    ratio: float,
    memory: float | None,
    is_equal: bool,
    objective: Objective,
) -> Problem:
    seed = int(rng.integers(2**31))
    if family.startswith("model-"):
        graph = _model(family.removeprefix("model-"), rng, max_ops)
        return _with_costs(graph, rng, num_devices, ratio, memory, is_equal, objective)
    if family == "recurrent":
        steps = max(2, round(float(np.sqrt(num_ops))))
        layers = max(1, num_ops // steps)
        graph = recurrent_lattice(layers, steps, seed, has_attention=bool(rng.random() < 0.5), num_constants=0).graph
        graph = graph.replace(  # a lattice has no sizes of its own
            op_flops=1e6 * rng.lognormal(0.0, 0.5, graph.num_ops),
            op_weight_bytes=1e5 * rng.lognormal(0.0, 0.5, graph.num_ops),
            tensor_bytes=1e5 * rng.lognormal(0.0, 0.4, graph.num_tensors),
        )
        return _with_costs(graph, rng, num_devices, ratio, memory, is_equal, objective)
    return generate(
        family,
        max(num_ops, MIN_OPS),
        seed,
        num_devices=num_devices,
        equal=is_equal,
        transfer_ratio=ratio,
        memory_factor=memory,
        objective=objective,
    )


def _model(sort: str, rng: np.random.Generator, max_ops: int) -> OpGraph:
    """Return a model with at most `max_ops` ops: the smallest of the first draws, if none of them is so small."""
    smallest: OpGraph | None = None
    for _ in range(_DRAWS):
        graph = ARCHITECTURES[sort](rng, f"model-{sort}-{int(rng.integers(2**31))}")
        if graph.num_ops <= max_ops:
            return graph
        smallest = graph if smallest is None or graph.num_ops < smallest.num_ops else smallest
    assert smallest is not None
    return smallest


def _with_costs(
    graph: OpGraph,
    rng: np.random.Generator,
    num_devices: int,
    ratio: float,
    memory: float | None,
    is_equal: bool,
    objective: Objective,
) -> Problem:
    """Return the graph on a platform whose kinds differ by type of op, as real ones do, and not op by op alone."""
    num_kinds = 1 if is_equal else min(num_devices, int(rng.integers(2, len(SLOWNESS) + 1)))
    has_host = objective.has_pipeline or bool(rng.random() < 0.5)
    written = np.bincount(graph.tensor_producer, weights=graph.tensor_bytes, minlength=graph.num_ops)
    base = np.maximum(graph.op_flops / _FLOPS_PER_BYTE, written + graph.op_weight_bytes)
    base = base + max(float(base.mean()), 1.0) * 0.05 * rng.random()  # what it takes to launch anything
    types, type_of_op = np.unique(graph.op_types, return_inverse=True)
    affinity = rng.lognormal(0.0, _TYPE_SPREAD, (len(types), num_kinds + 1))[type_of_op]
    affinity = affinity * rng.lognormal(0.0, _OP_SPREAD, affinity.shape)
    slowness = np.array([*SLOWNESS[:num_kinds], HOST_SLOWNESS if objective.has_pipeline else rng.uniform(0.8, 4.0)])
    times = base[:, None] * affinity * slowness
    kind_of_device = np.arange(num_devices) % num_kinds
    times *= MEAN_OP_S / times[:, kind_of_device].mean()
    kinds = [f"accelerator-{kind}" for kind in range(num_kinds)]
    mean_bytes = max(float(graph.tensor_bytes.mean()), 1.0)
    speed = 2 * mean_bytes / (ratio * MEAN_OP_S) / np.array(LINK_SLOWNESS[:num_kinds])
    latency_s = ratio * MEAN_OP_S * 0.1 * float(rng.random())
    links = {kind: Link(latency_s, float(each)) for kind, each in zip(kinds, speed, strict=True)}
    op_memory = graph.op_weight_bytes + written
    limit = None if memory is None else memory * float(op_memory.sum()) / num_devices + float(op_memory.max())
    devices = [Device(f"ACC.{d}", kinds[kind], memory_bytes=limit) for d, kind in enumerate(kind_of_device.tolist())]
    transfers = [links[kind].time_s(graph.tensor_bytes) for kind in kinds]
    if has_host:
        devices.append(Device("CPU.0", "cpu", is_host=True))
        kinds.append("cpu")
        transfers.append(np.zeros(graph.num_tensors))
    costs = CostTable(tuple(kinds), times[:, : len(kinds)], np.stack(transfers, axis=1), op_memory)
    return Problem(graph, Platform(tuple(devices), links), costs, objective)
