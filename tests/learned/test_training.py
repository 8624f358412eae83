"""The loop: schedules, ends, metrics, the journal; PPO and REINFORCE learn a bandit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import placekit as pk
from placekit.learned.environment import Environment
from placekit.learned.hsdag.learner import HsdagLearner
from placekit.learned.hsdag.params import HsdagParams
from placekit.learned.learner import Learner, MovingBaseline, Rollout, TrainingParams, batch_advantages
from placekit.learned.training.journal import Journal
from placekit.learned.training.loop import Metrics, Training, train
from placekit.model.errors import InvalidProblemError
from placekit.solve.stop import StopReason


class Independent(Learner):
    """The simplest learner: a logit per op and device, nothing shared."""

    def __init__(self, environment: Environment, epochs: int = 1) -> None:
        super().__init__(environment, TrainingParams())
        self.epochs = epochs
        self.policy: nn.Module = nn.ParameterList([torch.zeros(environment.num_groups, environment.num_devices)])
        self.actions = torch.empty(0)

    def _log_probs(self) -> Tensor:
        return torch.log_softmax(next(iter(self.policy.parameters())), dim=1)

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample 32 placements."""
        self.actions = torch.multinomial(self._log_probs().detach().exp(), 32, replacement=True, generator=generator).T
        rows = torch.arange(32).repeat_interleave(self.environment.num_groups)
        return Rollout(self.environment.expand(self.actions.numpy()), rows, *self._told())

    def _told(self) -> tuple[Tensor, Tensor]:
        log_probs = self._log_probs()
        entropy = -(log_probs.exp() * log_probs).sum(dim=1)
        return log_probs[torch.arange(len(log_probs)), self.actions].flatten(), entropy.repeat(32)

    def replay(self, rollout: Rollout) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Score the last actions anew."""
        return self._told()

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """Standardised within the batch."""
        return batch_advantages(costs)[rollout.row]

    def decode(self) -> NDArray[np.int64]:
        """Likeliest devices."""
        return self.environment.expand(self._log_probs().argmax(dim=1).numpy()[None])

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Nothing to prefer."""

    def memory(self) -> dict[str, Tensor]:
        """Nothing to remember."""
        return {}


@pytest.mark.parametrize("epochs", [1, 4], ids=["reinforce", "ppo"])
def test_both_gradients_learn_the_optimum_of_the_toy(toy: pk.Problem, epochs: int) -> None:
    """The likeliest placement becomes the optimum, and the metrics say how."""
    environment = Environment(toy)
    learner = Independent(environment, epochs)
    params = TrainingParams(updates=150, learning_rate=0.1, max_grad_norm=10.0)
    heard: list[Metrics] = []
    reason = train(Training.begin(learner, environment, params, seed=1), lambda: None, heard.append)
    assert reason is StopReason.ITERATIONS
    assert environment.evaluate(learner.decode()).tolist() == [15.0]
    assert [metrics.update for metrics in heard] == list(range(1, 151))
    assert heard[-1].values["charts/best_objective"] == 15.0
    assert heard[-1].values["charts/evaluations"] == 150 * 32 + len(environment.single_devices)
    assert heard[-1].values["losses/entropy"] < heard[0].values["losses/entropy"]
    assert heard[-1].values["charts/episodic_return"] > heard[0].values["charts/episodic_return"]


def test_training_ends_when_nothing_improves(toy: pk.Problem) -> None:
    """Patience is less for few groups: for 6, 2 + 6 + 36 // 8 updates; a stop from outside comes first."""
    environment = Environment(toy)
    training = Training.begin(Independent(environment), environment, TrainingParams(patience=1000), seed=0)
    assert train(training, lambda: StopReason.TIME, lambda _: None) is StopReason.TIME
    assert training.update == 0
    assert train(training, lambda: None, lambda _: None) is StopReason.FINISHED
    assert training.stale == 12


def test_the_entropy_bonus_falls_in_a_line() -> None:
    """From start to end over so many updates, then constant."""
    params = TrainingParams(entropy_start=1.0, entropy_end=0.5, entropy_updates=10)
    assert [params.entropy_weight(update) for update in (0, 5, 10, 99)] == [1.0, 0.75, 0.5, 0.5]


@pytest.mark.parametrize(
    ("values", "message"),
    [({"updates": -1}, "'updates' is -1"), ({"learning_rate": -1.0}, "'learning_rate' is -1.0; it must be >= 0")],
)
def test_values_out_of_range_are_named(values: dict[str, float], message: str) -> None:
    """By parameter and value."""
    with pytest.raises(InvalidProblemError, match=message):
        TrainingParams(**values)  # type: ignore[arg-type]  # that is the point


def test_advantages_have_no_bias_of_their_own() -> None:
    """A sample does not enter its own baseline; equal costs teach nothing; an average follows the costs."""
    costs = torch.tensor([1.0, 2.0, 6.0])
    found = batch_advantages(costs)
    assert found.tolist() == pytest.approx((torch.tensor([3.0, 1.5, -4.5]) / costs.std()).tolist())
    assert batch_advantages(torch.ones(4)).tolist() == [0.0] * 4
    assert batch_advantages(torch.ones(1)).tolist() == [0.0]
    baseline = MovingBaseline(decay=0.5)
    assert baseline.memory() == {}
    assert baseline.advantages(torch.tensor([1.0, 3.0])).tolist() == [1.0, -1.0]
    assert baseline.advantages(torch.tensor([4.0])).tolist() == [-2.0]
    assert baseline.memory()["baseline"].item() == 3.0


def test_the_journal_appends_a_line_per_update(tmp_path: Path) -> None:
    """JSON lines, flushed; TensorBoard events where it is installed."""
    for update in (1, 2):
        with Journal(tmp_path / "log") as journal:
            journal(Metrics(update, {"charts/SPS": 2.0}))
    lines = (tmp_path / "log" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"update": 1, "charts/SPS": 2.0}, {"update": 2, "charts/SPS": 2.0}]


def _trained(toy: pk.Problem, **params: Any) -> tuple[HsdagLearner, dict[str, torch.Tensor]]:
    """Return a learner after some updates, and its weights before."""
    environment = Environment(toy)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        chosen = HsdagParams(updates=3, restart=0, **params)
        learner = HsdagLearner(environment, chosen)
    before = {name: value.clone() for name, value in learner.policy.state_dict().items()}
    train(Training.begin(learner, environment, chosen, 0), lambda: None, lambda _: None)
    return learner, before


def test_with_a_learning_rate_of_zero_no_weight_changes(toy: pk.Problem) -> None:
    """It draws, scores and remembers, and learns nothing."""
    learner, before = _trained(toy, learning_rate=0.0)
    assert all(torch.equal(value, before[name]) for name, value in learner.policy.state_dict().items())
    assert learner.environment.evaluations > 100
