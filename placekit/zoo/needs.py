"""About how much memory it takes to build a zoo model, from its parameters alone: what is too large is not begun.

Weights exist three times while a model is converted (torch, OpenVINO, the file), activations once, as the tracer runs
the model. Both are estimates to a factor of two or so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_COPIES, _FLOAT_BYTES = 3, 4


def bytes_to_build(name: str, values: Mapping[str, Any]) -> float:
    """Return about how many bytes of memory it takes to build the zoo model `name` with some values of its parameters.

    Examples
    --------
    >>> from placekit.zoo import ZOO
    >>> round(bytes_to_build("bert_base", ZOO["bert_base"].defaults) / 2**30, 1)
    1.8
    """
    weights, activations = _language(values) if "sequence" in values else _vision(name, values)
    return _FLOAT_BYTES * (_COPIES * weights + activations)


def _language(values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the numbers in weights, and in activations at the same time."""
    width, tokens = float(values["width"]), float(values["batch"]) * values["sequence"]
    feed_forward = float(values["feed_forward"] or 4 * width)
    experts = values.get("experts", 1)
    weights = values["layers"] * (4 * width**2 + 3 * width * feed_forward * experts) + 2 * values["vocabulary"] * width
    scores = 2.0 * tokens * values["heads"] * values["sequence"]
    return weights, tokens * (values["vocabulary"] + 8 * width + 2 * feed_forward) + scores


def _vision(name: str, values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the same; of activations what belongs to the pixels of the first layers, half as high and wide."""
    pixels, classes = float(values["batch"] * values["image_size"] ** 2) / 4, values["classes"]
    width = float(values.get("width", 0))
    factor = float(values.get("width_multiplier", 0))
    if name == "resnet50":
        channels = [width * 4 * 2**stage for stage in range(4)]
        weights = sum(depth * 1.1 * c**2 for depth, c in zip(values["depths"], channels, strict=True))
        return weights + classes * channels[-1], pixels * width
    if name == "inception_v3":
        return 22e6 * factor**2 + 2048 * factor * classes, pixels * 64 * factor
    if name == "mobilenet_v2":
        return 2.2e6 * factor**2 + 1280 * max(1.0, factor) * classes, pixels * 96 * factor
    return 7600 * width**2, 4 * pixels * (6 * width + classes)
