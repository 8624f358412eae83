"""The plan of a chain that is preferred among those with the same objective.

1. The least filled of the fullest devices: bisection over the shares of memory that a stage may fill.
2. Of these the least seconds of transfers, then the fewest stages, then the most even work: the same program with these
   as what a stage costs. Where seconds are added up they come on top of the objective, too small to change it.

The objective is held: a plan is kept if its seconds are those of the optimum, but for the rounding of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from placekit.solvers.chain.dynamic_program import BlockRun, Lead, StageSort, StoppedError, best_chain

SAME = 1e-13
"""Relative difference of two sums of the same seconds, at most."""
LITTLE = 1e-10
"""Share of the objective that all other wishes together are worth where seconds are added up."""
FEW_STAGES, EVEN_WORK = 1e-3, 1e-6
"""Worth of a stage less, and of even work, in units of all transfers."""
MAX_WORK = 2e7
"""Stages that one program tries at most: beyond it the first plan stays, since the others would take seconds."""


def prefer(
    sorts: Sequence[StageSort],
    sizes: Sequence[int],
    found: tuple[float, tuple[BlockRun, ...]],
    *,
    is_sum: bool,
    lead: Lead | None = None,
) -> tuple[BlockRun, ...]:
    """Return the stages of the preferred plan among those as good as `found`; the arguments are of `best_chain`."""
    value, plan = found
    count = len(sorts[0].cost_s) - 1
    if np.prod([size + 1.0 for size in sizes]) * len(sorts) * (count + 1) ** 2 > MAX_WORK:
        return plan
    most = value * (1 + SAME) if is_sum else value
    costs = [np.where(sort.cost_s <= most, sort.cost_s, np.inf) for sort in sorts]

    def planned(level: float, extra: bool) -> tuple[BlockRun, ...] | None:
        """Return the best plan that fills no device above `level`; None if it is worse than `found`."""
        tried = []
        for sort, cost in zip(sorts, costs, strict=True):
            allowed = np.isfinite(cost) & (sort.fullness <= level)
            own, moved_s = (np.where(allowed, seconds, 0.0) for seconds in (cost, sort.moved_s))
            if extra:
                wish = moved_s / most_moved + FEW_STAGES + EVEN_WORK * (own / (value or 1.0)) ** 2
                own = own + LITTLE * value * wish if is_sum else wish
            tried.append(replace(sort, cost_s=np.where(allowed, own, np.inf)))
        best = best_chain(tried, sizes, count, is_sum=is_sum or extra, lead=lead)
        if best is None:
            return None
        reached = [float(costs[run.sort][run.begin, run.end]) for run in best[1]]
        return best[1] if (sum(reached) if is_sum else max(reached)) <= most else None

    finite = [np.isfinite(cost) for cost in costs]
    most_moved = sum(float(sort.moved_s[is_one].max(initial=0.0)) for sort, is_one in zip(sorts, finite, strict=True))
    most_moved = most_moved or 1.0
    levels = np.unique(np.concatenate([sort.fullness[is_one] for sort, is_one in zip(sorts, finite, strict=True)]))
    levels = levels[levels <= max(sorts[run.sort].fullness[run.begin, run.end] for run in plan)]
    low, high = 0, len(levels) - 1  # at the highest one there is the plan itself
    try:
        while low < high:
            middle = (low + high) // 2
            better = planned(float(levels[middle]), extra=False)
            low, high, plan = (middle + 1, high, plan) if better is None else (low, middle, better)
        return planned(float(levels[high]), extra=True) or plan
    except StoppedError:
        return plan
