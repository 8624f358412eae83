"""Seconds that the executor takes for a sample of which every stage computes next to nothing.

That is what a stage costs beside its ops, on this machine and with its threads: taking a sample from a queue, starting
the framework, waking the thread of the next stage, delivering a result. A pipeline of one stage pays no waking.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.cost_models.openvino.inputs import idle_model
from placekit.io.needs import require_torch
from placekit.model.platform import Device
from placekit.pytorch.program import TorchTensor
from placekit.runtime.pipelines.pipeline import Pipeline
from placekit.runtime.stages.openvino_stages import compile_openvino_plan
from placekit.runtime.stages.stage_plan import PlacedStage, StagePlan, cut_tensors, name_of_stage
from placekit.runtime.stages.torch_stages import ReadyTorchPlan, TorchModel

if TYPE_CHECKING:
    import openvino

    from placekit.runtime.stages.stage_plan import ReadyPlan

_WARM_UP, _SAMPLES, _BURSTS = 20, 50, 7


@dataclass(frozen=True)
class _IdlePart:
    """A part of a PyTorch program that computes next to nothing."""

    def module(self, device: str) -> Any:  # noqa: ARG002  # a number goes where it comes from
        """Return what torch runs."""

        class Idle(require_torch("measuring").nn.Module):  # type: ignore[misc]  # torch is imported late
            def forward(self, x: Any) -> list[Any]:
                return [x.relu()]

        return Idle()


def idle_s(devices: Sequence[Device], framework: str, core: openvino.Core | None = None) -> float:
    """Return the seconds per sample of a stream through one idle stage per device, the median of several bursts.

    `framework` is the name of a :class:`~placekit.cost_models.base.Backend`; `core` is for OpenVINO, the shared one if
    None.

    Raises
    ------
    PlacekitError
        A device that is not here, or that does not run the stage.
    """
    with Pipeline(_idle_plan(devices, framework, core), share_inputs=True) as pipe:
        sample = [np.ones(1, dtype=np.float32)]
        pipe.for_each(repeat(sample, _WARM_UP), _drop)
        seconds = []
        for _ in range(_BURSTS):
            start = time.perf_counter()
            pipe.for_each(repeat(sample, _SAMPLES), _drop)
            seconds.append((time.perf_counter() - start) / _SAMPLES)
    return float(np.median(seconds))


def _drop(_outputs: object) -> None:
    """Do nothing with the outputs of a sample."""


def _idle_plan(devices: Sequence[Device], framework: str, core: openvino.Core | None) -> ReadyPlan:
    """Return one idle stage per device, ready to run one after another."""
    keys = [(f"tensor{at}", 0) for at in range(len(devices) + 1)]
    is_torch = framework == "torch"
    stages = tuple(
        PlacedStage(
            name_of_stage(at, [device]),
            (device,),
            _IdlePart() if is_torch else idle_model()[0],
            (keys[at],),
            (keys[at + 1],),
            (f"idle{at}",),
        )
        for at, device in enumerate(devices)
    )
    inputs = {keys[0][0]: TorchTensor("float32", 4, (1,))} if is_torch else {}
    plan = StagePlan(
        name="idle",
        model=TorchModel(inputs) if is_torch else idle_model()[0],
        stages=stages,
        input_keys=(keys[0],),
        output_keys=(keys[-1],),
        input_names=(keys[0][0],),
        output_names=(keys[-1][0],),
        cuts=cut_tensors(stages, dict.fromkeys(keys, 4)),
    )
    return ReadyTorchPlan(plan) if is_torch else compile_openvino_plan(plan, core)
