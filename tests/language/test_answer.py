"""The answer of ``pk.plan_serving``: its numbers, and what the plan is better than."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

import placekit as pk
from placekit.cost_models.sheets.machines import machine_of
from placekit.language.planning.context import room_for_context
from placekit.language.planning.question import DEFAULT_CONTEXT, GivenModel
from placekit.language.runtimes import OWN

DESK = machine_of("RTX 4090, RTX 3060", "96 GB DDR5-5600 x2").platform()


def test_speeds_are_those_of_phases_alone() -> None:
    """As llama-bench counts: prompt tokens by the first token, one generated token per step; JSON has the same."""
    plan = pk.plan_serving("llama3-8b", DESK, "llama.cpp", precision="int4")
    report = plan.report
    assert report is not None
    assert report.time_to_first_token_s is not None
    assert report.time_per_token_s is not None
    assert plan.speeds["prompt"].tokens_per_s == pytest.approx(512 / report.time_to_first_token_s)
    generated = plan.speeds["generated"]
    assert generated.tokens_per_s == pytest.approx(1 / report.time_per_token_s)
    assert generated.least is not None
    assert generated.least < generated.tokens_per_s
    assert generated.full_tokens_per_s is not None
    assert generated.full_tokens_per_s < generated.tokens_per_s  # attention reads a longer cache
    told = json.loads(json.dumps(plan.to_dict()))
    assert told["speed"]["generated"]["tokens_per_s"] == generated.tokens_per_s
    assert told["model"]["parameters"] == 8030261248
    assert sum(each["blocks"] for each in told["places"]) == 32


def test_batches_in_flight_generate_together() -> None:
    """The slower one of two stages, with a batch in each, sets the rate."""
    pair = pk.Platform.of(l4=2, memory_bytes={"l4": 24e9}, links={"l4": pk.Link(20e-6, 20e9)})
    wishes = pk.Wishes(serving=pk.Serving(512, 128, sequences=2), batch=1)
    plan = pk.plan_serving("llama3-8b", pair, "vllm", precision="f32", wishes=wishes)
    report = plan.report
    assert report is not None
    assert report.time_per_token_s is not None
    assert report.generated_tokens_per_s is not None
    assert 1 / report.time_per_token_s < report.generated_tokens_per_s <= 2 / report.time_per_token_s * (1 + 1e-9)


@pytest.mark.parametrize("runtime", [record.name for record in OWN if record.host != "any"])
def test_no_other_way_is_better_than_the_plan(runtime: str) -> None:
    """The runtime's own choice and fewer cards are among what a plan is the best of."""
    plan = pk.plan_serving("llama3-8b", DESK, runtime)
    kinds = [each.kind for each in plan.rivals]
    assert kinds == ["own choice", "fastest card alone"]
    gains = [each.gain(plan.plan) for each in plan.rivals]
    assert all(gain is None or gain >= 1 - 1e-9 for gain in gains), gains


def test_one_card_less_is_a_plan_without_it() -> None:
    """The card that is left out is the one that is missed least of three; its plan is that of the others."""
    three = machine_of("RTX 4090, RTX 3060, RTX 3060").platform()
    plan = pk.plan_serving("llama3-8b", three, "llama.cpp", wishes=pk.Wishes(batch=1), precision="f32")
    own, alone, less = plan.rivals
    assert (own.how, alone.report, less.kind) == ("--fit", None, "one card less")
    others = [device for device in three.devices if device.name != less.how]
    without = pk.plan_serving("llama3-8b", three.with_devices(others), "llama.cpp", precision="f32")
    assert (without.report and without.report.tokens_per_s) == (less.report and less.report.tokens_per_s)


def test_the_default_context_is_long_and_no_longer_than_the_model() -> None:
    """8,192 tokens, what fits of them, or the limit of the model; what is asked for stops there, too."""
    model = GivenModel.of("llama3-8b", "int4")
    assert model.description is not None
    short = model.description.replace(trained_tokens=4096)
    plans = [
        pk.plan_serving(model, DESK, "llama.cpp"),
        pk.plan_serving(short, DESK, "llama.cpp"),
        pk.plan_serving(short, DESK, "llama.cpp", wishes=pk.Wishes(serving=pk.Serving(context=100_000))),
        pk.plan_serving(short, DESK, "llama.cpp", wishes=pk.Wishes(serving=pk.Serving(context=1000))),
    ]
    assert [plan.context.planned for plan in plans] == [DEFAULT_CONTEXT, 4096, 4096, 1024]
    assert [plan.context.asked for plan in plans] == [None, None, 100_000, 1000]
    small = pk.Platform.of(l4=1, memory_bytes={"l4": 7e9}, links={"l4": pk.Link(20e-6, 20e9)})
    tight = pk.plan_serving(model, small, "llama.cpp", wishes=pk.Wishes(serving=pk.Serving(sequences=4)))
    assert tight.report is not None
    assert 640 < tight.context.planned < DEFAULT_CONTEXT
    assert tight.context.planned % 256 == 0
    longest = room_for_context(plans[0].plan)
    assert longest is not None
    fits = pk.plan_serving(model, DESK, "llama.cpp", wishes=pk.Wishes(serving=pk.Serving(context=longest)))
    assert fits.report is not None


def test_long_contexts_are_as_fast_as_a_full_cache_lets_them() -> None:
    """Every point of `goal` context counts its speed at its own length, in steps of 256 tokens."""
    small = pk.Platform.of(l4=1, memory_bytes={"l4": 8e9}, links={"l4": pk.Link(20e-6, 20e9)})
    plan = pk.plan_serving("llama3-8b", small, "llama.cpp", precision="int4", wishes=pk.Wishes(goal="context"))
    rates = [each.plan.report.generated_tokens_per_s for each in plan.points if each.plan.report is not None]
    assert len(rates) > 1
    assert all(one is not None and other is not None and one > other for one, other in pairwise(rates))
    assert all(each.context % 256 == 0 for each in plan.points[1:])
    last = plan.points[-1]
    assert last.plan.task.serving.depth == last.context - 640


@pytest.mark.parametrize(("model", "precision"), [("gpt-oss-120b", None), ("qwen3-30b-a3b", "q8_0")])
def test_the_fit_of_a_mixture_copies_experts_for_prompts_too(model: str, precision: str | None) -> None:
    """It has a gigabyte less, a few more blocks of experts on the host, and prompts run on the card as ours do."""
    desk = machine_of("RTX 4090", "128 GB DDR5-6000 x2").platform()
    plan = pk.plan_serving(model, desk, "llama.cpp", precision=precision, wishes=pk.Wishes(batch=1))
    (own,) = plan.rivals
    assert plan.report is not None
    assert own.report is not None
    for ours, theirs in (
        (plan.report.prompt_tokens_per_s, own.report.prompt_tokens_per_s),
        (plan.report.generated_tokens_per_s, own.report.generated_tokens_per_s),
    ):
        assert ours is not None
        assert theirs == pytest.approx(ours, rel=0.2)
