r"""Tensors compared: what differs by how much, and what is allowed.

Errors are in units of the tensor's spread. What is allowed depends on the lowest precision that any device computes
in:

==========  ==========================  ==================================================================
precision   tolerance                   why
==========  ==========================  ==================================================================
f32         largest difference 1e-5     sums in another order: at most 7e-6 in random placements of the zoo
f16         root mean square 0.4        0.005 in BERT, 0.3 in a random Inception-v3
bf16        root mean square 1          0.03 in BERT, 0.6 in a random Inception-v3
==========  ==========================  ==================================================================

In f16 and bf16 rounding errors grow from layer to layer, in some networks with random weights until little is left
(two unrelated tensors differ by 1.4). There the check finds gross errors only; whether the *split* is right is
checked with the same stages in f32 (:func:`~placekit.runtime.output_check.in_f32`), and whether the
*accuracy* is good enough is a question about the model's task that no tolerance answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import OutputMismatchError

_BEYOND = 1e30
"""Numbers that stand for infinity, as in attention masks: they must agree, and do not count for the spread."""

_INFINITE = (float("inf"), float("inf"))

_LEAST_SPREAD = 0.01
"""Least spread in units of the largest magnitude: below it the rounding of the numbers themselves would be an error."""

_USUAL_TAIL = 4.0
"""Spreads from the mean to the furthest of some ten thousand normally distributed numbers."""


TOLERANCES: Mapping[str, float] = {"f32": 1e-5, "f16": 0.4, "bf16": 1.0}
"""Error allowed in units of a tensor's spread, by precision: the largest one in f32, else the root mean square."""

MOST_ERROR = 0.01
"""Root mean square error allowed, in units of a tensor's spread: far above rounding, far below two tensors mixed up."""

_MOST_NOISE = 100.0
"""Tolerances that a model may differ from itself and still be a reference."""


@dataclass(frozen=True, slots=True)
class TensorCheck:
    """One tensor, compared."""

    name: str  # ``"op:port"`` of a tensor between stages, or the name of an output
    stage: str  # name of the stage that wrote it, with the member of a team; empty for an output of the whole placement
    # max_error, rms_error: largest and root mean square difference in units of the spread, see `relative_errors`
    max_error: float
    rms_error: float
    tolerance: float  # error allowed
    judges_rms: bool = False  # whether the root mean square error is held against the tolerance, not the largest one

    @property
    def is_equal(self) -> bool:
        """True if the error is within the tolerance."""
        return (self.rms_error if self.judges_rms else self.max_error) <= self.tolerance

    @classmethod
    def compared(
        cls, name: str, stage: str, expected: NDArray[Any], found: NDArray[Any], precision: str, noise: float = 0.0
    ) -> TensorCheck:
        """Compare with what `precision` allows; in f32 `noise`, what a reference differs from itself, raises that."""
        errors = relative_errors(expected, found)
        if precision in {"f16", "bf16"}:
            return cls(name, stage, *errors, TOLERANCES[precision], judges_rms=True)
        allowed = TOLERANCES["f32"] if expected.dtype.kind == "f" else 0.0
        return cls(name, stage, *errors, max(allowed, min(2 * noise, _MOST_NOISE * allowed)))

    def __str__(self) -> str:
        where = f"tensor {self.name!r} of stage {self.stage!r}" if self.stage else f"output {self.name!r}"
        by = f"{self.rms_error:.2g} (root mean square)" if self.judges_rms else f"{self.max_error:.2g}"
        return f"{where} differs by {by} of its spread; the tolerance is {self.tolerance:g}"


@dataclass(frozen=True)
class OutputCheck:
    """Result of a comparison of outputs."""

    reference: str  # name of the device that ran the whole model
    precision: str  # the lowest precision that was computed in, which the tolerance is for
    # every tensor that leaves a stage, in topological order, as often as the largest team has members
    cuts: tuple[TensorCheck, ...]
    outputs: tuple[TensorCheck, ...]  # every output of the model, in its order, as often

    @property
    def max_relative_error(self) -> float:
        """Largest error of any tensor; 0 if there is none."""
        return max((each.max_error for each in (*self.cuts, *self.outputs)), default=0.0)

    @property
    def first_mismatch(self) -> TensorCheck | None:
        """The first tensor in topological order that differs; None if all are equal."""
        return next((each for each in (*self.cuts, *self.outputs) if not each.is_equal), None)

    def require_equal(self) -> None:
        """Raise unless all tensors are equal."""
        first = self.first_mismatch
        if first is not None:
            number = sum(not each.is_equal for each in (*self.cuts, *self.outputs))
            total = len(self.cuts) + len(self.outputs)
            raise OutputMismatchError(
                f"{first} ({self.precision}, compared with the whole model on {self.reference}; {number} of {total} "
                "tensors differ)"
            )


def require_alike(what: str, expected: NDArray[Any], found: NDArray[Any]) -> None:
    """Raise an `OutputMismatchError` if a tensor, called `what`, differs from the whole model's by `MOST_ERROR`."""
    error = relative_errors(expected, found)[1]
    if error > MOST_ERROR:
        raise OutputMismatchError(
            f"{what} differs from the whole model's by {error:.2g} of its spread; {MOST_ERROR:g} is allowed"
        )


def relative_errors(expected: NDArray[Any], found: NDArray[Any]) -> tuple[float, float]:
    """Return by how much `found` differs from `expected`, in units of its spread: at most, and root mean square.

    The spread is the standard deviation of `expected`, or a hundredth of its largest magnitude where that is more (a
    tensor that hardly varies). For the largest difference it is at least a quarter of the largest distance from the
    mean, which is more where few numbers are much larger than the others (a softmax that is nearly one-hot, the squares
    inside an RMS norm): rounding is in proportion to them.
    Infinities, numbers beyond 1e30 and NaN must be the same at the same places. For integers and booleans both errors
    are the share of elements that differ.

    Returns
    -------
    tuple[float, float]
        0 if equal; infinity for another shape, or where one is finite and the other is not.

    Examples
    --------
    >>> [round(error, 3) for error in relative_errors(np.array([-1.0, 1.0]), np.array([-1.0, 1.1]))]  # spread 1
    [0.1, 0.071]
    >>> relative_errors(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    (0.25, 0.25)
    """
    if expected.shape != found.shape:
        return _INFINITE
    if expected.dtype.kind != "f":
        share = float(np.mean(expected != found)) if expected.size else 0.0
        return share, share
    a, b = expected.astype(np.float64), found.astype(np.float64)
    is_number = np.abs(a) < _BEYOND  # False for NaN
    if not np.array_equal(is_number, np.abs(b) < _BEYOND):
        return _INFINITE
    beyond, also = a[~is_number], b[~is_number]
    if not np.array_equal(np.isnan(beyond), np.isnan(also)) or (np.sign(beyond) * np.sign(also) < 0).any():
        return _INFINITE
    a, b = a[is_number], b[is_number]
    difference = np.abs(a - b)
    if not difference.any():
        return 0.0, 0.0
    spread = max(float(a.std()), _LEAST_SPREAD * float(np.abs(a).max()))
    if not spread:
        return _INFINITE
    furthest = float(np.abs(a - a.mean()).max())
    return float(difference.max()) / max(spread, furthest / _USUAL_TAIL), float(
        np.sqrt(np.mean(difference**2))
    ) / spread
