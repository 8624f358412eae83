r"""Flat arrays of a training problem, and its ideals, for the kernels.

An *ideal* is a set of layers that has all predecessors of its layers. Stages are differences of ideals in a chain, so
sums over a stage are differences of sums over ideals. Layers are numbered in topological order (`order`), tensor
degrees by their index. Dominated choices of a layer are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.training.problem import Choice, TrainingProblem


@dataclass(frozen=True)
class Tables:
    """Flat arrays of a problem. L layers, E edges, T tensor degrees, C choices over all (degree, layer)."""

    problem: TrainingProblem
    order: NDArray[np.int64]  # ``[L]`` layer of the problem at every position of the topological order
    # tensor_degrees, data_degrees: ``[T]`` and ``[D]`` allowed degrees, rising
    tensor_degrees: NDArray[np.int64]
    data_degrees: NDArray[np.int64]
    # edge_source, edge_target: ``[E]`` positions
    edge_source: NDArray[np.int64]
    edge_target: NDArray[np.int64]
    # edge_in_s, edge_out_s: ``[T, E]`` seconds per microbatch that an edge costs the stage of its target, and the stage
    # of its source, with the least synchronisation of any choice
    edge_in_s: NDArray[np.float64]
    edge_out_s: NDArray[np.float64]
    choice_offsets: NDArray[np.int64]  # ``[T * L + 1]`` offsets of the choices of (degree, position), fastest first
    choice_index: NDArray[np.int64]  # ``[C]`` index of the choice in its layer
    # time_s, gradient_bytes, memory_a, memory_b: ``[C]`` numbers of the choices
    time_s: NDArray[np.float64]
    gradient_bytes: NDArray[np.float64]
    memory_a: NDArray[np.float64]
    memory_b: NDArray[np.float64]
    # extra_offsets, extra_other, extra_s: ``[C + 1]``, ``[X]``, ``[X]`` seconds above the least that a choice adds if
    # the edge to the layer at position `extra_other` crosses stages
    extra_offsets: NDArray[np.int64]
    extra_other: NDArray[np.int64]
    extra_s: NDArray[np.float64]
    kind: NDArray[np.int64]  # ``[T * L]`` layers with equal numbers have equal kinds
    # True if choices of a layer differ in time and memory only: the fastest choices make the fastest stage
    is_uniform: bool

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.order)

    @property
    def gradient_s_per_byte(self) -> float:
        """Seconds per microbatch, replica and byte of gradients, times ``(d - 1) / d``."""
        return 4.0 / self.problem.num_microbatches / self.problem.bandwidth_bytes_per_s

    def per_layer(self, values: NDArray[np.float64], least: bool) -> NDArray[np.float64]:
        """Return ``[T, L]`` the value of the fastest choice, or the least value of all choices."""
        starts = self.choice_offsets[:-1]
        picked = np.minimum.reduceat(values, starts) if least else values[starts]
        return picked.reshape(len(self.tensor_degrees), self.num_layers)

    @classmethod
    def of(cls, problem: TrainingProblem) -> Tables:
        """Return the tables of `problem`."""
        order = np.array(problem.topological_order, dtype=np.int64)
        position = np.argsort(order)
        degrees = problem.tensor_degrees
        to_s = 2.0 / problem.bandwidth_bytes_per_s
        numbers: list[tuple[float, float, float, float]] = []
        index: list[int] = []
        offsets, extra_offsets = [0], [0]
        extra_other: list[int] = []
        extra_s: list[float] = []
        kinds: dict[object, int] = {}
        kind: list[int] = []
        least_in: dict[tuple[int, int, int], float] = {}
        least_out: dict[tuple[int, int, int], float] = {}
        is_uniform = True
        for ti, degree in enumerate(degrees):
            for v in order.tolist():
                choices = problem.choices(v, degree)
                ins = {u: min(c.sync_in_bytes[u] for _, c in choices) for u in problem.predecessors[v]}
                outs = {w: min(c.sync_out_bytes[w] for _, c in choices) for w in problem.successors[v]}
                least_in |= {(ti, u, v): value for u, value in ins.items()}
                least_out |= {(ti, v, w): value for w, value in outs.items()}
                kept = _undominated(choices)
                signature: list[object] = []
                for c, choice in kept:
                    row = (
                        choice.time_s, choice.parameter_bytes, choice.memory_per_microbatch_bytes,
                        choice.memory_fixed_bytes,
                    )  # fmt: skip
                    numbers.append(row)
                    index.append(c)
                    extras = [(u, choice.sync_in_bytes[u] - least) for u, least in ins.items()]
                    extras += [(w, choice.sync_out_bytes[w] - least) for w, least in outs.items()]
                    extras = [(other, more) for other, more in extras if more > 0]
                    extra_other += [int(position[other]) for other, _ in extras]
                    extra_s += [to_s * more for _, more in extras]
                    extra_offsets.append(len(extra_s))
                    signature += [row, v if extras else -1]
                    is_uniform &= not extras and choice.parameter_bytes == kept[0][1].parameter_bytes
                offsets.append(len(numbers))
                kind.append(kinds.setdefault((ti, *signature), len(kinds)))
        table = np.array(numbers, dtype=np.float64).reshape(-1, 4)
        edge_s = np.zeros((2, len(degrees), len(problem.edges)))
        for ti in range(len(degrees)):
            for e, edge in enumerate(problem.edges):
                ends = (ti, edge.source, edge.target)
                edge_s[0, ti, e] = to_s * (edge.num_bytes + least_in[ends])
                edge_s[1, ti, e] = to_s * (edge.num_bytes + least_out[ends])
        return cls(
            problem=problem,
            order=order,
            tensor_degrees=np.array(degrees, dtype=np.int64),
            data_degrees=np.array(problem.data_degrees, dtype=np.int64),
            edge_source=np.array([position[edge.source] for edge in problem.edges], dtype=np.int64),
            edge_target=np.array([position[edge.target] for edge in problem.edges], dtype=np.int64),
            edge_in_s=edge_s[0],
            edge_out_s=edge_s[1],
            choice_offsets=np.array(offsets, dtype=np.int64),
            choice_index=np.array(index, dtype=np.int64),
            time_s=table[:, 0].copy(),
            gradient_bytes=table[:, 1].copy(),
            memory_a=table[:, 2].copy(),
            memory_b=table[:, 3].copy(),
            extra_offsets=np.array(extra_offsets, dtype=np.int64),
            extra_other=np.array(extra_other, dtype=np.int64),
            extra_s=np.array(extra_s, dtype=np.float64),
            kind=np.array(kind, dtype=np.int64),
            is_uniform=is_uniform,
        )


def _undominated(choices: tuple[tuple[int, Choice], ...]) -> list[tuple[int, Choice]]:
    """Return the choices that no other choice dominates, fastest first; of equal choices the first."""
    kept: list[tuple[int, Choice]] = []
    rows: list[NDArray[np.float64]] = []
    for c, choice in sorted(choices, key=lambda pair: (*list(pair[1].values().values()), pair[0])):
        # the order of values() puts dominating choices before dominated ones
        row = np.array([choice.values()[name] for name in sorted(choice.values())])
        if not any((other <= row).all() for other in rows):
            kept.append((c, choice))
            rows.append(row)
    return kept


class Ideals(NamedTuple):
    """Ideals by rising size, from the empty to the full ideal. I ideals, W words."""

    bits: NDArray[np.uint64]  # ``[I, W]`` members by position
    size: NDArray[np.int64]  # ``[I]`` numbers of members
    # cut_offsets, cut_edges: ``[I + 1]`` offsets, and flat list, of the edges that leave every ideal
    cut_offsets: NDArray[np.int64]
    cut_edges: NDArray[np.int64]
    # time_s, gradient_bytes, memory_a, memory_b: ``[T, I]`` sums over each ideal: of the least time and gradients, and
    # of the memory of the fastest choices
    time_s: NDArray[np.float64]
    gradient_bytes: NDArray[np.float64]
    memory_a: NDArray[np.float64]
    memory_b: NDArray[np.float64]
    work_s: NDArray[np.float64]  # ``[I]`` sum of the least device-seconds ``t * time`` of any degree and choice
    # ``[I]`` sum of the least bytes times devices of any degree and choice with one microbatch in flight
    least_bytes: NDArray[np.float64]

    def members(self, num_layers: int) -> NDArray[np.float64]:
        """``[I, L]`` 1 where an ideal has a layer."""
        raw = np.ascontiguousarray(self.bits.astype("<u8")).view(np.uint8)
        return np.unpackbits(raw, axis=1, bitorder="little")[:, :num_layers].astype(np.float64)


def all_ideals(tables: Tables, most: int) -> Ideals | None:
    """Return every ideal; None if there are more than `most`. O(ideals * layers)."""
    needs = [0] * tables.num_layers
    for u, v in zip(tables.edge_source.tolist(), tables.edge_target.tolist(), strict=True):
        needs[v] |= 1 << u
    followers: list[list[int]] = [[] for _ in needs]
    for u, v in zip(tables.edge_source.tolist(), tables.edge_target.tolist(), strict=True):
        followers[u].append(v)
    sources = sum(1 << v for v, need in enumerate(needs) if need == 0)
    level = {0: sources}  # layers that can be added, by ideal
    found: list[int] = []
    while level:
        found += level
        if len(found) > most:
            return None
        grown: dict[int, int] = {}
        for ideal, free in level.items():
            rest = free
            while rest:
                bit = rest & -rest
                rest ^= bit
                larger = ideal | bit
                if larger not in grown:
                    opened = free ^ bit
                    for w in followers[bit.bit_length() - 1]:
                        if needs[w] & ~larger == 0:
                            opened |= 1 << w
                    grown[larger] = opened
        level = grown
    return _described(tables, found)


def some_ideals(tables: Tables, orders: list[NDArray[np.int64]]) -> Ideals:
    """Return the prefixes of a few topological orders; without orders the empty and the full ideal."""
    masks = {0, (1 << tables.num_layers) - 1}
    for order in orders:
        mask = 0
        for v in order.tolist():
            mask |= 1 << v
            masks.add(mask)
    return _described(tables, sorted(masks, key=lambda mask: (mask.bit_count(), mask)))


def linear_orders(tables: Tables) -> list[NDArray[np.int64]]:
    """Return diverse topological orders: by depth, by height and by their difference, with ties both ways."""
    n = tables.num_layers
    edges = sorted(zip(tables.edge_source.tolist(), tables.edge_target.tolist(), strict=True))
    depth, height = np.zeros(n), np.zeros(n)
    for u, v in edges:  # positions are topological
        depth[v] = max(depth[v], depth[u] + 1)
    for u, v in reversed(edges):
        height[u] = max(height[u], height[v] + 1)
    found: list[NDArray[np.int64]] = [np.arange(n)]
    for key in (depth, depth.max(initial=0) - height, depth - height):
        found += [_repaired(n, edges, np.lexsort((tie, key))) for tie in (np.arange(n), -np.arange(n))]
    return found


def _repaired(n: int, edges: list[tuple[int, int]], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a topological order that follows `wanted` as far as possible."""
    import heapq

    rank = np.argsort(wanted)
    missing, after = [0] * n, [list[int]() for _ in range(n)]
    for u, v in edges:
        missing[v] += 1
        after[u].append(v)
    ready = [(int(rank[v]), v) for v in range(n) if missing[v] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        v = heapq.heappop(ready)[1]
        order.append(v)
        for w in after[v]:
            missing[w] -= 1
            if missing[w] == 0:
                heapq.heappush(ready, (int(rank[w]), w))
    return np.array(order, dtype=np.int64)


def _described(tables: Tables, masks: list[int]) -> Ideals:
    num_layers, num_words = tables.num_layers, max(1, -(-tables.num_layers // 64))
    raw = b"".join(mask.to_bytes(8 * num_words, "little") for mask in masks)
    bits = np.frombuffer(raw, dtype="<u8").reshape(len(masks), num_words).astype(np.uint64)
    member = np.unpackbits(np.frombuffer(raw, dtype=np.uint8).reshape(len(masks), -1), axis=1, bitorder="little")
    member = member[:, :num_layers]
    if len(tables.edge_source):
        leaves = (member[:, tables.edge_source] == 1) & (member[:, tables.edge_target] == 0)
    else:
        leaves = np.zeros((len(masks), 0), dtype=bool)
    counts = leaves.sum(axis=1)
    weights = member.astype(np.float64)

    def sums(per_layer: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ascontiguousarray(per_layer @ weights.T)

    degrees = tables.tensor_degrees[:, None]
    least_time = tables.per_layer(tables.time_s, least=True)
    one_in_flight = tables.per_layer(tables.memory_a + tables.memory_b, least=True)
    return Ideals(
        bits=bits,
        size=member.sum(axis=1).astype(np.int64),
        cut_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        cut_edges=np.nonzero(leaves)[1].astype(np.int64),
        time_s=sums(least_time),
        gradient_bytes=sums(tables.per_layer(tables.gradient_bytes, least=True)),
        memory_a=sums(tables.per_layer(tables.memory_a, least=False)),
        memory_b=sums(tables.per_layer(tables.memory_b, least=False)),
        work_s=sums((degrees * least_time).min(axis=0, keepdims=True))[0],
        least_bytes=sums((degrees * one_in_flight).min(axis=0, keepdims=True))[0],
    )
