"""The pair of devices that learned placers are published on: a CPU, and an accelerator fitted to the published times.

The models are the three of Duan et al. 2024 (HSDAG), built by the zoo; the accelerator beside the CPU is
:class:`~placekit.cost_models.accelerator.Accelerator`, fitted per model to their ratio of CPU-only over GPU-only time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placekit.cost_models.accelerator import PUBLISHED_RATIOS, Accelerator
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.base import CostModel
from placekit.io.model import ModelSource, read_model
from placekit.model.costs import CostTable
from placekit.model.errors import UnknownNameError
from placekit.model.platform import Device, Platform
from placekit.model.problem import Problem
from placekit.objectives import Objective
from placekit.zoo import build

__all__ = ["MODEL_PARAMETERS", "two_kind_costs", "two_kind_problem"]

MODEL_PARAMETERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"resnet50": {}, "inception_v3": {}, "bert_base": {"sequence": 8}}
)
"""Zoo parameters as published: images of the usual size, and one sentence, "Hello, my dog is cute", of 8 tokens."""


def two_kind_problem(
    model: str,
    objective: Objective,
    *,
    cost_model: CostModel | None = None,
    accelerator: Accelerator | None = None,
    directory: Path | None = None,
    **params: Any,
) -> Problem:
    """Return `model` on a CPU and an accelerator that is as much faster than the CPU as published.

    Parameters
    ----------
    model
        ``"resnet50"``, ``"inception_v3"`` or ``"bert_base"``.
    objective
        What to minimise.
    cost_model
        Where the CPU's times come from; eight cores of the analytic table if None. ``Profiled()`` measures this CPU.
    accelerator
        What is fitted; the default `Accelerator` if None.
    directory
        Folder where the model's file is looked for, and kept if it has to be built; None to build and forget it.
    **params
        Zoo parameters instead of `MODEL_PARAMETERS`. Files in `directory` are taken for a model with the same ones.

    Raises
    ------
    UnknownNameError
        A model without a published ratio.
    InvalidProblemError
        A model so small that its launches alone take longer than the ratio leaves.
    """
    ratio = _published_ratio(model)
    source = _source(model, directory, params or MODEL_PARAMETERS[model])
    platform, costs = _two_kinds(source, ratio, cost_model, accelerator)
    return Problem(source.graph, platform, costs, objective)


def two_kind_costs(source: ModelSource, model: str) -> tuple[Platform, CostTable]:
    """Return the platform and the costs of `two_kind_problem` for a model that is already there.

    Parameters
    ----------
    source
        The model.
    model
        Whose published ratio it is.

    Raises
    ------
    UnknownNameError
        A model without a published ratio.
    InvalidProblemError
        A model so small that its launches alone take longer than the ratio leaves.
    """
    return _two_kinds(source, _published_ratio(model), None, None)


def _two_kinds(
    source: ModelSource, ratio: float, cost_model: CostModel | None, accelerator: Accelerator | None
) -> tuple[Platform, CostTable]:
    cpu = Platform((Device("cpu", "cpu", is_host=True, openvino="CPU"),))
    cost_model = cost_model or Analytic({"cpu": "cpu-8core-f32"})
    costs = cost_model.cost_table(source, cpu)
    fitted = (accelerator or Accelerator()).fit(source.graph, costs, ratio)
    return fitted.platform(), fitted.beside(source.graph, costs)


def _published_ratio(model: str) -> float:
    if model not in PUBLISHED_RATIOS:
        raise UnknownNameError(f"no published ratio for model {model!r}; models are {', '.join(PUBLISHED_RATIOS)}")
    return PUBLISHED_RATIOS[model]


def _source(model: str, directory: Path | None, params: Mapping[str, Any]) -> ModelSource:
    if directory is None:
        with tempfile.TemporaryDirectory() as folder:
            return build(model, Path(folder) / f"{model}.xml", **params).source
    path = directory / f"{model}.xml"
    return read_model(path) if path.is_file() else build(model, path, **params).source
