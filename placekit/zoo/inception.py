"""Inception-v3, written out: no CPU-only package offers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from placekit.zoo.vision import calibrate_classifier

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_DEVIATION = (0.229, 0.224, 0.225)

_AVERAGE, _MAX = "average", "max"
"""Poolings of 3x3: at stride 1, where padded zeros count as in the published model, and at stride 2 without padding."""

_FORK = {"row": [(384, (1, 3))], "column": [(384, (3, 1))]}


def _figure_5(pool: int) -> dict[str, Any]:
    """On the 35x35 grid."""
    return {
        "one": [(64, 1)],
        "five": [(48, 1), (64, 5)],
        "three": [(64, 1), (96, 3), (96, 3)],
        "pool": [_AVERAGE, (pool, 1)],
    }


def _figure_6(inner: int) -> dict[str, Any]:
    """Convolutions by 7 factored into 1x7 and 7x1, on the 17x17 grid."""
    row, column = (inner, (1, 7)), (inner, (7, 1))
    return {
        "one": [(192, 1)],
        "seven": [(inner, 1), row, (192, (7, 1))],
        "stacked": [(inner, 1), column, row, column, (192, (1, 7))],
        "pool": [_AVERAGE, (192, 1)],
    }


_TO_17: dict[str, Any] = {"three": [(384, 3, 2)], "stacked": [(64, 1), (96, 3), (96, 3, 2)], "pool": [_MAX]}
"""Figure 10: from the 35x35 to the 17x17 grid."""

_TO_8: dict[str, Any] = {
    "three": [(192, 1), (320, 3, 2)],
    "seven": [(192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2)],
    "pool": [_MAX],
}

_FIGURE_7: dict[str, Any] = {
    "one": [(320, 1)],
    "three": [(384, 1), _FORK],
    "stacked": [(448, 1), (384, 3), _FORK],
    "pool": [_AVERAGE, (192, 1)],
}
"""Branches that fork again, on the 8x8 grid."""

_BLOCKS = (
    *map(_figure_5, (32, 64, 64)),
    _TO_17,
    *map(_figure_6, (128, 160, 160, 192)),
    _TO_8,
    *(_FIGURE_7, _FIGURE_7),
)
"""Branches by name in every block of the paper; a step is a pooling, a fork, or (channels, kernel, stride if not 1)."""


class _Unit(nn.Sequential):
    """Convolution, batch normalisation, ReLU; padded or not, at the stride."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int, *, is_padded: bool
    ) -> None:
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (height // 2, width // 2) if is_padded else 0
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
            nn.ReLU(),
        )


class _Branches(nn.Module):
    """Branches that read one tensor of `inputs` channels; their outputs are joined along the channels."""

    def __init__(self, inputs: int, branches: Mapping[str, Sequence[Any]], multiplier: float) -> None:
        super().__init__()
        self.branches = nn.ModuleDict()
        self.channels = 0
        for name, steps in branches.items():
            layers, channels = list[nn.Module](), inputs
            for step in steps:
                if isinstance(step, Mapping):
                    layers.append(fork := _Branches(channels, step, multiplier))
                    channels = fork.channels
                elif isinstance(step, str):
                    layers.append(nn.AvgPool2d(3, stride=1, padding=1) if step == _AVERAGE else nn.MaxPool2d(3, 2))
                else:
                    outputs, stride = _scaled(step[0], multiplier), step[2] if len(step) > 2 else 1
                    layers.append(_Unit(channels, outputs, step[1], stride, is_padded=stride == 1))
                    channels = outputs
            self.branches[name] = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
            self.channels += channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches.values()], dim=1)


def _scaled(channels: int, multiplier: float) -> int:
    return max(4, round(channels * multiplier))


class _InceptionV3(nn.Module):
    def __init__(self, multiplier: float, classes: int, *, transform_input: bool) -> None:
        super().__init__()
        self.transform_input = transform_input
        sizes = [_scaled(each, multiplier) for each in (32, 32, 64, 80, 192)]
        self.stem = nn.Sequential(
            _Unit(3, sizes[0], 3, 2, is_padded=False),
            _Unit(sizes[0], sizes[1], 3, 1, is_padded=False),
            _Unit(sizes[1], sizes[2], 3, 1, is_padded=True),
            nn.MaxPool2d(3, stride=2),
            _Unit(sizes[2], sizes[3], 1, 1, is_padded=False),
            _Unit(sizes[3], sizes[4], 3, 1, is_padded=False),
            nn.MaxPool2d(3, stride=2),
        )
        channels = sizes[4]
        self.blocks = nn.Sequential()
        for branches in _BLOCKS:
            self.blocks.append(block := _Branches(channels, branches, multiplier))
            channels = block.channels
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        if self.transform_input:
            pixel_values = _renormalise(pixel_values)
        features = self.pool(self.blocks(self.stem(pixel_values))).flatten(1)
        logits: torch.Tensor = self.classifier(features)
        return logits


def _renormalise(images: torch.Tensor) -> torch.Tensor:
    """Turn images normalised by ImageNet's mean and deviation into images in -1 .. 1, channel by channel.

    This is what the widely used weights of this network were trained for, and their users' graphs contain.
    """
    channels = [
        images[:, at].unsqueeze(1) * (deviation / 0.5) + (mean - 0.5) / 0.5
        for at, (mean, deviation) in enumerate(zip(_IMAGENET_MEAN, _IMAGENET_DEVIATION, strict=True))
    ]
    return torch.cat(channels, dim=1)


def inception_v3(values: Mapping[str, Any]) -> nn.Module:
    """Return Inception-v3 without its auxiliary head (Szegedy et al. 2015, doi:10.1109/CVPR.2016.308)."""
    module = _InceptionV3(values["width_multiplier"], values["classes"], transform_input=values["transform_input"])
    calibrate_classifier(module, module.classifier, values["image_size"])
    return module
