"""Random problems small enough to enumerate, and as awkward as users' problems are rarely but surely.

Every problem follows from a seed and a number alone, so that a finding can be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.memory_model import op_memory
from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.memory import MemoryBlocks
from placekit.model.platform import Device, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import Makespan, Objective, OffloadLatency, SerialLatency, Throughput

from .equals import equal_devices_problem
from .links import with_links
from .pools import with_pools
from .twists import twisted

MAX_PLACEMENTS = {"throughput": 400, "serial-latency": 400, "offload-latency": 200, "makespan": 64}
"""Placements to enumerate, at most: the judge takes some thousands a second, and more with orders and calls."""
MAX_OPS = 8
MAX_OPS_ORDERED = 5
"""The same for a makespan, of which orders are enumerated as well."""
MAX_OPS_WITH_CALLS = 4
"""The same for several calls per device, of which divisions into calls are enumerated as well."""
MAX_PLACEMENTS_OF_TEAMS = 256
"""The same for teams, of which four devices form up to fifteen."""

EQUALS = 0.15
"""Share of problems on equal devices of which something else makes one unlike the others (:mod:`.equals`)."""

POOLED = 0.1
"""Share of other problems with memories that several devices share (:mod:`.pools`)."""

TRAINING = "training"
"""Name of graphs with a gradient for every op."""

OBJECTIVE_NAMES = ("throughput", "serial-latency", "offload-latency", "makespan")

Times = NDArray[np.float64]


def random_problem(
    seed: int, case: int, objective_name: str | None = None, sizes: tuple[int, int] | None = None
) -> Problem:
    """Return problem number `case` of `seed`; of the named objective, or of any.

    With `sizes` it has so many ops, at least and at most, on up to five devices: too many placements for the judge.

    Shapes, costs and constraints are drawn apart: chains, trees, meshes, training graphs, parts without edges, several
    tensors between the same ops; times that tie, vanish, or span up to twenty orders of magnitude; limits that just
    hold or just do not, by either memory model; pins, which may contradict each other, colocation, fused groups, ops
    that a kind cannot run, equal and unequal devices, teams of them, and direct links between them. Half of all
    problems are twisted on top (:mod:`.twists`).
    """
    rng = np.random.default_rng([seed, case])
    name = objective_name or str(rng.choice(OBJECTIVE_NAMES))
    if sizes is None and np.random.default_rng([seed, case, 5]).random() < EQUALS:
        return equal_devices_problem(rng, name)
    fewest, most = sizes or (1, MAX_OPS_ORDERED if name == "makespan" else MAX_OPS)
    num_ops = int(rng.integers(fewest, most + 1))
    num_devices = int(rng.integers(1, 5 if sizes is None else 6))
    while sizes is None and num_devices**num_ops > MAX_PLACEMENTS[name]:
        num_ops, num_devices = (num_ops - 1, num_devices) if rng.random() < 0.5 else (num_ops, num_devices - 1)
    trains = rng.random() < (0.25 if name == "throughput" else 0.1)
    graph = _training_graph(rng, num_ops) if trains and rng.random() < 0.5 else _graph(rng, num_ops, trains=trains)
    platform_kinds = sorted(rng.integers(0, int(rng.integers(1, 4)), num_devices).tolist())
    kinds = tuple(f"k{kind}" for kind in sorted(set(platform_kinds)))
    draw = _regime(rng)
    op_time_s, transfer_time_s = draw((num_ops, len(kinds))), draw((graph.num_tensors, len(kinds)))
    if rng.random() < 0.3:
        transfer_time_s *= float(rng.choice([0.0, 1e-3, 10.0]))
    if rng.random() < 0.2:  # rows whose kinds differ in nothing
        op_time_s[:] = op_time_s[:, :1]
        transfer_time_s[:] = transfer_time_s[:, :1]
    is_host = rng.random(len(kinds)) < (0.6 if name == "offload-latency" else 0.3)
    transfer_time_s[:, is_host & (rng.random(len(kinds)) < 0.7)] = 0.0
    supported = np.ones((num_ops, len(kinds)), dtype=bool)
    if rng.random() < 0.3:
        supported = rng.random((num_ops, len(kinds))) < 0.7
        supported[np.arange(num_ops), rng.integers(0, len(kinds), num_ops)] = True
    op_memory_bytes, limits = _memory(rng, num_ops, len(kinds))
    costs = CostTable(
        kinds,
        op_time_s,
        transfer_time_s,
        op_memory_bytes,
        supported,
        rng.integers(0, num_ops, num_ops) if rng.random() < 0.1 else np.arange(num_ops),
    )
    number = {f"k{kind}": at for at, kind in enumerate(sorted(set(platform_kinds)))}
    devices = []
    for d, kind in enumerate(platform_kinds):
        at = number[f"k{kind}"]
        devices.append(Device(f"d{d}", f"k{kind}", memory_bytes=limits[at], is_host=bool(is_host[at])))
    may_team = num_devices > 1 and num_devices**num_ops <= MAX_PLACEMENTS_OF_TEAMS
    objective = _objective(rng, name, op_time_s, may_team=may_team)
    problem = Problem(graph, Platform(tuple(devices)), costs, objective, _contiguity(rng, name))
    if rng.random() < 0.25:
        pinned = np.where(rng.random(num_ops) < 0.3, rng.integers(0, num_devices, num_ops), UNPINNED)
        problem = problem.replace(pinned=pinned)
    if rng.random() < 0.25:
        problem = problem.replace(colocation=rng.integers(0, max(1, num_ops - 1), num_ops))
    if graph.name == TRAINING and rng.random() < 0.6:  # an op and its gradient share a device
        problem = problem.replace(colocation=np.minimum(np.arange(num_ops), np.arange(num_ops)[::-1]))
    if rng.random() < 0.25:
        problem = _with_memory_model(rng, problem)
    knows_links = problem.objective.direct_ends > 0 and problem.objective.team_rule == "off"
    if knows_links and rng.random() < 0.25:
        problem = with_links(rng, problem, draw)
    problem = twisted(rng, problem, is_enumerated=sizes is None) if rng.random() < 0.5 else problem
    of_pools = np.random.default_rng([seed, case, 6])
    return with_pools(of_pools, problem) if num_devices > 1 and of_pools.random() < POOLED else problem


def _graph(rng: np.random.Generator, num_ops: int, *, trains: bool) -> OpGraph:
    """Draw a graph; the topological order of the ops is not the order of their indices."""
    rank: list[int] = rng.permutation(num_ops).tolist()
    shape = str(rng.choice(["mesh", "chain", "tree", "sparse", "none", "layers"]))
    tensors: list[tuple[int, list[int]]] = []
    for at in range(num_ops - 1):
        later = np.arange(at + 1, num_ops)
        readers: Sequence[int] = ()
        if shape == "chain":
            readers = [at + 1]
        elif shape == "mesh":
            readers = later[rng.random(len(later)) < 0.5].tolist()
        elif shape == "sparse":
            readers = later[rng.random(len(later)) < 0.2].tolist()
        elif shape == "tree":
            readers = [int(rng.choice(later))]
        elif shape == "layers":
            readers = later[(later // 2 == at // 2 + 1)].tolist()
        if len(readers):
            tensors.append((at, list(readers)))
            while rng.random() < 0.15:  # a second output, to some of the same readers
                some = [v for v in readers if rng.random() < 0.6]
                tensors += [(at, some)] if some else []
    is_backward = np.zeros(num_ops, dtype=bool)
    if trains:
        is_backward[rank[int(rng.integers(0, num_ops + 1)) :]] = True
    return _built("fuzz", [(rank[u], [rank[v] for v in readers]) for u, readers in tensors], is_backward)


def _training_graph(rng: np.random.Generator, num_ops: int) -> OpGraph:
    """Draw forward ops, their gradients in reverse (op v and op -1 - v), and what these read of the forward pass."""
    forward = np.arange(-(-num_ops // 2))
    tensors: dict[int, list[int]] = {op: [] for op in range(num_ops)}
    for u in forward.tolist():
        behind = forward[u + 1 :]
        readers = behind[rng.random(len(behind)) < 0.4].tolist() or behind[:1].tolist()
        tensors[u] += readers
        for v in readers:
            if num_ops - 1 - v != v:  # the last op of an odd number is its own gradient
                tensors[u].append(num_ops - 1 - v)
            tensors[num_ops - 1 - v].append(num_ops - 1 - u)
    is_backward = np.arange(num_ops) >= len(forward)
    return _built(TRAINING, [(u, readers) for u, readers in tensors.items() if readers], is_backward)


def _built(name: str, tensors: list[tuple[int, list[int]]], is_backward: NDArray[np.bool_]) -> OpGraph:
    num_ops = len(is_backward)
    return OpGraph(
        name=name,
        op_names=tuple(f"o{op}" for op in range(num_ops)),
        op_types=("Op",) * num_ops,
        tensor_producer=np.array([u for u, _ in tensors], dtype=np.int64),
        consumer_offsets=np.cumsum([0, *(len(readers) for _, readers in tensors)], dtype=np.int64),
        consumers=np.array([v for _, readers in tensors for v in readers], dtype=np.int64),
        tensor_bytes=np.zeros(len(tensors)),
        is_backward=is_backward,
    )


class _regime:  # noqa: N801  # used like a function
    """Draws times: one kind of numbers for the whole problem."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.name = str(
            rng.choice(["whole", "ties", "plain", "micro", "wide", "extreme", "two-scales", "sentinel", "near-ties"])
        )
        self.scale_s = float(10.0 ** rng.integers(-6, 3))

    def __call__(self, shape: tuple[int, int]) -> Times:
        rng = self.rng
        if self.name == "whole":
            found = rng.integers(0, 20, shape).astype(float)
        elif self.name == "ties":
            found = rng.choice([0.0, 1.0, 2.0], shape) * self.scale_s
        elif self.name == "plain":
            found = rng.uniform(0, 1, shape) * self.scale_s
        elif self.name == "micro":
            found = rng.choice([0.0, 1e-6, 1e-5, 1e-4, 1e-3], shape) * rng.integers(1, 9, shape)
        elif self.name == "wide":
            found = 10.0 ** rng.uniform(-9, 2, shape)
        elif self.name == "extreme":
            found = 10.0 ** rng.uniform(-12, 9, shape)
        elif self.name == "two-scales":
            found = np.where(rng.random(shape) < 0.3, 1.0, 1e-7) * rng.integers(0, 10, shape) * self.scale_s
        elif self.name == "sentinel":
            found = np.where(rng.random(shape) < 0.2, 1e9, rng.integers(0, 9, shape) * 1e-4)
        else:
            found = 1.0 + rng.integers(-3, 4, shape) * float(rng.choice([1e-6, 1e-8, 1e-10]))
        return np.where(rng.random(shape) < 0.1, 0.0, found).astype(np.float64)


def _memory(rng: np.random.Generator, num_ops: int, num_kinds: int) -> tuple[Times, list[float | None]]:
    """Draw bytes and limits, often such that a sum meets a limit or misses it by a byte."""
    if rng.random() < 0.6:
        return np.zeros(num_ops), [None] * num_kinds
    unit = float(rng.choice([1.0, 1e3, 1e9, 4e9]))
    sizes = rng.integers(0, 4, num_ops) * unit
    if rng.random() < 0.5:
        sizes += rng.choice([0.0, 1.0, 100.0], num_ops)
    if rng.random() < 0.2:
        sizes = rng.uniform(0, unit, num_ops)
    limits: list[float | None] = []
    for _ in range(num_kinds):
        some = sizes[rng.random(num_ops) < 0.6].sum()
        limit = float(some + rng.choice([0.0, -1.0, 1.0, unit / 2]))
        limits.append(limit if limit > 0 and rng.random() < 0.8 else None)
    return sizes.astype(np.float64), limits


def _with_memory_model(rng: np.random.Generator, problem: Problem) -> Problem:
    """Draw weights and outputs, and limits that a set of ops just meets, by a byte or a tenth, or just does not."""
    num_ops, unit = problem.graph.num_ops, float(rng.choice([1.0, 1e3, 4e9]))
    graph = problem.graph.replace(
        op_types=tuple(rng.choice(["Op", "Op", "Op", "Reshape", "Parameter", "Result"], num_ops).tolist()),
        op_weight_bytes=rng.integers(0, 4, num_ops) * unit,
        tensor_bytes=rng.integers(0, 4, problem.graph.num_tensors) * unit,
    )
    blocks: MemoryBlocks | None
    num_bytes, blocks = op_memory(graph, problem.costs.op_group)
    if str(rng.choice(["live", "live", "all"])) == "all":  # as if nothing were ever freed
        num_bytes, blocks = (
            graph.op_weight_bytes + np.bincount(graph.tensor_producer, graph.tensor_bytes, num_ops),
            None,
        )
    if blocks is not None and rng.random() < 0.5:  # a weight that several ops read, and another length of queues
        users = np.flatnonzero(rng.random(num_ops) < 0.5)
        users = users if len(users) else np.array([0])
        blocks = MemoryBlocks(
            np.append(blocks.num_bytes, 2 * unit),
            np.append(blocks.is_weight, True),
            np.append(blocks.offsets, len(blocks.ops) + len(users)),
            np.append(blocks.ops, users),
            int(rng.integers(0, 4)),
        )
    problem = problem.replace(graph=graph, costs=problem.costs.replace(op_memory_bytes=num_bytes, blocks=blocks))
    limits: dict[str, float | None] = {}
    for kind in problem.platform.kinds:
        some = problem.stage_memory.of(rng.random(num_ops) < 0.6)
        limit = float(some + rng.choice([0.0, 0.0, -1.0, 1.0, unit / 2, -some / 10]))
        limits[kind] = limit if limit > 0 and rng.random() < 0.8 else None
    devices = tuple(device.replace(memory_bytes=limits[device.kind]) for device in problem.platform.devices)
    return problem.replace(platform=Platform(devices))


def _objective(rng: np.random.Generator, name: str, op_time_s: Times, *, may_team: bool) -> Objective:
    if name == "throughput":
        overlap = bool(rng.random() < 0.3)
        schedule: Literal["gpipe", "1f1b"] = "gpipe" if rng.random() < 0.5 else "1f1b"
        if not may_team or rng.random() < 0.5:
            return Throughput(overlap=overlap, schedule=schedule)
        return Throughput(overlap, schedule, "equal" if schedule == "gpipe" or rng.random() < 0.5 else "any")
    if name == "serial-latency":
        typical = float(np.median(op_time_s)) if op_time_s.size else 0.0
        return SerialLatency(float(rng.choice([0.0, 0.0, typical, 1e-3 * typical, 1e-6])))
    if name == "offload-latency":
        calls = int(rng.choice([1, 1, 2, 3]))
        return OffloadLatency(calls if len(op_time_s) <= MAX_OPS_WITH_CALLS else 1)
    return Makespan("upward-rank" if rng.random() < 0.3 else "fifo", contention=bool(rng.random() < 0.4))


def _contiguity(rng: np.random.Generator, name: str) -> Contiguity:
    choice = Contiguity(str(rng.choice(["none", "convex", "acyclic"])))
    if name == "throughput":
        return choice
    return choice if rng.random() < 0.3 else Contiguity.NONE
