"""Links between workers, measured by sending arrays over a socket of their own.

1. One worker listens, the other sends a single byte, and waits for one back: two latencies.
2. Arrays double until one takes a tenth of a second; then several of that size follow each other without a pause.
3. The seconds between the ends of two arrays give the bandwidth, and its spread.
4. Both directions are measured, and count alike.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.cluster.engine import Cluster, ClusterError, Worker
from placekit.model.platform import DirectLink, Link, Platform

_PINGS, _LEAST, _MOST = 30, 5, 20
"""Bytes that are sent alone; arrays at least, and at most."""
_FIRST_BYTES, _LARGEST_BYTES, _LONG_S, _ENOUGH_S = 1 << 20, 1 << 26, 0.1, 1.0
"""The first and the largest array, the seconds that are long enough for one, and for all."""
_PATIENCE_S = 60.0

_HEADER = 8
_LISTENING: dict[int, socket.socket] = {}
_Times: TypeAlias = tuple[NDArray[np.float64], int, NDArray[np.float64]]
"""Seconds of single bytes there and back, the size of arrays, and the seconds between the ends of two."""


def measure_link(cluster: Cluster, one: Worker, other: Worker) -> tuple[Link, float]:
    """Measure the link between two workers; return it with its spread: interquartile range over median.

    Raises
    ------
    ClusterError
        One worker cannot reach the other.
    """
    both = [_send_from(cluster, *pair) for pair in ((one, other), (other, one))]
    ping_s = float(np.median(np.concatenate([pings_s for pings_s, _, _ in both])))
    rates = np.concatenate([size / times_s for _, size, times_s in both])
    low, rate, high = np.percentile(rates, [25, 50, 75])
    return Link(ping_s / 2, float(rate)), float((high - low) / rate)


def with_measured_links(cluster: Cluster, platform: Platform, workers: Mapping[str, Worker]) -> tuple[Platform, Any]:
    """Return the platform with its links between nodes as measured, and what was measured of every pair of nodes.

    A link that several pairs of nodes use is the slowest of theirs.
    """
    used: dict[int, set[tuple[str, str]]] = {}
    for a, b in combinations(range(platform.num_devices), 2):
        left, right = sorted(str(platform.devices[each].node) for each in (a, b))
        if left != right:
            used.setdefault(int(platform.direct_link(a, b)), set()).add((left, right))
    pairs = sorted(set().union(*used.values()))
    found = {pair: measure_link(cluster, *(workers[node] for node in pair)) for pair in pairs}
    links: list[DirectLink] = []
    for number, direct in enumerate(platform.direct_links):
        measured = [found[pair] for pair in sorted(used.get(number, ()))]
        if measured:
            slowest, spread = min(measured, key=lambda each: each[0].bandwidth_bytes_per_s)
            latency_s, rate = max(each.latency_s for each, _ in measured), slowest.bandwidth_bytes_per_s
            direct = replace(direct, latency_s=latency_s, bandwidth_bytes_per_s=rate, spread=spread)  # noqa: PLW2901
        links.append(direct)
    told = {" - ".join(pair): {**link.to_dict(), "spread": spread} for pair, (link, spread) in found.items()}
    return platform.replace(direct_links=tuple(links)), told


def _send_from(cluster: Cluster, sender: Worker, receiver: Worker) -> _Times:
    """Return what one worker measured when it sent to the other."""
    (port,) = cluster.ask(_listen, workers=[receiver]).values()
    asked: list[Any] = [
        cluster.submit(_receive, port, worker=receiver),
        cluster.submit(_send, receiver.host, port, worker=sender),
    ]
    try:
        ends_s, (pings_s, size, count) = cluster.values(asked, 10 * _PATIENCE_S)
    except OSError as error:
        raise ClusterError(
            f"worker {sender.name!r} cannot send to {receiver.name!r} at {receiver.host}:{port}: {error}"
        ) from None
    return pings_s, size, np.diff(ends_s[-count:])


def _listen() -> int:
    listener = socket.create_server(("", 0))
    listener.settimeout(_PATIENCE_S)
    port: int = listener.getsockname()[1]
    _LISTENING[port] = listener
    return port


def _receive(port: int) -> NDArray[np.float64]:
    """Take arrays, each after its size, until the size is 0; return when each had come."""
    with _LISTENING.pop(port) as listener:
        taken, _ = listener.accept()
    buffer, ends_s = memoryview(bytearray(_LARGEST_BYTES)), []
    with taken:
        taken.settimeout(_PATIENCE_S)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while size := int.from_bytes(taken.recv(_HEADER, socket.MSG_WAITALL)):
            left = buffer[:size]
            while left:
                left = left[taken.recv_into(left) or _lost() :]
            ends_s.append(time.perf_counter())
            taken.sendall(b".")
    return np.array(ends_s)


def _send(host: str, port: int) -> tuple[NDArray[np.float64], int, int]:
    """Return the seconds of single bytes, the size of the arrays at the end, and their number."""
    array = memoryview(b"1" * _LARGEST_BYTES)  # zeros would be one page in a cache
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as sent:
        sent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def timed_s(size: int) -> float:
            begin = time.perf_counter()
            sent.sendall(size.to_bytes(_HEADER))
            sent.sendall(array[:size])
            sent.recv(1) or _lost()
            return time.perf_counter() - begin

        pings_s = [timed_s(1) for _ in range(_PINGS)]
        size = _FIRST_BYTES
        while (last_s := timed_s(size)) < _LONG_S and size < _LARGEST_BYTES:
            size *= 2
        count = int(min(max(_ENOUGH_S / last_s, _LEAST), _MOST)) + 1
        for _ in range(count):
            sent.sendall(size.to_bytes(_HEADER))
            sent.sendall(array[:size])
        for _ in range(count):
            sent.recv(1) or _lost()
        sent.sendall(bytes(_HEADER))
    return np.array(pings_s), size, count


def _lost() -> int:
    raise ConnectionError("the connection was closed")
