"""Memory that the processes of a pipeline share, and the messages between them.

The memory is an anonymous file that is handed down as an open descriptor. It has no name that could be left behind:
the system frees it when the last process that maps it is gone, however that process ended.

Every process has one pipe as its inbox. Whoever finishes a sample of a node writes the numbers of both, sixteen bytes,
into the inboxes of those that wait for it; the reader counts. Writes of so few bytes are never torn or mixed, and what
a process wrote to the shared memory before is visible to who reads the message after.

The members of a team agree on who runs what by a baton, a pipe with one byte in it: who has read the byte may look
which samples are begun, take the next one, and puts the byte back.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.pipeline_flow import Wiring
from placekit.cost_models.openvino.split import TensorKey
from placekit.model.errors import ExecutionError, UnsupportedProblemError

__all__ = [
    "Layout",
    "SharedMemory",
    "TensorSpec",
    "holding",
    "lay_out",
    "make_baton",
    "make_inbox",
    "read_messages",
    "send_message",
]

_ALIGNMENT = 64
_MESSAGE = struct.Struct("=QQ")
_READ_BYTES = 1 << 16  # a multiple of the size of a message
_BATON = b"|"
_Tensor = TypeVar("_Tensor")


@dataclass(frozen=True)
class TensorSpec:
    """What is in a slot.

    Parameters
    ----------
    kind
        Element type, by the name that the framework has for it.
    shape
        Its dimensions.
    num_bytes
        Bytes of all elements.
    """

    kind: str
    shape: tuple[int, ...]
    num_bytes: int


@dataclass(frozen=True)
class Layout:
    """Where everything is in the shared memory.

    Parameters
    ----------
    num_workers, num_stages, num_times
        Sizes of the tables at the start: what each worker is running, which samples each stage has begun, and when and
        on which member it ran them.
    tensors
        What is in the slots of a tensor, and the offset of each, by tensor key.
    num_bytes
        Size of the memory.
    """

    num_workers: int
    num_stages: int
    num_times: int
    tensors: Mapping[TensorKey, tuple[TensorSpec, tuple[int, ...]]]
    num_bytes: int


def lay_out(num_workers: int, num_times: int, wiring: Wiring, specs: Mapping[TensorKey, TensorSpec]) -> Layout:
    """Give every slot of every ring its place.

    Parameters
    ----------
    num_workers
        Number of worker processes.
    num_times
        Samples whose stage times have a place.
    wiring
        The pipeline.
    specs
        What every tensor is.
    """
    offset = _aligned(8 * (num_workers + wiring.num_stages) + 24 * wiring.num_stages * num_times)
    tensors = {}
    for key, node in wiring.writer.items():
        size, depth = _aligned(specs[key].num_bytes), wiring.depth[node]
        tensors[key] = (specs[key], tuple(offset + size * slot for slot in range(depth)))
        offset += size * depth
    return Layout(num_workers, wiring.num_stages, num_times, tensors, offset)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


class SharedMemory:
    """The shared memory of one pipeline, as seen by one process.

    Parameters
    ----------
    descriptor
        Open file; stays the caller's.
    layout
        What is where.
    """

    def __init__(self, descriptor: int, layout: Layout) -> None:
        self._layout = layout
        self._bytes = np.frombuffer(mmap.mmap(descriptor, max(layout.num_bytes, 1)), dtype=np.uint8)
        num_stages, num_times = layout.num_stages, layout.num_times
        sizes = (layout.num_workers, num_stages, num_stages * num_times, 2 * num_stages * num_times)
        ends = np.cumsum(sizes) * 8
        running, begun, members, times = (
            self._bytes[end - 8 * size : end] for size, end in zip(sizes, ends.tolist(), strict=True)
        )
        #: ``[num_workers]`` 1 + the stage that each worker runs; 0 for none
        self.running: NDArray[np.int64] = running.view(np.int64)
        #: ``[num_stages]`` samples that each stage has begun; kept where a team of several shares them
        self.begun: NDArray[np.int64] = begun.view(np.int64)
        #: ``[num_stages, num_times]`` which member of its team ran each stage, by sample modulo num_times
        self.members: NDArray[np.int64] = members.view(np.int64).reshape(num_stages, num_times)
        #: ``[num_stages, num_times, 2]`` start and end of each stage, by sample modulo num_times
        self.times_s: NDArray[np.float64] = times.view(np.float64).reshape(num_stages, num_times, 2)

    @staticmethod
    def create(layout: Layout) -> int:
        """Return the descriptor of a new memory, all zeros and all of it reserved.

        Raises
        ------
        ExecutionError
            There is not that much memory.
        """
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("placekit")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        try:
            os.ftruncate(descriptor, max(layout.num_bytes, 1))
            if hasattr(os, "posix_fallocate"):  # without, too little memory kills whoever touches it
                os.posix_fallocate(descriptor, 0, max(layout.num_bytes, 1))
        except OSError as error:
            os.close(descriptor)
            raise ExecutionError(f"{layout.num_bytes} bytes of shared memory cannot be had: {error}") from error
        return descriptor

    def ring(self, key: TensorKey, view: Callable[[NDArray[np.uint8], TensorSpec], _Tensor]) -> list[_Tensor]:
        """Return the slots of a tensor, each as what `view` makes of its bytes."""
        spec, offsets = self._layout.tensors[key]
        return [view(self._bytes[offset : offset + spec.num_bytes], spec) for offset in offsets]


def make_inbox(wiring: Wiring) -> tuple[int, int]:
    """Return the reading and the writing end of a pipe that no message ever waits to enter.

    While a worker does not read, its nodes stand still, and both ends of an edge can come at most the depth of its ring
    closer or further apart. So no more than ``2 * depth`` messages per edge are ever unread. In a team the others go
    on, but not beyond the sample that does not get through: two nodes are never further apart than all rings together.

    Raises
    ------
    UnsupportedProblemError
        The system does not give pipes of that size.
    """
    reader, writer = os.pipe()
    has_teams = max(wiring.team_size, default=1) > 1
    edges = zip(wiring.depth, wiring.consumers, strict=True)
    apart = sum(wiring.depth)
    num_unread = 2 * sum((apart if has_teams else depth) * len(consumers) for depth, consumers in edges)
    wanted = _MESSAGE.size * num_unread
    if hasattr(fcntl, "F_GETPIPE_SZ") and fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) < wanted:
        try:
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, wanted)
        except OSError as error:
            os.close(reader)
            os.close(writer)
            raise UnsupportedProblemError(
                f"a pipeline of {wiring.num_stages} stages needs pipes of {wanted} bytes: {error}"
            ) from error
    return reader, writer


def send_message(inboxes: Iterable[int], node: int, sample: int = 0) -> None:
    """Tell others that `node` is done with `sample`; those that are gone are left out."""
    for inbox in inboxes:
        try:
            os.write(inbox, _MESSAGE.pack(node, sample))
        except BrokenPipeError:  # its end is noticed, and reported, by the process that started it
            continue


def read_messages(inbox: int) -> list[tuple[int, int]]:
    """Wait for messages and return their nodes and samples; empty when nobody can write any more."""
    return list(_MESSAGE.iter_unpack(os.read(inbox, _READ_BYTES)))


def make_baton() -> tuple[int, int]:
    """Return both ends of a baton that nobody holds."""
    reader, writer = os.pipe()
    os.write(writer, _BATON)
    return reader, writer


@contextmanager
def holding(baton: tuple[int, int]) -> Iterator[None]:
    """Wait for the baton, and give it back at the end."""
    reader, writer = baton
    os.read(reader, 1)
    try:
        yield
    finally:
        os.write(writer, _BATON)
