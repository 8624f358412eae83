r"""An accelerator that need not be present, made from the cost table of a CPU.

Learned placers are published on pairs of a CPU and a GPU that few readers have. This model gives any CPU table,
profiled or analytic, a second column of a GPU-like device, so that the comparison can be repeated anywhere:

.. math:: t_v^{acc} = \frac{t_v^{cpu}}{s \cdot r_{type(v)} \cdot u_v} + o

* :math:`r`, the speed ratio of the class of the op's type (`RATIOS`): matrix products and dense convolutions gain most,
  depthwise convolutions and bandwidth-bound ops less, and gathers, reorderings and shape arithmetic run slower than on
  the CPU, which has them in cache and branches well;
* :math:`u = (n + h/8) / (n + h)`, the share of a wide device that an op with :math:`n` output elements keeps busy;
  :math:`h` is `full_width`, the number of work items in flight. Late layers and classifiers are too narrow for it;
  kernels that split their reductions save an eighth. Outputs of unknown shape count as wide;
* :math:`o`, the launch cost of a kernel: ops (or fused groups: their whole time stands on the op that leads) that are
  free on the CPU are free here too. It is what makes *small* ops of any type better on the CPU;
* :math:`s`, one scalar for all types, which `Accelerator.fit` chooses so that the whole model on the CPU takes `ratio`
  times as long as on the accelerator. The ratios of one published pair are in `PUBLISHED_RATIOS`;
* a PCIe-like link: latency plus bytes over bandwidth for every tensor that enters or leaves, as in
  :class:`~placekit.model.platform.Link`. The CPU works in host memory and pays nothing.

The sum over ops is the single-device time of ``serial-latency``, and of ``makespan``, where one device does one op at a
time.

References
----------
Duan et al., "A structure-aware framework for learning device placements on computation graphs", NeurIPS 2024,
arXiv 2405.14185, table 2: CPU-only and GPU-only latencies (Core i9-12900K, Data Center GPU Flex 170).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.op_classes import DENSE_TYPES, DEPTHWISE_TYPES, FUSABLE_TYPES, LOOKUP_TYPES
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import DYNAMIC, OpGraph
from placekit.model.platform import Device, Link, Platform

__all__ = ["OTHER_CLASS", "PUBLISHED_RATIOS", "RATIOS", "Accelerator", "speed_class"]

REORDERING_TYPES = frozenset({
    "Broadcast", "Concat", "Convert", "CumSum", "Pad", "Range", "ScatterNDUpdate", "ScatterUpdate", "ShapeOf",
    "Slice", "Split", "StridedSlice", "Tile", "TopK", "Transpose", "VariadicSplit",
})  # fmt: skip
"""Types that move or count elements and compute nothing."""

OTHER_CLASS = "other"
"""The class of every type that no other class lists: pooling, reductions, normalisation, softmax."""

RATIOS: Mapping[str, float] = MappingProxyType(
    {"dense": 4.0, "depthwise": 1.5, "elementwise": 0.8, "reordering": 0.4, "lookup": 0.3, OTHER_CLASS: 0.7}
)
"""Speed of the accelerator over the CPU's by class of op type, before `Accelerator.speed`.

The order is that of the device table (:mod:`placekit.cost_models.device_table`): an integrated GPU there has 2.7 times
the dense and 1.7 times the depthwise rate of eight cores, and 0.7 times their memory bandwidth, which is what bounds
elementwise ops, pooling and normalisation. Reordering and lookups are bandwidth-bound with poor coalescing; half of the
bandwidth is a customary estimate.
"""

SPLIT = 8
"""Ways in which a kernel with few outputs splits its reductions."""

PUBLISHED_RATIOS: Mapping[str, float] = MappingProxyType(
    {"resnet50": 0.0160 / 0.00781, "inception_v3": 0.0128 / 0.0120, "bert_base": 0.00638 / 0.00277}
)
"""CPU-only over GPU-only latency of zoo models, from the table of the reference: 2.05, 1.07 and 2.30."""


def speed_class(op_type: str) -> str:
    """Return the class of `op_type` in `RATIOS`."""
    for name, types in (
        ("dense", DENSE_TYPES),
        ("depthwise", DEPTHWISE_TYPES),
        ("lookup", LOOKUP_TYPES),
        ("reordering", REORDERING_TYPES),
        ("elementwise", FUSABLE_TYPES),
    ):
        if op_type in types:
            return name
    return OTHER_CLASS


@dataclass(frozen=True)
class Accelerator:
    """A GPU-like device described relative to a CPU; see the module docstring.

    Parameters
    ----------
    kind
        Name of its kind.
    ratios
        Speed over the CPU's by class of op type; classes that are not listed have those of `RATIOS`.
    launch_s
        Fixed cost of every op that takes time on the CPU. The default is what a kernel costs in a queue that is full.
    link
        Link to host memory. The default is PCIe 4.0 x16 with pinned buffers: 31.5 GB/s by data sheet, 65 % sustained.
    full_width
        Output elements at which an op reaches half of its speed, and a little more; 0 for full speed at any size.
        The default is the work items in flight of the reference's GPU: 32 cores of 8 engines of 8 threads of 16 lanes.
    speed
        Factor on all ratios; see `fit`.

    Raises
    ------
    InvalidProblemError
        A class that does not exist, or a ratio, speed or launch cost out of range.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["conv", "pool"], [("conv", "pool")], op_types=["Convolution", "MaxPool"])
    >>> cpu = CostTable(("cpu",), [[8e-3], [1e-3]], [[0.0]], [0, 0])
    >>> accelerator = Accelerator(launch_s=1e-5).fit(graph, cpu, ratio=2.0)
    >>> costs = accelerator.beside(graph, cpu)
    >>> costs.kinds, costs.op_time_s.sum(axis=0).round(6).tolist()
    (('cpu', 'accelerator'), [0.009, 0.0045])
    """

    kind: str = "accelerator"
    ratios: Mapping[str, float] = field(default_factory=dict)
    launch_s: float = 3e-6
    link: Link = Link(8e-6, 20e9)  # noqa: RUF009  # frozen
    full_width: int = 32 * 8 * 8 * 16
    speed: float = 1.0

    def __post_init__(self) -> None:
        for name in self.ratios:
            if name not in RATIOS:
                raise InvalidProblemError(
                    f"accelerator: no class {name!r} of op types; classes are {', '.join(RATIOS)}"
                )
        object.__setattr__(self, "ratios", MappingProxyType({**RATIOS, **self.ratios}))
        for what, value in (
            *((f"ratio of {name}", ratio) for name, ratio in self.ratios.items()),
            ("speed", self.speed),
        ):
            if not (math.isfinite(value) and value > 0):
                raise InvalidProblemError(f"accelerator: {what} is {value}; it must be finite and > 0")
        if self.full_width < 0:
            raise InvalidProblemError(f"accelerator: full_width is {self.full_width}; it must be >= 0")
        if not (math.isfinite(self.launch_s) and self.launch_s >= 0):
            raise InvalidProblemError(f"accelerator: launch_s is {self.launch_s}; it must be finite and >= 0")

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle
        return (type(self), (self.kind, dict(self.ratios), self.launch_s, self.link, self.full_width, self.speed))

    def fit(self, graph: OpGraph, costs: CostTable, ratio: float, cpu: str | None = None) -> Self:
        """Return the accelerator whose `speed` makes everything on the CPU take `ratio` times as long as on it.

        Parameters
        ----------
        graph, costs
            A model and its table.
        ratio
            CPU-only time over accelerator-only time.
        cpu
            Kind of the CPU in the table; its first kind if None.

        Raises
        ------
        InvalidProblemError
            A ratio that is not positive, a CPU that takes no time, or launches that alone take longer than the ratio
            leaves.
        """
        time_s = costs.op_time_s[:, _column(costs, cpu)]
        total = float(time_s.sum())
        if not (math.isfinite(ratio) and ratio > 0 and total > 0):
            raise InvalidProblemError(
                f"accelerator: ratio {ratio} of {total} s on the CPU cannot be fitted; both must be finite and > 0"
            )
        launches = self.launch_s * int((time_s > 0).sum())
        left = total / ratio - launches
        if left <= 0:
            raise InvalidProblemError(
                f"accelerator: {graph.name!r} takes {total:.3g} s on the CPU; at ratio {ratio:g} that leaves "
                f"{total / ratio:.3g} s, and launches alone take {launches:.3g} s: give a smaller launch_s or ratio"
            )
        return replace(self, speed=float((time_s / self._relative_speed(graph)).sum()) / left)

    def beside(self, graph: OpGraph, costs: CostTable, cpu: str | None = None) -> CostTable:
        """Return the table with two kinds: the CPU's column of `costs`, and this accelerator.

        Parameters
        ----------
        graph, costs
            A model and its table. Groups and memory are taken from it; the accelerator supports what the CPU does.
        cpu
            Kind of the CPU in the table; its first kind if None.
        """
        column = _column(costs, cpu)
        cpu_s = costs.op_time_s[:, column]
        own_s = np.where(cpu_s > 0, cpu_s / (self.speed * self._relative_speed(graph)) + self.launch_s, 0.0)
        return costs.replace(
            kinds=(costs.kinds[column], self.kind),
            op_time_s=np.stack([cpu_s, own_s], axis=1),
            supported=np.repeat(costs.supported[:, [column]], 2, axis=1),
            transfer_time_s=np.stack([np.zeros(graph.num_tensors), self.link.time_s(graph.tensor_bytes)], axis=1),
            op_time_spread=None,
            provenance={
                "source": "accelerator",
                "cpu": dict(costs.provenance),
                "ratios": dict(self.ratios),
                "speed": self.speed,
                "launch_s": self.launch_s,
                "full_width": self.full_width,
                "link": {
                    "latency_s": self.link.latency_s,
                    "bandwidth_bytes_per_s": self.link.bandwidth_bytes_per_s,
                },
            },
        )

    def platform(self, cpu: str = "cpu") -> Platform:
        """Return one CPU, the host, and one of this accelerator; devices are called like their kinds."""
        return Platform((Device(cpu, cpu, is_host=True), Device(self.kind, self.kind)), {self.kind: self.link})

    def _relative_speed(self, graph: OpGraph) -> NDArray[np.float64]:
        """``[num_ops]`` speed over the CPU's, before `speed`."""
        ratio = np.array([self.ratios[speed_class(op_type)] for op_type in graph.op_types])
        widest = np.zeros(graph.num_ops)
        is_known = np.zeros(graph.num_ops, dtype=bool)
        for producer, shape in zip(graph.tensor_producer.tolist(), graph.tensor_shapes, strict=True):
            if shape and DYNAMIC not in shape:
                is_known[producer] = True
                widest[producer] = max(widest[producer], math.prod(shape))
        busy = (widest + self.full_width / SPLIT) / np.maximum(widest + self.full_width, 1)
        return np.where(is_known & (widest > 0), ratio * busy, ratio)


def _column(costs: CostTable, kind: str | None) -> int:
    if kind is None:
        return 0
    if kind not in costs.kinds:
        raise InvalidProblemError(f"accelerator: no costs for kind {kind!r}; the table has {', '.join(costs.kinds)}")
    return costs.kinds.index(kind)
