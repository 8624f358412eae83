"""Search for plans below a target: chains of the kernels become stages with choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.memory import MEMORY_TOLERANCE
from placekit.solvers.training_plan.chains import (
    NEXT,
    NUM_GIVEN_UP,
    NUM_LABELS,
    NUM_PAIRS,
    Degrees,
    EdgeRows,
    Labels,
    StageSearch,
    Targets,
    extend_stages,
    stage_edges_s,
)
from placekit.solvers.training_plan.knapsack import FITS, Budget, ChoiceRows, Scratch, Span, choose
from placekit.solvers.training_plan.relaxation import relax
from placekit.solvers.training_plan.tables import Ideals, Tables
from placekit.training.plan import PlanStage, TrainingPlan

PAIRS_PER_CALL = 20_000_000
"""Pairs of ideals between two checks of the clock, usually a fraction of a second."""
TIME_ROUNDING = 1e-11
"""Relative tolerance: far above the rounding of a stage's sums, far below the smallest improvement."""
SUM_ROUNDING = 1e-14
"""Rounding of differences of sums, relative to the sum over all layers."""
MAX_NODES = 20_000
"""Largest number of nodes of the search for the choices of one stage; a search that gives up proves nothing."""


class Stopped(Exception):  # noqa: N818  # no error: the user or the clock
    """The search was told to stop."""


class PlanSearch:
    """Search for plans that keep every stage below a target.

    Parameters
    ----------
    tables, ideals
        The problem, and the ideals at which a plan may be cut.
    should_stop
        Called between two calls of the kernel.
    max_nodes
        Largest number of nodes of the search for the choices of one stage.

    Attributes
    ----------
    pairs, gave_up : int
        Numbers of pairs of ideals visited, and of knapsacks given up, in the last search.
    """

    def __init__(
        self,
        tables: Tables,
        ideals: Ideals,
        should_stop: Callable[[], bool] = lambda: False,
        max_nodes: int = MAX_NODES,
    ) -> None:
        self.tables, self.ideals, self.should_stop, self.max_nodes = tables, ideals, should_stop, max_nodes
        self.pairs, self.gave_up = 0, 0
        problem = tables.problem
        self._max_replicas = min(problem.num_microbatches, problem.num_devices // int(tables.tensor_degrees[0]))
        first = np.searchsorted(tables.data_degrees, np.arange(int(tables.data_degrees.max(initial=0)) + 1))
        self._degrees = Degrees(tables.tensor_degrees, tables.data_degrees, first.astype(np.int64))
        self._choices = ChoiceRows(*(getattr(tables, name) for name in ChoiceRows._fields))
        self._edges = EdgeRows(
            tables.edge_source, tables.edge_target, tables.edge_in_s, tables.edge_out_s, *_cut_sums(tables, ideals)
        )
        self._scratch = Scratch.of(tables.choice_offsets, tables.num_layers)
        self._relaxed = relax(tables, ideals, max(1, self._max_replicas))
        self._labels = np.zeros((1024, 6), dtype=np.int32)

    def slowest_s(self) -> float:
        """Return an upper bound on the seconds of any stage."""
        tables = self.tables
        extra = np.add.reduceat(
            np.append(tables.extra_s, 0.0), np.minimum(tables.extra_offsets[:-1], len(tables.extra_s))
        )
        extra[np.diff(tables.extra_offsets) == 0] = 0.0
        row = tables.time_s + extra + tables.gradient_s_per_byte * tables.gradient_bytes
        most = np.maximum.reduceat(row, tables.choice_offsets[:-1]).reshape(-1, tables.num_layers)
        moved = tables.edge_in_s.sum(axis=1) + tables.edge_out_s.sum(axis=1)
        # with d replicas gradients are multiplied by less than d, and everything is divided by d
        return 2.0 * float((most.sum(axis=1) + moved).max()) + 1e-300

    def below(
        self, target_s: float, memory_bytes: float | None = None, is_optimistic: bool = False
    ) -> TrainingPlan | None:
        """Return a plan whose stages all take at most `target_s`, up to rounding; None if none was found.

        None is a proof unless `gave_up` is positive. With `is_optimistic` None is always a proof, but a plan may have
        the fastest choices where no fitting ones are known. Raises `Stopped`: `should_stop` said so.
        """
        ideals, tables, problem = self.ideals, self.tables, self.tables.problem
        if not len(tables.data_degrees):
            return None
        memory = (problem.memory_bytes if memory_bytes is None else memory_bytes) * (1 + MEMORY_TOLERANCE)
        rounding_s = SUM_ROUNDING * float(ideals.time_s[:, -1].max())
        rounding_bytes = SUM_ROUNDING * float((ideals.memory_a + ideals.memory_b)[:, -1].max())
        targets = Targets(
            target_s, TIME_ROUNDING, rounding_s, memory, rounding_bytes, tables.gradient_s_per_byte,
            problem.num_devices, self._max_replicas, tables.is_uniform, int(is_optimistic), self.max_nodes,
        )  # fmt: skip
        num_ideals = len(ideals.size)
        self._labels[0] = 0, 0, -1, 0, 0, num_ideals - 1
        labels = Labels(
            counts=np.array([num_ideals - 2, 1, 1, 0, 0], dtype=np.int64),
            rows=self._labels,
            front=np.zeros((num_ideals, 2), dtype=np.int64),
            alive=np.zeros(num_ideals, dtype=np.int64),
            reach=np.zeros(num_ideals),
            best=np.zeros((4, self._max_replicas + 1), dtype=np.int64),
            caps=np.zeros(self._max_replicas + 1, dtype=np.int64),
        )
        labels.front[-1] = 0, 1
        labels.alive[0], labels.reach[0] = num_ideals - 1, float(ideals.work_s[-1])
        counts = labels.counts
        while counts[NEXT] >= 0:
            if self.should_stop():
                raise Stopped
            search = StageSearch(
                ideals, self._edges, self._choices, self._relaxed, self._degrees, targets, labels, self._scratch
            )
            extend_stages(search, PAIRS_PER_CALL)
            if counts[NUM_LABELS] + self._max_replicas + 1 > len(self._labels):
                grown = np.zeros((2 * len(self._labels) + self._max_replicas + 1, 6), dtype=np.int32)
                grown[: counts[NUM_LABELS]] = self._labels[: counts[NUM_LABELS]]
                self._labels, labels = grown, labels._replace(rows=grown)
        self.pairs, self.gave_up = int(counts[NUM_PAIRS]), int(counts[NUM_GIVEN_UP])
        if labels.front[0, 1] == labels.front[0, 0]:
            return None
        return self._plan(int(labels.front[0, 1]) - 1, targets)

    def _plan(self, label: int, targets: Targets) -> TrainingPlan:
        """Return the plan of a chain, from the start of the pipeline to its end."""
        stages = []
        while self._labels[label, 2] >= 0:
            rest, di, ti, before = (int(x) for x in self._labels[label, 2:6])
            upto, d = int(self._labels[rest, 5]), int(self.tables.data_degrees[di])
            in_flight = -(-int(self._labels[rest, 0]) // d) + 1
            gradient_s = (d - 1) * targets.gradient_s
            budget = Budget(in_flight, gradient_s, targets.seconds * d * (1 + targets.slack), targets.memory_bytes)
            stages.append(self._stage(Span(before, upto, ti), d, budget))
            label = rest
        return TrainingPlan(tuple(stages))

    def _stage(self, span: Span, d: int, budget: Budget) -> PlanStage:
        """Return the stage with the fastest choices that fit, found by bisection on its time."""
        tables, bits, (before, upto, ti) = self.tables, self.ideals.bits, span
        moved_s = float(stage_edges_s(self.ideals, self._edges, before, upto, ti, np.inf))
        members = [v for v in range(tables.num_layers) if _bit(bits[upto], v) and not _bit(bits[before], v)]

        def attempt(seconds: float) -> tuple[float, NDArray[np.int64]] | None:
            within = budget._replace(seconds=seconds)
            if choose(self._choices, bits, span, within, self.max_nodes, self._scratch) != FITS:
                return None
            picked = self._scratch.picked[members].copy()
            return self._seconds(members, picked, budget.gradient_s), picked

        found = attempt(budget.seconds - moved_s) or attempt(np.inf)
        picked = self._scratch.picked[members].copy() if found is None else found[1]
        if found is not None:
            low = sum(float(tables.time_s[tables.choice_offsets[ti * tables.num_layers + v]]) for v in members)
            high = found[0]
            while high - low > 1e-9 * high:
                middle = (low + high) / 2
                better = attempt(middle)
                if better is None:
                    low = middle
                else:
                    high, picked = min(middle, better[0]), better[1]
        layers = tables.order[members]
        by_layer = np.argsort(layers)
        return PlanStage(
            tuple(layers[by_layer].tolist()), d, int(tables.tensor_degrees[ti]),
            tuple(tables.choice_index[picked[by_layer]].tolist()),
        )  # fmt: skip

    def _seconds(self, members: list[int], picked: NDArray[np.int64], gradient_s: float) -> float:
        tables = self.tables
        total = float((tables.time_s[picked] + gradient_s * tables.gradient_bytes[picked]).sum())
        inside = set(members)
        for c in picked.tolist():
            for x in range(tables.extra_offsets[c], tables.extra_offsets[c + 1]):
                if int(tables.extra_other[x]) not in inside:
                    total += float(tables.extra_s[x])
        return total


def _cut_sums(tables: Tables, ideals: Ideals) -> tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.float64]]:
    """Return ``[I, W]`` ends of the edges that leave an ideal, and ``[T, I]`` sums of their seconds at both ends."""
    num_ideals = len(ideals.size)
    ideal = np.repeat(np.arange(num_ideals), np.diff(ideals.cut_offsets))
    target = tables.edge_target[ideals.cut_edges]
    ends = np.zeros_like(ideals.bits)
    np.bitwise_or.at(ends, (ideal, target >> 6), np.uint64(1) << (target & 63).astype(np.uint64))
    in_s, out_s = (
        np.array([np.bincount(ideal, row[ideals.cut_edges], num_ideals) for row in seconds])
        for seconds in (tables.edge_in_s, tables.edge_out_s)
    )
    return ends, in_s, out_s


def _bit(words: NDArray[Any], v: int) -> bool:
    return bool((int(words[v >> 6]) >> (v & 63)) & 1)
