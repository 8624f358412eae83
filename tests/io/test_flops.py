"""FLOPs by hand formulas, against counts worked out on paper and known totals of networks."""

from typing import Any

import pytest

from placekit.io.models.flops import DATA_MOVEMENT, count_flops


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attributes", "expected"),
    [
        # 2 * out (1*4*6*6) * in channels 3 * kernel 9
        ("Convolution", [(1, 3, 8, 8), (4, 3, 3, 3)], [(1, 4, 6, 6)], {}, 2 * 144 * 27),
        # depthwise: one input channel per output
        ("GroupConvolution", [(1, 4, 8, 8), (4, 1, 1, 3, 3)], [(1, 4, 6, 6)], {}, 2 * 144 * 9),
        # every input element times 5 outputs times kernel 4
        ("ConvolutionBackpropData", [(1, 3, 8, 8), (3, 5, 2, 2)], [(1, 5, 16, 16)], {}, 2 * 192 * 5 * 4),
        ("GroupConvolutionBackpropData", [(1, 4, 8, 8), (2, 2, 3, 2, 2)], [(1, 6, 16, 16)], {}, 2 * 256 * 3 * 4),
        ("MatMul", [(7, 8, 64), (7, 64, 10)], [(7, 8, 10)], {"transpose_a": False, "transpose_b": False}, 2 * 560 * 64),
        ("MatMul", [(64, 8), (10, 64)], [(8, 10)], {"transpose_a": True, "transpose_b": True}, 2 * 80 * 64),
        ("MatMul", [(64,), (64,)], [()], {"transpose_a": True, "transpose_b": False}, 2 * 64),
        ("MaxPool", [(1, 4, 8, 8)], [(1, 4, 4, 4)], {"kernel": [2, 2]}, 64 * 4),
        ("AvgPool", [(1, 4, 8, 8)], [(1, 4, 4, 4)], {"kernel": [3, 3]}, 64 * 9),
        ("Softmax", [(2, 10)], [(2, 10)], {}, 100),
        ("MVN", [(2, 10), (1,)], [(2, 10)], {"normalize_variance": True}, 100),
        ("MVN", [(2, 10), (1,)], [(2, 10)], {"normalize_variance": False}, 40),
        ("ReduceMean", [(2, 10), (1,)], [(2,)], {}, 20),
        ("ReduceL2", [(2, 10), (1,)], [(2,)], {}, 40),
        ("Interpolate", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {"mode": "nearest"}, 0),
        ("Interpolate", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {"mode": "linear_onnx"}, 64 * 7),
        ("Interpolate", [(1, 1, 4, 4)], [(1, 1, 8, 8)], {"mode": "cubic"}, 64 * 31),
        # batch 2, input 3, hidden 5: 4 gates of (3 + 5) x 5 products, 17 steps per hidden element
        ("LSTMCell", [(2, 3), (2, 5), (2, 5), (20, 3), (20, 5), (20,)], [(2, 5)] * 2, {}, 2 * (2 * 20 * 8 + 85)),
        ("GRUCell", [(2, 3), (2, 5), (15, 3), (15, 5), (15,)], [(2, 5)], {}, 2 * (2 * 15 * 8 + 70)),
        # the same over 7 steps and 2 directions
        (
            "LSTMSequence",
            [(2, 7, 3), (2, 2, 5), (2, 2, 5), (2,), (2, 20, 3), (2, 20, 5), (2, 20)],
            [(2, 2, 7, 5), (2, 2, 5), (2, 2, 5)],
            {},
            2 * 7 * 2 * (2 * 20 * 8 + 85),
        ),
        # 3 heads, 4 queries, 6 keys, size 8: 72 scores of 2*8 + 2*8 + softmax 5 + scale 1
        ("ScaledDotProductAttention", [(1, 3, 4, 8), (1, 3, 6, 8), (1, 3, 6, 8)], [(1, 3, 4, 8)], {}, 72 * 38),
        (
            "ScaledDotProductAttention",
            [(1, 3, 4, 8), (1, 3, 6, 8), (1, 3, 6, 8), (1, 1, 4, 6)],
            [(1, 3, 4, 8)],
            {},
            72 * 39,
        ),
        ("Einsum", [(2, 3), (3, 4)], [(2, 4)], {"equation": "ij,jk->ik"}, 2 * 24),
        ("Einsum", [(5, 2, 3), (5, 3, 4)], [(5, 2, 4)], {"equation": "...ij,...jk->...ik"}, 2 * 120),
        ("Add", [(2, 10), (10,)], [(2, 10)], {}, 20),
        ("NoSuchOperator", [(2, 10)], [(2, 10), (3,)], {}, 23),
        # an optional input is missing: the estimate of unknown ops
        ("LSTMCell", [(2, 3)], [(2, 5)], {}, 10),
    ],
)
def test_formula_agrees_with_paper(
    op_type: str,
    inputs: list[tuple[int, ...]],
    outputs: list[tuple[int, ...]],
    attributes: dict[str, Any],
    expected: float,
) -> None:
    """Every formula gives the number worked out by hand."""
    assert count_flops(op_type, inputs, outputs, attributes) == expected


@pytest.mark.parametrize("op_type", sorted(DATA_MOVEMENT))
def test_data_movement_costs_nothing(op_type: str) -> None:
    """Ops that only move data count 0."""
    assert count_flops(op_type, [(2, 10)], [(20,)]) == 0
