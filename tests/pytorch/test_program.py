"""Sizes that are expressions, and what binding them refuses."""

from __future__ import annotations

import time
from typing import Any

import pytest

from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError

torch = pytest.importorskip("torch")

from placekit.pytorch.archive import check_size  # noqa: E402  # torch is there
from placekit.pytorch.program import TorchProgram, program_of  # noqa: E402


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', integer=True, positive=True)",
        "Mul(Integer(2), Symbol('s0', positive=True, integer=True))",
        "FloorDiv(Add(Symbol('s0', integer=True), Integer(-1)), Integer(2))",
        "Pow(Symbol('s0', positive=True, integer=True), Integer(2))",
        "OpaqueUnaryFn_sqrt(ToFloat(Symbol('s0', integer=True)))",
        "Mul(Float('0.5', precision=53), Rational(1, 2))",
    ],
)
def test_arithmetic_is_read(text: str) -> None:
    """As torch writes it."""
    check_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "Symbol('s0').func",
        "s0 if s0 else 1",
        "[1][0]",
        "2**99",
        "9**8**8",
        "9" * 1001,
        "Add(" * 300 + ")" * 300,
        "Symbol('__import__(1)')",
        "Function('x')(1)",
        "lambda: 1",
        "Pow(Integer(9), Integer(99999999))",
        "Pow(Pow(Pow(Integer(9), Integer(8)), Integer(8)), Integer(8))",
        "PowByNatural(Integer(9), Symbol('s0'))",
        "Integer(" + "9" * 30 + ")",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Nothing of a file is run, and nothing of it takes long."""
    start = time.process_time()
    with pytest.raises(InvalidFileError, match="is not arithmetic"):
        check_size(text)
    assert time.process_time() - start < 1


class Twice(torch.nn.Module):  # type: ignore[misc,name-defined]
    """y = a + b, twice as long."""

    def forward(self, a: Any, b: Any) -> Any:
        """Return the sums."""
        y = a + b[:, None]
        return torch.cat([y, y])


@pytest.fixture(scope="module")
def exported() -> Any:
    """Return a program with an open dimension, of which the example has 3."""
    batch = torch.export.Dim("batch", max=99)
    return torch.export.export(Twice(), (torch.zeros(3, 8), torch.zeros(3)), dynamic_shapes=({0: batch}, {0: batch}))


def test_examples_count_until_others_are_given(exported: Any) -> None:
    """Sizes of the examples, or of the user."""

    def output(program: TorchProgram) -> tuple[int, ...]:
        return program.tensors[program.outputs[0]].shape

    assert output(program_of(exported, "p")) == (6, 8)
    assert output(program_of(exported, "p", {"a": (5, 8)})) == (10, 8)


@pytest.mark.parametrize(
    ("shapes", "error", "says"),
    [
        ({"c": (1,)}, UnknownNameError, "no input 'c'; inputs are a, b"),
        ({"": (1,)}, UnknownNameError, "no input ''"),
        ({"a": (5,)}, InvalidProblemError, r"shape \[5\] of input 'a' does not fit: the program needs \[5, 8\]"),
        ({"a": (5, 9)}, InvalidProblemError, r"needs \[5, 8\]; export it again with dynamic_shapes"),
        ({"a": (5, 8), "b": (6,)}, InvalidProblemError, r"input 'a' does not fit: the program needs \[6, 8\]"),
    ],
)
def test_shapes_that_do_not_fit(
    exported: Any, shapes: dict[str, tuple[int, ...]], error: type[Exception], says: str
) -> None:
    """The message names the input and the size."""
    with pytest.raises(error, match=says):
        program_of(exported, "p", shapes)
