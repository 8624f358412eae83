"""Shapes of computation graphs, in linear time: what is computed from what, and how heavy it is.

A shape has relative work, relative tensor sizes and weights, but no costs. What it leaves open (heads, shards, tiles,
width) is drawn from the seed. From 144 ops on everything fits, so that the draws are the same in every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MIN_OPS = 20
"""Smallest size that every shape can be made in: one block of the chained matrix products."""


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph without costs."""

    op_types: tuple[str, ...]  # ``[num_ops]`` operator types
    work: NDArray[np.float64]  # ``[num_ops]`` relative work, above 0
    weight: NDArray[np.float64]  # ``[num_ops]`` relative size of the weights; 0 for an op without
    # tensor_producer, consumer_offsets, consumers: the tensors, as in `OpGraph`; each has at least one consumer
    tensor_producer: NDArray[np.int64]
    consumer_offsets: NDArray[np.int64]
    consumers: NDArray[np.int64]
    tensor_size: NDArray[np.float64]  # ``[num_tensors]`` relative size, above 0

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.op_types)


def _assemble(
    op_types: Sequence[str],
    work: NDArray[np.float64],
    weight: NDArray[np.float64],
    size: NDArray[np.float64],
    edges: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> Topology:
    """Turn edges (producer, its output port, consumer) into tensors, one per producer and port. O(edges log edges)."""
    producers, ports, consumers = edges
    num_ports = int(ports.max(initial=0)) + 1
    num_ops = len(op_types)
    # repeated edges count once; sorted by tensor, then by consumer
    keys = np.unique((producers * num_ports + ports) * num_ops + consumers)
    tensor_keys, first = np.unique(keys // num_ops, return_index=True)
    producer = tensor_keys // num_ports
    # the outputs of one op share its size
    num_outputs = np.bincount(producer, minlength=num_ops)
    return Topology(
        op_types=tuple(op_types),
        work=work,
        weight=weight,
        tensor_producer=producer,
        consumer_offsets=np.append(first, len(keys)).astype(np.int64),
        consumers=keys % num_ops,
        tensor_size=size[producer] / num_outputs[producer],
    )


@dataclass
class _Block:
    """One block of a graph that repeats, built op by op.

    An input below 0 stands for an outlet of the block before: ``-1 - number`` of the outlet.
    """

    op_types: list[str] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    outlets: list[int] = field(default_factory=list)

    def op(self, op_type: str, *inputs: int, work: float = 0.1, weight: float = 0.0, size: float = 1.0) -> int:
        """Append an op that reads `inputs`; return its number."""
        number = len(self.op_types)
        self.op_types.append(op_type)
        self.work.append(work)
        self.weight.append(weight)
        self.size.append(size)
        self.edges += [(source, number) for source in inputs]
        return number

    def repeated(
        self,
        entry: _Block,  # what comes first; it has as many outlets as the block
        entry_ports: Sequence[int],  # output port of each outlet of `entry`
        num_blocks: int,  # at least 1
    ) -> Topology:
        """Return `entry`, then `num_blocks` copies of the block in a row."""
        start, per_block = len(entry.op_types), len(self.op_types)
        sources, targets = np.array(self.edges, dtype=np.int64).T
        shift = start + per_block * np.arange(num_blocks)[:, None]
        outer = sources < 0
        outlet = -1 - sources[outer]
        before = np.array(self.outlets, dtype=np.int64)[outlet] + shift - per_block
        before[0] = np.array(entry.outlets, dtype=np.int64)[outlet]
        port = np.zeros_like(before)
        port[0] = np.array(entry_ports, dtype=np.int64)[outlet]
        inside = sources[~outer] + shift
        own = np.array(entry.edges, dtype=np.int64).reshape(-1, 2)
        producers = [own[:, 0], inside.ravel(), before.ravel()]
        consumers = [own[:, 1], (targets[~outer] + shift).ravel(), (targets[outer] + shift).ravel()]
        ports = [np.zeros(len(own) + inside.size, dtype=np.int64), port.ravel()]

        def column(first: list[float], block: list[float]) -> NDArray[np.float64]:
            return np.concatenate([np.array(first), np.tile(np.array(block), num_blocks)])

        return _assemble(
            entry.op_types + self.op_types * num_blocks,
            column(entry.work, self.work),
            column(entry.weight, self.weight),
            column(entry.size, self.size),
            (np.concatenate(producers), np.concatenate(ports), np.concatenate(consumers)),
        )


def _entry(op_type: str, num_ops: int = 1) -> _Block:
    entry = _Block()
    entry.outlets = [entry.op(op_type) for _ in range(num_ops)]
    return entry


def transformer(num_ops: int, rng: np.random.Generator) -> Topology:
    """Make transformer blocks at operator level, one attention head per branch.

    A block of ``h`` heads has ``10 + 6 h`` ops: norm; per head query, key, value, scores, softmax, context; concat,
    projection, residual add, norm, and the two matrix products of the MLP with the activation between and a residual
    add behind. ``h`` is 1, 2, 4 or 8, drawn among those of which a block fits.
    """
    heads = int(rng.choice([h for h in (1, 2, 4, 8) if 11 + 6 * h <= num_ops]))
    block = _Block()
    norm = block.op("LayerNorm", -1)
    contexts = []
    for _ in range(heads):
        query, key, value = (
            block.op("MatMul", norm, work=1 / heads, weight=1 / heads, size=1 / heads) for _ in range(3)
        )
        scores = block.op("MatMul", query, key, work=0.3 / heads, size=2 / heads)
        softmax = block.op("Softmax", scores, size=2 / heads)
        contexts.append(block.op("MatMul", softmax, value, work=0.3 / heads, size=1 / heads))
    joined = block.op("Concat", *contexts, work=0.02)
    projection = block.op("MatMul", joined, work=1.0, weight=1.0)
    residual = block.op("Add", projection, -1, work=0.03)
    norm = block.op("LayerNorm", residual)
    up = block.op("MatMul", norm, work=4.0, weight=4.0, size=4.0)
    bias = block.op("Add", up, work=0.05, size=4.0)
    active = block.op("Gelu", bias, size=4.0)
    down = block.op("MatMul", active, work=4.0, weight=4.0)
    block.outlets = [block.op("Add", down, residual, work=0.03)]
    return block.repeated(_entry("Embedding"), [0], (num_ops - 1) // len(block.op_types))


def feed_forward_shards(num_ops: int, rng: np.random.Generator) -> Topology:
    """Make a feed-forward network cut into shards: scatter, then layers of matrix products and reductions.

    The input is split into ``s`` slices. In each layer slice ``i`` meets the tiles ``W[i, 1..s]`` (so a slice is one
    tensor with ``s`` consumers), the partial products of a column are added, and an activation makes the next slice:
    ``s * s + 2 s`` ops. ``s`` is 2, 3, 4 or 8, drawn among those of which a layer fits.
    """
    shards = int(rng.choice([s for s in (2, 3, 4, 8) if 1 + s * s + 2 * s <= num_ops]))
    layer = _Block()
    products = [[layer.op("MatMul", -1 - row, work=1.0, weight=1.0) for _ in range(shards)] for row in range(shards)]
    sums = [layer.op("Sum", *(products[row][column] for row in range(shards))) for column in range(shards)]
    layer.outlets = [layer.op("Relu", total, work=0.05) for total in sums]
    scatter = _Block()
    scatter.outlets = [scatter.op("Split", size=float(shards))] * shards
    return layer.repeated(scatter, range(shards), (num_ops - 1) // len(layer.op_types))


def inception(num_ops: int, rng: np.random.Generator) -> Topology:
    """Make modules of four parallel branches that a concat joins, as in Inception-v3.

    The branches have one, two and three convolutions, and a pooling with one. A convolution is one op (a module has 9)
    or, where a module fits and the draw says so, three: convolution, bias, activation (a module has 23).
    """
    is_expanded = num_ops >= 24 and bool(rng.random() < 0.5)
    module = _Block()

    def convolve(source: int, work: float, channels: float) -> int:
        kernel = module.op("Convolution", source, work=work, weight=work, size=channels)
        if not is_expanded:
            return kernel
        bias = module.op("Add", kernel, work=0.05 * channels, size=channels)
        return module.op("Relu", bias, work=0.05 * channels, size=channels)

    plain = convolve(-1, 0.4, 0.3)
    middle = convolve(convolve(-1, 0.3, 0.2), 1.0, 0.3)
    wide = convolve(convolve(convolve(-1, 0.3, 0.2), 1.0, 0.3), 1.2, 0.3)
    pooled = convolve(module.op("MaxPool", -1, work=0.2), 0.2, 0.1)
    module.outlets = [module.op("Concat", plain, middle, wide, pooled, work=0.05)]
    return module.repeated(_entry("Parameter"), [0], (num_ops - 1) // len(module.op_types))


def chained_matmuls(num_ops: int, rng: np.random.Generator) -> Topology:
    """Make a chain of products of tiled matrices: ``C = A B`` with ``C[i, j] = sum over k of A[i, k] B[k, j]``.

    With ``t`` tiles a side a product takes ``t^3`` tile products, ``t^2 (t - 1)`` additions of partial sums and
    ``t^2`` tiles of ``B`` that are read: ``2 t^3`` ops; the tiles of ``C`` are those of the next ``A``. ``t`` is 2, 3
    or 4, drawn among those of which a product fits.

    References
    ----------
    Yao et al., "DOPPLER: Dual-Policy Learning for Device Assignment in Asynchronous Dataflow Graphs", 2025, uses
    chains of matrix products in this manner.
    """
    tiles = int(rng.choice([t for t in (2, 3, 4) if t * t + 2 * t**3 <= num_ops]))
    product = _Block()
    factor = [[product.op("Parameter", work=0.05) for _ in range(tiles)] for _ in range(tiles)]
    for i in range(tiles):
        for j in range(tiles):
            total = -1
            for k in range(tiles):
                part = product.op("MatMul", -1 - (i * tiles + k), factor[k][j], work=1.0)
                total = part if k == 0 else product.op("Add", total, part, work=0.05)
            product.outlets.append(total)
    entry = _entry("Parameter", tiles * tiles)
    return product.repeated(entry, [0] * tiles**2, (num_ops - tiles**2) // len(product.op_types))


def chains(num_ops: int, rng: np.random.Generator) -> Topology:
    """Make a chain that forks and joins: segments of one to four parallel branches of one to eight ops each.

    A segment begins with an op that joins the branches before and feeds those behind. What is left at the end is one
    more branch, so that there are exactly `num_ops` ops.
    """
    most = num_ops // 2 + 1  # a segment has at least two ops
    num_branches = rng.choice([1, 1, 2, 3, 4], size=most)
    lengths = rng.integers(1, 9, size=int(num_branches.sum()))
    segment = np.repeat(np.arange(most), num_branches)
    per_segment = 1 + np.bincount(segment, weights=lengths, minlength=most).astype(np.int64)
    # whole segments; the rest is at least a join and a tail of one op
    num_segments = int(np.searchsorted(np.cumsum(per_segment), num_ops - 2, side="right"))
    whole = segment < num_segments
    rest = num_ops - int(per_segment[:num_segments].sum())
    lengths = np.append(lengths[whole], rest - 1)
    segment = np.append(segment[whole], num_segments)
    joins = np.concatenate([[0], np.cumsum(per_segment[:num_segments])])
    # the ops of a branch follow each other; before the branches of each segment stands its join
    ends = np.cumsum(lengths) + segment + 1
    starts = ends - lengths
    op = np.arange(num_ops)
    is_last = np.zeros(num_ops, dtype=bool)
    is_last[ends - 1] = True
    is_join = np.zeros(num_ops, dtype=bool)
    is_join[joins] = True
    along = op[~is_last & ~is_join]
    inner = segment < num_segments
    producers = np.concatenate([joins[segment], along, ends[inner] - 1])
    consumers = np.concatenate([starts, along + 1, joins[segment[inner] + 1]])
    heavy = ~is_join & (rng.random(num_ops) < 0.5)
    work = np.where(heavy, 1.0, 0.1)
    op_types = np.where(is_join, "Concat", np.where(heavy, "Convolution", "Relu")).tolist()
    edges = producers, np.zeros_like(producers), consumers
    return _assemble(op_types, work, np.where(heavy, 1.0, 0.0), np.ones(num_ops), edges)


def layered(num_ops: int, rng: np.random.Generator) -> Topology:
    """Make a random layered DAG of exactly `num_ops` ops.

    Layers have 1 to ``2 w - 1`` ops with ``w`` between 2 and 12. An op reads one to three ops, of the layer before or,
    with probability 0.15 each, of one of the two layers before that; an op that nobody read is read by an op of the
    next layer, so that only the last layer has outputs.
    """
    width = int(rng.integers(2, min(12, num_ops // 5) + 1))
    sizes = rng.integers(1, 2 * width, size=num_ops)
    num_layers = int(np.searchsorted(np.cumsum(sizes), num_ops)) + 1
    offsets = np.minimum(np.concatenate([[0], np.cumsum(sizes[:num_layers])]), num_ops)
    layer = np.repeat(np.arange(num_layers), np.diff(offsets))

    def draw(layers: NDArray[np.int64]) -> NDArray[np.int64]:
        within = rng.random(len(layers)) * (offsets[layers + 1] - offsets[layers])
        drawn: NDArray[np.int64] = offsets[layers] + within.astype(np.int64)
        return drawn

    readers = np.repeat(np.arange(num_ops), rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2], size=num_ops))
    readers = readers[layer[readers] > 0]
    back = 1 + (rng.random(len(readers)) < 0.15) * rng.integers(1, 3, size=len(readers))
    sources = draw(np.maximum(layer[readers] - back, 0))
    unread = np.bincount(sources, minlength=num_ops) == 0
    unread &= layer < num_layers - 1
    lost = np.flatnonzero(unread)
    producers = np.concatenate([sources, lost])
    consumers = np.concatenate([readers, draw(layer[lost] + 1)])
    has_weight = rng.random(num_ops) < 0.5
    op_types = np.where(has_weight, "MatMul", "Add").tolist()
    edges = producers, np.zeros_like(producers), consumers
    return _assemble(op_types, np.ones(num_ops), np.where(has_weight, 1.0, 0.0), np.ones(num_ops), edges)
