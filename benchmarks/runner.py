"""The durable runner: every case of a plan is solved once, whatever happens in between.

It speaks only the Executor interface of :mod:`concurrent.futures`. Workers return rows, this process alone writes
them, each before the next task is handed out. A row that is written is never made again; a case whose row was not yet
written when the process died is simply still to do. A worker that dies (out of memory, a crash in native code) takes
the pool with it: the cases that were running are then tried again one at a time, and the one that kills its worker
when it is alone gets a row that says so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from placekit.benchmarks.cases.plan import Case, Job
from placekit.benchmarks.cases.solve_case import failed_row, solve_case
from placekit.benchmarks.store import Store, append_row
from placekit.model.errors import PlacekitError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SuiteProgress:
    """Progress of a run."""

    # num_done, num_total: cases
    num_done: int
    num_total: int
    remaining_s: float  # estimated wall seconds to the end
    row: dict[str, Any] | None = None  # the row that was just written; None before the first


def run_jobs(
    jobs: Sequence[Job],  # what to do: leave out what is done already
    store: Store,  # where the rows go
    make_executor: Callable[[], Executor],  # makes an executor; called again after one broke
    *,
    num_workers: int | Callable[[], int] = 1,  # jobs that are handed out at a time; asked again before each
    is_isolated: bool = False,  # True to give every job, one after the other, an executor of its own
    on_progress: Callable[[SuiteProgress], None] | None = None,  # called at the start and after every row
) -> None:
    """Solve `jobs`, and append a row for each to `store` (which must be locked).

    Raises `PlacekitError`: a row cannot be written, or the executor cannot go on; `KeyboardInterrupt`: Ctrl-C; rows of
    solves that it cut short are not written.
    """
    width = num_workers if callable(num_workers) else lambda: num_workers
    run = _RunningSuite(jobs, store, width, on_progress)
    run.tell(None)
    waiting, suspects = deque(jobs), deque[Job]()
    while waiting or suspects:
        batch = deque([suspects.popleft()]) if suspects else deque([waiting.popleft()]) if is_isolated else waiting
        is_alone = batch is not waiting
        running = run.drain(batch, make_executor(), (lambda: 1) if is_alone else width)
        if len(running) == 1:
            run.keep(failed_row(running[0], "the worker process died"))
        elif running:
            logger.warning("a worker died; %d cases are tried again one at a time", len(running))
            suspects.extend(running)


def remaining_s(
    waiting: Sequence[Case],  # the cases to come
    # method, longest time and runtime of those that ended. A method that did not yet run is expected to take as long as
    # it may.
    done: Sequence[tuple[str, float, float]],
    num_workers: int,  # cases beside each other
) -> float:
    """Return the wall seconds that `waiting` will take, from what cases of the same method took of their limits."""
    used: dict[str, list[float]] = {}
    for method, limit_s, runtime_s in done:
        used.setdefault(method, []).append(min(runtime_s / limit_s, 1.0) if limit_s > 0 else 0.0)
    share = {method: sum(shares) / len(shares) for method, shares in used.items()}
    total_s = sum(case.at_most_s * share.get(case.method, 1.0) for case in waiting)
    return total_s / num_workers


class _RunningSuite:
    """The state of a run: what is left, what was taken, and the store."""

    def __init__(
        self,
        jobs: Sequence[Job],
        store: Store,
        width: Callable[[], int],
        on_progress: Callable[[SuiteProgress], None] | None,
    ) -> None:
        self._left = {job.case.address: job.case for job in jobs}
        self._num_total = len(self._left)
        self._store = store
        self._width = width
        self._on_progress = on_progress
        self._done: list[tuple[str, float, float]] = []

    def drain(self, batch: deque[Job], executor: Executor, width: Callable[[], int]) -> list[Job]:
        """Run the batch; return the jobs that were running when the executor broke, none if it did not."""
        running: dict[Future[dict[str, Any]], tuple[Job, float]] = {}
        try:
            while batch or running:
                while batch and len(running) < width():
                    job = batch.popleft()
                    try:
                        running[executor.submit(solve_case, job)] = job, perf_counter()
                    except BrokenExecutor:
                        batch.appendleft(job)
                        return [job for job, _ in running.values()] or [batch.popleft()]
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, begin = running[future]
                    try:
                        row = future.result()
                    except BrokenExecutor:
                        return [job for job, _ in running.values()]
                    except PlacekitError:  # of the executor, as `solve_case` makes a row of its own errors
                        raise
                    except Exception as error:  # a row that does not come back, as from pickle
                        row = failed_row(job, f"{type(error).__name__}: {error}")
                    del running[future]
                    self._done.append((job.case.method, job.case.at_most_s, perf_counter() - begin))
                    self.keep(row)
            return []
        finally:
            # at the end workers are idle, and gone before anything is timed; after a crash or Ctrl-C they may be busy
            executor.shutdown(wait=not (batch or running), cancel_futures=True)

    def keep(self, row: dict[str, Any]) -> None:
        """Write a row, and tell."""
        append_row(self._store.path, {"num_workers": self._width(), **row})
        del self._left[row["case"]]
        self.tell(row)

    def tell(self, row: dict[str, Any] | None) -> None:
        """Report progress."""
        if self._on_progress is not None:
            left_s = remaining_s(tuple(self._left.values()), self._done, self._width())
            self._on_progress(SuiteProgress(self._num_total - len(self._left), self._num_total, left_s, row))
