r"""Placeto, method ``placeto``: a placement improved node by node, rewarded by what each step improves; REINFORCE.

1. Every node starts from its own features, its present device, whether it was decided, whether it is its turn, and when
   it starts in the simulator relative to the node whose turn it is, :math:`y_v = FNN(x_v)`.
2. Two passes of a few rounds: :math:`x_v \leftarrow y_v + \mathrm{ReLU}(g(\sum_{u \in pred(v)} \mathrm{ReLU}(f(x_u))))`
   over predecessors, and the same with weights of its own over successors; concatenated.
3. For the node to place: the means over its ancestors, its descendants, and the nodes parallel to it, each through a
   network of its own, beside its own embedding; two layers; a logit per device. (Published: sums, which grow with the
   graph.)

Nothing depends on labels or on the size of the graph, so the policy carries over to other graphs.

Shapes
------
``B`` episodes, ``N`` nodes, ``R`` nodes decided at once, ``W`` width, ``D`` devices.

References
----------
Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed machine learning", NeurIPS
2019, arXiv 1906.08879, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import SimpleConv

from placekit.learned.environment import Environment
from placekit.learned.group_graph import GroupGraph, best_single, group_graph, wanted_actions
from placekit.learned.learner import Learner, Rollout, TrainingParams, entropy
from placekit.learned.method import LearnedMethod
from placekit.model.errors import InvalidProblemError
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_fifo

__all__ = ["Placeto", "PlacetoLearner", "PlacetoNetwork", "PlacetoParams", "few_groups", "relations_of"]

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


def _two_layers(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width_in, hidden), nn.ReLU(), nn.Linear(hidden, width_out))


class MessagePassing(nn.Module):
    """Rounds of messages along edges in one direction; step 2 of the module docstring."""

    def __init__(self, width: int, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.say = _two_layers(width, width, width)
        self.sum = SimpleConv(aggr="sum")
        self.hear = _two_layers(width, width, width)

    def forward(self, y: Tensor, edges: Tensor) -> Tensor:
        """Return ``[B, N, W]`` embeddings from `y` ``[B, N, W]`` and `edges` ``[2, E]``."""
        heard_of = y.new_zeros(y.shape[1], 1).index_fill(0, edges[1], 1.0)  # nodes that hear of nobody keep their own
        x = y
        for _ in range(self.rounds):
            x = y + heard_of * torch.relu(self.hear(self.sum(torch.relu(self.say(x)), edges)))
        return x


class PlacetoNetwork(nn.Module):
    """Logits of some nodes and all devices; see the module docstring.

    Notes
    -----
    O(B (rounds (N W + E) W + R N W)) per call.
    """

    def __init__(self, num_features: int, num_devices: int, width: int, rounds: int) -> None:
        super().__init__()
        self.enter = _two_layers(num_features + num_devices + 3, width, width)
        self.forwards, self.backwards = MessagePassing(width, rounds), MessagePassing(width, rounds)
        self.pools = nn.ModuleList(_two_layers(2 * width, 2 * width, 2 * width) for _ in range(3))
        self.head = nn.Sequential(
            nn.Linear(8 * width, 16 * width),
            nn.ReLU(),
            nn.Linear(16 * width, 8 * width),
            nn.ReLU(),
            nn.Linear(8 * width, num_devices),
        )

    def forward(self, state: Tensor, edges: Tensor, relations: Tensor, nodes: Tensor) -> Tensor:
        """Return logits ``[B, R, D]``.

        Parameters
        ----------
        state
            ``[B, N, features + D + 3]``: own features, one-hot of the present device, whether it was decided, whether
            it is its turn, and when it starts.
        edges
            ``[2, E]`` senders and receivers.
        relations
            ``[3, R, N]`` weights of the means over ancestors, descendants and parallel nodes.
        nodes
            ``[R]`` the nodes to decide.
        """
        y = self.enter(state)
        embedded = torch.cat([self.forwards(y, edges), self.backwards(y, edges.flip(0))], dim=2)
        around = [relations[i] @ torch.relu(pool(embedded)) for i, pool in enumerate(self.pools)]
        logits: Tensor = self.head(torch.cat([embedded[:, nodes], *around], dim=2))
        return logits


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
    """``[3, N, N]`` row-normalised: which nodes are ancestors, descendants of a node, or neither of both.

    Merged nodes may form cycles; then "ancestor" means a sender that comes before in `GroupGraph.order`, or one of its
    ancestors.

    Notes
    -----
    O(edges * N) time, O(N^2) memory.
    """
    num_nodes = graph.num_groups
    place = np.empty(num_nodes, dtype=np.int64)
    place[graph.order.numpy()] = np.arange(num_nodes)
    senders, receivers = graph.senders.numpy(), graph.receivers.numpy()
    is_forward = place[senders] < place[receivers]
    senders, receivers = senders[is_forward], receivers[is_forward]
    is_ancestor: NDArray[np.bool_] = np.zeros((num_nodes, num_nodes), dtype=bool)
    for edge in np.argsort(place[senders], kind="stable").tolist():
        u, v = senders[edge], receivers[edge]
        is_ancestor[v] |= is_ancestor[u]
        is_ancestor[v, u] = True
    neither = ~(is_ancestor | is_ancestor.T | np.eye(num_nodes, dtype=bool))
    weights = np.stack([is_ancestor, is_ancestor.T, neither]).astype(np.float32)
    return torch.from_numpy(weights / np.maximum(weights.sum(axis=2, keepdims=True), 1))


class _Episodes(NamedTuple):
    """Record of the last rollout, for `PlacetoLearner.advantages`.

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


class PlacetoLearner(Learner):
    """Plays episodes: every node once, in topological order; an action is the node's device, which it may keep.

    State: the graph, the present placement, which nodes were decided. Reward of a step: the cost before it minus the
    cost after it. Episodes begin at the best placement so far, which at first is the best single device. The published
    baseline is a running mean of returns per step, and so is this one; advantages are divided by their deviation.
    Start times are those of the simulator of makespans, first come, first served, whatever the objective; they and the
    mark of the node whose turn it is are those of a block where `PlacetoParams.refresh` is more than 1.

    The groups of the environment are the nodes, unless there are more than `PlacetoParams.max_nodes`.
    """

    params: PlacetoParams

    def __init__(self, environment: Environment, params: PlacetoParams) -> None:
        super().__init__(environment, params)
        self.nodes = few_groups(environment, params.max_nodes)
        self.graph = group_graph(self.nodes)
        self.relations = relations_of(self.graph)
        self.own = self.graph.group_columns
        self.policy = PlacetoNetwork(self.own.shape[1], self.graph.num_devices, params.width, params.rounds)
        self.edges = torch.stack([self.graph.senders, self.graph.receivers])
        self.preferred = best_single(environment, self.nodes)
        self.baseline: Tensor | None = None
        self._instance = instance_of(environment.problem)
        self._blocks = torch.split(self.graph.order, params.refresh)
        self._episodes: _Episodes | None = None

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Play `episodes` episodes; placements are the start and one for every step that moved a node.

        Decisions are those of `trained_blocks` random blocks of nodes.
        """
        best = self.environment.best
        start = self.preferred if best is None else wanted_actions(self.nodes, best)
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
                entropies.append(entropy(decided))
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
        device = (self.preferred if best is None else wanted_actions(self.nodes, best))[None].clone()
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
        logits = self.policy(state, self.edges, self.relations[:, nodes], nodes)
        return torch.log_softmax(logits.masked_fill(~self.graph.mask[nodes], -torch.inf), dim=2)

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
        self.preferred = wanted_actions(self.nodes, placement)

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

    def memory(self) -> dict[str, Tensor]:
        """Return the start and the baseline."""
        return super().memory() | ({} if self.baseline is None else {"baseline": self.baseline})

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        super().remember(memory)
        self.baseline = memory.get("baseline")


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
    learner_type = PlacetoLearner
