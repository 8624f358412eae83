r"""Behaviour cloning: a policy learns the placement of a warm start before it learns from rewards.

Every update takes one step of Adam down the cross-entropy

.. math:: -\frac{1}{n} \sum_i \log \pi(a_i)

over the ``n`` decisions :math:`a_i` that make the placements. It ends before the policy is sure, so that something is
left to explore. Then the loop of the method goes on from the policy as it is, with a fresh optimiser: the small
gradients of the end would be taken for the scale of what comes.

======================== ============================================================
metric                   meaning
======================== ============================================================
cloning/cross_entropy    the loss, nats per decision
cloning/deviations       groups of a placement that are elsewhere, about
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
from placekit.solve.stop import StopReason

__all__ = ["clone"]

LARGEST_SHARE = 0.1
"""Cloning ends with no larger share of the groups elsewhere, however few groups there are."""


def clone(
    training: Training, should_stop: Callable[[], StopReason | None], on_update: Callable[[Metrics], None]
) -> StopReason | None:
    """Train the policy towards `Training.wanted`, at most `TrainingParams.clone` updates, and want no more then.

    Parameters
    ----------
    training
        What to train, from where it stands. Nothing happens if it wants no placement.
    should_stop
        Asked before every update.
    on_update
        Called after every update; `Metrics.update` counts those of the cloning.

    Returns
    -------
    StopReason or None
        Why it was stopped; None if it came to its end.
    """
    if training.wanted is None:
        return None
    learner, params, num_groups = training.learner, training.params, training.environment.num_groups
    enough = min(params.clone_deviations, LARGEST_SHARE * num_groups)
    while training.cloned < params.clone:
        reason = should_stop()
        if reason is not None:
            return reason
        training.begin_update()
        log_probs = learner.log_probs_of(training.wanted, training.generator)
        deviations = float((1 - log_probs.detach().exp()).mean()) * num_groups
        if deviations <= enough:
            break
        loss = -log_probs.mean()
        grad_norm = descend(training, loss)
        training.cloned += 1
        values = {"cross_entropy": loss.item(), "deviations": deviations, "grad_norm": grad_norm}
        on_update(Metrics(training.cloned, {f"cloning/{name}": value for name, value in values.items()}))
    training.wanted = None
    training.renew_optimiser()
    return None
