"""The learner of HSDAG: parse, place the groups, renew the state, learn from the buffer.

One episode is `HsdagParams.steps` steps. A step encodes the nodes, parses them into groups, level by level, samples
devices for groups, and renews the state with the embedding of every node's group. All its placements make one update.

Shapes
------
``N`` nodes, ``G`` groups of a level, ``S`` samples of a step and level, ``D`` devices, ``F`` feature width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placekit.learned.advantages import batch_advantages
from placekit.learned.environment import Environment
from placekit.learned.features import group_means, op_features
from placekit.learned.hsdag.coarsen import coarse_nodes, edge_weights, node_edges
from placekit.learned.hsdag.network import Dropout, EdgeScorer, Encoder, Pooling, mlp
from placekit.learned.hsdag.params import HsdagParams
from placekit.learned.hsdag.parsing import parse
from placekit.learned.training import Rollout, permitted

__all__ = ["HsdagLearner", "HsdagPolicy"]

_RESIDUAL_SCALE = 50.0  # the residual logits of few decisions learn faster than weights shared by all
_START = 0.55  # tanh of it is half: the preferred device begins half way to the bound


class HsdagPolicy(nn.Module):
    """The weights of HSDAG.

    Parameters
    ----------
    num_features, num_devices, num_nodes
        Sizes of the problem; the last one concerns the residual logits only.
    params
        Parameters.
    """

    def __init__(self, num_features: int, num_devices: int, num_nodes: int, params: HsdagParams) -> None:
        super().__init__()
        hidden, dropout = params.hidden, params.dropout
        self.input = mlp(num_features, hidden, hidden, dropout, is_last_active=True)
        self.encoder = Encoder(hidden, 2, dropout)
        self.scorer = EdgeScorer(hidden, weighs_costs=params.weighs_transfers)
        self.encoder_of_groups = Encoder(hidden, 1, dropout)
        self.pooling = Pooling(hidden, scales_by_count=params.scales_by_count)
        self.output = mlp(hidden, hidden, num_features, dropout, is_last_active=not params.is_multilevel)
        last = nn.Linear(hidden, num_devices)
        self.head = nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), last)
        self.residual = nn.Parameter(torch.zeros(num_nodes, num_devices), requires_grad=params.has_residual)
        if params.deviations:  # begin at the preferred device exactly
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def dropouts_draw_from(self, generator: torch.Generator | None) -> None:
        """Switch dropout on, with randomness from `generator`, or off with None."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.generator = generator


class Decisions(NamedTuple):
    """The groups of one level and the distribution of their devices.

    Parameters
    ----------
    group_of_node
        ``[N]`` group of every node.
    log_probs
        ``[G, D]`` log-probability of every device, minus infinity where the mask forbids it.
    """

    group_of_node: NDArray[np.int64]
    log_probs: Tensor


class HsdagLearner:
    """One problem, one policy; see the module docstring. Implements `placekit.learned.training.Learner`.

    Parameters
    ----------
    environment
        Where placements are scored; its groups are ignored, nodes are made by `HsdagParams.coarsening`.
    params
        Parameters.
    """

    def __init__(self, environment: Environment, params: HsdagParams) -> None:
        problem = environment.problem
        self.params, self.environment = params, environment
        self.nodes = coarse_nodes(problem, environment.mask, params.coarsening)
        self.leader = np.unique(self.nodes, return_index=True)[1]
        coarse = environment.coarsened(self.nodes)
        self.mask = coarse.mask
        self.edges = np.unique(np.sort(np.stack(node_edges(problem, self.nodes)), axis=0), axis=1)
        self.edge_costs = torch.from_numpy(edge_weights(problem, self.nodes, self.edges))
        features = group_means(op_features(problem, params.without_groups), self.nodes)
        self.features = torch.from_numpy(features)
        self.policy = HsdagPolicy(features.shape[1], environment.num_devices, len(features), params)
        best = int(np.argmin(environment.single_devices))
        self.preferred = torch.from_numpy(coarse.homogeneous[best].copy())
        self.annealed_over = min(params.anneal_updates, len(features))
        self.episode = 0
        self._blocks: list[slice] = []

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Play one episode: ``steps * levels * samples`` placements, and the best so far once more."""
        self.policy.dropouts_draw_from(generator)
        state = self.features
        actions: list[Tensor] = []
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._blocks = []
        num_rows = 0
        for step in range(self.params.steps):
            levels, renewal = self.parse_and_decide(state, generator)
            for level in levels:
                probs = level.log_probs.detach().exp()
                chosen = torch.multinomial(probs, self.params.samples, replacement=True, generator=generator).T
                actions.append(chosen[:, torch.from_numpy(level.group_of_node)])
                parts.append(_decisions(level, chosen, num_rows))
                self._blocks.append(slice(num_rows, num_rows + len(chosen)))
                num_rows += len(chosen)
            if step == 0 and self.params.imitation and self.environment.best is not None:
                best = torch.from_numpy(self.environment.best[self.leader])[None]
                imitated = levels[0], best
            state = self.renewed(state, renewal)
        if self.params.imitation and self.environment.best is not None:
            actions.append(best)
            parts.append(_decisions(*imitated, num_rows))
        self.episode += 1
        row, log_probs, entropies = (torch.cat(part) for part in zip(*parts, strict=True))
        placements = torch.cat(actions).numpy()[:, self.nodes]
        return Rollout(placements, row, log_probs, entropies)

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` as `HsdagParams.returns` says; the best placement has `HsdagParams.imitation`."""
        params = self.params
        weight = torch.empty_like(costs)
        if params.returns == "advantage":
            for block in self._blocks:
                weight[block] = batch_advantages(costs[block])
            weight[self._blocks[-1].stop :] = params.imitation * len(costs) / len(self.nodes)
            return weight[rollout.row]
        reward = 1 / costs.clamp_min(1e-9)
        if params.excludes_single:
            placements = torch.from_numpy(rollout.placements)
            is_single = (placements == placements[:, :1]).all(dim=1)
            reward = torch.where(is_single, torch.full_like(reward, 1e-10), reward)
        discounts = params.discount ** torch.arange(len(costs))
        weight = (
            discounts * reward if params.returns == "step" else (discounts * reward.flip(0)).sum().expand(len(costs))
        )
        return weight[rollout.row]

    def decode(self) -> NDArray[np.int64]:
        """``[levels, num_ops]`` the likeliest devices of the groups in the first state, without randomness."""
        self.policy.dropouts_draw_from(None)
        levels, _ = self.parse_and_decide(self.features, None)
        return np.stack([level.log_probs.argmax(dim=1).numpy()[level.group_of_node][self.nodes] for level in levels])

    def parse_and_decide(self, state: Tensor, generator: torch.Generator | None) -> tuple[list[Decisions], Tensor]:
        """Parse the nodes and decide on every level that is drawn from.

        Parameters
        ----------
        state
            ``[N, F]`` features, renewed or not.
        generator
            Source of the noise on edge scores; None for no noise.

        Returns
        -------
        tuple[list[Decisions], Tensor]
            Levels, finest first; and ``[N, F]`` the embedding of every node's last group, which renews the state.
        """
        policy, params = self.policy, self.params
        hidden = policy.input(state)
        group, mask, edges, edge_costs = np.arange(len(self.mask)), self.mask, self.edges, self.edge_costs
        levels = [self._decide(group, hidden, mask)] if params.is_multilevel else []
        count = 0
        while edges.size and len(mask) > params.min_groups and count != (params.levels or -1):
            ends = torch.from_numpy(edges)
            both_ways = torch.cat([ends, ends.flip(0)], dim=1)
            scores = policy.scorer(policy.encoder(hidden, both_ways), ends, edge_costs)
            level = parse(edges, self._noisy(scores, generator), mask)
            if level.num_groups == len(mask):
                break
            inside = torch.from_numpy(level.is_inside)
            members = torch.from_numpy(level.group_of_node)
            hidden = policy.pooling(
                policy.encoder_of_groups(hidden, both_ways),
                members,
                level.num_groups,
                members[ends[0][inside]],
                scores[inside],
            )
            # a bundle of edges between two groups costs what its most expensive edge does
            between = ~inside
            bundle = torch.from_numpy(level.edge_of_edge)[between]
            costs = edge_costs.new_full((level.edges.shape[1],), -torch.inf)
            edge_costs = costs.scatter_reduce(0, bundle, edge_costs[between], "amax")
            group, mask, edges = level.group_of_node[group], level.mask, level.edges
            count += 1
            if params.is_multilevel:
                levels.append(self._decide(group, hidden, mask))
        if not params.is_multilevel:
            levels = [self._decide(group, hidden, mask)]
        return levels, policy.output(hidden)[torch.from_numpy(group)]

    def _noisy(self, scores: Tensor, generator: torch.Generator | None) -> NDArray[np.float32]:
        ranked = scores.detach()
        if generator is not None and self.params.noise:
            ranked = ranked.log() + self.params.noise * torch.randn(ranked.shape, generator=generator)
        array: NDArray[np.float32] = ranked.numpy()
        return array

    def _decide(self, group: NDArray[np.int64], hidden: Tensor, mask: NDArray[np.bool_]) -> Decisions:
        """Return the distribution over devices of every group, from embeddings ``[G, H]``."""
        params, num_groups, num_devices = self.params, len(mask), mask.shape[1]
        logits = self.policy.head(self.policy.output(hidden))
        own = self.policy.residual * _RESIDUAL_SCALE
        if params.deviations and not self.annealed_over:
            own = own + _START * (2 * nn.functional.one_hot(self.preferred, num_devices) - 1)
        members = torch.from_numpy(group)
        size = torch.bincount(members, minlength=num_groups)
        logits = logits + torch.zeros_like(logits).index_add(0, members, own) / size[:, None]
        if params.deviations:
            # so that about `deviations` groups leave a device that every group prefers, however many there are
            scale = max(math.log(num_groups * (num_devices - 1) / params.deviations), 1.0) if num_devices > 1 else 1.0
            if self.annealed_over:
                scale *= min(1.0, (self.episode + 1) / self.annealed_over)
            logits = scale * torch.tanh(logits)
        logits = logits.masked_fill(~torch.from_numpy(mask), -torch.inf)
        return Decisions(group, torch.log_softmax(logits, dim=1))

    def renewed(self, state: Tensor, renewal: Tensor) -> Tensor:
        """Return the next state ``[N, F]``: the embedding of each node's group added to its features."""
        if self.params.is_multilevel:  # from the first features, and bounded: sums over an episode would drift
            return self.features + torch.tanh(renewal.detach())
        return state + renewal.detach()

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement`, unless it is cloned, and without annealing."""
        self.annealed_over = 0
        if self.params.clone:
            return
        chosen = placement[self.leader]
        can = self.mask[np.arange(len(chosen)), chosen]
        self.preferred = torch.where(torch.from_numpy(can), torch.from_numpy(chosen), self.preferred)

    def log_probs_of(self, placements: NDArray[np.int64], generator: torch.Generator) -> Tensor:
        """``[decisions]`` of the groups whose nodes agree on a device, on every level of an episode."""
        self.policy.dropouts_draw_from(generator)
        devices = torch.from_numpy(placements[:, self.leader])  # [count, N]
        state = self.features
        found: list[Tensor] = []
        for _ in range(self.params.steps):
            levels, renewal = self.parse_and_decide(state, generator)
            found += [_agreed(level, devices) for level in levels]
            state = self.renewed(state, renewal)
        return permitted(torch.cat(found))

    def transferable(self) -> dict[str, Tensor]:
        """Return all weights but the residual logits, which belong to the nodes of one graph."""
        return {name: value for name, value in self.policy.state_dict().items() if name != "residual"}

    def memory(self) -> dict[str, Tensor]:
        """Return the preferred devices, and how far the annealing is."""
        return {"preferred": self.preferred, "annealing": torch.tensor([self.episode, self.annealed_over])}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.preferred = memory["preferred"]
        self.episode, self.annealed_over = memory["annealing"].tolist()


def _agreed(level: Decisions, devices: Tensor) -> Tensor:
    """``[count * G]`` log-probability of the device of all nodes of a group, minus infinity where they differ.

    `devices` are those of the nodes, ``[count, N]``. (A group whose nodes differ would teach the head, which all levels
    share, to be undecided.)
    """
    groups = torch.arange(len(level.log_probs))
    members = torch.from_numpy(level.group_of_node).expand(len(devices), -1)
    empty = devices.new_empty(len(devices), len(groups))
    least, most = (empty.scatter_reduce(1, members, devices, how, include_self=False) for how in ("amin", "amax"))
    return level.log_probs[groups, least].masked_fill(least != most, -torch.inf).flatten()


def _decisions(level: Decisions, chosen: Tensor, first_row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, log-probability and entropy of every decision of devices ``[S, G]`` chosen."""
    num_samples, num_groups = chosen.shape
    row = torch.arange(first_row, first_row + num_samples).repeat_interleave(num_groups)
    groups = torch.arange(num_groups)
    log_probs = level.log_probs[groups, chosen].flatten()
    finite = level.log_probs.masked_fill(level.log_probs == -torch.inf, 0.0)
    entropy = -(finite.exp() * finite * (level.log_probs != -torch.inf)).sum(dim=1)
    return row, log_probs, entropy.repeat(num_samples)
