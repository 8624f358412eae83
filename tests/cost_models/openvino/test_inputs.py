"""Seeded inputs: reproducible, and valid for the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset

from placekit.cost_models.openvino.inputs import random_inputs
from placekit.model.errors import UnsupportedProblemError


def test_ids_stay_inside_their_table_and_masks_are_ones(make_embedder: Callable[..., ov.Model]) -> None:
    """The ids spread over all of a table of 5, and over nothing but row 0 of a table of 1."""
    ids, mask = random_inputs(make_embedder(5), seed=1)
    assert set(np.unique(ids.data)) <= set(range(5))
    assert ids.data.max() > 1
    assert mask.data.dtype == np.float32
    assert not random_inputs(make_embedder(1))[0].data.any()


def test_the_table_is_found_behind_a_conversion() -> None:
    """Ids that are converted before the lookup are still bounded by the table."""
    ids = opset.parameter([64], ov.Type.i64, name="tokens")
    table = opset.constant(np.zeros((7, 2), dtype=np.float32))
    found = opset.gather(table, opset.convert(ids, "i32"), opset.constant(0))
    values = random_inputs(ov.Model([found], [ids], "ids"))[0].data
    assert set(np.unique(values)) == set(range(7))


def test_same_seed_same_inputs() -> None:
    """The seed decides, and different seeds differ."""
    x = opset.parameter([4, 4], ov.Type.f32, name="x")
    model = ov.Model([opset.relu(x)], [x], "m")
    first, again, other = (random_inputs(model, seed)[0].data for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "boolean", "u4", "i4"]
)
def test_every_number_type_gets_a_tensor_of_its_type_and_shape(dtype: str) -> None:
    """Integers are 0 or 1, masks 1, real numbers finite; packed types are zeros."""
    kind = getattr(ov.Type, dtype)
    x = opset.parameter([3, 4], kind, name="x")
    (tensor,) = random_inputs(ov.Model([opset.result(x)], [x], "m"))
    assert tensor.get_element_type() == kind
    assert list(tensor.get_shape()) == [3, 4]
    if dtype == "bf16":
        values = (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        assert np.isfinite(values).all()
        assert 0.1 < values.std() < 3
    elif dtype[0] in "iu" and kind.bitwidth >= 8:
        assert set(np.unique(tensor.data)) <= {0, 1}
    elif dtype == "boolean":
        assert tensor.data.all()


def test_integer_masks_are_ones() -> None:
    """An attention mask of zeros would hide everything."""
    x = opset.parameter([3], ov.Type.i64, name="Attention_Mask")
    assert random_inputs(ov.Model([opset.result(x)], [x], "m"))[0].data.all()


@pytest.mark.parametrize(("shape", "dtype"), [([-1, 2], "f32"), ([2], "string")])
def test_unknown_shapes_and_strings_are_refused(shape: list[int], dtype: Any) -> None:
    """The message names the input, its type and its shape."""
    x = opset.parameter(shape, getattr(ov.Type, dtype), name="x")
    model = ov.Model([opset.result(x)], [x], "m")
    with pytest.raises(UnsupportedProblemError, match=f"input 'x' has type {dtype}"):
        random_inputs(model)
