"""U-Net, written out: four levels that shrink, a bottom, four levels that grow, and a skip connection for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from placekit.model.errors import InvalidProblemError
from placekit.zoo.calibrate import calibrate_classifier

__all__ = ["unet"]

_LEVELS = 4


class _Pair(nn.Sequential):
    """Two 3x3 convolutions, each with batch normalisation and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class _UNet(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        channels = [width * 2**level for level in range(_LEVELS + 1)]
        self.down = nn.ModuleList(map(_Pair, [3, *channels[:-2]], channels[:-1]))
        self.pool = nn.MaxPool2d(2)
        self.bottom = _Pair(channels[-2], channels[-1])
        upwards = list(zip(channels[:0:-1], channels[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(lower, upper, 2, stride=2) for lower, upper in upwards)
        self.up = nn.ModuleList(_Pair(2 * upper, upper) for _, upper in upwards)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        x, skips = pixel_values, []
        for level in self.down:
            x = level(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for grow, level, skip in zip(self.grow, self.up, reversed(skips), strict=True):
            x = level(torch.cat([skip, grow(x)], dim=1))
        logits: torch.Tensor = self.head(x)
        return logits


def unet(values: Mapping[str, Any]) -> nn.Module:
    """Return a U-Net with padded convolutions (Ronneberger et al. 2015, doi:10.1007/978-3-319-24574-4_28).

    Raises
    ------
    InvalidProblemError
        An image that cannot be halved four times.
    """
    if values["image_size"] % 2**_LEVELS:
        raise InvalidProblemError(
            f"zoo model 'unet': image_size is {values['image_size']}; it must be a multiple of {2**_LEVELS}"
        )
    module = _UNet(values["width"], values["classes"])
    calibrate_classifier(module, module.head, values["image_size"])
    return module
