"""Ranks on several machines: which machine has which ranks, and what starts them there.

References
----------
vLLM on Ray (``RayDistributedExecutor``): ranks of the machine of ``vllm serve`` come first, then those of machines with
fewer ranks, then of lower addresses; cards of a machine count in the order of their numbers.
SGLang (``_calculate_rank_ranges`` of ``engine.py``): every machine has ``pp_size / nnodes`` stages, in the order of
``--node-rank``.
torchrun with its static rendezvous: ranks are numbered machine by machine, in the order of ``--node-rank``, and
machines may have different numbers of them (``torch/distributed/elastic/agent/server/api.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from placekit.language.runtimes.device_names import numbers_seen, visible_devices
from placekit.language.runtimes.record import Placed, Start
from placekit.model.errors import UnsupportedProblemError
from placekit.model.platform import MAX_DEVICES

RAY_PORT, PORT = 6379, 29500


class Ranks(NamedTuple):
    """Consecutive ranks of one machine."""

    node: str | None
    devices: tuple[str, ...]


def by_machine(runtime: str, placed: Placed, devices: Sequence[str]) -> list[Ranks]:
    """Return the machines of ranks, in the order of their ranks.

    Raises `UnsupportedProblemError`: ranks of a machine that do not follow one another.
    """
    node_of = {name: card.node for card in placed.platform.devices for name in card.member_names}
    found = [Ranks(node, tuple(own)) for node, own in groupby(devices, key=node_of.__getitem__)]
    seen = [each.node for each in found]
    for at, node in enumerate(seen):
        if node in seen[:at]:
            raise UnsupportedProblemError(
                f"{runtime} numbers ranks machine by machine; stages on {node!r} are before and behind those on "
                f"{seen[at - 1]!r}: --pin blocks to machines in a row"
            )
    return found


def ray_starts(runtime: str, placed: Placed, devices: Sequence[str]) -> tuple[Start, ...]:
    """Return what makes machines a Ray cluster whose ranks are `devices`; nothing for one machine.

    Raises `UnsupportedProblemError`: an order of machines or of cards that Ray does not have.
    """
    machines = by_machine(runtime, placed, devices)
    if len(machines) < 2:
        return ()
    head, counts = str(machines[0].node), [len(each.devices) for each in machines]
    if counts[1:] != sorted(counts[1:]):
        told = ", ".join(f"{each.node} {len(each.devices)}" for each in machines)
        raise UnsupportedProblemError(
            f"{runtime} on Ray numbers ranks of the first machine, then of machines with fewer cards before those with "
            f"more; the plan has {told}: --pin blocks to them in that order"
        )
    starts = []
    for at, each in enumerate(machines):
        environment = visible_devices(placed.platform, each.devices, placed.served.cards, placed.served.nodes)
        numbers = numbers_seen(environment, MAX_DEVICES)
        if numbers != sorted(numbers):
            raise UnsupportedProblemError(
                f"{runtime} on Ray takes the cards of a machine in the order of their numbers; the plan has "
                f"{', '.join(each.devices)} of {each.node}: --pin blocks to them in that order"
            )
        words = ("--head", "--port", str(RAY_PORT)) if not at else ("--address", f"{head}:{RAY_PORT}")
        starts.append(Start(each.node, environment, (*words, "--num-gpus", str(len(each.devices)))))
    return tuple(starts)


def node_starts(runtime: str, placed: Placed, devices: Sequence[str], num_stages: int) -> tuple[Start, ...]:
    """Return the options of every machine of a server that has as many stages on each; nothing for one machine.

    Raises `UnsupportedProblemError`: other numbers of stages.
    """
    machines = by_machine(runtime, placed, devices)
    if len(machines) < 2:
        return ()
    counts = [len(each.devices) for each in machines]
    if num_stages % len(machines) or len(set(counts)) > 1:
        told = ", ".join(f"{each.node} {len(each.devices)}" for each in machines)
        raise UnsupportedProblemError(f"{runtime} has as many ranks on every machine; the plan has {told}")
    return tuple(
        Start(
            each.node,
            visible_devices(placed.platform, each.devices, placed.served.cards, placed.served.nodes),
            ("--nnodes", str(len(machines)), "--node-rank", str(at), "--dist-init-addr", f"{machines[0].node}:{PORT}"),
        )
        for at, each in enumerate(machines)
    )


def torchrun_starts(runtime: str, placed: Placed, devices: Sequence[str]) -> tuple[Start, ...]:
    """Return what torchrun is told on every machine.

    Raises `UnsupportedProblemError`: as `by_machine`.
    """
    machines, starts = by_machine(runtime, placed, devices), []
    for at, each in enumerate(machines):
        environment = visible_devices(placed.platform, each.devices, placed.served.cards, placed.served.nodes)
        ranks = ("--nproc-per-node", str(len(each.devices)))
        if len(machines) < 2:
            return (Start(None, environment, ("--standalone", *ranks)),)
        meeting = ("--rdzv-endpoint", f"{machines[0].node}:{PORT}")
        words = ("--nnodes", str(len(machines)), "--node-rank", str(at), *ranks, *meeting)
        starts.append(Start(each.node, environment, words))
    return tuple(starts)
