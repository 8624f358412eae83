"""Inception-v3, written out: no CPU-only package offers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from placekit.zoo.vision import calibrate_classifier

Size = int | tuple[int, int]

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_DEVIATION = (0.229, 0.224, 0.225)


class _Unit(nn.Sequential):
    """Convolution, batch normalisation, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: Size, stride: int = 1, padding: Size = 0) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
            nn.ReLU(),
        )


class _Branches(nn.Module):
    """Branches that read one tensor; their outputs are joined along the channels."""

    def __init__(self, **branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleDict(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches.values()], dim=1)


def _same_pool() -> nn.Module:
    # "same" padding counts zeros, as the published model does
    return nn.AvgPool2d(3, stride=1, padding=1)


class _Width:
    """Scaled numbers of channels, and the modules of figures 5, 6, 7 and 10 of the paper (A, C, E; B and D shrink)."""

    def __init__(self, multiplier: float) -> None:
        self.multiplier = multiplier

    def __call__(self, channels: int) -> int:
        return max(4, round(channels * self.multiplier))

    def module_a(self, inputs: int, pool: int) -> tuple[nn.Module, int]:
        """Figure 5: 1x1; 1x1 5x5; 1x1 3x3 3x3; pool 1x1, on the 35x35 grid."""
        w = self
        block = _Branches(
            one=_Unit(inputs, w(64), 1),
            five=nn.Sequential(_Unit(inputs, w(48), 1), _Unit(w(48), w(64), 5, padding=2)),
            three=nn.Sequential(
                _Unit(inputs, w(64), 1), _Unit(w(64), w(96), 3, padding=1), _Unit(w(96), w(96), 3, padding=1)
            ),
            pool=nn.Sequential(_same_pool(), _Unit(inputs, w(pool), 1)),
        )
        return block, 2 * w(64) + w(96) + w(pool)

    def module_b(self, inputs: int) -> tuple[nn.Module, int]:
        """Figure 10: from the 35x35 to the 17x17 grid."""
        w = self
        block = _Branches(
            three=_Unit(inputs, w(384), 3, stride=2),
            stacked=nn.Sequential(
                _Unit(inputs, w(64), 1), _Unit(w(64), w(96), 3, padding=1), _Unit(w(96), w(96), 3, stride=2)
            ),
            pool=nn.MaxPool2d(3, stride=2),
        )
        return block, w(384) + w(96) + inputs

    def module_c(self, inputs: int, inner: int) -> tuple[nn.Module, int]:
        """Figure 6: convolutions by 7 factored into 1x7 and 7x1, on the 17x17 grid."""
        w = self

        def row(a: int, b: int) -> nn.Module:
            return _Unit(w(a), w(b), (1, 7), padding=(0, 3))

        def column(a: int, b: int) -> nn.Module:
            return _Unit(w(a), w(b), (7, 1), padding=(3, 0))

        block = _Branches(
            one=_Unit(inputs, w(192), 1),
            seven=nn.Sequential(_Unit(inputs, w(inner), 1), row(inner, inner), column(inner, 192)),
            stacked=nn.Sequential(
                _Unit(inputs, w(inner), 1),
                column(inner, inner),
                row(inner, inner),
                column(inner, inner),
                row(inner, 192),
            ),
            pool=nn.Sequential(_same_pool(), _Unit(inputs, w(192), 1)),
        )
        return block, 4 * w(192)

    def module_d(self, inputs: int) -> tuple[nn.Module, int]:
        """From the 17x17 to the 8x8 grid."""
        w = self
        block = _Branches(
            three=nn.Sequential(_Unit(inputs, w(192), 1), _Unit(w(192), w(320), 3, stride=2)),
            seven=nn.Sequential(
                _Unit(inputs, w(192), 1),
                _Unit(w(192), w(192), (1, 7), padding=(0, 3)),
                _Unit(w(192), w(192), (7, 1), padding=(3, 0)),
                _Unit(w(192), w(192), 3, stride=2),
            ),
            pool=nn.MaxPool2d(3, stride=2),
        )
        return block, w(320) + w(192) + inputs

    def module_e(self, inputs: int) -> tuple[nn.Module, int]:
        """Figure 7: branches that fork again into 1x3 and 3x1, on the 8x8 grid."""
        w = self

        def fork() -> nn.Module:
            return _Branches(
                row=_Unit(w(384), w(384), (1, 3), padding=(0, 1)), column=_Unit(w(384), w(384), (3, 1), padding=(1, 0))
            )

        block = _Branches(
            one=_Unit(inputs, w(320), 1),
            three=nn.Sequential(_Unit(inputs, w(384), 1), fork()),
            stacked=nn.Sequential(_Unit(inputs, w(448), 1), _Unit(w(448), w(384), 3, padding=1), fork()),
            pool=nn.Sequential(_same_pool(), _Unit(inputs, w(192), 1)),
        )
        return block, w(320) + 4 * w(384) + w(192)


class _InceptionV3(nn.Module):
    def __init__(self, multiplier: float, classes: int, *, transform_input: bool) -> None:
        super().__init__()
        w = _Width(multiplier)
        self.transform_input = transform_input
        self.stem = nn.Sequential(
            _Unit(3, w(32), 3, stride=2),
            _Unit(w(32), w(32), 3),
            _Unit(w(32), w(64), 3, padding=1),
            nn.MaxPool2d(3, stride=2),
            _Unit(w(64), w(80), 1),
            _Unit(w(80), w(192), 3),
            nn.MaxPool2d(3, stride=2),
        )
        channels = w(192)
        blocks = []
        for make, sizes in (
            (w.module_a, ((32,), (64,), (64,))),
            (w.module_b, ((),)),
            (w.module_c, ((128,), (160,), (160,), (192,))),
            (w.module_d, ((),)),
            (w.module_e, ((), ())),
        ):
            for size in sizes:
                block, channels = make(channels, *size)
                blocks.append(block)
        self.blocks = nn.Sequential(*blocks)
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
