"""Loads of a pipeline, by hand: overlap under both schedules, and hosts with transfer times."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import objective

import placekit as pk
from placekit.objectives.throughput import samples_per_turn
from placekit.verification.exact import ExactProblem
from placekit.verification.judge import objective as verified


def training(variant: pk.Throughput, cpu_transfer_s: float = 0.0) -> pk.Problem:
    """Return ``a -> b -> gb -> ga``, the last two backward, on a CPU and an accelerator.

    Seconds of a: 4 and 1, of b: 9 and 3, of gb: 9 and 2, of ga: 1 and 1; of the tensors on the accelerator: 5, 1, 7.
    """
    names = ["a", "b", "gb", "ga"]
    graph = pk.OpGraph.from_edges(
        names, [("a", "b"), ("b", "gb"), ("gb", "ga")], is_backward=[False, False, True, True]
    )
    times = np.array([[4.0, 1.0], [9.0, 3.0], [9.0, 2.0], [1.0, 1.0]])
    transfers = np.array([[cpu_transfer_s, 5.0], [cpu_transfer_s, 1.0], [cpu_transfer_s, 7.0]])
    costs = pk.CostTable(("cpu", "acc"), times, transfers, np.ones(4))
    return pk.Problem(graph, pk.Platform.of(cpu=1, acc=1, host="cpu"), costs, variant, pk.Contiguity.NONE)


@pytest.mark.parametrize(
    ("variant", "cpu_s", "acc_s", "objective_s"),
    [
        # a and ga on the CPU, b and gb on the accelerator: 5 s enter before b (forward), 7 s leave after gb (backward)
        (pk.Throughput(), 5.0, 3.0 + 2.0 + 5.0 + 7.0, 17.0),
        (pk.Throughput(overlap=True), 5.0, 12.0, 12.0),  # max(3 + 2, 5 + 7): both passes together
        (pk.Throughput(schedule="gpipe"), 5.0, 17.0, 8.0 + 9.0),  # max(4, 3 + 5) + max(1, 2 + 7)
        (pk.Throughput(schedule="gpipe", overlap=True), 5.0, 12.0, 5.0 + 7.0),  # max(4, 3, 5) + max(1, 2, 7)
    ],
)
def test_loads_of_a_training_graph(variant: pk.Throughput, cpu_s: float, acc_s: float, objective_s: float) -> None:
    """The judge, the verifier and the plain formulas agree with the sums by hand."""
    problem = training(variant)
    placement = pk.Placement.of(problem, [0, 1, 1, 0])
    found = pk.evaluate(problem, placement)
    assert [load.load_s for load in found.device_loads] == [cpu_s, acc_s]
    assert found.objective == objective_s
    assert verified(ExactProblem.of(problem), [0, 1, 1, 0]) == objective(problem, (0, 1, 1, 0)) == objective_s


@pytest.mark.parametrize(("cpu_transfer_s", "cpu_s"), [(0.0, 5.0), (6.0, 5.0 + 12.0)])
def test_a_host_pays_the_transfer_times_of_its_kind(cpu_transfer_s: float, cpu_s: float) -> None:
    """They are zero for a CPU in host memory; a host with times of its own pays them like any device."""
    problem = training(pk.Throughput(), cpu_transfer_s)
    found = pk.evaluate(problem, pk.Placement.of(problem, [0, 1, 1, 0]))
    assert found.device_loads[0].load_s == cpu_s
    assert verified(ExactProblem.of(problem), [0, 1, 1, 0]) == objective(problem, (0, 1, 1, 0)) == found.objective


def test_a_member_that_needs_no_time_does_all() -> None:
    """However short the others take; a device by itself finishes one sample while it finishes one."""
    found = samples_per_turn(np.array([0.0, 0.5, 3.0, 0.0]), np.array([0, 0, 0, 3]))
    assert found.tolist() == [1, np.inf, np.inf, 1]
