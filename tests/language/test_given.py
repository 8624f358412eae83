"""Splits that are given, and what a runtime makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import placekit as pk
from placekit.cost_models.sheets.cards import LLAMA_CPP, SERVERS
from placekit.cost_models.sheets.machines import Machine, machine_of
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.planning.given import Split, given_placement, given_report
from placekit.language.planning.offload import with_offload
from placekit.language.planning.plan import first_card, plan_cases, plans
from placekit.language.report import ServingReport
from placekit.language.runtimes import RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, decoder_task
from placekit.model.errors import InvalidProblemError

MODEL = Decoder(8, 1024, 4096, 32000, heads=16)
SERVING = Serving(512, 64, chunk=128)


def task_on(machine: Machine, model: Decoder = MODEL, serving: Serving = SERVING) -> LanguageTask:
    """Return the task of a model on a machine, with llama.cpp's kernels."""
    costs = pk.Analytic(machine.specs(LLAMA_CPP))
    platform = costs.with_links(machine.platform())
    return decoder_task(model, serving, platform, lambda graph: costs.cost_table(graph, platform))


@pytest.fixture
def pc() -> LanguageTask:
    """Return a task on a host and two unequal cards."""
    return task_on(machine_of("RTX 4090, RTX 3060", "64 GB DDR5-5600 x2"))


def test_blocks_go_where_the_split_says(pc: LanguageTask) -> None:
    """Embedding on the host, first blocks on the host, the head behind the last block."""
    placed = given_placement(pc, Split(2, (5, 1))).device_of_op
    names = pc.problem.graph.op_names
    device = {name.split(".")[2]: int(placed[at]) for at, name in enumerate(names) if name.startswith("model.layers")}
    assert list(device.values()) == [0, 0, 1, 1, 1, 1, 1, 2]
    assert placed[names.index("model.embed_tokens")] == 0
    assert placed[names.index("lm_head")] == 2
    assert given_placement(pc, Split(2, (5, 1), has_head_on_host=True)).device_of_op[names.index("lm_head")] == 0


@pytest.mark.parametrize(
    ("split", "told"),
    [(Split(2, (5, 2)), "2 blocks on the host and 5, 2 elsewhere; decoder has 8"), (Split(0, (4, 2, 2)), "3 devices")],
)
def test_a_split_that_does_not_add_up_is_refused(pc: LanguageTask, split: Split, told: str) -> None:
    """The message has both numbers."""
    with pytest.raises(InvalidProblemError, match=told):
        given_placement(pc, split)


def test_a_prompt_is_bound_by_the_bus_where_blocks_are_on_the_host(pc: LanguageTask) -> None:
    """From 32 tokens of a step on the card computes, and the weights cross its bus once per step."""
    split = Split(8, (0, 0), has_head_on_host=True)
    slow = given_report(pc, split).time_to_first_token_s
    fast = given_report(with_offload(pc, "rtx-4090", 32), split).time_to_first_token_s
    never = given_report(with_offload(pc, "rtx-4090", 129), split).time_to_first_token_s
    assert slow is not None
    assert fast is not None
    assert fast < slow / 4
    assert never == slow
    bus = pc.problem.platform.links["rtx-4090"].bandwidth_bytes_per_s
    weights = pc.held_bytes(pc.problem.graph.op_flops > -1) - MODEL.vocab * MODEL.hidden * 2  # the embedding stays
    assert fast > 4 * weights / bus


def test_decoding_is_not_offloaded(pc: LanguageTask) -> None:
    """A step of one token is computed where its weights are."""
    split = Split(8, (0, 0), has_head_on_host=True)
    assert given_report(with_offload(pc, "rtx-4090", 32), split).time_per_token_s == pytest.approx(
        given_report(pc, split).time_per_token_s
    )


def test_hosted_experts_of_a_prompt_cross_the_bus() -> None:
    """With offload a card computes them, at the cost of copying all of their weights for each step."""
    model = Decoder(4, 1024, 512, 32000, heads=16, experts=64, experts_per_token=4)
    task = task_on(machine_of("RTX 4090", "64 GB DDR5-5600 x2"), model)
    split = Split(0, (4,), hosted_experts=4)
    slow, fast = given_report(task, split), given_report(with_offload(task, "rtx-4090", 32), split)
    assert slow.time_to_first_token_s is not None
    assert fast.time_to_first_token_s is not None
    copied = 4 * 4 * 64 * 3 * 1024 * 512 * 2 / task.problem.platform.links["rtx-4090"].bandwidth_bytes_per_s
    assert copied < fast.time_to_first_token_s < copied + given_report(task, Split(0, (4,))).time_to_first_token_s * 2  # type: ignore[operator]
    assert fast.time_per_token_s == pytest.approx(slow.time_per_token_s)


def test_chunks_of_a_prompt_overlap_on_several_cards() -> None:
    """The first chunk passes all stages; each further one takes as long as the slowest stage."""
    task = task_on(machine_of("2x RTX 4090", "64 GB DDR5-5600 x2"))
    one_by_one, overlapped = (
        given_report(replace(task, overlaps_prompt=overlaps), Split(0, (4, 4))).time_to_first_token_s
        for overlaps in (False, True)
    )
    assert one_by_one is not None
    assert overlapped is not None
    assert given_report(task, Split(0, (4, 4))).time_to_first_token_s == one_by_one  # unless a runtime overlaps them
    assert 0.5 * one_by_one < overlapped < 0.75 * one_by_one  # (2 + 3) stages of 8
    with_host = Split(1, (4, 3))
    reports = [given_report(replace(task, overlaps_prompt=overlaps), with_host) for overlaps in (False, True)]
    assert reports[0].time_to_first_token_s == reports[1].time_to_first_token_s


@pytest.mark.parametrize("cards", ["RTX 4090, RTX 3060", "RTX 3060, RTX 4090"])
def test_a_plan_counts_the_card_that_computes_for_the_host(cards: str) -> None:
    """Large steps are computed on the first card of the chain: costs and chain agree on which one that is."""
    machine = machine_of(cards, "64 GB DDR5-5600 x2")
    costs = pk.Analytic(machine.specs(LLAMA_CPP))
    platform = costs.with_links(machine.platform())
    small = platform.replace(
        devices=tuple(
            each.replace(memory_bytes=each.memory_bytes and each.memory_bytes / 90) for each in platform.devices
        )
    )

    def make(serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        return decoder_task(MODEL, serving, platform, lambda graph: costs.cost_table(graph, platform), **choices)

    rules = RUNTIMES["llama.cpp"]
    found = plans(plan_cases(make, Serving(512, 4, chunk=512), small, rules), pk.solve, rules)
    assert len({plan.task.first_kind for plan in found}) == 2
    for plan in found:
        assert first_card(plan.task, plan.result.placement) == plan.task.first_kind
        assert plan.result.lower_bound is not None
        assert plan.result.objective is not None
        assert plan.result.lower_bound <= plan.result.objective * (1 + 1e-9)


@pytest.mark.parametrize(("card", "prompt_ms", "step_ms"), [("H100", 22.1, 6.6), ("A100", 64.7, 12.6)])
def test_servers_are_near_measured_kernel_times(card: str, prompt_ms: float, step_ms: float) -> None:
    """Llama 3.1 8B on one card by vLLM's kernel times in aiconfigurator-core 0.12: a prompt of 1,024, a step of 8."""
    machine = machine_of(card)
    costs = pk.Analytic(machine.specs(SERVERS))
    platform = costs.with_links(machine.platform())

    def report(serving: Serving) -> ServingReport:
        task = decoder_task(DECODERS["llama3-8b"], serving, platform, lambda graph: costs.cost_table(graph, platform))
        return given_report(task, Split(0, (32,)))

    first = report(Serving(1024, 1)).time_to_first_token_s
    step = report(Serving(1024, 2, sequences=8, batch=8)).time_per_token_s
    assert first is not None
    assert step is not None
    for found_ms, measured_ms in ((1e3 * first, prompt_ms), (1e3 * step, step_ms)):
        assert 1 / 1.1 <= found_ms / measured_ms <= 1.1
