"""Problems for the learners."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import placekit as pk


@pytest.fixture
def doubles() -> Iterator[None]:
    """Let torch calculate in doubles during a test: sparse products do not mix them with floats."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def toy() -> pk.Problem:
    r"""Return six ops on two devices; the optimum is 15 s.

    ::

        a - b - c        op:         a  b  c  d  e  f
             \   \       on the CPU: 1  9  9  1  1  9
              d - e - f  on the GPU: 5  2  2  5  5  2     a tensor over the GPU's link: 1.5

    All on the GPU takes 21 s, all on the CPU 30 s. With a, d and e on the CPU the ops take 9 s, and the tensors of a,
    b, c and e cross, 1.5 s each: 15 s. No other placement is below 17.5 s (enumerated in a test).
    """
    graph = pk.OpGraph.from_edges(
        list("abcdef"),
        [("a", "b"), ("b", "c"), ("b", "d"), ("c", "e"), ("d", "e"), ("e", "f")],
        name="toy",
        op_types=["Parameter", "MatMul", "MatMul", "Softmax", "Concat", "MatMul"],
    )
    times = np.array([[1.0, 5], [9, 2], [9, 2], [1, 5], [1, 5], [9, 2]])
    transfer = np.array([[0.0, 1.5]] * graph.num_tensors)
    costs = pk.CostTable(("cpu", "gpu"), times, transfer, np.ones(6))
    return pk.Problem(graph, pk.Platform.of(cpu=1, gpu=1, host="cpu"), costs, pk.SerialLatency())
