"""Generated training problems: chains of blocks, and lattices of unrolled recurrent networks."""

from __future__ import annotations

import numpy as np

from placekit.model.errors import InvalidProblemError
from placekit.training.problem import Choice, Layer, LayerEdge, TrainingProblem

_GIB = 2.0**30
MAX_LAYERS = 10_000
"""Largest number of layers of a generated problem."""
_RECOMPUTED_SHARE = 1 / 3
"""Share of the forward pass in forward and backward, which recomputation adds once more."""


def recurrent_problem(
    # num_rows, num_steps: shape of the lattice
    num_rows: int = 4,
    num_steps: int = 20,
    *,
    tensor_degrees: tuple[int, ...] = (1, 2, 4, 8),  # tensor-parallel degrees of every cell
    # num_devices, memory_bytes, num_microbatches: fields of the problem
    num_devices: int = 16,
    memory_bytes: float = 8 * _GIB,
    num_microbatches: int = 960,
    seed: int = 0,  # seed of the costs
) -> TrainingProblem:
    """Return an unrolled recurrent network: cell (row, step) follows (row - 1, step) and (row, step - 1).

    The lattice has ``binomial(num_rows + num_steps, num_rows)`` ideals: 10,626 for 4 rows and 20 steps. Cells of a row
    differ by a few per cent.

    Examples
    --------
    >>> problem = recurrent_problem(2, 3)
    >>> problem.num_layers, len(problem.edges), problem.tensor_degrees
    (6, 7, (1, 2, 4, 8))
    """
    if num_rows < 1 or num_steps < 1 or num_rows * num_steps > MAX_LAYERS:
        raise InvalidProblemError(
            f"a lattice of {num_rows} rows and {num_steps} steps; both must be at least 1, their product at most "
            f"{MAX_LAYERS}"
        )
    rng = np.random.default_rng(seed)
    row_s, row_bytes = rng.uniform(4e-3, 12e-3, num_rows), rng.uniform(40e6, 160e6, num_rows)
    hidden_bytes = rng.uniform(4e6, 16e6, num_rows)
    edges = []
    for row in range(num_rows):
        for step in range(num_steps):
            at = row * num_steps + step
            if row + 1 < num_rows:
                edges.append(LayerEdge(at, at + num_steps, float(round(hidden_bytes[row]))))
            if step + 1 < num_steps:
                edges.append(LayerEdge(at, at + 1, float(round(hidden_bytes[row] / 2))))
    layers = []
    for row in range(num_rows):
        for step in range(num_steps):
            noise = float(rng.uniform(0.97, 1.03))
            layers.append(
                _layer(
                    f"row{row}.step{step}", row * num_steps + step, edges, tensor_degrees,
                    time_s=float(row_s[row]) * noise, weight_bytes=float(row_bytes[row]),
                    kept_bytes=float(hidden_bytes[row]) * 8 * noise,
                )
            )  # fmt: skip
    return TrainingProblem(
        f"recurrent-{num_rows}x{num_steps}-{seed}", tuple(layers), tuple(edges), num_devices, memory_bytes,
        25 * _GIB, num_microbatches,
    )  # fmt: skip


def chain_problem(
    num_blocks: int = 24,
    *,
    tensor_degrees: tuple[int, ...] = (1, 2, 4, 8),
    num_devices: int = 32,
    memory_bytes: float = 8 * _GIB,
    num_microbatches: int = 960,
    seed: int = 0,
) -> TrainingProblem:
    """Return a chain of blocks whose cost changes along the chain, as in a convolutional network.

    Parameters
    ----------
    num_blocks
        Number of layers.
    tensor_degrees, num_devices, memory_bytes, num_microbatches
        Fields of the problem.
    seed
        Seed of the costs.
    """
    if not 1 <= num_blocks <= MAX_LAYERS:
        raise InvalidProblemError(f"a chain of {num_blocks} blocks; there must be at least 1 and at most {MAX_LAYERS}")
    rng = np.random.default_rng(seed)
    size = rng.uniform(30e6, 120e6, num_blocks) * np.exp(-np.linspace(0, 1.5, num_blocks))
    edges = [LayerEdge(v, v + 1, float(round(size[v]))) for v in range(num_blocks - 1)]
    layers = tuple(
        _layer(
            f"block{v}", v, edges, tensor_degrees, time_s=float(rng.uniform(3e-3, 20e-3)),
            weight_bytes=float(rng.uniform(2e6, 30e6) * np.exp(2.0 * v / num_blocks)), kept_bytes=float(size[v] * 4),
        )
        for v in range(num_blocks)
    )  # fmt: skip
    return TrainingProblem(
        f"chain-{num_blocks}-{seed}", layers, tuple(edges), num_devices, memory_bytes, 25 * _GIB, num_microbatches
    )


def _layer(
    name: str,
    at: int,
    edges: list[LayerEdge],
    degrees: tuple[int, ...],
    *,
    time_s: float,
    weight_bytes: float,
    kept_bytes: float,
) -> Layer:
    """Return a layer whose efficiency falls with the tensor-parallel degree; activations are split, inputs are not."""
    ins = {edge.source: edge.num_bytes for edge in edges if edge.target == at}
    outs = {edge.target: edge.num_bytes for edge in edges if edge.source == at}
    input_bytes = float(round(sum(ins.values()) or kept_bytes / 8))
    choices = {}
    for t in degrees:
        seconds = time_s * (1 / t + 0.06 * (t > 1) + 0.01 * (t - 1) / t)
        state, kept = (
            float(round(4 * weight_bytes / t)),
            float(round(kept_bytes / t)),
        )  # weights, gradients, two moments
        syncs = [{end: (0.0 if t == 1 else num_bytes) for end, num_bytes in table.items()} for table in (ins, outs)]
        plain = Choice("vanilla", seconds, float(round(weight_bytes / t)), input_bytes + kept, state, *syncs)
        again = Choice(
            "activation recomp", seconds * (1 + _RECOMPUTED_SHARE), plain.parameter_bytes, input_bytes, state + kept,
            *syncs,
        )  # fmt: skip
        choices[t] = (plain, again)
    return Layer(name, choices)
