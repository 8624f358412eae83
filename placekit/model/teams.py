"""Teams: devices that hold the same ops and share the samples, and how files and tables call them.

A team is known by its first member, in the order of the platform; ``team_of_device`` says whose team every device is
in. ``GPU.0+GPU.1`` is the name of a team of two, and a device by itself is a team of one, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import frozen_array
from placekit.model.platform import Platform

JOINT = "+"
"""Between the members of a team."""
TEAM_RULES = ("off", "equal", "any")
"""Which devices may form a team: none, those of one kind, or any."""


def team_name(device_names: Sequence[str], members: Iterable[int]) -> str:
    """Return the name of a team.

    Examples
    --------
    >>> team_name(("cpu", "gpu.0", "gpu.1"), [1, 2])
    'gpu.0+gpu.1'
    """
    return JOINT.join(device_names[d] for d in members)


def teams_of(team_of_device: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    """Return the members of every team, in the order of the platform.

    Examples
    --------
    >>> teams_of(np.array([0, 1, 0]))
    ((0, 2), (1,))
    """
    members: dict[int, list[int]] = {}
    for device, team in enumerate(team_of_device.tolist()):
        members.setdefault(team, []).append(device)
    return tuple(map(tuple, members.values()))


def members_of(name: str, device_names: Sequence[str]) -> tuple[int, ...]:
    """Return the devices of the team called `name`, in the order of the platform.

    Names of several devices are joined by ``+`` in any order. Raises `UnknownNameError`: a member that is no device;
    `InvalidProblemError`: a member that is named twice.
    """
    if name in device_names:
        return (device_names.index(name),)
    members = []
    for part in name.split(JOINT):
        if part not in device_names:
            of_team = f" (in team {name!r})" if JOINT in name else ""
            raise UnknownNameError(
                f"no device {part!r} on this platform{of_team}; devices are {', '.join(device_names)}"
            )
        if device_names.index(part) in members:
            raise InvalidProblemError(f"team {name!r} names device {part!r} twice")
        members.append(device_names.index(part))
    return tuple(sorted(members))


def teams_from_names(names: Iterable[str], device_names: Sequence[str]) -> tuple[dict[str, int], NDArray[np.int64]]:
    """Return the first member of every named team, and ``[num_devices]`` the team of every device.

    Raises `UnknownNameError`, `InvalidProblemError`: as `members_of`; or a device that is in two teams.
    """
    first: dict[str, int] = {}
    team_of_device = np.arange(len(device_names))
    owner: dict[int, tuple[str, tuple[int, ...]]] = {}
    for name in dict.fromkeys(names):  # no set: errors name the first
        members = members_of(name, device_names)
        for device in members:
            other, same = owner.setdefault(device, (name, members))
            if same != members:
                raise InvalidProblemError(f"device {device_names[device]!r} is in two teams: {other!r} and {name!r}")
            team_of_device[device] = members[0]
        first[name] = members[0]
    return first, team_of_device


def checked_teams(
    team_of_device: ArrayLike, device_of_op: NDArray[np.int64], device_names: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the teams and the devices of a placement in their normal form; None if no team of several holds an op.

    In the normal form a team is named by its first member, and devices that hold nothing are by themselves. Raises
    `InvalidProblemError`: a wrong length, a team that is not named by its first member, or a member with a ``+`` in its
    name.
    """
    num_devices = len(device_names)
    team = frozen_array(team_of_device, np.int64, (num_devices,), "placement: team_of_device")
    for device, first in enumerate(team.tolist()):
        if not 0 <= first <= device or team[first] != first:
            raise InvalidProblemError(
                f"placement: device {device_names[device]!r} is in team {first}; a team has the index of its first "
                f"member, here one from 0 to {device}"
            )
    device_of_op = team[device_of_op]
    used = np.isin(team, device_of_op)
    team = np.where(used, team, np.arange(num_devices))
    if np.array_equal(team, np.arange(num_devices)):
        return None
    for members in teams_of(team):
        odd = [device_names[d] for d in members if len(members) > 1 and JOINT in device_names[d]]
        if odd:
            raise InvalidProblemError(f"device {odd[0]!r} cannot be in a team: {JOINT!r} joins the names of members")
        if len(members) > 1 and team_name(device_names, members) in device_names:
            raise InvalidProblemError(
                f"a team cannot be called {team_name(device_names, members)!r}: a device has that name"
            )
    team.setflags(write=False)
    return team, device_of_op


def pins_of_classes(
    class_of_op: NDArray[np.int64], pinned: NDArray[np.int64], num_classes: int, num_devices: int
) -> NDArray[np.bool_]:
    """``[num_classes, num_devices]`` True where an op of the class is pinned to the device."""
    pins = np.zeros((num_classes, num_devices), dtype=bool)
    ops = np.flatnonzero(pinned >= 0)
    pins[class_of_op[ops], pinned[ops]] = True
    return pins


def forbidden_teams(team_of_device: NDArray[np.int64], platform: Platform, rule: str) -> Iterator[tuple[str, str]]:
    """Yield (team, one sentence) for every team of several devices that a rule of `TEAM_RULES` forbids."""
    for members in teams_of(team_of_device):
        if len(members) == 1 or rule == "any":
            continue
        name = team_name(platform.device_names, members)
        if rule == "off":
            yield name, f"{name!r} is a team of {len(members)} devices; the objective has teams of one only"
            continue
        kinds = list(dict.fromkeys(platform.devices[d].kind for d in members))
        if len(kinds) > 1:
            yield name, f"team {name!r} mixes the kinds {' and '.join(map(repr, kinds))}; teams are of equal devices"
