"""JSON files of training plans: the plan, its scores and its bound, with times in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from placekit.io.atomic import write_json
from placekit.io.files.result_schema import EvidenceModel
from placekit.io.files.schema_fields import NonNegative, Positive, Strict, Text, Whole
from placekit.io.reading import blaming, read_json, validated
from placekit.training.result import PlanResult

_Count = Annotated[Whole, Field(ge=0, le=1 << 40)]
_Degree = Annotated[Whole, Field(ge=1, le=1 << 30)]


class _LoadModel(Strict):
    compute_s: NonNegative
    transfer_s: NonNegative
    sync_s: NonNegative
    load_s: NonNegative
    forward_s: NonNegative
    memory_bytes: NonNegative
    held_bytes: NonNegative
    in_flight: _Degree
    num_layers: _Degree
    data_degree: _Degree
    tensor_degree: _Degree


class _StageModel(Strict):
    data_degree: _Degree
    tensor_degree: _Degree
    layers: Annotated[list[_Count], Field(min_length=1)]
    choices: Annotated[list[_Count], Field(min_length=1)]
    choice_names: list[Text]
    load: _LoadModel

    @model_validator(mode="after")
    def _same_lengths(self) -> _StageModel:
        if not len(self.layers) == len(self.choices) == len(self.choice_names):
            raise ValueError(
                f"{len(self.layers)} layers, {len(self.choices)} choices and {len(self.choice_names)} choice_names; "
                "they must be as many"
            )
        return self


class TrainingPlanModel(EvidenceModel):
    """File of a training plan, as `placekit train-plan` writes it."""

    schema_: Annotated[Literal["placekit/training-plan/1"], Field(alias="schema")]
    objective_name: Literal["training-plan"]
    num_devices: _Degree
    memory_bytes: Positive
    bandwidth_bytes_per_s: Positive
    num_microbatches: _Degree
    layers: Annotated[list[Text], Field(min_length=1)]
    stages: list[_StageModel] | None

    @model_validator(mode="after")
    def _layers_exist(self) -> TrainingPlanModel:
        for at, stage in enumerate(self.stages or ()):
            for layer in stage.layers:
                if layer >= len(self.layers):
                    raise ValueError(f"stage {at} has layer {layer}; there are {len(self.layers)} layers")
        return self


def write_plan(result: PlanResult, path: str | Path) -> None:
    """Write `result` to the JSON file `path`; `read_plan` gives an equal one. The write is atomic.

    Raises `PlacekitError`: the file cannot be written.
    """
    write_json(path, result.to_dict())


def read_plan(path: str | Path) -> PlanResult:
    """Read the training plan in the JSON file `path`.

    Raises `InvalidFileError`: the file is broken or is no training plan; the message names the file, the place, the
    value and the bound.
    """
    model = validated(TrainingPlanModel, read_json(path), path)
    with blaming(path):
        return PlanResult.from_dict(model.model_dump(by_alias=True))
