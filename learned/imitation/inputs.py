"""Inputs of the policy: relative costs per op and device, without names, types or ids.

Every pair of an op and a device is a *state*; the same weights serve all of them, so that the number of devices and
their order mean nothing. Devices of one kind would stay equal for ever: each has its rank among its equals as an
input, which placements to imitate respect (``examples/train_policy.py``). Times are divided by the mean
time of an op on its fastest device, so that the unit means nothing either.

Shapes
------
``V`` ops, ``D`` devices, ``N = V D`` states (op-major), ``T`` tensors, ``E`` pairs of a tensor and a reader, ``F``
`NUM_FEATURES`. A batch puts several problems one behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import MakespanInstance
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.ranks import mean_upward_rank

OBJECTIVES = ("serial-latency", "makespan", "throughput")
"""Objectives that the policy tells apart."""
NUM_FEATURES = 19
_LEAST = 1e-3
"""Relative times below this look the same."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """One problem as arrays; see the module docstring for shapes."""

    # num_ops, num_devices: sizes
    num_ops: int
    num_devices: int
    objective: int  # index into `OBJECTIVES`: what the problem's objective resembles most
    features: NDArray[np.float32]  # ``[N, F]`` float32
    allowed: NDArray[np.bool_]  # ``[N]`` True where the op may go
    time: NDArray[np.float32]  # ``[N]`` relative time of the op there; 0 where it may not go
    transfer: NDArray[np.float32]  # ``[T, D]`` relative time of the tensor over the link of the device
    producer: NDArray[np.int64]  # ``[T]`` op that writes each tensor
    # edge_tensor, edge_reader: ``[E]`` tensor and op that reads it, in topological order of the producers
    edge_tensor: NDArray[np.int64]
    edge_reader: NDArray[np.int64]
    unit_s: float  # seconds of the relative time 1


class Batch(NamedTuple):
    """Problems one behind the other, as tensors: ``O`` ops, ``M`` devices, ``G`` problems, ``P`` (E, D) pairs."""

    # features, allowed, time: ``[N, F]``, ``[N]``, ``[N]`` of every state
    features: Tensor
    allowed: Tensor
    time: Tensor
    # op_of_state, device_of_state: ``[N]`` which op and device
    op_of_state: Tensor
    device_of_state: Tensor
    # graph_of_op, graph_of_device, objective: ``[O]``, ``[M]`` which problem; ``[G]`` its objective
    graph_of_op: Tensor
    graph_of_device: Tensor
    objective: Tensor
    # producer_state, transfer: ``[T D]`` state of the producer of a tensor on each device, and the relative time of the
    # tensor there
    producer_state: Tensor
    transfer: Tensor
    # pair_tensor, pair_reader: ``[P]`` row of `producer_state`, and state of the reader
    pair_tensor: Tensor
    pair_reader: Tensor
    # edge_of_pair, edge_from, edge_to: ``[P]`` edge of each pair; ``[E]`` ops at its ends, producers in topological
    # order within a problem
    edge_of_pair: Tensor
    edge_from: Tensor
    edge_to: Tensor

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on a device of torch."""
        return Batch(*(tensor.to(device) for tensor in self))


def rank_among_equals(problem: Problem) -> NDArray[np.int64]:
    """``[num_devices]`` how many devices of its kind stand before each device."""
    kind = problem.platform.kind_of_device
    return np.array([int((kind[:d] == kind[d]).sum()) for d in range(len(kind))], dtype=np.int64)


def inputs_of(problem: Problem) -> Inputs:
    """Return what the policy sees of `problem`. O((ops + edges) devices)."""
    instance = instance_of(problem)
    kind, num_ops, num_devices = instance.kind, instance.num_ops, instance.num_devices
    allowed = instance.allowed
    seconds = np.where(allowed, instance.op_time_s[:, kind], np.inf)
    best = seconds.min(axis=1)
    best = np.where(np.isfinite(best), best, 0.0)
    unit = float(best.mean()) or 1.0
    time = np.where(allowed, seconds, 0.0) / unit
    transfer = instance.transfer_s[:, kind] / unit
    tensors = instance.tensor_of_reader
    pairs = np.argsort(instance.rank[instance.producer[tensors]], kind="stable")
    return Inputs(
        num_ops,
        num_devices,
        _objective_index(problem),
        _features(problem, instance, time, best / unit, transfer),
        allowed.ravel(),
        time.ravel().astype(np.float32),
        transfer.astype(np.float32),
        instance.producer,
        tensors[pairs],
        instance.readers[pairs],
        unit,
    )


def _objective_index(problem: Problem) -> int:
    name = problem.objective.name
    if name in OBJECTIVES:
        return OBJECTIVES.index(name)
    return OBJECTIVES.index("throughput" if problem.objective.has_pipeline else "makespan")


def _features(
    problem: Problem,
    instance: MakespanInstance,
    time: NDArray[np.float64],
    best: NDArray[np.float64],
    transfer: NDArray[np.float64],
) -> NDArray[np.float32]:
    """``[N, F]``; what belongs to an op or a device alone is repeated."""
    num_ops, num_devices = time.shape
    allowed = instance.allowed
    kind = instance.kind
    total = max(float(best.sum()), _LEAST)
    upward = mean_upward_rank(instance)
    path = float(upward.max()) or 1.0
    limit = instance.limit_bytes
    need = np.where(np.isfinite(limit), instance.memory_bytes[:, None] / limit, 0.0)
    fill = np.where(np.isfinite(limit), instance.memory_bytes.sum() / limit, 0.0)
    equals = np.bincount(kind)[kind]
    in_cost = np.zeros((num_ops, num_devices))
    tensors = instance.tensor_of_reader
    np.add.at(in_cost, instance.readers, transfer[tensors])
    out_cost = np.zeros((num_ops, num_devices))
    np.add.at(out_cost, instance.producer, transfer)
    one_hot = np.zeros(len(OBJECTIVES))
    one_hot[_objective_index(problem)] = 1.0
    columns = [
        allowed,
        _log(time),
        np.where(allowed, _log(time) - _log(best)[:, None], 0.0),
        _log(time.sum(axis=0) / total)[None],
        _log(in_cost),
        _log(out_cost),
        _log(transfer.sum(axis=0) / total)[None],
        np.minimum(need, 2.0),
        np.minimum(fill, 4.0)[None],
        np.isfinite(limit)[None],
        (rank_among_equals(problem) / equals)[None],
        (1.0 / equals)[None],
        np.full((1, 1), np.log(num_devices)),
        (instance.rank / num_ops)[:, None],
        (upward / path)[:, None],
        np.full((1, 1), np.log(best.max() + _LEAST)),
        *one_hot[:, None, None],
    ]
    shape = num_ops, num_devices
    stacked = np.stack([np.broadcast_to(column, shape) for column in columns], axis=2)
    return stacked.reshape(num_ops * num_devices, -1).astype(np.float32)


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = np.log(values + _LEAST)
    return logs


def collate(problems: Sequence[Inputs]) -> Batch:
    """Return problems one behind the other."""
    parts: list[tuple[NDArray[np.generic], ...]] = []
    ops = devices = states = rows = edges = 0
    for graph, each in enumerate(problems):
        num_ops, num_devices = each.num_ops, each.num_devices
        lane = np.arange(num_devices)
        pair_tensor = (each.edge_tensor[:, None] * num_devices + lane).ravel()
        parts.append(
            (
                each.features,
                each.allowed,
                each.time,
                ops + np.repeat(np.arange(num_ops), num_devices),
                devices + np.tile(lane, num_ops),
                np.full(num_ops, graph),
                np.full(num_devices, graph),
                np.full(1, each.objective),
                states + (each.producer[:, None] * num_devices + lane).ravel(),
                each.transfer.ravel(),
                rows + pair_tensor,
                states + (each.edge_reader[:, None] * num_devices + lane).ravel(),
                edges + np.repeat(np.arange(len(each.edge_reader)), num_devices),
                ops + each.producer[each.edge_tensor],
                ops + each.edge_reader,
            )
        )
        ops, devices, states = ops + num_ops, devices + num_devices, states + num_ops * num_devices
        rows, edges = rows + len(each.producer) * num_devices, edges + len(each.edge_reader)
    return Batch(*(torch.from_numpy(np.concatenate(column)) for column in zip(*parts, strict=True)))
