"""Trivial baselines: single devices, round robin, random search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import topological_order
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.class_order import needs_chain
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.scoring import Scorer

SINGLES = "single devices"
"""Name of these placements in `Run.done`."""
BATCH_ENTRIES = 2**16
"""Ops times placements that are drawn between two looks at whether to stop, about."""
SAMPLES = 1000
"""Random placements, unless there is a time limit or another number is asked for."""
MAX_BATCH = 256
"""Placements of a batch at most."""


def offer_single_devices(run: Run) -> None:
    """Offer the whole model on one device of every kind, and on the largest teams if teams are allowed.

    A device of the kind that an op is pinned to goes before the others, on which nothing is feasible.
    """
    problem, platform = run.problem, run.problem.platform
    for kind in range(len(platform.kinds)):
        equal = platform.devices_of_kind(kind)
        run.offer(np.full(problem.graph.num_ops, next((d for d in equal if d in problem.pinned), equal[0])))
    run.done.add(SINGLES)
    if problem.objective.team_rule == "off":
        return
    everyone = list(range(platform.num_devices))
    teams = [platform.devices_of_kind(kind) for kind in range(len(platform.kinds))]
    for members in [*teams, *([everyone] if problem.objective.team_rule == "any" else [])]:
        team = np.arange(platform.num_devices)
        team[members] = members[0]
        run.offer(Placement.of(problem, np.full(problem.graph.num_ops, members[0]), None, team))


@dataclass(frozen=True, slots=True)
class SingleParams:
    """Parameters of `SingleDevice`.

    Parameters
    ----------
    device
        Name of the device; None for the best.
    """

    device: str | None = None


class SingleDevice(Method):
    """The whole model on one device: ``single:NAME``, or the best one. An unknown device is an error of `run`."""

    name = "single"
    params_type = SingleParams
    argument = "device"
    params: SingleParams

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: there is nothing to choose."""
        return None

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: the judge counts them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Offer the placement, or one per kind."""
        if self.params.device is None:
            offer_single_devices(run)
        else:
            run.offer(np.full(run.problem.graph.num_ops, run.problem.platform.index(self.params.device)))
        return StopReason.FINISHED


class RoundRobin(Method):
    """Equal numbers of ops per device: contiguous blocks in topological order if the problem asks for contiguity.

    Without contiguity the classes go to the devices in turn. Pins and device support are respected; memory is not.
    """

    name = "round-robin"

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: it looks at neither transfers nor memory."""
        return None

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: the judge counts them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Offer the one placement."""
        contraction = contract(run.problem)
        num_classes, num_devices = contraction.allowed.shape
        order, stuck = topological_order(num_classes, contraction.senders, contraction.receivers)
        order = np.concatenate([order, stuck])
        place = np.arange(num_classes)
        turn = place % num_devices
        if needs_chain(run.problem):
            turn = place * num_devices // num_classes
        device = np.zeros(num_classes, dtype=np.int64)
        for c, wanted in zip(order.tolist(), turn.tolist(), strict=True):
            can = np.flatnonzero(contraction.allowed[c])
            # the wanted device, or the next one that is allowed
            device[c] = can[np.argmin((can - wanted) % num_devices)] if can.size else wanted
        run.offer(contraction.expand(device))
        return StopReason.FINISHED


@dataclass(frozen=True, slots=True)
class RandomParams:
    """Parameters of `RandomSearch`.

    Parameters
    ----------
    samples
        Number of placements. None for 1000, or with a time limit for as many as there is time for.
    """

    samples: int | None = None

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise InvalidProblemError(f"random: samples is {self.samples}; it must be >= 1")


class RandomSearch(Method):
    """Best of N random placements.

    Every class goes to a random device that is allowed. Under contiguity the placements are random chains: devices in
    random order, blocks between random cuts of a random topological order. Otherwise hardly any sample would be
    feasible.

    If the objective scores batches, only samples that look better than the best so far go to the judge. For a makespan
    each sample is scored in the better of two orders (:mod:`placekit.objectives.makespan.orders`).
    """

    name = "random"
    params_type = RandomParams
    argument = "samples"
    params: RandomParams

    def supports(self, problem: Problem) -> str | None:  # noqa: ARG002
        """Return None: its scores know all."""
        return None

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: its scores count them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Offer random placements until told to stop, or `samples` of them."""
        contraction = contract(run.problem)
        draw = _draw_chains if needs_chain(run.problem) else _draw_freely
        size = min(max(1, BATCH_ENTRIES // run.problem.graph.num_ops), MAX_BATCH)
        score = Scorer(contraction)
        left = run.tries(self.params.samples, SAMPLES) if (contraction.allowed.sum(axis=1) > 1).any() else 1
        while left > 0:
            if (reason := run.should_stop()) is not None:
                return reason
            devices = draw(contraction, int(min(size, left)), run.rng)
            left -= len(devices)
            for device, value in zip(devices, score(devices).tolist(), strict=True):
                if (reason := run.should_stop()) is not None:
                    return reason
                # without a feasible placement the judge scores all samples, so that it can say what is wrong
                if run.objective is None or value < run.objective:
                    run.offer(score.placement(device))
                else:
                    run.count_evaluations(1)
        return StopReason.FINISHED


def _draw_freely(contraction: Contraction, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw an allowed device for each class ``[count, classes]``; the first device if none is allowed."""
    allowed = contraction.allowed
    choices = np.argsort(~allowed, axis=1, kind="stable")  # what is allowed comes first
    drawn = rng.integers(np.maximum(allowed.sum(axis=1), 1), size=(count, len(allowed)))
    return choices[np.arange(len(allowed)), drawn]


def _draw_chains(contraction: Contraction, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw blocks between random cuts of a random topological order, on devices in random order."""
    num_classes, num_devices = contraction.allowed.shape
    chains = np.empty((count, num_classes), dtype=np.int64)
    for row in chains:
        relabel = rng.permutation(num_classes)  # random ties make a random topological order
        order, stuck = topological_order(num_classes, relabel[contraction.senders], relabel[contraction.receivers])
        place = np.argsort(np.concatenate([order, stuck]))
        cuts = np.sort(rng.integers(0, num_classes + 1, num_devices - 1))
        row[:] = rng.permutation(num_devices)[np.searchsorted(cuts, place[relabel], side="right")]
    return chains
