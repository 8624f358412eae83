"""Where the makespan searches begin: list schedules, what is known, and list schedules with noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from placekit.makespan.ranks import mean_transfer_s, mean_upward_rank
from placekit.makespan.simulate import simulate, simulate_fifo, simulate_steps
from placekit.method import Run
from placekit.solvers.makespan.lists.schedulers import Heft, MEtf
from placekit.solvers.makespan.schedule.sequence import SequenceProblem
from placekit.solvers.makespan.search.construct import construct, dispatch_order, place_by_wish

__all__ = ["Start", "known_starts", "mean_rank_s", "offer_list_schedules", "redispatch", "respects", "scattered"]

Start = tuple[NDArray[np.int64], NDArray[np.int64]]
"""``[V]`` device of every op, and ``[V]`` a topological order."""
PACKINGS = 32
"""Random packings that are tried where list scheduling leaves a class without room."""


def mean_rank_s(flat: SequenceProblem) -> NDArray[np.float64]:
    """``[V]`` HEFT's upward rank."""
    return mean_upward_rank(flat.instance)


def respects(flat: SequenceProblem, device: NDArray[np.int64]) -> bool:
    """Return True if the placement ``[V]`` `device` keeps classes, support, pins and memory."""
    device_of_class = device[flat.class_ops[flat.class_offsets[:-1]]]
    if not np.array_equal(device_of_class[flat.instance.class_of_op], device):
        return False
    used = np.bincount(device, weights=flat.instance.memory_bytes, minlength=flat.instance.num_devices)
    classes = np.arange(len(device_of_class))
    return bool(flat.allowed[classes, device_of_class].all() and (used <= flat.instance.limit_bytes).all())


def offer_list_schedules(run: Run) -> None:
    """Offer the schedules of `heft` and `m-etf`, so that no search ends worse than they do."""
    for scheduler in (Heft(), MEtf()):
        scheduler.run(run)


def known_starts(run: Run, flat: SequenceProblem) -> Iterator[Start]:
    """Yield what `run` holds: its best placement, and its warm start, each in the order in which it runs its ops."""
    for placement in (run.placement, run.warm_start):
        if placement is None or not respects(flat, placement.device_of_op):
            continue
        device = np.array(placement.device_of_op)
        if placement.step_of_op is not None:
            timeline = simulate_steps(flat.instance, device, placement.step_of_op, has_contention=flat.has_contention)
            if not isinstance(timeline, int):
                yield device, np.argsort(timeline.step_of_op)
                continue
        yield from redispatch(flat, device, mean_rank_s(flat))


def redispatch(flat: SequenceProblem, device: NDArray[np.int64], rank_s: NDArray[np.float64]) -> Iterator[Start]:
    """Yield a placement in the orders in which devices that never idle would run it: by readiness, and by rank."""
    by_readiness = simulate_fifo(flat.instance, device, has_contention=flat.has_contention)
    yield device, np.argsort(by_readiness.step_of_op)
    by_rank = simulate(flat.instance, device, -rank_s, has_contention=flat.has_contention)
    yield device, np.argsort(by_rank.step_of_op)


def scattered(
    flat: SequenceProblem, rank_s: NDArray[np.float64], noise: float, rng: np.random.Generator
) -> Start | None:
    """Return a list schedule by earliest finish, or None if no placement within the memory limits was found.

    Parameters
    ----------
    rank_s
        ``[V]`` upward rank; the larger the earlier.
    noise
        0 for the plain rule; else the relative spread of the ranks, and the largest share of an op's transfers that it
        may lose to stay where its last input is.
    """
    num_ops, num_classes = len(rank_s), len(flat.class_bytes)
    sequence = dispatch_order(flat, -rank_s * (1 + noise * rng.standard_normal(num_ops)))
    patience_s = np.zeros(num_ops)
    if noise:
        sent_s = mean_transfer_s(flat.instance)
        written = np.bincount(flat.instance.producer, weights=sent_s, minlength=num_ops)
        patience_s += noise * float(rng.choice([0.0, 1.0, 4.0])) * rng.random() * written
    anywhere = np.full(num_classes, -1, dtype=np.int64)
    device, fits = construct(flat, sequence, anywhere, patience_s)
    if fits:
        return device, sequence
    largest_first = np.argsort(-flat.class_bytes, kind="stable")
    for _ in range(PACKINGS):
        device, fits = place_by_wish(flat, rng.random(num_classes), largest_first)
        if fits:
            return device, sequence
    return None
