"""The answer: a device for every op; and what can be wrong with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.errors import InvalidGraphError, InvalidProblemError
from placekit.graph import frozen_array

if TYPE_CHECKING:
    from placekit.graph import OpGraph
    from placekit.platform import Platform
    from placekit.problem import Problem

__all__ = ["Placement", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken constraint, as a value.

    Parameters
    ----------
    constraint
        ``"support"``, ``"memory"``, ``"colocation"``, ``"pin"``, ``"contiguity"``, or of the execution model:
        ``"order"`` (devices wait for each other), ``"calls"``.
    message
        One sentence that names the object, the value and the bound.
    op, device
        What it concerns, where one op or one device can be named.
    amount
        By how much the bound is exceeded, in `unit`.
    unit
        ``"bytes"`` or ``"ops"``.
    """

    constraint: str
    message: str
    op: str | None = None
    device: str | None = None
    amount: float = 1.0
    unit: str = "ops"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, eq=False)
class Placement(Mapping[str, str]):
    """The device of every op; a mapping from op name to device name. Immutable.

    For the execution models that have a clock a placement may also say in which order a device works.

    Parameters
    ----------
    op_names
        ``[num_ops]`` names, as in the graph.
    device_names
        ``[num_devices]`` names, as on the platform.
    device_of_op
        ``[num_ops]`` index into `device_names`.
    step_of_op
        ``[num_ops]`` when the op's turn comes on its device. ``makespan``: a device runs its ops by rising step (ties
        in topological order). ``offload-latency``: the ops of one accelerator with the same step are one call. None
        lets the execution model choose.

    Raises
    ------
    InvalidProblemError
        A wrong length, or a device index out of range.

    Examples
    --------
    >>> placement = Placement(("a", "b"), ("CPU", "GPU"), [0, 1])
    >>> placement["b"], dict(placement)
    ('GPU', {'a': 'CPU', 'b': 'GPU'})
    """

    op_names: tuple[str, ...]
    device_names: tuple[str, ...]
    device_of_op: NDArray[np.int64]
    step_of_op: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.op_names),)
        try:
            array = frozen_array(self.device_of_op, np.int64, shape, "placement: device_of_op")
            if self.step_of_op is not None:
                steps = frozen_array(self.step_of_op, np.int64, shape, "placement: step_of_op")
                object.__setattr__(self, "step_of_op", steps)
        except InvalidGraphError as error:
            raise InvalidProblemError(str(error)) from None
        bad = np.flatnonzero((array < 0) | (array >= len(self.device_names)))
        if bad.size:
            raise InvalidProblemError(
                f"placement: op {self.op_names[bad[0]]!r} has device index {array[bad[0]]}; "
                f"indices run from 0 to {len(self.device_names) - 1}"
            )
        object.__setattr__(self, "device_of_op", array)

    @classmethod
    def of(cls, problem: Problem, device_of_op: ArrayLike, step_of_op: ArrayLike | None = None) -> Self:
        """Return the placement of `problem`'s ops given by the indices ``[num_ops]`` `device_of_op` (and steps)."""
        steps = None if step_of_op is None else np.asarray(step_of_op)
        return cls(problem.graph.op_names, problem.platform.device_names, np.asarray(device_of_op), steps)

    @classmethod
    def from_mapping(
        cls,
        problem: Problem,
        devices: Mapping[str, str],
        default: str | None = None,
        steps: Mapping[str, int] | None = None,
    ) -> Self:
        """Return the placement of `problem`'s ops named by `devices`.

        Parameters
        ----------
        devices
            Device name by op name. Names of ops that the problem does not have are refused.
        default
            Device of the ops that are not listed; without it every op must be listed.
        steps
            Step by op name, of every op; see `step_of_op`.

        Raises
        ------
        InvalidProblemError
            An op that is unknown or missing.
        UnknownNameError
            A device that the platform does not have.
        """
        return cls.from_names(problem.graph, problem.platform, devices, default, steps)

    @classmethod
    def from_names(
        cls,
        graph: OpGraph,
        platform: Platform,
        devices: Mapping[str, str],
        default: str | None = None,
        steps: Mapping[str, int] | None = None,
    ) -> Self:
        """Return the placement of `graph`'s ops on `platform`, without a problem; see `from_mapping`.

        Raises
        ------
        InvalidProblemError
            An op that is unknown or missing.
        UnknownNameError
            A device that the platform does not have.
        """
        for name in (*devices, *(steps or ())):
            if name not in graph.op_index:
                raise InvalidProblemError(f"placement names op {name!r}, which {graph.name!r} does not have")
        used = dict.fromkeys((*devices.values(), *([default] if default else [])))  # no set: errors name the first
        index = {name: platform.index(name) for name in used}
        chosen = []
        for name in graph.op_names:
            device = devices.get(name, default)
            if device is None:
                raise InvalidProblemError(f"placement has no device for op {name!r}, and no default device")
            chosen.append(index[device])
        names = graph.op_names, platform.device_names
        if steps is None:
            return cls(*names, np.array(chosen, dtype=np.int64))
        for name in graph.op_names:
            if name not in steps:
                raise InvalidProblemError(f"placement has steps, but none for op {name!r}")
        return cls(*names, np.array(chosen, dtype=np.int64), np.array([steps[name] for name in graph.op_names]))

    def violations(self, problem: Problem) -> tuple[Violation, ...]:
        """Return every constraint of `problem` that this placement breaks; empty means feasible."""
        from placekit.evaluate import evaluate

        return evaluate(problem, self).violations

    def ops_on(self, device: str) -> Sequence[str]:
        """Return the names of the ops on `device`, in graph order."""
        at = self.device_names.index(device)
        return [self.op_names[op] for op in np.flatnonzero(self.device_of_op == at)]

    def __getitem__(self, op: str) -> str:
        try:
            return self.device_names[int(self.device_of_op[self.op_names.index(op)])]
        except ValueError:
            raise KeyError(op) from None

    def items(self) -> ItemsView[str, str]:
        """Return (op, device) pairs in graph order, in linear time."""
        return self.as_dict().items()

    def as_dict(self) -> dict[str, str]:
        """Return device name by op name, in graph order."""
        return {op: self.device_names[d] for op, d in zip(self.op_names, self.device_of_op.tolist(), strict=True)}

    def steps_as_dict(self) -> dict[str, int] | None:
        """Return step by op name, in graph order; None without steps."""
        if self.step_of_op is None:
            return None
        return dict(zip(self.op_names, self.step_of_op.tolist(), strict=True))

    @property
    def content_hash(self) -> str:
        """Hexadecimal digest of which op is on which device, in which step; a result and its placement both say it."""
        told = json.dumps([self.as_dict(), self.steps_as_dict()], sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()

    def __iter__(self) -> Iterator[str]:
        return iter(self.op_names)

    def __len__(self) -> int:
        return len(self.op_names)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Placement)
            and self.op_names == other.op_names
            and self.device_names == other.device_names
            and np.array_equal(self.device_of_op, other.device_of_op)
            and (self.step_of_op is None) == (other.step_of_op is None)
            and (self.step_of_op is None or np.array_equal(self.step_of_op, other.step_of_op))  # type: ignore[arg-type]  # both or neither
        )

    def __hash__(self) -> int:
        return hash((self.device_names, self.device_of_op.tobytes()))

    def __repr__(self) -> str:
        counts = np.bincount(self.device_of_op, minlength=len(self.device_names))
        shares = ", ".join(f"{name}: {count}" for name, count in zip(self.device_names, counts, strict=True))
        return f"Placement({len(self)} ops; {shares})"
