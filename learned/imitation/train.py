"""``placekit learn --train``: one network for all problems of a data set, by imitation and the relaxed objective.

1. Read the data set; every sixteenth problem is kept aside to measure on.
2. Each step takes the next problems of a random order until their states fill a batch, draws the number of rounds, and
   makes one step of Adam along the loss of :mod:`placekit.learned.imitation.losses`. The step size rises over the first
   steps, then falls along a cosine to zero.
3. Now and then the file is written; it is a policy at any time, and training can go on from it, also with more shards.

====================== =========================================================================================
metric                 meaning
====================== =========================================================================================
losses/loss            loss of the step
losses/surprise        cross-entropy of an op's device in the label, nats
losses/promised        log of relaxed objective over that of the label
losses/start           squared error of an op's start as a share of the makespan
valid/<objective>      mean of objective over that of the label, minus 1, of the likeliest devices, problems kept aside
====================== =========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from placekit.learned.checkpoint import ANY_DEVICES, Checkpoint, read_checkpoint, write_checkpoint
from placekit.learned.imitation.dataset import read_dataset
from placekit.learned.imitation.inputs import OBJECTIVES, collate
from placekit.learned.imitation.losses import imitation_loss
from placekit.learned.imitation.network import StateNetwork
from placekit.learned.imitation.targets import Example, collate_targets, example_of
from placekit.learned.threads import one_thread
from placekit.learned.training import Metrics
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import StopReason

__all__ = ["METHOD", "ImitationParams", "steps_done", "train"]

METHOD = "imitation"
_ASIDE = 16
_WARM_UP = 50


@dataclass(frozen=True)
class ImitationParams:
    """Parameters of `train`.

    Parameters
    ----------
    hidden
        Width of a state.
    least_rounds, most_rounds
        Rounds of messages, drawn for every step.
    states
        States of a batch, about: pairs of op and device.
    learning_rate
        Largest step size.
    steps
        Steps in all.
    max_grad_norm
        Gradients are scaled down to this norm.
    imitation, relaxed
        Weights of the parts of the loss: of surprise and starts, and of the relaxed objective. 0 for a part that is
        left out; without imitation labels only set the scale.
    """

    hidden: int = 32
    least_rounds: int = 8
    most_rounds: int = 12
    states: int = 3000
    learning_rate: float = 2e-3
    steps: int = 2000
    max_grad_norm: float = 1.0
    imitation: float = 1.0
    relaxed: float = 2.0

    def __post_init__(self) -> None:
        for name in ("hidden", "least_rounds", "states", "steps"):
            if getattr(self, name) < 1:
                raise InvalidProblemError(f"training: {name} is {getattr(self, name)}; it must be >= 1")
        if self.most_rounds < self.least_rounds:
            raise InvalidProblemError(f"training: most_rounds is {self.most_rounds}, below least_rounds")
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise InvalidProblemError(f"training: {name} is {getattr(self, name)}; it must be > 0")
        for name in ("imitation", "relaxed"):
            if not getattr(self, name) >= 0:
                raise InvalidProblemError(f"training: {name} is {getattr(self, name)}; it must be >= 0")
        total = self.imitation + self.relaxed
        if not 0 < total < math.inf:
            raise InvalidProblemError(f"training: imitation + relaxed is {total}; it must be finite and > 0")

    def rate(self, step: int) -> float:
        """Return the step size at a step."""
        return self.learning_rate * min(1.0, (step + 1) / _WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / self.steps))


class _Training:
    """State that a training step changes."""

    def __init__(self, params: ImitationParams, seed: int, device: torch.device) -> None:
        self.params, self.seed, self.device = params, seed, device
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            self.network = StateNetwork(params.hidden).to(device)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=params.learning_rate)
        self.rng = np.random.default_rng(seed)
        self.step = 0

    def advance(self, examples: Sequence[Example]) -> dict[str, float]:
        """Make one step on a batch."""
        params = self.params
        batch = collate([each.inputs for each in examples]).to(self.device)
        targets = collate_targets(examples).to(self.device)
        for group in self.optimiser.param_groups:
            group["lr"] = params.rate(self.step)
        rounds = int(self.rng.integers(params.least_rounds, params.most_rounds + 1))
        scores = self.network(batch, rounds)
        loss, parts = imitation_loss(batch, scores, targets, params.imitation, params.relaxed)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), params.max_grad_norm)
        if bool(norm.isfinite()):
            self.optimiser.step()
        self.step += 1
        return {"loss": float(loss.detach())} | {name: float(values.mean()) for name, values in parts.items()}

    def begin_with(self, checkpoint: Checkpoint) -> None:
        """Take the weights of a policy; steps and step sizes are those of a new training.

        Raises
        ------
        InvalidProblemError
            A policy of another method or width.
        """
        if checkpoint.method != METHOD:
            raise InvalidProblemError(f"the policy is of method {checkpoint.method!r}, not of {METHOD!r}")
        try:
            self.network.load_state_dict(dict(checkpoint.transferable))
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            raise InvalidProblemError(f"the policy's weights do not fit: {first}") from None

    def checkpoint(self) -> Checkpoint:
        """Return everything as a policy that can be trained on."""
        weights = {name: value.detach().cpu() for name, value in self.network.state_dict().items()}
        state = {"optimiser": self.optimiser.state_dict(), "step": self.step, "seed": self.seed}
        params = asdict(self.params)
        return Checkpoint(METHOD, _policy_params(params), ANY_DEVICES, "", weights, state | {"params": params})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint.

        Raises
        ------
        InvalidProblemError
            A checkpoint of another method or width, or without a state of training.
        """
        state = checkpoint.training
        if checkpoint.method != METHOD or state is None:
            raise InvalidProblemError("the checkpoint is of no training by imitation")
        try:
            self.network.load_state_dict(dict(checkpoint.transferable))
            self.optimiser.load_state_dict(state["optimiser"])
            self.step = int(state["step"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise InvalidProblemError(f"the checkpoint's training cannot go on: {first}") from None
        self.rng = np.random.default_rng((self.seed, self.step))


def steps_done(path: Path) -> int:
    """Return how many steps of training the policy file `path` is of; 0 for one that cannot be trained on."""
    step = (read_checkpoint(path).training or {}).get("step", 0)
    return step if isinstance(step, int) else 0


def _policy_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the method that applies the policy."""
    return {"hidden": params["hidden"], "rounds": params["most_rounds"]}


def _batches(examples: Sequence[Example], training: _Training) -> Iterator[list[Example]]:
    """Yield batches for ever, each of about as many states as asked."""
    batch: list[Example] = []
    states = 0
    while True:
        for at in training.rng.permutation(len(examples)).tolist():
            size = len(examples[at].inputs.allowed)
            if batch and states + size > training.params.states:
                yield batch
                batch, states = [], 0
            batch.append(examples[at])
            states += size


def _measure(training: _Training, aside: Sequence[Example], rounds: int) -> dict[str, float]:
    """Return the mean excess over the label by objective, of the likeliest devices; memory is not looked at."""
    excess: dict[str, list[float]] = {}
    with torch.no_grad():
        for example in aside:
            scores = training.network(collate([example.inputs]).to(training.device), rounds)
            shape = example.inputs.num_ops, example.inputs.num_devices
            devices = scores.log_probs.cpu().reshape(shape).argmax(dim=1).numpy()
            value = float(example.judge(devices[None])[0]) / example.inputs.unit_s
            excess.setdefault(OBJECTIVES[example.inputs.objective], []).append(value / example.objective - 1)
    return {f"valid/{name}": float(np.mean(values)) for name, values in sorted(excess.items())}


@one_thread()
def train(
    dataset: Path,
    output: Path,
    params: ImitationParams | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    policy: Path | None = None,
    resume: Path | None = None,
    checkpoint_every_s: float = 60.0,
    measure_every: int = 100,
    should_stop: Callable[[], StopReason | None] = lambda: None,
    on_update: Callable[[Metrics], None] = lambda _: None,
) -> StopReason:
    """Train a policy on a data set and write it; return why training ended.

    Parameters
    ----------
    dataset
        Folder of the data set.
    output
        Policy file, written every `checkpoint_every_s` seconds and at the end.
    params
        Parameters; the defaults if None.
    seed
        Seed of weights, order and rounds.
    device
        Device of torch: ``"cpu"``, ``"cuda"``.
    policy
        Policy whose weights to begin with; new ones if None.
    resume
        File of an earlier training to go on from.
    measure_every
        Steps between two measurements on the problems kept aside.
    should_stop
        Asked before every step.
    on_update
        Called after every step.

    Raises
    ------
    InvalidFileError
        No data set, or a damaged one.
    InvalidProblemError
        A device that torch does not have, or a file that cannot be begun with or resumed.
    """
    params = params or ImitationParams()
    training = _Training(params, seed, _device(device))
    if policy is not None:
        training.begin_with(read_checkpoint(policy))
    if resume is not None:
        training.restore(read_checkpoint(resume))
    examples, aside = list[Example](), list[Example]()
    for number, labelled in enumerate(read_dataset(dataset)):
        (examples if number % _ASIDE else aside).append(example_of(labelled))
    if not examples:
        raise InvalidProblemError(
            f"data set {dataset} has {len(aside)} problems to measure on and none to learn from; training needs at "
            "least 2 problems"
        )
    saved = perf_counter()
    reason: StopReason | None = None
    for batch in _batches(examples, training):
        reason = should_stop() or (StopReason.ITERATIONS if training.step >= params.steps else None)
        if reason is not None:
            break
        values = {f"losses/{name}": value for name, value in training.advance(batch).items()}
        if training.step % measure_every == 0:
            values |= _measure(training, aside, params.most_rounds)
        on_update(Metrics(training.step, values))
        if perf_counter() - saved >= checkpoint_every_s:
            write_checkpoint(output, training.checkpoint())
            saved = perf_counter()
    write_checkpoint(output, training.checkpoint())
    assert reason is not None  # batches never end
    return reason


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise InvalidProblemError(f"torch has no device {name!r} here: {first}") from None
    return device
