"""Contenders of a timing: a placement under an executor, or a whole model left to OpenVINO.

A contender is a description that can be sent to another process, where
:mod:`placekit.runtime.runners` makes it run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from placekit.model.errors import UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform

__all__ = [
    "EXECUTORS",
    "Contender",
    "Executor",
    "Placed",
    "Whole",
    "baselines",
    "executor_named",
    "is_serial",
    "on_one_device",
    "singles",
]

Executor: TypeAlias = Literal["serial", "threads"]
EXECUTORS: tuple[Executor, ...] = get_args(Executor)
"""Ways of running a placement."""


def executor_named(name: str) -> Executor:
    """Return the executor called `name`.

    Raises
    ------
    UnknownNameError
        There is none; the message lists those that there are.
    """
    for executor in EXECUTORS:
        if executor == name:
            return executor
    raise UnknownNameError(f"no executor {name!r}; executors are {', '.join(EXECUTORS)}")


def is_serial(executor: Executor) -> bool:
    """Return whether `executor` runs stages one after another, one sample at a time, and is no pipeline."""
    return executor == "serial"


@dataclass(frozen=True)
class Placed:
    """A placement, run by one of placekit's executors.

    Parameters
    ----------
    name
        For tables and messages.
    placement, platform
        What runs where.
    executor
        One of `EXECUTORS`.
    queue_size
        Samples between two stages of a pipeline.

    Raises
    ------
    UnknownNameError
        An executor that does not exist.
    """

    name: str
    placement: Placement
    platform: Platform
    executor: Executor = "threads"
    queue_size: int = 2

    def __post_init__(self) -> None:
        executor_named(self.executor)

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores of its devices; empty if one of them has no cores of its own."""
        return _cores_of(self.platform)

    def facts(self) -> dict[str, Any]:
        """Return all that a measurement of it depends on, as JSON values."""
        used = set(self.placement.device_of_op.tolist())
        members = sorted(each for team in self.placement.teams if team[0] in used for each in team)
        return {
            "placement": self.placement.as_dict(),
            "devices": [_device_facts(self.platform.devices[each]) for each in members],
            "cores": list(self.cores),
            "executor": self.executor,
            "queue_size": self.queue_size,
        }


@dataclass(frozen=True)
class Whole:
    """The whole model, placed and scheduled by OpenVINO.

    Parameters
    ----------
    name
        For tables and messages.
    target
        OpenVINO device string, for example ``"AUTO"``.
    latency_properties, throughput_properties
        What it is compiled with to run one sample at a time, and to stream samples.
    cores
        Cores that the process may use; empty for all.
    """

    name: str
    target: str
    latency_properties: Mapping[str, Any] = field(default_factory=dict)
    throughput_properties: Mapping[str, Any] = field(default_factory=dict)
    cores: tuple[int, ...] = ()

    def facts(self) -> dict[str, Any]:
        """Return all that a measurement of it depends on, as JSON values."""
        return {
            "target": self.target,
            "latency_properties": dict(self.latency_properties),
            "throughput_properties": dict(self.throughput_properties),
            "cores": list(self.cores),
        }


Contender: TypeAlias = Placed | Whole


def _cores_of(platform: Platform) -> tuple[int, ...]:
    """Return the cores of all devices of `platform`; none if one of them has no cores of its own."""
    if not all(device.cores for device in platform.devices):
        return ()
    return tuple(sorted({core for device in platform.devices for core in device.cores}))


def _device_facts(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "openvino": device.openvino,
        "cores": list(device.cores),
        "properties": dict(device.properties),
    }


def on_one_device(graph: OpGraph, platform: Platform, device: int) -> Placement:
    """Return the placement of all ops of `graph` on one device of `platform`."""
    return Placement(graph.op_names, platform.device_names, np.full(graph.num_ops, device))


def singles(graph: OpGraph, platform: Platform, executor: Executor, queue_size: int = 2) -> tuple[Placed, ...]:
    """Return every device alone, under the same executor as the placement."""
    return tuple(
        Placed(f"single {device.name}", on_one_device(graph, platform, index), platform, executor, queue_size)
        for index, device in enumerate(platform.devices)
    )


def baselines(graph: OpGraph, platform: Platform) -> tuple[Contender, ...]:
    """Return all that the runtime offers for the whole model, on the hardware and the cores that `platform` uses.

    ``AUTO`` chooses the device. ``MULTI`` is AUTO with the hint that replaced the MULTI plugin, all devices at once.
    ``all cores`` is one CPU device of all cores of all core groups, one sample at a time on all of them;
    ``all cores, streams`` as OpenVINO divides them for throughput. They compute in the highest precision that a CPU
    device of the platform computes in. Where groups of cores compute in different ones, ``MULTI of groups`` has a copy
    of `graph` on each, with its own, as a team of all of them.
    """
    cores = _cores_of(platform)
    targets = ",".join(dict.fromkeys(each.openvino.partition(".")[0] for each in platform.devices if each.openvino))
    hosts = [each for each in platform.devices if each.openvino == "CPU"]
    precisions = {each.properties.get("INFERENCE_PRECISION_HINT", "f32") for each in hosts}
    own = {"INFERENCE_PRECISION_HINT": "f32" if "f32" in precisions else min(precisions, default="f32")}
    properties: dict[str, Any] = {"DEVICE_PROPERTIES": {"CPU": own}} if hosts else {}
    latency = properties | {"PERFORMANCE_HINT": "LATENCY"}
    found: list[Contender] = [
        Whole(f"AUTO:{targets}", f"AUTO:{targets}", latency, properties | {"PERFORMANCE_HINT": "THROUGHPUT"}, cores),
        Whole(
            f"MULTI:{targets}", f"AUTO:{targets}", latency,
            properties | {"PERFORMANCE_HINT": "CUMULATIVE_THROUGHPUT"}, cores,
        ),
    ]  # fmt: skip
    if hosts and cores:
        whole: dict[str, Any] = own | {"INFERENCE_NUM_THREADS": len(cores), "ENABLE_CPU_PINNING": False}
        latency = whole | {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
        found.append(Whole("all cores", "CPU", latency, latency, cores))
        found.append(Whole("all cores, streams", "CPU", latency, whole | {"PERFORMANCE_HINT": "THROUGHPUT"}, cores))
    if len(precisions) > 1:
        everywhere = np.zeros(platform.num_devices, dtype=np.int64)
        team = Placement(
            graph.op_names, platform.device_names, np.zeros(graph.num_ops, dtype=np.int64), None, everywhere
        )
        found.append(Placed("MULTI of groups", team, platform))
    return tuple(found)
