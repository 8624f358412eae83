"""The builder makes the problem that its parts describe."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import placekit as pk
from placekit.model.errors import InvalidGraphError, InvalidProblemError


def _two_devices() -> pk.Model:
    model = pk.Model("tiny")
    model.add_device("cpu", is_host=True)
    model.add_device("gpu.0", "gpu", memory_bytes=2e6, latency_s=1e-4, bandwidth_bytes_per_s=1e9)
    model.add_device("gpu.1", "gpu", memory_bytes=2e6, latency_s=1e-4, bandwidth_bytes_per_s=1e9)
    return model


def test_the_problem_has_what_was_added() -> None:
    """Times by kind, what a kind lacks, transfers by link, memory, pins and groups."""
    model = _two_devices()
    a = model.add_op("a", time_s={"cpu": 3e-3, "gpu": 1e-3}, memory_bytes=1e6)
    b = model.add_op("b", time_s={"gpu": 2e-3}, memory_bytes=5e5)
    c = model.add_op("c", time_s=4e-3, device="cpu")
    model.add_tensor(a, [b, c], bytes=1e6)
    model.colocate([a, b])
    problem = model.problem(pk.SerialLatency(), "none")
    assert problem.graph.op_names == ("a", "b", "c")
    assert problem.costs.kinds == ("cpu", "gpu")
    np.testing.assert_array_equal(problem.costs.op_time_s, [[3e-3, 1e-3], [0, 2e-3], [4e-3, 4e-3]])
    np.testing.assert_array_equal(problem.costs.supported, [[True, True], [False, True], [True, True]])
    np.testing.assert_allclose(problem.costs.transfer_time_s, [[0, 1.1e-3]])
    assert problem.pinned.tolist() == [-1, -1, 0]
    assert problem.op_class[0] == problem.op_class[1] != problem.op_class[2]
    assert [device.memory_bytes for device in problem.platform.devices] == [None, 2e6, 2e6]
    result = pk.solve(problem)
    assert result.objective == pytest.approx(1e-3 + 2e-3 + 1.1e-3 + 4e-3)


def test_solve_places_the_model() -> None:
    """By any method, under any objective, within a limit."""
    model = _two_devices()
    names = [model.add_op(f"op{i}", time_s={"cpu": 4e-3, "gpu": 1e-3}, memory_bytes=1e6) for i in range(4)]
    for one, other in pairwise(names):
        model.add_tensor(one, [other])
    result = model.solve("ilp", objective=pk.Throughput(), stop=pk.MaxRuntime(10))
    assert str(result.status) == "optimal"
    assert result.objective == pytest.approx(2.1e-3)


def test_mistakes_are_named() -> None:
    """The object, the value, and what is known instead."""
    model = _two_devices()
    model.add_op("conv", time_s=1.0)
    with pytest.raises(InvalidProblemError, match="has an op 'conv' already"):
        model.add_op("conv", time_s=1.0)
    with pytest.raises(InvalidProblemError, match=r"no op 'cnov'.*conv"):
        model.add_tensor("conv", ["cnov"])
    with pytest.raises(InvalidProblemError, match="kind of its own"):
        model.add_device("gpu.2", "gpu", latency_s=1.0)
    model.add_op("late", time_s={"tpu": 1.0})
    with pytest.raises(InvalidProblemError, match="op 'late' has a time on kind 'tpu'"):
        model.problem()
    looped = _two_devices()
    a, b = looped.add_op("a", time_s=1.0), looped.add_op("b", time_s=1.0)
    looped.add_tensor(a, [b])
    looped.add_tensor(b, [a])
    with pytest.raises(InvalidGraphError, match="cycle"):
        looped.problem()
    with pytest.raises(InvalidProblemError):
        pk.Model().problem()
