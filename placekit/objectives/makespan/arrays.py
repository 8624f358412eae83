"""A problem as the makespan kernels see it: flat arrays, no names, no Python objects.

Shapes
------
``V`` ops, ``T`` tensors, ``E`` (tensor, reader) pairs, ``D`` devices, ``K`` kinds, ``L`` direct links, ``G`` groups
of devices that have the same ones. Index arrays are int64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class MakespanInstance(NamedTuple):
    """The arrays of one problem; a named tuple, so that numba kernels take it as one argument."""

    op_time_s: NDArray[np.float64]  # ``[V, K]`` seconds of each op; 0 where not supported
    is_supported: NDArray[np.bool_]  # ``[V, K]`` False where the kind cannot run the op
    # ``[V, D]`` True where the op's whole class is supported and no pin of the class forbids the device
    allowed: NDArray[np.bool_]
    kind: NDArray[np.int64]  # ``[D]`` kind of each device
    class_of_op: NDArray[np.int64]  # ``[V]`` class of each op; the ops of a class share a device
    # memory_bytes, limit_bytes: ``[V]`` bytes of each op; ``[D]`` limit with the judge's tolerance, infinity for none
    memory_bytes: NDArray[np.float64]
    limit_bytes: NDArray[np.float64]
    # order, rank: ``[V]`` a topological order of the ops (`OpGraph.order`), and the position of each op in it
    order: NDArray[np.int64]
    rank: NDArray[np.int64]
    # out_offsets, out_tensors: CSR lists of the tensors that each op produces, ascending, ``[V + 1]`` and ``[T]``
    out_offsets: NDArray[np.int64]
    out_tensors: NDArray[np.int64]
    # in_offsets, in_tensors: CSR lists of the tensors that each op reads, ascending and distinct, ``[V + 1]`` and
    # ``[E]``
    in_offsets: NDArray[np.int64]
    in_tensors: NDArray[np.int64]
    producer: NDArray[np.int64]  # ``[T]`` op that produces each tensor
    # reader_offsets, readers: CSR lists of the ops that read each tensor, ascending and distinct, ``[T + 1]`` and
    # ``[E]``
    reader_offsets: NDArray[np.int64]
    readers: NDArray[np.int64]
    # ``[E]`` the same readers of every tensor in the order in which, with contention, their devices receive it: the
    # largest upward rank first, ties by topological position. As `readers` for objectives other than the makespan.
    readers_in_turn: NDArray[np.int64]
    # edge_offsets, edge_readers, edge_tensors: CSR lists of what each op's end sets off: readers of its tensors and the
    # tensor that each reads, by tensor, then by reader, ``[V + 1]`` and ``[E]``
    edge_offsets: NDArray[np.int64]
    edge_readers: NDArray[np.int64]
    edge_tensors: NDArray[np.int64]
    # ``[T, K]`` seconds of each tensor on the own link of each kind: from device a to b it takes the sum of both
    transfer_s: NDArray[np.float64]
    # group, link: ``[D]`` group of each device, and ``[G, G]`` direct link of two devices by their groups; -1 for the
    # way through host memory. One group, and no link, where no devices have direct links.
    group: NDArray[np.int64]
    link: NDArray[np.int64]
    # ``[T, L]`` seconds of each tensor over each direct link; :func:`~placekit.objectives.makespan.moves.move_s` takes
    # either
    direct_s: NDArray[np.float64]

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.rank)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.kind)

    @property
    def tensor_of_reader(self) -> NDArray[np.int64]:
        """``[E]`` tensor that each of `readers` reads."""
        tensors: NDArray[np.int64] = np.repeat(np.arange(len(self.producer)), np.diff(self.reader_offsets))
        return tensors


def frozen(instance: MakespanInstance) -> MakespanInstance:
    """Return an instance of read-only arrays: with others every kernel would be compiled once more."""
    return MakespanInstance(*map(kernel_array, instance))


def csr_offsets(labels: NDArray[np.int64], num_labels: int) -> NDArray[np.int64]:
    """``[num_labels + 1]`` CSR offsets of items sorted by label."""
    counts = np.bincount(labels, minlength=num_labels)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def kernel_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only C-contiguous array: one signature for the compiled kernels, whatever the source."""
    array = np.ascontiguousarray(array).view()
    array.setflags(write=False)
    return array
