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

from placekit.learned.environment import Environment
from placekit.learned.features import group_means, op_features
from placekit.learned.group_graph import best_single
from placekit.learned.hsdag.network import Dropout, EdgeScorer, Encoder, Pooling, mlp, normed_neighbours
from placekit.learned.hsdag.params import HsdagParams
from placekit.learned.hsdag.parsing import coarse_nodes, largest, node_graph, parse
from placekit.learned.hsdag.starts import Starts
from placekit.learned.learner import Learner, Rollout, batch_advantages, entropy

_RESIDUAL_SCALE = 50.0  # the residual logits of few decisions learn faster than weights shared by all
_SWAP_WEIGHT = 4.0  # of swaps beside samples
_DISCOUNT = 0.95  # of returns in the paper's form, which names none; this is that of the released code
_START = 0.55  # tanh of it is half: the preferred device begins half way to the bound
_LATER_START = 0.8  # on later starts two thirds, or half of what they begin with would be lost before it is tried


class HsdagPolicy(nn.Module):
    """The weights of HSDAG; `num_nodes` concerns the residual logits only."""

    def __init__(self, num_features: int, num_devices: int, num_nodes: int, params: HsdagParams) -> None:
        super().__init__()
        hidden, dropout = params.hidden, params.dropout
        self.input = mlp(num_features, hidden, hidden, dropout, is_last_active=True)
        self.encoder = Encoder(hidden, 2, dropout)
        self.scorer = EdgeScorer(hidden, weighs_costs=not params.is_paper)
        self.encoder_of_groups = Encoder(hidden, 1, dropout)
        self.pooling = Pooling(hidden, scales_by_count=params.is_paper)
        self.output = mlp(hidden, hidden, num_features, dropout, is_last_active=params.is_paper)
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
    """Groups of one level and the distribution of their devices."""

    group_of_node: NDArray[np.int64]  # ``[N]`` group of every node
    log_probs: Tensor  # ``[G, D]`` log-probability of every device, minus infinity where the mask forbids it

    def swaps(self, base: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return at most `count` groups ``[W]``, and for each a device it may go to but not that of `base` ``[G]``."""
        can = self.log_probs.detach() > -torch.inf
        can[torch.arange(len(base)), base] = False
        group, device = can.nonzero(as_tuple=True)
        drawn = torch.randperm(len(group), generator=generator)[:count] if count else group[:0]
        return group[drawn], device[drawn]


class RolloutRows(NamedTuple):
    """Rows of a rollout that are compared with each other."""

    rows: slice  # which ones
    base: int | None  # the row that each of them differs from in the device of one group; None for independent samples


class HsdagLearner(Learner):
    """One problem, one policy; nodes are classes or chains of ops, not the groups of the environment."""

    params: HsdagParams
    policy: HsdagPolicy

    def __init__(self, environment: Environment, params: HsdagParams) -> None:
        problem = environment.problem
        super().__init__(environment, params)
        self.nodes = coarse_nodes(problem, environment.mask, has_chains=params.is_paper)
        self.leader = np.unique(self.nodes, return_index=True)[1]
        coarse = environment.coarsened(self.nodes)
        self.graph = node_graph(problem, self.nodes, coarse.mask)
        self._neighbours = normed_neighbours(torch.from_numpy(self.graph.edges), len(coarse.mask))
        features = group_means(op_features(problem, has_costs=not params.is_paper), self.nodes)
        self.features = torch.from_numpy(features)
        self.policy = self._new_policy()
        self.preferred = best_single(environment, coarse)
        self.annealed_over = min(params.anneal_updates, len(features))
        self._annealed_starts_over = self.annealed_over
        self.episode = 0
        self.starts = Starts(params.restart)
        self._blocks: list[RolloutRows] = []

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Play one episode: samples and swaps of every step and level."""
        self.policy.dropouts_draw_from(generator)
        if self.starts.is_next_due():
            self._begin_anew(generator)
        state = self.features
        placed: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        self._blocks = []
        num_rows = 0
        for _ in range(self.params.steps):
            levels, renewal = self.parse_and_decide(state, generator)
            if self.starts.level:
                levels = levels[: self.starts.level + 1][-1:]  # one parsing may have fewer levels than another
            for level in levels:
                probs = level.log_probs.detach().exp()
                chosen = torch.multinomial(probs, self.params.samples, replacement=True, generator=generator).T
                group, device = level.swaps(chosen[0], self.params.swaps, generator)
                swapped = chosen[:1].repeat(len(group), 1)
                swapped[torch.arange(len(group)), group] = device
                placed.append((torch.cat([chosen, swapped]).numpy(), level.group_of_node[self.nodes]))
                first_swap = num_rows + len(chosen)
                samples = torch.arange(num_rows, first_swap).repeat_interleave(len(probs))
                own = level.log_probs[torch.arange(len(probs)), chosen].flatten()
                odds = level.log_probs[group, device] - level.log_probs[group, chosen[0][group]]
                parts.append((samples, own, entropy(level.log_probs).repeat(len(chosen))))
                parts.append((torch.arange(first_swap, first_swap + len(group)), odds, odds[:0]))  # samples have it
                self._blocks.append(RolloutRows(slice(num_rows, first_swap), None))
                self._blocks.append(RolloutRows(slice(first_swap, first_swap + len(group)), num_rows))
                num_rows = first_swap + len(group)
            state = self.renewed(state, renewal)
        self.episode += 1
        row, log_probs, entropies = (torch.cat(part) for part in zip(*parts, strict=True))
        # a large array: it is written once, and "clip" does not copy
        placements, first = np.empty((num_rows, len(self.nodes)), dtype=np.int64), 0
        for devices, group_of_op in placed:
            np.take(devices, group_of_op, axis=1, out=placements[first : first + len(devices)], mode="clip")
            first += len(devices)
        return Rollout(placements, row, log_probs, entropies)

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` standardised within samples of one level; in the paper, returns ``discount**t / cost``."""
        params = self.params
        weight = torch.empty_like(costs)
        if not params.is_paper:
            self.starts.note(float(costs.min()))
            for rows, base in self._blocks:
                if base is None:
                    weight[rows] = batch_advantages(costs[rows])
                else:
                    gain = costs[base] - costs[rows]
                    weight[rows] = _SWAP_WEIGHT * gain / gain.square().mean().sqrt().clamp_min(1e-9)
            return weight[rollout.row]
        reward = 1 / costs.clamp_min(1e-9)
        discounts = _DISCOUNT ** torch.arange(len(costs))
        return (discounts * reward)[rollout.row]

    def decode(self) -> NDArray[np.int64]:
        """``[levels, num_ops]`` the likeliest devices of the groups in the first state, without randomness."""
        self.policy.dropouts_draw_from(None)
        levels, _ = self.parse_and_decide(self.features, None)
        return np.stack([level.log_probs.argmax(dim=1).numpy()[level.group_of_node][self.nodes] for level in levels])

    def parse_and_decide(
        self,
        state: Tensor,  # ``[N, F]`` features, renewed or not
        generator: torch.Generator | None,  # source of the noise on edge scores; None for no noise
    ) -> tuple[list[Decisions], Tensor]:
        """Parse the nodes and decide on every level that is drawn from.

        Returns
        -------
        tuple[list[Decisions], Tensor]
            Levels, finest first; and ``[N, F]`` the embedding of every node's last group, which renews the state.
        """
        policy, params = self.policy, self.params
        hidden = policy.input(state)
        group, graph = np.arange(len(self.graph.mask)), self.graph
        kept = None if generator is None else self.starts.noise
        noise = None if kept is None else kept.numpy()
        levels = [] if params.is_paper else [self._decide(group, hidden, graph.mask)]
        count = 0
        while graph.edges.size and len(graph.mask) > params.min_groups and count != (params.levels or -1):
            ends = torch.from_numpy(graph.edges)
            neighbours = self._neighbours if graph is self.graph else normed_neighbours(ends, len(graph.mask))
            costs = torch.from_numpy(graph.edge_costs()).to(hidden.dtype)
            scores = policy.scorer(policy.encoder(hidden, neighbours), ends, costs)
            level = parse(graph, self._noisy(scores, noise, generator))
            if len(level.graph.mask) == len(graph.mask):
                break
            inside = torch.from_numpy(level.is_inside)
            members = torch.from_numpy(level.group_of_node)
            hidden = policy.pooling(
                policy.encoder_of_groups(hidden, neighbours),
                members,
                len(level.graph.mask),
                members[ends[0][inside]],
                scores[inside],
            )
            if noise is not None:
                between = ~level.is_inside
                noise = largest(noise[between], level.edge_of_edge[between], level.graph.edges.shape[1])
            group, graph = level.group_of_node[group], level.graph
            count += 1
            if not params.is_paper:
                levels.append(self._decide(group, hidden, graph.mask))
        if params.is_paper:
            levels = [self._decide(group, hidden, graph.mask)]
        return levels, policy.output(hidden)[torch.from_numpy(group)]

    def _noisy(
        self, scores: Tensor, kept: NDArray[np.float32] | None, generator: torch.Generator | None
    ) -> NDArray[np.float32]:
        """Return what edges are ranked by: logits of the scores and noise, new noise if none is kept."""
        ranked = scores.detach()
        if generator is not None and self.params.noise:
            noise = torch.randn(ranked.shape, generator=generator) * self.params.noise if kept is None else None
            ranked = torch.logit(ranked, 1e-6) + (torch.from_numpy(kept) if noise is None else noise)
        array: NDArray[np.float32] = ranked.numpy()
        return array

    def _decide(self, group: NDArray[np.int64], hidden: Tensor, mask: NDArray[np.bool_]) -> Decisions:
        """Return the distribution over devices of every group, from embeddings ``[G, H]``."""
        params, num_groups, num_devices = self.params, len(mask), mask.shape[1]
        logits = self.policy.head(self.policy.output(hidden))
        own = self.policy.residual * _RESIDUAL_SCALE
        if params.deviations and not self.annealed_over:
            own = own + (_LATER_START if self.starts.number else _START) * (
                2 * nn.functional.one_hot(self.preferred, num_devices) - 1
            )
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

    def _begin_anew(self, generator: torch.Generator) -> None:
        """Forget what was decided, and begin as :mod:`placekit.learned.hsdag.starts` says.

        Without residual logits the weights are all there is to carry over to other problems, and stay.
        """
        starts = self.starts
        self.episode = 0
        self.annealed_over = self._annealed_starts_over if starts.is_annealed else 0
        starts.noise = None
        if starts.is_annealed:
            if self.params.has_residual:
                self._draw_weights(generator)
            return
        if self.params.has_residual:
            with torch.no_grad():
                for weight in (self.policy.residual, *self.policy.head[-1].parameters()):
                    weight.zero_()
        starts.noise = (
            starts.noise_scale * self.params.noise * torch.randn(self.graph.edges.shape[1], generator=generator)
        )
        with torch.no_grad():
            levels, _ = self.parse_and_decide(self.features, generator)
        starts.level = len(levels) - 1
        if self.environment.best is not None:
            self.preferred = torch.from_numpy(self.environment.best[self.leader])

    def _new_policy(self) -> HsdagPolicy:
        num_nodes, num_features = self.features.shape
        return HsdagPolicy(num_features, self.environment.num_devices, num_nodes, self.params)

    def _draw_weights(self, generator: torch.Generator) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (1,), generator=generator)))
            fresh = self._new_policy()
        self.policy.load_state_dict(fresh.state_dict())

    def renewed(self, state: Tensor, renewal: Tensor) -> Tensor:
        """Return the next state ``[N, F]``: the embedding of each node's group added to its features."""
        if self.params.is_paper:
            return state + renewal.detach()
        return self.features + torch.tanh(renewal.detach())  # bounded: sums over an episode would drift

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement`, without annealing."""
        self.annealed_over = 0
        chosen = placement[self.leader]
        can = self.graph.mask[np.arange(len(chosen)), chosen]
        self.preferred = torch.where(torch.from_numpy(can), torch.from_numpy(chosen), self.preferred)

    def transferable(self) -> dict[str, Tensor]:
        """Return all weights but the residual logits, which belong to the nodes of one graph."""
        return {name: value for name, value in self.policy.state_dict().items() if name != "residual"}

    def memory(self) -> dict[str, Tensor]:
        """Return the preferred devices, how far the annealing is, and the start."""
        annealing = torch.tensor([self.episode, self.annealed_over])
        return super().memory() | {"annealing": annealing, **self.starts.memory()}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        super().remember(memory)
        self.episode, self.annealed_over = memory["annealing"].tolist()
        self.starts.remember(memory)
        noise, shape = self.starts.noise, self.graph.edges.shape[1:]
        if noise is not None and (noise.shape != shape or noise.dtype != torch.float32 or noise.is_sparse):
            raise ValueError(f"noise of shape {tuple(noise.shape)} and type {noise.dtype}")
