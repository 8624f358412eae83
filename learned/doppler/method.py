"""Method ``doppler``: a schedule made op by op by two policies, trained in three stages.

1. *Imitation* of a list scheduler of critical paths: the ready op of the largest b-level, on the device where it ends
   first. The policies play episodes, half of them as the teacher would, and learn in every state what the teacher would
   do there (DAgger: Ross et al., AISTATS 2011). Nothing is scored.
2. *Simulation*: REINFORCE, rewarded by the judge.
3. *The real system*: REINFORCE, rewarded by measured times. Where there are none, the second stage has no end.

References
----------
Yao et al., "DOPPLER: dual-policy learning for device assignment in asynchronous dataflow graphs", arXiv 2505.23131.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.doppler.episodes import FOLLOWS, GREEDY, SAMPLES, Played, Policies, Script, play
from placekit.learned.doppler.network import DopplerNetwork, op_inputs, select_log_probs
from placekit.learned.environment import Environment
from placekit.learned.group_graph import preference, wanted_actions
from placekit.learned.learner import Learner, Lessons, Rollout, TrainingParams, batch_advantages, entropy
from placekit.learned.method import LearnedMethod
from placekit.learned.rewards import PlannedOrder
from placekit.objectives import BatchScore
from placekit.objectives.makespan.instance import instance_of
from placekit.objectives.makespan.orders import BestOrder

LARGEST_LAYER = 8_000_000
"""Numbers in the hidden layer of PLACE over an update: larger problems play fewer episodes than asked."""


@dataclass(frozen=True)
class DopplerParams(TrainingParams):
    """Parameters of `Doppler`.

    Parameters
    ----------
    samples
        Episodes per update.
    hidden, rounds
        See :class:`~placekit.learned.doppler.network.DopplerNetwork`.
    imitation
        Most updates of the first stage; 0 for none.
    deviations
        The first stage ends once about so many groups of an episode, or a tenth of them where that is fewer, go
        elsewhere than the teacher's.
    imitation_rate
        Step size of Adam in the first stage.
    simulation
        Updates of the second stage before measured rewards; without these it goes on to the end.
    """

    updates: int = 1000
    patience: int = 300
    learning_rate: float = 1e-3
    entropy_start: float = 0.01
    entropy_end: float = 0.001
    entropy_updates: int = 300
    samples: int = 16
    hidden: int = 32
    rounds: int = 2
    imitation: int = 200
    deviations: float = 3.0
    imitation_rate: float = 1e-2
    simulation: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("hidden", least=1)
        self.require("rounds", "imitation", "deviations", "imitation_rate", "simulation", least=0)
        self.require("samples", least=2)


class Episodes(NamedTuple):
    """Result of :func:`~placekit.learned.doppler.episodes.play` as tensors, without its times."""

    op_of_step: Tensor
    ready_from: Tensor
    device_of_op: Tensor
    seen: Tensor
    may: Tensor
    right_op: Tensor
    is_right: Tensor


class DopplerLearner(Learner):
    """Plays episodes on one problem.

    A makespan is that of the best of three orders: the two in which all learners are scored, and that of the episode,
    with ops in gaps where they fit. Advantages are relative to the other episodes of the update; published is a running
    mean. Decisions are drawn from a softmax; published is the most probable one or, now and then, any.

    Ops are the decisions, and the classes of those that must share a device.
    """

    params: DopplerParams
    policy: DopplerNetwork

    def __init__(self, environment: Environment, params: DopplerParams) -> None:
        super().__init__(environment, params)
        self.lessons = Lessons(params.imitation, params.deviations, params.imitation_rate, params.simulation)
        problem = environment.problem
        is_judged = isinstance(environment.reward, BatchScore)
        self.simulator = environment if is_judged else Environment(problem)
        reward = self.simulator.reward
        if isinstance(reward, BestOrder):
            self.simulator.reward = PlannedOrder(problem, reward)
        self._best_single = int(np.argmin(self.simulator.single_devices))
        self._instance = instance_of(problem)
        self.graph = op_inputs(self._instance)
        self.policy = DopplerNetwork(self.graph.features.shape[1], params.hidden, params.rounds)
        self._num_ops, self._num_devices = problem.graph.num_ops, environment.num_devices
        size = self._num_ops * self._num_devices * params.hidden
        self._episodes = max(2, min(params.samples, LARGEST_LAYER // size))
        self.preferred = torch.full((self._num_ops,), -1)
        self._taught: Tensor | None = None

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Play episodes; two decisions per op of each, which one it is and where it goes."""
        if isinstance(self.simulator.reward, PlannedOrder):
            self.simulator.reward.forget_all_but(self.simulator.best)
        count = self._episodes
        played = self._play(np.full(count, SAMPLES), self._anything(count), generator)
        total, select_entropy = select_log_probs(self._embedded.score, played.op_of_step, played.ready_from)
        selects = self._embedded.score[played.op_of_step] - total
        log_probs = self._place(played)
        places = log_probs.gather(2, self._went(played)[:, :, None])[:, :, 0]
        row = torch.arange(count).repeat_interleave(self._num_ops)
        return Rollout(
            played.device_of_op.numpy(),
            torch.cat([row, row]),
            torch.cat([selects.flatten(), places.flatten()]),
            torch.cat([select_entropy.flatten(), entropy(log_probs).flatten()]),
        )

    def lesson(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the loss of what the teacher would do in states of both, and log-probabilities of its devices."""
        if self._taught is None:
            self._taught = self._lesson()
        count = self._episodes
        mode = np.where(np.arange(count) % 2 == 0, FOLLOWS, SAMPLES)
        selects, places = self._lessons_in(self._play(mode, self._taught.expand(count, -1), generator))
        return -(selects.mean() + places.mean()), places

    def _lessons_in(self, played: Episodes) -> tuple[Tensor, Tensor]:
        """Return log-probabilities ``[decisions]`` of the ops, and of the devices, that the teacher would choose."""
        score = self._embedded.score
        total, _ = select_log_probs(score, played.op_of_step, played.ready_from)
        right = self._place(played).masked_fill(~played.is_right, -torch.inf).logsumexp(dim=2)
        return (score[played.right_op] - total).flatten(), right.flatten()

    def _lesson(self) -> Tensor:
        """``[num_ops]`` -1 for the devices of the list schedule; those of the best single device where that is better.

        So it is where an objective has no use for devices that work at the same time.
        """
        if (self.preferred >= 0).all():
            return self.preferred
        simulator = self.simulator
        with torch.no_grad():
            listed = self._play(np.array([FOLLOWS]), self._anything(1), torch.Generator()).device_of_op.numpy()
        is_feasible = simulator.infeasibility(listed)[0] == 0
        listed_s = float(simulator.reward(listed)[0]) if is_feasible else math.inf
        best = self._best_single
        if simulator.single_devices[best] < listed_s:
            return torch.from_numpy(simulator.expand(simulator.homogeneous[best][None])[0])
        return self._anything(1)[0]

    def advantages(self, rollout: Rollout, costs: Tensor) -> Tensor:
        """``[decisions]`` the advantage of the placement that each belongs to, shared out among its decisions."""
        return batch_advantages(costs)[rollout.row] / self._num_ops

    def decode(self) -> NDArray[np.int64]:
        """Return the placement ``[1, num_ops]`` of the most probable decisions."""
        with torch.no_grad():
            played = self._play(np.array([GREEDY]), self._anything(1), torch.Generator())
        placements: NDArray[np.int64] = played.device_of_op.numpy()
        return placements

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement`: it is the teacher, and its devices are more probable."""
        self.preferred = wanted_actions(self.environment, placement)[torch.from_numpy(self.environment.group_of_op)]

    def memory(self) -> dict[str, Tensor]:
        """Return the preferred devices, and what is best in the simulator, with its order."""
        simulator, memory = self.simulator, super().memory()
        if simulator.best is not None and simulator.best_objective is not None:
            memory |= {
                "simulated": torch.from_numpy(simulator.best),
                "simulated_s": torch.tensor(simulator.best_objective, dtype=torch.float64),
            }
            planned = simulator.reward.steps(simulator.best) if isinstance(simulator.reward, PlannedOrder) else None
            memory |= {} if planned is None else {"steps": torch.from_numpy(planned)}
        return memory

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        super().remember(memory)
        simulator = self.simulator
        if "simulated" in memory:
            simulator.best, simulator.best_objective = memory["simulated"].numpy(), float(memory["simulated_s"])
            if "steps" in memory and isinstance(simulator.reward, PlannedOrder):
                simulator.reward.plan(simulator.best, memory["steps"].numpy())

    def _anything(self, count: int) -> Tensor:
        return torch.full((count, self._num_ops), -1)

    def _went(self, played: Episodes) -> Tensor:
        """``[episodes, num_ops]`` device of the op of every step."""
        return played.device_of_op.gather(1, played.op_of_step)

    def _prior(self) -> Tensor:
        """``[num_ops, num_devices]`` what a warm start adds to PLACE."""
        if bool((self.preferred < 0).any()):
            return torch.zeros(self._num_ops, self._num_devices)
        return preference(self.preferred, self._num_devices, self.params.deviations)

    def _place(self, played: Episodes) -> Tensor:
        """``[episodes, num_ops, num_devices]`` log-probabilities of PLACE at every step."""
        prior = self._prior().to(self._embedded.own.dtype)
        return self.policy.place_log_probs(
            self._embedded, prior, played.op_of_step, self._went(played), played.seen, played.may
        )

    def _play(self, mode: NDArray[np.int64], taught: Tensor, generator: torch.Generator) -> Episodes:
        """Play episodes with the present weights, and plan their orders."""
        self._embedded = self.policy(self.graph)
        score, own, joins = (each.detach().double().numpy() for each in self._embedded)
        policies = Policies(
            *(score, own, joins),
            self.policy.sees.weight.detach().double().T.contiguous().numpy(),
            self.policy.says.weight.detach().double()[0].contiguous().numpy(),
            self._prior().double().numpy(),
            self.graph.urgency,
        )
        drawn = torch.rand(len(mode), self._num_ops, 2, generator=generator, dtype=torch.float64)
        script = Script(np.ascontiguousarray(taught.numpy()), mode.astype(np.int64), drawn.numpy())
        played: Played = play(self._instance, self.graph.unit_s, policies, script)
        reward = self.simulator.reward
        if isinstance(reward, PlannedOrder):
            for device, start, finish in zip(played.device_of_op, played.start_s, played.finish_s, strict=True):
                reward.plan(device, np.argsort(np.lexsort((self._instance.rank, finish, start))))
        return Episodes(*(torch.from_numpy(getattr(played, name)) for name in Episodes._fields))


class Doppler(LearnedMethod):
    """DOPPLER (Yao et al., 2025): SELECT and PLACE; imitation, simulation, measured rewards."""

    name = "doppler"
    params_type = DopplerParams
    serves_any_platform: ClassVar[bool] = True
    learner_type = DopplerLearner
