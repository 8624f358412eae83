"""Graphs without costs, made from arrays of edges or from one block that repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Topology", "assemble"]


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph without costs.

    Parameters
    ----------
    op_types
        ``[num_ops]`` operator types.
    work
        ``[num_ops]`` relative work, above 0.
    weight
        ``[num_ops]`` relative size of the weights; 0 for an op without.
    tensor_producer, consumer_offsets, consumers
        The tensors, as in `OpGraph`; each has at least one consumer.
    tensor_size
        ``[num_tensors]`` relative size, above 0.
    """

    op_types: tuple[str, ...]
    work: NDArray[np.float64]
    weight: NDArray[np.float64]
    tensor_producer: NDArray[np.int64]
    consumer_offsets: NDArray[np.int64]
    consumers: NDArray[np.int64]
    tensor_size: NDArray[np.float64]

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.op_types)


def assemble(
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
class Block:
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

    def repeated(self, entry: Block, entry_ports: Sequence[int], num_blocks: int) -> Topology:
        """Return `entry`, then `num_blocks` copies of the block in a row.

        Parameters
        ----------
        entry
            What comes first; it has as many outlets as the block.
        entry_ports
            Output port of each outlet of `entry`.
        num_blocks
            At least 1.
        """
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

        return assemble(
            entry.op_types + self.op_types * num_blocks,
            column(entry.work, self.work),
            column(entry.weight, self.weight),
            column(entry.size, self.size),
            (np.concatenate(producers), np.concatenate(ports), np.concatenate(consumers)),
        )
