"""Baselines without a plan: OpenVINO's own ways, all cores as one device, equal shares of layers or bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from placekit.cost_models.measured.stage_costs import predict
from placekit.cost_models.openvino.devices import core_groups
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.runtime.timing.contenders import Contender, Executor, PlacedContender, Whole, cores_of, on_one_device

if TYPE_CHECKING:
    from placekit.pytorch.source import TorchSource

_LAYER = re.compile(r"^(?:.*\.)?\d+(?=\.|$)")
_NUM_RANDOM = 20


def openvino_baselines(graph: OpGraph, platform: Platform) -> tuple[Contender, ...]:
    """Return all that the runtime offers for the whole model, on the hardware and the cores that `platform` uses.

    ``AUTO`` chooses the device. ``MULTI`` is AUTO with the hint that replaced the MULTI plugin, all devices at once.
    ``all cores`` is one CPU device of all cores of all core groups, one sample at a time on all of them;
    ``all cores, streams`` as OpenVINO divides them for throughput. They compute in the highest precision that a CPU
    device of the platform computes in. Where groups of cores compute in different ones, ``MULTI of groups`` has a copy
    of `graph` on each, with its own, as a team of all of them.
    """
    cores = cores_of(platform)
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
        found.append(PlacedContender("MULTI of groups", team, platform))
    return tuple(found)


def torch_baselines(
    source: TorchSource, problem: Problem, executor: Executor, queue_size: int = 2
) -> tuple[PlacedContender, ...]:
    """Return what a placement of `source` is timed against, beside single devices.

    ``all cores`` is the whole program on all cores of the platform, one sample at a time. ``equal layers`` and ``equal
    bytes`` give every device in turn the next share of the layers, or of the bytes of their weights, as accelerate
    divides a model over devices of one size. ``random cuts`` is the best of twenty by the costs of `problem`.
    """
    platform, graph = problem.platform, source.graph
    found: list[PlacedContender] = []
    cores = sorted({core for device in platform.devices for core in device.cores})
    if cores and platform.num_devices > 1:
        whole = core_groups(1, cores=cores)
        found.append(PlacedContender("all cores", on_one_device(graph, whole, 0), whole, "serial"))
    if platform.num_devices > 1:
        best = max(
            random_cuts(source, problem, seed=0),
            key=lambda each: predict(problem, each, is_serial=executor == "serial").throughput_per_s,
        )
        splits = {
            "equal layers": equal_shares(source, problem, "layers"),
            "equal bytes": equal_shares(source, problem, "bytes"),
            "random cuts": best,
        }
        found += [PlacedContender(name, each, platform, executor, queue_size) for name, each in splits.items()]
    return tuple(found)


def layers_of(module_of_op: Sequence[str]) -> list[str]:
    """Return the layer of every op: the path of its module up to the last number, or all of it without one.

    Examples
    --------
    >>> layers_of(["wte", "h.0.mlp.up", "h.1", "stages.0.layers.2.conv"])
    ['wte', 'h.0', 'h.1', 'stages.0.layers.2']
    """
    found = (_LAYER.match(path) for path in module_of_op)
    return [match[0] if match else path for match, path in zip(found, module_of_op, strict=True)]


def equal_shares(source: TorchSource, problem: Problem, of: Literal["layers", "bytes"]) -> Placement:
    """Return the placement that gives every device as many layers, or layers of as many bytes, in program order."""
    graph, count = source.graph, problem.platform.num_devices
    layer = layers_of(source.module_of_op)
    sizes: dict[str, float] = {}
    for op in graph.order.tolist():
        if layer[op]:  # ops at the top belong to no layer
            more = sizes.get(layer[op], 0.0) + float(graph.op_weight_bytes[op])
            sizes[layer[op]] = 1.0 if of == "layers" else more
    names = list(sizes)
    amounts = np.array(list(sizes.values()))
    middle = np.cumsum(amounts) - amounts / 2
    share = np.minimum(middle * count / max(float(amounts.sum()), 1e-300), count - 1).astype(np.int64)
    device_of_layer = dict(zip(names, share.tolist(), strict=True))
    return _in_order(problem, [device_of_layer.get(each, 0) for each in layer])


def random_cuts(source: TorchSource, problem: Problem, seed: int) -> list[Placement]:
    """Return placements that cut the order of the ops at random places, one part per device."""
    rng = np.random.default_rng(seed)
    graph, count = source.graph, problem.platform.num_devices
    found = []
    for _ in range(_NUM_RANDOM):
        cuts = np.sort(rng.choice(np.arange(1, graph.num_ops), size=min(count, graph.num_ops) - 1, replace=False))
        found.append(_in_order(problem, np.searchsorted(cuts, graph.rank, side="right").tolist()))
    return found


def _in_order(problem: Problem, device_of_op: list[int]) -> Placement:
    """Return a placement in which no op is on an earlier device than what it reads, and shared memory in one place."""
    graph, labels = problem.graph, problem.colocation
    device = np.array(device_of_op, dtype=np.int64)
    edges = graph.ordered_edges
    while True:
        before = device.copy()
        for sender, receiver in edges:
            device[receiver] = max(device[receiver], device[sender])
        latest = np.zeros(graph.num_ops, dtype=np.int64)
        np.maximum.at(latest, labels, device)
        device = latest[labels]
        if np.array_equal(device, before):
            return Placement.of(problem, device)
