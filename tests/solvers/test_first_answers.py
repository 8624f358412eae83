"""Searches have an answer under tight memory, however early a limit on evaluations ends them."""

from __future__ import annotations

import numpy as np
import pytest

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.model.memory import MemoryBlocks
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.registry import METHODS, get_method

CONSTRUCTIONS = (
    *("single", "round-robin", "random", "greedy", "metis", "scotch", "pipedream", "dpl", "file"),
    *("heft", "m-topo", "m-etf", "m-sct"),
)
"""Methods that are what they are: one construction each, or samples, that may not fit."""
SEARCHES = [f"{name}:pretrained" if name == "policy" else name for name in METHODS if name not in CONSTRUCTIONS]
SHARE = 0.6
"""Memory of every device as a share of what all ops need."""
OBJECTIVES = (pk.Throughput(), pk.SerialLatency(), pk.Makespan(), pk.OffloadLatency())


def tight(objective: pk.Objective, *, with_blocks: bool) -> pk.Problem:
    """Return a problem that fits on no single device, with memory that ops share or without."""
    problem = generate("layered", 30, seed=3, num_devices=3, objective=objective)
    if with_blocks:
        graph = problem.graph
        tensors, sizes = range(graph.num_tensors), graph.tensor_bytes.tolist()
        ends = [[int(graph.tensor_producer[t]), *graph.consumers_of(t).tolist()] for t in tensors]
        blocks = MemoryBlocks.of([(sizes[t], False, ends[t]) for t in tensors])
        problem = problem.replace(costs=problem.costs.replace(blocks=blocks))
    platform, everything = problem.platform, np.ones(problem.graph.num_ops, dtype=np.bool_)
    limit = SHARE * problem.stage_memory.of(everything)
    limited = tuple(device.replace(memory_bytes=limit) for device in platform.devices)
    return problem.replace(platform=platform.replace(devices=limited))


@pytest.mark.parametrize("with_blocks", [False, True], ids=["own memory", "shared memory"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
@pytest.mark.parametrize("method", SEARCHES)
def test_one_evaluation_is_enough_for_an_answer(method: str, objective: pk.Objective, with_blocks: bool) -> None:
    """Every search that can work on a problem for which greedy has a placement has one, too; no single device fits."""
    problem = tight(objective, with_blocks=with_blocks)
    assert problem.has_tight_blocks is with_blocks
    assert pk.solve(problem, "single").placement is None
    try:
        chosen = get_method(method)
    except pk.SolverUnavailableError as error:
        pytest.skip(str(error))
    if (reason := why_not(chosen, problem)) is not None:
        pytest.skip(reason)
    result = pk.solve(problem, method, stop=pk.MaxIterations(1) | pk.MaxRuntime(60))
    assert result.placement is not None, result.stop_reason
    assert pk.evaluate(problem, result.placement).is_feasible
