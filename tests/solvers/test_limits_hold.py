"""Whoever names a limit gets an answer within it, whatever the method, the size and the state of the kernels.

Seconds are the smaller of wall and CPU seconds: other processes lengthen the former, several threads the latter.
What each case took is logged: ``pytest -m slow --log-cli-level=INFO``.
"""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import process_time
from unittest import mock

import numpy as np
import pytest
from limited import LIMIT_S, OBJECTIVES, allowed_s, methods, solve_in_a_process
from limits import Stopwatch

import placekit as pk
from placekit.benchmarks.generators.families import FAMILIES, generate
from placekit.solvers.generic.bounds.work_and_path import shared_work

logger = logging.getLogger(__name__)


def problems(count: int) -> Iterator[pk.Problem]:
    """Yield problems of 50 to 2,000 ops, of every family and objective."""
    rng = np.random.default_rng(28)
    families = sorted(FAMILIES)
    for number in range(count):
        objective = OBJECTIVES[number % len(OBJECTIVES)]
        num_ops = int(np.exp(rng.uniform(np.log(50), np.log(2000)))) if number % 5 else 2000
        made = generate(
            families[number % len(families)],
            num_ops,
            seed=number,
            num_devices=int(rng.integers(2, 9)),
            equal=bool(rng.random() < 0.6),
            memory_factor=2.0 if rng.random() < 0.5 else None,
            objective=objective,
        )
        if isinstance(objective, pk.Throughput):
            made = made.replace(contiguity=pk.Contiguity(("acyclic", "none", "convex")[number // 4 % 3]))
        yield made


def overruns(cases: Iterator[tuple[pk.Problem, str]], limit_s: float) -> list[str]:
    """Solve, log the time of every case, and return those that took too long."""
    late = []
    for problem, method in cases:
        watch = Stopwatch()
        result = pk.solve(problem, method, stop=pk.MaxRuntime(limit_s), seed=1)
        took_s = watch.seconds() - result.compile_s - result.load_s
        line = f"{problem.objective.name} {problem.contiguity} {problem.name} x{problem.platform.num_devices} {method}"
        skipped = f" [{result.info['skipped']}]" if "skipped" in result.info else ""
        logger.info("%6.2f s %s %s%s", took_s, result.status, line, skipped)
        if took_s > allowed_s(limit_s):
            late.append(f"{took_s:.2f} s: {line}")
    return late


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_every_method_ends_in_time(objective: pk.Objective) -> None:
    """28 problems of four objectives, all methods of each, limits of 2 s."""
    asked = (problem for problem in problems(28) if problem.objective == objective)
    assert overruns(((problem, method) for problem in asked for method in methods(problem)), LIMIT_S) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", ["layered", "inception"])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_fifty_thousand_ops_end_within_a_fifth_of_the_limit(
    objective: pk.Objective, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of limits of 1 and 3 s, on a clock of CPU seconds: other processes neither lengthen nor shorten a solve."""
    for module in ("placekit.solve.run", "placekit.kernels"):
        monkeypatch.setattr(import_module(module), "perf_counter", process_time)
    late = []
    for method in ("auto", "local-search", "bound"):  # what is imported, and loaded, once in a process
        few = generate(family, 3_000, seed=2, num_devices=4, equal=False, objective=objective)
        pk.solve(few, method, stop=pk.MaxRuntime(1.0))
    for limit_s, method in itertools.product((1.0, 3.0), ("auto", "local-search", "bound")):
        problem = generate(family, 50_000, seed=1, num_devices=4, equal=False, objective=objective)
        began_s = process_time()
        result = pk.solve(problem, method, stop=pk.MaxRuntime(limit_s), seed=1)
        took_s = process_time() - began_s - result.compile_s - result.load_s
        assert result.objective is not None
        assert result.lower_bound is not None
        logger.info("%6.2f s of %g s: %s %s %s", took_s, limit_s, objective.name, family, method)
        if took_s > 1.2 * limit_s + 0.3:
            late.append(f"{took_s:.2f} s of {limit_s:g} s: {method}")
    assert late == []


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_every_placement_is_judged_once(objective: pk.Objective) -> None:
    """Judging many ops takes a tenth of a second and more: the result says what the judge said of the offer."""
    problem = generate("layered", 30, seed=1, num_devices=2, objective=objective)
    kind = type(objective)
    with mock.patch.object(kind, "score", autospec=True, side_effect=kind.score) as judge:
        result = pk.solve(problem, "single")
    assert judge.call_count == result.evaluations
    assert result.placement is not None
    said = pk.evaluate(problem, result.placement)
    assert (result.objective, result.device_loads) == (said.objective, said.device_loads)


@pytest.mark.parametrize("objective", [pk.Throughput(), pk.Makespan()], ids=lambda objective: objective.name)
def test_many_ops_have_a_bound_in_linear_time_under_any_limit(
    objective: pk.Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method ``bound`` knows what all devices have to work, before programs that may not end in time."""
    problem = generate("layered", 60, seed=1, num_devices=2, objective=objective)
    known = shared_work(problem)
    assert known is not None
    monkeypatch.setattr(import_module("placekit.solvers.generic.bounds.bound"), "MANY_CLASSES", 50)
    result = pk.solve(problem, "bound", stop=pk.MaxRuntime(0.0))
    assert result.lower_bound is not None
    assert result.lower_bound >= known[0]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("limit_s", [30.0])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.name)
def test_a_hundred_thousand_ops_end_in_time_and_in_four_gigabytes(
    objective: pk.Objective, limit_s: float, tmp_path: Path
) -> None:
    """By ``auto``, in a process of its own whose memory is looked at."""
    problem = generate("layered", 100_000, seed=1, num_devices=4, objective=objective)
    pk.write_problem(problem, tmp_path / "p.json", arrays="npz")
    told = solve_in_a_process(tmp_path / "p.json", "auto", limit_s, None)
    logger.info("%s: %s", objective.name, told)
    assert told["took_s"] <= allowed_s(limit_s)
    assert told["peak_bytes"] < 4e9
    assert told["objective"] is not None


LEAKS = """
import sys
import numpy as np, placekit as pk
from placekit import machine
from placekit.benchmarks.generators.families import generate
from placekit.solve.registry import get_method
from placekit.solve.lifting.relaxed import why_not
objectives = (pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency(), pk.Makespan())
methods = ("ilp", "auto", "cpsat", "local-search", "bound")
cases = []
for objective in objectives:
    problem = generate("layered", 30, seed=1, num_devices=2, objective=objective)
    for method in methods:
        if why_not(get_method(method), problem) is None:
            cases.append((problem, method))
for number in range(int(sys.argv[1])):
    problem, method = cases[number % len(cases)]
    pk.solve(problem, method, stop=pk.MaxRuntime(0.3), seed=number)
    print(number, machine.resident_bytes() / 2**20, flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_memory_stays_flat_over_400_solves() -> None:
    """Of all methods with programs, in one process: the last hundred need no more than the second hundred did."""
    command = [sys.executable, "-c", LEAKS, "400"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    held = np.array([float(line.split()[1]) for line in done.stdout.splitlines()])
    logger.info("MiB after 25, 100, 200, 300 and 400 solves: %s", held[[24, 99, 199, 299, 399]])
    assert np.median(held[300:]) - np.median(held[100:200]) < 20, held[::20]
