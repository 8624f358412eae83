"""Rows of suites and of measurements as pydantic models: the fields that the report relies on.

Rows have more than that, and later versions may add to it: fields that are not named here are let through. A row may
lack its placement: tables are made from it all the same, pictures are not.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from placekit.solve.result import Status
from placekit.solve.stop import StopReason

Text = Annotated[str, Field(max_length=1 << 20)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Index = Annotated[int, Field(ge=0, lt=2**31)]


class _Open(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class MachineModel(_Open):
    """The machine that a row was made on."""

    cpu: Text
    cores: Count | None
    system: Text


class RowModel(_Open):
    """A row of a suite: a case, and what its solve gave."""

    schema_: Literal["placekit/row/1"] = Field(alias="schema")
    case: Text
    problem_address: Text
    suite: Text
    problem_file: Text
    model: Text
    platform: Text | None
    objective: Text
    variant: dict[str, JsonValue]
    contiguity: Text
    num_ops: Count
    num_devices: Count
    single_device_s: Seconds | None
    label: Text
    method: Text
    params: dict[str, JsonValue]
    file_hashes: dict[str, Text]
    warm_start: Text | None
    seed: Count
    time_limit_s: Seconds
    gap: Seconds | None
    max_evaluations: Count | None
    command: Text
    date: Text
    commit: Text | None
    machine: MachineModel
    versions: dict[str, Text]
    num_workers: Count = 1
    error: Text | None
    status: Text
    stop_reason: Text | None = None
    objective_s: Seconds | None
    bound_s: Finite | None
    bound_name: Text | None = None
    runtime_s: Seconds | None = None
    compile_s: Seconds | None = None
    time_to_best_s: Seconds | None = None
    warm_start_s: Seconds | None = None
    memory_bytes: Annotated[int, Field(lt=2**63)] | None = None
    info: dict[str, bool | int | float | str] = {}
    evaluations: Count | None = None
    trace: list[Annotated[list[Finite | None], Field(min_length=3, max_length=3)]] | None = None
    device_of_op: list[Index] | None = None
    step_of_op: list[Annotated[int, Field(ge=-(2**63), lt=2**63)]] | None = None
    team_of_device: list[Index] | None = None
    answer: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        """Refuse a solve that ended without an end, and an objective that was reached at no time."""
        if self.error is None:
            names = ("runtime_s", "evaluations", "trace")
            missing = [name for name in names if getattr(self, name) is None]
            missing += ["warm_start_s"] if "warm_start_s" not in self.model_fields_set else []
            if missing:
                raise ValueError(f"a row without an error must have {', '.join(missing)}")
        if self.objective_s is not None and self.error is not None:
            raise ValueError("a row with an objective must have no error")
        if self.objective_s is not None and self.time_to_best_s is None:
            raise ValueError("a row with an objective must have time_to_best_s")
        if self.objective_s is not None and (self.status not in set(Status) or self.stop_reason not in set(StopReason)):
            raise ValueError(f"status {self.status!r} and stop_reason {self.stop_reason!r} are those of no answer")
        if any(line[0] is None or line[0] < 0 for line in self.trace or ()):
            raise ValueError("a line of the trace must have a time >= 0")
        return self


class VerdictModel(_Open):
    """A verdict, and how many times what it advises was measured as fast as the simplest way."""

    choice: Text | None
    sentence: Text
    gain: Finite | None
    error: Seconds
    measured_gain: Finite | None
    measured_iqr: Finite | None


class MeasuredModel(_Open):
    """A row of a measurement: what a placement took in reality."""

    schema_: Literal["placekit/measured/1"] = Field(alias="schema")
    case: Text
    model: Text
    platform: Text | None
    label: Text
    executor: Text
    error: Text | None
    measured_s: Seconds | None
    measured_iqr_s: Finite | None
    prediction_error: Finite | None
    is_noisy: bool | None = None
    speedup: Finite | None = None
    speedup_over: dict[str, Finite | None] = {}
    references: dict[str, Annotated[list[Seconds], Field(min_length=2, max_length=2)]] = {}
    search_s: list[Seconds] = []
    found_s: list[Seconds] = []
    measurements: list[Count] = []
    num_tensors: Count | None = None
    num_mismatches: Count | None = None
    max_error: Seconds | None = None
    verdict: VerdictModel | None = None
