"""Programs are counted before they are built, about as they will be, and watched while they are."""

from __future__ import annotations

import math
from typing import Any

import pytest

import placekit as pk
from placekit import machine
from placekit.benchmarks.generators.families import generate
from placekit.model.errors import ProgramTooLargeError
from placekit.solvers.assignment.cpsat.model import count_literals
from placekit.solvers.assignment.cpsat.solve import build_model
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.assignment.ilp.model import IlpModel, count_coefficients
from placekit.solvers.backends.building import LOOK_EVERY, Building, Cost
from placekit.solvers.generic.coarsen import contract
from placekit.solvers.makespan.bounds.windows import narrow
from placekit.solvers.makespan.exact import cp_model as makespan_cp
from placekit.solvers.makespan.schedule.tasks import make_tasks
from placekit.solvers.offload_latency import cp_model as offload_cp
from placekit.solvers.offload_latency import ilp_model as offload_ilp
from placekit.solvers.offload_latency.bounds import longest_latency
from placekit.solvers.offload_latency.flat import flatten_calls
from placekit.solvers.throughput.bounds import bottleneck
from placekit.solvers.throughput.bounds.groups import machines_of

FREE = Cost(0.0, 0.0)
FACTOR = 2.5
"""By which a count may be off."""


def problems(objective: pk.Objective, contiguity: str | None = None) -> list[pk.Problem]:
    """Return graphs of several shapes."""
    made = [
        generate(family, num_ops, seed=1, num_devices=devices, equal=equal, objective=objective)
        for family, num_ops, devices, equal in (
            ("transformer", 120, 2, True), ("layered", 150, 4, True), ("inception", 150, 3, False),
            ("chains", 90, 6, True),
        )
    ]  # fmt: skip
    return [each if contiguity is None else each.replace(contiguity=pk.Contiguity(contiguity)) for each in made]


def in_lp(lp: Any) -> int:
    """Return the coefficients of a PuLP model."""
    return sum(len(row.keys()) for row in lp.constraints())


def in_cp(model: Any) -> int:
    """Return the literals and terms of a CP-SAT model."""
    words = (word for constraint in model.proto.proto.constraints for word in str(constraint).split())
    return sum(word in ("literals:", "enforcement_literal:", "vars:", "intervals:") for word in words)


def is_near(count: float, actual: int) -> bool:
    """Return whether a count is right up to `FACTOR`."""
    return actual / FACTOR <= count <= actual * FACTOR


@pytest.mark.parametrize("contiguity", ["none", "convex", "acyclic"])
def test_assignment_programs_are_counted(contiguity: str) -> None:
    """As integer programs, and as constraint programs."""
    for problem in problems(pk.Throughput(), contiguity):
        contraction = contract(problem)
        assert is_near(count_coefficients(contraction), in_lp(IlpModel(contraction, None).lp))
        model = build_model(contraction, None)
        flat = flatten(contraction)
        if contiguity == "convex":
            flat = flat._replace(is_ordered=False)
        assert is_near(count_literals(flat, model.convexity), in_cp(model))


def test_programs_of_latencies_are_counted() -> None:
    """The offload latency's two, and the makespan's."""
    for problem in problems(pk.OffloadLatency()):
        flat, longest = flatten_calls(problem), longest_latency(problem)
        assert is_near(
            offload_ilp.count_coefficients(problem, flat), in_lp(offload_ilp.OffloadIlp(problem, flat, longest).lp)
        )
        assert is_near(
            offload_cp.count_literals(problem, flat), in_cp(offload_cp.OffloadModel(problem, flat, longest, 0.0))
        )
    for problem in problems(pk.Makespan()):
        tasks = make_tasks(problem)
        limit_s = float(tasks.time_s.max(axis=1).sum() + tasks.delay_s.max(axis=(1, 2), initial=0.0).sum())
        windows = narrow(tasks, limit_s)
        assert windows is not None
        assert is_near(makespan_cp.count_literals(tasks), in_cp(makespan_cp.MakespanModel(tasks, windows, limit_s)))


@pytest.mark.parametrize("contiguity", ["none", "convex", "acyclic"])
def test_bottleneck_programs_are_counted(contiguity: str) -> None:
    """With one device in detail and with two."""
    for problem in problems(pk.Throughput(), contiguity):
        machines = machines_of(problem, None)
        for detailed in (1,) if contiguity == "acyclic" else (1, 2):
            rows = bottleneck.BottleneckProgram(machines, 0, None, detailed).rows
            actual = len(rows.arrays().matrix.data)
            assert is_near(bottleneck.count_coefficients(machines, 0, detailed), actual)


def test_what_needs_more_than_is_left_is_not_begun() -> None:
    """Neither for its memory nor for its time."""
    with pytest.raises(ProgramTooLargeError, match=r"the program of about 1e\+06 coefficients takes about"):
        Building("program", 1e6, Cost(1.0, 0.0), lambda: 10.0)
    with machine.limited_to(machine.resident_bytes() + 1e8):
        with pytest.raises(ProgramTooLargeError, match=r"needs about 931\.3 GiB of memory;") as raised:
            Building("program", 1e6, Cost(0.0, 1e6), lambda: math.inf)
        assert raised.value.lacks_memory
        Building("program", 1e6, FREE, lambda: math.inf)


def test_what_turns_out_larger_is_given_up() -> None:
    """At the first look after the time has become too short."""
    left_s = [10.0]
    step = Building("program", 1.0, FREE, lambda: left_s[0])
    for _ in range(10 * LOOK_EVERY):
        step()
    left_s[0] = 0.0
    for _ in range(LOOK_EVERY - 1):
        step()
    with pytest.raises(ProgramTooLargeError, match="was not built in the time left"):
        step()


def test_programs_call_at_every_step() -> None:
    """A program of hundreds of rows is given up while it is built."""

    class GivenUpError(Exception):
        pass

    steps = iter(range(50))

    def step() -> None:
        if next(steps, None) is None:
            raise GivenUpError

    with pytest.raises(GivenUpError):
        IlpModel(contract(problems(pk.Throughput(), "none")[0]), None, step)
