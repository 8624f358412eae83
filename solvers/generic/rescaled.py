"""Programs that are scaled by the best known objective, and built again if the optimum is far below."""

from __future__ import annotations

from collections.abc import Callable

from placekit.solve.method import Run
from placekit.solve.stop import StopReason


def rescaled(
    run: Run,
    # builds the program for an objective in seconds, None while there is none, and solves it
    solve: Callable[[float | None], StopReason],
) -> StopReason:
    """Solve a program, again if its optimum is so far below the scale that rounding hides a part of the gap."""
    reason = run.should_stop()
    while reason is None:
        ceiling_s = run.objective
        reason = solve(ceiling_s)
        is_far = run.objective is not None and (ceiling_s is None or run.objective < ceiling_s / 2)
        if reason is StopReason.FINISHED and is_far:
            reason = run.should_stop()
    return reason
