r"""An accelerator that need not be present, made from the cost table of a CPU.

Learned placers are published on pairs of a CPU and a GPU that few readers have. This model gives the table of a CPU a
second column of a GPU-like device, so that the comparison can be repeated anywhere:

.. math:: t_v^{acc} = \frac{t_v^{cpu}}{s \cdot r_{type(v)} \cdot u_v} + o

* :math:`r`, the speed ratio of the class of the op's type (`RATIOS`): matrix products and dense convolutions gain most,
  depthwise convolutions and bandwidth-bound ops less, and gathers, reorderings and shape arithmetic run slower than on
  the CPU, which has them in cache and branches well;
* :math:`u = (n + h/8) / (n + h)`, the share of a wide device that an op with :math:`n` output elements keeps busy;
  :math:`h` is `FULL_WIDTH`, the number of work items in flight. Late layers and classifiers are too narrow for it;
  kernels that split their reductions save an eighth. Outputs of unknown shape count as wide;
* :math:`o`, the launch cost of a kernel: ops (or fused groups: their whole time stands on the op that leads) that are
  free on the CPU are free here too. It is what makes *small* ops of any type better on the CPU;
* :math:`s`, one scalar for all types, chosen so that the whole model on the CPU takes as many times as long as on the
  accelerator as was published for it (`PUBLISHED_RATIOS`);
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
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.analytic import Analytic
from placekit.cost_models.op_classes import DENSE_TYPES, DEPTHWISE_TYPES, FUSABLE_TYPES, LOOKUP_TYPES
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import DYNAMIC, OpGraph
from placekit.model.platform import Device, Link, Platform

if TYPE_CHECKING:
    from placekit.io.models.model import ModelSource

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
"""Speed of the accelerator over the CPU's by class of op type, before the fit.

The order is that of the device table (:mod:`placekit.cost_models.sheets.device_table`): an integrated GPU there has 2.7
times the dense and 1.7 times the depthwise rate of eight cores, and 0.7 times their memory bandwidth, which is what
bounds elementwise ops, pooling and normalisation. Reordering and lookups are bandwidth-bound with poor coalescing; half
of the bandwidth is a customary estimate.
"""

LAUNCH_S = 3e-6
"""Seconds that every op costs on top: a kernel in a queue that is full."""

FULL_WIDTH = 32 * 8 * 8 * 16
"""Work items in flight of the reference's GPU: 32 cores of 8 engines of 8 threads of 16 lanes."""

LINK = Link(8e-6, 20e9)
"""PCIe 4.0 x16 with pinned buffers: 31.5 GB/s by data sheet, 65 % sustained."""

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


def accelerated(
    graph: OpGraph, costs: CostTable, ratio: float, *, launch_s: float = LAUNCH_S, full_width: int = FULL_WIDTH
) -> tuple[Platform, CostTable]:
    """Return a CPU and an accelerator that is `ratio` times as fast over the whole model, and the costs on both.

    Parameters
    ----------
    graph, costs
        A model and its table, whose first kind is the CPU. Groups, memory and support are those of the CPU.
    ratio
        CPU-only time over accelerator-only time.
    launch_s, full_width
        See the module docstring.

    Raises
    ------
    InvalidProblemError
        A ratio that is not positive, a CPU that takes no time, or launches that alone take longer than the ratio
        leaves.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["conv", "pool"], [("conv", "pool")], op_types=["Convolution", "MaxPool"])
    >>> cpu = CostTable(("cpu",), [[8e-3], [1e-3]], [[0.0]], [0, 0])
    >>> _, costs = accelerated(graph, cpu, ratio=2.0, launch_s=1e-5)
    >>> costs.kinds, costs.op_time_s.sum(axis=0).round(6).tolist()
    (('cpu', 'accelerator'), [0.009, 0.0045])
    """
    cpu_s = costs.op_time_s[:, 0]
    total_s = float(cpu_s.sum())
    if not (math.isfinite(ratio) and ratio > 0 and total_s > 0):
        raise InvalidProblemError(
            f"accelerator: ratio {ratio} of {total_s} s on the CPU cannot be fitted; both must be finite and > 0"
        )
    launches_s = launch_s * int((cpu_s > 0).sum())
    left_s = total_s / ratio - launches_s
    if left_s <= 0:
        raise InvalidProblemError(
            f"accelerator: {graph.name!r} takes {total_s:.3g} s on the CPU; at ratio {ratio:g} that leaves "
            f"{total_s / ratio:.3g} s, and launches alone take {launches_s:.3g} s"
        )
    relative_s = cpu_s / _relative_speed(graph, full_width)
    speed = float(relative_s.sum()) / left_s
    kind, cpu = "accelerator", costs.kinds[0]
    platform = Platform((Device(cpu, cpu, is_host=True), Device(kind, kind)), {kind: LINK})
    return platform, costs.replace(
        kinds=platform.kinds,
        op_time_s=np.stack([cpu_s, np.where(cpu_s > 0, relative_s / speed + launch_s, 0.0)], axis=1),
        supported=np.repeat(costs.supported[:, [0]], 2, axis=1),
        transfer_time_s=np.stack([np.zeros(graph.num_tensors), LINK.time_s(graph.tensor_bytes)], axis=1),
        op_time_spread=None,
        provenance={
            "source": "accelerator",
            "cpu": dict(costs.provenance),
            "ratios": dict(RATIOS),
            "speed": speed,
            "launch_s": launch_s,
            "full_width": full_width,
            "link": LINK.to_dict(),
        },
    )


def two_kind_costs(source: ModelSource, model: str) -> tuple[Platform, CostTable]:
    """Return a CPU of eight cores and an accelerator that is as much faster as published, and the costs on both.

    `model` is the model of the zoo whose published ratio it is.

    Raises
    ------
    UnknownNameError
        A model without a published ratio.
    InvalidProblemError
        A model so small that its launches alone take longer than the ratio leaves.
    """
    if model not in PUBLISHED_RATIOS:
        raise UnknownNameError(f"no published ratio for model {model!r}; models are {', '.join(PUBLISHED_RATIOS)}")
    cpu = Platform((Device("cpu", "cpu", is_host=True, openvino="CPU"),))
    costs = Analytic({"cpu": "cpu-8core-f32"}).cost_table(source, cpu)
    return accelerated(source.graph, costs, PUBLISHED_RATIOS[model])


def _relative_speed(graph: OpGraph, full_width: int) -> NDArray[np.float64]:
    """``[num_ops]`` speed over the CPU's, before the fit."""
    ratio = np.array([RATIOS[speed_class(op_type)] for op_type in graph.op_types])
    widest = np.zeros(graph.num_ops)
    is_known = np.zeros(graph.num_ops, dtype=bool)
    for producer, shape in zip(graph.tensor_producer.tolist(), graph.tensor_shapes, strict=True):
        if shape and DYNAMIC not in shape:
            is_known[producer] = True
            widest[producer] = max(widest[producer], math.prod(shape))
    busy = (widest + full_width / SPLIT) / np.maximum(widest + full_width, 1)
    return np.where(is_known & (widest > 0), ratio * busy, ratio)
