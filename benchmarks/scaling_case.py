"""One measurement of the scaling benchmark: one method on one generated problem, alone in its process.

``python -m placekit.benchmarks.scaling_case CASE`` measures the case given as JSON and prints its row as JSON.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from placekit.benchmarks.circumstances import peak_bytes, reset_peak, resident_bytes, usage
from placekit.benchmarks.families import generate
from placekit.problem import Problem
from placekit.result import Result, Status
from placekit.solve import solve
from placekit.solvers.registry import METHODS
from placekit.stop import MaxRuntime, StopReason

__all__ = ["SEQUENCES", "Case", "measure"]

SEQUENCES: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = MappingProxyType(
    {
        "dpl": (("dpl", {}),),
        "dp": (("dp", {}),),
        "local-search": (("local-search", {"max_cycles": 1}),),
        "dpl+local-search": (("dpl", {}), ("local-search", {"max_cycles": 1})),
    }
)
"""What is measured, by name: methods with their parameters, each started from the answer of the one before.

A local search has no end of its own that compares across sizes; its first V-cycle does: every class is proposed equally
often at every level, and descended to a local optimum at the end.
"""
SETTING: Mapping[str, Any] = MappingProxyType({"num_devices": 6, "transfer_ratio": 1.0, "memory_factor": 1.5})
"""Platform of every problem: six equal accelerators and a CPU, as in most workloads of Tarnawski et al."""
WARM_UP_OPS = 60
MIN_TOTAL_S = 1.0
MAX_REPETITIONS = 5
"""Short solves are repeated, up to so many times, until they took a second together."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured.

    Parameters
    ----------
    family, size, seed
        The generated problem.
    method
        A name of `SEQUENCES`.
    time_limit_s
        Limit of one solve in seconds, of all methods of a sequence together.
    """

    family: str
    size: int
    method: str
    seed: int
    time_limit_s: float

    def problem(self, num_ops: int | None = None) -> Problem:
        """Return the problem; or one of the same family with `num_ops`."""
        return generate(self.family, num_ops or self.size, self.seed, **SETTING)


def _run(problem: Problem, case: Case) -> list[Result]:
    """Run the sequence of the case; return the result of each of its methods."""
    results: list[Result] = []
    for method, params in SEQUENCES[case.method]:
        left_s = max(0.0, case.time_limit_s - sum(result.runtime_s for result in results))
        start = results[-1] if results and results[-1].placement is not None else None
        results.append(solve(problem, method, stop=MaxRuntime(left_s), seed=case.seed, params=params, warm_start=start))
    return results


def _ending(case: Case, results: list[Result]) -> str:
    """Return ``"done"``, ``"limit"`` (the time was up), or ``"unproved"`` (an exact method gave up earlier)."""
    if any(result.stop_reason is StopReason.TIME for result in results):
        return "limit"
    is_exact = METHODS[SEQUENCES[case.method][-1][0]].family == "exact"
    return "unproved" if is_exact and results[-1].status is not Status.OPTIMAL else "done"


def measure(case: Case) -> dict[str, Any]:
    """Solve the case and return its row.

    Building the problem is not timed, and the kernels are warm: a tiny problem is solved first. Memory is that of the
    problem and its solve: the peak, less what the process held after the warm-up.
    """
    _run(case.problem(WARM_UP_OPS), case)
    gc.collect()
    reset_peak()
    before = resident_bytes()
    problem = case.problem()
    results = _run(problem, case)
    peak = peak_bytes()
    times_s = [sum(result.runtime_s for result in results)]
    while len(times_s) < MAX_REPETITIONS and sum(times_s) < MIN_TOTAL_S:
        # a new problem each time: what it caches belongs to the solve
        times_s.append(sum(result.runtime_s for result in _run(case.problem(), case)))
    last = results[-1]
    graph = problem.graph
    return {
        "benchmark": "scaling",
        **asdict(case),
        **SETTING,
        "num_ops": graph.num_ops,
        "num_tensors": graph.num_tensors,
        "num_edges": graph.num_edges,
        "ended": _ending(case, results),
        "time_s": statistics.median(times_s),
        "times_s": times_s,
        "memory_bytes": None if peak is None or before is None else peak - before,
        "status": str(last.status),
        "stop_reason": str(last.stop_reason),
        "objective_s": last.objective,
        "bound_s": last.lower_bound,
        "gap": last.gap,
        "usage": usage(),
    }


def main() -> None:
    """Measure the case given on the command line, print its row."""
    print(json.dumps(measure(Case(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
