"""Last stage of ``auto``: of placements with the same objective, the one that is preferred.

In this order: more free memory on the fullest device (as a share of its limit), less transfer, fewer devices, a smaller
largest load. From the best placement on, classes move one at a time, or the first or the last of a device along the
graph, or all of them; a move is kept if the judge finds the objective the same and the placement preferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from placekit.objectives.evaluate import Evaluation
from placekit.solve.method import Run
from placekit.solvers.generic.coarsen import Contraction, contract

SAME = 1e-12
"""Relative difference of two sums of the same seconds, at most."""
MOST_EVALUATIONS, MOST_WORK = 400, 400_000
"""Placements that are looked at, and of these ops and edges together: a fraction of a second."""
SHARE = 0.1
"""Share of the time of the solve that the stage may take."""
LEAST_S = 1.0
"""Seconds that the stage may take in any case, so that quick answers do not depend on the clock."""


def settle_ties(run: Run) -> None:
    """Exchange the best placement for one that is preferred, with the same objective; nothing with teams."""
    if run.remaining_s == 0:  # of many ops, setting up takes a tenth of a second
        return
    placement, now = run.placement, run.evaluation
    if placement is None or now is None or now.objective is None or any(len(team) > 1 for team in placement.teams):
        return
    graph, most_s = run.problem.graph, now.objective * (1 + SAME)
    contraction = contract(run.problem)
    position = np.argsort(graph.order)[contraction.leader]
    left = min(MOST_EVALUATIONS, MOST_WORK // (graph.num_ops + graph.num_edges + 1))
    end_s = run.elapsed_s + max(SHARE * run.elapsed_s, LEAST_S)
    best, wish, is_better = placement, _wish(now), True
    while is_better:
        is_better = False
        for device in _moved(contraction, contraction.restrict(best.device_of_op), position):
            if left <= 0 or run.elapsed_s > end_s or run.remaining_s == 0 or run.interrupted.is_set():
                break
            left -= 1
            tried = replace(best, device_of_op=contraction.expand(device))
            judged = run.judge(tried)
            if judged.is_feasible and judged.objective is not None and judged.objective <= most_s:
                wished = _wish(judged)
                if wished < wish:
                    best, wish, is_better = tried, wished, True
                    break
    if best is not placement:
        run.settle_on(best)


def _wish(judged: Evaluation) -> tuple[float, ...]:
    """Return what is to be small, in the order of importance, without the rounding of sums."""
    loads = judged.device_loads
    fullest = max((load.memory_bytes / load.memory_limit_bytes for load in loads if load.memory_limit_bytes), default=0)
    used = sum(load.num_ops > 0 for load in loads)
    told = fullest, sum(load.transfer_s for load in loads), used, max(load.load_s for load in loads)
    return tuple(float(f"{each:.9g}") for each in told)


def _moved(
    contraction: Contraction, device: NDArray[np.int64], position: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Yield placements of classes with some of one device on another, many of them before few."""
    used = np.unique(device).tolist()
    empty = [
        group[0] for group in ([d for d in each if d not in used] for each in contraction.interchangeable) if group
    ]
    groups = [(source, np.flatnonzero(device == source)) for source in used]
    groups = [(source, mine[np.argsort(position[mine])]) for source, mine in groups]
    for halvings in range(max(len(mine) for _, mine in groups).bit_length() + 1):
        for source, mine in groups:
            count = len(mine) >> halvings
            for part in (mine[:count], mine[len(mine) - count :])[: 1 if halvings == 0 else 2] if count else ():
                for target in (*used, *empty):
                    if target != source and contraction.allowed[part, target].all():
                        moved = device.copy()
                        moved[part] = target
                        yield moved
    for c in range(contraction.num_classes):
        for target in (*used, *empty):
            if target != device[c] and contraction.allowed[c, target]:
                moved = device.copy()
                moved[c] = target
                yield moved
