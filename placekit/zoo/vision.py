"""ResNet and MobileNet-v2, from transformers' configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from placekit.zoo.calibrate import calibrate_classifier

__all__ = ["mobilenet_v2", "resnet"]


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
