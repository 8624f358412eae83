r"""Certificates: what a bound was proven with, small and typed, for anybody to check.

Ops, tensors and devices are positions in the problem's own lists. A *group* is what must share a device: the ops of
one colocation label or fused group, and under acyclic contiguity the groups that lie on a common cycle of the order
graph (no acyclic placement can separate those). A certificate names a group by any of its ops. What each kind proves,
and why, is in :mod:`placekit.verification.proofs`; the file format is in ``docs/verify.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = [
    "CERTIFICATES",
    "Certificate",
    "CriticalPath",
    "LargestOp",
    "NoDevice",
    "PricedNet",
    "Prices",
    "WorkInWindow",
]


@dataclass(frozen=True, slots=True)
class LargestOp:
    """The objective is at least the time of one group on its fastest device.

    Parameters
    ----------
    op
        An op of the group.
    """

    kind: ClassVar[str] = "largest-op"

    op: int

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {"kind": self.kind, "op": self.op}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LargestOp:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(data["op"])


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The objective is at least the time of one path, each op where the path is soonest done.

    Parameters
    ----------
    ops
        Ops, each reading a tensor of the one before.
    """

    kind: ClassVar[str] = "critical-path"

    ops: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {"kind": self.kind, "ops": list(self.ops)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CriticalPath:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(tuple(data["ops"]))


@dataclass(frozen=True, slots=True)
class WorkInWindow:
    """Makespan: the work of some ops must fit between what precedes and what follows them.

    Parameters
    ----------
    ops
        The ops.
    weight
        ``[num_devices]`` positive weight of a second on each device.
    """

    kind: ClassVar[str] = "work-in-window"

    ops: tuple[int, ...]
    weight: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {"kind": self.kind, "ops": list(self.ops), "weight": list(self.weight)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorkInWindow:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(tuple(data["ops"]), tuple(data["weight"]))


@dataclass(frozen=True, slots=True)
class NoDevice:
    """Infeasible: no device supports all ops of a group, holds them, and respects their pins.

    Parameters
    ----------
    op
        An op of the group.
    """

    kind: ClassVar[str] = "no-device"

    op: int

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {"kind": self.kind, "op": self.op}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> NoDevice:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(data["op"])


@dataclass(frozen=True, slots=True)
class PricedNet:
    """Tensors whose transfer times are handed out to groups that they all touch: a flow through the net.

    Parameters
    ----------
    tensors
        The tensors.
    prices
        (profile, op, seconds): what the group of the op pays, or receives if negative, on a device of the profile.
    """

    tensors: tuple[int, ...]
    prices: tuple[tuple[int, int, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the net as JSON values: the prices as columns."""
        columns: list[list[Any]] = [list(column) for column in zip(*self.prices, strict=True)] or [[], [], []]
        return {"tensors": list(self.tensors), **dict(zip(("profile", "op", "seconds"), columns, strict=True))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PricedNet:
        """Return the net that `to_dict` wrote (the data must already be validated)."""
        return cls(tuple(data["tensors"]), tuple(zip(data["profile"], data["op"], data["seconds"], strict=True)))


@dataclass(frozen=True, slots=True)
class Prices:
    """Dual multipliers: weights of devices, prices of memory and flows through nets; minimum cuts are among them.

    Parameters
    ----------
    profile_of_device
        ``[num_devices]`` the profile that each device is priced by.
    work_weight, transfer_weight
        ``[num_profiles][num_passes]`` weight of a second of work, and of transfers, on such a device. There are two
        passes (forward, backward) for throughput under ``gpipe``, otherwise one.
    memory_price
        ``[num_profiles]`` seconds per byte.
    op_weight
        (op, ``[num_passes]`` weights): weight of the time of the group of the op, wherever it is.
    nets
        Flows through nets.
    """

    kind: ClassVar[str] = "prices"

    profile_of_device: tuple[int, ...]
    work_weight: tuple[tuple[float, ...], ...]
    transfer_weight: tuple[tuple[float, ...], ...]
    memory_price: tuple[float, ...]
    op_weight: tuple[tuple[int, tuple[float, ...]], ...] = ()
    nets: tuple[PricedNet, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON values."""
        return {
            "kind": self.kind,
            "profile_of_device": list(self.profile_of_device),
            "work_weight": [list(row) for row in self.work_weight],
            "transfer_weight": [list(row) for row in self.transfer_weight],
            "memory_price": list(self.memory_price),
            "op_weight": {
                "op": [op for op, _ in self.op_weight],
                "weights": [list(weights) for _, weights in self.op_weight],
            },
            "nets": [net.to_dict() for net in self.nets],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prices:
        """Return the certificate that `to_dict` wrote (the data must already be validated)."""
        return cls(
            tuple(data["profile_of_device"]),
            tuple(tuple(row) for row in data["work_weight"]),
            tuple(tuple(row) for row in data["transfer_weight"]),
            tuple(data["memory_price"]),
            tuple(
                (op, tuple(weights))
                for op, weights in zip(data["op_weight"]["op"], data["op_weight"]["weights"], strict=True)
            ),
            tuple(PricedNet.from_dict(net) for net in data["nets"]),
        )


Certificate = LargestOp | CriticalPath | WorkInWindow | NoDevice | Prices

CERTIFICATES: Mapping[str, type[Certificate]] = {
    kind.kind: kind for kind in (LargestOp, CriticalPath, WorkInWindow, NoDevice, Prices)
}
"""Every kind by its name in files."""


def certificate_from_dict(data: Mapping[str, Any] | None) -> Certificate | None:
    """Return the certificate that `to_dict` wrote (already validated); None for None."""
    return None if data is None else CERTIFICATES[data["kind"]].from_dict(data)
