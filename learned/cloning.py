r"""Behaviour cloning: a policy learns the placement of a warm start before it learns from rewards.

Every update takes one step of Adam down the cross-entropy

.. math:: -\frac{1}{n} \sum_i \log \pi(a_i)

over the ``n`` decisions :math:`a_i` that make the placements, then the loop of the method goes on from the policy as it
is, with a fresh optimiser: the small steps of the end would be taken for the scale of what comes.

======================== ============================================================
metric                   meaning
======================== ============================================================
cloning/cross_entropy    the loss, nats per decision
cloning/agreement        share of the decisions that are likelier than all others together
cloning/grad_norm        norm of the gradient before clipping
======================== ============================================================

References
----------
Pomerleau, "Efficient training of artificial neural networks for autonomous navigation", Neural Computation 3, 1991.
Silver et al., "Mastering the game of Go with deep neural networks and tree search", Nature 529, 2016: a policy is
trained on expert moves first (supervised learning of policy networks), then by policy gradients.
"""

from __future__ import annotations

from collections.abc import Callable

from placekit.learned.training import Metrics, Training, descend
from placekit.stop import StopReason

__all__ = ["clone"]


def clone(
    training: Training, should_stop: Callable[[], StopReason | None], on_update: Callable[[Metrics], None]
) -> StopReason | None:
    """Train the policy towards `Training.wanted` for `TrainingParams.clone` updates, or what is left of them.

    Parameters
    ----------
    training
        What to train. Nothing happens if it wants no placement, or has already learned from rewards.
    should_stop
        Asked before every update.
    on_update
        Called after every update; `Metrics.update` counts those of the cloning.

    Returns
    -------
    StopReason or None
        Why it was stopped; None if it came to its end.
    """
    if training.wanted is None or training.update:
        return None
    while training.cloned < training.params.clone:
        reason = should_stop()
        if reason is not None:
            return reason
        log_probs = training.learner.log_probs_of(training.wanted, training.generator)
        loss = -log_probs.mean()
        grad_norm = descend(training, loss)
        training.cloned += 1
        if training.cloned == training.params.clone:
            training.renew_optimiser()
        values = {
            "cross_entropy": loss.item(),
            "agreement": float((log_probs.detach().exp() > 0.5).float().mean()),
            "grad_norm": grad_norm,
        }
        on_update(Metrics(training.cloned, {f"cloning/{name}": value for name, value in values.items()}))
    return None
