r"""Features of ops: a row of numbers per op, of the op, and of its place in the graph.

========== ======= ===========================================================================================
group      columns what it holds
========== ======= ===========================================================================================
type       T + 1   one-hot of the op's type (:mod:`placekit.learned.vocabulary`)
degree     14      one-hot of the in-degree and of the out-degree: 0, 1, 2, 3, 4 to 7, 8 to 15, more
fractal    1       fractal dimension of the undirected graph around the op
shape      6       log(1 + size) of the leading dimensions of the first output, 0 for those that are not there
bytes      2       log(1 + bytes) of all outputs, and of the memory that the op occupies
flops      2       log(1 + floating-point operations), log(1 + bytes of constants)
times      3 D     per device: log of the op's time, log of its ratio to the fastest device's, may it go there
order      16      sine and cosine of the place in topological order, at 8 frequencies
========== ======= ===========================================================================================

The columns of fractal, shape, bytes, flops and the log times are standardised over the graph. Columns that say the
same in every graph are not: one-hots, the place, the ratio between devices (its sign says which one is faster), and
where an op may go. The paper (HSDAG, arXiv 2405.14185, section 3.1) has type, degree, fractal, shape and order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import distinct, sum_by
from placekit.kernels import njit
from placekit.learned.vocabulary import UNKNOWN_TYPE, type_columns
from placekit.model.graph import OpGraph
from placekit.model.problem import Problem
from placekit.objectives.makespan.arrays import csr_offsets
from placekit.objectives.makespan.instance import instance_of

_COSTS = ("bytes", "flops", "times")

REACH = 4096
"""A search for the fractal dimension of an op ends with the distance at which it has reached this many ops."""

_MAX_RANK = 6
_FREQUENCIES = 8
_LARGEST_LOG_RATIO = 5.0  # a device 150 times slower is as good as never chosen


def op_features(
    problem: Problem,
    *,
    # False to leave bytes, flops and times out: their columns are zero, so that the width stays the same
    has_costs: bool = True,
) -> NDArray[np.float32]:
    """``[num_ops, num_features]`` features of the ops of `problem`; see the module docstring.

    O(ops * min(ops + edges, `REACH` * degree)), for the fractal dimension; the rest is linear.
    """
    graph = problem.graph
    written = sum_by(graph.tensor_producer, graph.tensor_bytes, graph.num_ops)
    columns = {
        "type": np.eye(UNKNOWN_TYPE + 1)[type_columns(graph.op_types)],
        "degree": np.concatenate([_degree_one_hot(graph.receivers, graph), _degree_one_hot(graph.senders, graph)], 1),
        "fractal": _standardised(fractal_dimension(graph)[:, None]),
        "shape": _standardised(_shapes(graph)),
        "bytes": _standardised(np.log1p(np.stack([written, problem.costs.op_memory_bytes], axis=1))),
        "flops": _standardised(np.log1p(np.stack([graph.op_flops, graph.op_weight_bytes], axis=1))),
        "times": _times(problem),
        "order": _places(graph),
    }
    kept = [values * (has_costs or name not in _COSTS) for name, values in columns.items()]
    return np.concatenate(kept, axis=1).astype(np.float32)


def group_sums(values: NDArray[np.floating[Any]], group: NDArray[np.int64], num_groups: int) -> NDArray[np.float64]:
    """``[num_groups, ...]`` sums of the rows of `values` ``[num, ...]`` that share a group."""
    total = np.zeros((num_groups, *values.shape[1:]))
    np.add.at(total, group, values)
    return total


def group_means(values: NDArray[np.float32], group_of_op: NDArray[np.int64]) -> NDArray[np.float32]:
    """``[num_groups, columns]`` means of the rows of `values` ``[num_ops, columns]`` that share a group."""
    size = np.bincount(group_of_op)
    return (group_sums(values, group_of_op, len(size)) / size[:, None]).astype(np.float32)


def group_edges(problem: Problem, group_of_op: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return senders and receivers of the distinct edges between different groups, sorted."""
    num_groups = int(group_of_op.max()) + 1
    senders, receivers = group_of_op[problem.graph.senders], group_of_op[problem.graph.receivers]
    senders, receivers = np.divmod(distinct((senders * num_groups + receivers)[senders != receivers]), num_groups)
    return senders, receivers


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return columns of mean 0 and deviation 1; zeros for a column that is constant."""
    centred = values - values.mean(axis=0)
    deviation = centred.std(axis=0)
    scaled: NDArray[np.float64] = centred / np.where(deviation > 1e-9, deviation, np.inf)
    return scaled


def _degree_one_hot(ends: NDArray[np.int64], graph: OpGraph) -> NDArray[np.float64]:
    degree = np.bincount(ends, minlength=graph.num_ops)
    one_hot: NDArray[np.float64] = np.eye(7)[np.searchsorted([1, 2, 3, 4, 8, 16], degree, side="right")]
    return one_hot


def _shapes(graph: OpGraph) -> NDArray[np.float64]:
    shapes = np.zeros((graph.num_ops, _MAX_RANK))
    first: dict[int, tuple[int, ...]] = {}
    for producer, shape in zip(graph.tensor_producer.tolist(), graph.tensor_shapes, strict=True):
        first.setdefault(producer, shape)
    for op, shape in first.items():
        known = [max(size, 0) for size in shape[:_MAX_RANK]]  # a dynamic dimension counts as none
        shapes[op, : len(known)] = np.log1p(known)
    return shapes


def _times(problem: Problem) -> NDArray[np.float64]:
    instance, platform = instance_of(problem), problem.platform
    times = problem.costs.op_time_s[:, platform.kind_of_device]
    known = times[instance.allowed & (times > 0)]
    # zeros and times where an op may not go must not stretch the scale
    floor = float(known.min()) if known.size else 1.0
    log_times = np.log(np.maximum(times, floor))
    log_times = np.where(instance.allowed, log_times, log_times.max(axis=1, keepdims=True))
    ratio = np.minimum(log_times - log_times.min(axis=1, keepdims=True), _LARGEST_LOG_RATIO)
    return np.concatenate([_standardised(log_times), ratio, instance.allowed], axis=1)


def _places(graph: OpGraph) -> NDArray[np.float64]:
    angle = np.pi * graph.rank[:, None] / graph.num_ops * 2.0 ** np.arange(_FREQUENCIES)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def fractal_dimension(graph: OpGraph) -> NDArray[np.float64]:
    """``[num_ops]`` node fractal dimension: the slope of log N(r) over log r.

    N(r) is the number of other ops within r hops along edges in either direction; the slope is fitted by least squares
    over every distance at which there is an op, up to the one at which `REACH` ops are reached. 0 where there are fewer
    than two distances. An infinite line has dimension 1, a grid 2. (Directed distances leave most of a DAG unreachable,
    and the fit meaningless.)

    Examples
    --------
    >>> line = OpGraph.from_edges(list("abcde"), [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
    >>> fractal_dimension(line).round(2).tolist()
    [1.0, 0.63, 1.0, 0.63, 1.0]
    """
    ends = np.concatenate([graph.senders, graph.receivers])
    others = np.concatenate([graph.receivers, graph.senders])
    offsets = csr_offsets(ends, graph.num_ops)
    dimension = np.empty(graph.num_ops)
    _fractal(offsets, others[np.argsort(ends, kind="stable")], REACH, dimension)
    return dimension


@njit
def _fractal(offsets, others, reach, dimension):  # type: ignore[no-untyped-def]  # compiled
    """Breadth-first search from every op over CSR neighbours; write the slopes. O(V (V + E)) or less by `reach`."""
    num_ops = len(dimension)
    seen = np.full(num_ops, -1, dtype=np.int64)
    queue = np.empty(num_ops, dtype=np.int64)
    for origin in range(num_ops):
        seen[origin] = origin
        queue[0] = origin
        begin, end, distance, count = 0, 1, 0, 0
        sum_x, sum_y, sum_xx, sum_xy = 0.0, 0.0, 0.0, 0.0
        while begin < end <= reach:
            tail = end
            for at in range(begin, end):
                for i in range(offsets[queue[at]], offsets[queue[at] + 1]):
                    if seen[others[i]] != origin:
                        seen[others[i]] = origin
                        queue[tail] = others[i]
                        tail += 1
            begin, end = end, tail
            distance += 1
            if begin < end:
                x, y = np.log(distance), np.log(end - 1)
                sum_x += x
                sum_y += y
                sum_xx += x * x
                sum_xy += x * y
                count += 1
        spread = count * sum_xx - sum_x * sum_x
        dimension[origin] = (count * sum_xy - sum_x * sum_y) / spread if count > 1 else 0.0
