"""The file formats as pydantic models: what a file must look like before anything is built from it.

Types are strict (``"1"`` is no number, ``1`` is no string), numbers are finite and in range, and fields that a format
does not have are refused, but for the public workload format, which others extend. What concerns several fields at
once (lengths, cycles, names) is checked by the readers and by the classes that they build.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from placekit.errors import UnknownNameError
from placekit.io.certificate_schema import CertificateModel
from placekit.io.reading import MAX_NAME_LENGTH
from placekit.teams import JOINT, teams_from_names

__all__ = [
    "SCHEMAS",
    "CostsModel",
    "PlacementModel",
    "PlatformFileModel",
    "PlatformModel",
    "ProblemModel",
    "ResultModel",
    "WorkloadModel",
    "json_schema",
]

MAX_DEVICES = 4096
"""More devices of one kind than this in a file are taken for a mistake, not for a machine."""

_INT64 = 2**63
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
Text = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=_INT64)]
Label = Annotated[int, Field(ge=-_INT64, lt=_INT64)]


def _finite(value: Any) -> Any:
    """Return free-form values, unless a number among them is none: ``1e999`` reads as infinity, which JSON lacks."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, float) and not math.isfinite(each):
            raise ValueError(f"{each} is no value; numbers must be finite")
        stack += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return value


FreeForm = Annotated[dict[str, JsonValue], AfterValidator(_finite)]
"""Values that a file carries along: parameters, provenance, what a method wants to say beside."""

Flag = bool | Annotated[int, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())


class _Open(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class WorkloadNode(_Open):
    """One op of a workload file; times in milliseconds."""

    id: Label
    name: Text | None = None
    supportedOnFpga: Flag  # noqa: N815  # the format's own words
    cpuLatency: NonNegative  # noqa: N815
    fpgaLatency: NonNegative  # noqa: N815
    isBackwardNode: Flag  # noqa: N815
    colorClass: Label | None = None  # noqa: N815
    size: NonNegative


class WorkloadEdge(_Open):
    """One edge of a workload file; cost in milliseconds, size in bytes."""

    sourceId: Label  # noqa: N815
    destId: Label  # noqa: N815
    cost: NonNegative
    size: NonNegative | None = None


class WorkloadModel(_Open):
    """The workload format of Tarnawski et al. 2020."""

    maxSizePerFPGA: NonNegative  # noqa: N815
    maxFPGAs: Annotated[int, Field(ge=0, le=MAX_DEVICES)]  # noqa: N815
    maxCPUs: Annotated[int, Field(ge=0, le=MAX_DEVICES)]  # noqa: N815
    nodes: Annotated[list[WorkloadNode], Field(min_length=1)]
    edges: list[WorkloadEdge]


class SplitPart(_Open):
    """The ops of one device in an expert split."""

    nodes: list[Label]


class SplitModel(_Open):
    """An expert split that goes with a workload file: node ids per device."""

    fpgas: list[SplitPart]
    cpus: list[SplitPart]


class DeviceModel(_Strict):
    """One device of a problem file."""

    name: Name
    kind: Name
    memory_bytes: Positive | None = None
    is_host: bool = False
    openvino: str | None = None
    cores: list[Count] = []
    properties: dict[str, str] = {}
    node: Name | None = None


class LinkModel(_Strict):
    """A link to host memory; no bandwidth means that the time does not depend on the size."""

    latency_s: NonNegative
    bandwidth_bytes_per_s: Positive | None = None


class DirectLinkModel(LinkModel):
    """A direct link between devices of two kinds, or of any."""

    kinds: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    between_nodes: bool = False


class PlatformModel(_Strict):
    """Devices, the link of every kind that has one, and direct links between devices."""

    devices: Annotated[list[DeviceModel], Field(min_length=1, max_length=2 * MAX_DEVICES)]
    links: dict[str, LinkModel] = {}
    direct_links: list[DirectLinkModel] = []


class OpsModel(_Strict):
    """Columns of one value per op; a column that is left out is all zero (or false)."""

    name: list[Text]
    type: list[Text]
    flops: list[NonNegative] | None = None
    weight_bytes: list[NonNegative] | None = None
    is_backward: list[bool] | None = None


class TensorsModel(_Strict):
    """Columns of one value per tensor; producer and consumers are positions in the ops' columns."""

    producer: list[Count]
    consumers: list[list[Count]]
    bytes: list[NonNegative]
    shape: list[list[Annotated[int, Field(ge=-1, lt=_INT64)]]] | None = None


class MemoryBlocksModel(_Strict):
    """Memory that ops share: bytes of each block, its ops, and which blocks are weights."""

    bytes: list[NonNegative]
    ops: list[Annotated[list[Count], Field(min_length=1)]]
    is_weight: list[bool]
    queue_slots: Count = 0


class CostArraysModel(_Strict):
    """Columns of costs; one per kind where they depend on it. ``null`` in `op_time_s`: the kind cannot run the op."""

    kinds: Annotated[list[Name], Field(min_length=1)]
    op_time_s: dict[str, list[NonNegative | None]]
    transfer_time_s: dict[str, list[NonNegative]]
    op_memory_bytes: list[NonNegative]
    op_group: list[Label] | None = None
    op_time_spread: dict[str, list[Finite | None]] | None = None
    provenance: FreeForm = {}
    blocks: MemoryBlocksModel | None = None
    direct_time_s: dict[str, list[NonNegative]] = {}


class ObjectiveModel(_Strict):
    """An execution model and its variant."""

    name: str
    params: FreeForm = {}


class ArraysModel(_Strict):
    """The sibling file that holds the long columns."""

    file: Name
    blake2b: str


class ProblemModel(_Strict):
    """A problem file."""

    schema_: Literal["placekit/problem/1"] = Field(alias="schema")
    name: str
    ops: OpsModel
    tensors: TensorsModel
    platform: PlatformModel
    costs: CostArraysModel
    objective: ObjectiveModel
    contiguity: Literal["none", "convex", "acyclic"]
    colocation: list[Label] | None = None
    pinned: dict[str, str] = {}
    arrays: ArraysModel | None = None


class ModelRef(_Strict):
    """Which model a file belongs to: its name, and the digest of its graph."""

    name: str
    hash: str | None = None


class TensorNamesModel(_Strict):
    """Columns that name tensors: the producing op, and which of its tensors."""

    producer: list[Text]
    port: list[Count]


class CostsModel(_Strict):
    """A costs file."""

    schema_: Literal["placekit/costs/1"] = Field(alias="schema")
    model: ModelRef
    ops: list[Text]
    tensors: TensorNamesModel
    costs: CostArraysModel
    arrays: ArraysModel | None = None


class PlacementModel(_Strict):
    """A placement file."""

    schema_: Literal["placekit/placement/1"] = Field(alias="schema")
    model: ModelRef
    devices: Annotated[list[Name], Field(min_length=1)]
    default_device: Name | None = None
    ops: dict[str, Name]
    steps: dict[str, Label] | None = None
    hash: str | None = None


class DeviceLoadModel(_Strict):
    """What one device does per sample, in a result file."""

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


class ViolationModel(_Strict):
    """One broken constraint, in a result file."""

    constraint: str
    message: str
    op: str | None
    device: str | None
    amount: Finite
    unit: str


class ScheduleModel(_Strict):
    """When what runs where, in a result file: one entry per event in every list."""

    device: list[Count]
    op: list[Count]
    start_s: list[Finite]
    finish_s: list[Finite]
    is_transfer: list[bool]
    peer: list[Annotated[int, Field(ge=-1)]]
    peak_memory_bytes: list[NonNegative] | None = None
    memory: list[Annotated[list[NonNegative], Field(min_length=3, max_length=3)]] | None = None

    @model_validator(mode="after")
    def _lengths_agree(self) -> Self:
        names = ("device", "op", "start_s", "finish_s", "is_transfer", "peer")
        lengths = {name: len(getattr(self, name)) for name in names}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the lists of a schedule must have one length; got {lengths}")
        return self


def _check_teams(placement: Mapping[str, str], device_names: Sequence[str]) -> None:
    """Refuse a device that is none, or two teams that share one.

    Raises
    ------
    ValueError
        With the op and the name.
    """
    known = set(device_names)
    for op, name in placement.items():
        if name not in known and not known.issuperset(name.split(JOINT)):
            raise ValueError(f"placement of op {op!r} names device {name!r}; devices are {', '.join(device_names)}")
    teams_from_names(placement.values(), device_names)


class ResultModel(_Strict):
    """A result file."""

    schema_: Literal["placekit/result/1"] = Field(alias="schema")
    model: str
    method: str
    objective_name: str
    objective: NonNegative | None
    lower_bound: Finite | None
    bound_name: str | None
    gap: Finite | None
    status: str
    stop_reason: str
    runtime_s: NonNegative
    tolerance: NonNegative = 1e-6  # what older files mean
    compile_s: NonNegative = 0.0
    evaluations: Count
    seed: Label
    device_loads: dict[str, NonNegative]
    devices: list[DeviceLoadModel]
    placement: dict[str, Name] | None
    steps: dict[str, Label] | None = None
    placement_hash: str | None = None
    violations: list[ViolationModel]
    trace: list[Annotated[list[Finite | None], Field(min_length=3, max_length=3)]]
    info: FreeForm = {}
    schedule: ScheduleModel | None = None
    problem_hash: str | None = None
    certificate: CertificateModel | None = None

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
        for at, line in enumerate(self.trace):
            if line[0] is None:
                raise ValueError(f"trace[{at}] has no time")
        return self


class SpecModel(_Strict):
    """An analytic device description of a platform file; what is left out comes from `base`."""

    base: Name | None = None
    dense_flops_per_s: Positive | None = None
    depthwise_flops_per_s: Positive | None = None
    other_flops_per_s: Positive | None = None
    memory_bandwidth_bytes_per_s: Positive | None = None
    op_overhead_s: NonNegative | None = None
    unsupported_op_types: list[Name] | None = None


class TomlDevice(_Strict):
    """One ``[[device]]`` of a platform file."""

    name: Name
    kind: Name
    host: bool = False
    count: Annotated[int, Field(ge=1, le=MAX_DEVICES)] = 1
    memory: str | Positive | None = None
    openvino: str | None = None
    cores: list[Count] = []
    properties: dict[str, str | bool | int | float] = {}
    spec: Name | None = None
    node: Name | None = None


class TomlLink(_Strict):
    """One ``[link.KIND]`` of a platform file."""

    latency_s: NonNegative = 0.0
    bandwidth_bytes_per_s: Annotated[float, Field(gt=0)] | None = None


class TomlDirectLink(TomlLink):
    """One ``[[direct_link]]`` of a platform file."""

    kinds: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    between_nodes: bool = False


class PlatformFileModel(_Strict):
    """A platform file (TOML)."""

    device: Annotated[list[TomlDevice], Field(min_length=1, max_length=MAX_DEVICES)]
    link: dict[str, TomlLink] = {}
    direct_link: list[TomlDirectLink] = []
    spec: dict[str, SpecModel] = {}


SCHEMAS: dict[str, type[BaseModel]] = {
    "workload": WorkloadModel,
    "problem": ProblemModel,
    "costs": CostsModel,
    "placement": PlacementModel,
    "result": ResultModel,
    "platform": PlatformFileModel,
}
"""The model of every kind of file; a platform file is TOML, the others are JSON."""


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of the files of one kind.

    Parameters
    ----------
    kind
        ``"workload"``, ``"problem"``, ``"costs"``, ``"placement"``, ``"result"`` or ``"platform"``.

    Raises
    ------
    UnknownNameError
        No files of that kind; the message lists the kinds.

    Examples
    --------
    >>> json_schema("placement")["required"]
    ['schema', 'model', 'devices', 'ops']
    """
    if kind == "training-plan":
        from placekit.training.plan_json import TrainingPlanModel

        return TrainingPlanModel.model_json_schema(by_alias=True)
    if kind not in SCHEMAS:
        raise UnknownNameError(f"no file format {kind!r}; formats are {', '.join(SCHEMAS)}")
    return SCHEMAS[kind].model_json_schema(by_alias=True)
