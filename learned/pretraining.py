"""Pretraining: one policy for many problems, so that it has something to say about a graph it never saw.

GDP's batch training (section 3.4 of the paper): the problems take turns, in a new random order every round; each turn
is one update of PPO on samples of that problem, and all of them train the same network. The step size falls in a line
to zero, so that the last problems of the last round do not undo what others taught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import torch

from placekit.cost_models.accelerator import Accelerator
from placekit.cost_models.analytic import Analytic
from placekit.errors import InvalidProblemError
from placekit.learned.adam import Adam
from placekit.learned.architectures import random_architecture
from placekit.learned.checkpoint import Checkpoint
from placekit.learned.environment import Environment
from placekit.learned.gdp.method import GdpLearner, GdpParams
from placekit.learned.gdp.network import GdpNetwork
from placekit.learned.ppo import ppo
from placekit.learned.threads import one_thread
from placekit.learned.training import Metrics, Training
from placekit.objectives import Objective, SerialLatency
from placekit.platform import Link, Platform
from placekit.problem import Problem
from placekit.stop import StopReason

__all__ = ["pretrain", "pretraining_problem"]


def pretraining_problem(seed: int, objective: Objective | None = None) -> Problem:
    """Return a generated model on a CPU and an accelerator; same seed, same problem.

    The model is a `random_architecture`; the CPU has one or eight cores of the analytic table; the accelerator is 0.8
    to 4 times as fast, with a link, a launch cost and ratios between op types that vary around those of
    :class:`~placekit.cost_models.accelerator.Accelerator`.

    Parameters
    ----------
    seed
        Seed of every choice.
    objective
        What to minimise; serial latency if None. A policy does not see the objective: train one for each.
    """
    rng = np.random.default_rng((seed, 0x9D9))
    graph = random_architecture(rng, str(seed))
    spec = str(rng.choice(["cpu-core-f32", "cpu-8core-f32"]))
    cpu = Analytic({"cpu": spec}).cost_table(graph, Platform.of(cpu=1, host="cpu"))
    total, launches = float(cpu.op_time_s.sum()), int((cpu.op_time_s > 0).sum())
    ratio = float(np.exp(rng.uniform(np.log(0.8), np.log(4.0))))
    base = Accelerator()
    accelerator = Accelerator(
        ratios={name: value * float(rng.lognormal(0.0, 0.3)) for name, value in base.ratios.items()},
        # at most half of the accelerator's time, or the fit would have nothing left to choose
        launch_s=min(base.launch_s * float(rng.lognormal(0.0, 0.5)), 0.5 * total / ratio / launches),
        link=Link(base.link.latency_s * float(rng.lognormal(0.0, 0.5)), 20e9 * float(rng.lognormal(0.0, 0.5))),
    ).fit(graph, cpu, ratio)
    return Problem(graph, accelerator.platform(), accelerator.beside(graph, cpu), objective or SerialLatency())


@one_thread()
def pretrain(
    problems: Sequence[Problem],
    params: GdpParams,
    *,
    seed: int = 0,
    should_stop: Callable[[], StopReason | None] = lambda: None,
    on_update: Callable[[Metrics], None] = lambda _: None,
) -> Checkpoint:
    """Train one network of GDP on all `problems`, and return it as a policy.

    Parameters
    ----------
    problems
        Problems with the same number of devices.
    params
        Parameters; `updates` are rounds, in each of which every problem has one update.
    seed
        Seed of weights, order and samples.
    should_stop
        Asked before every update.
    on_update
        Called after every update of a problem.

    Raises
    ------
    InvalidProblemError
        No problems, or problems with different numbers of devices.
    """
    counts = {problem.platform.num_devices for problem in problems}
    if len(counts) != 1:
        raise InvalidProblemError(f"pretraining needs problems with one number of devices; these have {sorted(counts)}")
    generator = torch.Generator().manual_seed(seed)
    trainings: list[Training] = []
    network: GdpNetwork | None = None
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for problem in problems:
            environment = Environment(problem)
            learner = GdpLearner(environment, params, network)
            network = learner.policy
            optimiser = trainings[0].optimiser if trainings else Adam(network.parameters(), params.learning_rate)
            trainings.append(Training(learner, environment, params, optimiser, generator))
    reason: StopReason | None = None
    for number in range(params.updates):
        trainings[0].optimiser.learning_rate = params.learning_rate * (1 - number / params.updates)
        for turn in torch.randperm(len(trainings), generator=generator).tolist():
            reason = should_stop()
            if reason is not None:
                break
            ppo(trainings[turn], _Once(), on_update)
        if reason is not None:
            break
    return Checkpoint(
        method="gdp",
        params=asdict(params),
        num_devices=counts.pop(),
        problem="",
        transferable=trainings[0].learner.transferable(),
        training=None,
    )


class _Once:
    """Lets a loop make one update: asked before every one, it says stop from the second time on."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> StopReason | None:
        """Return None the first time."""
        self.asked, before = True, self.asked
        return StopReason.ITERATIONS if before else None
