"""First placements and bounds of every method for `OffloadLatency`."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from placekit.objectives import OffloadLatency
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.baselines import offer_single_devices
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.offload_latency.bounds import CRITICAL_PATH, critical_path, rounded_down
from placekit.solvers.offload_latency.flat import OffloadProblem, flatten_calls
from placekit.solvers.offload_latency.plans import placement_of
from placekit.solvers.offload_latency.search import search_offload
from placekit.solvers.offload_latency.series.along_spine import SERIES_PROGRAM, solve_along_spine
from placekit.solvers.params import LocalSearchParams

START_SHARE = 0.2
"""Share of the time limit that the annealing before a program may take."""


def open_offload(run: Run[OffloadLatency], on_bound: Callable[[float, str], None]) -> OffloadProblem | None:
    """Offer the single devices and the hosts, raise the quick bounds, and return the flat problem.

    None if a class fits on no device: then the run holds the proof.
    """
    offer_single_devices(run)
    flat = flatten_calls(run.problem)
    hosts = placement_of(flat, np.full(flat.num_nodes, -1), np.zeros(0, dtype=np.int64))
    if hosts is not None:
        run.offer(hosts)
    on_bound(*largest_op(run.problem))
    if np.isinf(np.minimum(flat.time_s.min(axis=1, initial=np.inf), flat.host_time_s)).any():
        run.prove_infeasible(clash())
        return None
    longest_s = critical_path(flat)
    if math.isfinite(longest_s):
        on_bound(rounded_down(flat, longest_s), CRITICAL_PATH)
    return flat


def solve_offload(run: Run[OffloadLatency]) -> StopReason:
    """Solve by the series program; if its placement and bound differ, anneal the placement for a moment.

    The program does not see that host ops run beside calls within a gap; a few moves often find that.
    """
    reason = bound_offload(run, run.raise_bound)
    if reason is StopReason.FINISHED:
        search_offload(run, LocalSearchParams(patience=2, steps=100))
        return run.should_stop() or reason
    return reason


def bound_offload(run: Run[OffloadLatency], on_bound: Callable[[float, str], None]) -> StopReason:
    """Raise every bound, and offer the placement of the series program."""
    flat = open_offload(run, on_bound)
    if flat is None:
        return StopReason.PROVED
    if run.should_stop() is None:
        solve_along_spine(run, flat, on_bound, lambda: run.should_stop() is not None)
    if run.should_stop() is None:
        from placekit.solvers.offload_latency.path_calls import raise_along_path

        raise_along_path(run, flat, on_bound, lambda: run.should_stop() is not None)
    return run.should_stop() or StopReason.FINISHED


def search_before(run: Run[OffloadLatency]) -> StopReason | None:
    """Find a start for a program: by the series program, unless an earlier stage ran it, and by annealing."""
    if SERIES_PROGRAM not in run.done:
        reason = solve_offload(run)
        if reason is not StopReason.FINISHED:
            return reason
    with run.limited_to(None if run.remaining_s is None else START_SHARE * run.remaining_s):
        search_offload(run, LocalSearchParams(patience=3, steps=200))
    return run.should_stop()
