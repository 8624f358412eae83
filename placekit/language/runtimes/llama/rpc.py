"""Devices of other machines in llama.cpp: a server on every machine that has some, and one program that uses them.

``ggml-rpc-server`` offers the devices of its machine at an address, and ``--rpc`` takes the addresses. All tensors pass
through the machine of the program, also from one server to another. So a platform with machines becomes a platform of
one machine, that of the program, where devices of other machines are accelerators behind the network.

References
----------
llama.cpp, build 11434: devices are called ``RPC0``, ``RPC1``, ... in the order of ``--rpc`` and, of one server, of its
``--device``; their buffers have the number within the server, and its address: ``RPC0[desk:50052]``. The port is 50052.
``ggml-rpc-server --host`` takes numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placekit.language.runtimes.device_names import ADDRESS, buffer_names, threads_of
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Device, Link, Platform

PORT = 50052
THREADS = "RPC_THREADS"
"""Property of a host of another machine: threads of its server."""
REMOTE_NAME = "RPC_DEVICE"
"""Property of a device of another machine: its name there."""
GIGABIT = Link(150e-6, 117e6)
"""Link to a device that is given by its address alone: Ethernet of 1 Gbit/s, a round trip of 0.3 ms."""
_NAME = re.compile(r"RPC\d*\[(?P<address>[^\]]+)\]")
_NUMBERED = re.compile(r"RPC\d*", re.IGNORECASE)


@dataclass(frozen=True)
class RemoteDevices:
    """Devices of other machines that a plan uses, and how llama.cpp calls them."""

    addresses: tuple[str, ...]  # of the servers, in the order of `--rpc`
    # names, buffers: by device of the platform
    names: Mapping[str, str]
    buffers: Mapping[str, str]
    servers: tuple[str, ...]  # line that starts each server


def is_remote(device: Device) -> bool:
    """Return whether a device of `as_one_machine` is on another machine."""
    return ADDRESS in device.properties


def as_one_machine(platform: Platform) -> Platform:
    """Return the platform as llama.cpp sees it from the machine of the first host, or of the first device.

    Devices of other machines, the hosts there too, are accelerators with a link over the network. A platform of one
    machine is returned as it is. Nodes are addresses: names or numbers, with or without a port.

    Raises `InvalidProblemError`: a device called ``RPC0`` without a node, whose address nothing says.

    Examples
    --------
    >>> pair = (Device("here", "cpu", is_host=True), Device("RPC[10.0.0.2:50052]", "rtx4090"))
    >>> seen = as_one_machine(Platform(pair))
    >>> dict(seen.devices[1].properties), seen.links["rtx4090"].bandwidth_bytes_per_s
    ({'RPC_ADDRESS': '10.0.0.2:50052', 'RPC_DEVICE': 'CUDA0'}, 117000000.0)
    """
    main = next((each for each in platform.devices if each.is_host), platform.devices[0])
    address = {each.name: found for each in platform.devices if (found := _address(each, main)) is not None}
    if not address:
        return platform
    names = _names_there(platform, address)
    at_home = {each.kind for each in platform.devices if each.name not in address}
    links = {kind: link for kind, link in platform.links.items() if kind in at_home}
    specs, devices = dict(platform.spec_of_kind), []
    first_of_kind: dict[str, str] = {}  # address of the first machine that has the kind
    for device in platform.devices:
        if device.name not in address:
            devices.append(device.replace(node=None))
            continue
        there = address[device.name]
        is_first = first_of_kind.setdefault(device.kind, there) == there and device.kind not in at_home
        kind = device.kind if is_first else f"{device.kind}@{there}"
        specs.setdefault(kind, platform.spec_of_kind.get(device.kind, device.kind))
        links[kind] = _network(platform, main, device)
        told = {**device.properties, ADDRESS: there, REMOTE_NAME: names[device.name]}
        if device.is_host and (threads := threads_of(platform, device)) is not None:
            told[THREADS] = str(threads)
        devices.append(device.replace(kind=kind, node=None, is_host=False, properties=told))
    return platform.replace(devices=tuple(devices), links=links, direct_links=(), spec_of_kind=specs)


def _address(device: Device, main: Device) -> str | None:
    """Return the address of the server of a device; None on the machine of `main`, and for one that has it already."""
    if is_remote(device):
        return None
    if device.node is not None:
        return None if device.node == main.node else _with_port(device.node)
    if named := _NAME.fullmatch(device.name):
        return _with_port(named["address"])
    if _NUMBERED.fullmatch(device.name):
        raise InvalidProblemError(
            f"device {device.name!r} is on another machine, and its address is not known: call it RPC[HOST:{PORT}]"
        )
    return None


def _with_port(node: str) -> str:
    return node if re.search(r":\d+$", node) else f"{node}:{PORT}"


def _names_there(platform: Platform, address: Mapping[str, str]) -> dict[str, str]:
    """Return the names that devices of other machines have there."""
    found: dict[str, str] = {}
    for there in set(address.values()):
        own = [each.replace(name=f"device {at}") for at, each in enumerate(platform.devices)
               if address.get(each.name) == there]  # fmt: skip
        named = buffer_names(Platform(tuple(own), spec_of_kind=platform.spec_of_kind))
        found |= {platform.device_names[int(name.split()[1])]: buffer for name, buffer in named.items()}
    return found


def _network(platform: Platform, main: Device, device: Device) -> Link:
    """Return the link between the machine of `main` and a device of another one."""
    if device.node is None:  # without nodes a link of the kind is the network's
        return platform.links.get(device.kind, GIGABIT)
    direct = platform.direct_links[int(platform.direct_link(platform.index(main.name), platform.index(device.name)))]
    return Link(direct.latency_s, direct.bandwidth_bytes_per_s)


def remote_devices(devices: Iterable[Device]) -> RemoteDevices:
    """Return how llama.cpp reaches those of some devices that are on other machines."""
    by_address: dict[str, list[Device]] = {}
    for device in devices:
        if is_remote(device):
            by_address.setdefault(device.properties[ADDRESS], []).append(device)
    flat = [(address, at, device) for address, own in by_address.items() for at, device in enumerate(own)]
    return RemoteDevices(
        tuple(by_address),
        {device.name: f"RPC{number}" for number, (_, _, device) in enumerate(flat)},
        {device.name: f"RPC{at}[{address}]" for address, at, device in flat},
        tuple(_server(address, own) for address, own in by_address.items()),
    )


def _server(address: str, devices: Sequence[Device]) -> str:
    """Return the line that starts the server of some devices on their machine."""
    host, _, port = address.rpartition(":")
    bound = host if re.fullmatch(r"[\d.]+", host) else "0.0.0.0"  # noqa: S104  # the machine is for the user's network
    names = ",".join(device.properties[REMOTE_NAME] for device in devices)
    threads = next((f" -t {each.properties[THREADS]}" for each in devices if THREADS in each.properties), "")
    return f"ggml-rpc-server -H {bound} -p {port} -d {names}{threads}  # on {host}"
