r"""A few passes over a decoded placement, in which every op chooses its device once more, now that it knows all others.

Throughput and serial latency: what counts is the p-norm of the loads (close to the largest) or their sum, in units of
the mean op time, and the policy's word beside it: op v on device d costs

.. math:: \lVert load(v \to d) \rVert - trust \cdot \log p_{v,d}

Loads are those of :mod:`placekit.objectives.throughput`, and ops that share a device are one op, whose tensors are
those that leave it. A pass visits the ops in topological order; passes end when nothing moves. Makespan: ops of a
critical path try other devices, the likeliest first, and take the first with which the makespan falls
(:func:`placekit.learned.imitation.kernels.refine_makespan`).

Ops that exchange large tensors cannot part from each other one by one: every single move costs a transfer. So of loads,
whole regions move as well (`RegionSearch`): a connected region of random size goes to one device, drawn by the mean of
the policy's probabilities over its ops (and sometimes any), and the placement is refined by the loads alone. That is an
iterated local search (Lourenço, Martin and Stützle 2003) whose moves the policy draws.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import csr_lists, sum_by
from placekit.learned.environment import Environment
from placekit.learned.imitation.decoding import ScoreDecoder
from placekit.learned.imitation.inputs import OBJECTIVES, Inputs
from placekit.learned.imitation.kernels import refine_loads, refine_makespan
from placekit.model.contiguity import Contiguity
from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import MakespanInstance, csr_offsets, frozen
from placekit.objectives.makespan.instance import instance_of

_POWER = 8
_TRUST = 0.1
_OP_EVALUATIONS = 400_000
"""Makespans of a refinement, times ops: at most some 0.1 s, whatever the size."""
_POWERS = (32, 8)
"""Norms of the loads by turns: close to the largest, and one that sees the others as well."""
_PASSES = 4
_ANYWHERE = 0.3
"""Weight of a device that is drawn whatever the policy says, next to a probability."""
_WORK = 4_000_000
"""Regions, times ops and devices squared."""
_LARGEST_SHARE = 0.5
_MAKESPAN, _SERIAL = OBJECTIVES.index("makespan"), OBJECTIVES.index("serial-latency")


class Refinement:
    """Passes over placements of one problem.

    Parameters
    ----------
    problem, inputs
        The problem, and what the policy sees of it.
    passes
        Most passes over loads.
    trust
        Weight of the policy's word.
    power
        Norm of the loads that counts for throughput.
    """

    def __init__(
        self, problem: Problem, inputs: Inputs, *, passes: int = 8, trust: float = _TRUST, power: int = _POWER
    ) -> None:
        instance: MakespanInstance = instance_of(problem)
        self._instance, self._inputs, self._passes, self._trust = instance, inputs, passes, trust
        shape = inputs.num_ops, inputs.num_devices
        self._leader = np.unique(instance.class_of_op, return_index=True)[1]
        self._time = np.zeros((len(self._leader), inputs.num_devices))
        np.add.at(self._time, instance.class_of_op, inputs.time.reshape(shape).astype(np.float64))
        self._transfer = inputs.transfer.astype(np.float64)
        self._allowed = inputs.allowed.reshape(shape)
        self._power = 1 if inputs.objective == _SERIAL else power
        self._is_single = np.bincount(instance.class_of_op)[instance.class_of_op] == 1
        self._has_contention = bool(getattr(problem.objective, "contention", False))

    @cached_property
    def _classes(self) -> MakespanInstance:
        return _joined(self._instance)

    def refined(self, device_of_op: NDArray[np.int64], log_probs: NDArray[np.float64]) -> NDArray[np.int64]:
        """``[num_ops]`` devices after the passes; for a makespan, ops that others must follow stay where they are.

        Notes
        -----
        Loads: O(passes (ops + edges) devices^2). Makespan: a fixed number of makespans.
        """
        known = self._allowed & np.isfinite(log_probs)
        if self._inputs.objective == _MAKESPAN:
            device = device_of_op.copy()
            penalty = np.where(known, -log_probs, np.inf)
            most = max(1, _OP_EVALUATIONS // self._inputs.num_ops)
            refine_makespan(self._instance, penalty, self._is_single, self._has_contention, most, device)
            return device
        penalty = np.where(known, -self._trust * np.where(known, log_probs, 0.0), np.inf)[self._leader]
        of_class = device_of_op[self._leader]
        refine_loads(self._classes, self._time, self._transfer, penalty, self._power, self._passes, of_class)
        refined: NDArray[np.int64] = of_class[self._instance.class_of_op]
        return refined


def _joined(instance: MakespanInstance) -> MakespanInstance:
    """Return the instance with one op for every class, as far as `refine_loads` reads it; the tensors stay."""
    class_of_op, num_tensors = instance.class_of_op, len(instance.producer)
    num_classes = int(class_of_op.max()) + 1
    producer = class_of_op[instance.producer]
    tensor = instance.tensor_of_reader
    reader = class_of_op[instance.readers]
    leaves = reader != producer[tensor]
    reader, tensor = np.divmod(np.unique(reader[leaves] * num_tensors + tensor[leaves]), max(num_tensors, 1))
    first = np.full(num_classes, len(class_of_op))
    np.minimum.at(first, class_of_op, instance.rank)
    return frozen(
        instance._replace(
            memory_bytes=sum_by(class_of_op, instance.memory_bytes, num_classes),
            order=np.argsort(first, kind="stable"),
            out_offsets=csr_offsets(producer, num_classes),
            out_tensors=np.argsort(producer, kind="stable"),
            in_offsets=csr_offsets(reader, num_classes),
            in_tensors=tensor,
            producer=producer,
        )
    )


class RegionSearch:
    """Moves regions of the placements of one problem, whose objective is a load or a sum of loads.

    Parameters
    ----------
    problem, inputs, decoder
        The problem, what the policy sees of it, and what repairs its placements.
    most
        Most regions; of large problems fewer, so that the time stays about the same.
    """

    def __init__(self, problem: Problem, inputs: Inputs, decoder: ScoreDecoder, most: int) -> None:
        is_for = problem.objective.name in OBJECTIVES and problem.objective.name != "makespan"
        work = inputs.num_ops * inputs.num_devices**2
        is_free = problem.contiguity is Contiguity.NONE and inputs.num_ops > 1 and inputs.num_devices > 1
        self.count = min(most, _WORK // work) if is_for and is_free else 0
        self._decoder = decoder
        self._refinements = [Refinement(problem, inputs, passes=_PASSES, trust=0.0, power=power) for power in _POWERS]
        producers, readers = inputs.producer[inputs.edge_tensor], inputs.edge_reader
        ends, others = np.concatenate([producers, readers]), np.concatenate([readers, producers])
        offsets, neighbours = csr_lists(ends, others, inputs.num_ops)
        self._neighbours = np.split(neighbours, offsets[1:-1])
        self._class_of_op = problem.op_class

    def searched(
        self,
        rows: NDArray[np.int64],  # placements; each is refined without the policy's word first
        log_probs: NDArray[np.float64],  # ``[num_ops, num_devices]`` the policy's word
        environment: Environment,  # scores placements; the search ends where it says to stop
        seed: int,  # seed of the regions
    ) -> NDArray[np.int64]:
        """``[num_ops]`` the best placement that was met, from the best of `rows` ``[count, num_ops]``.

        O(regions passes (ops + edges) devices^2), at most a constant that does not depend on the problem.
        """
        rng = np.random.default_rng(seed)
        polished = np.stack([self._refinements[0].refined(row, log_probs) for row in rows])
        both = np.concatenate([rows, polished])
        values = environment.evaluate(both)
        at = int(np.argmin(values))
        best: NDArray[np.int64] = both[at]
        value = values[at]
        probs = np.exp(log_probs)
        for turn in range(self.count):
            if not environment.has_time():
                break
            moved = self._decoder.repaired(self._moved(best, probs, rng)[None])[0]
            moved = self._refinements[turn % len(_POWERS)].refined(moved, log_probs)
            found = environment.evaluate(moved[None])[0]
            if found <= value:
                best, value = moved, found
        return best

    def _region(self, start: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return at most `size` ops that are reached along edges from one of them, the nearest first."""
        found, queue = {start}, [start]
        for v in queue:
            if len(found) >= size:
                break
            for u in rng.permutation(self._neighbours[v]).tolist():
                if u not in found and len(found) < size:
                    found.add(u)
                    queue.append(u)
        return np.array(queue, dtype=np.int64)

    def _moved(
        self, device: NDArray[np.int64], probs: NDArray[np.float64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the placement with a random region on one device, those of its classes that may go there."""
        num_ops, num_devices = probs.shape
        largest = max(3.0, _LARGEST_SHARE * num_ops)
        size = int(np.exp(rng.uniform(np.log(2.0), np.log(largest))))
        ops = self._region(int(rng.integers(num_ops)), size, rng)
        weight = probs[ops].mean(axis=0) + _ANYWHERE / num_devices
        target = int(rng.choice(num_devices, p=weight / weight.sum()))
        is_in = np.isin(self._class_of_op, self._class_of_op[ops[probs[ops, target] > 0]])
        return np.where(is_in, target, device)
