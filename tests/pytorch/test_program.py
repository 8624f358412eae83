"""Sizes that are expressions, and what binding them refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.pytorch.program import Ref, TorchNode, TorchProgram, TorchTensor
from placekit.pytorch.sizes import evaluate, evaluate_size

NAMES = ("s0", "s1", "s77")
LEAVES = st.one_of(st.integers(0, 9).map(str), st.sampled_from(NAMES))
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+*"), inner).map(lambda told: f"({told[0]}{told[1]}{told[2]})"),
        st.tuples(inner, inner).map(lambda told: f"Max({told[0]}, {told[1]})"),
        st.tuples(inner, st.integers(1, 7)).map(lambda told: f"({told[0]}//{told[1]})"),
        st.tuples(inner, st.integers(1, 7)).map(lambda told: f"Mod({told[0]}, {told[1]})"),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.lists(st.integers(0, 50), min_size=3, max_size=3))
def test_sizes_are_what_they_say(text: str, numbers: list[int]) -> None:
    """As Python itself computes them."""
    values = dict(zip(NAMES, numbers, strict=True))
    expected = eval(text, {"Max": max, "Mod": lambda a, b: a % b, "__builtins__": {}}, values)
    assert evaluate_size(text, values, "x") == expected


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "s0.real",
        "s0 if s0 else 1",
        "[1][0]",
        "u0 + 1",
        "1 // 0",
        "-5",
        "2**99",
        "9" * 1001,
        "(" * 300 + ")" * 300,
        "s0 +",
        "Max()",
        "True",
        "9**8**8",
        "s0 / 2",
        "Pow(-1, Rational(1, 2))",
        "9.5",
        "1e999",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Nothing of a file is run."""
    with pytest.raises(InvalidFileError, match="tensor 'x'"):
        evaluate_size(text, {"s0": 3}, "x")


def test_numbers_are_what_torch_computes() -> None:
    """Expressions of whole and broken numbers, as sympy writes them."""
    values = {"s0": 7}
    texts = {
        "IntTrueDiv(s0, 2)": 3.5,
        "Mul(Rational(1, 2), s0)": 3.5,
        "Mul(Rational(2, 7), s0)": 2,
        "FloorToInt(Mul(0.5, ToFloat(s0)))": 3,
        "OpaqueUnaryFn_sqrt(ToFloat(Add(s0, 2)))": 3.0,
        "Pow(s0, 2)": 49,
        "StrictLessThan(s0, 8)": True,
    }
    assert {text: evaluate(text, values) for text in texts} == texts
    for text in ("u0", "Pow(s0, 9)", "__import__('os')", "s0.real", "Pow(Pow(Pow(9, 8), 8), 8)"):
        with pytest.raises(ValueError, match=r"u0|exponent|understood|beyond"):
            evaluate(text, values)


def program() -> TorchProgram:
    """Return y = op(a, b) with open dimensions."""
    return TorchProgram(
        "p",
        (
            TorchNode(
                "y", "aten.add.Tensor", "", {"self": Ref("a"), "others": [Ref("b"), None, {"c": Ref("a")}]}, ("y",)
            ),
        ),
        {
            "a": TorchTensor("float32", 4, ("s0", 8)),
            "b": TorchTensor("float32", 4, ("s0",)),
            "y": TorchTensor("float32", 4, ("2*s0", 8)),
        },
        ("a", "b"),
        ("y",),
        {},
        {},
        {},
        hints={"s0": 3},
    )


def test_examples_count_until_others_are_given() -> None:
    """Sizes of the examples, or of the user."""
    assert program().bind().tensors["y"].shape == (6, 8)
    assert program().bind({"a": (5, 8)}).tensors["y"].shape == (10, 8)
    assert program().nodes[0].refs() == ["a", "b"]


@pytest.mark.parametrize(
    ("shapes", "error", "says"),
    [
        ({"c": (1,)}, UnknownNameError, "no input 'c'; inputs are a, b"),
        ({"": (1,)}, UnknownNameError, "no input ''"),
        ({"a": (5,)}, InvalidProblemError, "has 2 dimensions, not 1"),
        ({"a": (5, 9)}, InvalidProblemError, "torch.export fixed dimension 1 at 8"),
        ({"a": (5, 8), "b": (6,)}, InvalidProblemError, "dimension 0 is that of 'a', 5"),
    ],
)
def test_shapes_that_do_not_fit(shapes: dict[str, tuple[int, ...]], error: type[Exception], says: str) -> None:
    """The message names the input and the size."""
    with pytest.raises(error, match=says):
        program().bind(shapes)
