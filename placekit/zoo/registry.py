"""The table of zoo models: what each is, and which parameters it takes. Imports neither torch nor transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from placekit.model.errors import InvalidProblemError, UnknownNameError

Value = bool | int | float | str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ZooParameter:
    """One parameter of a zoo model."""

    default: Value  # value if it is not given; its type is the parameter's type
    summary: str  # what it is, in a few words
    # least, most: smallest and largest value allowed, for numbers and for each number of a tuple
    least: float = 1
    most: float = math.inf
    choices: tuple[str, ...] = ()  # the values allowed, for a text

    def check(self, value: object, what: str) -> Value:
        """Return `value` in the parameter's type."""
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise InvalidProblemError(f"{what} is {value!r}; it must be True or False")
            return value
        if isinstance(self.default, str):
            if value not in self.choices:
                raise InvalidProblemError(f"{what} is {value!r}; choices are {', '.join(self.choices)}")
            return str(value)
        if isinstance(self.default, tuple):
            if not isinstance(value, (tuple, list)) or len(value) != len(self.default):
                raise InvalidProblemError(f"{what} is {value!r}; it must be {len(self.default)} integers")
            return tuple(self._integer(each, what) for each in value)
        if isinstance(self.default, float):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not self.least <= value <= self.most:
                raise InvalidProblemError(
                    f"{what} is {value!r}; it must be a number >= {self.least:g} and <= {self.most:g}"
                )
            return float(value)
        return self._integer(value, what)

    def _integer(self, value: object, what: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise InvalidProblemError(
                f"{what} is {value!r}; it must be an integer >= {self.least:g} and <= {self.most:.0f}"
            )
        return value


@dataclass(frozen=True)
class ZooEntry:
    """One row of the table."""

    name: str  # name of the model
    summary: str  # one line for a listing
    builder: str  # ``"module:function"`` that makes the torch module from the parameters
    parameters: Mapping[str, ZooParameter]  # parameters by name
    inputs: Mapping[str, tuple[int | str, ...]]  # dimensions of every input, as numbers or names of parameters
    divides: tuple[tuple[str, str], ...] = ()  # pairs (a, b): parameter a must divide parameter b

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))

    @property
    def defaults(self) -> dict[str, Value]:
        """Default value of every parameter."""
        return {name: parameter.default for name, parameter in self.parameters.items()}

    def settle(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """Return the value of every parameter, those of `given` checked."""
        what = f"zoo model {self.name!r}"
        for name in given:
            if name not in self.parameters:
                raise UnknownNameError(f"{what} has no parameter {name!r}; parameters are {', '.join(self.parameters)}")
        values = self.defaults | {
            name: self.parameters[name].check(value, f"{what}: {name}") for name, value in given.items()
        }
        for divisor, dividend in self.divides:
            a, b = values[divisor], values[dividend]
            if isinstance(a, int) and isinstance(b, int) and b % a:
                raise InvalidProblemError(f"{what}: {divisor} is {a}; it must divide {dividend}, which is {b}")
        return values

    def input_shapes(self, values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every input for the parameter values `values`."""
        return {
            name: tuple(int(values[dim]) if isinstance(dim, str) else dim for dim in dims)
            for name, dims in self.inputs.items()
        }


_BATCH = ZooParameter(1, "samples in one batch", most=65_536)
_CLASSES = ZooParameter(1000, "classes of the classifier", least=2, most=1_000_000)
_WIDTH_MULTIPLIER = ZooParameter(1.0, "factor on the number of channels", least=0.0625, most=16)
_ATTENTION = ZooParameter("sdpa", "attention as one op, or spelled out", choices=("sdpa", "eager"))


def _image(*, size: int, least: int) -> dict[str, ZooParameter]:
    image_size = ZooParameter(size, "height and width in pixels", least, 8192)
    return {"batch": _BATCH, "image_size": image_size, "classes": _CLASSES}


def _language(layers: int, width: int, heads: int, vocabulary: int, feed_forward: int) -> dict[str, ZooParameter]:
    return {
        "batch": _BATCH,
        "sequence": ZooParameter(128, "tokens in one sample", least=2, most=131_072),
        "layers": ZooParameter(layers, "transformer blocks", most=1000),
        "width": ZooParameter(width, "size of the hidden state", least=2, most=65_536),
        "heads": ZooParameter(heads, "attention heads", most=1024),
        "vocabulary": ZooParameter(vocabulary, "tokens known", least=2, most=1_000_000),
        "feed_forward": ZooParameter(
            feed_forward, "width of the feed-forward part; 0 for the usual multiple", least=0, most=262_144
        ),
        "attention": _ATTENTION,
    }


_IMAGE_INPUT: dict[str, tuple[int | str, ...]] = {"pixel_values": ("batch", 3, "image_size", "image_size")}
_TOKENS: tuple[int | str, ...] = ("batch", "sequence")
_LANGUAGE: Callable[[str], str] = "placekit.zoo.language:{}".format
_VISION: Callable[[str], str] = "placekit.zoo.vision:{}".format

_ENTRIES = (
    ZooEntry(
        "resnet50",
        "ResNet-50 (He et al. 2015), image classifier of bottleneck blocks",
        _VISION("resnet"),
        _image(size=224, least=32)
        | {
            "depths": ZooParameter((3, 4, 6, 3), "bottleneck blocks in each of the four stages", most=250),
            "width": ZooParameter(
                64, "channels of the stem; the stages have 4, 8, 16 and 32 times as many", least=4, most=4096
            ),
        },
        _IMAGE_INPUT,
    ),
    ZooEntry(
        "inception_v3",
        "Inception-v3 (Szegedy et al. 2015), image classifier of parallel branches",
        "placekit.zoo.inception:inception_v3",
        _image(size=299, least=75)
        | {
            "width_multiplier": _WIDTH_MULTIPLIER,
            "transform_input": ZooParameter(False, "renormalise the input's channels first, as for public weights"),
        },
        _IMAGE_INPUT,
    ),
    ZooEntry(
        "mobilenet_v2",
        "MobileNet-v2 (Sandler et al. 2018), image classifier of depthwise convolutions",
        _VISION("mobilenet_v2"),
        _image(size=224, least=32) | {"width_multiplier": _WIDTH_MULTIPLIER},
        _IMAGE_INPUT,
    ),
    ZooEntry(
        "unet",
        "U-Net (Ronneberger et al. 2015), segmentation of images with four skip connections",
        _VISION("unet"),
        {
            "batch": _BATCH,
            "image_size": ZooParameter(256, "height and width in pixels, a multiple of 16", 16, 8192),
            "classes": ZooParameter(2, "classes of a pixel", most=1000),
            "width": ZooParameter(32, "channels of the first level; every level below has twice as many", most=1024),
        },
        _IMAGE_INPUT,
    ),
    ZooEntry(
        "bert_base",
        "BERT-base (Devlin et al. 2018), text encoder",
        _LANGUAGE("bert"),
        _language(layers=12, width=768, heads=12, vocabulary=30522, feed_forward=0),
        {"input_ids": _TOKENS, "attention_mask": _TOKENS},
        divides=(("heads", "width"),),
    ),
    ZooEntry(
        "gpt2",
        "GPT-2 small (Radford et al. 2019), text decoder with learned positions",
        _LANGUAGE("gpt2"),
        _language(layers=12, width=768, heads=12, vocabulary=50257, feed_forward=0),
        {"input_ids": _TOKENS, "attention_mask": _TOKENS},
        divides=(("heads", "width"),),
    ),
    ZooEntry(
        "decoder",
        "Llama-like text decoder (Touvron et al. 2023): RMSNorm, rotary positions, SwiGLU",
        _LANGUAGE("decoder"),
        _language(layers=8, width=512, heads=8, vocabulary=32000, feed_forward=0)
        | {
            "kv_heads": ZooParameter(0, "heads of keys and values; 0 for as many as heads", least=0, most=1024),
            "experts": ZooParameter(1, "experts of every feed-forward part", most=256),
            "experts_per_token": ZooParameter(2, "experts that count for a token, if there are several", most=256),
        },
        {"input_ids": _TOKENS, "attention_mask": _TOKENS},
        divides=(("heads", "width"),),
    ),
)

ZOO: Mapping[str, ZooEntry] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""The zoo models by name."""


def entry_of(name: str) -> ZooEntry:
    """Return the row of the model called `name`."""
    if name not in ZOO:
        raise UnknownNameError(f"no zoo model {name!r}; models are {', '.join(ZOO)}")
    return ZOO[name]


def bytes_to_build(name: str, values: Mapping[str, Any]) -> float:
    """Return about how many bytes of memory it takes to build the zoo model `name` with some values of its parameters.

    Weights exist three times while a model is converted (torch, OpenVINO, the file), activations once, as the tracer
    runs the model. Both are estimates to a factor of two or so.

    Examples
    --------
    >>> from placekit.zoo import ZOO
    >>> round(bytes_to_build("bert_base", ZOO["bert_base"].defaults) / 2**30, 1)
    1.8
    """
    weights, activations = _language_numbers(values) if "sequence" in values else _vision_numbers(name, values)
    return 4 * (3 * weights + activations)


def _language_numbers(values: Mapping[str, Any]) -> tuple[float, float]:
    """Return the numbers in weights, and in activations at the same time."""
    width, tokens = float(values["width"]), float(values["batch"]) * values["sequence"]
    feed_forward = float(values["feed_forward"] or 4 * width)
    experts = values.get("experts", 1)
    weights = values["layers"] * (4 * width**2 + 3 * width * feed_forward * experts) + 2 * values["vocabulary"] * width
    scores = 2.0 * tokens * values["heads"] * values["sequence"]
    return weights, tokens * (values["vocabulary"] + 8 * width + 2 * feed_forward) + scores


def _vision_numbers(name: str, values: Mapping[str, Any]) -> tuple[float, float]:
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
