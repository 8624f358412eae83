"""Small problems for forged certificates: what each would prove, and what is true, is seen by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import placekit as pk
from placekit.model.contiguity import Contiguity
from placekit.model.platform import Device, Platform
from placekit.objectives import Objective
from placekit.solve.certificates import PricedEdge, PricedNet, Prices


def small(
    objective: Objective,
    times: Sequence[Sequence[float | None]],
    edges: str = "",
    *,
    counts: Sequence[int] = (1, 1),
    move_s: float | Sequence[float] = 0.0,
    size: float = 0.0,
    memory: Mapping[str, float] | None = None,
    contiguity: str = "none",
    host: str | None = None,
    is_backward: Sequence[bool] | None = None,
    together: Sequence[int] | None = None,
) -> pk.Problem:
    """Return ops a, b, ... with times on kinds p, q, ...; None where not supported; edges are like ``"ab bc"``.

    Every op has `size` bytes, and every tensor moves in `move_s` seconds, of each kind or of all; ops with the same
    number in `together` share a device.
    """
    names, kinds = [chr(ord("a") + op) for op in range(len(times))], "pqrs"[: len(times[0])]
    graph = pk.OpGraph.from_edges(names, [(edge[0], edge[1]) for edge in edges.split()], is_backward=is_backward)
    supported = np.array([[seconds is not None for seconds in row] for row in times])
    costs = pk.CostTable(
        tuple(kinds),
        np.array([[seconds or 0.0 for seconds in row] for row in times]),
        np.tile(np.broadcast_to(move_s, len(kinds)), (graph.num_tensors, 1)).astype(float),
        np.full(len(names), size),
        supported=supported,
    )
    devices = tuple(
        Device(f"{kind}.{at}", kind, memory_bytes=(memory or {}).get(kind), is_host=kind == host)
        for kind, count in zip(kinds, counts, strict=True)
        for at in range(count)
    )
    problem = pk.Problem(graph, Platform(devices), costs, objective, Contiguity(contiguity))
    return problem if together is None else problem.replace(colocation=np.array(together))


def prices(
    work: Sequence[float | Sequence[float]],
    transfer: Sequence[float | Sequence[float]] | None = None,
    memory: Sequence[float] | None = None,
    *,
    profile: Sequence[int] | None = None,
    ops: Mapping[int, float | Sequence[float]] | Sequence[tuple[int, Sequence[float]]] = (),
    nets: Sequence[PricedNet] = (),
    edges: Sequence[PricedEdge] = (),
) -> Prices:
    """Return prices with one profile per weight of `work`, for a device each; no weights of transfers or memory."""
    rows = [_passes(each) for each in work]
    moved = [_passes(each) for each in transfer] if transfer is not None else [(0.0,) * len(row) for row in rows]
    listed = ops.items() if isinstance(ops, Mapping) else ops
    return Prices(
        tuple(range(len(rows)) if profile is None else profile),
        tuple(rows),
        tuple(moved),
        tuple(memory if memory is not None else (0.0,) * len(rows)),
        tuple((op, _passes(weights)) for op, weights in listed),
        tuple(nets),
        tuple(edges),
    )


def _passes(weights: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(weights) if isinstance(weights, Sequence) else (weights,)
