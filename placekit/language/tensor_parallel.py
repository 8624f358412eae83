r"""Tensor parallelism: teams of equal devices that compute every op together, each with a part of weights and cache.

A team of tensor-parallel degree :math:`t` is one device of the platform, with the memory of its members. Each member
holds and reads :math:`1/t` of the weights and of the cache, and does :math:`1/t` of the floating-point operations;
what every member does alone is the launches, the norms and the residual sums. Keys and values of :math:`h` key-value
heads are divided among at most :math:`h` members, and held several times beyond; a latent cache has one head.

The members add up partial results by an all-reduce after the mixer and after the feed-forward layer of a block (at
every residual sum) and after the embedding, and gather the logits, which is half an all-reduce. A ring of :math:`t`
members moves :math:`b` bytes in :math:`2 (t - 1)` rounds of :math:`b / t` bytes:

.. math:: 2 (t - 1) \, n \, (\text{latency} + b / (t \cdot \text{bandwidth}))

with :math:`n = 1` over a direct link between the members, and :math:`n = 2` through host memory, where a round is
written by one member and read by the next. Norms and routers, which runtimes hold on every member, are counted as
divided in memory: they are below a thousandth of a block.

References
----------
M. Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism",
arXiv 1909.08053, 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from placekit.language.description import ModelDescription, Part
from placekit.model.costs import CostTable
from placekit.model.device_groups import as_members
from placekit.model.errors import InvalidProblemError
from placekit.model.graph import OpGraph
from placekit.model.platform import Platform

if TYPE_CHECKING:
    from placekit.language.graph import ModelStep

Teams = Sequence[tuple[int, ...]]
"""Devices, by index, that compute together; a device alone is a team of one."""
_WHOLE = frozenset({"Add", "RMSNorm"})
"""Types of ops that every member computes alone."""


def parse_degrees(text: str) -> tuple[int, ...]:
    """Return tensor-parallel degrees from a text such as ``1,2,4``.

    Raises `InvalidProblemError` for another text.

    Examples
    --------
    >>> parse_degrees("4,1,2")
    (1, 2, 4)
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() and 1 <= int(part) <= 1024 for part in parts):
        raise InvalidProblemError(f"--tensor-parallel {text!r}: it should be degrees from 1 to 1024, such as 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def check_degree(model: ModelDescription, degree: int) -> None:
    """Refuse a degree that does not divide the heads of a model.

    Raises `InvalidProblemError` with the module and its heads.
    """
    for part in model.parts:
        for heads, what in ((part.heads, "query heads"), (part.kv_heads, "key-value heads")):
            if heads and heads % degree and (what == "query heads" or degree % heads):
                raise InvalidProblemError(
                    f"{model.name}: tensor-parallel degree {degree} does not divide the {heads} {what} of {part.path}"
                )


def cache_copies(part: Part, degree: int) -> int:
    """Return how often members of a team hold each number of a part's cache together.

    Examples
    --------
    >>> grouped, latent = Part("attn", "", kv_heads=8), Part("attn", "", kv_heads=1)
    >>> cache_copies(grouped, 4), cache_copies(grouped, 16), cache_copies(latent, 4)
    (1, 2, 4)
    """
    return max(1, degree // part.kv_heads) if part.kv_heads else 1


def copies_of_caches(model: ModelDescription, step: ModelStep, degrees: Iterable[int]) -> NDArray[np.float64]:
    """``[num_ops]`` how often a team holds the cache of every op, which is the same for all degrees.

    Raises `InvalidProblemError`: degrees that do not divide the heads, or with different numbers of copies.
    """
    found = {}
    for degree in sorted(set(degrees)):
        check_degree(model, degree)
        found[degree] = tuple(cache_copies(part, degree) for part in step.parts)
    if len(set(found.values())) > 1:
        raise InvalidProblemError(
            f"{model.name}: teams of {', '.join(map(str, found))} devices hold different numbers of copies of its "
            "cache: give all teams one tensor-parallel degree"
        )
    return np.array([*found.popitem()[1], 1.0])


def equal_teams(platform: Platform, degree: int) -> list[tuple[int, ...]]:
    """Return teams of one degree, of equal accelerators on one node; what is left over of a kind is left out.

    Examples
    --------
    >>> equal_teams(Platform.of(cpu=1, l4=3, host="cpu"), 2)
    [(0,), (1, 2)]
    """
    groups: dict[tuple[str, str | None], list[int]] = {}
    for at, device in enumerate(platform.devices):
        groups.setdefault((device.kind, device.node), []).append(at)
    teams: list[tuple[int, ...]] = []
    for group in groups.values():
        size = 1 if platform.devices[group[0]].is_host else degree
        teams += [tuple(group[at : at + size]) for at in range(0, len(group) - size + 1, size)]
    return sorted(teams)


def with_teams(platform: Platform, teams: Teams) -> Platform:
    """Return the platform whose devices are `teams`.

    A team has the link of its members' kind, and the memory of all of them.

    Examples
    --------
    >>> platform = Platform.of(l4=3, memory_bytes={"l4": 24e9})
    >>> [(each.name, each.kind, each.memory_bytes) for each in with_teams(platform, [(0, 1), (2,)]).devices]
    [('l4.0&l4.1', 'l4 tp2', 48000000000.0), ('l4.2', 'l4', 24000000000.0)]
    """
    base_of: dict[str, str] = {}
    devices = []
    for team in teams:
        devices.append(as_members([platform.devices[at] for at in team]))
        base_of[devices[-1].kind] = platform.devices[team[0]].kind
    kinds_of: dict[str, list[str]] = {}
    for kind, base in base_of.items():
        kinds_of.setdefault(base, []).append(kind)
    links = {kind: platform.links[base] for kind, base in base_of.items() if base in platform.links}
    direct = tuple(
        replace(link, kinds=kinds)
        for link in platform.direct_links
        for kinds in ([None] if link.kinds is None else sorted(_pairs(kinds_of, link.kinds)))
    )
    specs = {kind: platform.spec_of_kind.get(base, base) for kind, base in base_of.items() if kind != base}
    pools = tuple(  # members of a team are interchangeable, so they share a pool or none
        replace(pool, devices=inside)
        for pool in platform.pools
        if (inside := tuple(each.name for each in devices if each.member_names[0] in pool.devices))
    )
    return Platform(
        tuple(devices), links, direct, {**platform.spec_of_kind, **specs}, platform.specs, pools
    )  # fmt: skip


def _pairs(kinds_of: dict[str, list[str]], kinds: tuple[str, ...]) -> set[tuple[str, str]]:
    """Return the pairs of kinds of teams whose members are of these kinds."""
    one, other = (kinds_of.get(kind, []) for kind in kinds)
    return {(min(pair), max(pair)) for pair in product(one, other)}


def team_costs(
    costs: Callable[[OpGraph], CostTable], step: ModelStep, platform: Platform, teams: Teams
) -> Callable[[OpGraph], CostTable]:
    """Return the costs of ops on teams.

    Which ops are divided does not depend on the phase of `step`.
    """
    joined = with_teams(platform, teams)
    first = {device.kind: team for device, team in zip(joined.devices, teams, strict=True)}

    def table(graph: OpGraph) -> CostTable:
        plain = costs(graph)
        columns = [_column(costs, plain, graph, step, platform, first[kind]) for kind in joined.kinds]
        bases = [plain.kinds.index(platform.devices[first[kind][0]].kind) for kind in joined.kinds]
        return CostTable(
            kinds=joined.kinds,
            op_time_s=np.stack(columns, axis=1),
            transfer_time_s=plain.transfer_time_s[:, bases],
            op_memory_bytes=plain.op_memory_bytes,
            supported=plain.supported[:, bases],
            op_group=plain.op_group,
            provenance=plain.provenance,
            blocks=plain.blocks,
            direct_links=joined.direct_link_names,
            direct_time_s=joined.direct_times_s(graph.tensor_bytes),
        )

    return table


def _column(
    costs: Callable[[OpGraph], CostTable],
    plain: CostTable,
    graph: OpGraph,
    step: ModelStep,
    platform: Platform,
    team: tuple[int, ...],
) -> NDArray[np.float64]:
    """``[num_ops]`` seconds of every op on a team."""
    degree, kind = len(team), platform.devices[team[0]].kind
    base = plain.kinds.index(kind)
    if degree == 1:
        return plain.op_time_s[:, base]
    done, read = (np.array(list(shares)) for shares in zip(*_shares(step, degree), strict=True))
    part = costs(graph.replace(op_flops=graph.op_flops * done, op_weight_bytes=graph.op_weight_bytes * read))
    rounds = costs(graph.replace(tensor_bytes=graph.tensor_bytes / degree))
    link = int(platform.direct_link(team[0], team[1]))
    moved_s = 2 * rounds.transfer_time_s[:, base] if link < 0 else rounds.direct_time_s[:, link]
    largest_s = np.zeros(graph.num_ops)  # of the tensors of an op, of which parts have one
    np.maximum.at(largest_s, graph.tensor_producer, moved_s)
    seconds: NDArray[np.float64] = part.op_time_s[:, base] + 2 * (degree - 1) * _all_reduces(step) * largest_s
    return seconds


def _shares(step: ModelStep, degree: int) -> Iterator[tuple[float, float]]:
    """Yield, for every op, the shares of its operations and of its bytes that fall on one member."""
    for part in step.parts:
        if part.op_type in _WHOLE:
            yield 1.0, 1.0
        else:
            yield 1 / degree, cache_copies(part, degree) / degree
    yield 1.0, 1.0  # the output


def _all_reduces(step: ModelStep) -> NDArray[np.float64]:
    """``[num_ops]`` all-reduces of the output of every op."""
    found = [float(part.op_type == "Add") + 0.5 * part.is_last for part in step.parts]
    if step.num_front and not found[step.num_front - 1]:
        found[step.num_front - 1] = 1.0
    return np.array([*found, 0.0])


def usable_degrees(platform: Platform, degrees: Iterable[int]) -> list[int]:
    """Return the degrees for which there are enough equal accelerators, or none if there are only hosts."""
    largest = max((len(team) for degree in degrees for team in equal_teams(platform, degree)), default=1)
    return [degree for degree in degrees if degree <= largest]
