"""Starts of the makespan searches: known placements, and list schedules with noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.objectives.makespan.arrays import frozen
from placekit.objectives.makespan.ranks import mean_upward_rank
from placekit.objectives.makespan.simulate import simulate, simulate_fifo, simulate_steps
from placekit.solve.method import Run
from placekit.solvers.makespan.lists.insertion import schedule_by_priority
from placekit.solvers.makespan.schedule.sequence import SequenceProblem

Start = tuple[NDArray[np.int64], NDArray[np.int64]]
"""``[V]`` device of every op, and ``[V]`` a topological order."""
PACKINGS = 32
"""Random packings that are tried where list scheduling leaves a class without room."""


def _respects(flat: SequenceProblem, device: NDArray[np.int64]) -> bool:
    """Return True if the placement ``[V]`` `device` keeps classes, support, pins and memory."""
    device_of_class = device[flat.class_ops[flat.class_offsets[:-1]]]
    if not np.array_equal(device_of_class[flat.instance.class_of_op], device):
        return False
    used = np.bincount(device, weights=flat.instance.memory_bytes, minlength=flat.instance.num_devices)
    classes = np.arange(len(device_of_class))
    return bool(flat.allowed[classes, device_of_class].all() and (used <= flat.instance.limit_bytes).all())


def known_starts(run: Run, flat: SequenceProblem) -> Iterator[Start]:
    """Yield the best placement and the warm start of `run`, each with the order of its ops."""
    for placement in (run.placement, run.warm_start):
        if placement is None or not _respects(flat, placement.device_of_op):
            continue
        device = np.array(placement.device_of_op)
        if placement.step_of_op is not None:
            timeline = simulate_steps(flat.instance, device, placement.step_of_op, has_contention=flat.has_contention)
            if not isinstance(timeline, int):
                yield device, np.argsort(timeline.step_of_op)
                continue
        yield from redispatch(flat, device)


def redispatch(flat: SequenceProblem, device: NDArray[np.int64]) -> Iterator[Start]:
    """Yield a placement in the orders of devices that never idle: by readiness, and by rank."""
    by_readiness = simulate_fifo(flat.instance, device, has_contention=flat.has_contention)
    yield device, np.argsort(by_readiness.step_of_op)
    by_rank = simulate(flat.instance, device, -mean_upward_rank(flat.instance), has_contention=flat.has_contention)
    yield device, np.argsort(by_rank.step_of_op)


def list_schedule(flat: SequenceProblem, noise: float, rng: np.random.Generator) -> Start | None:
    """Return a schedule of `heft` with noise; None if no placement within the memory limits was found.

    Parameters
    ----------
    flat
        The whole problem.
    noise
        Relative spread of the noise on ranks and op times; 0 for none.
    rng
        Source of randomness.
    """
    instance = flat.instance
    rank_s = mean_upward_rank(instance) * (1 + noise * rng.standard_normal(instance.num_ops))
    noise_s = noise * rng.random(instance.op_time_s.shape) * instance.op_time_s
    inside = frozen(instance._replace(allowed=flat.allowed[instance.class_of_op]))
    wanted: NDArray[np.int64] | None = np.full(instance.num_ops, -1)
    for _ in range(1 + PACKINGS):
        if wanted is not None:
            device, start_s, finish_s, fits = schedule_by_priority(inside, rank_s, noise_s, wanted, True)
            if fits:
                return device, np.lexsort((instance.rank, finish_s, start_s))
        wanted = _packed(flat, rng)
    return None


def _packed(flat: SequenceProblem, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Return random devices with room ``[V]``, for the largest classes first; None if a class finds none."""
    room, device = flat.instance.limit_bytes.copy(), np.zeros(len(flat.class_bytes), dtype=np.int64)
    for c in np.argsort(-flat.class_bytes, kind="stable").tolist():
        open_devices = np.flatnonzero(flat.allowed[c] & (flat.class_bytes[c] <= room))
        if not len(open_devices):
            return None
        device[c] = rng.choice(open_devices)
        room[device[c]] -= flat.class_bytes[c]
    return device[flat.instance.class_of_op]
