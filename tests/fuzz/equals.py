"""Random problems on equal devices, and what makes one of them unlike the others: queues, room, pins, nodes, teams.

One op feeds several others, which have to go to different devices where each has room for one op. Whatever tells equal
devices apart by their numbers alone then has another optimum for another numbering.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import Makespan, Objective, OffloadLatency, SerialLatency, Throughput

from .links import with_links

MOST_PLACEMENTS = 256
"""Placements to enumerate, at most; where each device has room for one op, few of them are feasible."""
MOST_ORDERED = 81
"""The same without limits for a makespan, of which orders are enumerated as well."""


def equal_devices_problem(rng: np.random.Generator, objective_name: str) -> Problem:
    """Return a small problem of the named objective on three or four devices, all or most of one kind."""
    num_devices = int(rng.integers(3, 5))
    room = str(rng.choice(["one", "one", "two", "none"]))
    most = MOST_ORDERED if objective_name == "makespan" and room != "one" else MOST_PLACEMENTS
    num_ops = max(count for count in range(3, 6) if num_devices**count <= most)
    if room == "one":
        num_ops = min(num_ops, num_devices)
    graph = _fan_out(rng, num_ops)
    kind_of_device = [0] * num_devices
    if rng.random() < 0.25:
        kind_of_device[int(rng.integers(0, num_devices))] = 1
        kind_of_device.sort()
    kinds = tuple(f"k{kind}" for kind in range(max(kind_of_device) + 1))

    def times(shape: tuple[int, int]) -> np.ndarray:
        return rng.choice([0.5, 1.0, 1.0, 2.0, 3.0], shape) if rng.random() < 0.8 else rng.uniform(0.0, 3.0, shape)

    transfer_time_s = times((graph.num_tensors, len(kinds))) / 2
    costs = CostTable(kinds, times((num_ops, len(kinds))), transfer_time_s, np.ones(num_ops))
    limit = {"one": 1.0, "two": 2.0, "none": None}[room]
    hosts = rng.random(len(kinds)) < (0.4 if objective_name == "offload-latency" else 0.1)
    devices = tuple(Device(f"d{d}", kinds[k], limit, is_host=bool(hosts[k])) for d, k in enumerate(kind_of_device))
    contiguity = Contiguity(str(rng.choice(["none", "none", "convex", "acyclic"])))
    problem = Problem(graph, Platform(devices), costs, _objective(rng, objective_name, num_ops), contiguity)
    if rng.random() < 0.3:
        pinned = np.where(rng.random(num_ops) < 0.3, rng.integers(0, num_devices, num_ops), UNPINNED)
        problem = problem.replace(pinned=pinned)
    if rng.random() < 0.1:
        problem = problem.replace(colocation=rng.integers(0, num_ops, num_ops))
    if problem.objective.direct_ends and problem.objective.team_rule == "off" and rng.random() < 0.25:
        problem = with_links(rng, problem, times)
    return problem


def _fan_out(rng: np.random.Generator, num_ops: int) -> OpGraph:
    """Draw a graph in which one tensor, or two, go to most of the later ops; the order of indices is another one."""
    index = rng.permutation(num_ops).tolist()
    tensors = [(0, list(range(1, num_ops)))]
    if rng.random() < 0.4:  # a second tensor of the same op, or of the next one
        source = int(rng.integers(0, 2))
        readers = [op for op in range(source + 1, num_ops) if rng.random() < 0.7]
        tensors += [(source, readers)] if readers else []
    if rng.random() < 0.4:  # the last op reads all others
        tensors += [(op, [num_ops - 1]) for op in range(1, num_ops - 1) if rng.random() < 0.7]
    return OpGraph(
        name="fan-out",
        op_names=tuple(f"o{op}" for op in range(num_ops)),
        op_types=("Op",) * num_ops,
        tensor_producer=np.array([index[u] for u, _ in tensors]),
        consumer_offsets=np.cumsum([0, *(len(readers) for _, readers in tensors)]),
        consumers=np.array([index[v] for _, readers in tensors for v in rng.permutation(readers).tolist()]),
        tensor_bytes=np.zeros(len(tensors)),
    )


def _objective(rng: np.random.Generator, name: str, num_ops: int) -> Objective:
    if name == "makespan":
        return Makespan("upward-rank" if rng.random() < 0.3 else "fifo", contention=bool(rng.random() < 0.8))
    if name == "throughput":
        rules: tuple[Literal["off", "equal", "any"], ...] = ("off", "equal", "any")
        return Throughput(bool(rng.random() < 0.3), teams=rules[int(rng.integers(0, 3))])
    if name == "serial-latency":
        return SerialLatency(float(rng.choice([0.0, 0.5])))
    return OffloadLatency(2 if num_ops <= 3 and rng.random() < 0.3 else 1)


def renamed(problem: Problem, new: np.ndarray) -> Problem:
    """Return the problem in which device ``new[d]`` is what device d was: its node, its pins, its place in the list.

    Parameters
    ----------
    problem
        The problem.
    new
        ``[num_devices]`` a permutation that takes every device to one of its kind.
    """
    devices = problem.platform.devices
    old = np.argsort(new)
    moved = tuple(devices[old[d]].replace(name=devices[d].name) for d in range(len(devices)))
    pinned = np.where(problem.pinned == UNPINNED, UNPINNED, new[problem.pinned])
    return problem.replace(platform=problem.platform.replace(devices=moved), pinned=pinned)


def renamed_placement(problem: Problem, placement: Placement, new: np.ndarray) -> Placement:
    """Return the same placement of the `renamed` problem."""
    team = placement.team_of_device
    if team is None:
        return Placement.of(problem, new[placement.device_of_op], placement.step_of_op)
    members = [np.flatnonzero(team == first) for first in team]
    moved = np.empty(len(team), dtype=np.int64)
    moved[new] = [new[each].min() for each in members]
    return Placement.of(problem, moved[new[placement.device_of_op]], placement.step_of_op, moved)


def of_one_kind(rng: np.random.Generator, problem: Problem) -> np.ndarray:
    """Draw a permutation of the devices that takes every device to one of its kind."""
    kind = problem.platform.kind_of_device
    new = np.arange(len(kind))
    for each in range(len(problem.platform.kinds)):
        members = np.flatnonzero(kind == each)
        new[members] = rng.permutation(members)
    return new
