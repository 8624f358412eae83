r"""Method ``brkga``: a biased random-key genetic algorithm for the makespan.

A chromosome is a vector of keys in [0, 1): one per class for its device, one per op for its priority. Decoding:

1. A class with key :math:`x` and :math:`n` devices allowed takes the :math:`\lfloor n x \rfloor`-th of them, or the
   next one round with room; classes choose in the order of their bytes, the largest first.
2. Devices that never idle run the ops, of the ready ones the one with the smallest key. This is `simulate`, and all
   chromosomes of a generation are decoded at once by `batch_makespan`.

From generation to generation the elite is copied, mutants come in, and the rest are children of one elite and one other
parent; each stretch of keys is the elite parent's with probability `inherit`.

Three things are special here. Half of the mutants and of the first population are list schedules with noise, written as
keys, since hardly any uniform key vector of a large graph is worth mating with. Equal devices are renamed by the first
op that they run before a chromosome is stored, so that two parents mean the same by the same key. And a child inherits
stretches of the topological order whole, of a length drawn per child, because the keys of neighbours only mean
something together.

References
----------
Gonçalves, Resende, "Biased random-key genetic algorithms for combinatorial optimization", Journal of Heuristics 17,
2011, doi:10.1007/s10732-010-9143-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from placekit.compiled import njit
from placekit.contiguity import Contiguity
from placekit.errors import InvalidProblemError
from placekit.makespan.simulate import batch_makespan, simulate
from placekit.method import Run
from placekit.objectives import Makespan
from placekit.placement import Placement
from placekit.problem import Problem
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.largest_op import largest_op
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.search.construct import place_by_wish
from placekit.solvers.makespan.search.starts import known_starts, mean_rank_s, offer_list_schedules, scattered
from placekit.solvers.params import read_params
from placekit.stop import StopReason

__all__ = ["Brkga", "BrkgaParams", "decode_devices", "encode", "equal_groups"]

CHUNK = 2_000_000
"""Ops and edges simulated between two looks at the clock, at most: about a tenth of a second."""
NOISE = 0.5
"""Largest noise of the list schedules among the mutants."""


@dataclass(frozen=True, slots=True)
class BrkgaParams:
    """Parameters of `Brkga`.

    Parameters
    ----------
    population
        Chromosomes.
    elite, mutants
        Shares of the population that are copied and that come in new.
    inherit
        Probability that a child takes a stretch of keys from its elite parent.
    restart
        Generations in a row without a better elite after which the population is drawn anew.
    patience
        Ends after so many generations in a row without a better placement.
    """

    population: int = 100
    elite: float = 0.2
    mutants: float = 0.15
    inherit: float = 0.7
    restart: int = 60
    patience: int = 200

    def __post_init__(self) -> None:
        for name, low in (("population", 4), ("restart", 1), ("patience", 1)):
            if getattr(self, name) < low:
                raise InvalidProblemError(f"brkga: {name} is {getattr(self, name)}; it must be >= {low}")
        for name, high in (("elite", 0.5), ("mutants", 0.5), ("inherit", 1)):
            if not 0 <= getattr(self, name) <= high:
                raise InvalidProblemError(f"brkga: {name} is {getattr(self, name)}; it must be between 0 and {high:g}")


class Brkga:
    """Biased random-key genetic algorithm for `Makespan` without contiguity; see the module."""

    name: ClassVar[str] = "brkga"

    def __init__(self, params: BrkgaParams | None = None) -> None:
        self.params = params or BrkgaParams()

    @classmethod
    def from_params(cls, argument: str | None, params: Mapping[str, Any]) -> Self:
        """Make the method; ``brkga:50`` gives the patience."""
        if argument is not None:
            if not argument.isdigit():
                raise InvalidProblemError(f"brkga: patience is {argument!r}; it must be a whole number >= 1")
            params = {**params, "patience": int(argument)}
        return cls(read_params(BrkgaParams, cls.name, params))

    def supports(self, problem: Problem) -> str | None:
        """Return None for `Makespan` without contiguity."""
        if not isinstance(problem.objective, Makespan):
            return f"it breeds schedules, which makespan has, not {problem.objective.name}"
        is_free = problem.contiguity is Contiguity.NONE
        return None if is_free else f"it does not keep parts {problem.contiguity}"

    def run(self, run: Run) -> StopReason:
        """Breed until told to stop, or until `patience` generations in a row brought nothing.

        Notes
        -----
        O(population * (ops + edges) log ops) per generation; the same for any number of threads.
        """
        offer_single_devices(run)
        run.raise_bound(*largest_op(run.problem))
        assert isinstance(run.problem.objective, Makespan)
        flat = sequence_problem(run.problem, has_contention=run.problem.objective.contention)
        if not flat.allowed.any(axis=1).all():
            return StopReason.FINISHED
        offer_list_schedules(run)
        return _Breeding(run, flat, self.params).breed()


def encode(flat: SequenceProblem, device: NDArray[np.int64], sequence: NDArray[np.int64]) -> NDArray[np.float64]:
    """``[C + V]`` keys of a placement ``[V]`` and of an order ``[V]`` of the ops."""
    num_ops = len(sequence)
    chosen = device[flat.class_ops[flat.class_offsets[:-1]]]
    place = np.cumsum(flat.allowed, axis=1)[np.arange(len(chosen)), chosen] - 0.5
    priority = np.empty(num_ops)
    priority[sequence] = (np.arange(num_ops) + 0.5) / num_ops
    return np.concatenate([place / flat.allowed.sum(axis=1), priority])


def equal_groups(flat: SequenceProblem) -> NDArray[np.int64]:
    """``[D]`` group of each device: devices of a group are of one kind, with one limit, open for the same classes."""
    groups: dict[tuple[int, float, bytes], int] = {}
    kinds, limits = flat.instance.kind.tolist(), flat.instance.limit_bytes.tolist()
    facts = [(kind, limits[d], flat.allowed[:, d].tobytes()) for d, kind in enumerate(kinds)]
    return np.array([groups.setdefault(fact, len(groups)) for fact in facts], dtype=np.int64)


@njit(cache=True, nogil=True)
def decode_devices(
    flat: SequenceProblem, keys: NDArray[np.float64], largest_first: NDArray[np.int64], group: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Place chromosomes, name equal devices by their first op, and write the placements back into the keys.

    Parameters
    ----------
    keys
        ``[B, C + V]`` chromosomes; their first C keys are overwritten.
    largest_first
        ``[C]`` order in which the classes choose.
    group
        ``[D]`` group of equal devices.

    Returns
    -------
    tuple[NDArray[np.int64], NDArray[np.bool_]]
        ``[B, V]`` devices, and ``[B]`` True where all memory limits hold. O(B (V + C D + D squared)).
    """
    num_classes, num_devices = flat.allowed.shape
    devices = np.empty((len(keys), flat.time_s.shape[0]), dtype=np.int64)
    fits = np.empty(len(keys), dtype=np.bool_)
    name = np.empty(num_devices, dtype=np.int64)
    is_taken = np.empty(num_devices, dtype=np.bool_)
    for b in range(len(keys)):
        device, fits[b] = place_by_wish(flat, keys[b, :num_classes], largest_first)
        name[:] = -1
        is_taken[:] = False
        for v in flat.instance.order:
            d = device[v]
            if name[d] < 0:
                name[d] = 0
                while group[name[d]] != group[d] or is_taken[name[d]]:
                    name[d] += 1
                is_taken[name[d]] = True
            devices[b, v] = name[d]
        for c in range(num_classes):
            d = devices[b, flat.class_ops[flat.class_offsets[c]]]
            place = 0
            for e in range(d):
                place += flat.allowed[c, e]
            keys[b, c] = (place + 0.5) / max(1, flat.allowed[c].sum())
    return devices, fits


class _Breeding:
    """One run of the algorithm."""

    def __init__(self, run: Run, flat: SequenceProblem, params: BrkgaParams) -> None:
        self.run, self.flat, self.params = run, flat, params
        self.num_classes = len(flat.class_bytes)
        self.largest_first = np.argsort(-flat.class_bytes, kind="stable")
        self.group = equal_groups(flat)
        self.rank_s = mean_rank_s(flat)
        self.best_s = np.inf
        self.num_elite = max(1, round(params.elite * params.population))
        self.num_mutants = round(params.mutants * params.population)

    def breed(self) -> StopReason:
        """Run generations until told to stop, or out of patience."""
        known = [encode(self.flat, *start) for start in known_starts(self.run, self.flat)]
        listed = scattered(self.flat, self.rank_s, 0.0, self.run.rng)
        if listed is not None:
            known.append(encode(self.flat, *listed))
        keys, fitness = self._populate(known)
        stale, since_restart, elite_s = 0, 0, np.inf
        while (reason := self.run.should_stop()) is None:
            if stale >= self.params.patience or self.best_s <= 0.0:
                return StopReason.FINISHED
            before = self.best_s
            if since_restart >= self.params.restart:
                keys, fitness = self._populate([])
                since_restart, elite_s = 0, np.inf
            else:
                keys, fitness = self._next(keys, fitness)
            since_restart = 0 if fitness[0] < elite_s else since_restart + 1
            elite_s = min(elite_s, float(fitness[0]))
            stale = 0 if self.best_s < before else stale + 1
        return reason

    def _populate(self, known: list[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a population that holds `known`, best first, with its makespans."""
        known = known[: self.params.population]
        keys = np.concatenate([*(row[None] for row in known), self._mutants(self.params.population - len(known))])
        return _sorted(keys, self._evaluate(keys))

    def _mutants(self, count: int) -> NDArray[np.float64]:
        """``[count, C + V]`` new chromosomes: uniform ones, and list schedules with noise in turn."""
        keys = self.run.rng.random((count, self.num_classes + self.flat.instance.num_ops))
        for row in keys[::2]:
            if self.run.should_stop() is not None:
                break
            listed = scattered(self.flat, self.rank_s, NOISE * self.run.rng.random(), self.run.rng)
            if listed is not None:
                row[:] = encode(self.flat, *listed)
        return keys

    def _next(
        self, keys: NDArray[np.float64], fitness: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the next generation, best first, with its makespans."""
        rng, num_elite = self.run.rng, self.num_elite
        num_children = len(keys) - num_elite - self.num_mutants
        chosen = rng.integers(num_elite, size=num_children)
        others = rng.integers(num_elite, len(keys), size=num_children)
        children = np.where(self._from_elite(num_children), keys[chosen], keys[others])
        new = np.concatenate([children, self._mutants(self.num_mutants)])
        return _sorted(
            np.concatenate([keys[:num_elite], new]), np.concatenate([fitness[:num_elite], self._evaluate(new)])
        )

    def _from_elite(self, count: int) -> NDArray[np.bool_]:
        """``[count, C + V]`` which keys come from the elite parent: stretches of the topological order, as a rule."""
        rng, instance = self.run.rng, self.flat.instance
        num_ops = instance.num_ops
        length = 2.0 ** rng.integers(0, max(1, num_ops.bit_length() - 1), size=(count, 1))
        stretch = np.cumsum(rng.random((count, num_ops)) < 1 / length, axis=1)
        drawn = rng.random((count, num_ops + 1)) < self.params.inherit
        of_op = drawn[np.arange(count)[:, None], stretch][:, instance.rank]
        leader = self.flat.class_ops[self.flat.class_offsets[:-1]]
        return np.concatenate([of_op[:, leader], of_op], axis=1)

    def _evaluate(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[B]`` makespans; infinity where memory does not suffice, or where time ran out.

        The device keys are overwritten with those of the placement that was decoded, its equal devices renamed.
        """
        flat, run = self.flat, self.run
        makespan_s = np.full(len(keys), np.inf)
        rows = max(1, CHUNK // (flat.instance.num_ops + len(flat.instance.readers)))
        for begin in range(0, len(keys), rows):
            if run.should_stop() is not None:
                break
            part = keys[begin : begin + rows]
            devices, fits = decode_devices(flat, part, self.largest_first, self.group)
            priority = part[:, self.num_classes :]
            values = batch_makespan(flat.instance, devices, priority, has_contention=flat.has_contention)
            makespan_s[begin : begin + rows] = np.where(fits, values, np.inf)
            at = begin + int(np.argmin(makespan_s[begin : begin + rows]))
            if makespan_s[at] < self.best_s:
                self.best_s = float(makespan_s[at])
                self._offer(devices[at - begin], priority[at - begin])
        return makespan_s

    def _offer(self, device: NDArray[np.int64], priority: NDArray[np.float64]) -> None:
        timeline = simulate(self.flat.instance, device, priority, has_contention=self.flat.has_contention)
        placement = Placement.of(self.run.problem, device, timeline.step_of_op)
        self.run.offer(placement, at_most=timeline.makespan_s)


def _sorted(keys: NDArray[np.float64], fitness: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = np.argsort(fitness, kind="stable")
    return keys[order], fitness[order]
