"""Contenders of a timing: a placement under an executor, or a whole model left to OpenVINO.

A contender is a description that can be sent to another process, where
:mod:`placekit.runtime.timing.runners` makes it run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from placekit.model.errors import UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform

Executor: TypeAlias = Literal["serial", "threads"]
EXECUTORS: tuple[Executor, ...] = get_args(Executor)
"""Ways of running a placement."""


def executor_named(name: str) -> Executor:
    """Return the executor called `name`."""
    for executor in EXECUTORS:
        if executor == name:
            return executor
    raise UnknownNameError(f"no executor {name!r}; executors are {', '.join(EXECUTORS)}")


@dataclass(frozen=True)
class PlacedContender:
    """A placement, run by one of placekit's executors."""

    name: str  # for tables and messages
    # placement, platform: what runs where
    placement: Placement
    platform: Platform
    executor: Executor = "threads"  # one of `EXECUTORS`
    queue_size: int = 2  # samples between two stages of a pipeline

    def __post_init__(self) -> None:
        executor_named(self.executor)

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores of its devices; empty if one of them has no cores of its own."""
        return cores_of(self.platform)

    def facts(self) -> dict[str, Any]:
        """Return all that a measurement of it depends on, as JSON values."""
        used = set(self.placement.device_of_op.tolist())
        members = sorted(each for team in self.placement.teams if team[0] in used for each in team)
        return {
            "placement": self.placement.as_dict(),
            "devices": [
                {
                    "name": device.name,
                    "openvino": device.openvino,
                    "cores": list(device.cores),
                    "properties": dict(device.properties),
                }
                for device in (self.platform.devices[each] for each in members)
            ],
            "cores": list(self.cores),
            "executor": self.executor,
            "queue_size": self.queue_size,
        }


@dataclass(frozen=True)
class Whole:
    """The whole model, placed and scheduled by OpenVINO."""

    name: str  # for tables and messages
    target: str  # OpenVINO device string, for example ``"AUTO"``
    # latency_properties, throughput_properties: what it is compiled with to run one sample at a time, and to stream
    # samples
    latency_properties: Mapping[str, Any] = field(default_factory=dict)
    throughput_properties: Mapping[str, Any] = field(default_factory=dict)
    cores: tuple[int, ...] = ()  # cores that the process may use; empty for all

    def facts(self) -> dict[str, Any]:
        """Return all that a measurement of it depends on, as JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "name"}


Contender: TypeAlias = PlacedContender | Whole


def cores_of(platform: Platform) -> tuple[int, ...]:
    """Return the cores of all devices of `platform`; none if one of them has no cores of its own."""
    if not all(device.cores for device in platform.devices):
        return ()
    return tuple(sorted({core for device in platform.devices for core in device.cores}))


def on_one_device(graph: OpGraph, platform: Platform, device: int) -> Placement:
    """Return the placement of all ops of `graph` on one device of `platform`."""
    return Placement(graph.op_names, platform.device_names, np.full(graph.num_ops, device))


def singles(graph: OpGraph, platform: Platform, executor: Executor, queue_size: int = 2) -> tuple[PlacedContender, ...]:
    """Return every device alone, under the same executor as the placement."""
    return tuple(
        PlacedContender(f"single {device.name}", on_one_device(graph, platform, index), platform, executor, queue_size)
        for index, device in enumerate(platform.devices)
    )
