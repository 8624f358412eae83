"""The answer: a device for every op; and what can be wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import ItemsView, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.model.device_groups import checked_teams, forbidden_teams, team_name, teams_from_names, teams_of
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import frozen_array
from placekit.model.reprs import short_list

if TYPE_CHECKING:
    from placekit.model.graph import OpGraph
    from placekit.model.platform import Platform
    from placekit.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken constraint, as a value.

    Parameters
    ----------
    constraint
        ``"support"``, ``"memory"``, ``"colocation"``, ``"pin"``, ``"team"``, ``"contiguity"``, or of the execution
        model: ``"order"`` (devices wait for each other), ``"calls"``.
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

    Devices may form teams, which hold the same ops and share the samples; the name of a team is that of its members,
    joined by ``+``. For the execution models that have a clock a placement may also say in which order a device works.

    Parameters
    ----------
    op_names
        ``[num_ops]`` names, as in the graph.
    device_names
        ``[num_devices]`` names, as on the platform.
    device_of_op
        ``[num_ops]`` index into `device_names`: the first member of the op's team, in the order of the platform (what
        is given may be any member).
    step_of_op
        ``[num_ops]`` when the op's turn comes on its device. ``makespan``: a device runs its ops by rising step (ties
        in topological order). ``offload-latency``: the ops of one accelerator with the same step are one call. None
        lets the execution model choose.
    team_of_device
        ``[num_devices]`` first member of the team of every device; None if every device is by itself. Devices that
        hold nothing always are.

    Raises
    ------
    InvalidProblemError
        A wrong length, a device index out of range, or a team that is not named by its first member.

    Examples
    --------
    >>> placement = Placement(("a", "b"), ("CPU", "GPU"), [0, 1])
    >>> placement["b"], dict(placement)
    ('GPU', {'a': 'CPU', 'b': 'GPU'})
    >>> Placement(("a", "b"), ("CPU", "GPU.0", "GPU.1"), [0, 1], team_of_device=[0, 1, 1])["b"]
    'GPU.0+GPU.1'
    """

    op_names: tuple[str, ...]
    device_names: tuple[str, ...]
    device_of_op: NDArray[np.int64]
    step_of_op: NDArray[np.int64] | None = None
    team_of_device: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.op_names),)
        array = frozen_array(self.device_of_op, np.int64, shape, "placement: device_of_op")
        if self.step_of_op is not None:
            steps = frozen_array(self.step_of_op, np.int64, shape, "placement: step_of_op")
            object.__setattr__(self, "step_of_op", steps)
        bad = np.flatnonzero((array < 0) | (array >= len(self.device_names)))
        if bad.size:
            raise InvalidProblemError(
                f"placement: op {self.op_names[bad[0]]!r} has device index {array[bad[0]]}; "
                f"indices run from 0 to {len(self.device_names) - 1}"
            )
        object.__setattr__(self, "device_of_op", array)
        if self.team_of_device is not None:
            teams = checked_teams(self.team_of_device, array, self.device_names)
            object.__setattr__(self, "team_of_device", None if teams is None else teams[0])
            if teams is not None:
                object.__setattr__(self, "device_of_op", teams[1])

    @classmethod
    def of(
        cls,
        problem: Problem,
        device_of_op: ArrayLike,
        step_of_op: ArrayLike | None = None,
        team_of_device: ArrayLike | None = None,
    ) -> Self:
        """Return the placement of `problem`'s ops given by the indices ``[num_ops]`` `device_of_op` (steps, teams)."""
        steps = None if step_of_op is None else np.asarray(step_of_op)
        teams = None if team_of_device is None else np.asarray(team_of_device)
        return cls(problem.graph.op_names, problem.platform.device_names, np.asarray(device_of_op), steps, teams)

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
            Name of a device or team by op name. Names of ops that the problem does not have are refused.
        default
            Device of the ops that are not listed; without it every op must be listed.
        steps
            Step by op name, of every op; see `step_of_op`.

        Raises
        ------
        InvalidProblemError
            An op that is unknown or missing, a team that names a device twice, a device in two teams, or a team that
            the objective does not allow.
        UnknownNameError
            A device that the platform does not have.
        """
        placement = cls.from_names(problem.graph, problem.platform, devices, default, steps)
        placement.require_teams(problem)
        return placement

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
            An op that is unknown or missing, a team that names a device twice, or a device in two teams.
        UnknownNameError
            A device that the platform does not have.
        """
        for name in (*devices, *(steps or ())):
            if name not in graph.op_index:
                raise InvalidProblemError(
                    f"placement names op {name!r}, which {graph.name!r} does not have; its ops are "
                    f"{short_list(graph.op_names)}"
                )
        used = (*devices.values(), *([default] if default else []))
        index, teams = teams_from_names(used, platform.device_names)
        chosen = []
        for name in graph.op_names:
            device = devices.get(name, default)
            if device is None:
                raise InvalidProblemError(f"placement has no device for op {name!r}, and no default device")
            chosen.append(index[device])
        names = graph.op_names, platform.device_names
        if steps is None:
            return cls(*names, np.array(chosen, dtype=np.int64), team_of_device=teams)
        for name in graph.op_names:
            if name not in steps:
                raise InvalidProblemError(f"placement has steps, but none for op {name!r}")
        turns = np.array([steps[name] for name in graph.op_names])
        return cls(*names, np.array(chosen, dtype=np.int64), turns, teams)

    @property
    def teams(self) -> tuple[tuple[int, ...], ...]:
        """The members of every team, in the order of the platform; a device by itself is a team of one."""
        alone = np.arange(len(self.device_names))
        return teams_of(alone if self.team_of_device is None else self.team_of_device)

    def team_name(self, device: int) -> str:
        """Return the name of the team of a device: its own, if it is by itself."""
        return self._team_names[device]

    @property
    def _team_names(self) -> tuple[str, ...]:
        if self.team_of_device is None:
            return self.device_names
        name = {members[0]: team_name(self.device_names[d] for d in members) for members in self.teams}
        return tuple(name[first] for first in self.team_of_device.tolist())

    def require_teams(self, problem: Problem) -> None:
        """Refuse teams that the objective of `problem` does not allow.

        Raises
        ------
        InvalidProblemError
            A team of several devices under an objective without teams, or one that mixes kinds.
        """
        if self.team_of_device is None:
            return
        rule = problem.objective.team_rule
        for _, message in forbidden_teams(self.team_of_device, problem.platform, rule):
            raise InvalidProblemError(f"{problem.name!r}, objective {problem.objective.name}: {message}")

    def ops_on(self, device: str) -> Sequence[str]:
        """Return the names of the ops on `device`, in graph order; those of its team, if it is in one."""
        at = self.device_names.index(device)
        at = at if self.team_of_device is None else int(self.team_of_device[at])
        return [self.op_names[op] for op in np.flatnonzero(self.device_of_op == at)]

    def __getitem__(self, op: str) -> str:
        try:
            return self.team_name(int(self.device_of_op[self.op_names.index(op)]))
        except ValueError:
            raise KeyError(op) from None

    def items(self) -> ItemsView[str, str]:
        """Return (op, device) pairs in graph order, in linear time."""
        return self.as_dict().items()

    def as_dict(self) -> dict[str, str]:
        """Return the name of the device or team by op name, in graph order."""
        names = self._team_names
        return {op: names[d] for op, d in zip(self.op_names, self.device_of_op.tolist(), strict=True)}

    def steps_as_dict(self) -> dict[str, int] | None:
        """Return step by op name, in graph order; None without steps."""
        if self.step_of_op is None:
            return None
        return dict(zip(self.op_names, self.step_of_op.tolist(), strict=True))

    @cached_property
    def content_hash(self) -> str:
        """Hexadecimal digest of which op is on which device, in which step; a result and its placement both say it."""
        # JSON of `as_dict` and `steps_as_dict` with sorted keys; to sort pairs takes twice as long as all of this
        order = sorted(range(len(self)), key=self.op_names.__getitem__)
        ops = [encode_basestring_ascii(self.op_names[i]) for i in order]
        teams = [encode_basestring_ascii(name) for name in self._team_names]
        on_team = _json_object(ops, [teams[d] for d in self.device_of_op[order].tolist()])
        in_step = "null" if self.step_of_op is None else _json_object(ops, self.step_of_op[order].tolist())
        told = f"[{on_team}, {in_step}]"
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
            and self.teams == other.teams
            and (self.step_of_op is None) == (other.step_of_op is None)
            and (self.step_of_op is None or np.array_equal(self.step_of_op, other.step_of_op))  # type: ignore[arg-type]  # both or neither
        )

    def __hash__(self) -> int:
        return hash((self.device_names, self.device_of_op.tobytes()))

    def __repr__(self) -> str:
        counts = np.bincount(self.device_of_op, minlength=len(self.device_names))
        shares = short_list(f"{self.team_name(members[0])}: {counts[members[0]]}" for members in self.teams)
        return f"Placement({len(self)} ops; {shares})"


def _json_object(keys: list[str], values: list[str] | list[int]) -> str:
    """Return the object of keys and texts that are JSON already."""
    return "{" + ", ".join([f"{key}: {value}" for key, value in zip(keys, values, strict=True)]) + "}"
