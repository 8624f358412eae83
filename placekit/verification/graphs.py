"""Graphs in plain Python, for the verifier: components and positions."""

from __future__ import annotations

from collections.abc import Iterable


def components(num_nodes: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """``[num_nodes]`` number of the component of every node, by first appearance, of the undirected `pairs`."""
    parent = list(range(num_nodes))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for a, b in pairs:
        parent[root(a)] = root(b)
    number: dict[int, int] = {}
    return [number.setdefault(root(node), len(number)) for node in range(num_nodes)]


def topological_positions(num_nodes: int, following: list[list[int]]) -> list[int | None]:
    """``[num_nodes]`` positions by Kahn's algorithm, sources by index; None for nodes on or behind a cycle."""
    waiting = [0] * num_nodes
    for targets in following:
        for target in targets:
            waiting[target] += 1
    queue = [node for node in range(num_nodes) if not waiting[node]]
    for node in queue:
        for target in following[node]:
            waiting[target] -= 1
            if not waiting[target]:
                queue.append(target)
    position: list[int | None] = [None] * num_nodes
    for place, node in enumerate(queue):
        position[node] = place
    return position
