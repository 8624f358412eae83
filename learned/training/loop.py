"""One training loop for every learner: imitate a teacher, learn from rewards.

====================== ================================================================
metric                 meaning
====================== ================================================================
charts/stage           what is learned from, see `TrainingStage`
charts/episodic_return minus the mean cost of the update's samples; cost 1 = best single device
charts/best_objective  best objective so far, seconds
charts/evaluations     placements scored so far
charts/SPS             placements scored per second since the start
losses/policy_loss     minus the mean of advantage times log-probability (of several epochs: the clipped surrogate)
losses/entropy         mean entropy of a decision, nats
losses/grad_norm       norm of the gradient before clipping
losses/clipfrac        several epochs: share of decisions whose ratio of new to old probability was clipped
losses/approx_kl       several epochs: estimate of how far the policy has moved
imitation/*            cross_entropy: the loss, nats per decision; deviations: groups of a placement that are elsewhere,
                       about; grad_norm: norm of the gradient before clipping
====================== ================================================================

The tags are those of CleanRL.

References
----------
Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.
Schulman et al., "Proximal policy optimization algorithms", arXiv 1707.06347, 2017, equation 7.
Silver et al., "Mastering the game of Go with deep neural networks and tree search", 2016: experts first, then rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch._dynamo  # the first optimiser would load it; here, with the other imports, no clock counts it
from numpy.typing import NDArray
from torch import Tensor, nn

from placekit.learned.environment import Environment
from placekit.learned.learner import Learner, TrainingParams
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import StopReason

_LEAST_PATIENCE = 2
LARGEST_SHARE = 0.1
"""Imitation ends with no larger share of the groups elsewhere, however few groups there are."""


class TrainingStage(IntEnum):
    """Stages of a training, in this order; a stage without work is skipped."""

    IMITATION = 1
    """The learner's own teacher: the cross-entropy of its decisions. It ends while something is left to explore."""
    REWARDS = 2
    """Rewards of the environment, or of the learner's simulator where the environment measures."""
    MEASURED = 3
    """Measured rewards, after a simulator."""


@dataclass(frozen=True)
class Metrics:
    """Updates done, and the metrics of the last one by tag; see the module docstring."""

    update: int
    values: dict[str, float]


@dataclass
class Training:
    """Training in progress: everything that an update changes, and so everything that a checkpoint keeps."""

    # learner, environment, params: who learns, where, and how
    learner: Learner
    environment: Environment
    params: TrainingParams
    generator: torch.Generator  # source of all randomness
    # update, stale: updates done; since the best placement was found
    update: int = 0
    stale: int = 0
    # stage, stage_updates: what is learned from now, and updates of that
    stage: TrainingStage = TrainingStage.IMITATION
    stage_updates: int = 0
    _before: dict[str, Any] = field(default_factory=dict)
    _begun: float = field(default_factory=perf_counter)
    _begun_evaluations: int = 0

    def __post_init__(self) -> None:
        self._begun_evaluations = self.environment.evaluations
        self.renew_optimiser()

    @classmethod
    def begin(cls, learner: Learner, environment: Environment, params: TrainingParams, seed: int) -> Training:
        """Return a training that has not begun."""
        return cls(learner, environment, params, torch.Generator().manual_seed(seed))

    def renew_optimiser(self) -> None:
        """Forget the moments of past gradients: in another stage their scale is another one."""
        lessons = self.learner.lessons
        is_taught = lessons is not None and self.stage is TrainingStage.IMITATION
        rate = lessons.learning_rate if lessons is not None and is_taught else self.params.learning_rate
        self.optimiser = torch.optim.Adam(self.learner.policy.parameters(), lr=rate, fused=True)

    def set_rate(self, rate: float) -> None:
        """Set the step size of the optimiser, until the next stage."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def end(self) -> StopReason | None:
        """Return why training is over by its own parameters; None if it is not."""
        if self.update >= self.params.updates:
            return StopReason.ITERATIONS
        num_groups = self.environment.num_groups
        patience = min(self.params.patience, _LEAST_PATIENCE + num_groups + num_groups**2 // 8)
        return StopReason.FINISHED if self.params.patience and self.stale >= patience else None

    def skip_idle_stages(self) -> None:
        """Go to the first stage from here on that has something to learn from."""
        lessons, has_simulator = self.learner.lessons, self.learner.simulator is not self.environment
        if self.stage is TrainingStage.IMITATION and (lessons is None or self.stage_updates >= lessons.updates):
            self.next_stage()
        if (
            self.stage is TrainingStage.REWARDS
            and has_simulator
            and lessons
            and self.stage_updates >= lessons.simulation
        ):
            self.next_stage()
            if self.learner.simulator.best is not None:
                self.environment.costs(self.learner.simulator.best[None])

    def next_stage(self) -> None:
        """Go to the next stage, with an optimiser of its own."""
        self.stage, self.stage_updates = TrainingStage(self.stage + 1), 0
        self.renew_optimiser()

    def begin_update(self) -> None:
        """Remember everything as it is, for `undo_update`."""
        self._before = _copied(self.state())

    def undo_update(self) -> None:
        """Go back to where the update began: a checkpoint of now goes on as if nothing had happened."""
        if self._before:
            self.restore(self._before)

    def score(self, placements: NDArray[np.int64]) -> Tensor:
        """``[batch]`` costs of the placements of one update; keeps `stale`."""
        environment = self.learner.simulator if self.stage is TrainingStage.REWARDS else self.environment
        before = environment.best_objective
        costs = environment.costs(placements)
        if environment is self.environment:
            self.stale = self.stale + 1 if environment.best_objective == before else 0
        return torch.from_numpy(costs).float()

    def descend(self, loss: Tensor) -> float:
        """Take one clipped step of the optimiser down the gradient of `loss`; return the norm before clipping.

        Raises `RewardStopped`: the environment says to stop.
        """
        self.environment.check_stop()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        norm = nn.utils.clip_grad_norm_(self.learner.policy.parameters(), self.params.max_grad_norm)
        if norm.isfinite():
            self.optimiser.step()
        return float(norm)

    def charts(self, costs: Tensor) -> dict[str, float]:
        """Return the metrics of an update that was rewarded."""
        scored = self.environment.evaluations - self._begun_evaluations
        best = self.environment.best_objective
        return {
            "charts/episodic_return": -float(costs.mean()),
            "charts/evaluations": float(self.environment.evaluations),
            "charts/SPS": scored / max(perf_counter() - self._begun, 1e-9),
        } | ({} if best is None else {"charts/best_objective": best})

    def state(self) -> dict[str, Any]:
        """Return everything that an update changes, as tensors and plain values."""
        best = self.environment.best
        return {
            "policy": self.learner.policy.state_dict(),
            "memory": self.learner.memory(),
            "optimiser": {"state": self.optimiser.state_dict()["state"]},  # step sizes are parameters
            "generator": self.generator.get_state(),
            "update": self.update,
            "stale": self.stale,
            "stage": int(self.stage),
            "stage_updates": self.stage_updates,
            "evaluations": self.environment.evaluations,
            "best": None if best is None else torch.from_numpy(best),
            "best_objective": self.environment.best_objective,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned: the next updates are those of an uninterrupted training, bit for bit.

        Raises `InvalidProblemError`: something that `state` did not return for this problem and these parameters.
        """
        if "stage" not in state:
            raise InvalidProblemError(
                "the checkpoint is of an earlier version of placekit, whose trainings cannot go on; begin a training "
                "with its weights: `placekit learn --policy FILE`"
            )
        try:
            self._restore(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise InvalidProblemError(
                f"the checkpoint's training cannot go on: {type(error).__name__}: {first}"
            ) from None

    def _restore(self, state: dict[str, Any]) -> None:
        environment = self.environment
        self.learner.policy.load_state_dict(state["policy"])
        self.learner.remember(state["memory"])
        self.generator.set_state(state["generator"])
        self.update, self.stale, stage, self.stage_updates = (
            _count(state[name], name) for name in ("update", "stale", "stage", "stage_updates")
        )
        self.stage = TrainingStage(stage)
        self.renew_optimiser()
        self._restore_moments(state["optimiser"]["state"])
        best, objective = state["best"], state["best_objective"]
        if (best is None) != (objective is None) or not isinstance(objective, float | None):
            raise ValueError(f"best_objective is {objective!r}")
        environment.best = None if best is None else self._placement(best)
        environment.best_objective = objective
        environment.evaluations = self._begun_evaluations = _count(state["evaluations"], "evaluations")

    def _restore_moments(self, moments: dict[int, dict[str, Tensor]]) -> None:
        """Give the optimiser its moments of past gradients back; torch itself does not compare shapes."""
        groups = self.optimiser.state_dict()["param_groups"]
        weights = [weight for group in self.optimiser.param_groups for weight in group["params"]]
        for index, of_weight in moments.items():
            if of_weight.keys() != {"step", "exp_avg", "exp_avg_sq"}:
                raise ValueError(f"weight {index} has moments {sorted(of_weight)}")
            for name, moment in of_weight.items():
                shape, kind = weights[index].shape, weights[index].dtype
                if name == "step":
                    shape, kind = torch.Size(), torch.float32
                if moment.shape != shape or moment.dtype != kind:
                    raise ValueError(f"{name} of weight {index} has shape {tuple(moment.shape)} of {moment.dtype}")
        self.optimiser.load_state_dict({"state": moments, "param_groups": groups})

    def _placement(self, values: Tensor) -> NDArray[np.int64]:
        problem = self.environment.problem
        if values.dtype != torch.int64 or values.shape != (problem.graph.num_ops,):
            raise ValueError(f"a placement of shape {tuple(values.shape)} and type {values.dtype}")
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < problem.platform.num_devices:
            raise ValueError("a placement on devices that are none")
        found: NDArray[np.int64] = values.numpy()
        return found


def train(
    training: Training,  # what to train
    should_stop: Callable[[], StopReason | None],  # asked before every update
    on_update: Callable[[Metrics], None],  # called after every update
) -> StopReason:
    r"""Train until told to stop, from where the training stands; return why it ended.

    A rewarded update takes one or several steps of Adam along

    .. math:: \nabla \frac{1}{B} \sum_i A_i \log \pi(a_i) + \beta \frac{1}{n} \sum_i H_i

    over the ``n`` decisions :math:`a_i` of ``B`` placements, with the learner's advantages :math:`A_i` (REINFORCE).
    With several steps, the first term is PPO's clipped surrogate.
    """
    learner, params, generator = training.learner, training.params, training.generator
    num_groups = training.environment.num_groups
    while True:
        training.skip_idle_stages()
        reason = should_stop() or training.end()
        if reason is not None:
            return reason
        training.begin_update()
        stage = training.stage

        if stage is TrainingStage.IMITATION and learner.lessons is not None:  # learn what the teacher would do
            loss, log_probs = learner.lesson(generator)
            deviations = float((1 - log_probs.detach().exp()).mean()) * num_groups
            if deviations <= min(learner.lessons.deviations, LARGEST_SHARE * num_groups):
                training.next_stage()
                continue
            told = {"cross_entropy": loss.item(), "deviations": deviations, "grad_norm": training.descend(loss)}
            values = {f"imitation/{name}": value for name, value in told.items()}

        else:  # learn from rewards
            rollout = learner.rollout(generator)
            costs = training.score(rollout.placements)
            advantages = learner.advantages(rollout, costs)
            log_probs, entropies = rollout.log_probs, rollout.entropies
            old = log_probs.detach()
            for epoch in range(learner.epochs):
                if epoch:
                    log_probs, entropies = learner.replay(rollout)
                change = log_probs - old
                ratio = change.exp()
                clipped = ratio.clamp(1 - learner.clip, 1 + learner.clip)
                gain = torch.minimum(advantages * ratio, advantages * clipped)
                policy_loss = -(gain if learner.epochs > 1 else advantages * log_probs).sum() / len(costs)
                mean_entropy = entropies.mean()
                grad_norm = training.descend(policy_loss - params.entropy_weight(training.update) * mean_entropy)
            told = {"policy_loss": policy_loss.item(), "entropy": mean_entropy.item(), "grad_norm": grad_norm}
            if learner.epochs > 1:
                told["clipfrac"] = float((ratio != clipped).float().mean())
                told["approx_kl"] = float((ratio - 1 - change).mean().detach())
            values = training.charts(costs) | {f"losses/{name}": value for name, value in told.items()}

        training.update += 1
        training.stage_updates += 1
        on_update(Metrics(training.update, values | {"charts/stage": float(stage)}))


def _count(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def _copied(value: Any) -> Any:
    """Return nested dictionaries with copies of their tensors; deepcopy takes twenty times as long."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return value.clone() if isinstance(value, Tensor) else value
