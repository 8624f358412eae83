"""Groups of equal devices that act as one, and how files and tables call them.

- A *team*, ``GPU.0+GPU.1``, shares the samples. Every member holds all of its ops, and moves the tensors of its own
  samples: a team of r has the memory of one member, and everything takes 1/r of the time. Teams of unequal devices are
  no device of one rate: see :mod:`placekit.objectives.throughput`.
- *Members*, ``GPU.0&GPU.1``, share every op (tensor parallelism). Each holds its part: the memory is that of all, the
  link that of one. Times are those of :mod:`placekit.language.tensor_parallel`.
- Training plans stay apart. Their data-parallel and tensor-parallel degrees are the same two, but of devices without
  names, and a layer has measured times and bytes of every degree: there is no device to make of a group.

A team is known by its first member, in the order of the platform; ``team_of_device`` says whose team every device is
in. A device by itself is a team of one, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placekit.model.costs import CostTable
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import frozen_array
from placekit.model.platform import Device, Platform

JOINT, TOGETHER = "+", "&"
"""Between the names of a team, and between those of members."""
TEAM_RULES = ("off", "equal", "any")
"""Which devices may form a team: none, those of one kind, or any."""


def team_name(names: Iterable[str]) -> str:
    """Return the name of the team of devices with these names.

    Examples
    --------
    >>> team_name(["gpu.0", "gpu.1"])
    'gpu.0+gpu.1'
    """
    return JOINT.join(names)


def costs_of_teams(costs: CostTable, types: Sequence[tuple[int, int]]) -> CostTable:
    """Return the costs of equal devices as teams: the kinds are of `types`, an index of a kind and a size each."""
    columns, sizes = [kind for kind, _ in types], np.array([size for _, size in types])
    return costs.replace(
        kinds=tuple(f"{costs.kinds[kind]} x {size}" for kind, size in types),
        op_time_s=costs.op_time_s[:, columns] / sizes,
        transfer_time_s=costs.transfer_time_s[:, columns] / sizes,
        supported=costs.supported[:, columns],
        op_time_spread=None,
    )


def as_members(devices: Sequence[Device]) -> Device:
    """Return equal devices as one whose members they are; a device alone stays as it is."""
    first, size = devices[0], len(devices)
    if size == 1:
        return first
    names = tuple(device.name for device in devices)
    memory = None if first.memory_bytes is None else size * first.memory_bytes
    return first.replace(name=TOGETHER.join(names), kind=f"{first.kind} tp{size}", memory_bytes=memory, members=names)


def kind_of_member(device: Device) -> str:
    """Return the kind of each member of a device, or its own."""
    return device.kind.removesuffix(f" tp{device.degree}")


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
    alone = np.arange(num_devices)
    team = np.where(np.isin(team, device_of_op), team, alone)
    if np.array_equal(team, alone):
        return None
    for members in teams_of(team):
        odd = [device_names[d] for d in members if len(members) > 1 and JOINT in device_names[d]]
        if odd:
            raise InvalidProblemError(f"device {odd[0]!r} cannot be in a team: {JOINT!r} joins the names of members")
        name = team_name(device_names[d] for d in members)
        if len(members) > 1 and name in device_names:
            raise InvalidProblemError(f"a team cannot be called {name!r}: a device has that name")
    team.setflags(write=False)
    return team, device_of_op


def forbidden_teams(team_of_device: NDArray[np.int64], platform: Platform, rule: str) -> Iterator[tuple[str, str]]:
    """Yield (team, one sentence) for every team of several devices that a rule of `TEAM_RULES` forbids."""
    for members in teams_of(team_of_device):
        if len(members) == 1 or rule == "any":
            continue
        name = team_name(platform.device_names[d] for d in members)
        if rule == "off":
            yield name, f"{name!r} is a team of {len(members)} devices; the objective has teams of one only"
            continue
        kinds = list(dict.fromkeys(platform.devices[d].kind for d in members))
        if len(kinds) > 1:
            yield name, f"team {name!r} mixes the kinds {' and '.join(map(repr, kinds))}; teams are of equal devices"
