"""About how much memory it takes to build a zoo model, from its parameters alone: what is too large is not begun.

Weights exist three times while a model is converted (torch, OpenVINO, the file), activations once, as the tracer runs
the model. Both are estimates to a factor of two or so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

COPIES = 3
"""Of the weights."""
FLOAT_BYTES = 4


def bytes_to_build(name: str, values: Mapping[str, Any]) -> float:
    """Return about how many bytes of memory it takes to build a model.

    Parameters
    ----------
    name
        Its name in the zoo.
    values
        Value of every parameter.

    Examples
    --------
    >>> from placekit.zoo import ZOO
    >>> round(bytes_to_build("bert_base", ZOO["bert_base"].defaults) / 2**30, 1)
    1.8
    """
    weights, activations = _NUMBERS[name](values)
    return FLOAT_BYTES * (COPIES * weights + activations)


def _language(values: Mapping[str, Any]) -> tuple[float, float]:
    width, tokens = float(values["width"]), float(values["batch"]) * values["sequence"]
    feed_forward = float(values["feed_forward"] or 4 * width)
    experts = values.get("experts", 1)
    weights = values["layers"] * (4 * width**2 + 3 * width * feed_forward * experts) + 2 * values["vocabulary"] * width
    scores = 2.0 * tokens * values["heads"] * values["sequence"]
    return weights, tokens * (values["vocabulary"] + 8 * width + 2 * feed_forward) + scores


def _resnet(values: Mapping[str, Any]) -> tuple[float, float]:
    channels = [float(values["width"]) * 4 * 2**stage for stage in range(4)]
    weights = sum(depth * 1.1 * c**2 for depth, c in zip(values["depths"], channels, strict=True))
    return weights + values["classes"] * channels[-1], _pixels(values) * values["width"]


def _inception(values: Mapping[str, Any]) -> tuple[float, float]:
    factor = float(values["width_multiplier"])
    return 22e6 * factor**2 + 2048 * factor * values["classes"], _pixels(values) * 64 * factor


def _mobilenet(values: Mapping[str, Any]) -> tuple[float, float]:
    factor = float(values["width_multiplier"])
    return 2.2e6 * factor**2 + 1280 * max(1.0, factor) * values["classes"], _pixels(values) * 96 * factor


def _unet(values: Mapping[str, Any]) -> tuple[float, float]:
    width = float(values["width"])
    return 7600 * width**2, 4 * _pixels(values) * (6 * width + values["classes"])


def _pixels(values: Mapping[str, Any]) -> float:
    """Return the pixels of the first layers, which are half as high and wide, in all samples."""
    return float(values["batch"] * values["image_size"] ** 2) / 4


_NUMBERS: Mapping[str, Callable[[Mapping[str, Any]], tuple[float, float]]] = MappingProxyType(
    {
        "resnet50": _resnet,
        "inception_v3": _inception,
        "mobilenet_v2": _mobilenet,
        "unet": _unet,
        "bert_base": _language,
        "gpt2": _language,
        "decoder": _language,
    }
)
"""Numbers in weights, and in activations at the same time, by model."""
