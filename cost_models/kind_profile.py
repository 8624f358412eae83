"""Profile of one kind of device: seconds per fused group, how they were measured, and the ops that they stand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from placekit.model.graph import OpGraph

_ARRAYS: Mapping[str, type] = {
    "op_group": np.int64, "group_time_s": np.float64, "group_spread": np.float64, "group_supported": np.bool_,
    "tensor_time_s": np.float64, "second_time_s": np.float64,
}  # fmt: skip
"""Types of the arrays by name, as they are kept."""


@dataclass(frozen=True, eq=False)
class KindProfile:
    """A measured kind of device.

    Parameters
    ----------
    op_group
        ``[num_ops]`` fused group of every op, ``0 .. num_groups - 1``.
    group_time_s
        ``[num_groups]`` seconds per inference.
    group_spread
        ``[num_groups]`` interquartile range of the repetitions over their median; NaN where nothing was measured.
    group_supported
        ``[num_groups]`` False where the device cannot run the group.
    meta
        How it was measured (JSON values).
    tensor_time_s
        ``[num_tensors]`` seconds for every tensor where it enters or leaves the device; empty if a link says that.
    second_time_s
        ``[num_groups]`` second lowest of the times of several measurements; NaN where there was one measurement.
    """

    op_group: NDArray[np.int64]
    group_time_s: NDArray[np.float64]
    group_spread: NDArray[np.float64]
    group_supported: NDArray[np.bool_]
    meta: Mapping[str, Any] = field(default_factory=dict)
    tensor_time_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    second_time_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if len(self.second_time_s) != len(self.group_time_s):
            object.__setattr__(self, "second_time_s", np.full(len(self.group_time_s), np.nan))

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.group_time_s)

    @property
    def spread(self) -> float:
        """Mean relative spread of what was measured, weighted by time; 0 if nothing was."""
        is_measured = ~np.isnan(self.group_spread)
        time_s = self.group_time_s[is_measured]
        return float((self.group_spread[is_measured] * time_s).sum() / max(time_s.sum(), np.finfo(float).tiny))

    @property
    def error(self) -> float:
        """Relative error of all times together, as far as the measurements themselves tell it.

        Of several measurements: how far the second lowest times are above the lowest ones, which were kept. Of one
        measurement: half of its spread.
        """
        again = np.isfinite(self.second_time_s)
        time_s = self.group_time_s[again]
        if time_s.sum() > 0:
            return float((self.second_time_s[again] - time_s).sum() / time_s.sum())
        return self.spread / 2

    def merged(self, other: Self) -> Self:
        """Return what two measurements of the same kind say together: of every group and tensor the lower time.

        Other load and a slower clock only ever add time, so the lower of two medians is the nearer one. The
        circumstances are those of `self`. Measurements with other groups or tensors are not mixed: `self` stays.
        """
        if (
            not np.array_equal(self.op_group, other.op_group)
            or not np.array_equal(self.group_supported, other.group_supported)
            or len(self.tensor_time_s) != len(other.tensor_time_s)
        ):
            return self
        measured = [self.group_time_s, other.group_time_s, self.second_time_s, other.second_time_s]
        time_s, second_s = np.sort(measured, axis=0)[:2]  # NaN comes last
        return replace(
            self,
            group_time_s=time_s,
            group_spread=np.where(time_s == self.group_time_s, self.group_spread, other.group_spread),
            tensor_time_s=np.minimum(self.tensor_time_s, other.tensor_time_s),
            second_time_s=second_s,
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], num_ops: int) -> Self | None:
        """Return the profile of `num_ops` ops that `to_arrays` gave; None if the arrays are no such thing."""
        try:
            known: dict[str, Any] = {"second_time_s": (), **arrays}
            profile = cls(meta=meta, **{name: np.asarray(known[name], dtype) for name, dtype in _ARRAYS.items()})
        except (KeyError, TypeError, ValueError):
            return None
        shape = (profile.num_groups,)
        is_whole = (
            profile.op_group.shape == (num_ops,)
            and np.array_equal(np.unique(profile.op_group), np.arange(profile.num_groups))
            and profile.group_time_s.shape == profile.group_spread.shape == profile.group_supported.shape == shape
            and all(
                bool((np.isfinite(each) & (each >= 0)).all()) for each in (profile.group_time_s, profile.tensor_time_s)
            )
        )
        return profile if is_whole else None


def on_anchors(
    graph: OpGraph, profile: KindProfile, op_group: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return time, spread and support ``[num_ops]`` of a profile whose groups are joined to `op_group`.

    The spread of a joined group is the mean of its parts', weighted by time: the most that it can be.
    """
    num_groups = int(op_group.max()) + 1
    anchors = anchors_of(graph, op_group, num_groups)
    joined = np.empty(profile.num_groups, dtype=np.int64)
    joined[profile.op_group] = op_group  # every op of a measured group is in the same joined group
    group_time_s = np.bincount(joined, weights=profile.group_time_s, minlength=num_groups)
    is_measured = ~np.isnan(profile.group_spread)
    spread_s = np.where(is_measured, profile.group_spread * profile.group_time_s, 0.0)
    group_spread_s = np.bincount(joined, weights=spread_s, minlength=num_groups)
    op_time_s, op_spread = np.zeros(graph.num_ops), np.full(graph.num_ops, np.nan)
    op_time_s[anchors] = group_time_s
    has_spread = group_time_s > 0
    op_spread[anchors[has_spread]] = group_spread_s[has_spread] / group_time_s[has_spread]
    lost = np.bincount(joined, weights=~profile.group_supported, minlength=num_groups) > 0
    return op_time_s, op_spread, ~lost[op_group]


def anchors_of(graph: OpGraph, op_group: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    """``[num_groups]`` member of every group with the most FLOPs; the first in topological order among equals."""
    by_preference = np.lexsort((graph.rank, -graph.op_flops, op_group))
    starts = np.searchsorted(op_group[by_preference], np.arange(num_groups))
    return by_preference[starts]
