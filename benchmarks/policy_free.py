"""Method ``policy-free``: the search inside ``hsdag`` without its network, to tell what the network adds.

It makes the same moves (groups of several levels, the device of one group swapped at a time), in the same batches, has
them scored by the same environment, and begins anew by the same rule (:mod:`placekit.learned.hsdag.starts`). Where
``hsdag`` draws from a policy, this control keeps one placement and the best swap of every batch; where the network
scores edges, it takes the costs of cutting them, with the same noise. Nothing is learned.

1. Parse the graph into levels of groups, by the costs of edges and noise.
2. Begin, in turns, at random devices for the groups of the coarsest level, or at the best placement so far.
3. On each level, coarsest first: score a batch of swaps of the present placement, and take the best if it is better.
   After 5 batches without one go to the next finer level; after 15 on the finest level begin again at 1.

References
----------
Lourenço, Martin, Stützle, "Iterated local search", 2003.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.learned.environment import Environment
from placekit.learned.hsdag.parsing import coarse_nodes, node_graph, parse
from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run, no_links
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.excess import offer_first_answers

PATIENCE = 20
"""Starts in vain after which the search ends, unless there is a time limit or it is told another number."""
_SWAPS, _DESCEND, _RESTART, _LEVELS, _MIN_GROUPS, _NOISE = 128, 5, 15, 8, 2, 0.3  # those of ``hsdag``
_NOISE_SCALES = (1.0, 3.0, 10.0)


@dataclass(frozen=True, slots=True)
class PolicyFreeParams:
    """Parameters of `PolicyFree`.

    Parameters
    ----------
    patience
        Starts without a better placement after which it ends; 0 for no such end. If None: 20, and no such end under a
        time limit.
    """

    patience: int | None = None

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 0:
            raise InvalidProblemError(f"policy-free: patience is {self.patience}; it must be >= 0")


class PolicyFree(Method):
    """The control; see the module docstring."""

    name = "policy-free"
    params_type = PolicyFreeParams
    params: PolicyFreeParams

    def supports(self, problem: Problem) -> str | None:
        """Return None without direct links; the environment knows memory that ops share."""
        return no_links(problem)

    def run(self, run: Run) -> StopReason:
        """Search until told to stop, or until `patience` starts in a row brought nothing."""
        raise_bounds_at_once(run)
        offer_single_devices(run)
        search = _Search(run)
        start = run.placement or run.warm_start
        if start is not None:
            search.environment.evaluate(start.device_of_op[None])
        stale, patience = 0, run.tries(self.params.patience, PATIENCE)
        while (reason := run.should_stop()) is None:
            before = search.environment.best_objective
            search.start()
            stale = stale + 1 if search.environment.best_objective == before else 0
            if (patience and stale >= patience) or not search.can_move:
                return StopReason.FINISHED
        return reason


class _Search:
    """The state of the search: nodes, their edges, and what was found."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.environment = environment = Environment(run.problem)
        for actions in environment.homogeneous:
            run.offer(environment.answer(environment.expand(actions[None])[0]))
        if run.placement is None:
            offer_first_answers(run)
        self._told = environment.evaluations
        self._nodes = coarse_nodes(run.problem, environment.mask, has_chains=False)
        self._leader = np.unique(self._nodes, return_index=True)[1]
        self._mask = environment.mask
        self._graph = node_graph(run.problem, self._nodes, self._mask)
        self._number = 0
        environment.single_devices  # noqa: B018  # the best of them is the first best

    @property
    def can_move(self) -> bool:
        """True if some node may be somewhere else."""
        return bool((self._mask.sum(axis=1) > 1).any())

    def start(self) -> None:
        """Search from one start, on all levels, coarsest first."""
        levels = self._parsed(_NOISE_SCALES[self._number // 2 % len(_NOISE_SCALES)])
        best = self.environment.best
        if self._number % 2 == 0 or best is None:
            group, mask = levels[-1]
            drawn = np.array([self.run.rng.choice(np.flatnonzero(row)) for row in mask])
            devices = drawn[group]
        else:
            devices = best[self._leader]
        self._number += 1
        cost = float(self._costs(devices[None])[0])
        for at in range(len(levels) - 1, -1, -1):
            patience = _DESCEND if at else _RESTART
            stale = 0
            while stale < patience:
                if self.run.should_stop() is not None:
                    return
                swapped = self._swaps(devices, *levels[at])
                if not len(swapped):
                    break
                costs = self._costs(swapped)
                least = int(np.argmin(costs))
                stale = 0 if costs[least] < cost else stale + 1
                if costs[least] < cost:
                    devices, cost = swapped[least], float(costs[least])

    def _parsed(self, scale: float) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Return the group of every node and the mask of the groups, of every level, finest first."""
        group, graph = np.arange(len(self._mask)), self._graph
        levels = [(group, graph.mask)]
        while graph.edges.size and len(graph.mask) > _MIN_GROUPS and len(levels) <= _LEVELS:
            noise = self.run.rng.normal(0.0, scale * _NOISE, graph.edges.shape[1])
            level = parse(graph, (graph.edge_costs() + noise).astype(np.float32))
            if len(level.graph.mask) == len(graph.mask):
                break
            group, graph = level.group_of_node[group], level.graph
            levels.append((group, graph.mask))
        return levels

    def _swaps(
        self, devices: NDArray[np.int64], group: NDArray[np.int64], mask: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """``[count, num_nodes]`` the placement with one group on another device in each row, at most `_SWAPS`."""
        groups, targets = np.nonzero(mask)
        drawn = self.run.rng.permutation(len(groups))[:_SWAPS]
        rows = np.where(group[None] == groups[drawn][:, None], targets[drawn][:, None], devices[None])
        moved: NDArray[np.int64] = rows[(rows != devices[None]).any(axis=1)]
        return moved

    def _costs(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
        """``[batch]`` costs of devices ``[batch, num_nodes]``; what is better than all before is offered."""
        environment, before = self.environment, self.environment.best_objective
        costs = environment.costs(devices[:, self._nodes])
        self.run.count_evaluations(environment.evaluations - self._told)
        self._told = environment.evaluations
        if environment.best is not None and environment.best_objective != before:
            self.run.offer(environment.answer(environment.best))
        return costs
