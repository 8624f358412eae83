r"""The graph of groups as tensors: what the policies that place groups of ops read.

To the means of the op features (:mod:`placekit.learned.features`) come columns of the group as a whole, all in units of
the mean time of a group on its fastest device, so that they mean the same in every problem:

* per device, :math:`\log(10^{-3} + t)` of the group's seconds;
* :math:`\log(10^{-3} + c)` of the seconds that its outputs, and its inputs, take to leave or enter the slowest device;
* the logarithm of its number of ops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.arrays import distinct
from placekit.learned.environment import Environment
from placekit.learned.features import group_edges, group_means, group_sums, op_features
from placekit.model.problem import Problem

_LEAST = 1e-3


@dataclass(frozen=True, eq=False)
class GroupGraph:
    """Groups, their features, and the edges between them."""

    features: Tensor  # ``[num_groups, num_features]`` float32
    # senders, receivers: ``[num_edges]`` distinct edges between different groups
    senders: Tensor
    receivers: Tensor
    order: Tensor  # ``[num_groups]`` groups by the topological rank of their first op
    mask: Tensor  # ``[num_groups, num_devices]`` where each group may go

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.features)

    @property
    def num_features(self) -> int:
        """Columns of `features`."""
        return self.features.shape[1]

    @property
    def num_devices(self) -> int:
        """Columns of `mask`."""
        return self.mask.shape[1]

    @property
    def group_columns(self) -> Tensor:
        """``[num_groups, num_devices + 3]`` the columns of the groups as wholes."""
        return self.features[:, -(self.num_devices + 3) :]

    def masked(self, logits: Tensor) -> Tensor:
        """Return log-probabilities ``[..., num_groups, num_devices]`` of `logits` with no weight outside the mask."""
        return torch.log_softmax(logits.masked_fill(~self.mask, -torch.inf), dim=-1)


def group_graph(environment: Environment) -> GroupGraph:
    """Return the groups of `environment` as tensors."""
    problem, group = environment.problem, environment.group_of_op
    means = group_means(op_features(problem), group)
    own = _group_columns(problem, group, environment.num_groups)
    senders, receivers = group_edges(problem, group)
    first = np.full(environment.num_groups, len(group))
    np.minimum.at(first, group, problem.graph.rank)
    return GroupGraph(
        features=torch.from_numpy(np.concatenate([means, own], axis=1)),
        senders=torch.from_numpy(senders),
        receivers=torch.from_numpy(receivers),
        order=torch.from_numpy(np.argsort(first)),
        mask=torch.from_numpy(environment.mask),
    )


def few_groups(environment: Environment, max_groups: int) -> Environment:
    """Return an environment with about `max_groups` groups at most, each a run of groups in topological order.

    A run ends when it has its share of the groups, or when no device would be left that may hold it.
    """
    if environment.num_groups <= max_groups:
        return environment
    length = -(-environment.num_groups // max_groups)
    run_of_group = np.empty(environment.num_groups, dtype=np.int64)
    run, size = -1, length
    allowed = np.ones(environment.num_devices, dtype=bool)
    for group in group_graph(environment).order.tolist():
        may = allowed & environment.mask[group]
        if size >= length or not may.any():
            run, size, may = run + 1, 0, environment.mask[group]
        run_of_group[group], size, allowed = run, size + 1, may
    return environment.coarsened(run_of_group[environment.group_of_op])


def relations_of(graph: GroupGraph) -> Tensor:
    """``[3, N, N]`` row-normalised: which nodes are ancestors, descendants of a node, or neither. O(edges * N).

    Merged nodes may form cycles; then an ancestor is one along edges that follow `GroupGraph.order`.
    """
    place, eye = graph.order.argsort(), torch.eye(graph.num_groups, dtype=torch.bool)
    is_ancestor = torch.zeros_like(eye)
    along = place[graph.senders] < place[graph.receivers]
    senders, receivers = graph.senders[along], graph.receivers[along]
    for edge in place[senders].argsort(stable=True).tolist():
        is_ancestor[receivers[edge]] |= is_ancestor[senders[edge]] | eye[senders[edge]]
    weights = torch.stack([is_ancestor, is_ancestor.T, ~(is_ancestor | is_ancestor.T | eye)]).float()
    return weights / weights.sum(dim=2, keepdim=True).clamp_min(1)


def _group_columns(problem: Problem, group: NDArray[np.int64], num_groups: int) -> NDArray[np.float32]:
    graph, costs = problem.graph, problem.costs
    times = group_sums(costs.op_time_s[:, problem.platform.kind_of_device], group, num_groups)
    slowest = costs.transfer_time_s.max(axis=1, initial=0.0)
    moved = np.zeros((2, num_groups))
    producer, reader = group[graph.tensor_producer], group[graph.consumers]
    tensor = graph.consumed_tensor
    crossing = np.flatnonzero(producer[tensor] != reader)
    np.add.at(moved[0], producer[np.unique(tensor[crossing])], slowest[np.unique(tensor[crossing])])
    entering = distinct(tensor[crossing] * num_groups + reader[crossing])
    np.add.at(moved[1], entering % num_groups, slowest[entering // num_groups])
    unit = times.min(axis=1).mean()
    unit = unit if unit > 0 else 1.0
    relative = np.log(_LEAST + np.concatenate([times, moved.T], axis=1) / unit)
    return np.concatenate([relative, np.log(np.bincount(group))[:, None]], axis=1).astype(np.float32)


def wanted_actions(environment: Environment, placement: NDArray[np.int64]) -> Tensor:
    """``[num_groups]`` the device of each group's first op in `placement` ``[num_ops]``, where the mask allows it."""
    wanted = placement[environment.first_op]
    allowed = environment.mask[np.arange(environment.num_groups), wanted]
    return torch.from_numpy(np.where(allowed, wanted, environment.mask.argmax(axis=1)))


def best_single(environment: Environment, groups: Environment | None = None) -> Tensor:
    """``[num_groups]`` everything on the best single device of `environment`, where the mask of `groups` allows it."""
    best = int(np.argmin(environment.single_devices))
    return torch.from_numpy((groups or environment).homogeneous[best].copy())


def preference(
    preferred: Tensor,  # ``[num_groups]`` devices
    num_devices: int,
    deviations: float,  # 0 for no preference
    num_choices: int | None = None,  # choices that are made; one for every entry of `preferred` if None
) -> Tensor:
    """``[num_groups, num_devices]`` logits with which about `deviations` of the choices leave a preferred device."""
    num_others = (num_choices or len(preferred)) * (num_devices - 1)
    bias = math.log(max(num_others / deviations, 1.0)) if deviations else 0.0
    return bias * torch.nn.functional.one_hot(preferred, num_devices).float()
