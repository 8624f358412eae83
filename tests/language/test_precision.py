"""Precisions of weights by the names of GGUF, or by bits; several at once; and other cards."""

from __future__ import annotations

import pytest

import placekit as pk
from placekit.cost_models.sheets.machines import machine_of
from placekit.language.decoder import DECODERS
from placekit.language.from_numbers import describe_decoder
from placekit.language.precision import PRECISIONS, precision_of, split_precisions
from placekit.model.errors import PlacekitError

DESK = machine_of("RTX 4090, RTX 3060").platform()
# bytes of published files: Llama 3.1 8B, whose head is a matrix of its own
FILES = {"q4_k_m": 4.92e9, "q5_k_m": 5.73e9, "q6_k": 6.60e9, "q8_0": 8.54e9, "iq4_xs": 4.45e9, "q3_k_m": 4.02e9}


@pytest.mark.parametrize("name", FILES)
def test_sizes_are_those_of_published_files(name: str) -> None:
    """Within 1.5 %."""
    assert describe_decoder(DECODERS["llama3-8b"], name).weight_bytes == pytest.approx(FILES[name], rel=0.015)


@pytest.mark.parametrize(
    ("name", "bits"), [("f32", 32), ("bf16", 16), ("f16", 16), ("fp8", 8), ("int8", 8.5), ("int4", 4.5)]
)
def test_a_plain_precision_has_its_bits_for_every_matrix(name: str, bits: float) -> None:
    """Whole numbers and int4 have a scale of 16 bits for every 32 weights, as GGUF has."""
    parts = {part.path: part for part in describe_decoder(DECODERS["llama3-8b"], name).parts}
    for path in ("lm_head", "model.layers.0.mlp.down_proj", "model.layers.31.self_attn.o_proj"):
        assert 8 * parts[path].weight_bytes == bits * parts[path].parameters


def test_a_tied_head_has_the_bits_of_a_head() -> None:
    """Llama 3.2 1B: a quarter of the model is its table; the file has 808 MB in Q4_K_M."""
    small = pk.Decoder(16, 2048, 8192, 128256, heads=32, kv_heads=8, tied=True)
    assert describe_decoder(small, "q4_k_m").weight_bytes == pytest.approx(0.808e9, rel=0.02)
    assert describe_decoder(small, "q4_k_m").precision == "q4_k_m"


def test_experts_alone_are_in_mxfp4() -> None:
    """All else is in Q8_0."""
    model = describe_decoder(DECODERS["mixtral-8x7b"], "mxfp4")
    bits = {part.path: 8 * part.weight_bytes / part.parameters for part in model.parts if part.parameters}
    assert bits["model.layers.0.mlp.down_proj_exps"] == 4.25
    assert bits["model.layers.0.self_attn.o_proj"] == bits["lm_head"] == 8.5


def test_bits_and_names_in_any_case() -> None:
    """What is none of them is named, with the nearest."""
    assert precision_of("Q4_K_M") is PRECISIONS["q4_k_m"]
    assert describe_decoder(DECODERS["gpt2"], "4.9").weight_bytes < describe_decoder(DECODERS["gpt2"], "5").weight_bytes
    for told, why in (
        ("q4_k_x", "did you mean 'q4_k_"),
        ("99", "bits of a weight are from 1 to 32"),
        ("", "precision"),
    ):
        with pytest.raises(PlacekitError, match=why):
            precision_of(told)
    for told in ("q8_0,", "q8_0,Q8_0"):
        with pytest.raises(PlacekitError, match="each stands there once"):
            split_precisions(told)


def test_several_precisions_are_plans_of_their_own() -> None:
    """The first that fits is the answer; every row is the plan that this precision alone gets."""
    told = ["f32", "f16", "q8_0", "4.9"]
    both = pk.plan_serving("llama3-8b", DESK.with_devices(DESK.devices[:1]), "llama.cpp", precision=",".join(told))
    assert [each.fits for each in both.precisions] == [False, True, True, True]
    assert both.model.description is not None
    assert both.model.description.precision == "f16"
    for name, row in zip(told[1:], both.precisions[1:], strict=True):
        alone = pk.plan_serving("llama3-8b", DESK.with_devices(DESK.devices[:1]), "llama.cpp", precision=name)
        assert alone.report is not None
        assert (row.generated_tokens_per_s, row.launch) == (alone.report.generated_tokens_per_s, alone.launch)
        assert row.longest_context == alone.context.longest
    assert both.to_dict()["precisions"][1]["fits"]


@pytest.mark.parametrize("name", ["rtx-3060-12-gb", "GPU1"])
def test_another_card_is_the_same_question_on_another_machine(name: str) -> None:
    """By the name of the device, or by its number."""
    wishes = pk.Wishes(instead={name: "RTX 5090"})
    plan = pk.plan_serving("llama3-8b", DESK, "llama.cpp", precision="f32", wishes=wishes)
    bought = pk.plan_serving("llama3-8b", machine_of("RTX 4090, RTX 5090").platform(), "llama.cpp", precision="f32")
    (row,) = plan.exchanged
    assert row.what == "rtx-3060-12-gb = RTX 5090"
    assert bought.report is not None
    assert row.generated_tokens_per_s == pytest.approx(bought.report.generated_tokens_per_s)
    with pytest.raises(PlacekitError, match="no card 'GPU7' to exchange; cards are rtx-4090, rtx-3060-12-gb"):
        pk.plan_serving("llama3-8b", DESK, "llama.cpp", wishes=pk.Wishes(instead={"GPU7": "RTX 5090"}))
