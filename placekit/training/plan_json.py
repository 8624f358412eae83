"""Training plans as JSON files: the plan, its judgement and the evidence, times in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from placekit.io.atomic import write_json
from placekit.io.reading import MAX_NAME_LENGTH, blaming, read_json, validated
from placekit.io.schema_fields import Whole
from placekit.model.errors import InvalidFileError
from placekit.solve.result import SOLVER_TOLERANCE, Status
from placekit.solve.stop import StopReason
from placekit.training.result import PlanResult

__all__ = ["TrainingPlanModel", "read_plan", "write_plan"]

_Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[Whole, Field(ge=0, le=1 << 40)]
_Degree = Annotated[Whole, Field(ge=1, le=1 << 30)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


class _LoadModel(_Strict):
    compute_s: _NonNegative
    transfer_s: _NonNegative
    sync_s: _NonNegative
    load_s: _NonNegative
    forward_s: _NonNegative
    memory_bytes: _NonNegative
    held_bytes: _NonNegative
    in_flight: _Degree
    num_layers: _Degree
    data_degree: _Degree
    tensor_degree: _Degree


class _StageModel(_Strict):
    data_degree: _Degree
    tensor_degree: _Degree
    layers: Annotated[list[_Count], Field(min_length=1)]
    choices: Annotated[list[_Count], Field(min_length=1)]
    choice_names: list[_Name]
    load: _LoadModel

    @model_validator(mode="after")
    def _same_lengths(self) -> _StageModel:
        if not len(self.layers) == len(self.choices) == len(self.choice_names):
            raise ValueError(
                f"{len(self.layers)} layers, {len(self.choices)} choices and {len(self.choice_names)} choice_names; "
                "they must be as many"
            )
        return self


class _ViolationModel(_Strict):
    constraint: _Name
    message: str
    op: _Name | None
    device: _Name | None
    amount: _Finite
    unit: _Name


class TrainingPlanModel(_Strict):
    """A training plan file: what `placekit train-plan` writes."""

    schema_: Annotated[Literal["placekit/training-plan/1"], Field(alias="schema")]
    model: _Name
    method: _Name
    objective_name: Literal["training-plan"]
    objective: _NonNegative | None
    lower_bound: _Finite | None
    bound_name: _Name | None
    gap: _NonNegative | None
    status: _Name
    stop_reason: _Name
    runtime_s: _NonNegative
    tolerance: _NonNegative = SOLVER_TOLERANCE  # what older files mean
    compile_s: _NonNegative = 0.0
    load_s: _NonNegative = 0.0
    evaluations: _Count
    seed: Whole
    num_devices: _Degree
    memory_bytes: _Positive
    bandwidth_bytes_per_s: _Positive
    num_microbatches: _Degree
    layers: Annotated[list[_Name], Field(min_length=1)]
    stages: list[_StageModel] | None
    violations: list[_ViolationModel]
    trace: list[tuple[_NonNegative, _Finite | None, _Finite | None]]
    info: dict[str, JsonValue]

    @model_validator(mode="after")
    def _layers_exist(self) -> TrainingPlanModel:
        for at, stage in enumerate(self.stages or ()):
            for layer in stage.layers:
                if layer >= len(self.layers):
                    raise ValueError(f"stage {at} has layer {layer}; there are {len(self.layers)} layers")
        return self


def write_plan(result: PlanResult, path: str | Path) -> None:
    """Write `result` to the JSON file `path`; `read_plan` gives an equal one. The write is atomic.

    Raises
    ------
    PlacekitError
        The file cannot be written.
    """
    write_json(path, result.to_dict())


def read_plan(path: str | Path) -> PlanResult:
    """Read the training plan in the JSON file `path`.

    Raises
    ------
    InvalidFileError
        The file is broken or is no training plan; the message names the file, the place, the value and the bound.
    """
    data = read_json(path)
    if isinstance(data, dict) and isinstance(data.get("trace"), list):  # JSON has no tuples
        data = data | {"trace": [tuple(line) if isinstance(line, list) else line for line in data["trace"]]}
    model = validated(TrainingPlanModel, data, path)
    for field, value, allowed in (("status", model.status, Status), ("stop_reason", model.stop_reason, StopReason)):
        if value not in set(allowed):
            raise InvalidFileError(f"{path}: {field} is {value!r}; it should be one of {', '.join(allowed)}")
    with blaming(path):
        return PlanResult.from_dict(model.model_dump(by_alias=True))
