"""The file formats as pydantic models: what a file must look like before anything is built from it.

Fields that a format does not have are refused, but for the public workload format, which others extend. What concerns
several fields at once (lengths, cycles, names) is checked by the readers and by the classes that they build.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from placekit.io.files.result_schema import ResultModel
from placekit.io.files.schema_fields import (
    INT64,
    MAX_DEVICES,
    Columns,
    Count,
    Finite,
    Flag,
    FreeForm,
    Label,
    Name,
    NonNegative,
    Open,
    Positive,
    Strict,
    Text,
    Whole,
)
from placekit.io.link_classes import get_link
from placekit.model.errors import UnknownNameError
from placekit.model.platform import DirectLink, Link


class DeviceModel(Strict):
    """One device of a problem file."""

    name: Name
    kind: Name
    memory_bytes: Positive | None = None
    is_host: bool = False
    openvino: str | None = None
    cores: list[Count] = []
    properties: dict[str, str] = {}
    node: Name | None = None
    members: list[Name] = []


class LinkModel(Strict):
    """A link to host memory; no bandwidth means that the time does not depend on the size."""

    latency_s: NonNegative
    bandwidth_bytes_per_s: Positive | None = None

    def to_link(self) -> Link:
        """Return the link."""
        return Link(self.latency_s, math.inf if self.bandwidth_bytes_per_s is None else self.bandwidth_bytes_per_s)


class DirectLinkModel(LinkModel):
    """A direct link between devices of two kinds, or of any."""

    kinds: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    between_nodes: bool = False

    def to_direct_link(self) -> DirectLink:
        """Return the link."""
        link, kinds = self.to_link(), None if self.kinds is None else tuple(self.kinds)
        return DirectLink(link.latency_s, link.bandwidth_bytes_per_s, kinds, self.between_nodes)


class PoolModel(Strict):
    """A memory that devices share."""

    name: Name
    memory_bytes: Positive
    devices: Annotated[list[Name], Field(min_length=1)]


class PlatformModel(Strict):
    """Devices, the link of every kind that has one, direct links between devices, and memories that devices share."""

    devices: Annotated[list[DeviceModel], Field(min_length=1, max_length=2 * MAX_DEVICES)]
    links: dict[str, LinkModel] = {}
    direct_links: list[DirectLinkModel] = []
    pools: list[PoolModel] = []


class OpsModel(Columns):
    """Columns of one value per op; a column that is left out is all zero (or false)."""

    name: list[Text]
    type: list[Text]
    flops: list[NonNegative] | None = None
    weight_bytes: list[NonNegative] | None = None
    is_backward: list[bool] | None = None


class TensorsModel(Columns):
    """Columns of one value per tensor; producer and consumers are positions in the ops' columns."""

    producer: list[Count]
    consumers: list[list[Count]]
    bytes: list[NonNegative]
    shape: list[list[Annotated[Whole, Field(ge=-1, lt=INT64)]]] | None = None


class MemoryBlocksModel(Columns):
    """Memory that ops share: bytes of each block, its ops, and which blocks are weights."""

    columns: ClassVar[tuple[str, ...]] = ("bytes", "ops", "is_weight")

    bytes: list[NonNegative]
    ops: list[Annotated[list[Count], Field(min_length=1)]]
    is_weight: list[bool]
    queue_slots: Count = 0


class CostArraysModel(Strict):
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


class ObjectiveModel(Strict):
    """An execution model and its variant."""

    name: str
    params: FreeForm = {}


class ArraysModel(Strict):
    """The sibling file that holds the long columns."""

    file: Name
    blake2b: str


class ServedModel(Strict):
    """Model and requests that are served; see :class:`placekit.model.served.Served`."""

    runtime: Name | None = None
    context: Count | None = None
    sequences: Count | None = None
    batch: Count | None = None
    chunk: Count | None = None
    cache_precision: Name | None = None
    headroom: float | None = None
    predicting_blocks: Count = 0
    further_blocks: Count = 0
    hosted_blocks: Count = 0
    hosts_dense: bool = False
    hosts_cache: bool = False
    tied: bool = False
    cards: list[Name] = []
    nodes: list[Name] = []


class ProblemModel(Strict):
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
    served: ServedModel | None = None
    arrays: ArraysModel | None = None


class ModelRef(Strict):
    """Reference to the model of a file: its name, and the digest of its graph."""

    name: str
    hash: str | None = None


class TensorNamesModel(Columns):
    """Columns that name tensors: the producing op, and which of its tensors."""

    producer: list[Text]
    port: list[Count]


class CostsModel(Strict):
    """A costs file."""

    schema_: Literal["placekit/costs/1"] = Field(alias="schema")
    model: ModelRef
    ops: list[Text]
    tensors: TensorNamesModel
    costs: CostArraysModel
    arrays: ArraysModel | None = None


class PlacedModelRef(ModelRef):
    """Reference to the model of a placement, and the shapes of its inputs where they are known."""

    inputs: dict[str, list[Annotated[int, Field(ge=-1, le=INT64)]]] = {}


class PlacementModel(Strict):
    """A placement file."""

    schema_: Literal["placekit/placement/1"] = Field(alias="schema")
    model: PlacedModelRef
    devices: Annotated[list[Name], Field(min_length=1)]
    default_device: Name | None = None
    ops: dict[str, Name]
    steps: dict[str, Label] | None = None
    hash: str | None = None


class SpecModel(Strict):
    """An analytic device description of a platform file; what is left out comes from `base`."""

    base: Name | None = None
    dense_flops_per_s: Positive | None = None
    depthwise_flops_per_s: Positive | None = None
    other_flops_per_s: Positive | None = None
    memory_bandwidth_bytes_per_s: Positive | None = None
    op_overhead_s: NonNegative | None = None
    int8_speed: Annotated[float, Field(ge=1)] | None = None
    f32_speed: Annotated[float, Field(gt=0, le=1)] | None = None
    unsupported_op_types: list[Name] | None = None


class TomlDevice(Strict):
    """One ``[[device]]`` of a platform file."""

    name: Name
    kind: Name
    host: bool = False
    count: Annotated[Whole, Field(ge=1, le=MAX_DEVICES)] = 1
    memory: Any = None  # what reads it says what is wrong
    openvino: str | None = None
    cores: list[Count] = []
    properties: dict[str, str | bool | int | float] = {}
    spec: Name | None = None
    node: Name | None = None
    pool: Name | None = None


class TomlPool(Strict):
    """One ``[pool.NAME]`` of a platform file: the memory of the devices with that pool, on each node one."""

    memory: Any = None  # what reads it says what is wrong


class TomlLink(LinkModel):
    """One ``[link.KIND]`` of a platform file: a link by name, or its numbers, which come first."""

    latency_s: NonNegative | None = None  # type: ignore[assignment]  # as the name says, else 0
    bandwidth_bytes_per_s: Annotated[float, Field(gt=0)] | None = None
    name: Name | None = None

    def to_link(self) -> Link:
        """Return the link; one without numbers and name takes no time.

        Raises `UnknownNameError`: there is no link of that name.
        """
        named = Link(0.0, math.inf) if self.name is None else get_link(self.name)
        latency, bandwidth = self.latency_s, self.bandwidth_bytes_per_s
        return Link(
            named.latency_s if latency is None else latency,
            named.bandwidth_bytes_per_s if bandwidth is None else bandwidth,
        )


class TomlDirectLink(TomlLink, DirectLinkModel):
    """One ``[[direct_link]]`` of a platform file."""

    spread: NonNegative | None = None

    def to_direct_link(self) -> DirectLink:
        """Return the link."""
        return replace(super().to_direct_link(), spread=self.spread)


class PlatformFileModel(Strict):
    """A platform file (TOML)."""

    device: Annotated[list[TomlDevice], Field(min_length=1, max_length=MAX_DEVICES)]
    link: dict[str, TomlLink] = {}
    direct_link: list[TomlDirectLink] = []
    spec: dict[str, SpecModel] = {}
    pool: dict[str, TomlPool] = {}


class WorkloadNode(Open):
    """One op of a workload file; times in milliseconds."""

    id: Label
    name: Text | None = None
    supportedOnFpga: Flag  # noqa: N815  # the format's own words
    cpuLatency: NonNegative  # noqa: N815
    fpgaLatency: NonNegative  # noqa: N815
    isBackwardNode: Flag  # noqa: N815
    colorClass: Label | None = None  # noqa: N815
    size: NonNegative


class WorkloadEdge(Open):
    """One edge of a workload file; cost in milliseconds, size in bytes."""

    sourceId: Label  # noqa: N815
    destId: Label  # noqa: N815
    cost: NonNegative
    size: NonNegative | None = None


class WorkloadModel(Open):
    """The workload format of Tarnawski et al. 2020."""

    maxSizePerFPGA: NonNegative  # noqa: N815
    maxFPGAs: Annotated[Whole, Field(ge=0, le=MAX_DEVICES)]  # noqa: N815
    maxCPUs: Annotated[Whole, Field(ge=0, le=MAX_DEVICES)]  # noqa: N815
    nodes: Annotated[list[WorkloadNode], Field(min_length=1)]
    edges: list[WorkloadEdge]


class SplitPart(Open):
    """The ops of one device in an expert split."""

    nodes: list[Label]


class SplitModel(Open):
    """An expert split that goes with a workload file: node ids per device."""

    fpgas: list[SplitPart]
    cpus: list[SplitPart]


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
    """Return the JSON Schema of the files of one kind, such as ``"problem"``.

    Examples
    --------
    >>> json_schema("placement")["required"]
    ['schema', 'model', 'devices', 'ops']
    """
    if kind not in SCHEMAS:
        raise UnknownNameError(f"no file format {kind!r}; formats are {', '.join(SCHEMAS)}")
    return SCHEMAS[kind].model_json_schema(by_alias=True)
