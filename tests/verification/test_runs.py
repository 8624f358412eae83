"""Proofs of chains by runs: rules that hold a bound, one at a time."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import oracle
import pytest
from linked_problems import on_two_nodes

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.objectives import SerialLatency, Throughput
from placekit.verification.exact import ExactProblem
from placekit.verification.ideals import IdealProgram
from placekit.verification.runs import RunProgram, runs_below


def line(memory: list[float], limit: float, num_devices: int = 2) -> pk.Problem:
    """Return ops in a line that take a second each, on equal devices with a limit of memory."""
    names = [f"op{at}" for at in range(len(memory))]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    platform = pk.Platform.of(gpu=num_devices, memory_bytes={"gpu": limit})
    times, moves = np.ones((len(memory), 1)), np.zeros((graph.num_tensors, 1))
    costs = pk.CostTable(("gpu",), times, moves, op_memory_bytes=np.array(memory))
    return pk.Problem(graph, platform, costs, objective=Throughput(), contiguity=Contiguity.ACYCLIC)


def test_a_beginning_that_fits_is_no_placement() -> None:
    """Two of three ops have room; a program that forgot the last op would call the problem feasible."""
    exact = ExactProblem.of(line([1.0, 1.0, 1.0], 1.0))
    assert runs_below(exact, None) is False
    assert runs_below(ExactProblem.of(line([1.0, 1.0, 1.0], 2.0)), None) is True


def test_bytes_are_rounded_to_the_side_of_the_proof() -> None:
    """Beyond 2^50 bytes sizes lose digits: down where a placement is to be excluded, up where one is to be shown."""
    exact = ExactProblem.of(line([2.0**53 + 2, 2.0**53 + 2, 2.0**53 + 2], 2.0**54 + 4))
    down, up = (RunProgram(exact, [0, 1, 2], None, rounds_up=rounds_up) for rounds_up in (False, True))
    assert down.shift == up.shift > 0
    for less, more, group in zip(down.held.tolist(), up.held.tolist(), exact.groups, strict=True):
        held = sum(exact.memory[op] for op in group)
        assert less << down.shift <= held <= more << up.shift
        assert less < more


def test_ideals_round_bytes_as_runs_do() -> None:
    """2^53 + 2 bytes in units of 2^5."""
    exact = ExactProblem.of(line([2.0**53 + 2, 2.0**53 + 2, 2.0**53 + 2], 2.0**54 + 4))
    for rounds_up, units in ((False, 2**48), (True, 2**48 + 1)):
        program = IdealProgram(exact, [set(), {0}, {1}], [0, 1, 2], Fraction(10), rounds_up=rounds_up)
        assert program.memory == [units] * 3


def test_a_value_is_excluded_exactly() -> None:
    """Three seconds of work on two devices: two seconds are reached, nothing below."""
    problem = line([1.0, 1.0, 1.0], 2.0)
    exact = ExactProblem.of(problem)
    assert runs_below(exact, Fraction(2)) is False
    assert runs_below(exact, Fraction(2) + Fraction(1, 10**9)) is True
    serial = ExactProblem.of(problem.replace(objective=SerialLatency()))
    assert runs_below(serial, Fraction(3) - Fraction(1, 10**9)) is False
    assert runs_below(serial, Fraction(3) + Fraction(1, 10**9)) is True


@pytest.mark.parametrize("objective", [Throughput(), SerialLatency()], ids=["loads", "sum"])
def test_a_value_over_direct_links_is_excluded_exactly(objective: pk.Objective) -> None:
    """The optimum of four ops on two nodes, with room for one op each, is reached just above it, and not at it."""
    problem = on_two_nodes([("a", "b"), ("b", "c"), ("c", "d")], objective, contiguity=Contiguity.ACYCLIC)
    devices = tuple(device.replace(memory_bytes=1.0) for device in problem.platform.devices)
    platform = replace(problem.platform, devices=devices)
    problem = problem.replace(platform=platform, costs=replace(problem.costs, op_memory_bytes=np.ones(4)))
    best = oracle.brute_force(problem)
    assert best is not None
    exact = ExactProblem.of(problem)
    assert runs_below(exact, Fraction(best) * (1 - Fraction(1, 10**9))) is False
    assert runs_below(exact, Fraction(best) * (1 + Fraction(1, 10**9))) is True
