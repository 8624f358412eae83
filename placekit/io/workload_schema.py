"""The public workload format and its expert splits as pydantic models; others extend it, so unknown fields pass."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from placekit.io.schema_fields import MAX_DEVICES, Flag, Label, NonNegative, Open, Text, Whole

__all__ = ["SplitModel", "WorkloadModel"]


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
