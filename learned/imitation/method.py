"""Method ``imitation``: the policy for any platform, applied, or trained on by policy gradient on one problem.

``policy:pretrained`` applies the policy that comes with placekit; ``imitation:pretrained`` goes on training it on the
problem at hand. From random weights it has little to say; ``examples/train_policy.py`` makes policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product, takewhile
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placekit.learned.environment import Environment
from placekit.learned.group_graph import preference
from placekit.learned.imitation.decoding import DAMPINGS, TRUSTS, KnownSchedule, ScoreDecoder
from placekit.learned.imitation.inputs import collate, inputs_of
from placekit.learned.imitation.network import Scores, StateNetwork
from placekit.learned.imitation.refinement import Refinement, RegionSearch
from placekit.learned.learner import GroupwiseLearner, Rollout, TrainingParams
from placekit.learned.method import LearnedMethod
from placekit.learned.rewards import ExpectedOrder
from placekit.objectives.makespan.orders import BestOrder
from placekit.solve.method import no_links, no_shared_memory

if TYPE_CHECKING:
    from placekit.model.problem import Problem

ItemT = TypeVar("ItemT")

# What a graph of any size may cost: of thousands of ops there are fewer rounds, schedules, placements to refine, and no
# samples.
_STATE_ROUNDS, _LEAST_ROUNDS = 160_000, 2
"""Rounds of messages, times states."""
_STATE_SCHEDULES, _LEAST_SCHEDULES, _MOST_SCHEDULES = 2_000_000, 16, 96
"""Schedules, times states; a share of them first, then chains of at least so many."""
_FIRST_SHARE, _CHAIN = 0.25, 6
_POLISHED = 8
"""Placements that the search of regions looks at first."""
_REFINED_OPS = 8_000
"""Placements that are refined, times ops; at least one."""


@dataclass(frozen=True)
class ImitationMethodParams(TrainingParams):
    """Parameters of `Imitation`.

    Parameters
    ----------
    hidden, rounds
        Width of a state, and rounds of messages.
    samples
        Placements per update.
    deviations
        With a warm start: about how many groups of a sample leave its devices before anything is learned.
    blind
        True to decode without the network: every device as likely as any other, ops in the order of HEFT's ranks. A
        control that tells what the network adds to the decoding.
    refine
        Decoded placements that are refined, the best ones; 0 for none. Of more than some hundred ops there are fewer.
    regions
        Regions of the best placement that are moved, for loads and their sums; of large problems fewer. 0 for none.
    """

    updates: int = 200
    patience: int = 60
    learning_rate: float = 3e-4
    hidden: int = 32
    rounds: int = 12
    samples: int = 32
    deviations: float = 20.0
    blind: bool = False
    refine: int = 16
    regions: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("hidden", "rounds", least=1)
        self.require("samples", least=2)
        self.require("deviations", "refine", "regions", least=0)


class ImitationLearner(GroupwiseLearner):
    """One problem, one policy; the groups of the environment are the decisions."""

    params: ImitationMethodParams

    def __init__(self, environment: Environment, params: ImitationMethodParams) -> None:
        problem: Problem = environment.problem
        super().__init__(environment, params)
        self.policy, self.samples = StateNetwork(params.hidden), params.samples
        self._inputs = inputs_of(problem)
        self._batch = collate([self._inputs])
        self._decoder = ScoreDecoder(problem, self._inputs)
        self._refinement = Refinement(problem, self._inputs)
        self._regions = RegionSearch(problem, self._inputs, self._decoder, params.regions)
        self._seed = torch.initial_seed()  # that of the solve
        self._mask = torch.from_numpy(environment.mask)
        self._groups = torch.from_numpy(environment.group_of_op)
        self._size = torch.bincount(self._groups)[:, None]
        states = problem.graph.num_ops * problem.platform.num_devices
        self._rounds = max(_LEAST_ROUNDS, min(params.rounds, _STATE_ROUNDS // states))
        self._num_schedules = max(_LEAST_SCHEDULES, min(_MOST_SCHEDULES, _STATE_SCHEDULES // states))
        self._num_refined = max(1, min(params.refine, _REFINED_OPS // problem.graph.num_ops))
        self.preferred = torch.full((len(self._mask),), -1)
        self._kept: tuple[Tensor, Tensor] | None = None  # what the network says while its weights stay

    def _scores(self) -> tuple[Tensor, Tensor]:
        """Return log-probabilities ``[groups, devices]``, and expected starts ``[num_ops]``."""
        if torch.is_grad_enabled():
            self._kept = None
            return self._forward()
        if self._kept is None:
            self._kept = self._forward()
        return self._kept

    def _forward(self) -> tuple[Tensor, Tensor]:
        shape = self._inputs.num_ops, self._inputs.num_devices
        if self.params.blind:
            uniform = torch.from_numpy(ScoreDecoder.uniform(self._inputs.allowed.reshape(shape))).float()
            scores = Scores(uniform.flatten(), torch.from_numpy(self._decoder.heft_order).float())
        else:
            scores = self.policy(self._batch, self._rounds, self.environment.check_stop)
        finite = torch.where(self._batch.allowed, scores.log_probs, torch.zeros_like(scores.log_probs)).reshape(shape)
        logits = torch.zeros(len(self._mask), shape[1]).index_add(0, self._groups, finite) / self._size
        if (self.preferred >= 0).all():
            logits = logits + preference(self.preferred, shape[1], self.params.deviations)
        self._start = scores.start.detach()
        return torch.log_softmax(logits.masked_fill(~self._mask, -torch.inf), dim=1), self._start

    def _settle_order(self, start: Tensor) -> None:
        """Let placements be scored in the expected order as well; once, so that equal placements score alike."""
        reward = self.environment.reward
        if isinstance(reward, BestOrder):
            self.environment.reward = ExpectedOrder(self.environment.problem, reward, start.double().numpy())

    def log_probs(self) -> Tensor:
        """``[num_groups, num_devices]`` log-probability of every decision."""
        return self._scores()[0]

    def rollout(self, generator: torch.Generator) -> Rollout:
        """Sample `samples` placements, which are scored in the order that the network expects as well."""
        found = super().rollout(generator)
        self._settle_order(self._start)
        return found

    def decode(self) -> NDArray[np.int64]:
        """``[count, num_ops]`` the likeliest devices, placements op by op for every trust, the best of them refined.

        Notes
        -----
        The network: O(rounds (ops + edges) devices), the schedules O(count (ops log ops + edges devices)), refinement
        that of :class:`~placekit.learned.imitation.refinement.Refinement` for each placement; rounds, schedules and
        placements fall with the size, so that all three stay about the same from some hundred ops on. Where the
        environment says to stop, what there is by then is returned.
        """
        with torch.no_grad():
            log_probs, start = self._scores()
        self._settle_order(start)
        of_op = log_probs[self._groups].double().numpy()
        if isinstance(self.environment.reward, ExpectedOrder):
            rows = self._schedules(self.environment.reward, of_op)
            single = self.environment.homogeneous[[int(np.argmin(self.environment.single_devices))]]
        else:
            rows = [self._decoder.place(of_op, trust) for trust in self._in_time(TRUSTS)]
            single = self.environment.homogeneous
        if not self.params.blind:
            likeliest = self.environment.expand(log_probs.argmax(dim=1).numpy()[None])
            rows.append(self._decoder.repaired(likeliest)[0])
        rows += list(self.environment.expand(single))
        if self.params.refine and self.environment.has_time():
            rows += self._refined(np.unique(np.stack(rows), axis=0), of_op)
        if self._regions.count and self.environment.has_time():
            best = np.argsort(self.environment.costs(np.stack(rows)), kind="stable")[:_POLISHED]
            rows.append(self._regions.searched(np.stack(rows)[best], of_op, self.environment, self._seed))
        return np.stack(rows)

    def _in_time(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """Yield items until the environment says to stop."""
        return takewhile(lambda _: self.environment.has_time(), items)

    def _schedules(self, reward: ExpectedOrder, log_probs: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Return the best of placements that were scheduled, first in two orders, then again by what came of it.

        `reward` knows their orders.
        """
        decoder, scored = self._decoder, list[tuple[float, KnownSchedule]]()

        def consider(schedule: KnownSchedule) -> None:
            scored.append((reward.plan(schedule.device, schedule.step), schedule))

        span_s = float(-decoder.heft_order.min())
        for trust, priority_s in self._in_time(product(TRUSTS, (decoder.heft_order, reward.start * span_s))):
            if not scored or len(scored) < _FIRST_SHARE * self._num_schedules:
                consider(decoder.schedule(log_probs, priority_s, trust))
        starts = {each.device.tobytes(): each for _, each in sorted(scored, key=lambda found: -found[0])}  # best last
        chains = list(product(reversed(starts.values()), DAMPINGS))
        length = max(_CHAIN, (self._num_schedules - len(scored)) // max(len(chains), 1))
        for schedule, damping in chains:
            count = min(length, self._num_schedules - len(scored))
            for again in self._in_time(decoder.schedule_again(log_probs, schedule, damping, count)):
                consider(again)
        scored.sort(key=lambda each: each[0])
        return [schedule.device for _, schedule in scored[: 2 * self._num_refined]]

    def _refined(self, rows: NDArray[np.int64], log_probs: NDArray[np.float64]) -> list[NDArray[np.int64]]:
        """Return the best of the placements after refinement; of a makespan, with orders with insertion as well."""
        costs = self.environment.costs(rows)
        best = rows[np.argsort(costs, kind="stable")[: self._num_refined]]
        refined = [self._refinement.refined(row, log_probs) for row in self._in_time(best)]
        reward = self.environment.reward
        if isinstance(reward, ExpectedOrder):
            for device in self._in_time(refined):
                for priority in (reward.start, self._decoder.heft_order, self._decoder.remaining_order(device)):
                    reward.plan(device, self._decoder.order_on(device, priority))
        return refined

    def prefer(self, placement: NDArray[np.int64]) -> None:
        """Begin near `placement`: its devices become more probable."""
        super().prefer(placement)
        self._kept = None

    def memory(self) -> dict[str, Tensor]:
        """Return the preferred devices, and the order that placements are scored in."""
        reward = self.environment.reward
        order = {"start": torch.from_numpy(reward.start)} if isinstance(reward, ExpectedOrder) else {}
        return super().memory() | order

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        super().remember(memory)
        self._kept = None
        if "start" in memory:
            self._settle_order(memory["start"])


class Imitation(LearnedMethod):
    """The policy for any platform as a method; see the module docstring."""

    name = "imitation"
    params_type = ImitationMethodParams
    serves_any_platform: ClassVar[bool] = True
    max_sampled_ops: ClassVar[int] = 2_000
    learner_type = ImitationLearner

    def supports(self, problem: Problem) -> str | None:
        """Return None without direct links and memory that ops share, which decoding does not know."""
        return no_links(problem) or no_shared_memory(problem)
