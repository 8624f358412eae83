"""Random search: batches of samples give what judging each of them gives."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import MAKESPANS, examples, problems

import placekit as pk
from placekit.benchmarks.generators.families import generate
from placekit.solve.result import Incumbent
from placekit.solvers.generic import baselines
from placekit.solvers.generic.scoring import Scorer


@given(problem=problems(max_ops=7, max_kinds=3, objective=st.sampled_from(MAKESPANS)), seed=st.integers(0, 3))
@examples(100)
def test_batches_find_what_the_judge_alone_finds(problem: pk.Problem, seed: int) -> None:
    """Placement, objective, number of evaluations and violations, under every contiguity and memory limit."""
    batched = pk.solve(problem, "random:40", seed=seed)

    class Blind(Scorer):
        """Knows nothing, so that every sample goes to the judge."""

        def __call__(self, devices: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.full(len(devices), -np.inf)

    with patch.object(baselines, "Scorer", Blind):
        judged = pk.solve(problem, "random:40", seed=seed)
    assert batched.placement == judged.placement
    assert batched.objective == judged.objective
    assert batched.evaluations == judged.evaluations
    assert batched.status is judged.status
    assert [str(v) for v in batched.violations] == [str(v) for v in judged.violations]


@pytest.mark.parametrize("objective", [pk.Makespan(), pk.Throughput(), pk.OffloadLatency()])
def test_the_budget_is_kept_inside_a_batch(objective: pk.Makespan | pk.Throughput | pk.OffloadLatency) -> None:
    """To the last sample, by the number of evaluations and by how many of them brought nothing."""
    problem = generate("layered", 60, num_devices=3, objective=objective).replace(contiguity=None)
    assert pk.solve(problem, "random", stop=pk.MaxIterations(301)).evaluations == 301
    result = pk.solve(problem, "random:100000", stop=pk.NoImprovement(50))
    assert result.stop_reason is pk.StopReason.ITERATIONS
    assert result.evaluations < 100_000


def test_every_improvement_is_reported() -> None:
    """One line of progress for each, falling."""
    problem = generate("layered", 60, num_devices=3, objective=pk.Makespan())
    seen: list[Incumbent] = []
    result = pk.solve(problem, "random:500", on_progress=seen.append)
    values = [line.objective for line in seen if line.objective is not None]
    assert len(values) > 1
    assert values == sorted(set(values), reverse=True)
    assert values[-1] == result.objective


def test_samples_go_only_where_the_op_may_run() -> None:
    """A pin and a kind without support are kept by every sample."""
    problem = generate("layered", 30, num_devices=3, equal=False, objective=pk.Makespan())
    names = problem.graph.op_names
    supported = problem.costs.supported.copy()
    supported[1, 0] = False
    problem = problem.replace(costs=problem.costs.replace(supported=supported)).pin({names[0]: "ACC.2"})
    result = pk.solve(problem, "random:300")
    assert result.placement is not None
    assert result.placement[names[0]] == "ACC.2"
    assert result.placement[names[1]] != "ACC.0"
    assert result.evaluations == 300


def until(evaluations: int) -> pk.AnyOf:
    """Return a time limit that is never reached, and a number of evaluations that ends the test."""
    return pk.MaxRuntime(1e6) | pk.MaxIterations(evaluations)


@pytest.mark.parametrize(("stop", "samples"), [(None, 1000), (pk.TargetGap(0.0), 1000), (until(2500), 2500)])
def test_the_time_limit_is_used(stop: pk.Stop | None, samples: int) -> None:
    """1,000 samples without a time limit, and as many as there is time for with one."""
    problem = generate("layered", 60, num_devices=3, objective=pk.Makespan())
    result = pk.solve(problem, "random", stop=stop)
    assert result.evaluations == samples
    assert pk.solve(problem, "random:7", stop=stop).evaluations == 7


def test_nothing_to_draw_ends_at_once() -> None:
    """On one device every sample is the same."""
    problem = generate("layered", 20, num_devices=1, objective=pk.Makespan())
    assert pk.solve(problem, "random", stop=pk.MaxRuntime(1e6)).evaluations == 1
