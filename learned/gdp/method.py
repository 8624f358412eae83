"""Method ``gdp``: the whole graph placed at once by one network, trained by PPO."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.advantages import batch_advantages
from placekit.learned.environment import Environment
from placekit.learned.gdp.network import GdpNetwork
from placekit.learned.group_graph import group_graph, wanted_actions
from placekit.learned.method import LearnedMethod
from placekit.learned.ppo import PpoParams, ppo
from placekit.learned.training import Rollout, permitted
from placekit.model.errors import InvalidProblemError

__all__ = ["Gdp", "GdpLearner", "GdpParams"]

LEAST_DEVIATION = 0.01
"""Advantages shrink where samples deviate less than this, in units of the best single device.

Otherwise a policy that has settled would be shaken by every sample that differs in a hair.
"""


@dataclass(frozen=True)
class GdpParams(PpoParams):
    """Parameters of `Gdp`. The paper gives none of the numbers; these are customary, and tuned on the zoo.

    Parameters
    ----------
    samples
        Placements per update.
    deviations
        How many groups leave the preferred device in a placement, about, before anything is learned; the device is the
        best single one, or that of a warm start. 0 for no preference.
    hidden, rounds, layers, heads, segment
        See :class:`~placekit.learned.gdp.network.GdpNetwork`.
    """

    updates: int = 600
    patience: int = 200
    learning_rate: float = 1e-3
    entropy_start: float = 0.1
    entropy_end: float = 0.01
    entropy_updates: int = 200
    samples: int = 32
    deviations: float = 20.0
    hidden: int = 64
    rounds: int = 3
    layers: int = 2
    heads: int = 4
    segment: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("hidden", "rounds", "layers", "heads", "segment", least=1)
        self.require("samples", least=2)
        self.require("deviations", least=0)
        if self.hidden % self.heads:
            raise InvalidProblemError(f"parameter 'heads' is {self.heads}; it must divide hidden, {self.hidden}")


class GdpLearner:
    """Samples placements from one pass of the network.

    Costs enter as their square root (the paper's reward is minus the square root of the step time), relative to the
    other samples of the update: the mean of the same network's samples on the same graph is the paper's running mean
    without its lag.

    Parameters
    ----------
    environment
        What to place; its groups are the decisions.
    params
        Parameters.
    network
        The network if it is shared with learners of other problems; a fresh one if None.
    """

    def __init__(self, environment: Environment, params: GdpParams, network: GdpNetwork | None = None) -> None:
        self.environment = environment
        self.params = params
        self.graph = group_graph(environment)
        self.policy = network or GdpNetwork(
            self.graph.num_features,
            self.graph.num_devices,
            hidden=params.hidden,
            rounds=params.rounds,
            layers=params.layers,
            heads=params.heads,
            segment=params.segment,
        )
        best = int(np.argmin(environment.single_devices))
        self.preferred = torch.from_numpy(environment.homogeneous[best].copy())
        self._first_op = np.unique(environment.group_of_op, return_index=True)[1]

    def log_probs(self) -> Tensor:
        """``[num_groups, num_devices]`` log-probability of every decision."""
        logits = self.policy(self.graph) + self._bias * torch.nn.functional.one_hot(
            self.preferred, self.graph.num_devices
        )
        return self.graph.masked(logits)

    @property
    def _bias(self) -> float:
        """Logit of the preferred device: `GdpParams.deviations` groups leave it in the mean."""
        num_others = self.graph.num_groups * (self.graph.num_devices - 1)
        return math.log(max(num_others / self.params.deviations, 1.0)) if self.params.deviations else 0.0

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample `samples` placements; a decision per group of each."""
        log_probs = self.log_probs()
        actions = torch.multinomial(
            log_probs.detach().exp(), self.params.samples, replacement=True, generator=generator
        )
        row = torch.arange(self.params.samples).repeat_interleave(self.graph.num_groups)
        placements = self.environment.expand(actions.T.numpy())
        return Rollout(placements, row, *self._decisions(log_probs, actions))

    def replay(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies ``[decisions]`` of `rollout` under the present weights."""
        return self._decisions(self.log_probs(), torch.from_numpy(rollout.placements[:, self._first_op].T.copy()))

    def _decisions(self, log_probs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies ``[samples * num_groups]`` of actions ``[num_groups, samples]``."""
        chosen = log_probs.gather(1, actions).T.reshape(-1)
        surprise = torch.where(self.graph.mask, log_probs, torch.zeros_like(log_probs))
        entropy = -(log_probs.exp() * surprise).sum(dim=1)
        return chosen, entropy.repeat(actions.shape[1])

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` the advantage of the placement that each belongs to, shared out among its decisions.

        So the loss is a mean over decisions, and the weight of the entropy means the same for graphs of any size.
        """
        cost = costs.sqrt()
        trust = (cost.std() / LEAST_DEVIATION).clamp(max=1)
        return trust * batch_advantages(cost)[rollout.row] / self.graph.num_groups

    def decode(self) -> NDArray[np.int64]:
        """Return the most probable placement ``[1, num_ops]``."""
        return self.environment.expand(self.log_probs().argmax(dim=1).numpy()[None])

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement`: its devices become the most probable ones, unless they are cloned."""
        if not self.params.clone:
            self.preferred = wanted_actions(self.environment, placement)

    def log_probs_of(self, placements: NDArray[np.int64], generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """``[decisions]`` log-probability of every group's device, where it may go there."""
        devices = torch.from_numpy(placements[:, self._first_op].T.copy())
        return permitted(self.log_probs().gather(1, devices))

    def transferable(self) -> dict[str, Tensor]:
        """Return every weight: nothing in the network belongs to one graph."""
        return dict(self.policy.state_dict())

    def memory(self) -> dict[str, Tensor]:
        """Return the preferred devices."""
        return {"preferred": self.preferred}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.preferred = memory["preferred"]


class Gdp(LearnedMethod):
    """GDP (Zhou et al., arXiv 1910.01578): graph embedding, attention over segments, superposition, PPO."""

    name = "gdp"
    params_type = GdpParams
    loop = staticmethod(ppo)

    def make_learner(self, environment: Environment) -> GdpLearner:
        """Return a fresh learner."""
        return GdpLearner(environment, cast("GdpParams", self.params))
