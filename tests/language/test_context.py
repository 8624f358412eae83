"""The longest context, against all ways to cut a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import placekit as pk
from placekit.cost_models.sheets.device_table import get_spec
from placekit.language.decoder import Decoder
from placekit.language.planning import context
from placekit.language.planning.context import longest_context, rounded
from placekit.language.serving import MAX_TOKENS, Serving
from placekit.language.task import LanguageTask, decoder_task
from placekit.solvers.chain.costs import chain_of


def compare(seed: int) -> bool:
    """Return whether anything fits into four unequal cards; the longest context must be that of all cuts."""
    rng = np.random.default_rng(seed)
    model = Decoder(3, 64, int(rng.integers(64, 256)), int(rng.integers(50, 500)), heads=4, kv_heads=2)
    limits = {f"card{at}": float(rng.uniform(0.1, 0.6)) * model.num_parameters * 2 for at in range(4)}
    platform = pk.Platform(tuple(pk.Device(kind, kind, limit) for kind, limit in limits.items()))
    specs = {kind: get_spec("l4") for kind in limits}
    serving = Serving(4, 4, sequences=int(rng.integers(1, 4)))

    def cases(served: Serving) -> list[LanguageTask]:
        analytic = pk.Analytic(specs)
        return [decoder_task(model, served, platform, lambda graph: analytic.cost_table(graph, platform))]

    task = cases(serving)[0]
    chain = chain_of(task.problem)
    assert chain is not None
    weights = np.bincount(chain.block_of_op, task.weight_bytes)
    per_token = np.bincount(chain.block_of_op, task.cache_bytes) * serving.sequences / serving.context
    room = [device.memory_bytes or 0.0 for device in task.problem.platform.devices]
    best = 0.0
    for count in range(1, 5):
        for cuts in itertools.combinations(range(1, chain.num_blocks), count - 1):
            held = np.add.reduceat(weights, [0, *cuts])
            growing = np.add.reduceat(per_token, [0, *cuts])
            for cards in itertools.permutations(room, count):
                left = np.array(cards) - held
                if (left >= 0).all():
                    some = growing > 0
                    best = max(best, min((left[some] / growing[some]).min(initial=MAX_TOKENS), MAX_TOKENS))
    longest = longest_context(cases, serving)
    if best < serving.context:
        assert longest is None
        return False
    assert longest == rounded(int(best * (1 + 1e-12)), serving.context, MAX_TOKENS)
    return True


def test_it_equals_all_cuts() -> None:
    """On small cases, feasible and not."""
    assert {compare(seed) for seed in range(12)} == {True, False}


def test_it_equals_all_cuts_to_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """With steps of a token."""
    monkeypatch.setattr(context, "CONTEXT_STEP", 1)
    assert {compare(seed) for seed in range(12)} == {True, False}


@pytest.mark.slow
def test_it_equals_all_cuts_of_a_thousand_cases() -> None:
    """The same, at length."""
    for seed in range(12, 1012):
        compare(seed)
