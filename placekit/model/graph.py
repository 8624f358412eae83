"""The computation graph: ops, and tensors as hyperedges, in flat arrays.

A tensor has one producer and any number of consumers, so that a transfer can be charged once per device however
many edges carry the tensor. An op with several outputs produces several tensors.

Shapes
------
``[num_ops]`` and ``[num_tensors]`` arrays run in the order of ``op_names`` and of the tensors; consumers are
stored in CSR form: tensor ``t`` is consumed by ``consumers[consumer_offsets[t]:consumer_offsets[t + 1]]``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.arrays import distinct, sum_by, topological_order
from placekit.model.errors import InvalidGraphError, InvalidProblemError, PlacekitError

if TYPE_CHECKING:
    import networkx

DYNAMIC = -1
"""Stands for a dimension of a tensor shape that is only known when the model runs."""


def frozen_array(
    values: ArrayLike, dtype: type, shape: tuple[int, ...], what: str, wrong: type[PlacekitError] = InvalidProblemError
) -> NDArray[Any]:
    """Copy `values` into a read-only array of `dtype`; raise `wrong` with the name `what` if the shape is another."""
    try:
        array: NDArray[Any] = np.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"{what} cannot be read as {np.dtype(dtype).name}: {error}") from error
    if array.shape != shape:
        raise wrong(f"{what} has shape {array.shape}; expected {shape}")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class OpGraph:
    """A computation graph of ops and tensors. Immutable; validated at construction.

    Parameters
    ----------
    name
        Name of the model.
    op_names, op_types
        ``[num_ops]`` unique names and operator types.
    tensor_producer
        ``[num_tensors]`` index of the op that writes each tensor.
    consumer_offsets, consumers
        CSR lists of the ops that read each tensor, ``[num_tensors + 1]`` and ``[num_edges]``.
    tensor_bytes
        ``[num_tensors]`` size of each tensor in bytes (0 where it is not known).
    op_flops
        ``[num_ops]`` floating-point operations (a multiply-add counts 2); zeros by default.
    op_weight_bytes
        ``[num_ops]`` bytes of the constants that follow this op; zeros by default.
    is_backward
        ``[num_ops]`` True for the backward (gradient) ops of a training graph; all False by default.
    tensor_shapes
        ``[num_tensors]`` shapes, `DYNAMIC` for an unknown dimension; empty tuples by default.

    Raises
    ------
    InvalidGraphError
        A duplicate name, an index out of range, an op that consumes its own tensor, a cycle, a negative or
        non-finite size, or arrays of different lengths.

    Examples
    --------
    >>> graph = OpGraph.from_edges(["a", "b", "c"], [("a", "b"), ("a", "c"), ("b", "c")])
    >>> graph
    OpGraph('graph', 3 ops, 2 tensors, 3 edges)
    >>> [graph.op_names[op] for op in graph.consumers_of(0)]
    ['b', 'c']
    """

    name: str
    op_names: tuple[str, ...]
    op_types: tuple[str, ...]
    tensor_producer: NDArray[np.int64]
    consumer_offsets: NDArray[np.int64]
    consumers: NDArray[np.int64]
    tensor_bytes: NDArray[np.float64]
    op_flops: NDArray[np.float64] = None  # type: ignore[assignment]  # None = zeros, filled below
    op_weight_bytes: NDArray[np.float64] = None  # type: ignore[assignment]
    is_backward: NDArray[np.bool_] = None  # type: ignore[assignment]
    tensor_shapes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        num_ops, num_tensors = len(self.op_names), len(self.tensor_producer)

        def settle(field: str, dtype: type, shape: tuple[int, ...], default: float | None = None) -> None:
            value = getattr(self, field)
            value = np.full(shape, default) if value is None else value
            array = frozen_array(value, dtype, shape, f"graph {self.name!r}: {field}", InvalidGraphError)
            object.__setattr__(self, field, array)

        object.__setattr__(self, "op_names", tuple(self.op_names))
        object.__setattr__(self, "op_types", tuple(self.op_types))
        shapes = tuple(tuple(int(dim) for dim in shape) for shape in self.tensor_shapes)
        object.__setattr__(self, "tensor_shapes", shapes or ((),) * num_tensors)
        settle("tensor_producer", np.int64, (num_tensors,))
        settle("consumer_offsets", np.int64, (num_tensors + 1,))
        settle("consumers", np.int64, (len(self.consumers),))
        settle("tensor_bytes", np.float64, (num_tensors,))
        settle("op_flops", np.float64, (num_ops,), 0)
        settle("op_weight_bytes", np.float64, (num_ops,), 0)
        settle("is_backward", np.bool_, (num_ops,), 0)
        self._validate()

    def _validate(self) -> None:
        where = f"graph {self.name!r}"
        if len(self.op_types) != self.num_ops:
            raise InvalidGraphError(f"{where}: {len(self.op_types)} op_types for {self.num_ops} ops")
        if len(self.tensor_shapes) != self.num_tensors:
            raise InvalidGraphError(f"{where}: {len(self.tensor_shapes)} tensor_shapes for {self.num_tensors} tensors")
        if len(set(self.op_names)) != self.num_ops:
            seen: set[str] = set()
            twice = next(name for name in self.op_names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise InvalidGraphError(f"{where}: op name {twice!r} appears twice; names must be unique")
        offsets = self.consumer_offsets
        if offsets[0] != 0 or offsets[-1] != len(self.consumers) or (np.diff(offsets) < 0).any():
            raise InvalidGraphError(f"{where}: consumer_offsets must rise from 0 to {len(self.consumers)}")
        for field in ("tensor_producer", "consumers"):
            values = getattr(self, field)
            bad = np.flatnonzero((values < 0) | (values >= self.num_ops))
            if bad.size:
                raise InvalidGraphError(
                    f"{where}: {field}[{bad[0]}] is {values[bad[0]]}; op indices run from 0 to {self.num_ops - 1}"
                )
        for field, names in (("op_flops", self.op_names), ("op_weight_bytes", self.op_names), ("tensor_bytes", None)):
            values = getattr(self, field)
            bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
            if bad.size:
                of = f"op {names[bad[0]]!r}" if names else f"tensor {bad[0]}"
                raise InvalidGraphError(f"{where}: {of} has {field} {values[bad[0]]}; it must be finite and >= 0")
        loops = np.flatnonzero(self._edge_producers == self.consumers)
        if loops.size:
            raise InvalidGraphError(f"{where}: op {self.op_names[self.consumers[loops[0]]]!r} consumes its own output")
        _, stuck = self._ordering
        if stuck.size:
            raise InvalidGraphError(f"{where}: the ops form a cycle: {' -> '.join(self._find_cycle(stuck))}")

    def _find_cycle(self, stuck: NDArray[np.int64]) -> list[str]:
        """Name the ops of one cycle among `stuck`, by walking backwards until an op repeats."""
        within = set(stuck.tolist())
        parent = {
            int(v): int(u)
            for u, v in zip(self._edge_producers.tolist(), self.consumers.tolist(), strict=True)
            if u in within and v in within
        }
        walk = [next(node for node in stuck.tolist() if node in parent)]
        while walk[-1] not in walk[:-1]:
            walk.append(parent[walk[-1]])
        cycle = walk[walk.index(walk[-1]) :][::-1]
        shown = [self.op_names[op] for op in cycle]
        return shown if len(shown) <= 8 else [*shown[:4], "...", *shown[-3:]]

    @classmethod
    def from_edges(
        cls,
        op_names: Sequence[str],
        edges: Iterable[tuple[str, str]],
        *,
        name: str = "graph",
        op_types: Sequence[str] | None = None,
        output_bytes: ArrayLike | None = None,
        is_backward: ArrayLike | None = None,
    ) -> Self:
        """Build a graph with one tensor per op that has consumers, from edges between op names.

        Parameters
        ----------
        op_names
            ``[num_ops]`` unique names.
        edges
            Pairs (producer, consumer); repeated edges count once.
        name
            Name of the graph.
        op_types
            ``[num_ops]`` operator types; ``"Op"`` by default.
        output_bytes
            ``[num_ops]`` bytes of each op's tensor; zeros by default.
        is_backward
            ``[num_ops]`` True for backward ops.

        Raises
        ------
        InvalidGraphError
            An edge that names an unknown op, or anything the constructor refuses.
        """
        index = {op: i for i, op in enumerate(op_names)}
        readers: dict[int, dict[int, None]] = {}
        for producer, consumer in edges:
            for end in (producer, consumer):
                if end not in index:
                    raise InvalidGraphError(f"graph {name!r}: edge {producer!r} -> {consumer!r} names no op {end!r}")
            readers.setdefault(index[producer], {})[index[consumer]] = None
        producers = sorted(readers)
        sizes = np.zeros(len(op_names)) if output_bytes is None else np.asarray(output_bytes, dtype=np.float64)
        return cls(
            name=name,
            op_names=tuple(op_names),
            op_types=tuple(op_types) if op_types is not None else ("Op",) * len(op_names),
            tensor_producer=np.array(producers, dtype=np.int64),
            consumer_offsets=np.cumsum([0, *(len(readers[op]) for op in producers)], dtype=np.int64),
            consumers=np.array([c for op in producers for c in readers[op]], dtype=np.int64),
            tensor_bytes=sizes[producers],
            is_backward=None if is_backward is None else np.asarray(is_backward),  # type: ignore[arg-type]
        )

    @classmethod
    def from_networkx(cls, digraph: networkx.DiGraph[Any], *, name: str | None = None) -> Self:
        """Build a graph from a networkx digraph: its nodes are ops, one tensor leaves every node that has successors.

        Parameters
        ----------
        digraph
            Nodes may have the attributes ``type`` (text), ``bytes`` (of the output), ``flops``, ``weight_bytes`` and
            ``is_backward``; names of ops are the nodes as text. Attributes of edges are not looked at.
        name
            Name of the graph; by default that of the digraph.

        Raises
        ------
        InvalidGraphError
            A cycle, two nodes with the same text, or anything the constructor refuses.

        Examples
        --------
        >>> import networkx as nx
        >>> digraph = nx.DiGraph([("a", "b"), ("a", "c")], name="fork")
        >>> OpGraph.from_networkx(digraph)
        OpGraph('fork', 3 ops, 1 tensors, 2 edges)
        """
        if not digraph.is_directed():
            raise InvalidGraphError(f"graph {digraph.name!r}: an undirected graph says nothing about the order of ops")

        def column(attribute: str, default: Any) -> list[Any]:
            return [data.get(attribute, default) for _, data in digraph.nodes(data=True)]

        graph = cls.from_edges(
            [str(node) for node in digraph.nodes],
            [(str(producer), str(consumer)) for producer, consumer in digraph.edges()],
            name=name or digraph.name or "graph",
            op_types=column("type", "Op"),
            output_bytes=column("bytes", 0.0),
            is_backward=column("is_backward", False),
        )
        return graph.replace(op_flops=column("flops", 0.0), op_weight_bytes=column("weight_bytes", 0.0))

    def to_networkx(self) -> networkx.DiGraph[str]:
        """Return the graph as a networkx digraph, with the attributes that `from_networkx` reads.

        ``bytes`` of a node is the sum over its tensors; every edge has the ``bytes`` of the tensors that it carries.
        """
        import networkx as nx

        digraph: networkx.DiGraph[str] = nx.DiGraph(name=self.name)
        written = sum_by(self.tensor_producer, self.tensor_bytes, self.num_ops)
        for op, op_name in enumerate(self.op_names):
            digraph.add_node(
                op_name,
                type=self.op_types[op],
                bytes=float(written[op]),
                flops=float(self.op_flops[op]),
                weight_bytes=float(self.op_weight_bytes[op]),
                is_backward=bool(self.is_backward[op]),
            )
        for tensor, reader in zip(self.consumed_tensor.tolist(), self.consumers.tolist(), strict=True):
            ends = self.op_names[self.tensor_producer[tensor]], self.op_names[reader]
            carried = digraph.edges[ends]["bytes"] if digraph.has_edge(*ends) else 0.0
            digraph.add_edge(*ends, bytes=carried + float(self.tensor_bytes[tensor]))
        return digraph

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.op_names)

    @property
    def num_tensors(self) -> int:
        """Number of tensors."""
        return len(self.tensor_producer)

    @property
    def num_edges(self) -> int:
        """Number of distinct (producer op, consumer op) pairs."""
        return len(self.senders)

    def consumers_of(self, tensor: int) -> NDArray[np.int64]:
        """Return the indices of the ops that read `tensor`."""
        return self.consumers[self.consumer_offsets[tensor] : self.consumer_offsets[tensor + 1]]

    @cached_property
    def consumed_tensor(self) -> NDArray[np.int64]:
        """``[len(consumers)]`` tensor of each entry of `consumers`."""
        return np.repeat(np.arange(self.num_tensors), np.diff(self.consumer_offsets))

    @cached_property
    def _edge_producers(self) -> NDArray[np.int64]:
        return self.tensor_producer[self.consumed_tensor]

    @cached_property
    def _edges(self) -> NDArray[np.int64]:
        """``[2, num_edges]`` distinct (sender, receiver) pairs, sorted."""
        keys = distinct(self._edge_producers * max(self.num_ops, 1) + self.consumers)
        return np.stack(np.divmod(keys, max(self.num_ops, 1)))

    @property
    def senders(self) -> NDArray[np.int64]:
        """``[num_edges]`` producing op of each distinct edge."""
        senders: NDArray[np.int64] = self._edges[0]
        return senders

    @property
    def receivers(self) -> NDArray[np.int64]:
        """``[num_edges]`` consuming op of each distinct edge."""
        receivers: NDArray[np.int64] = self._edges[1]
        return receivers

    @cached_property
    def _ordering(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return topological_order(self.num_ops, self._edge_producers, self.consumers)

    @property
    def order(self) -> NDArray[np.int64]:
        """``[num_ops]`` one topological order of the ops."""
        return self._ordering[0]

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """``[num_ops]`` place of every op in `order`."""
        return np.argsort(self.order)

    @property
    def ordered_edges(self) -> list[tuple[int, int]]:
        """Sender and receiver of every edge, along `order`."""
        along = np.argsort(self.rank[self.senders], kind="stable")
        return list(zip(self.senders[along].tolist(), self.receivers[along].tolist(), strict=True))

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Index of every op by name."""
        return {name: op for op, name in enumerate(self.op_names)}

    @cached_property
    def content_hash(self) -> str:
        """Hexadecimal digest of everything but the graph's name."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.op_names, self.op_types, self.tensor_shapes)).encode())
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                digest.update(field.name.encode() + value.tobytes())
        return digest.hexdigest()

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        return replace(self, **changes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpGraph) and self.name == other.name and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash((self.name, self.content_hash))

    def __repr__(self) -> str:
        return f"OpGraph({self.name!r}, {self.num_ops} ops, {self.num_tensors} tensors, {self.num_edges} edges)"
