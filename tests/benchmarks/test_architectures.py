"""Generated models: types, work and sizes like those of real ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from placekit.benchmarks.generators.architectures import ARCHITECTURES
from placekit.cost_models.op_classes import DENSE_TYPES
from placekit.learned.vocabulary import OP_TYPES


@pytest.mark.parametrize("sort", ARCHITECTURES)
@given(seed=st.integers(0, 1000))
@examples(10)
def test_generated_models_look_like_models(sort: str, seed: int) -> None:
    """Known types, one result, nothing computed in vain, and most work in products and convolutions."""
    graph = ARCHITECTURES[sort](np.random.default_rng(seed), "x")
    assert set(graph.op_types) <= set(OP_TYPES)
    assert graph.op_types.count("Result") == 1
    has_input = np.zeros(graph.num_ops, dtype=bool)
    has_input[graph.receivers] = True
    assert {graph.op_types[op] for op in np.flatnonzero(~has_input)} == {"Parameter"}
    assert np.bincount(graph.senders, minlength=graph.num_ops).astype(bool).sum() == graph.num_ops - 1
    dense = np.array([op_type in DENSE_TYPES for op_type in graph.op_types])
    assert graph.op_flops[dense].sum() > 0.5 * graph.op_flops.sum()
    assert all(size > 0 for shape in graph.tensor_shapes for size in shape)


def test_residual_work_is_counted_by_hand() -> None:
    """The stem: 7 x 7 x 3 products for each of its outputs, and as many weights per channel."""
    graph = ARCHITECTURES["residual"](np.random.default_rng(0), "x")
    stem = graph.op_types.index("Convolution")
    tensor = int(np.flatnonzero(graph.tensor_producer == stem)[0])
    outputs, channels = np.prod(graph.tensor_shapes[tensor]), graph.tensor_shapes[tensor][1]
    assert graph.op_flops[stem] == 2 * 7 * 7 * 3 * outputs
    assert graph.op_weight_bytes[stem] == 4 * 7 * 7 * 3 * channels
    assert graph.tensor_bytes[tensor] == 4 * outputs
