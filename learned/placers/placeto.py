r"""Placeto, method ``placeto``: a placement improved node by node, rewarded by what each step improves; REINFORCE.

1. Every node starts from its own features, its present device, whether it was decided, whether it is its turn, and when
   it starts in the simulator relative to the node whose turn it is, :math:`y_v = FNN(x_v)`.
2. Two passes of a few rounds: :math:`x_v \leftarrow y_v + \mathrm{ReLU}(g(\sum_{u \in pred(v)} \mathrm{ReLU}(f(x_u))))`
   over predecessors, and the same with weights of its own over successors; concatenated.
3. For the node to place: the means over its ancestors, its descendants, and the nodes parallel to it, each through a
   network of its own, beside its own embedding; two layers; a logit per device. (Published: sums.)

Shapes: ``B`` episodes, ``N`` nodes, ``R`` nodes decided at once, ``W`` width, ``D`` devices.

References
----------
Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed machine learning", NeurIPS
2019, arXiv 1906.08879, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric import EdgeIndex

from placekit.arrays import csr_lists
from placekit.learned.environment import Environment
from placekit.learned.group_graph import best_single, few_groups, group_graph, relations_of, wanted_actions
from placekit.learned.learner import Learner, MovingBaseline, Rollout, TrainingParams, entropy
from placekit.learned.method import LearnedMethod
from placekit.learned.sorted_edges import sorted_edges
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.simulate import simulate_fifo

LEAST_DEVIATION = 1e-3
"""Returns that differ by less than this, in units of the best single device, count as equal."""


@dataclass(frozen=True)
class PlacetoParams(TrainingParams):
    """Parameters of `Placeto`.

    Parameters
    ----------
    episodes, width, rounds
        Episodes per update, width of the embeddings, rounds of messages. Published: 4 to 8, about 10, 8.
    refresh
        Nodes that are decided at once; published: 1, which costs as many passes over the graph as it has nodes.
    trained_blocks
        Random blocks of `refresh` nodes per update that are learned from: gradients of all would not fit in memory.
    discount, decay
        Discount of rewards per step; share of the old baseline (a mean of returns per step) that an update keeps.
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
            self.require_that(0 <= getattr(self, name) <= 1, name, "between 0 and 1")


def _two_layers(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width_in, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, width_out))


class MessagePassing(nn.Module):
    """Rounds of messages along edges in one direction; step 2 of the module docstring."""

    def __init__(self, width: int, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.say, self.hear = _two_layers(width, width, width), _two_layers(width, width, width)

    def forward(self, y: Tensor, neighbours: EdgeIndex) -> Tensor:
        """Return ``[N, B, W]`` embeddings from `y` ``[N, B, W]``."""
        hears = torch.bincount(neighbours.as_tensor()[0], minlength=len(y)) > 0  # who hears of nobody keeps its own
        heard_of = hears.to(y.dtype)[:, None, None]
        x = y
        for _ in range(self.rounds):
            heard = neighbours.matmul(torch.relu_(self.say(x)).flatten(1)).view(y.shape)
            x = torch.addcmul(y, heard_of, torch.relu_(self.hear(heard)))
        return x


class PlacetoNetwork(nn.Module):
    """Logits of some nodes and all devices; O(B (rounds (N W + E) W + R N W)) per call."""

    def __init__(self, num_features: int, num_devices: int, width: int, rounds: int) -> None:
        super().__init__()
        self.enter = _two_layers(num_features + num_devices + 3, width, width)
        self.forwards, self.backwards = MessagePassing(width, rounds), MessagePassing(width, rounds)
        self.pools = nn.ModuleList(_two_layers(2 * width, 2 * width, 2 * width) for _ in range(3))
        self.head = nn.Sequential(
            nn.Linear(8 * width, 16 * width), nn.ReLU(), *_two_layers(16 * width, 8 * width, num_devices)
        )

    def forward(self, state: Tensor, edges: tuple[EdgeIndex, EdgeIndex], relations: Tensor, nodes: Tensor) -> Tensor:
        """Return logits ``[B, R, D]`` of `nodes` ``[R]``.

        The state ``[N, B, features + D + 3]`` is that of step 1; `edges` sum over predecessors and successors,
        `relations` ``[3, R, N]`` weigh the means. Nodes come before episodes, so that a sum over nodes is one of whole
        rows.
        """
        y = self.enter(state)
        embedded = torch.cat([self.forwards(y, edges[0]), self.backwards(y, edges[1])], dim=2)
        shape = (len(nodes), *embedded.shape[1:])
        around = [
            (relations[i] @ torch.relu_(pool(embedded)).flatten(1)).view(shape) for i, pool in enumerate(self.pools)
        ]
        logits: Tensor = self.head(torch.cat([embedded[nodes], *around], dim=2))
        return logits.transpose(0, 1)


class PlacetoLearner(Learner):
    """Plays episodes: every node once, in topological order; an action is the node's device, which it may keep.

    Reward of a step: the cost before it minus the cost after it. Episodes begin at the best placement so far, which at
    first is the best single device. Advantages are divided by their deviation. Start times are those of the simulator
    of makespans, whatever the objective; they and the mark of the turn are those of a block of nodes.
    """

    params: PlacetoParams
    baseline: MovingBaseline

    def __init__(self, environment: Environment, params: PlacetoParams) -> None:
        super().__init__(environment, params)
        self.nodes = few_groups(environment, params.max_nodes)
        self.graph = group_graph(self.nodes)
        self.relations, self.own = relations_of(self.graph), self.graph.group_columns
        self.policy = PlacetoNetwork(self.own.shape[1], self.graph.num_devices, params.width, params.rounds)
        senders, receivers, num_groups = self.graph.senders, self.graph.receivers, self.graph.num_groups
        self.edges = sorted_edges(receivers, senders, num_groups), sorted_edges(senders, receivers, num_groups)
        self.preferred = best_single(environment, self.nodes)
        self.baseline = MovingBaseline(params.decay)
        self._instance = instance_of(environment.problem)
        groups = self.nodes.group_of_op
        offsets, self._ops_by_group = csr_lists(groups, np.arange(len(groups)), num_groups)
        self._first_by_group = offsets[:-1]
        self._row_of_step = self._step = torch.empty(0, dtype=torch.int64)  # of the last rollout, for its advantages

    def _played(
        self, device: Tensor, choose: Callable[[Tensor, Tensor], Tensor], trained: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield nodes ``[R]``, log-probabilities ``[B, R, D]`` and the chosen devices ``[B, R]`` of every block."""
        step, device = 0, device.clone()
        for number, nodes in enumerate(torch.split(self.graph.order, self.params.refresh)):
            if number:
                self.environment.check_stop()
            with torch.set_grad_enabled(bool((trained == number).any()) and torch.is_grad_enabled()):
                log_probs = self._decide(device, step, nodes)
            device[:, nodes] = chosen = choose(log_probs, nodes)
            yield nodes, log_probs, chosen
            step += len(nodes)

    @property
    def _start(self) -> Tensor:
        best = self.environment.best
        return self.preferred if best is None else wanted_actions(self.nodes, best)

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Play episodes; placements are those before and after every step, decisions those of some random blocks."""
        count, num_blocks = self.params.episodes, -(-self.graph.num_groups // self.params.refresh)
        trained = torch.randperm(num_blocks, generator=generator)[: self.params.trained_blocks]
        start, decided, entropies, steps = self._start.expand(count, -1), [], [], []
        end = start.clone()

        def draw(log_probs: Tensor, nodes: Tensor) -> Tensor:
            flat = log_probs.detach().exp().flatten(0, 1)
            return torch.multinomial(flat, 1, generator=generator).view(-1, len(nodes))

        for number, (nodes, log_probs, chosen) in enumerate(self._played(start, draw, trained)):
            if bool((trained == number).any()):
                decided.append(log_probs.gather(2, chosen[:, :, None])[:, :, 0])
                entropies.append(entropy(log_probs))
                steps.append(torch.arange(len(nodes)) + number * self.params.refresh)
            end[:, nodes] = chosen
        is_decided = self.graph.order.argsort() < torch.arange(self.graph.num_groups + 1)[:, None, None]
        placements, rows = _distinct_rows(torch.where(is_decided, end, start).flatten(0, 1).numpy())
        self._row_of_step, self._step = torch.from_numpy(rows).view(-1, count).T, torch.cat(steps)
        row = self._row_of_step[:, 1 + self._step].flatten()
        return Rollout(
            self.nodes.expand(placements),
            row,
            torch.cat(decided, dim=1).flatten(),
            torch.cat(entropies, dim=1).flatten(),
        )

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` discounted improvement from the decision on, minus its running mean. Updates the mean."""
        returns = -costs[self._row_of_step].diff(dim=1)  # [episodes, nodes]
        for step in range(returns.shape[1] - 2, -1, -1):
            returns[:, step] += self.params.discount * returns[:, step + 1]
        above = self.baseline.advantages(-returns)
        # the loop divides by the number of placements: make it a mean over decisions
        scale = len(costs) / len(rollout.row) / above.std().clamp_min(LEAST_DEVIATION)
        return above[:, self._step].flatten() * scale

    def decode(self) -> NDArray[np.int64]:
        """Return the end ``[1, num_ops]`` of an episode of most probable actions from the best placement so far."""
        device = self._start[None].clone()
        for nodes, _, chosen in self._played(device, lambda log_probs, _: log_probs.argmax(dim=2), self._step[:0]):
            device[:, nodes] = chosen
        return self.nodes.expand(device.numpy())

    def _decide(self, device: Tensor, step: int, nodes: Tensor) -> Tensor:
        """Return log-probabilities ``[episodes, nodes, devices]`` in the state before `step`."""
        marks = torch.zeros(self.graph.num_groups, 2, dtype=self.own.dtype)  # it was decided; it is its turn
        marks[self.graph.order[:step], 0] = 1.0
        marks[nodes, 1] = 1.0
        present = nn.functional.one_hot(device, self.graph.num_devices)
        columns = [
            self.own[:, None],
            present.transpose(0, 1),
            marks[:, None],
            self._starts(device, nodes).T[:, :, None],
        ]
        state = torch.cat([each.to(self.own.dtype).expand(-1, len(device), -1) for each in columns], dim=2)
        logits = self.policy(state, self.edges, self.relations[:, nodes], nodes)
        return torch.log_softmax(logits.masked_fill(~self.graph.mask[nodes], -torch.inf), dim=2)

    def _starts(self, device: Tensor, nodes: Tensor) -> Tensor:
        """``[episodes, nodes]`` when every node starts after the first of `nodes`, as a share of the last start."""
        of_op = [simulate_fifo(self._instance, row).start_s for row in self.nodes.expand(device.numpy())]
        starts = np.minimum.reduceat(np.stack(of_op, axis=1)[self._ops_by_group], self._first_by_group, axis=0)
        last = np.maximum(starts.max(axis=0), np.finfo(np.float64).tiny)
        return torch.from_numpy(((starts - starts[nodes.numpy()].min(axis=0)) / last).T)

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin the first episodes at `placement`."""
        self.environment.evaluate(placement[None])
        self.preferred = wanted_actions(self.nodes, placement)


def _distinct_rows(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what ``numpy.unique`` does along axis 0, with the inverse; here it compares rows as strings of bytes."""
    keys = np.ascontiguousarray(rows, dtype=">u2")  # bytes of big-endian numbers have the order of the numbers
    _, first, inverse = np.unique(keys.view(f"V{keys[0].nbytes}")[:, 0], return_index=True, return_inverse=True)
    return rows[first], inverse


class Placeto(LearnedMethod):
    """Placeto (Addanki et al., NeurIPS 2019): one node at a time, rewarded by what each step improves."""

    name = "placeto"
    params_type = PlacetoParams
    learner_type = PlacetoLearner
