"""A training: what every policy-gradient learner shares, from samples to a step of the optimiser.

====================== ================================================================
metric                 meaning
====================== ================================================================
charts/episodic_return minus the mean cost of the update's samples; cost 1 = best single device
charts/best_objective  best objective so far, seconds
charts/evaluations     placements scored so far
charts/SPS             placements scored per second since the start
losses/policy_loss     minus the mean of advantage times log-probability
losses/entropy         mean entropy of a decision, nats
losses/grad_norm       norm of the gradient before clipping
====================== ================================================================

The tags are those of CleanRL.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placekit.learned.adam import Adam
from placekit.learned.environment import Environment
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import StopReason

__all__ = [
    "Learner",
    "Loop",
    "Metrics",
    "Rollout",
    "Training",
    "TrainingParams",
    "descend",
    "permitted",
]

_LEAST_PATIENCE = 2


class Rollout(NamedTuple):
    """A batch of placements and the decisions that made them.

    Parameters
    ----------
    placements
        ``[batch, num_ops]`` device indices.
    row
        ``[decisions]`` the placement that each decision belongs to.
    log_probs
        ``[decisions]`` log-probability of what was decided, with gradient.
    entropies
        ``[decisions]`` entropy of the distribution decided from, nats, with gradient.
    """

    placements: NDArray[np.int64]
    row: Tensor
    log_probs: Tensor
    entropies: Tensor


class Learner(Protocol):
    """A policy for one problem: what the loop samples from and updates."""

    @property
    def policy(self) -> nn.Module:
        """Every weight that is trained. What carries over to other problems is `transferable`."""
        ...

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample placements; all randomness comes from `generator`."""
        ...

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` how much better than usual each decision did, from costs ``[batch]``. No gradient."""
        ...

    def decode(self) -> NDArray[np.int64]:
        """``[count, num_ops]`` the policy's own answers, without randomness."""
        ...

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement` ``[num_ops]``: a warm start. Called at most once, before training.

        With `TrainingParams.clone` updates to come, no bias is set: the policy learns by itself where to begin.
        """
        ...

    def log_probs_of(self, placements: NDArray[np.int64], generator: torch.Generator) -> Tensor:
        """``[decisions]`` log-probabilities, with gradient, of decisions that make `placements` ``[count, num_ops]``.

        Those that a mask forbids are left out. Whatever else the policy samples comes from `generator`.
        """
        ...

    def transferable(self) -> dict[str, Tensor]:
        """Return the weights that mean something for another problem, by name in `policy`."""
        ...

    def memory(self) -> dict[str, Tensor]:
        """Return what the learner remembers beside weights, such as a baseline; for checkpoints."""
        ...

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        ...


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
    clone
        With a warm start, most updates of behaviour cloning before everything else (:mod:`placekit.learned.cloning`).
        0: the policy is biased towards the warm start, no more.
    clone_deviations
        Cloning ends once about so many groups of a placement, or a tenth of them where that is fewer, are not where the
        warm start has them: the policy has to go on exploring.
    learning_rate
        Step size of Adam; 0 for a control that draws as often and learns nothing.
    max_grad_norm
        Gradients are scaled down to this norm.
    entropy_start, entropy_end, entropy_updates
        Weight of the entropy bonus: from the first value to the second, in a line, over so many updates.

    Raises
    ------
    InvalidProblemError
        A value out of its range.
    """

    updates: int = 1000
    patience: int = 0
    clone: int = 100
    clone_deviations: float = 6.0
    learning_rate: float = 1e-3
    max_grad_norm: float = 1.0
    entropy_start: float = 0.0
    entropy_end: float = 0.0
    entropy_updates: int = 100

    def __post_init__(self) -> None:
        self.require("entropy_updates", least=1)
        self.require("updates", "patience", "clone", "clone_deviations", "entropy_start", "entropy_end", least=0)
        self.require("learning_rate", least=0)
        if not self.max_grad_norm > 0:
            raise InvalidProblemError(f"parameter 'max_grad_norm' is {self.max_grad_norm}; it must be > 0")

    def require(self, *names: str, least: float) -> None:
        """Raise InvalidProblemError for the first parameter of `names` that is below `least`."""
        for name in names:
            if not getattr(self, name) >= least:
                raise InvalidProblemError(f"parameter {name!r} is {getattr(self, name)}; it must be >= {least:g}")

    def entropy_weight(self, update: int) -> float:
        """Return the weight of the entropy bonus at an update."""
        share = min(1.0, update / self.entropy_updates)
        return self.entropy_start + (self.entropy_end - self.entropy_start) * share


@dataclass(frozen=True)
class Metrics:
    """What one update has to say; see the module docstring.

    Parameters
    ----------
    update
        Updates done.
    values
        Values by tag.
    """

    update: int
    values: dict[str, float]


@dataclass
class Training:
    """A training in progress: everything that an update changes, and so everything that a checkpoint keeps.

    Parameters
    ----------
    learner, environment, params
        Who learns, where, and how.
    optimiser
        Adam over the learner's weights.
    generator
        Source of all randomness.
    update
        Updates done.
    stale
        Updates since the best placement was found.
    wanted
        ``[count, num_ops]`` placements to clone first; None for none, or if that is done.
    cloned
        Updates of cloning done.
    """

    learner: Learner
    environment: Environment
    params: TrainingParams
    optimiser: Adam
    generator: torch.Generator
    update: int = 0
    stale: int = 0
    wanted: NDArray[np.int64] | None = None
    cloned: int = 0
    _before: dict[str, Any] = field(default_factory=dict)
    _begun: float = field(default_factory=perf_counter)
    _begun_evaluations: int = 0

    @classmethod
    def begin(cls, learner: Learner, environment: Environment, params: TrainingParams, seed: int) -> Training:
        """Return a training that has not begun."""
        generator = torch.Generator().manual_seed(seed)
        begun = environment.evaluations
        return cls(learner, environment, params, _adam(learner, params), generator, _begun_evaluations=begun)

    def renew_optimiser(self) -> None:
        """Forget the moments of past gradients."""
        self.optimiser = _adam(self.learner, self.params)

    def end(self) -> StopReason | None:
        """Return why training is over by its own parameters; None if it is not."""
        if self.update >= self.params.updates:
            return StopReason.ITERATIONS
        num_groups = self.environment.num_groups
        patience = min(self.params.patience, _LEAST_PATIENCE + num_groups + num_groups**2 // 8)
        return StopReason.FINISHED if self.params.patience and self.stale >= patience else None

    def begin_update(self) -> None:
        """Remember everything as it is, for `undo_update`."""
        self._before = deepcopy(self.state())

    def rollout(self) -> Rollout:
        """Begin an update with the placements of the learner."""
        self.begin_update()
        return self.learner.rollout(self.generator)

    def undo_update(self) -> None:
        """Go back to where the update began: a checkpoint of now goes on as if nothing had happened."""
        if self._before:
            self.restore(self._before)

    def score(self, placements: NDArray[np.int64]) -> Tensor:
        """``[batch]`` costs of the placements of one update; keeps `stale`."""
        before = self.environment.best_objective
        costs = self.environment.costs(placements)
        self.stale = self.stale + 1 if self.environment.best_objective == before else 0
        return torch.from_numpy(costs).float()

    def metrics(self, costs: Tensor, losses: dict[str, float]) -> Metrics:
        """Return the metrics of the update that ends now."""
        self.update += 1
        scored = self.environment.evaluations - self._begun_evaluations
        charts = {
            "charts/episodic_return": -float(costs.mean()),
            "charts/evaluations": float(self.environment.evaluations),
            "charts/SPS": scored / max(perf_counter() - self._begun, 1e-9),
        }
        if self.environment.best_objective is not None:
            charts["charts/best_objective"] = self.environment.best_objective
        return Metrics(self.update, charts | {f"losses/{name}": value for name, value in losses.items()})

    def state(self) -> dict[str, Any]:
        """Return everything that an update changes, as tensors and plain values."""
        best = self.environment.best
        return {
            "policy": self.learner.policy.state_dict(),
            "memory": self.learner.memory(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "update": self.update,
            "stale": self.stale,
            "wanted": None if self.wanted is None else torch.tensor(self.wanted),
            "cloned": self.cloned,
            "evaluations": self.environment.evaluations,
            "best": None if best is None else torch.from_numpy(best),
            "best_objective": self.environment.best_objective,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` returned: the next updates are those of an uninterrupted training, bit for bit.

        Raises
        ------
        InvalidProblemError
            Something that `state` did not return for this problem and these parameters.
        """
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
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["generator"])
        wanted = state.get("wanted")  # files from before there was any cloning have none
        self.wanted = None if wanted is None else self._placements(wanted)
        self.update, self.stale, self.cloned = (
            _count(state.get(name, 0), name) for name in ("update", "stale", "cloned")
        )
        best, objective = state["best"], state["best_objective"]
        if (best is None) != (objective is None) or not isinstance(objective, float | None):
            raise ValueError(f"best_objective is {objective!r}")
        environment.best = None if best is None else self._placements(best[None])[0]
        environment.best_objective = objective
        environment.evaluations = self._begun_evaluations = _count(state["evaluations"], "evaluations")

    def _placements(self, values: Tensor) -> NDArray[np.int64]:
        """Return ``[count, num_ops]`` device indices that are some."""
        problem = self.environment.problem
        shape = (len(values), problem.graph.num_ops)
        if values.dtype != torch.int64 or values.shape != shape:
            raise ValueError(f"a placement of shape {tuple(values.shape)} and type {values.dtype}")
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < problem.platform.num_devices:
            raise ValueError("a placement on devices that are none")
        found: NDArray[np.int64] = values.numpy()
        return found


class Loop(Protocol):
    """Trains until told to stop, one update after the other."""

    def __call__(
        self, training: Training, should_stop: Callable[[], StopReason | None], on_update: Callable[[Metrics], None]
    ) -> StopReason:
        """Train, and return why it ended.

        Parameters
        ----------
        training
            What to train, from where it stands.
        should_stop
            Asked before every update.
        on_update
            Called after every update.
        """
        ...


def _count(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value


def permitted(log_probs: Tensor) -> Tensor:
    """Return the entries that no mask has made impossible, in one row; a certainty if there are none."""
    kept = log_probs[log_probs > -torch.inf]
    return kept if kept.numel() else log_probs.new_zeros(1)


def _adam(learner: Learner, params: TrainingParams) -> Adam:
    return Adam(learner.policy.parameters(), params.learning_rate)


def descend(training: Training, loss: Tensor) -> float:
    """Take one clipped step of the optimiser down the gradient of `loss`; return the norm before clipping.

    Raises
    ------
    RewardStopped
        The environment says to stop.
    """
    training.environment.check_stop()
    training.optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
    norm = nn.utils.clip_grad_norm_(training.learner.policy.parameters(), training.params.max_grad_norm)
    training.optimiser.step()
    return float(norm)
