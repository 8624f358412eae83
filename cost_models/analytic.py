r"""Costs without the device: a roofline over FLOPs and bytes.

An op, or a fused group of ops, takes

.. math:: t = \max\Big(\sum_c f_c / P_c,\; b / B\Big) + o

on a device with the sustained rates :math:`P_c` for the classes of ops (dense, depthwise, other), the memory bandwidth
:math:`B` and the overhead :math:`o` per launch; :math:`f_c` are FLOPs and :math:`b` the bytes of weights, inputs and
outputs, each once. Ops that only rename data are free (:mod:`placekit.cost_models.op_classes`), and so is rounding to
few bits. Dense ops of a model that was read from a file have the rate of the numbers that they multiply: 8-bit integers
where the device has them, else floats; floats move in as many bits as the device computes with. The rates come from
:mod:`placekit.cost_models.sheets.device_table`. On one server core the FLOPs alone explain the measured op times with a
correlation of 0.88 to 0.96 of their logarithms: a stand-in for measurements, not their equal.

Runtimes fuse elementwise ops into the convolution or matrix product before them. With `fuse` (the default) a chain of
elementwise ops, each the only consumer of the one before, shares a group with the product that leads it: intermediate
tensors stay in cache and there is one launch. The lead carries the whole time of its group.

References
----------
Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52(4), 2009, doi 10.1145/1498765.1498785.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.base import Progress, graph_of, report
from placekit.cost_models.kind_profile import anchors_of
from placekit.cost_models.memory_model import op_memory
from placekit.cost_models.op_classes import (
    DENSE_TYPES,
    DEPTHWISE_TYPES,
    FUSABLE_TYPES,
    LOOKUP_TYPES,
    QUANTIZE_TYPES,
    VIEW_TYPES,
)
from placekit.cost_models.sheets.cards import GENERAL, Kernels
from placekit.cost_models.sheets.device_table import DeviceSpec, get_spec, guess_spec, spec_from_values
from placekit.io.models.number_types import INT8
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import DYNAMIC, OpGraph
from placekit.model.reprs import short_repr

if TYPE_CHECKING:
    from placekit.io.models.model import ModelSource
    from placekit.io.models.number_types import NumberTypes
    from placekit.model.platform import Platform

_FLOAT_BITS = {"f32": 32, "f16": 16, "bf16": 16}


@dataclass(frozen=True)
class Analytic:
    """The roofline cost model; works for devices that are not present.

    Parameters
    ----------
    specs
        Spec by kind of device: a name of the device table, or a `DeviceSpec`. Kinds that are not listed are guessed
        (see :func:`~placekit.cost_models.sheets.device_table.guess_spec`).
    fuse
        True to put elementwise ops into the group of the convolution or matrix product before them.
    kernels
        Shares of their peaks that cards by trade name sustain: those of a runtime.

    Raises
    ------
    UnknownNameError
        A spec that the table does not have.

    Examples
    --------
    >>> from placekit.model.platform import Platform
    >>> graph = OpGraph.from_edges(["conv", "relu"], [("conv", "relu")], op_types=["Convolution", "Relu"])
    >>> graph = graph.replace(op_flops=[2.3e9, 1e6], tensor_bytes=[4e6])
    >>> costs = Analytic({"slow": "cpu-core-f32"}).cost_table(graph, Platform.of(slow=2))
    >>> costs.op_time_s.round(4).tolist(), costs.op_group.tolist()
    ([[0.01], [0.0]], [0, 0])
    """

    specs: Mapping[str, str | DeviceSpec] = field(default_factory=dict)
    fuse: bool = True
    kernels: Kernels = GENERAL

    def __post_init__(self) -> None:
        found = {
            kind: get_spec(spec, self.kernels) if isinstance(spec, str) else spec for kind, spec in self.specs.items()
        }
        object.__setattr__(self, "specs", MappingProxyType(found))

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle
        return (type(self), (dict(self.specs), self.fuse, self.kernels))

    __repr__ = short_repr

    @classmethod
    def from_platform_file(cls, platform: Platform, kernels: Kernels = GENERAL) -> Analytic:
        """Return the model with the specs that the file of a platform names or describes.

        `kernels` are the shares of their peaks that cards sustain.

        Raises
        ------
        UnknownNameError
            A device names a spec that is neither in the file nor in the table.
        InvalidProblemError
            A description that lacks a field.
        """
        own = {name: spec_from_values(name, values, kernels) for name, values in platform.specs.items()}
        named = {kind: name for kind, name in platform.spec_of_kind.items() if kind in platform.kinds}
        specs = {kind: own.get(name) or get_spec(name, kernels, own) for kind, name in named.items()}
        return cls(specs, kernels=kernels)

    @property
    def name(self) -> str:
        """``"analytic"``."""
        return "analytic"

    def spec_of_kind(self, platform: Platform) -> dict[str, DeviceSpec]:
        """Return the spec that every kind of `platform` gets.

        Raises
        ------
        UnknownNameError
            A kind without a spec that cannot be guessed.
        InvalidProblemError
            A spec for a kind that the platform does not have.
        """
        for kind in self.specs:
            if kind not in platform.kinds:
                raise InvalidProblemError(
                    f"analytic costs: spec for unknown kind {kind!r}; kinds are {', '.join(platform.kinds)}"
                )
        chosen: dict[str, DeviceSpec] = {}
        for device in platform.devices:
            if device.kind not in chosen:
                spec = self.specs.get(device.kind)
                spec = spec if isinstance(spec, DeviceSpec) else guess_spec(device, self.kernels, platform.specs)
                chosen[device.kind] = spec.as_set(device)
        return chosen

    def for_kinds(self, kinds: Container[str]) -> Self:
        """Return the model with the specs of some kinds."""
        return replace(self, specs={kind: spec for kind, spec in self.specs.items() if kind in kinds})

    def with_links(self, platform: Platform) -> Platform:
        """Return the platform with the link of its spec for every kind that has none."""
        specs = self.spec_of_kind(platform)
        hosts = {device.kind for device in platform.devices if device.is_host}
        links = {kind: spec.link for kind, spec in specs.items() if spec.link is not None and kind not in hosts}
        return platform.replace(links={**links, **platform.links})

    def cost_table(
        self, source: ModelSource | OpGraph, platform: Platform, *, progress: Progress | None = None
    ) -> CostTable:
        """Return the costs of every op of `source` on every kind of `platform`; see the module docstring.

        A transfer takes what the platform's link says; a kind without a link has its spec's default link, and a host
        pays nothing. Direct links between devices take what they say.

        Parameters
        ----------
        source
            A model that was read, or a bare graph. Its `op_flops`, `op_weight_bytes` and `tensor_bytes` are all that
            is looked at; tensors of unknown size count as empty, and the provenance says how many there are.
        platform
            The devices.
        progress
            Called once, at the end: this takes milliseconds.

        Raises
        ------
        UnknownNameError
            A kind without a spec that cannot be guessed.
        """
        graph = graph_of(source)
        specs = self.spec_of_kind(platform)
        supported = np.stack([_supported(graph, spec) for spec in specs.values()], axis=1)
        group = fused_groups(graph, supported) if self.fuse else np.arange(graph.num_ops)
        numbers = None if isinstance(source, OpGraph) else source.numbers
        links = {
            device.kind: platform.links.get(device.kind, None if device.is_host else specs[device.kind].link)
            for device in platform.devices
        }
        transfers = [
            np.zeros(graph.num_tensors) if link is None else link.time_s(graph.tensor_bytes)
            for link in (links[kind] for kind in specs)
        ]
        op_memory_bytes, blocks = op_memory(source, group)
        report(progress, 1, 1, "analytic costs")
        return CostTable(
            kinds=tuple(specs),
            op_time_s=np.stack([_time_s(graph, group, spec, numbers) for spec in specs.values()], axis=1),
            transfer_time_s=np.stack(transfers, axis=1),
            direct_links=platform.direct_link_names,
            direct_time_s=platform.direct_times_s(graph.tensor_bytes),
            op_memory_bytes=op_memory_bytes,
            blocks=blocks,
            supported=supported,
            op_group=group,
            provenance={
                "source": "analytic",
                "model": "roofline: max(FLOPs / rate, bytes / bandwidth) + overhead",
                "is_fused": self.fuse,
                "specs": {kind: spec.to_dict() for kind, spec in specs.items()},
                "num_tensors_of_unknown_size": sum(DYNAMIC in shape for shape in graph.tensor_shapes),
            },
        )


def _is_type(graph: OpGraph, types: frozenset[str]) -> NDArray[np.bool_]:
    return np.array([op_type in types for op_type in graph.op_types], dtype=bool)


def _supported(graph: OpGraph, spec: DeviceSpec) -> NDArray[np.bool_]:
    return ~_is_type(graph, spec.unsupported_op_types)


@dataclass(frozen=True, slots=True)
class _GroupWork:
    """FLOPs by class, bytes, and what is free; ``[num_ops]`` each, a group's sum at its lead and 0 elsewhere."""

    dense: NDArray[np.float64]
    depthwise: NDArray[np.float64]
    other: NDArray[np.float64]
    num_bytes: NDArray[np.float64]
    is_launched: NDArray[np.bool_]


def _time_s(
    graph: OpGraph, group: NDArray[np.int64], spec: DeviceSpec, numbers: NumberTypes | None
) -> NDArray[np.float64]:
    """``[num_ops]`` seconds of every group, at its lead."""
    work = _group_work(graph, group, _shares(graph, spec, numbers))
    compute = (
        work.dense / spec.dense_flops_per_s
        + work.depthwise / spec.depthwise_flops_per_s
        + work.other / spec.other_flops_per_s
    )
    traffic = work.num_bytes / spec.memory_bandwidth_bytes_per_s
    return np.where(work.is_launched, np.maximum(compute, traffic) + spec.op_overhead_s, 0.0)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of the stated work that are left on a device; ``[num_ops]`` each, 1 where the graph is right."""

    dense: NDArray[np.float64]  # of the FLOPs of dense ops, by the numbers that they multiply
    written: NDArray[np.float64]  # of the bytes of the tensors that an op writes
    weights: NDArray[np.float64]  # of the bytes of its weights


def _shares(graph: OpGraph, spec: DeviceSpec, numbers: NumberTypes | None) -> _Shares:
    """Return what the number types of a model save on a device, which keeps floats in as many bits as it computes."""
    whole = np.ones(graph.num_ops)
    if numbers is None:
        return _Shares(whole, whole, whole)
    has_int8 = spec.int8_speed > 1
    is_int8 = has_int8 & np.array([each == INT8 for each in numbers.compute], dtype=bool)

    def share(stored: list[int], is_low: NDArray[np.bool_]) -> NDArray[np.float64]:
        bits = np.array(stored, dtype=np.float64).reshape(-1)
        kept = np.minimum(np.where(is_low, 8, spec.float_bits), bits)
        return np.divide(kept, bits, out=whole.copy(), where=bits > 0)

    return _Shares(
        dense=np.where(is_int8, 1 / spec.int8_speed, 1.0),
        written=share([_FLOAT_BITS.get(each, 0) for each in numbers.output], has_int8 & np.array(numbers.is_rounded)),
        weights=share([each if each in _FLOAT_BITS.values() else 0 for each in numbers.weight_bits], is_int8),
    )


def _sum_at(index: NDArray[np.int64], values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    """``[length]`` sum of the `values` with each `index`; `np.bincount` would give integers for an empty input."""
    total = np.zeros(length)
    np.add.at(total, index, values)
    return total


def _group_work(graph: OpGraph, group: NDArray[np.int64], share: _Shares) -> _GroupWork:
    """Sum up what every group does; `group` labels every op with the index of the lead of its group. O(edges log)."""
    num_ops = graph.num_ops
    is_dense, is_depthwise = _is_type(graph, DENSE_TYPES), _is_type(graph, DEPTHWISE_TYPES)
    is_lookup, is_free = _is_type(graph, LOOKUP_TYPES), _is_type(graph, VIEW_TYPES | QUANTIZE_TYPES)
    tensor_bytes = graph.tensor_bytes * share.written[graph.tensor_producer]

    def at_lead(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return _sum_at(group, values, num_ops)

    # a tensor is read once by every group that consumes it from outside, and written once if it leaves its group; one
    # that was rounded from it is the same tensor to who reads both
    tensor = graph.consumed_tensor
    reader, writer = group[graph.consumers], group[graph.tensor_producer]
    is_crossing = reader != writer[tensor]
    at = np.flatnonzero(is_crossing & ~is_lookup[graph.consumers])
    pairs, pair_of = np.unique(_rounded_from(graph)[tensor[at]] * num_ops + reader[at], return_inverse=True)
    pair_bytes = np.zeros(len(pairs))
    np.maximum.at(pair_bytes, pair_of, tensor_bytes[tensor[at]])
    read = _sum_at(pairs % num_ops, pair_bytes, num_ops)
    leaves = np.bincount(tensor, minlength=graph.num_tensors) == 0
    leaves[tensor[is_crossing]] = True
    written = _sum_at(writer, tensor_bytes * leaves, num_ops)
    looked_up = _sum_at(writer, tensor_bytes * is_lookup[graph.tensor_producer], num_ops)
    weights = np.where(is_lookup, 0.0, graph.op_weight_bytes * share.weights)
    is_launched = np.zeros(num_ops, dtype=bool)
    is_launched[group[~is_free]] = True
    return _GroupWork(
        dense=at_lead(graph.op_flops * is_dense * share.dense),
        depthwise=at_lead(graph.op_flops * is_depthwise),
        other=at_lead(graph.op_flops * ~(is_dense | is_depthwise | is_free)),
        num_bytes=at_lead(weights) + read + written + looked_up,
        is_launched=is_launched,
    )


def _rounded_from(graph: OpGraph) -> NDArray[np.int64]:
    """``[num_tensors]`` the tensor that each one was rounded from; itself for all others."""
    origin = np.arange(graph.num_tensors)
    rounds = _is_type(graph, QUANTIZE_TYPES)
    if not rounds.any():
        return origin
    first: dict[int, int] = {}  # the tensor that a rounding op reads
    for tensor, reader in zip(graph.consumed_tensor.tolist(), graph.consumers.tolist(), strict=True):
        if rounds[reader]:
            first.setdefault(reader, tensor)
    for tensor in np.argsort(graph.rank[graph.tensor_producer], kind="stable").tolist():
        origin[tensor] = origin[first.get(int(graph.tensor_producer[tensor]), tensor)]
    return origin


def roofline(
    graph: OpGraph, op_group: NDArray[np.int64], spec: DeviceSpec, numbers: NumberTypes | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return seconds and support ``[num_ops]`` of groups that were found elsewhere; `numbers` as in a `ModelSource`.

    The time of a group stands on its op of :func:`~placekit.cost_models.kind_profile.anchors_of`.
    """
    num_groups = int(op_group.max(initial=-1)) + 1
    time_s = _time_s(graph, anchors_of(graph, op_group, num_groups)[op_group], spec, numbers)
    lost = np.bincount(op_group, weights=~_supported(graph, spec), minlength=num_groups) > 0
    return time_s, ~lost[op_group]


def fused_groups(graph: OpGraph, supported: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """``[num_ops]`` index of the op that leads the fused group of every op.

    In topological order, an elementwise op joins the group of a producer if

    1. that group is led by a convolution or a matrix product;
    2. the op is the producer's only consumer, so that nobody else needs the intermediate tensor;
    3. it writes no more than it reads from there (no broadcast), in the same pass (forward or backward), and is
       supported on the same kinds as the lead;

    and of several such producers the last. Contracting an edge whose tail has no other successor closes no cycle, so
    the graph of the groups is acyclic. Without `supported`, ``[num_ops, num_kinds]``, every kind runs every op.

    Notes
    -----
    O(ops + edges).
    """
    num_ops = graph.num_ops
    group = list(range(num_ops))
    num_successors = np.bincount(graph.senders, minlength=num_ops)
    written = _sum_at(graph.tensor_producer, graph.tensor_bytes, num_ops).tolist()
    leads = (_is_type(graph, DENSE_TYPES) | _is_type(graph, DEPTHWISE_TYPES)).tolist()
    fusable = _is_type(graph, FUSABLE_TYPES)
    backward = graph.is_backward.tolist()
    kinds = [b""] * num_ops if supported is None else [row.tobytes() for row in supported]
    rank = graph.rank
    candidate = (num_successors[graph.senders] == 1) & fusable[graph.receivers]
    senders, receivers = graph.senders[candidate], graph.receivers[candidate]
    # by consumer, and for one consumer the last producer first
    along = np.lexsort((-rank[senders], rank[receivers]))
    for u, v in zip(senders[along].tolist(), receivers[along].tolist(), strict=True):
        lead = group[u]
        if (
            group[v] == v
            and leads[lead]
            and written[v] <= written[u]
            and backward[v] == backward[lead]
            and kinds[v] == kinds[lead]
        ):
            group[v] = lead
    return np.array(group, dtype=np.int64)
