"""Proximal policy optimisation: the loop of REINFORCE, with several clipped steps for every batch of samples.

It writes the metrics of :mod:`placekit.learned.training`, and ``losses/clipfrac``, the share of decisions whose ratio
of new to old probability was clipped, and ``losses/approx_kl``, an estimate of how far the policy has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from placekit.learned.training import Learner, Metrics, Rollout, Training, TrainingParams, descend
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import StopReason

__all__ = ["PpoParams", "ReplayingLearner", "ppo"]


class ReplayingLearner(Learner, Protocol):
    """A learner that can say how likely old decisions are under its present weights."""

    def replay(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies ``[decisions]`` of an old rollout, with gradient."""
        ...


@dataclass(frozen=True)
class PpoParams(TrainingParams):
    """Parameters of `ppo`.

    Parameters
    ----------
    epochs
        Steps of the optimiser per batch of samples.
    clip
        The ratio of new to old probability counts up to ``1 +- clip``.
    """

    epochs: int = 4
    clip: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("epochs", least=1)
        if not 0 < self.clip < 1:
            raise InvalidProblemError(f"parameter 'clip' is {self.clip}; it must be between 0 and 1")


def ppo(
    training: Training, should_stop: Callable[[], StopReason | None], on_update: Callable[[Metrics], None]
) -> StopReason:
    """Train a `ReplayingLearner` with `PpoParams` by the clipped surrogate until told to stop.

    A :class:`~placekit.learned.training.Loop`; an update is one batch of samples and all its steps.

    References
    ----------
    Schulman et al., "Proximal policy optimization algorithms", arXiv 1707.06347, 2017, equation 7.
    """
    learner, params = training.learner, training.params
    if not isinstance(params, PpoParams) or not hasattr(learner, "replay"):
        raise TypeError("ppo needs PpoParams and a learner that can replay")
    while True:
        reason = should_stop() or training.end()
        if reason is not None:
            return reason
        with torch.no_grad():
            rollout = training.rollout()
        costs = training.score(rollout.placements)
        advantages = learner.advantages(rollout, costs)
        for _ in range(params.epochs):
            training.environment.check_stop()
            log_probs, entropies = learner.replay(rollout)
            change = log_probs - rollout.log_probs
            ratio = change.exp()
            clipped = ratio.clamp(1 - params.clip, 1 + params.clip)
            policy_loss = -torch.minimum(advantages * ratio, advantages * clipped).sum() / len(costs)
            entropy = entropies.mean()
            grad_norm = descend(training, policy_loss - params.entropy_weight(training.update) * entropy)
        losses = {
            "policy_loss": policy_loss.item(),
            "entropy": entropy.item(),
            "grad_norm": grad_norm,
            "clipfrac": float((ratio != clipped).float().mean()),
            "approx_kl": float((ratio - 1 - change).mean().detach()),
        }
        on_update(training.metrics(costs, losses))
