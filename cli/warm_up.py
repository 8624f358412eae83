"""``placekit warm-up``: compile the kernels before anything is solved, for images and measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placekit.cli.options import JsonOption

if TYPE_CHECKING:
    from placekit.problem import Problem

__all__ = ["warm_up"]

METHODS = ("auto", "local-search", "dp", "dpl", "mincut", "bound", "heft", "cpop", "peft", "m-etf", "lns")
"""What has kernels; each is used where it supports the problem."""
TIME_LIMIT_S = 2.0
"""Of each solve, without compiling."""


def warm_up(as_json: JsonOption = False) -> None:
    """Compile the kernels of all objectives, once per installation, so that no first solve waits for them."""
    import os
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context
    from time import perf_counter

    from placekit.cli.console import print_json
    from placekit.patience import MODE

    os.environ[MODE] = "inline"  # for the processes, too
    begin = perf_counter()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        compile_s = dict(zip(OBJECTIVES, pool.map(_solve_all, OBJECTIVES), strict=True))
    wall_s = perf_counter() - begin
    if as_json:
        print_json({"compile_s": compile_s, "wall_s": wall_s})
    else:
        spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in compile_s.items())
        print(f"compiled: {spent}; {wall_s:.1f} s in all")


OBJECTIVES = ("makespan", "throughput", "offload-latency", "serial-latency")
"""The longest first, so that the others are compiled beside it."""


def _solve_all(objective: str) -> float:
    """Solve small problems by everything that has kernels; return the seconds that compiling took."""
    from placekit.solve import solve
    from placekit.solvers.registry import get_method
    from placekit.stop import MaxRuntime

    spent_s = 0.0
    for problem in _problems(objective):
        for name in METHODS:
            if get_method(name, {}).supports(problem) is None:
                spent_s += solve(problem, name, stop=MaxRuntime(TIME_LIMIT_S)).compile_s
    return spent_s


def _problems(objective: str) -> list[Problem]:
    from itertools import pairwise

    import numpy as np

    import placekit as pk

    rng = np.random.default_rng(0)
    num_ops = 40
    edges = sorted({(f"o{rng.integers(max(0, i - w), i)}", f"o{i}") for i in range(2, num_ops) for w in (4, 9)})
    graph = pk.OpGraph.from_edges([f"o{i}" for i in range(num_ops)], edges)
    times = np.stack([rng.uniform(1e-4, 1e-3, num_ops), rng.uniform(5e-4, 4e-3, num_ops)], axis=1)
    transfers = np.stack([rng.uniform(1e-5, 5e-4, graph.num_tensors), np.zeros(graph.num_tensors)], axis=1)
    costs = pk.CostTable(("gpu", "cpu"), times, transfers, np.ones(num_ops))
    variants: dict[str, list[Any]] = {
        "makespan": [pk.Makespan(), pk.Makespan(contention=True)],
        "throughput": [pk.Throughput()],
        "offload-latency": [pk.OffloadLatency()],
        "serial-latency": [pk.SerialLatency(), pk.SerialLatency(subgraph_cost_s=1e-4)],
    }
    platform = pk.Platform.of(gpu=2, cpu=1, host="cpu")
    problems = [pk.Problem(graph, platform, costs, each) for each in variants[objective]]
    if objective == "throughput":
        problems.append(problems[0].replace(contiguity="none"))
    if objective == "offload-latency":  # the graph has no op that all others wait for, or wait on
        chain = pk.OpGraph.from_edges(graph.op_names, list(pairwise(graph.op_names)))
        costs = pk.CostTable(costs.kinds, times, np.full((chain.num_tensors, 2), 1e-4), np.ones(num_ops))
        problems.insert(0, pk.Problem(chain, platform, costs, pk.OffloadLatency()))
    return problems
