"""Result files as pydantic models; what concerns several of their fields is checked here.

Of certificates (:mod:`placekit.solve.certificates`) only the form is checked. Whether one is of the problem, and what
it proves, the verifier finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from placekit.io.files.schema_fields import (
    Columns,
    Count,
    Finite,
    FreeForm,
    Label,
    Name,
    NonNegative,
    Positive,
    Strict,
    Whole,
)
from placekit.model.device_groups import JOINT, teams_from_names
from placekit.solve.result import SOLVER_TOLERANCE, Status
from placekit.solve.stop import StopReason


class DeviceLoadModel(Strict):
    """Load of one device per sample, in a result file."""

    device: Name
    kind: Name
    load_s: NonNegative
    compute_s: NonNegative
    transfer_s: NonNegative
    memory_bytes: NonNegative
    memory_limit_bytes: Positive | None
    num_ops: Count
    team: Name | None = None
    activation_bytes: NonNegative | None = None
    queue_bytes: NonNegative | None = None


class ViolationModel(Strict):
    """One broken constraint, in a result file."""

    constraint: str
    message: str
    op: str | None
    device: str | None
    amount: Finite
    unit: str


class ScheduleModel(Columns):
    """When what runs where, in a result file: one entry per event in every list."""

    columns: ClassVar[tuple[str, ...]] = ("device", "op", "start_s", "finish_s", "is_transfer", "peer")

    device: list[Count]
    op: list[Count]
    start_s: list[Finite]
    finish_s: list[Finite]
    is_transfer: list[bool]
    peer: list[Annotated[Whole, Field(ge=-1)]]
    peak_memory_bytes: list[NonNegative] | None = None
    memory: list[Annotated[list[NonNegative], Field(min_length=3, max_length=3)]] | None = None


def _check_teams(placement: Mapping[str, str], device_names: Sequence[str]) -> None:
    """Refuse a device that is none, or two teams that share one."""
    known = set(device_names)
    for op, name in placement.items():
        if name not in known and not known.issuperset(name.split(JOINT)):
            raise ValueError(f"placement of op {op!r} names device {name!r}; devices are {', '.join(device_names)}")
    teams_from_names(placement.values(), device_names)


class AlternativeModel(Strict):
    """A way of running the model without a split, in a result file."""

    name: str
    form: Literal["device", "all cores", "runtime", "copies", "split"]
    objective: NonNegative | None
    why_not: str | None
    error: NonNegative | None = None


class VerdictModel(Strict):
    """Verdict on a split in a result file."""

    split: bool
    choice: Literal["device", "all cores", "runtime", "copies", "split", "not known"] | None
    use: str | None
    best_single: str | None
    best_single_objective: NonNegative | None
    objective: NonNegative | None
    gain: NonNegative | None
    within_error: bool
    error: NonNegative | None
    latency: NonNegative | None
    per_sample: NonNegative | None
    sentence: str
    alternatives: list[AlternativeModel]


class _Certificate(BaseModel):
    schema_: Literal["placekit/certificate/1"] = Field(alias="schema")


class NoDeviceModel(Strict, _Certificate):
    """The group of an op that no device takes."""

    kind: Literal["no-device"]
    op: Count


class WorkModel(Strict):
    """The work of some ops on some devices, and its weight."""

    devices: list[Count]
    ops: list[Count]
    weight: NonNegative


class SharedWorkModel(Strict, _Certificate):
    """Rows of work."""

    kind: Literal["shared-work"]
    rows: list[WorkModel]


class OpWeightsModel(Columns):
    """Columns: ops, and the weights of their groups, one per pass."""

    op: list[Count]
    weights: list[list[NonNegative]]


class NetModel(Columns):
    """The tensors of a net, and columns of prices."""

    columns: ClassVar[tuple[str, ...]] = ("profile", "op", "seconds")

    tensors: list[Count]
    profile: list[Count]
    op: list[Count]
    seconds: list[Finite]


class EdgeModel(Columns):
    """An edge of a path, its weight, and columns of prices."""

    columns: ClassVar[tuple[str, ...]] = ("profile", "op", "seconds")

    sender: Count
    receiver: Count
    weight: NonNegative
    profile: list[Count]
    op: list[Count]
    seconds: list[Finite]


class DualsModel(Strict):
    """Dual multipliers."""

    kind: Literal["prices"]
    profile_of_device: list[Count]
    work_weight: list[list[NonNegative]]
    transfer_weight: list[list[NonNegative]]
    memory_price: list[NonNegative]
    op_weight: OpWeightsModel
    nets: list[NetModel]
    edges: list[EdgeModel] = []


class PricesModel(DualsModel, _Certificate):
    """Dual multipliers as a certificate of their own."""


class OrderModel(Columns):
    """Columns: edges of the order graph, and their prices."""

    sender: list[Count]
    receiver: list[Count]
    seconds: list[Finite]


class OrderedPricesModel(Strict):
    """Dual multipliers of one direction."""

    prices: DualsModel
    order: OrderModel


class DirectionsModel(Strict, _Certificate):
    """Dual multipliers for either order of two devices."""

    kind: Literal["directions"]
    cases: Annotated[list[OrderedPricesModel | None], Field(min_length=2, max_length=2)]


class SeriesModel(Columns, _Certificate):
    """Cuts, and columns of cases of the segments between them."""

    columns: ClassVar[tuple[str, ...]] = ("segment", "first", "last", "seconds")

    kind: Literal["series"]
    cuts: Annotated[list[Count], Field(min_length=1)]
    segment: list[Count]
    first: list[Count | None]
    last: list[Count | None]
    seconds: list[NonNegative]


CertificateModel = Annotated[
    NoDeviceModel | SharedWorkModel | PricesModel | DirectionsModel | SeriesModel, Field(discriminator="kind")
]


class EvidenceModel(Strict):
    """The answer and the evidence for it, which results of all kinds have."""

    model: str
    method: str
    objective: NonNegative | None
    lower_bound: Finite | None
    bound_name: str | None
    gap: Finite | None
    status: str
    stop_reason: str
    runtime_s: NonNegative
    tolerance: NonNegative = SOLVER_TOLERANCE  # what older files mean
    compile_s: NonNegative = 0.0
    load_s: NonNegative = 0.0
    evaluations: Count
    seed: Label
    violations: list[ViolationModel]
    trace: list[Annotated[list[Finite | None], Field(min_length=3, max_length=3)]]
    info: FreeForm = {}

    @model_validator(mode="after")
    def _words_are_known(self) -> Self:
        for name, value, allowed in (("status", self.status, Status), ("stop_reason", self.stop_reason, StopReason)):
            if value not in set(allowed):
                raise ValueError(f"{name} is {value!r}; it should be one of {', '.join(allowed)}")
        for at, line in enumerate(self.trace):
            if line[0] is None:
                raise ValueError(f"trace[{at}] has no time")
        return self


class ResultModel(EvidenceModel):
    """A result file."""

    schema_: Literal["placekit/result/1"] = Field(alias="schema")
    objective_name: str
    device_loads: dict[str, NonNegative]
    devices: list[DeviceLoadModel]
    placement: dict[str, Name] | None
    steps: dict[str, Label] | None = None
    placement_hash: str | None = None
    schedule: ScheduleModel | None = None
    problem_hash: str | None = None
    problem_terms: dict[str, str] | None = None
    certificate: CertificateModel | None = None
    verdict: VerdictModel | None = None

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names = [load.device for load in self.devices]
        if sorted(self.device_loads) != sorted(names):
            raise ValueError(f"device_loads names {sorted(self.device_loads)}, devices {sorted(names)}")
        _check_teams(self.placement or {}, names)
        if self.steps is not None and self.steps.keys() != (self.placement or {}).keys():
            raise ValueError("steps must name the ops of the placement")
        if self.schedule is not None:
            limits = {"device": len(names), "op": len(self.placement or ()), "peer": len(names)}
            if any(not row[0].is_integer() or row[0] >= len(names) for row in self.schedule.memory or ()):
                raise ValueError(f"schedule.memory names a device that is none of the {len(names)}")
            for name, limit in limits.items():
                largest = max(getattr(self.schedule, name), default=-1)
                if largest >= limit:
                    raise ValueError(f"schedule.{name} has index {largest}; there are {limit}")
        return self
