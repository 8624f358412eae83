"""ResNet and MobileNet-v2, from transformers' configurations; U-Net, written out; and weights that keep the signal.

Freshly drawn weights let the signal of a deep network of convolutions vanish, and what is left of it depends on the
input less and less. Both would make a comparison of outputs pass whatever the network computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from placekit.model.errors import InvalidProblemError

_SAMPLES = 4
_LEAST_DEVIATION = 1e-6
_LEVELS = 4


class _Logits(nn.Module):
    """A transformers classifier that takes images and returns logits, nothing else."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(pixel_values=pixel_values, return_dict=False)[0]
        return logits


def resnet(values: Mapping[str, Any]) -> nn.Module:
    """Return a ResNet of bottleneck blocks (He et al. 2015, doi:10.1109/CVPR.2016.90)."""
    from transformers import ResNetConfig, ResNetForImageClassification

    width = values["width"]
    settings: dict[str, Any] = {
        "embedding_size": width,
        "hidden_sizes": [4 * width, 8 * width, 16 * width, 32 * width],
        "depths": list(values["depths"]),
        "layer_type": "bottleneck",
        "num_labels": values["classes"],
    }
    model: Any = ResNetForImageClassification(ResNetConfig(**settings))
    module = _Logits(model)
    calibrate_classifier(module, model.classifier[-1], values["image_size"])
    return module


def mobilenet_v2(values: Mapping[str, Any]) -> nn.Module:
    """Return a MobileNet-v2 (Sandler et al. 2018, doi:10.1109/CVPR.2018.00474)."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    settings: dict[str, Any] = {
        "image_size": values["image_size"],
        "depth_multiplier": values["width_multiplier"],
        "num_labels": values["classes"],
    }
    model: Any = MobileNetV2ForImageClassification(MobileNetV2Config(**settings))
    module = _Logits(model)
    calibrate_classifier(module, model.classifier, values["image_size"])
    return module


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
    """Return a U-Net with padded convolutions (Ronneberger et al. 2015, doi:10.1007/978-3-319-24574-4_28)."""
    if values["image_size"] % 2**_LEVELS:
        raise InvalidProblemError(
            f"zoo model 'unet': image_size is {values['image_size']}; it must be a multiple of {2**_LEVELS}"
        )
    module = _UNet(values["width"], values["classes"])
    calibrate_classifier(module, module.head, values["image_size"])
    return module


def calibrate_classifier(module: nn.Module, classifier: nn.Linear | nn.Conv2d, image_size: int) -> None:
    """Draw and settle the weights of an image classifier, whose last layer is `classifier`. In place.

    1. Convolutions and linear layers: normal with variance 2 / fan-in and 1 / fan-in (He et al. 2015,
       doi:10.1109/ICCV.2015.123).
    2. Batch normalisation: the statistics of a few random images, so that every channel has mean 0 and variance 1.
    3. Classifier: shifted and scaled so that the logits of these images, one per class or per class and pixel, have
       mean 0 and variance 1; what remains of the outputs is what depends on the input.

    The statistics are taken in f64 and rounded, so that they do not depend on the number of threads.
    """
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.ConvTranspose2d):  # every pixel of its output has one pixel of its input
                layer.weight.normal_(0, layer.in_channels**-0.5)
            elif isinstance(layer, nn.Conv2d):
                fan_in = layer.weight[0].numel()
                layer.weight.normal_(0, (2 / fan_in) ** 0.5)
            elif isinstance(layer, nn.Linear):
                layer.weight.normal_(0, layer.in_features**-0.5)
            if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)) and layer.bias is not None:
                layer.bias.zero_()
        images = torch.randn(_SAMPLES, 3, image_size, image_size).double()
        momenta = [norm.momentum for norm in norms]
        module.double().eval()
        for norm in norms:
            norm.train()
            norm.momentum = 1.0  # running statistics = those of this batch
        module(images)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.eval()
            norm.momentum = momentum
        # a second pass: while it learns, a norm divides by another estimate of the variance than later
        logits = module(images)
        # one factor for all classes: the deviation of one class over few images is itself too uncertain
        deviation = logits.std(dim=0).square().mean().sqrt().clamp_min(_LEAST_DEVIATION)
        classifier.weight.div_(deviation)
        assert classifier.bias is not None
        of_class = logits.transpose(0, 1).flatten(1).mean(dim=1)
        classifier.bias.sub_(of_class / deviation)  # it was 0
        module.float()
