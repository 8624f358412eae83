"""Builder of problems for people who begin in Python: devices, ops and tensors, added one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from placekit.model.contiguity import Contiguity
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, did_you_mean
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import UNPINNED, Problem
from placekit.objectives import Objective
from placekit.solve.result import Result
from placekit.solve.solve import solve


@dataclass(frozen=True, slots=True)
class _Op:
    name: str
    time_s: Mapping[str, float] | float
    memory_bytes: float
    device: str | None


@dataclass(frozen=True, slots=True)
class _Tensor:
    producer: str
    consumers: tuple[str, ...]
    num_bytes: float


class Model:
    """A problem under construction. Ops are known by name; the order of the calls does not matter.

    Parameters
    ----------
    name
        Name of the model.

    Examples
    --------
    >>> import placekit as pk
    >>> model = pk.Model()
    >>> model.add_device("cpu", is_host=True)
    >>> model.add_device("gpu", memory_bytes=8e9, latency_s=1e-5, bandwidth_bytes_per_s=16e9)
    >>> a = model.add_op("a", time_s={"cpu": 1e-3, "gpu": 2e-4})
    >>> b = model.add_op("b", time_s={"cpu": 1e-3}, memory_bytes=1e6)
    >>> model.add_tensor(a, [b], bytes=4e6)
    >>> result = model.solve()
    >>> str(result.status), dict(result.placement)
    ('optimal', {'a': 'gpu', 'b': 'cpu'})
    """

    def __init__(self, name: str = "model") -> None:
        self.name = name
        self._devices: list[Device] = []
        self._links: dict[str, Link] = {}
        self._ops: dict[str, _Op] = {}
        self._tensors: list[_Tensor] = []
        self._groups: list[list[str]] = []

    def add_device(
        self,
        name: str,
        kind: str | None = None,
        *,
        memory_bytes: float | None = None,
        is_host: bool = False,
        latency_s: float = 0.0,
        bandwidth_bytes_per_s: float = float("inf"),
    ) -> None:
        """Add a device.

        Parameters
        ----------
        name
            Name of the device, which placements use.
        kind
            Name under which `add_op` gives times; devices of one kind are alike. The device's own name by default.
        memory_bytes
            Memory in bytes; no limit by default.
        is_host
            True for a CPU, which works in host memory.
        latency_s, bandwidth_bytes_per_s
            Link between the device and host memory: seconds per transfer, and bytes per second. Free by default.

        Raises
        ------
        InvalidProblemError
            A value out of range, or a link that differs from the one of another device of this kind.
        """
        device = Device(name, kind or name, memory_bytes, is_host)
        if not is_host:
            link = Link(latency_s, bandwidth_bytes_per_s)
            if self._links.setdefault(device.kind, link) != link:
                raise InvalidProblemError(
                    f"device {name!r} has {link}, and other devices of kind {device.kind!r} have "
                    f"{self._links[device.kind]}; give the device a kind of its own"
                )
        self._devices.append(device)

    def add_op(
        self, name: str, *, time_s: Mapping[str, float] | float, memory_bytes: float = 0.0, device: str | None = None
    ) -> str:
        """Add an operator, and return its name.

        Parameters
        ----------
        name
            Unique name.
        time_s
            Seconds by kind of device; a kind that is not named cannot run the operator. One number if all are alike.
        memory_bytes
            Bytes that the operator takes on its device.
        device
            Name of the device that it is pinned to; any device by default.

        Raises
        ------
        InvalidProblemError
            A name that is taken.
        """
        if name in self._ops:
            raise InvalidProblemError(f"model {self.name!r} has an op {name!r} already")
        self._ops[name] = _Op(name, time_s, memory_bytes, device)
        return name

    def add_tensor(self, producer: str, consumers: Iterable[str], *, bytes: float = 0.0) -> None:  # noqa: A002
        """Add a tensor, which is sent to each other device that reads it once.

        Parameters
        ----------
        producer
            Name of the operator that writes the tensor.
        consumers
            Names of the operators that read the tensor.
        bytes
            Size of the tensor.

        Raises
        ------
        InvalidProblemError
            An operator that was not added.
        """
        readers = tuple(dict.fromkeys(consumers))
        self._require(producer, *readers)
        self._tensors.append(_Tensor(producer, readers, bytes))

    def colocate(self, ops: Iterable[str]) -> None:
        """Bind operators to one device, whichever it is."""
        group = list(ops)
        self._require(*group)
        self._groups.append(group)

    def problem(self, objective: Objective | None = None, contiguity: Contiguity | str | None = None) -> Problem:
        """Return the problem as it stands.

        Parameters
        ----------
        objective
            Objective to minimise; `Throughput` by default.
        contiguity
            Contiguity of the operators of a device; by default that of the objective.

        Raises
        ------
        InvalidProblemError
            No device, a time for a kind that no device has, or whatever `Problem` refuses.
        InvalidGraphError
            A cycle, or a size that is negative or not finite.
        """
        platform = Platform(tuple(self._devices), self._links)
        graph = self._graph()
        times = np.zeros((len(self._ops), len(platform.kinds)))
        supported = np.ones_like(times, dtype=bool)
        for row, op in enumerate(self._ops.values()):
            if isinstance(op.time_s, Mapping):
                for kind in op.time_s:
                    if kind not in platform.kinds:
                        raise InvalidProblemError(
                            f"model {self.name!r}: op {op.name!r} has a time on kind {kind!r}, which no device has"
                            f"{did_you_mean(kind, platform.kinds)}; kinds are {', '.join(platform.kinds)}"
                        )
                supported[row] = [kind in op.time_s for kind in platform.kinds]
                times[row] = [op.time_s.get(kind, 0.0) for kind in platform.kinds]
            else:
                times[row] = op.time_s
        transfer = np.zeros((graph.num_tensors, len(platform.kinds)))
        for column, kind in enumerate(platform.kinds):
            if kind in self._links:
                transfer[:, column] = self._links[kind].time_s(graph.tensor_bytes)
        memory = np.array([op.memory_bytes for op in self._ops.values()], dtype=np.float64)
        pinned = [UNPINNED if op.device is None else platform.index(op.device) for op in self._ops.values()]
        problem: Problem = Problem(
            graph,
            platform,
            CostTable(platform.kinds, times, transfer, memory, supported),
            objective,
            None if contiguity is None else Contiguity(contiguity),  # type: ignore[arg-type]  # None = the default
            pinned=np.array(pinned, dtype=np.int64),
        )
        return problem.colocate(*self._groups)

    def solve(
        self,
        method: str = "auto",
        *,
        objective: Objective | None = None,
        contiguity: Contiguity | str | None = None,
        **options: Any,
    ) -> Result:
        """Place the model; see `problem` for `objective` and `contiguity`, `placekit.solve` for all other options."""
        return solve(self.problem(objective, contiguity), method, **options)

    def __repr__(self) -> str:
        counts = f"{len(self._ops)} ops, {len(self._tensors)} tensors, {len(self._devices)} devices"
        return f"Model({self.name!r}: {counts})"

    def _require(self, *names: str) -> None:
        for name in names:
            if name not in self._ops:
                raise InvalidProblemError(f"model {self.name!r} has no op {name!r}{did_you_mean(name, self._ops)}")

    def _graph(self) -> OpGraph:
        names = tuple(self._ops)
        index = {name: op for op, name in enumerate(names)}
        consumers = [index[name] for tensor in self._tensors for name in tensor.consumers]
        return OpGraph(
            self.name,
            names,
            names,
            np.array([index[tensor.producer] for tensor in self._tensors], dtype=np.int64),
            np.cumsum([0, *(len(tensor.consumers) for tensor in self._tensors)]),
            np.array(consumers, dtype=np.int64),
            np.array([tensor.num_bytes for tensor in self._tensors], dtype=np.float64),
        )
