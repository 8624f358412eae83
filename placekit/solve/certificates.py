r"""Certificates: small, typed proofs of bounds that anybody can check.

Ops, tensors and devices are positions in the problem's own lists. A *group* is a set of ops that must share a device:
the ops of one colocation label or fused group, and under acyclic contiguity the groups that lie on a common cycle of
the order graph (no acyclic placement can separate those). A certificate names a group by any of its ops. What each kind
proves, and why, is in :mod:`placekit.verification.proofs` and what it imports; the file format is in
``docs/verify.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

_PRICES, _ORDER = ("profile", "op", "seconds"), ("sender", "receiver", "seconds")
_CASE = "segment", "first", "last", "seconds"
"""Columns of prices, of the prices of an order, and of the cases of a series, in files."""


def _columns(rows: Iterable[tuple[Any, ...]], *names: str) -> dict[str, list[Any]]:
    """Return rows as JSON columns by name."""
    found: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    return dict(zip(names, found or [[] for _ in names], strict=True))


def _rows(data: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(zip(*(data[name] for name in names), strict=True))


@dataclass(frozen=True, slots=True)
class SharedWork:
    """Makespan: on each device the work of some ops fits between what precedes and what follows all of them."""

    kind: ClassVar[str] = "shared-work"

    # (devices, ops, weight): on each of the devices, the work of those of the ops that run there; and what a second of
    # it is worth
    rows: tuple[tuple[tuple[int, ...], tuple[int, ...], float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        rows = [{"devices": list(devices), "ops": list(ops), "weight": weight} for devices, ops, weight in self.rows]
        return {"kind": self.kind, "rows": rows}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SharedWork:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(tuple((tuple(row["devices"]), tuple(row["ops"]), row["weight"]) for row in data["rows"]))


@dataclass(frozen=True, slots=True)
class NoDevice:
    """Infeasible: no device supports all ops of a group, holds them, and respects their pins."""

    kind: ClassVar[str] = "no-device"

    op: int  # an op of the group

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {"kind": self.kind, "op": self.op}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NoDevice:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(data["op"])


@dataclass(frozen=True, slots=True)
class PricedNet:
    """Tensors whose transfer times are handed out to groups that they all touch: a flow through the net."""

    tensors: tuple[int, ...]
    # (profile, op, seconds): what the group of the op pays, or receives if negative, on a device of the profile
    prices: tuple[tuple[int, int, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the net as JSON values: the prices as columns."""
        return {"tensors": list(self.tensors), **_columns(self.prices, *_PRICES)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PricedNet:
        """Return the net that `to_dict` wrote (the data must already be validated)."""
        return cls(tuple(data["tensors"]), _rows(data, *_PRICES))


@dataclass(frozen=True, slots=True)
class PricedEdge:
    """An edge that is a share of a path, whose device changes cost subgraphs: the two ends hand the cost out."""

    # sender, receiver: its ops
    sender: int
    receiver: int
    weight: float  # share of the path
    prices: tuple[tuple[int, int, float], ...]  # as of `PricedNet`

    def to_dict(self) -> dict[str, Any]:
        """Return the edge as JSON values: the prices as columns."""
        ends = {"sender": self.sender, "receiver": self.receiver, "weight": self.weight}
        return ends | _columns(self.prices, *_PRICES)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PricedEdge:
        """Return the edge that `to_dict` wrote (the data must already be validated)."""
        return cls(data["sender"], data["receiver"], data["weight"], _rows(data, *_PRICES))


@dataclass(frozen=True, slots=True)
class Prices:
    """Dual multipliers: weights of devices, prices of memory and flows through nets; minimum cuts are among them."""

    kind: ClassVar[str] = "prices"

    profile_of_device: tuple[int, ...]  # ``[num_devices]`` the profile that each device is priced by
    # work_weight, transfer_weight: ``[num_profiles][num_passes]`` weight of a second of work, and of transfers, on such
    # a device. There are two passes (forward, backward) for throughput under ``gpipe``, otherwise one.
    work_weight: tuple[tuple[float, ...], ...]
    transfer_weight: tuple[tuple[float, ...], ...]
    memory_price: tuple[float, ...]  # ``[num_profiles]`` seconds per byte
    # (op, ``[num_passes]`` weights): weight of the time of the group of the op, wherever it is
    op_weight: tuple[tuple[int, tuple[float, ...]], ...] = ()
    nets: tuple[PricedNet, ...] = ()  # flows through nets
    edges: tuple[PricedEdge, ...] = ()  # serial latency: edges of paths along which subgraphs are counted

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {
            "kind": self.kind,
            "profile_of_device": list(self.profile_of_device),
            "work_weight": [list(row) for row in self.work_weight],
            "transfer_weight": [list(row) for row in self.transfer_weight],
            "memory_price": list(self.memory_price),
            "op_weight": _columns(((op, list(weights)) for op, weights in self.op_weight), "op", "weights"),
            "nets": [net.to_dict() for net in self.nets],
            **({"edges": [edge.to_dict() for edge in self.edges]} if self.edges else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prices:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(
            tuple(data["profile_of_device"]),
            tuple(tuple(row) for row in data["work_weight"]),
            tuple(tuple(row) for row in data["transfer_weight"]),
            tuple(data["memory_price"]),
            tuple((op, tuple(weights)) for op, weights in _rows(data["op_weight"], "op", "weights")),
            tuple(PricedNet.from_dict(net) for net in data["nets"]),
            tuple(PricedEdge.from_dict(edge) for edge in data.get("edges") or ()),
        )


@dataclass(frozen=True, slots=True)
class OrderedPrices:
    """Prices for placements in which one device comes before the other."""

    prices: Prices
    # (sender, receiver, seconds) of edges of the order graph: what the receiver pays, and the sender receives, on the
    # device that comes first
    order: tuple[tuple[int, int, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the prices as JSON values: the order as columns."""
        return {"prices": self.prices.to_dict(), "order": _columns(self.order, *_ORDER)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OrderedPrices:
        """Return the prices that `to_dict` wrote (the data must already be validated)."""
        return cls(Prices.from_dict(data["prices"]), _rows(data["order"], *_ORDER))


@dataclass(frozen=True, slots=True)
class Directions:
    """Two devices under contiguity acyclic: one of them comes first, and both cases have prices."""

    kind: ClassVar[str] = "directions"

    # prices if device 0 comes first, and if device 1 does; None for a case without any placement
    cases: tuple[OrderedPrices | None, OrderedPrices | None]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {"kind": self.kind, "cases": [None if case is None else case.to_dict() for case in self.cases]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Directions:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        first, second = (None if case is None else OrderedPrices.from_dict(case) for case in data["cases"])
        return cls((first, second))


@dataclass(frozen=True, slots=True)
class Series:
    """Makespan: ops that lead to one another cut the graph into segments, whose least times add up."""

    kind: ClassVar[str] = "series"

    cuts: tuple[int, ...]  # the ops; segment 0 ends with the first of them, segment 1 begins with it, and so on
    # (segment, first, last, seconds): least makespan of the segment if its cuts run on devices of the kinds of these;
    # None where it begins or ends with no cut
    cases: tuple[tuple[int, int | None, int | None, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values: the cases as columns."""
        return {"kind": self.kind, "cuts": list(self.cuts), **_columns(self.cases, *_CASE)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Series:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(tuple(data["cuts"]), _rows(data, *_CASE))


Certificate: TypeAlias = SharedWork | NoDevice | Prices | Directions | Series

CertificateSource: TypeAlias = Certificate | Callable[[], Certificate | None] | None
"""A certificate, or what makes it on demand: most bounds are soon replaced by better ones. None for none."""

CERTIFICATES: Mapping[str, type[Certificate]] = {
    kind.kind: kind for kind in (SharedWork, NoDevice, Prices, Directions, Series)
}
"""Every kind by its name in files."""


def certificate_from_dict(data: Mapping[str, Any] | None) -> Certificate | None:
    """Return the certificate that `to_dict` wrote (already validated); None for None."""
    return None if data is None else CERTIFICATES[data["kind"]].from_dict(data)
