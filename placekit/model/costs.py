"""The cost table: what every op costs on every kind of device, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import InvalidProblemError
from placekit.model.graph import frozen_array
from placekit.model.memory import MemoryBlocks
from placekit.model.reprs import short_list

MODELLED = "of modelled devices"
"""Words of `CostTable.error_of` for the error of devices that are not on this machine."""


@dataclass(frozen=True, eq=False)
class CostTable:
    """Seconds and bytes per op and kind of device. Immutable; validated at construction.

    Parameters
    ----------
    kinds
        ``[num_kinds]`` names of the device kinds.
    op_time_s
        ``[num_ops, num_kinds]`` seconds of each op; ignored (stored as 0) where not supported.
    transfer_time_s
        ``[num_tensors, num_kinds]`` seconds that a device of the kind spends on moving the tensor between its own
        memory and host memory, once, in either direction.
    op_memory_bytes
        ``[num_ops]`` memory that the op occupies on its device, all the time and alone.
    supported
        ``[num_ops, num_kinds]`` False where the kind cannot run the op; all True by default.
    op_group
        ``[num_ops]`` label of the fused group that the op was measured in; ops with the same label must share a
        device, because a cut inside a fusion changes the cost. Every op on its own by default.
    op_time_spread
        ``[num_ops, num_kinds]`` relative spread (interquartile range / median) of measured times, NaN where not
        measured; None if nothing was.
    provenance
        How, where and when the numbers were made (JSON values).
    blocks
        Memory that ops share: live tensors, and weights that several ops read. None if `op_memory_bytes` says all.
    direct_links
        ``[num_links]`` names of direct links between devices (:class:`~placekit.model.platform.DirectLink`).
    direct_time_s
        ``[num_tensors, num_links]`` seconds of the tensor's way over each of them.

    Raises
    ------
    InvalidProblemError
        Wrong shapes, duplicate kinds or links, or a time, transfer or size that is negative, infinite or NaN.
    """

    kinds: tuple[str, ...]
    op_time_s: NDArray[np.float64]
    transfer_time_s: NDArray[np.float64]
    op_memory_bytes: NDArray[np.float64]
    supported: NDArray[np.bool_] = None  # type: ignore[assignment]  # None = all True, filled below
    op_group: NDArray[np.int64] = None  # type: ignore[assignment]  # None = every op on its own
    op_time_spread: NDArray[np.float64] | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    blocks: MemoryBlocks | None = None
    direct_links: tuple[str, ...] = ()
    direct_time_s: NDArray[np.float64] = None  # type: ignore[assignment]  # None = no links

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if not self.kinds or len(set(self.kinds)) != len(self.kinds):
            raise InvalidProblemError(f"a cost table needs at least one kind, each named once; got {self.kinds}")
        object.__setattr__(self, "direct_links", tuple(self.direct_links))
        if len(set(self.direct_links)) != len(self.direct_links):
            raise InvalidProblemError(f"costs: a direct link is named twice: {', '.join(self.direct_links)}")
        num_ops, num_tensors, num_kinds = len(self.op_time_s), len(self.transfer_time_s), len(self.kinds)
        self._settle("supported", np.bool_, (num_ops, num_kinds), np.True_)
        times = frozen_array(self.op_time_s, np.float64, (num_ops, num_kinds), "costs: op_time_s")
        times = np.where(self.supported, times, 0.0)
        object.__setattr__(self, "op_time_s", times)
        times.setflags(write=False)
        self._settle("transfer_time_s", np.float64, (num_tensors, num_kinds))
        self._settle("op_memory_bytes", np.float64, (num_ops,))
        self._settle("op_group", np.int64, (num_ops,), np.arange(num_ops))
        free = None if self.direct_links else 0
        self._settle("direct_time_s", np.float64, (num_tensors, len(self.direct_links)), free)
        if self.op_time_spread is not None:
            self._settle("op_time_spread", np.float64, (num_ops, num_kinds))
        object.__setattr__(self, "provenance", MappingProxyType(dict(self.provenance)))
        if self.blocks is not None and self.blocks.ops.max(initial=-1) >= num_ops:
            raise InvalidProblemError(
                f"costs: a memory block names op {self.blocks.ops.max()}; ops run from 0 to {num_ops - 1}"
            )
        for name in ("op_time_s", "transfer_time_s", "op_memory_bytes", "direct_time_s"):
            values = getattr(self, name)
            bad = np.argwhere(~(np.isfinite(values) & (values >= 0)))
            if len(bad):
                index = tuple(bad[0].tolist())
                on = f" on kind {self.kinds[index[1]]!r}" if name in ("op_time_s", "transfer_time_s") else ""
                on = f" over link {self.direct_links[index[1]]!r}" if name == "direct_time_s" else on
                of = f"op {index[0]}" if name.startswith("op_") else f"tensor {index[0]}"
                raise InvalidProblemError(
                    f"costs: {of} has {name} {values[index]}{on}; it must be finite and >= 0 "
                    "(mark what a kind cannot run as not supported)"
                )

    def _settle(self, name: str, dtype: type, shape: tuple[int, ...], default: Any = None) -> None:
        value = getattr(self, name)
        value = np.broadcast_to(default, shape) if value is None else value
        object.__setattr__(self, name, frozen_array(value, dtype, shape, f"costs: {name}"))

    @property
    def num_ops(self) -> int:
        """Number of ops."""
        return len(self.op_time_s)

    @property
    def num_tensors(self) -> int:
        """Number of tensors."""
        return len(self.transfer_time_s)

    @property
    def error(self) -> float | None:
        """Relative error of the op times, as far as it is known; None if nothing tells it.

        It is what the provenance states as ``"error"``; else what a calibration found; else that of the kind with the
        largest one, as stated in the provenance or else half of the spread of its measured times. It is not known if
        the provenance states the error of a kind as None.
        """
        return self._worst_error[0]

    @property
    def error_of(self) -> str:
        """Words for `error` that stand behind its number; empty if the provenance does not say."""
        return self._worst_error[1]

    @property
    def _worst_error(self) -> tuple[float | None, str]:
        told = self.provenance
        if isinstance(stated := told.get("error"), (int, float)):
            return float(stated), ""
        calibration = told.get("calibration")
        if isinstance(calibration, Mapping):
            found = calibration.get("error_after" if calibration.get("applied") else "error_before")
            if isinstance(found, (int, float)):
                return float(found), "against measured splits"
        of_kinds = told.get("kinds")
        worst: tuple[float | None, str] = (None, "")
        for at, kind in enumerate(self.kinds):
            of_kind = of_kinds.get(kind) if isinstance(of_kinds, Mapping) else None
            error, words = self._half_spread(at), "between repetitions"
            if isinstance(of_kind, Mapping) and "error" in of_kind:
                error = of_kind["error"]
                if not isinstance(error, (int, float)):
                    return None, ""
                words = MODELLED if of_kind.get("source") == "described" else words
            if error is not None and (worst[0] is None or error > worst[0]):
                worst = float(error), words
        return worst

    def _half_spread(self, kind: int) -> float | None:
        """Return half of the relative spread of all measured times of a kind together; None if none was measured."""
        if self.op_time_spread is None:
            return None
        spread, time_s = self.op_time_spread[:, kind], self.op_time_s[:, kind]
        measured = np.isfinite(spread) & self.supported[:, kind]
        total_s = float(time_s[measured].sum())
        return float((spread[measured] * time_s[measured]).sum()) / total_s / 2 if total_s > 0 else None

    def for_kinds(self, kinds: Sequence[str]) -> Self:
        """Return the table with exactly these kinds, in this order.

        Raises
        ------
        InvalidProblemError
            A kind that the table has no costs for.
        """
        for kind in kinds:
            if kind not in self.kinds:
                raise InvalidProblemError(f"no costs for kind {kind!r}; the table has {', '.join(self.kinds)}")
        if tuple(kinds) == self.kinds:
            return self
        at = [self.kinds.index(kind) for kind in kinds]
        return self.replace(
            kinds=tuple(kinds),
            op_time_s=self.op_time_s[:, at],
            supported=self.supported[:, at],
            transfer_time_s=self.transfer_time_s[:, at],
            op_time_spread=None if self.op_time_spread is None else self.op_time_spread[:, at],
        )

    def for_links(self, links: Sequence[str]) -> Self:
        """Return the table with exactly these direct links, in this order.

        Raises
        ------
        InvalidProblemError
            A link that the table has no costs for.
        """
        for link in links:
            if link not in self.direct_links:
                raise InvalidProblemError(
                    f"no costs for direct link {link!r}; the table has {', '.join(self.direct_links) or 'none'}"
                )
        if tuple(links) == self.direct_links:
            return self
        at = [self.direct_links.index(link) for link in links]
        return self.replace(direct_links=tuple(links), direct_time_s=self.direct_time_s[:, at])

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        return replace(self, **changes)

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.kinds, self.op_time_s, self.transfer_time_s, self.op_memory_bytes, self.supported, self.op_group)
        direct = (self.direct_links, self.direct_time_s) if self.direct_links else ()
        return (type(self), (*values, self.op_time_spread, dict(self.provenance), self.blocks, *direct))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CostTable):
            return NotImplemented
        names = ("op_time_s", "transfer_time_s", "op_memory_bytes", "supported", "op_group", "direct_time_s")
        return (
            self.kinds == other.kinds
            and self.direct_links == other.direct_links
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in names)
            and (self.op_time_spread is None) == (other.op_time_spread is None)
            and (
                self.op_time_spread is None or np.array_equal(self.op_time_spread, other.op_time_spread, equal_nan=True)  # type: ignore[arg-type]
            )
            and dict(self.provenance) == dict(other.provenance)
            and self.blocks == other.blocks
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside: compare, do not hash

    def __repr__(self) -> str:
        source = self.provenance.get("source", "given")
        return f"CostTable({self.num_ops} ops, kinds {short_list(self.kinds)}, {source})"
