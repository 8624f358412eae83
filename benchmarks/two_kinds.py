"""Costs of the two devices that learned placers are published on: a CPU and an accelerator.

The accelerator is :class:`~placekit.cost_models.accelerator.Accelerator`, fitted per model to the ratio of CPU-only to
GPU-only time of Duan et al. 2024 (HSDAG).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from placekit.cost_models.accelerator import PUBLISHED_RATIOS, Accelerator
from placekit.cost_models.analytic import Analytic
from placekit.model.errors import UnknownNameError
from placekit.model.platform import Device, Platform

if TYPE_CHECKING:
    from placekit.io.model import ModelSource
    from placekit.model.costs import CostTable

__all__ = ["two_kind_costs"]


def two_kind_costs(source: ModelSource, model: str) -> tuple[Platform, CostTable]:
    """Return a CPU of eight cores and an accelerator that is as much faster as published, and the costs on both.

    Parameters
    ----------
    source
        The model.
    model
        The model of the zoo whose published ratio it is: ``"resnet50"``, ``"inception_v3"`` or ``"bert_base"``.

    Raises
    ------
    UnknownNameError
        A model without a published ratio.
    InvalidProblemError
        A model so small that its launches alone take longer than the ratio leaves.
    """
    if model not in PUBLISHED_RATIOS:
        raise UnknownNameError(f"no published ratio for model {model!r}; models are {', '.join(PUBLISHED_RATIOS)}")
    cpu = Platform((Device("cpu", "cpu", is_host=True, openvino="CPU"),))
    costs = Analytic({"cpu": "cpu-8core-f32"}).cost_table(source, cpu)
    fitted = Accelerator().fit(source.graph, costs, PUBLISHED_RATIOS[model])
    return fitted.platform(), fitted.beside(source.graph, costs)
