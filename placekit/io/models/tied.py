"""Tied weights: constants of one content, which the converters of frameworks store once for every reader.

OpenVINO turns a matrix that two products read into a constant of each, and exporters write the transposed matrix of an
embedding a second time. The network has one weight there, however it is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import openvino

_SMALLEST_BYTES = 1024
"""Smaller constants are sizes, axes and scales: equal by chance, and not worth a search."""

_SAMPLES = 64


def tied_constants(constants: Sequence[openvino.Node]) -> list[int]:
    """Return for each constant the index of the first one with its content, which is its own if there is none.

    Two matrices are also one weight if one of them is the other transposed. A constant of one repeated value is tied
    to nothing: weights that were never trained look alike without being one. Few numbers of each constant are read,
    and all of them only where these agree.
    """
    first = list(range(len(constants)))
    alike: dict[tuple[Any, ...], list[tuple[int, NDArray[Any]]]] = {}
    for at, constant in enumerate(constants):
        kind = constant.get_element_type().to_string()
        if constant.get_byte_size() < _SMALLEST_BYTES or kind == "string":
            continue
        data: NDArray[Any] = constant.data  # packed types as rows of bytes
        bits = data.view(f"u{data.itemsize}")
        sample = _sample(bits)
        if (sample == sample[0]).all():
            continue
        shape = tuple(constant.get_output_shape(0))
        seen = alike.setdefault((kind, tuple(sorted(shape)) if bits.ndim == 2 else shape, sample.tobytes()), [])
        either = (bits, bits.T) if bits.ndim == 2 else (bits,)
        twin = next((other for other, content in seen if any(np.array_equal(each, content) for each in either)), None)
        if twin is None:
            seen.append((at, bits))
        else:
            first[at] = twin
    return first


def _sample(bits: NDArray[Any]) -> NDArray[Any]:
    """Return some of the elements; of a matrix those along its diagonal, which stay when it is transposed."""
    if bits.ndim == 2:
        rows, columns = (np.linspace(0, size - 1, _SAMPLES).astype(np.int64) for size in bits.shape)
        found: NDArray[Any] = bits[rows, columns]
        return found
    return bits.reshape(-1)[np.linspace(0, bits.size - 1, _SAMPLES).astype(np.int64)]
