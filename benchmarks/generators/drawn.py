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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

from placekit.arrays import sum_by
from placekit.benchmarks.cases.suite_schema import DrawEntry, ModelEntry
from placekit.benchmarks.generators.architectures import ARCHITECTURES
from placekit.benchmarks.generators.families import (
    HOST_SLOWNESS,
    LINK_SLOWNESS,
    MEAN_OP_S,
    SLOWNESS,
    generate,
    on_accelerators,
)
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.platform import Link
from placekit.model.problem import Problem
from placekit.objectives import Makespan, Objective, SerialLatency, Throughput

Split: TypeAlias = Literal["train", "test"]
SPLITS: tuple[str, ...] = get_args(Split)
TRAIN_FAMILIES = (
    "chains", "transformer", "feed-forward-shards", "layered", "model-residual", "model-transformer", "model-layered",
)  # fmt: skip
"""Families of the training split; ``model-...`` are those of :mod:`placekit.benchmarks.generators.architectures`."""
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
_CUBE_FAMILIES = ("transformer", "feed-forward-shards", "inception", "chained-matmuls", "layered")
_PER_FAMILY = 8
_CUBE_DEVICES = (2, 2, 3, 4, 5, 6, 7, 8)


def draw_problem(
    split: str,  # ``"train"`` or ``"test"``
    # seed, number: seed of the data set, and which of its problems
    seed: int,
    number: int,
    *,
    max_ops: int = 500,  # most ops
    objective: str | None = None,  # name of the objective; drawn as well if None
) -> Problem:
    """Return problem `number` of a split; same arguments, same problem.

    Raises `UnknownNameError`: another split or objective; `InvalidProblemError`: a bound on the ops that leaves no
    choice, or a negative seed or number.

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
    setting = _Setting(num_devices, ratio, memory, is_equal, OBJECTIVES[name]())
    return _drawn(family, rng, num_ops, max_ops, setting).replace(contiguity="none")


@dataclass(frozen=True, slots=True)
class _Setting:
    """Platform, limits and objective of a drawn problem."""

    num_devices: int
    ratio: float
    memory: float | None
    is_equal: bool
    objective: Objective


def _drawn(family: str, rng: np.random.Generator, num_ops: int, max_ops: int, setting: _Setting) -> Problem:
    seed = int(rng.integers(2**31))
    if family.startswith("model-"):
        graph = _model(family.removeprefix("model-"), rng, max_ops)
        return _with_costs(graph, rng, setting)
    if family == "recurrent":
        steps = max(2, round(float(np.sqrt(num_ops))))
        layers = max(1, num_ops // steps)
        graph = _lattice(layers, steps, f"recurrent-{layers}x{steps}-{seed}", has_attention=bool(rng.random() < 0.5))
        graph = graph.replace(  # a lattice has no sizes of its own
            op_flops=1e6 * rng.lognormal(0.0, 0.5, graph.num_ops),
            op_weight_bytes=1e5 * rng.lognormal(0.0, 0.5, graph.num_ops),
            tensor_bytes=1e5 * rng.lognormal(0.0, 0.4, graph.num_tensors),
        )
        return _with_costs(graph, rng, setting)
    return generate(
        family, max(num_ops, MIN_OPS), seed, num_devices=setting.num_devices, equal=setting.is_equal,
        transfer_ratio=setting.ratio, memory_factor=setting.memory, objective=setting.objective,
    )  # fmt: skip


def _lattice(num_layers: int, num_steps: int, name: str, *, has_attention: bool) -> OpGraph:
    """Return a recurrent lattice: each op feeds the next step and the next layer; attention reads all of the last."""
    names = [f"cell{layer}.{step}" for step in range(num_steps) for layer in range(num_layers)]
    edges = []
    for step in range(num_steps):
        for layer in range(num_layers):
            edges += [(f"cell{layer - 1}.{step}", f"cell{layer}.{step}")] if layer else []
            edges += [(f"cell{layer}.{step - 1}", f"cell{layer}.{step}")] if step else []
    if has_attention:
        names.append("attention")
        edges += [(f"cell{num_layers - 1}.{step}", "attention") for step in range(num_steps)]
    return OpGraph.from_edges(names, edges, name=name)


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


def _with_costs(graph: OpGraph, rng: np.random.Generator, setting: _Setting) -> Problem:
    """Return the graph on a platform whose kinds differ by type of op, as real ones do, and not op by op alone."""
    objective = setting.objective
    num_kinds = 1 if setting.is_equal else min(setting.num_devices, int(rng.integers(2, len(SLOWNESS) + 1)))
    has_host = objective.has_pipeline or bool(rng.random() < 0.5)
    written = sum_by(graph.tensor_producer, graph.tensor_bytes, graph.num_ops)
    base = np.maximum(graph.op_flops / _FLOPS_PER_BYTE, written + graph.op_weight_bytes)
    base = base + max(float(base.mean()), 1.0) * 0.05 * rng.random()  # what it takes to launch anything
    types, type_of_op = np.unique(graph.op_types, return_inverse=True)
    affinity = rng.lognormal(0.0, _TYPE_SPREAD, (len(types), num_kinds + 1))[type_of_op]
    affinity = affinity * rng.lognormal(0.0, _OP_SPREAD, affinity.shape)
    slowness = np.array([*SLOWNESS[:num_kinds], HOST_SLOWNESS if objective.has_pipeline else rng.uniform(0.8, 4.0)])
    times = base[:, None] * affinity * slowness
    kind_of_device = np.arange(setting.num_devices) % num_kinds
    times *= MEAN_OP_S / times[:, kind_of_device].mean()
    kinds = [f"accelerator-{kind}" for kind in range(num_kinds)]
    mean_bytes = max(float(graph.tensor_bytes.mean()), 1.0)
    speed = 2 * mean_bytes / (setting.ratio * MEAN_OP_S) / np.array(LINK_SLOWNESS[:num_kinds])
    latency_s = setting.ratio * MEAN_OP_S * 0.1 * float(rng.random())
    links = {kind: Link(latency_s, float(each)) for kind, each in zip(kinds, speed, strict=True)}
    return on_accelerators(
        graph, times, links, setting.num_devices, objective, memory_factor=setting.memory, has_host=has_host
    )


def drawn_models(entry: DrawEntry) -> Iterator[ModelEntry]:
    """Yield the 40 models of a draw: for each family a Latin hypercube.

    Sizes from 50 to 250 ops, 2 to 8 devices, half of the platforms equal, transfers from 0.1 to 10 mean op times: every
    level once, combined at random. Each problem has a graph seed of its own.

    Examples
    --------
    >>> [model.name for model in drawn_models(DrawEntry(name="held-out", seed=4))][5]
    'held-out 405: transformer 193, 8 equal, 1.39'
    """
    rng = np.random.default_rng(entry.seed)
    seed = 100 * entry.seed
    for family in _CUBE_FAMILIES:
        sizes = rng.permutation(np.linspace(50, 250, _PER_FAMILY).round().astype(int))
        devices = rng.permutation(_CUBE_DEVICES)
        equal = rng.permutation([True, False] * (_PER_FAMILY // 2))
        ratios = rng.permutation(np.round(10.0 ** np.linspace(-1, 1, _PER_FAMILY), 2))
        for size, count, is_equal, ratio in zip(
            sizes.tolist(), devices.tolist(), equal.tolist(), ratios.tolist(), strict=True
        ):
            yield ModelEntry(
                name=f"{entry.name} {seed}: {family} {size}, {count} {'equal' if is_equal else 'unequal'}, {ratio:g}",
                family=family,
                params={"num_ops": size, "num_devices": count, "equal": is_equal, "transfer_ratio": ratio},
                seeds=(seed,),
            )
            seed += 1
