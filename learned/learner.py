"""Learners: what the training loop samples from and updates, and the parameters that all of them have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placekit.learned.environment import Environment
from placekit.learned.group_graph import wanted_actions
from placekit.model.errors import InvalidProblemError


def batch_advantages(costs: Tensor) -> Tensor:
    """``[batch]`` how many standard deviations cheaper than the mean of the other samples each one is.

    Leaving a sample out of its own baseline keeps the gradient unbiased (Kool et al., "Buy 4 REINFORCE samples, get a
    baseline for free", 2019). Zeros where all costs agree, or for a single sample.
    """
    if len(costs) < 2:
        return torch.zeros_like(costs)
    deviation = costs.std()
    baseline = (costs.sum() - costs) / (len(costs) - 1)
    return torch.where(deviation > 1e-9, (baseline - costs) / deviation.clamp_min(1e-9), torch.zeros_like(costs))


class MovingBaseline:
    """An exponential moving average of costs; the advantage of a sample is baseline minus cost.

    Parameters
    ----------
    decay
        Share of the old average that an update keeps.
    """

    def __init__(self, decay: float = 0.9) -> None:
        self.decay = decay
        self.value: Tensor | None = None

    def advantages(self, costs: Tensor) -> Tensor:
        """``[batch, ...]`` baseline minus cost; the first batch is its own baseline. Updates the average."""
        mean = costs.mean(dim=0)
        if self.value is None:
            self.value = mean
        advantages = self.value - costs
        self.value = self.decay * self.value + (1 - self.decay) * mean
        return advantages

    def memory(self) -> dict[str, Tensor]:
        """Return the average, for checkpoints."""
        return {} if self.value is None else {"baseline": self.value}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.value = memory.get("baseline")


class Rollout(NamedTuple):
    """A batch of placements and the decisions that made them."""

    placements: NDArray[np.int64]  # ``[batch, num_ops]`` device indices
    row: Tensor  # ``[decisions]`` the placement that each decision belongs to
    log_probs: Tensor  # ``[decisions]`` log-probability of what was decided, with gradient
    entropies: Tensor  # ``[decisions]`` entropy of the distribution decided from, nats, with gradient


class Lessons(NamedTuple):
    """Schedule of a learner's lessons: imitation of a teacher, then learning from a simulator."""

    updates: int  # most updates of imitation
    deviations: float  # imitation ends once about so many groups go elsewhere than the teacher's
    learning_rate: float  # step size of imitation
    simulation: int  # updates in the simulator before measured rewards


class Learner(ABC):
    """Policy for one problem: what the loop samples from and updates.

    Parameters
    ----------
    environment
        Where placements are scored.
    params
        Parameters.

    Attributes
    ----------
    policy : nn.Module
        Every weight that is trained. What carries over to other problems is `transferable`.
    preferred : Tensor
        ``[num_groups]`` devices near which an untrained policy begins.
    epochs, clip : int, float
        Steps of the optimiser per batch of samples; with several, ratios of new to old probability count up to
        ``1 +- clip``, and `replay` is needed.
    lessons : Lessons or None
        The teacher's share, for a learner that has `lesson`.
    baseline : MovingBaseline or None
        Mean of earlier costs, for a learner whose advantages are relative to it.
    simulator : Environment
        Where the judge scores placements; another one than `environment` where that measures.
    """

    policy: nn.Module
    preferred: Tensor
    epochs: int = 1
    clip: float = 0.2
    lessons: Lessons | None = None
    baseline: MovingBaseline | None = None

    def __init__(self, environment: Environment, params: TrainingParams) -> None:
        self.environment, self.params, self.simulator = environment, params, environment

    @abstractmethod
    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample placements; all randomness comes from `generator`."""

    @abstractmethod
    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` how much better than usual each decision did, from costs ``[batch]``. No gradient."""

    @abstractmethod
    def decode(self) -> NDArray[np.int64]:
        """``[count, num_ops]`` the policy's own answers, without randomness."""

    def replay(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies ``[decisions]`` of an old rollout under the present weights."""
        raise NotImplementedError

    def lesson(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the loss of imitating the teacher, and log-probabilities ``[decisions]`` of the teacher's devices."""
        raise NotImplementedError

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement` ``[num_ops]``. Called at most once, before training."""
        self.preferred = wanted_actions(self.environment, placement)

    def transferable(self) -> dict[str, Tensor]:
        """Return the weights that mean something for another problem, by name in `policy`."""
        return dict(self.policy.state_dict())

    def memory(self) -> dict[str, Tensor]:
        """Return what the learner remembers beside weights; for checkpoints."""
        return {"preferred": self.preferred} | (self.baseline.memory() if self.baseline else {})

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.preferred = memory["preferred"]
        if self.baseline:
            self.baseline.remember(memory)


class GroupwiseLearner(Learner):
    """Learner whose groups choose their devices independently, from one table of log-probabilities.

    Attributes
    ----------
    samples : int
        Placements per update.
    """

    samples: int

    @abstractmethod
    def log_probs(self) -> Tensor:
        """``[num_groups, num_devices]`` log-probability of every decision."""

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample `samples` placements; a decision per group of each."""
        log_probs = self.log_probs()
        actions = torch.multinomial(log_probs.detach().exp(), self.samples, replacement=True, generator=generator)
        row = torch.arange(self.samples).repeat_interleave(len(log_probs))
        return Rollout(self.environment.expand(actions.T.numpy()), row, *_decided(log_probs, actions))

    def replay(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies ``[decisions]`` of `rollout` under the present weights."""
        return _decided(self.log_probs(), self._actions(rollout.placements))

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` the advantage of the placement that each belongs to, shared out among its decisions.

        So the loss is a mean over decisions, and the weight of the entropy means the same for graphs of any size.
        """
        return batch_advantages(costs)[rollout.row] / self.environment.num_groups

    def decode(self) -> NDArray[np.int64]:
        """Return the most probable placement ``[1, num_ops]``."""
        return self.environment.expand(self.log_probs().argmax(dim=1).numpy()[None])

    def _actions(self, placements: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(placements[:, self.environment.first_op].T.copy())


def _decided(log_probs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies ``[samples * num_groups]`` of actions ``[num_groups, samples]``."""
    return log_probs.gather(1, actions).T.reshape(-1), entropy(log_probs).repeat(actions.shape[1])


@dataclass(frozen=True)
class TrainingParams:
    """Parameters of the loop, common to all learners.

    Parameters
    ----------
    updates
        Updates after which training ends if no stop criterion ended it before: the default budget. 0 applies
        a policy without training it.
    patience
        Updates without a better placement after which it ends; ``2 + G + G**2 // 8`` for a problem of G groups, where
        that is less. 0 for no such end.
    learning_rate
        Step size of Adam; 0 for a control that draws as often and learns nothing.
    max_grad_norm
        Gradients are scaled down to this norm.
    entropy_start, entropy_end, entropy_updates
        Weight of the entropy bonus: from the first value to the second, in a line, over so many updates.

    """

    updates: int = 1000
    patience: int = 0
    learning_rate: float = 1e-3
    max_grad_norm: float = 1.0
    entropy_start: float = 0.0
    entropy_end: float = 0.0
    entropy_updates: int = 100

    def __post_init__(self) -> None:
        self.require("entropy_updates", least=1)
        self.require("updates", "patience", "entropy_start", "entropy_end", least=0)
        self.require("learning_rate", least=0)
        self.require_that(self.max_grad_norm > 0, "max_grad_norm", "> 0")

    def require(self, *names: str, least: float) -> None:
        """Raise InvalidProblemError for the first parameter of `names` that is below `least`."""
        for name in names:
            self.require_that(getattr(self, name) >= least, name, f">= {least:g}")

    def require_that(self, is_right: bool, name: str, wanted: str) -> None:  # reads as a sentence
        """Raise InvalidProblemError unless `is_right`: parameter `name` must be as `wanted`."""
        if not is_right:
            raise InvalidProblemError(f"parameter {name!r} is {getattr(self, name)!r}; it must be {wanted}")

    def entropy_weight(self, update: int) -> float:
        """Return the weight of the entropy bonus at an update."""
        share = min(1.0, update / self.entropy_updates)
        return self.entropy_start + (self.entropy_end - self.entropy_start) * share


def entropy(log_probs: Tensor) -> Tensor:
    """``[...]`` entropies of rows of log-probabilities ``[..., choices]``, of which some may be minus infinity."""
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    return -(log_probs.exp() * finite).sum(dim=-1)
