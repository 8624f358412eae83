"""Series programs of growing size, which give bounds and placements, or the optimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from placekit.solve.method import Run
from placekit.solvers.offload_latency.bounds import rounded_down
from placekit.solvers.offload_latency.flat import OffloadProblem
from placekit.solvers.offload_latency.plans import offer_calls
from placekit.solvers.offload_latency.series.gap_calls import Inside, look_inside
from placekit.solvers.offload_latency.series.series_program import SeriesPlan, solve_series
from placekit.solvers.offload_latency.series.spine import Series, along_order, decompose

SERIES_PROGRAM = "series program"
MAX_IDEALS = (5_000, 16_000, 50_000)
"""Ideals of the series program, one size after the other: each takes about ten times as long as the one before."""
PLAN_UP_TO = 20_000
"""Ideals up to which the series program looks for placements with calls inside gaps."""
MAX_ORDER = 3000
"""Nodes up to which all pairs of places in one order are tried as a call."""


def offer_plan(run: Run, flat: OffloadProblem, series: Series, plan: SeriesPlan) -> None:
    """Offer the placement of a plan, if its calls fit on devices."""
    call_of_node = np.full(flat.num_nodes, -1, dtype=np.int64)
    for call, (nodes, _) in enumerate(plan.calls):
        call_of_node[nodes] = call
    offer_calls(run, flat, call_of_node, series.dropped, [group for _, group in plan.calls])


def solve_along_spine(
    run: Run,
    flat: OffloadProblem,
    on_bound: Callable[[float, str], None],
    should_stop: Callable[[], bool],
) -> None:
    """Raise the bound and offer the placement of the series program, with few ideals and then with more.

    If gaps are thinned, the placement along one order of all nodes is offered, too. If they lose most of the nodes,
    only that placement is offered: a bound on the rest is weaker than the critical path. With many ideals only the
    bound is worth its time, as calls inside gaps are rarely described well by ideals.
    """
    # a series that loses most of the nodes is of no use, unless it follows one order
    has_line = flat.num_nodes <= MAX_ORDER
    least_kept = 0 if has_line else -(-flat.num_nodes // 2)
    insides: Mapping[int, Inside] | None = None
    for max_ideals in MAX_IDEALS:
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
            if max_ideals > MAX_IDEALS[0] and insides is None:
                insides = look_inside(run, flat, series.between)
            insides = _solve_series(run, flat, series, insides, on_bound, should_stop)
        if should_stop() or not len(series.dropped):
            return


def _solve_series(
    run: Run,
    flat: OffloadProblem,
    series: Series,
    insides: Mapping[int, Inside] | None,
    on_bound: Callable[[float, str], None],
    should_stop: Callable[[], bool],
) -> Mapping[int, Inside] | None:
    """Raise the bound and offer placements; return the results on calls inside gaps, None if there are none."""
    if series.num_ideals <= PLAN_UP_TO:
        plan = solve_series(flat, series, is_bound=False, should_stop=should_stop)
        if plan is not None:
            offer_plan(run, flat, series, plan)
    while not should_stop():
        most_s = np.inf if run.objective is None else run.objective
        bound = solve_series(
            flat,
            series,
            is_bound=True,
            insides=insides or {},
            most_s=most_s,
            should_stop=should_stop,
        )
        if bound is None:
            break
        on_bound(rounded_down(flat, bound.latency_s), SERIES_PROGRAM)
        if bound.is_placement or insides is not None:
            offer_plan(run, flat, series, bound)
            break
        insides = look_inside(run, flat, series.between)
        if len(series.dropped):  # a larger series comes next
            break
    return insides
