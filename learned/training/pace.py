"""The clock of a training: no update begins that would end after the limit, and the last answer has its time."""

from __future__ import annotations

from typing import Any

from placekit.solve.run import Run
from placekit.solve.stop import StopReason

_ANSWER_SHARE = 0.05


class Pace:
    """Says why to stop, to a training that is asked before every update.

    Parameters
    ----------
    run
        The run; without a time limit nothing is said that the run does not say itself.
    answer_s
        Seconds that are kept for the policy's own answer; None for a share of what is left now.
    """

    def __init__(self, run: Run[Any], answer_s: float | None = None) -> None:
        self._run = run
        self._answer_s = _ANSWER_SHARE * (run.remaining_s or 0.0) if answer_s is None else answer_s
        self._began_s: float | None = None
        self._last_s: float | None = None

    def before_update(self) -> StopReason | None:
        """Return why no other update is to begin: it may take as long as the one before."""
        now_s = self._run.elapsed_s
        self._last_s = None if self._began_s is None else now_s - self._began_s
        self._began_s = now_s
        return self._stop(self._last_s or 0.0)

    def within_update(self) -> StopReason | None:
        """Return why to give up the update that is under way: of the first, at least half is still to come.

        For nobody asks in the middle of its gradients, which take twice as long as what comes before them.
        """
        so_far_s = self._run.elapsed_s - (self._began_s or 0.0)
        return self._stop(so_far_s if self._last_s is None else max(0.0, self._last_s - so_far_s))

    def _stop(self, needed_s: float) -> StopReason | None:
        left_s = self._run.remaining_s
        is_late = left_s is not None and left_s < self._answer_s + needed_s
        return self._run.should_stop() or (StopReason.TIME if is_late else None)


def out_of_time(run: Run[Any]) -> StopReason | None:
    """Return why even the last answer is not to be waited for; other reasons to stop a training leave it its time."""
    if run.interrupted.is_set():
        return StopReason.USER
    return StopReason.TIME if run.remaining_s == 0 else None
