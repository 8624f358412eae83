"""Random weights that a network keeps its signal with.

Freshly drawn weights let the signal of a deep network of convolutions vanish, and what is left of it depends on the
input less and less. Both would make a comparison of outputs pass whatever the network computes.
"""

from __future__ import annotations

import torch
from torch import nn

__all__ = ["calibrate_classifier"]

_SAMPLES = 4
_LEAST_DEVIATION = 1e-6


def calibrate_classifier(module: nn.Module, classifier: nn.Linear | nn.Conv2d, image_size: int) -> None:
    """Draw and settle the weights of an image classifier. In place.

    1. Convolutions and linear layers: normal with variance 2 / fan-in and 1 / fan-in (He et al. 2015,
       doi:10.1109/ICCV.2015.123).
    2. Batch normalisation: the statistics of a few random images, so that every channel has mean 0 and variance 1.
    3. Classifier: shifted and scaled so that the logits of these images have mean 0 and variance 1; what remains of
       the outputs is what depends on the input.

    The statistics are taken in f64 and rounded, so that they do not depend on the number of threads.

    Parameters
    ----------
    module
        Maps images ``[samples, 3, image_size, image_size]`` to logits ``[samples, classes]``, or of every pixel
        ``[samples, classes, height, width]``.
    classifier
        Its last layer.
    image_size
        Height and width in pixels.
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
