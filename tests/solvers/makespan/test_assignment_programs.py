"""The programs of who runs where, and when: no schedule breaks a row, no bound is above any schedule."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from makespan_optimum import SMALL, fork, known_optimum, random_schedule
from scipy.sparse import csr_array
from strategies import examples

import placekit as pk
from placekit.benchmarks.families import generate
from placekit.solvers.makespan.bounds import assignment_programs as assignment
from placekit.solvers.makespan.bounds.assignment_programs import assigned_work
from placekit.solvers.makespan.bounds.quick import first_heads_tails, look
from placekit.solvers.makespan.bounds.windows import narrow
from placekit.solvers.makespan.schedule.tasks import make_tasks

EPS = 1e-9


@given(SMALL)
@examples(100)
def test_no_bound_is_above_the_optimum(problem: pk.Problem) -> None:
    """Of either program, for limits at and above the optimum, against enumeration of placements and orders."""
    optimum = known_optimum(problem)
    assume(optimum > 0)
    tasks = make_tasks(problem)
    heads_tails = first_heads_tails(tasks)
    with mock.patch.object(assignment, "NEARLY", 0.0):
        for limit_s, low_s in ((optimum, 0.9 * optimum), (1.3 * optimum, 0.0), (3 * optimum, optimum)):
            found = look(tasks, limit_s, heads_tails)
            assert found is not None
            bounds = list(assigned_work(found.windows, heads_tails.between_s, low_s, limit_s, 60.0))
            assert bounds
            assert all(bound_s <= optimum * (1 + EPS) for bound_s in bounds)


@given(data=st.data(), problem=SMALL)
@examples(150)
def test_a_schedule_within_the_limit_keeps_every_row(data: st.DataObject, problem: pk.Problem) -> None:
    """Any schedule, as a point of the program with the rows of all pairs."""
    tasks = make_tasks(problem)
    device, start, finish = random_schedule(data, problem, tasks)
    limit_s = float(finish.max())
    assume(limit_s > 0)
    heads_tails = first_heads_tails(tasks)
    found = look(tasks, limit_s, heads_tails)
    assert found is not None
    program = assignment._Assignment(found.windows, heads_tails.between_s, 0.0, limit_s)
    ends = tasks.num_ops + 2
    for g in range(program.num_groups + 1):
        for s, t in np.ndindex(ends, ends):
            if program.behind[s, t]:
                program._add(g, s, t)
    point = np.zeros(program.program.num_columns)
    point[program.start], point[program.end] = start / limit_s, 1.0
    point[program.op_share[np.arange(tasks.num_ops), tasks.group[device]]] = 1.0
    built = program.program
    entries = (built._value, built._index, built._starts)
    rows = np.asarray(csr_array(entries, shape=(built.num_rows, built.num_columns)) @ point)
    assert np.all(rows <= np.array(built._row_high) + EPS)
    assert np.all(rows >= np.array(built._row_low) - EPS)


@pytest.mark.parametrize(("num_between", "transfer_s", "expected_s"), [(4, 0.0, 4.0), (4, 0.5, 4.5), (6, 1.0, 6.0)])
def test_idle_devices_between_two_ops(num_between: int, transfer_s: float, expected_s: float) -> None:
    """The device that is neither the first op's nor the last one's waits for two transfers."""
    tasks = make_tasks(fork(num_between, transfer_s, 2))
    heads_tails = first_heads_tails(tasks)
    assert heads_tails.between_s is not None
    windows = narrow(tasks)
    assert windows is not None
    windows = replace(windows, head_s=np.zeros_like(windows.head_s), tail_s=np.zeros_like(windows.tail_s))
    bounds = list(assigned_work(windows, 0.9 * heads_tails.between_s, 0.0, 8.0, 60.0))
    assert bounds[-1] == pytest.approx(expected_s)


def test_slow_devices_make_paths_longer() -> None:
    """Both programs are above the work and the paths alone where unequal devices share many short ops."""
    problem = generate("layered", 60, num_devices=3, equal=False, transfer_ratio=0.1, objective=pk.Makespan())
    tasks = make_tasks(problem)
    heads_tails = first_heads_tails(tasks)
    best = pk.solve(problem, "local-search", stop=pk.MaxIterations(20_000)).objective
    assert best is not None
    found = look(tasks, best, heads_tails)
    assert found is not None
    bounds = list(assigned_work(found.windows, heads_tails.between_s, 0.0, best, 20.0))
    assert max(bounds[:-1]) < bounds[-1] <= best * (1 + EPS)
    assert bounds[-1] > found.least_s


def test_programs_stop_when_told() -> None:
    """Before the first, and with no time at all."""
    problem = generate("layered", 40, num_devices=3, equal=False, objective=pk.Makespan())
    tasks = make_tasks(problem)
    heads_tails = first_heads_tails(tasks)
    best = pk.solve(problem, "heft").objective
    assert best is not None
    found = look(tasks, best, heads_tails)
    assert found is not None
    assert list(assigned_work(found.windows, heads_tails.between_s, 0.0, best, 60.0, lambda: True)) == []
    assert list(assigned_work(found.windows, heads_tails.between_s, 0.0, best, 0.0)) == []
