"""Plans within the rules of runtimes."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
from serving_plans import TOLD, best_plan, launch_of

import placekit as pk
from placekit.cli.inputs.platforms import MemoryLimits
from placekit.exports.device_map import device_map
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.planning.plan import ServingPlan, plan_cases
from placekit.language.runtimes import RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, decoder_task
from placekit.model.errors import InvalidProblemError
from placekit.solve.solve import solve
from placekit.solvers.chain.method import Chain

MIB = 2.0**20
LINK = pk.Link(20e-6, 20e9)
HOST = "cpu-8core-bf16"
COUNTS: dict[str, dict[str, int]] = {
    "one card": {HOST: 1, "rtx3090": 1},
    "two kinds": {HOST: 1, "l4": 1, "rtx3090": 2},
    "no host": {"t4": 2, "l4": 1},
}


def rig_of(counts: dict[str, int], limits: dict[str, float] | None = None) -> pk.Platform:
    """Return a platform of these devices; all but the host have a link."""
    links = {kind: LINK for kind in counts if kind != HOST}
    devices = tuple(
        pk.Device(f"{kind}.{at}", kind, (limits or {}).get(kind), is_host=kind == HOST)
        for kind, count in counts.items()
        for at in range(count)
    )
    return pk.Platform(devices, links)


RIGS = {name: rig_of(counts) for name, counts in COUNTS.items()}
MODELS = {
    "dense": Decoder(6, 256, 1024, 4000, heads=4, kv_heads=2),
    "experts": Decoder(5, 128, 256, 1000, heads=4, experts=8, experts_per_token=2),
    "gpt2": DECODERS["gpt2"],
}


def plan(model: Decoder, platform: pk.Platform, runtime: str | None, serving: Serving, share: float) -> ServingPlan:
    """Return the plan where every card has room for a share of the model."""
    size = share * (model.num_parameters * 2 + 64 * MIB)
    platform = platform.replace(
        devices=tuple(each if each.is_host else each.replace(memory_bytes=size) for each in platform.devices)
    )

    def make(serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        return decoder_task(
            model, serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform), **choices
        )

    rules = None if runtime is None else RUNTIMES[runtime]
    return best_plan(plan_cases(make, serving, platform, rules), partial(solve, method=Chain()), rules)


@cache
def unruled_tokens_per_s(model: str, rig: str, share: float) -> float:
    """Return the speed of the plan that keeps to no runtime's rules."""
    return plan(MODELS[model], RIGS[rig], None, Serving(64, 16, sequences=2), share).tokens_per_s


@pytest.mark.parametrize("rig", RIGS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_plan_of_a_runtime_exports(runtime: str, model: str, rig: str) -> None:
    """Where the cards hold the model, or about half of it and the CPU the rest; no plan beats the one without rules."""
    for share in (0.9, 0.45):
        found = plan(MODELS[model], RIGS[rig], runtime, Serving(64, 16, sequences=2), share)
        assert found.tokens_per_s <= unruled_tokens_per_s(model, rig, share) * (1 + 1e-9)
        if found.result.placement is None:
            assert (RUNTIMES[runtime].host, model, rig, share) == ("none", "gpt2", "one card", 0.45)
            continue
        problem, placement = found.task.problem, found.result.placement
        cards = [each.name for each in problem.platform.devices if not each.is_host]
        used = set(placement.values())
        if runtime in TOLD:
            arguments = launch_of(runtime, problem.graph, problem.platform, placement).arguments
            told = dict(pairwise(arguments))
            if runtime == "llama.cpp":
                assert told.get("--device", "").count("CUDA") == len(used & set(cards))
            else:
                assert arguments[1] == str(len(used)), "a stage for each device"
        else:
            places = device_map(problem.graph, problem.platform, placement).values()
            assert {cards[each] if isinstance(each, int) else f"{HOST}.0" for each in places} == used


def test_the_rig_of_three_cards_and_a_cpu() -> None:
    """70 billion parameters in 4.5 bits: one sequence is planned for its latency, and stages of vLLM need no CPU."""
    gib = 2.0**30
    limits = {HOST: 64 * gib, "rtx3090": 24 * gib, "l4": 12 * gib}
    platform = rig_of({HOST: 1, "rtx3090": 2, "l4": 1}, limits)

    def make(serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        costs = pk.Analytic()
        return decoder_task(
            DECODERS["llama3-70b"],
            serving,
            platform,
            lambda graph: costs.cost_table(graph, platform),
            precision="int4",
            **choices,
        )

    solver, usable = partial(solve, method=Chain()), MemoryLimits(headroom="10%").apply(platform)
    llama = best_plan(plan_cases(make, Serving(chunk=512), usable, RUNTIMES["llama.cpp"]), solver)
    assert llama.report is not None
    assert llama.report.time_per_token_s is not None
    assert 1 / llama.report.time_per_token_s >= 14.7
    vllm = best_plan(plan_cases(make, Serving(chunk=2048), usable, RUNTIMES["vllm"]), solver)
    assert vllm.result.placement is not None
    assert not any(name.startswith("cpu") for name in vllm.result.placement.values())


def test_a_chunk_bounds_activations() -> None:
    """Eight prompts of 4,096 tokens do not set gigabytes aside, and all prompt tokens are still computed."""
    whole = plan(MODELS["dense"], RIGS["one card"], None, Serving(4096, 16, sequences=8), 30.0)
    parts = plan(MODELS["dense"], RIGS["one card"], None, Serving(4096, 16, sequences=8, chunk=2048), 30.0)
    assert parts.task.activation_bytes < whole.task.activation_bytes / 8
    assert sum(each.count * each.tokens for each in parts.task.serving.phases) == 4096 + 16


def test_a_runtime_on_accelerators_needs_some() -> None:
    """One line says what there is."""
    kind = "cpu-8core-bf16"
    only_cpu = pk.Platform((pk.Device(f"{kind}.0", kind, is_host=True),))
    with pytest.raises(
        InvalidProblemError, match=r"vllm runs on accelerators only; the platform has cpu-8core-bf16\.0"
    ):
        plan(MODELS["dense"], only_cpu, "vllm", Serving(), 0.9)
