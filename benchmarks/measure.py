"""One measured solve: what came out, in what time and memory, under which circumstances, as the fields of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from placekit.benchmarks.circumstances import circumstances, peak_bytes, reset_peak, resident_bytes
from placekit.problem import Problem
from placekit.result import Incumbent, Result
from placekit.solve import solve
from placekit.stop import MaxRuntime, Stop, TargetGap

__all__ = ["measured_solve"]

QUICK_S = 1.0
"""A solve that takes less is repeated."""
FIRST_S = 10.0
"""A first solve that takes less is repeated once to tell: it may have compiled or loaded kernels."""
REPETITIONS = 5
MAX_TRACE = 200
"""Lines of the trace that are kept, spread evenly."""


def measured_solve(
    problem: Problem,
    method: str,
    time_limit_s: float,
    gap: float | None = None,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    on_progress: Callable[[Incumbent], None] | None = None,
) -> dict[str, Any]:
    """Solve `problem`, and return the fields of a row; quick methods are run several times and the fastest run counts.

    Parameters
    ----------
    problem, method, seed, params, on_progress
        As for `placekit.solve.solve`.
    time_limit_s
        Wall seconds of every solve.
    gap
        Relative gap at which to stop; None to go on.
    """
    limit = MaxRuntime(time_limit_s)
    stop: Stop = limit if gap is None else limit | TargetGap(gap)

    def once() -> Result:
        return solve(problem, method, stop=stop, seed=seed, params=params, on_progress=on_progress)

    reset_peak()
    before = resident_bytes()
    result = once()
    times = [result.runtime_s]
    if result.runtime_s < FIRST_S and (again_s := once().runtime_s) < QUICK_S:
        times = [again_s, *(once().runtime_s for _ in range(REPETITIONS - 1))]
    return {
        "num_ops": problem.graph.num_ops,
        "num_edges": problem.graph.num_edges,
        "objective_s": result.objective,
        "bound_s": result.lower_bound,
        "bound_name": result.bound_name,
        "status": str(result.status),
        "stop_reason": str(result.stop_reason),
        "proven_gap": result.gap,
        "runtime_s": min(times),
        "runtimes_s": times,
        "evaluations": result.evaluations,
        "peak_bytes": peak_bytes(),
        "resident_before_bytes": before,
        "stages": result.info.get("stages"),
        "trace": _thinned(result.trace),
    } | circumstances()


def _thinned(trace: Sequence[Incumbent]) -> list[list[float | None]]:
    step = max(1, len(trace) // MAX_TRACE)
    kept = [*trace[:-1:step], *trace[-1:]]
    return [[line.time_s, line.objective, line.bound] for line in kept]
