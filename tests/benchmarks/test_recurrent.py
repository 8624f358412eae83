"""Recurrent lattices: their shape, and that they are proven."""

from __future__ import annotations

import pytest
from recurrent_lattices import recurrent_lattice

import placekit as pk
from placekit.model.errors import InvalidProblemError


def test_shape_and_seed() -> None:
    """Layers times steps with two constants each and attention; backward ops share a device with theirs."""
    problem = recurrent_lattice(2, 5, seed=1)
    assert problem.graph.num_ops == 2 * 5 * 3 + 1
    assert len(problem.graph.senders) == 2 * 5 * 2 + 5 + 2 * 4 + 5
    training = recurrent_lattice(2, 5, seed=1, is_training=True)
    assert training.graph.num_ops == 2 * problem.graph.num_ops
    assert training.num_classes == problem.num_classes
    assert recurrent_lattice(2, 5, seed=1) == problem
    assert recurrent_lattice(2, 5, seed=2) != problem
    with pytest.raises(InvalidProblemError, match="num_steps is 0; it must be >= 1"):
        recurrent_lattice(2, 0)
    with pytest.raises(InvalidProblemError, match="number of ops is 3000000000; it must be >= 1 and <= 1000000"):
        recurrent_lattice(1000, 1_000_000)
    with pytest.raises(InvalidProblemError, match="num_devices is 1000000000"):
        recurrent_lattice(2, 2, num_devices=10**9)


@pytest.mark.parametrize("is_training", [False, True])
def test_lattice_with_memory_limits_is_proven(is_training: bool) -> None:
    """Throughput of 4 layers and 10 steps, whose 80 constants need memory."""
    problem = recurrent_lattice(4, 10, is_training=is_training)
    result = pk.solve(problem, method="dp", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL


def test_offload_of_a_lattice_is_proven() -> None:
    """Offload latency of 2 layers and 6 steps on two accelerators."""
    problem = recurrent_lattice(2, 6, num_devices=2, memory_factor=None, objective=pk.OffloadLatency())
    result = pk.solve(problem, method="auto", stop=pk.MaxRuntime(120))
    assert result.status is pk.Status.OPTIMAL
