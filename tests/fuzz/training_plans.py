"""Random training problems, and every plan of a small one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from placekit.training.plan import PlanStage, TrainingPlan
from placekit.training.problem import Choice, Layer, LayerEdge, TrainingProblem


def random_training_problem(rng: np.random.Generator, most_layers: int = 6) -> TrainingProblem:
    """Return a problem with up to `most_layers` layers, 4 devices, 2 degrees and 2 choices; small whole numbers."""
    n = int(rng.integers(1, most_layers + 1))
    density = rng.choice([0.25, 0.5, 0.9])
    pairs = [(u, v) for u, v in itertools.combinations(range(n), 2) if rng.random() < density]
    if rng.random() < 0.5:
        pairs = [(v, v + 1) for v in range(n - 1)]
    shuffled = rng.permutation(n)
    edges = [LayerEdge(int(shuffled[u]), int(shuffled[v]), float(rng.integers(0, 5))) for u, v in pairs]
    degrees = [[1], [1, 2], [2], [1, 4]][int(rng.choice(4, p=[0.3, 0.5, 0.1, 0.1]))]
    has_plain_sync = rng.random() < 0.5
    layers: list[Layer] = []
    for v in range(n):
        if layers and rng.random() < 0.4 and not edges:
            layers.append(layers[-1])
            continue
        choices = {}
        for t in degrees:
            listed = []
            ins = {e.source: float(rng.integers(0, 4)) for e in edges if e.target == v}
            outs = {e.target: float(rng.integers(0, 4)) for e in edges if e.source == v}
            weight = float(rng.integers(0, 6))
            for c in range(int(rng.integers(1, 3))):
                if not has_plain_sync:
                    ins = {u: float(rng.integers(0, 4)) for u in ins}
                    outs = {w: float(rng.integers(0, 4)) for w in outs}
                    weight = float(rng.integers(0, 6))
                name = "recomputation" if c else "plain"
                p, a, b = float(rng.integers(0, 12)), float(rng.integers(0, 8)), float(rng.integers(0, 8))
                listed.append(Choice(name, p / t, weight, a, b, dict(ins), dict(outs)))
            choices[t] = tuple(listed)
        layers.append(Layer(f"layer{v}", choices))
    return TrainingProblem(
        "random",
        tuple(layers),
        tuple(edges),
        num_devices=int(rng.integers(1, 5)),
        memory_bytes=float(rng.integers(3, 60)),
        bandwidth_bytes_per_s=float(rng.choice([0.5, 2.0, 16.0])),
        num_microbatches=int(rng.choice([1, 2, 3, 4, 6, 12])),
    )


def _downsets(problem: TrainingProblem, done: frozenset[int]) -> Iterator[frozenset[int]]:
    """Every set of layers that can be the next stage after the layers of `done`."""
    rest = [v for v in range(problem.num_layers) if v not in done]
    for size in range(1, len(rest) + 1):
        for stage in itertools.combinations(rest, size):
            ready = done | set(stage)
            if all(u in ready for v in stage for u in problem.predecessors[v]):
                yield frozenset(stage)


def all_skeletons(
    problem: TrainingProblem, done: frozenset[int] = frozenset(), devices: int | None = None
) -> Iterator[list[tuple[frozenset[int], int, int]]]:
    """Every chain of stages with degrees, as (layers, data degree, tensor degree), within the number of devices."""
    left = problem.num_devices if devices is None else devices
    if len(done) == problem.num_layers:
        yield []
        return
    for stage in _downsets(problem, done):
        for t in problem.tensor_degrees:
            for d in range(1, left // t + 1):
                if problem.num_microbatches % d == 0:
                    for rest in all_skeletons(problem, done | stage, left - d * t):
                        yield [(stage, d, t), *rest]


def brute_force(problem: TrainingProblem, most_replicas: int = 1 << 30) -> float | None:
    """Return the best objective over all plans, from the formulas; None if no plan fits.

    Plans with a data-parallel degree above `most_replicas` are left out.
    """
    best: float | None = None
    known: dict[tuple[frozenset[int], int, int, int], float | None] = {}
    for skeleton in all_skeletons(problem):
        degrees = [d for _, d, _ in skeleton]
        if sum(degrees) > problem.num_microbatches or max(degrees) > most_replicas:
            continue
        worst = 0.0
        for at, (stage, d, t) in enumerate(skeleton):
            key = stage, d, t, -(-sum(degrees[at:]) // d)
            if key not in known:
                known[key] = _fastest(problem, *key)
            seconds = known[key]
            if seconds is None or (best is not None and seconds >= best):
                break
            worst = max(worst, seconds)
        else:
            best = worst
    return best


def _fastest(problem: TrainingProblem, stage: frozenset[int], d: int, t: int, in_flight: int) -> float | None:
    """Return the least seconds of a stage over all of its choices that fit."""
    layers = sorted(stage)
    n, bandwidth = problem.num_microbatches, problem.bandwidth_bytes_per_s
    best: float | None = None
    for picked in itertools.product(*(problem.layers[v].choices[t] for v in layers)):
        memory = sum(c.memory_per_microbatch_bytes * in_flight + c.memory_fixed_bytes for c in picked)
        if memory > problem.memory_bytes:
            continue
        chosen = dict(zip(layers, picked, strict=True))
        moved = 0.0
        for edge in problem.edges:
            if edge.source in stage and edge.target not in stage:
                moved += 2 * (edge.num_bytes + chosen[edge.source].sync_out_bytes[edge.target])
            if edge.target in stage and edge.source not in stage:
                moved += 2 * (edge.num_bytes + chosen[edge.target].sync_in_bytes[edge.source])
        gradients = sum(c.parameter_bytes for c in picked)
        seconds = sum(c.time_s for c in picked) / d + (moved / d + 4 * (d - 1) / d * gradients / n) / bandwidth
        best = seconds if best is None else min(best, seconds)
    return best


def first_choices(problem: TrainingProblem, skeleton: list[tuple[frozenset[int], int, int]]) -> TrainingPlan:
    """Return a plan with every layer's first choice."""
    return TrainingPlan(tuple(PlanStage(tuple(sorted(s)), d, t, (0,) * len(s)) for s, d, t in skeleton))
