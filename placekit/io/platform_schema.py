"""Platform files (TOML) as pydantic models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from placekit.io.schema_fields import MAX_DEVICES, Count, Name, NonNegative, Positive, Strict, Whole

__all__ = ["PlatformFileModel", "SpecModel", "TomlDevice"]


class SpecModel(Strict):
    """An analytic device description of a platform file; what is left out comes from `base`."""

    base: Name | None = None
    dense_flops_per_s: Positive | None = None
    depthwise_flops_per_s: Positive | None = None
    other_flops_per_s: Positive | None = None
    memory_bandwidth_bytes_per_s: Positive | None = None
    op_overhead_s: NonNegative | None = None
    unsupported_op_types: list[Name] | None = None


class TomlDevice(Strict):
    """One ``[[device]]`` of a platform file."""

    name: Name
    kind: Name
    host: bool = False
    count: Annotated[Whole, Field(ge=1, le=MAX_DEVICES)] = 1
    memory: str | Positive | None = None
    openvino: str | None = None
    cores: list[Count] = []
    properties: dict[str, str | bool | int | float] = {}
    spec: Name | None = None
    node: Name | None = None


class TomlLink(Strict):
    """One ``[link.KIND]`` of a platform file."""

    latency_s: NonNegative = 0.0
    bandwidth_bytes_per_s: Annotated[float, Field(gt=0)] | None = None


class TomlDirectLink(TomlLink):
    """One ``[[direct_link]]`` of a platform file."""

    kinds: Annotated[list[Name], Field(min_length=2, max_length=2)] | None = None
    between_nodes: bool = False


class PlatformFileModel(Strict):
    """A platform file (TOML)."""

    device: Annotated[list[TomlDevice], Field(min_length=1, max_length=MAX_DEVICES)]
    link: dict[str, TomlLink] = {}
    direct_link: list[TomlDirectLink] = []
    spec: dict[str, SpecModel] = {}
