"""Runs of blocks by dynamic programming, against all placements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.language.chain import BlockChain, chain_of
from placekit.language.decoder import Decoder
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, decoder_task
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import Status
from placekit.solve.solve import solve


def small_task(rng: np.random.Generator, objective: Any) -> LanguageTask:
    """Return a model of two blocks on three unequal devices, a CPU among them."""
    model = Decoder(
        2, 64, int(rng.integers(64, 512)), int(rng.integers(100, 4000)), heads=4, tied=bool(rng.integers(2))
    )
    sizes = {kind: float(rng.uniform(0.15, 0.9)) * model.num_parameters * 2 for kind in ("l4", "t4")}
    kinds = ("cpu-8core-f32", "l4", "t4")
    devices = tuple(pk.Device(f"{kind}.0", kind, sizes.get(kind), is_host=kind.startswith("cpu")) for kind in kinds)
    links = {"l4": pk.Link(1e-6, float(rng.uniform(1e8, 1e10))), "t4": pk.Link(1e-6, float(rng.uniform(1e8, 1e10)))}
    platform = pk.Platform(devices, links)
    return decoder_task(
        model, Serving(32, 8), platform, lambda graph: pk.Analytic().cost_table(graph, platform), objective=objective,
        contiguity="acyclic",
    )  # fmt: skip


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Throughput()])
@pytest.mark.parametrize("seed", range(4))
def test_it_equals_all_placements(seed: int, objective: Any) -> None:
    """Tied weights count once per device, pins hold, and what cannot fit is proven not to."""
    rng = np.random.default_rng(seed)
    problem = small_task(rng, objective).problem
    if seed % 2:
        problem = problem.pin({"model.embed_tokens": problem.platform.device_names[0]})
    result = solve(problem, BlockChain())
    chain = chain_of(problem)
    assert chain is not None
    found = []
    for devices in itertools.product(range(3), repeat=chain.num_blocks):
        runs = [device for device, _ in itertools.groupby(devices)]
        if len(set(runs)) == len(runs):
            judged = evaluate(problem, pk.Placement.of(problem, np.array(devices)[chain.block_of_op]))
            found += [judged.objective] if judged.is_feasible and judged.objective is not None else []
    if found:
        assert result.status is Status.OPTIMAL
        assert result.objective == pytest.approx(min(found), rel=1e-12)
    else:
        assert result.status is Status.INFEASIBLE


def test_equal_devices_may_be_teams() -> None:
    """The method says the same as `dp`."""
    platform = pk.Platform.of(l4=3, t4=2)
    task = decoder_task(
        Decoder(4, 256, 1024, 1000, heads=4), Serving(64, 16, sequences=8, batch=2), platform,
        lambda graph: pk.Analytic().cost_table(graph, platform), objective=pk.Throughput(teams="equal"),
    )  # fmt: skip
    mine, theirs = solve(task.problem, BlockChain()), solve(task.problem, "dp")
    assert mine.status is Status.OPTIMAL
    assert mine.objective == pytest.approx(theirs.objective, rel=1e-9)
