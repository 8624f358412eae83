"""Method ``rnn``: HDP, ops into groups and groups to devices by a recurrent network, trained by REINFORCE."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.advantages import MovingBaseline
from placekit.learned.environment import Environment
from placekit.learned.group_graph import group_graph, wanted_actions
from placekit.learned.method import LearnedMethod
from placekit.learned.rnn.network import Decision, RnnNetwork
from placekit.learned.training import Rollout, TrainingParams, permitted
from placekit.model.errors import InvalidProblemError

__all__ = ["Rnn", "RnnLearner", "RnnParams"]


@dataclass(frozen=True)
class RnnParams(TrainingParams):
    """Parameters of `Rnn`.

    The published learning rate, 0.1, is for one sample per update and a controller that trains for hours; here several
    samples share an update.

    Parameters
    ----------
    samples
        Placements per update.
    hidden
        Width of the LSTMs. Published: 512.
    groups_per_device
        Groups per device; never more groups than nodes. Published code: 20.
    locality
        See :mod:`placekit.learned.rnn.network`; 0 as published.
    decay
        Share of the old baseline that an update keeps. Published: 0.9.
    deviations
        How many groups leave the preferred device in a placement, about, before anything is learned; the device is the
        best single one, or that of a warm start. 0 for no preference.

    Raises
    ------
    InvalidProblemError
        A value out of its range.
    """

    updates: int = 600
    patience: int = 200
    learning_rate: float = 2e-3
    entropy_start: float = 0.05
    entropy_end: float = 0.002
    entropy_updates: int = 200
    samples: int = 32
    hidden: int = 64
    groups_per_device: int = 20
    locality: float = 2.0
    decay: float = 0.9
    deviations: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("groups_per_device", least=1)
        self.require("samples", "hidden", least=2)
        self.require("locality", "deviations", least=0)
        if self.hidden % 2:
            raise InvalidProblemError(f"parameter 'hidden' is {self.hidden}; it must be even")
        if not 0 <= self.decay < 1:
            raise InvalidProblemError(f"parameter 'decay' is {self.decay}; it must be at least 0 and below 1")


class RnnLearner:
    """Samples groupings and their devices; both networks learn from the same advantage.

    The cost is the square root of the time, as published, and the advantage is moving baseline *minus* cost. (The
    released port in the HSDAG repository has no baseline and the opposite sign: it raises the probability of slow
    placements.) It is not divided by the deviation of the samples: where they agree, that would blow up the lag of the
    baseline. The published noise on the logits is replaced by an entropy bonus.

    Parameters
    ----------
    environment
        What to place; its groups are the nodes that are grouped again.
    params
        Parameters.
    """

    def __init__(self, environment: Environment, params: RnnParams) -> None:
        self.environment = environment
        self.params = params
        self.graph = group_graph(environment)
        num_groups = min(params.groups_per_device * environment.num_devices, self.graph.num_groups)
        self.policy = RnnNetwork(
            self.graph.num_features, environment.num_devices, num_groups, params.hidden, params.locality
        )
        self.baseline = MovingBaseline(params.decay)
        best = int(np.argmin(environment.single_devices))
        self.preferred = torch.from_numpy(environment.homogeneous[best].copy())
        self._first_allowed = torch.from_numpy(environment.mask.argmax(axis=1))

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample `samples` placements; a decision per node, its group, and one per group that is not empty."""
        decision = self._decide(self.params.samples, generator)
        samples = torch.arange(self.params.samples)
        used = torch.zeros(decision.device_of_group.shape, dtype=torch.bool)
        used.scatter_(1, decision.group_of_node, value=True)
        grouping, devices = decision.group_log_probs.flatten(0, 1), decision.device_log_probs[used]
        row = torch.cat([samples.repeat_interleave(self.graph.num_groups), samples.repeat_interleave(used.sum(dim=1))])
        log_probs = torch.cat(
            [
                grouping.gather(1, decision.group_of_node.flatten()[:, None])[:, 0],
                devices.gather(1, decision.device_of_group[used][:, None])[:, 0],
            ]
        )
        entropies = torch.cat([_entropy(grouping), _entropy(devices)])
        return Rollout(self._placements(decision), row, log_probs, entropies)

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` the advantage of the placement that each belongs to, shared out among its decisions.

        So the loss is a mean over decisions, and the weight of the entropy means the same for graphs of any size.
        """
        advantages = self.baseline.advantages(costs.sqrt())
        return advantages[rollout.row] * len(costs) / len(rollout.row)

    def decode(self) -> NDArray[np.int64]:
        """Return the placement ``[1, num_ops]`` of the most probable groups and devices."""
        return self._placements(self._decide(1, None))

    def _decide(self, samples: int, generator: torch.Generator | None) -> Decision:
        one_hot = torch.nn.functional.one_hot(self.preferred, self.graph.num_devices)
        num_others = self.policy.num_groups * (self.graph.num_devices - 1)
        bias = math.log(max(num_others / self.params.deviations, 1.0)) if self.params.deviations else 0.0
        preference = bias * one_hot.to(self.graph.features.dtype)
        return cast("Decision", self.policy(self.graph, preference, samples, generator, self.environment.check_stop))

    def _placements(self, decision: Decision) -> NDArray[np.int64]:
        """Return ``[batch, num_ops]``: every node on its group's device, or on the first one where it may go."""
        wanted = decision.device_of_group.gather(1, decision.group_of_node)
        may = self.graph.mask[torch.arange(self.graph.num_groups), wanted]
        return self.environment.expand(torch.where(may, wanted, self._first_allowed).numpy())

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement`: its devices become the most probable ones, unless they are cloned."""
        if not self.params.clone:
            self.preferred = wanted_actions(self.environment, placement)

    def log_probs_of(self, placements: NDArray[np.int64], generator: torch.Generator) -> Tensor:
        """``[decisions]`` log-probability of every node's device, whichever of the groups it is in.

        What the groups look like to the placer comes from samples.
        """
        decision = self._decide(self.params.samples, generator)
        first = np.unique(self.environment.group_of_op, return_index=True)[1]
        devices = torch.from_numpy(placements[:, first])  # [count, N]
        by_group = decision.device_log_probs[:, :, devices].permute(2, 0, 3, 1)  # [count, B, N, K]
        return permitted(torch.logsumexp(decision.group_log_probs + by_group, dim=3))

    def transferable(self) -> dict[str, Tensor]:
        """Return every weight; another problem can use them if it has as many groups."""
        return dict(self.policy.state_dict())

    def memory(self) -> dict[str, Tensor]:
        """Return the baseline and the preferred devices."""
        return {"preferred": self.preferred} | self.baseline.memory()

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.preferred = memory["preferred"]
        self.baseline.remember(memory)


def _entropy(log_probs: Tensor) -> Tensor:
    """``[decisions]`` entropies of rows of log-probabilities, of which some may be minus infinity."""
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    return -(log_probs.exp() * finite).sum(dim=1)


class Rnn(LearnedMethod):
    """HDP (Mirhoseini et al., ICLR 2018): grouper and sequence-to-sequence placer, trained together."""

    name = "rnn"
    params_type = RnnParams

    def make_learner(self, environment: Environment) -> RnnLearner:
        """Return a fresh learner."""
        return RnnLearner(environment, cast("RnnParams", self.params))
