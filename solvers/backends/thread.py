"""A native solver in a thread of its own, which nobody waits for longer than it is worth."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

from placekit.solve.stop import in_this_solve, is_wanted

POLL_S = 0.05
"""Seconds between two looks, in which Python sees signals."""
GRACE_S = 0.5
"""Seconds that a solver has to end, and to give its last answer and bound, after it was told to. HiGHS does not listen
in presolve, in the first relaxation and while it looks for cuts, which can take tens of seconds."""


def run_beside(
    work: Callable[[], None],  # what ends soon after `should_stop`, and raises nothing
    should_stop: Callable[[], bool],  # asked every few hundredths of a second
    name: str,  # of the thread
) -> bool:
    """Let `work` run in a thread; return whether it has ended.

    Returns False `GRACE_S` after `should_stop`, or after the solve that waits for it is to end: then the thread goes on
    until the solver listens, and what it works on must not be touched any more.
    """
    worker = threading.Thread(target=in_this_solve(work), name=name)
    worker.start()
    told_s = None
    while worker.is_alive():
        worker.join(POLL_S)
        if told_s is None and (should_stop() or not is_wanted()):
            told_s = perf_counter()
        elif told_s is not None and perf_counter() - told_s > GRACE_S:
            return not worker.is_alive()
    return True
