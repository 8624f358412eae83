"""Links between workers, measured by sending arrays over a socket of their own.

1. One worker listens, the other sends an array of each size, and waits for a byte that says that all of it came.
2. A single byte there and back takes two latencies: half of its median is taken off every time.
3. Both directions are measured. Latency and bandwidth are fitted to medians; the spread is of the largest size.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.cluster.engine import Cluster, ClusterError, Worker
from placekit.cost_models.openvino.transfer import fit_link
from placekit.model.platform import DirectLink, Link, Platform

SIZES_BYTES = (1, *(1 << power for power in range(16, 26, 2)), 48 << 20)
"""Sizes that are sent: a byte, and 64 KiB to 48 MiB."""
_LEAST, _MOST, _ENOUGH_S = 5, 15, 1.0
"""Repetitions of a size, at least and at most, and the seconds after which there are no more than the least."""
_PATIENCE_S = 60.0

_LISTENING: dict[int, socket.socket] = {}


def measure_link(cluster: Cluster, one: Worker, other: Worker) -> tuple[Link, float]:
    """Measure the link between two workers; return it with its spread: interquartile range over median.

    Raises
    ------
    ClusterError
        One worker cannot reach the other.
    """
    both = [_send_from(cluster, *pair) for pair in ((one, other), (other, one))]
    times_s = [np.concatenate(of_size) for of_size in zip(*both, strict=True)]
    ping_s = float(np.median(times_s[0]))
    medians = [max(float(np.median(each)) - ping_s / 2, ping_s / 2) for each in times_s[1:]]
    low, high = np.percentile(times_s[-1], [25, 75])
    # of what fits into caches a loopback moves more per second: the largest sizes say what a stream takes
    rate = fit_link(SIZES_BYTES[-3:], medians[-3:]).bandwidth_bytes_per_s
    return Link(ping_s / 2, rate), float((high - low) / np.median(times_s[-1]))


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


def _send_from(cluster: Cluster, sender: Worker, receiver: Worker) -> list[NDArray[np.float64]]:
    """Return the seconds of every size, from one worker to the other."""
    (port,) = cluster.ask(_listen, workers=[receiver]).values()
    asked: list[Any] = [
        cluster.submit(_receive, port, SIZES_BYTES, worker=receiver),
        cluster.submit(_send, receiver.host, port, SIZES_BYTES, worker=sender),
    ]
    try:
        times_s: list[NDArray[np.float64]] = cluster.values(asked, 10 * _PATIENCE_S)[1]
    except OSError as error:
        raise ClusterError(
            f"worker {sender.name!r} cannot send to {receiver.name!r} at {receiver.host}:{port}: {error}"
        ) from None
    return times_s


def _listen() -> int:
    listener = socket.create_server(("", 0))
    listener.settimeout(_PATIENCE_S)
    port: int = listener.getsockname()[1]
    _LISTENING[port] = listener
    return port


def _receive(port: int, sizes_bytes: Sequence[int]) -> None:
    """Take arrays until the sender says that there are no more of a size, and of all sizes."""
    with _LISTENING.pop(port) as listener:
        taken, _ = listener.accept()
    buffer = memoryview(bytearray(max(sizes_bytes)))
    with taken:
        taken.settimeout(_PATIENCE_S)
        taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in sizes_bytes:
            while taken.recv(1) == b"+":
                left = buffer[:size]
                while left:
                    left = left[taken.recv_into(left) or _lost() :]
                taken.sendall(b".")


def _send(host: str, port: int, sizes_bytes: Sequence[int]) -> list[NDArray[np.float64]]:
    array = memoryview(bytes(max(sizes_bytes)))
    times_s = []
    with socket.create_connection((host, port), timeout=_PATIENCE_S) as sent:
        sent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in sizes_bytes:
            mine: list[float] = []
            for _ in range(_MOST + 1):
                sent.sendall(b"+")
                begin = time.perf_counter()
                sent.sendall(array[:size])
                sent.recv(1) or _lost()
                mine.append(time.perf_counter() - begin)
                if len(mine) > _LEAST and sum(mine) > _ENOUGH_S:
                    break
            sent.sendall(b"-")
            times_s.append(np.array(mine[1:]))  # the first one touches the pages
    return times_s


def _lost() -> int:
    raise ConnectionError("the connection was closed")
