"""Method ``placeto``: a placement improved node by node, trained by REINFORCE on the improvement of every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.environment import Environment
from placekit.learned.group_graph import group_graph, wanted_actions
from placekit.learned.method import LearnedMethod
from placekit.learned.placeto.network import PlacetoNetwork
from placekit.learned.placeto.nodes import few_groups, relations_of
from placekit.learned.training import Rollout, TrainingParams
from placekit.model.errors import InvalidProblemError
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_fifo

__all__ = ["Placeto", "PlacetoLearner", "PlacetoParams"]

LEAST_DEVIATION = 1e-3
"""Returns that differ by less than this, in units of the best single device, count as equal."""


@dataclass(frozen=True)
class PlacetoParams(TrainingParams):
    """Parameters of `Placeto`.

    Parameters
    ----------
    episodes
        Episodes per update. Published: 4 to 8.
    width
        Width of the embeddings. Published: about 10.
    rounds
        Rounds of message passing. Published: 8.
    refresh
        Nodes that are decided between two rounds of message passing; published: 1, which costs as many passes over the
        graph as it has nodes.
    trained_blocks
        Blocks of `refresh` nodes per update that are learned from, drawn at random; the gradient of all of them would
        keep every pass in memory.
    discount
        Of rewards per step.
    decay
        Share of the old baseline, a running mean of returns per step, that an update keeps.
    max_nodes
        Larger graphs are contracted to about so many nodes.

    Raises
    ------
    InvalidProblemError
        A value out of its range.
    """

    updates: int = 300
    patience: int = 100
    learning_rate: float = 1e-3
    entropy_start: float = 0.05
    entropy_end: float = 0.005
    entropy_updates: int = 100
    episodes: int = 8
    width: int = 16
    rounds: int = 4
    refresh: int = 8
    trained_blocks: int = 16
    discount: float = 0.95
    decay: float = 0.9
    max_nodes: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("episodes", "width", "rounds", "refresh", "trained_blocks", "max_nodes", least=1)
        for name in ("discount", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidProblemError(f"parameter {name!r} is {getattr(self, name)}; it must be between 0 and 1")


class _Episodes(NamedTuple):
    """What the last rollout did, for `PlacetoLearner.advantages`.

    Parameters
    ----------
    row
        ``[episodes, nodes + 1]`` row of `Rollout.placements` before the first step and after every one.
    step
        ``[decisions]`` step of every decision that is learned from.
    episode
        ``[decisions]`` its episode.
    """

    row: NDArray[np.int64]
    step: Tensor
    episode: Tensor


class PlacetoLearner:
    """Plays episodes: every node once, in topological order; an action is the node's device, which it may keep.

    State: the graph, the present placement, which nodes were decided. Reward of a step: the cost before it minus the
    cost after it. Episodes begin at the best placement so far, which at first is the best single device. The published
    baseline is a running mean of returns per step, and so is this one; advantages are divided by their deviation.
    Start times are those of the simulator of makespans, first come, first served, whatever the objective; they and the
    mark of the node whose turn it is are those of a block where `PlacetoParams.refresh` is more than 1.

    Parameters
    ----------
    environment
        What to place; its groups are the nodes, unless there are more than `PlacetoParams.max_nodes`.
    params
        Parameters.
    """

    def __init__(self, environment: Environment, params: PlacetoParams) -> None:
        self.environment = environment
        self.params = params
        self.nodes = few_groups(environment, params.max_nodes)
        self.graph = group_graph(self.nodes)
        self.relations = relations_of(self.graph)
        self.own = self.graph.group_columns
        self.policy = PlacetoNetwork(self.own.shape[1], self.graph.num_devices, params.width, params.rounds)
        best = int(np.argmin(environment.single_devices))
        self.start = torch.from_numpy(self.nodes.homogeneous[best].copy())
        self.baseline: Tensor | None = None
        self._instance = instance_of(environment.problem)
        self._blocks = torch.split(self.graph.order, params.refresh)
        self._episodes: _Episodes | None = None

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Play `episodes` episodes; placements are the start and one for every step that moved a node.

        Decisions are those of `trained_blocks` random blocks of nodes.
        """
        best = self.environment.best
        start = self.start if best is None else wanted_actions(self.nodes, best)
        chosen = torch.randperm(len(self._blocks), generator=generator)[: self.params.trained_blocks]
        log_probs, entropies, steps = [], [], []
        device, history = start.expand(self.params.episodes, -1), [start.expand(self.params.episodes, -1)]
        for number, nodes in enumerate(self._blocks):
            if number:
                self.environment.check_stop()
            is_trained = bool((chosen == number).any())
            with torch.set_grad_enabled(is_trained and torch.is_grad_enabled()):
                decided = self._decide(device, len(history) - 1, nodes)  # [episodes, nodes, devices]
            action = torch.multinomial(decided.detach().exp().flatten(0, 1), 1, generator=generator).view(
                -1, len(nodes)
            )
            if is_trained:
                log_probs.append(decided.gather(2, action[:, :, None])[:, :, 0])
                finite = decided.masked_fill(decided == -torch.inf, 0.0)
                entropies.append(-(decided.exp() * finite).sum(dim=2))
                steps.append(torch.arange(len(nodes)) + len(history) - 1)
            for i, node in enumerate(nodes.tolist()):
                device = device.clone()
                device[:, node] = action[:, i]
                history.append(device)
        placements, row = _distinct_steps(torch.stack(history, dim=1).numpy())
        step, episodes = torch.cat(steps), self.params.episodes
        self._episodes = _Episodes(row, step.repeat(episodes), torch.arange(episodes).repeat_interleave(len(step)))
        return Rollout(
            self.nodes.expand(placements),
            torch.from_numpy(row[:, 1:])[self._episodes.episode, self._episodes.step],
            torch.cat(log_probs, dim=1).flatten(),
            torch.cat(entropies, dim=1).flatten(),
        )

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` discounted improvement from the decision on, minus its running mean. Updates the mean."""
        if self._episodes is None:
            raise RuntimeError("advantages before a rollout")
        cost = costs[torch.from_numpy(self._episodes.row)]  # [episodes, nodes + 1]
        returns = cost[:, :-1] - cost[:, 1:]
        for step in range(returns.shape[1] - 2, -1, -1):
            returns[:, step] += self.params.discount * returns[:, step + 1]
        mean = returns.mean(dim=0)
        if self.baseline is None:
            self.baseline = mean
        advantages = (returns - self.baseline) / (returns - self.baseline).std().clamp_min(LEAST_DEVIATION)
        self.baseline = self.params.decay * self.baseline + (1 - self.params.decay) * mean
        # the loop divides by the number of placements: make it a mean over decisions
        return advantages[self._episodes.episode, self._episodes.step] * len(costs) / len(rollout.row)

    def decode(self) -> NDArray[np.int64]:
        """Return the end ``[1, num_ops]`` of an episode of most probable actions from the best placement so far."""
        best = self.environment.best
        device = (self.start if best is None else wanted_actions(self.nodes, best))[None].clone()
        step = 0
        for nodes in self._blocks:
            self.environment.check_stop()
            device[0, nodes] = self._decide(device, step, nodes)[0].argmax(dim=1)
            step += len(nodes)
        return self.nodes.expand(device.numpy())

    def _decide(self, device: Tensor, step: int, nodes: Tensor) -> Tensor:
        """Return log-probabilities ``[episodes, nodes, devices]`` in the state before `step`."""
        marks = torch.zeros(self.graph.num_groups, 2, dtype=self.own.dtype)  # it was decided; it is its turn
        marks[self.graph.order[:step], 0] = 1.0
        marks[nodes, 1] = 1.0
        shape = (len(device), -1, -1)
        state = torch.cat(
            [
                self.own.expand(shape),
                torch.nn.functional.one_hot(device, self.graph.num_devices).to(self.own.dtype),
                marks.expand(shape),
                self._starts(device, nodes)[:, :, None].to(self.own.dtype),
            ],
            dim=2,
        )
        graph = self.graph
        logits = self.policy(state, graph.senders, graph.receivers, self.relations[:, nodes], nodes)
        return torch.log_softmax(logits.masked_fill(~graph.mask[nodes], -torch.inf), dim=2)

    def _starts(self, device: Tensor, nodes: Tensor) -> Tensor:
        """``[episodes, nodes]`` when every node starts after the first of `nodes`, as a share of the last start."""
        starts = np.full((self.graph.num_groups, len(device)), np.inf)
        of_op = [simulate_fifo(self._instance, row).start_s for row in self.nodes.expand(device.numpy())]
        np.minimum.at(starts, self.nodes.group_of_op, np.stack(of_op, axis=1))
        last = np.maximum(starts.max(axis=0), np.finfo(np.float64).tiny)
        return torch.from_numpy(((starts - starts[nodes.numpy()].min(axis=0)) / last).T)

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin the first episodes at `placement`."""
        self.environment.evaluate(placement[None])
        self.start = wanted_actions(self.nodes, placement)

    def log_probs_of(self, placements: NDArray[np.int64], generator: torch.Generator) -> Tensor:
        """``[decisions]`` those of `trained_blocks` random blocks, in episodes that put every node where it belongs.

        About half of the nodes begin anywhere, so that the policy learns where nodes belong, not to keep them there.
        """
        wanted = torch.stack([wanted_actions(self.nodes, placement) for placement in placements])
        anywhere = torch.multinomial(self.graph.mask.double(), len(wanted), replacement=True, generator=generator).T
        device = torch.where(torch.rand(wanted.shape, generator=generator) < 0.5, wanted, anywhere)
        chosen = torch.randperm(len(self._blocks), generator=generator)[: self.params.trained_blocks]
        found, step = [], 0
        for number, nodes in enumerate(self._blocks):
            if bool((chosen == number).any()):
                self.environment.check_stop()
                found.append(self._decide(device, step, nodes).gather(2, wanted[:, nodes, None]).flatten())
            device = device.clone()
            device[:, nodes] = wanted[:, nodes]
            step += len(nodes)
        return torch.cat(found)

    def transferable(self) -> dict[str, Tensor]:
        """Return every weight: none belongs to one graph."""
        return dict(self.policy.state_dict())

    def memory(self) -> dict[str, Tensor]:
        """Return the start and the baseline."""
        return {"start": self.start} | ({} if self.baseline is None else {"baseline": self.baseline})

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.start, self.baseline = memory["start"], memory.get("baseline")


def _distinct_steps(history: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Leave out placements ``[episodes, steps, nodes]`` that equal the one a step before; the first is common to all.

    Returns
    -------
    tuple[NDArray[np.int64], NDArray[np.int64]]
        ``[rows, nodes]`` the others, and ``[episodes, steps]`` the row of each.
    """
    is_new = np.zeros(history.shape[:2], dtype=bool)
    is_new[:, 1:] = (history[:, 1:] != history[:, :-1]).any(axis=2)
    is_new[0, 0] = True
    number = np.cumsum(is_new.ravel()).reshape(is_new.shape) - 1
    row = np.where(is_new, number, 0)
    return history[is_new], np.maximum.accumulate(row, axis=1)


class Placeto(LearnedMethod):
    """Placeto (Addanki et al., NeurIPS 2019): one node at a time, rewarded by what each step improves."""

    name = "placeto"
    params_type = PlacetoParams

    def make_learner(self, environment: Environment) -> PlacetoLearner:
        """Return a fresh learner."""
        return PlacetoLearner(environment, cast("PlacetoParams", self.params))
