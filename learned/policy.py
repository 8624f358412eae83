"""A trained policy as a method: ``placekit solve --method policy:policy.pt``.

``policy:pretrained`` is the policy that comes with placekit, for any objective and platform: trained by imitation on
generated problems (:mod:`placekit.learned.imitation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from placekit.learned.environment import Environment
from placekit.learned.learner import Learner
from placekit.learned.method import LearnedMethod, apply_weights, offer_decoded, policy_path, seeded_learner
from placekit.learned.rewards import RewardStopped
from placekit.learned.training.checkpoint import ANY_DEVICES, Checkpoint, read_checkpoint
from placekit.learned.training.pace import out_of_time
from placekit.learned.training.threads import one_thread
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run
from placekit.solve.params import read_params
from placekit.solve.registry import METHODS, get_method
from placekit.solve.stop import StopReason
from placekit.solvers.generic.excess import offer_first_answers

MAX_PARAM = 1_000_000
"""Parameters of a policy file beyond this are no parameters of a training that ever ran."""
_MOST_LAYERS = 64


@dataclass(frozen=True, slots=True)
class PolicyParams:
    """Parameters of `TrainedPolicy`.

    Parameters
    ----------
    rollouts
        Batches of samples beside the policy's own answer, milliseconds each; 0 for that answer alone. ``pretrained``
        draws none for more than 2,000 ops.
    """

    rollouts: int = 32

    def __post_init__(self) -> None:
        if self.rollouts < 0:
            raise InvalidProblemError(f"policy: rollouts is {self.rollouts}; it must be >= 0")


class TrainedPolicy(Method):
    """Applies the policy of a checkpoint to a problem, which need not be the one it was trained on: no weight changes.

    Parameters
    ----------
    path
        Policy file of any learned method.
    params
        Parameters.

    Raises
    ------
    InvalidFileError
        A file that is no policy.
    """

    name = "policy"

    def __init__(self, path: Path, params: PolicyParams | None = None) -> None:
        self.path = path
        self.params = params or PolicyParams()
        self.checkpoint = read_checkpoint(path)
        self.method = _method_of(self.checkpoint, path)

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; ``policy:PATH`` names the file, ``policy:pretrained`` the one that comes with placekit."""
        if argument is None:
            raise InvalidProblemError("method 'policy' needs a file: policy:PATH")
        path = policy_path(argument)
        return cls(path, read_params(PolicyParams, cls.name, params))

    def supports(self, problem: Problem) -> str | None:
        """Return None if the policy chooses among as many devices as the problem has, or among any number."""
        expected, found = self.checkpoint.num_devices, problem.platform.num_devices
        if expected not in (ANY_DEVICES, found):
            return f"the policy chooses among {expected} devices, the problem has {found}"
        return self.method.supports(problem)

    @one_thread()
    def run(self, run: Run) -> StopReason:
        """Offer the policy's own answers, then the best of its samples."""
        start = run.placement or run.warm_start
        environment = Environment(run.problem)
        environment.should_stop = partial(out_of_time, run)
        learner = seeded_learner(self.method, environment, run.seed)
        apply_weights(learner, self.checkpoint, self.method.name, run.problem)
        if start is not None:
            learner.prefer(start.device_of_op)
        offer_decoded(run, environment, learner)
        reason = self._sample(run, environment, learner)
        if run.placement is None:
            offer_first_answers(run)
        environment.should_stop = None
        return reason

    def _sample(self, run: Run, environment: Environment, learner: Learner) -> StopReason:
        """Offer the best of the samples."""
        generator = torch.Generator().manual_seed(run.seed)
        limit = self.method.max_sampled_ops
        for _ in range(self.params.rollouts if limit is None or run.problem.graph.num_ops <= limit else 0):
            reason = run.should_stop()
            if reason is not None:
                return reason
            before = environment.evaluations
            try:
                with torch.no_grad():
                    environment.evaluate(learner.rollout(generator).placements)
            except RewardStopped as stopped:
                return stopped.reason
            finally:
                run.count_evaluations(environment.evaluations - before)
                if environment.best is not None:
                    run.offer(environment.answer(environment.best))
        return StopReason.FINISHED


def _method_of(checkpoint: Checkpoint, path: Path) -> LearnedMethod:
    entry = METHODS.get(checkpoint.method)
    if entry is None or entry.family != "learned" or entry.argument:
        raise InvalidFileError(f"{path}: a policy of {checkpoint.method!r}, which is no learned method")
    _check_size(checkpoint, path)
    try:
        known = {field.name for field in fields(get_method(checkpoint.method).params)}  # others are of earlier versions
        params = {name: value for name, value in checkpoint.params.items() if name in known}
        method = get_method(checkpoint.method, params)
    except (InvalidProblemError, UnknownNameError) as error:
        raise InvalidFileError(f"{path}: {error}") from None
    assert isinstance(method, LearnedMethod)  # the family says so
    return method


def _check_size(checkpoint: Checkpoint, path: Path) -> None:
    """Refuse parameters of a larger network than the file has weights of: it would be built before it is compared."""
    weights = checkpoint.transferable.values()
    limits = dict.fromkeys(("rounds", "layers", "levels", "heads"), max(_MOST_LAYERS, len(weights)))
    limits["hidden"] = max((max(each.shape, default=1) for each in weights), default=1)
    for name, value in checkpoint.params.items():
        limit = limits.get(name, MAX_PARAM)
        if isinstance(value, int | float) and not -MAX_PARAM <= value <= limit:
            raise InvalidFileError(f"{path}: parameter {name!r} is {value!r}; the limit is {limit}")
