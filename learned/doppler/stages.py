r"""The three stages of DOPPLER's training, one after another.

1. *Imitation* of a list scheduler of critical paths: the ready op of the largest b-level, on the device where it ends
   first. The policies play episodes, half of them as the teacher would, and learn in every state what the teacher would
   do there (DAgger: Ross et al., AISTATS 2011). Nothing is scored. It ends before the policies are sure, so that
   something is left to explore.
2. *Simulation*: REINFORCE, rewarded by the judge.
3. *The real system*: REINFORCE, rewarded by measured times. Where there are none, the second stage has no end.

Every stage has its own optimiser: the scale of the gradients is another one.

Beside the metrics of :mod:`placekit.learned.training` there are

======================== ====================================================================
metric                   meaning
======================== ====================================================================
charts/stage             1, 2 or 3
imitation/cross_entropy  minus the mean log-probability of the teacher's decision, nats
imitation/deviations     ops of an episode that go elsewhere than the teacher's, about
======================== ====================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor

from placekit.learned.environment import Environment
from placekit.learned.reinforce import reinforce_update
from placekit.learned.training import Learner, Metrics, Training, TrainingParams, descend
from placekit.solve.stop import StopReason

__all__ = ["IMITATION", "MEASURED", "SIMULATION", "StageParams", "StagedLearner", "Stages", "three_stages"]

IMITATION, SIMULATION, MEASURED = 1, 2, 3
LARGEST_SHARE = 0.1
"""Imitation ends with no larger share of the ops elsewhere, however few ops there are."""


@dataclass(frozen=True)
class StageParams(TrainingParams):
    """Parameters of `three_stages`.

    Parameters
    ----------
    imitation
        Most updates of the first stage; 0 for none.
    deviations
        The first stage ends once about so many ops of an episode, or a tenth of them where that is fewer, go elsewhere
        than the teacher's.
    imitation_rate
        Step size of Adam in the first stage.
    simulation
        Updates of the second stage before measured rewards; without these it goes on to the end.
    """

    imitation: int = 200
    deviations: float = 3.0
    imitation_rate: float = 1e-2
    simulation: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("imitation", "deviations", "imitation_rate", "simulation", least=0)


class Stages:
    """How far a training is.

    Attributes
    ----------
    number : int
        `IMITATION`, `SIMULATION` or `MEASURED`.
    updates : int
        Updates of this stage.
    """

    def __init__(self) -> None:
        self.number, self.updates = IMITATION, 0

    def memory(self) -> dict[str, Tensor]:
        """Return both, for checkpoints."""
        return {"stages": torch.tensor([self.number, self.updates])}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.number, self.updates = (int(value) for value in memory["stages"].tolist())


class StagedLearner(Learner, Protocol):
    """A learner that has a teacher and a simulator."""

    stages: Stages
    simulator: Environment
    """Scores by the judge; the environment of the training itself where that does so, too."""

    def lessons(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return log-probabilities ``[decisions]`` of what the teacher would do, of ops and of devices."""
        ...


def three_stages(
    training: Training, should_stop: Callable[[], StopReason | None], on_update: Callable[[Metrics], None]
) -> StopReason:
    """Train a `StagedLearner` with `StageParams` until told to stop.

    A :class:`~placekit.learned.training.Loop`, of updates of any stage.

    References
    ----------
    Yao et al., "DOPPLER: dual-policy learning for device assignment in asynchronous dataflow graphs", arXiv 2505.23131.
    """
    params = training.params
    if not isinstance(params, StageParams) or not hasattr(training.learner, "lessons"):
        raise TypeError("three_stages needs StageParams and a learner with lessons")
    learner = cast("StagedLearner", training.learner)
    stages = learner.stages
    is_measured = learner.simulator is not training.environment
    if training.cloned:  # a warm start was the teacher already
        stages.number = max(stages.number, SIMULATION)
    while True:
        reason = should_stop() or training.end()
        if reason is not None:
            return reason
        if stages.number == IMITATION:
            metrics = _imitate(training, learner, params) if stages.updates < params.imitation else None
        elif stages.number == SIMULATION and is_measured:
            metrics = _simulate(training, learner) if stages.updates < params.simulation else None
        else:
            metrics = reinforce_update(training, training.score)
        if metrics is None:
            stages.number, stages.updates = stages.number + 1, 0
            training.renew_optimiser()
            if stages.number == MEASURED and learner.simulator.best is not None:
                training.environment.costs(learner.simulator.best[None])
            continue
        stages.updates += 1
        on_update(Metrics(metrics.update, metrics.values | {"charts/stage": float(stages.number)}))


def _imitate(training: Training, learner: StagedLearner, params: StageParams) -> Metrics | None:
    """Take one step towards the teacher; None if the policies are near enough."""
    num_ops = training.environment.problem.graph.num_ops
    training.begin_update()
    selects, places = learner.lessons(training.generator)
    deviations = float((1 - places.detach().exp()).mean()) * num_ops
    if deviations <= min(params.deviations, LARGEST_SHARE * num_ops):
        return None
    loss = -(selects.mean() + places.mean())
    training.optimiser.learning_rate = params.imitation_rate
    norm = descend(training, loss)
    training.update += 1
    values = {"losses/grad_norm": norm, "imitation/cross_entropy": loss.item(), "imitation/deviations": deviations}
    return Metrics(training.update, values)


def _simulate(training: Training, learner: StagedLearner) -> Metrics:
    """Take one step of REINFORCE with the judge's rewards."""
    return reinforce_update(training, lambda placements: torch.from_numpy(learner.simulator.costs(placements)).float())
