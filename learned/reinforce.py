"""REINFORCE: one loop, from samples to an update."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.training import Metrics, Rollout, Training, descend
from placekit.solve.stop import StopReason

__all__ = ["reinforce", "reinforce_update"]


def reinforce(
    training: Training, should_stop: Callable[[], StopReason | None], on_update: Callable[[Metrics], None]
) -> StopReason:
    r"""Train by REINFORCE with an entropy bonus until told to stop.

    A :class:`~placekit.learned.training.Loop`. Every update takes one step of Adam along

    .. math:: \nabla \frac{1}{B} \sum_i A_i \log \pi(a_i) + \beta \frac{1}{n} \sum_i H_i

    over the ``n`` decisions :math:`a_i` of ``B`` placements, with the learner's advantages :math:`A_i`.

    References
    ----------
    Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", Machine
    Learning 8, 1992.
    """
    while True:
        reason = should_stop() or training.end()
        if reason is not None:
            return reason
        on_update(reinforce_update(training, training.score))


def reinforce_update(training: Training, score: Callable[[NDArray[np.int64]], Tensor]) -> Metrics:
    """Take one update of `reinforce`, with the costs ``[batch]`` that `score` gives to placements."""
    rollout = training.rollout()
    costs = score(rollout.placements)
    return training.metrics(costs, _policy_gradient_step(training, rollout, costs))


def _policy_gradient_step(training: Training, rollout: Rollout, costs: Tensor) -> dict[str, float]:
    """Take the step of `reinforce` for placements that cost `costs` ``[batch]``; return its losses."""
    advantages = training.learner.advantages(rollout, costs)
    policy_loss = -(advantages * rollout.log_probs).sum() / len(costs)
    entropy = rollout.entropies.mean()
    loss = policy_loss - training.params.entropy_weight(training.update) * entropy
    return {"policy_loss": policy_loss.item(), "entropy": entropy.item(), "grad_norm": descend(training, loss)}
