"""Memory limits in the constraint program, for sizes that add up and for memory that ops share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from placekit.solvers.assignment.cpsat.membership import Membership, Values
from placekit.solvers.assignment.flat import FlatProblem
from placekit.solvers.assignment.memory_rows import (
    PoolRow,
    Shared,
    excesses,
    memory_row,
    opening_positions,
    overfull_pools,
)
from placekit.solvers.backends.scale import scale_bytes
from placekit.solvers.generic.coarsen import Contraction


class MemoryRows:
    """Rows that keep every slot within its limit, added at the start or when an answer breaks the limit.

    Parameters
    ----------
    proto
        The model.
    membership
        Booleans of classes and slots.
    with_blocks
        The problem's contraction if memory that ops share is limited; None if it is not.
    pools
        Memories that devices share.
    """

    def __init__(
        self,
        proto: cp_model.CpModel,
        flat: FlatProblem,
        membership: Membership,
        with_blocks: Contraction | None,
        pools: Sequence[PoolRow] = (),
    ) -> None:
        self.proto, self.flat, self.membership = proto, flat, membership
        self.num_classes = len(flat.memory_bytes)
        self.kind_of_slot = flat.kind[membership.device_of_slot]
        self.covers: set[tuple[int, ...]] = set()
        self.shared: dict[tuple[int, str, tuple[int, ...], tuple[int, ...]], cp_model.IntVar] = {}
        self._shared_of: dict[int, tuple[int, Shared]] = {}
        self._limit_sizes()
        for pool in pools:
            x, sizes = self._in_pool(pool, np.flatnonzero(flat.memory_bytes).tolist())
            whole, most = scale_bytes(np.array(sizes, dtype=np.float64), pool.most_bytes)
            self.proto.add(cp_model.LinearExpr.weighted_sum(x, whole.tolist()) <= most)
        if with_blocks is not None:
            for position in opening_positions(with_blocks):
                self._limit_at(with_blocks, position)

    def encode(self, slot: NDArray[np.int64]) -> Values:
        """Return a value for every variable of the rows for ``[C]`` slots."""
        return {index: int(shared.counts(slot == s)) for index, (s, shared) in self._shared_of.items()}

    def _limit_sizes(self) -> None:
        for s, device in enumerate(self.membership.device_of_slot):
            limit = float(self.flat.limit_bytes[device])
            classes = [c for c in range(self.num_classes) if (c, s) in self.membership.x and self.flat.memory_bytes[c]]
            if np.isfinite(limit) and self.flat.memory_bytes[classes].sum() > limit:
                sizes, most = scale_bytes(self.flat.memory_bytes[classes], limit)
                x = [self.membership.x[c, s] for c in classes]
                self.proto.add(cp_model.LinearExpr.weighted_sum(x, sizes.tolist()) <= most)

    def _in_pool(self, pool: PoolRow, classes: list[int]) -> tuple[list[cp_model.IntVar], list[float]]:
        """Return the booleans of classes in the slots of the devices of a pool, and the bytes of each."""
        found = [
            (x, float(self.flat.memory_bytes[c]))
            for c in classes
            for s, device in enumerate(self.membership.device_of_slot)
            if device in pool.devices and (x := self.membership.x.get((c, s))) is not None
        ]
        return [x for x, _ in found], [size for _, size in found]

    def forbid_together(self, contraction: Contraction, device: NDArray[np.int64]) -> bool:
        """Forbid sets of classes that overfill a device by less than the rounding of the rows.

        If shared memory does not fit, missing rows are added first.

        Returns
        -------
        bool
            True if the model changed and must be solved again.
        """
        before = len(self.covers)
        x = self.membership.x
        for pool, classes in overfull_pools(contraction, contraction.expand(device)):
            cover = (-2, *pool.devices, *classes)
            if cover not in self.covers:
                self.covers.add(cover)
                self.proto.add(sum(self._in_pool(pool, classes)[0]) <= len(classes) - 1)
        for excess in excesses(contraction, contraction.expand(device)):
            if contraction.problem.has_tight_blocks and self._limit_at(contraction, excess.position):
                continue
            kind, inside = int(self.flat.kind[excess.device]), excess.classes.tolist()
            cover = (kind, *np.flatnonzero(excess.classes).tolist())
            if cover in self.covers:
                continue
            self.covers.add(cover)
            for s in np.flatnonzero(self.kind_of_slot == kind).tolist():
                if not all((c, s) in x for c in range(self.num_classes) if inside[c]):
                    continue
                literals = [~x[c, s] for c in range(self.num_classes) if inside[c]]
                if not excess.grows:  # a larger set may need less, so only this set is forbidden
                    literals += [x[c, s] for c in range(self.num_classes) if not inside[c] and (c, s) in x]
                self.proto.add_bool_or(*literals)
        return len(self.covers) > before

    def _limit_at(self, contraction: Contraction, position: int) -> bool:
        """Add the rows of a position (:mod:`placekit.solvers.assignment.memory_rows`); False if they exist."""
        key = (-1, position)
        if key in self.covers:
            return False
        self.covers.add(key)
        row = memory_row(contraction, position)
        for s, device in enumerate(self.membership.device_of_slot):
            limit = float(self.flat.limit_bytes[device])
            if not np.isfinite(limit) or row.most_bytes <= limit:
                continue
            classes = [c for c in range(self.num_classes) if (c, s) in self.membership.x and row.class_bytes[c]]
            variables = [self.membership.x[c, s] for c in classes]
            sizes = row.class_bytes[classes].tolist()
            for shared in row.shared:
                if any((c, s) in self.membership.x for c in shared.first):
                    variables.append(self._shared_at(shared, s))
                    sizes.append(shared.num_bytes)
            whole, most = scale_bytes(np.array(sizes, dtype=np.float64), limit)
            self.proto.add(cp_model.LinearExpr.weighted_sum(variables, whole.tolist()) <= most)
        return True

    def _shared_at(self, shared: Shared, s: int) -> cp_model.IntVar:
        """Return the variable that is true where the shared bytes count in slot `s`."""
        key = (s, shared.rule, shared.first, shared.last)
        if key in self.shared:
            return self.shared[key]
        variable = self.shared[key] = self.proto.new_bool_var(f"shared_{len(self.shared)}")
        self._shared_of[variable.index] = s, shared
        x = self.membership.x
        if shared.rule == "split":
            first, *others = [x.get((c, s)) for c in shared.first]
            for other in others:
                for here, there in ((first, other), (other, first)):
                    if here is not None:
                        self.proto.add_bool_or(~here, variable, *([] if there is None else [there]))
            return variable
        for a in shared.first:
            if (a, s) not in x:
                continue
            if shared.rule == "any" or a in shared.last:
                self.proto.add_implication(x[a, s], variable)
                continue
            for b in shared.last:
                if b not in shared.first and (b, s) in x:
                    self.proto.add_bool_or(~x[a, s], ~x[b, s], variable)
        return variable
