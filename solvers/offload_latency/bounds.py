"""Lower bounds of the offload latency: critical path with transfers, series program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placekit.graph import topological_order
from placekit.method import Run
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.mechanisms import ALL, Mechanisms
from placekit.solvers.offload_latency.plans import assign_devices, insert_nodes, placement_of
from placekit.solvers.offload_latency.series import Series, along_order, decompose
from placekit.solvers.offload_latency.series_program import Plan, solve_series

__all__ = [
    "CRITICAL_PATH",
    "SERIES_PROGRAM",
    "critical_path",
    "earliest_ends",
    "offer_plan",
    "rounded_down",
    "solve_along_spine",
]

CRITICAL_PATH = "critical path with transfers"
SERIES_PROGRAM = "series program"
MAX_IDEALS = (5_000, 16_000, 50_000)
"""Ideals of the series program, one size after the other: each takes about ten times as long as the one before."""
PLAN_UP_TO = 20_000
"""Ideals up to which the series program looks for placements with calls inside gaps."""
MAX_ORDER = 3000
"""Nodes up to which all pairs of places in one order are tried as a call."""


def rounded_down(flat: OffloadProblem, latency_s: float) -> float:
    """Return a computed lower bound in seconds, less what rounding may have added."""
    return max(0.0, latency_s * (1 - 1e-12) - flat.rounding_s)


def critical_path(flat: OffloadProblem) -> float:
    """Return a lower bound in seconds: the longest path, see `earliest_ends`."""
    return float(earliest_ends(flat).max())


def earliest_ends(flat: OffloadProblem) -> NDArray[np.float64]:
    """``[N]`` lower bounds in seconds: each node where it is soonest done, given what precedes it.

    A node in a call ends after the inputs that come from outside the call have moved in: for a predecessor u either u
    is in the same call and ended before, or u's output is in host memory and all of u's nets to the node move in. Two
    nodes that do not fit on one accelerator together are not in one call. The output of a node is in host memory when
    the node ends on the host, or when it ends in a call and the cheapest of its nets has moved out. The last node of a
    path may be in the call of its successor, so it need not move out.

    Notes
    -----
    O(nodes + edges + pins). Source: the best-times critical path of Tarnawski et al. 2020, with transfers where the
    device changes.
    """
    net_in = flat.net_time_s.min(axis=1, initial=np.inf)
    moved: dict[tuple[int, int], float] = dict.fromkeys(
        zip(flat.senders.tolist(), flat.receivers.tolist(), strict=True), 0.0
    )
    out = np.full(flat.num_nodes, np.inf)
    is_priced = set()
    for n, time in enumerate(net_in.tolist()):
        producer, *others = flat.nodes_of_net(n).tolist()
        out[producer] = min(out[producer], time)
        for v in others:
            if (producer, v) in moved:
                moved[producer, v] += time
                is_priced.add((producer, v))
    for edge in moved.keys() - is_priced:
        out[edge[0]] = 0.0
    out[~np.isfinite(out)] = 0.0
    call = flat.time_s.min(axis=1, initial=np.inf).tolist()
    host, size = flat.host_time_s.tolist(), flat.memory_bytes.tolist()
    largest = float(flat.limit_bytes.max(initial=0.0))
    before: list[list[tuple[int, float]]] = [[] for _ in range(flat.num_nodes)]
    for (u, v), time in moved.items():
        before[v].append((u, time))
    order, _ = topological_order(flat.num_nodes, flat.senders, flat.receivers)
    ends, known = [0.0] * flat.num_nodes, [0.0] * flat.num_nodes  # in a call; in host memory
    earliest = np.zeros(flat.num_nodes)
    for v in order.tolist():
        on_host = max((known[u] for u, _ in before[v]), default=0.0) + host[v]
        start = 0.0
        for u, time in before[v]:
            together = ends[u] if size[u] + size[v] <= largest else np.inf
            start = max(start, min(together, known[u] + time))
        ends[v] = start + call[v]
        known[v] = min(on_host, ends[v] + float(out[v]))
        earliest[v] = min(on_host, ends[v])
    return earliest


def offer_plan(run: Run, flat: OffloadProblem, series: Series, plan: Plan) -> None:
    """Offer the placement of a plan, if its calls find devices."""
    call_of_node = np.full(flat.num_nodes, -1, dtype=np.int64)
    for call, (nodes, _) in enumerate(plan.calls):
        call_of_node[nodes] = call
    insert_nodes(flat, call_of_node, series.dropped)
    device_of_call = assign_devices(flat, call_of_node, [group for _, group in plan.calls])
    if device_of_call is None:
        return
    placement = placement_of(flat, call_of_node, device_of_call)
    if placement is not None:
        run.offer(placement)


def solve_along_spine(
    run: Run,
    flat: OffloadProblem,
    on_bound: Callable[[float, str], None],
    should_stop: Callable[[], bool],
    mechanisms: Mechanisms = ALL,
) -> None:
    """Offer the best placement of the series program, and raise the bound by it; with few ideals, then with more.

    If gaps have to be thinned, a placement of the same program along one order of all nodes is offered, too; and if
    they lose most of the nodes, only that one: a bound on the rest says less than the critical path. A call inside a
    gap is rarely well described by ideals, so with many of them only the bound is worth its time.
    """
    # without a line along one order, a series that loses most of the nodes is of no use
    has_line = mechanisms.line and flat.num_nodes <= MAX_ORDER
    least_kept = 0 if has_line else -(-flat.num_nodes // 2)
    for max_ideals in MAX_IDEALS if mechanisms.larger else MAX_IDEALS[:1]:
        series = decompose(flat, max_ideals, should_stop, least_kept)
        run.done.add(SERIES_PROGRAM)
        if series is None:
            return
        run.info |= {"spine": len(series.spine), "ideals": series.num_ideals}
        if max_ideals == MAX_IDEALS[0] and len(series.dropped) and has_line:
            line = along_order(flat)
            plan = solve_series(flat, line, is_bound=False, should_stop=should_stop)
            if plan is not None:
                offer_plan(run, flat, line, plan)
        if len(series.dropped) <= flat.num_nodes / 2:
            _solve_series(run, flat, series, on_bound, should_stop)
        if should_stop() or not len(series.dropped):
            return


def _solve_series(
    run: Run,
    flat: OffloadProblem,
    series: Series,
    on_bound: Callable[[float, str], None],
    should_stop: Callable[[], bool],
) -> None:
    if series.num_ideals <= PLAN_UP_TO:
        plan = solve_series(flat, series, is_bound=False, should_stop=should_stop)
        if plan is not None:
            offer_plan(run, flat, series, plan)
        if should_stop():
            return
    most_s = np.inf if run.objective is None else run.objective
    bound = solve_series(flat, series, is_bound=True, most_s=most_s, should_stop=should_stop)
    if bound is not None:
        on_bound(rounded_down(flat, bound.latency_s), SERIES_PROGRAM)
        if bound.is_placement:
            offer_plan(run, flat, series, bound)
