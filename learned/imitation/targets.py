"""Targets of imitation: the label of a problem, in one canonical form of all equally good placements.

Exchanging two devices of one kind changes nothing, so a label stands for many placements. The network tells equal
devices apart by their rank alone; the label is rewritten so that, among the devices of a kind, the one whose ops come
first in topological order (in the mean) has the first rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.imitation.dataset import LabelledProblem
from placekit.learned.imitation.inputs import Inputs, inputs_of
from placekit.learned.rewards import judge_reward
from placekit.model.problem import Problem
from placekit.objectives import BatchScore
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_fifo, simulate_steps

__all__ = ["Example", "Targets", "canonical", "collate_targets", "example_of"]


class Example(NamedTuple):
    """One labelled problem, ready to be trained on.

    Parameters
    ----------
    inputs
        What the policy sees.
    state
        ``[num_ops]`` state of every op in the canonical label, ``op * num_devices + device``.
    start
        ``[num_ops]`` start of every op over the makespan; NaN where the objective has no order.
    objective
        Objective of the label over `Inputs.unit_s`.
    gap
        Gap of the label to its bound.
    judge
        What placements of the problem take.
    """

    inputs: Inputs
    state: NDArray[np.int64]
    start: NDArray[np.float32]
    objective: float
    gap: float
    judge: BatchScore


class Targets(NamedTuple):
    """The labels of a batch: ``state`` ``[O]``, ``start`` ``[O]``, ``objective`` ``[G]``, ``gap`` ``[G]``."""

    state: Tensor
    start: Tensor
    objective: Tensor
    gap: Tensor

    def to(self, device: torch.device | str) -> Targets:
        """Return the targets on a device of torch."""
        return Targets(*(tensor.to(device) for tensor in self))


def canonical(problem: Problem, device_of_op: NDArray[np.int64]) -> NDArray[np.int64]:
    """``[num_ops]`` the placement with equal devices in the order of the mean position of their ops; empty ones last.

    Devices of a kind that an op is pinned to stay as they are.

    Examples
    --------
    >>> import placekit as pk
    >>> graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    >>> costs = pk.CostTable(("cpu",), [[1.0], [2.0]], [[0.0]], [0, 0])
    >>> canonical(pk.Problem(graph, pk.Platform.of(cpu=3), costs), np.array([2, 1]))
    array([0, 1])
    """
    instance = instance_of(problem)
    kind = instance.kind
    count = np.bincount(device_of_op, minlength=len(kind))
    position = np.bincount(device_of_op, weights=instance.rank, minlength=len(kind)) / np.maximum(count, 1)
    position[count == 0] = np.inf
    renamed = np.arange(len(kind))
    pinned_kinds = set(kind[problem.pinned[problem.pinned >= 0]].tolist())
    for each in np.unique(kind).tolist():
        devices = np.flatnonzero(kind == each)
        if each not in pinned_kinds:
            renamed[devices[np.argsort(position[devices], kind="stable")]] = devices
    return renamed[device_of_op]


def example_of(labelled: LabelledProblem) -> Example:
    """Return a labelled problem ready to be trained on."""
    problem = labelled.problem
    inputs = inputs_of(problem)
    devices = canonical(problem, labelled.device_of_op)
    start = np.full(inputs.num_ops, np.nan)
    if problem.objective.name == "makespan":
        instance = instance_of(problem)
        timeline = simulate_fifo(instance, labelled.device_of_op)
        if labelled.step_of_op is not None:
            ordered = simulate_steps(instance, labelled.device_of_op, labelled.step_of_op)
            assert not isinstance(ordered, int)  # the judge has run it: no device waits for ever
            timeline = ordered
        start = timeline.start_s / max(timeline.makespan_s, 1e-30)
    return Example(
        inputs,
        np.arange(inputs.num_ops) * inputs.num_devices + devices,
        start.astype(np.float32),
        labelled.objective_s / inputs.unit_s,
        labelled.gap,
        judge_reward(problem),
    )


def collate_targets(examples: Sequence[Example]) -> Targets:
    """Return the labels of several problems one behind the other, as `placekit.learned.imitation.inputs.collate`."""
    sizes = [len(each.inputs.allowed) for each in examples]
    begins = np.cumsum([0, *sizes[:-1]])
    return Targets(
        torch.from_numpy(np.concatenate([each.state + begin for each, begin in zip(examples, begins, strict=True)])),
        torch.from_numpy(np.concatenate([each.start for each in examples])),
        torch.tensor([each.objective for each in examples], dtype=torch.float32),
        torch.tensor([each.gap for each in examples], dtype=torch.float32),
    )
