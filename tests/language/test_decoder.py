"""Shapes of decoders: counts that are known, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from placekit.language.decoder import DECODERS, Decoder, bits_of, get_decoder
from placekit.language.from_numbers import describe_decoder
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.training.transformer import TRANSFORMERS

KNOWN = {  # as published
    "llama3-8b": 8.03e9, "llama3-70b": 70.55e9, "mistral-7b": 7.24e9, "mixtral-8x7b": 46.70e9,
    "gpt2": 124.44e6,
}  # fmt: skip


@pytest.mark.parametrize("name", DECODERS)
def test_parameters_are_the_published_ones(name: str) -> None:
    """Within 0.2 %."""
    assert DECODERS[name].num_parameters == pytest.approx(KNOWN[name], rel=2e-3)


def test_parameters_are_the_published_ones_to_the_last() -> None:
    """Parameters are the sum of the published tensors, for models whose modules have no biases."""
    published = {
        "llama3-8b": 8_030_261_248,
        "llama3-70b": 70_553_706_496,
        "mistral-7b": 7_241_732_096,
        "mixtral-8x7b": 46_702_792_704,
    }
    assert {name: DECODERS[name].num_parameters for name in published} == published


def test_training_plans_count_as_ever() -> None:
    """A block of a training problem has 12 h^2 parameters: no grouped heads, two matrices of 4 h."""
    for shape in TRANSFORMERS.values():
        assert shape.block_parameters == 12 * shape.hidden**2


def test_experts_that_tokens_meet() -> None:
    """One token meets its two experts, many meet all eight; a dense model always meets its one."""
    mixture = describe_decoder(DECODERS["mixtral-8x7b"])
    experts = next(part for part in mixture.parts if part.experts > 1)
    router = next(part for part in mixture.parts if part.path.endswith(".gate"))
    assert (router.flops, experts.flops) == (2 * 4096 * 8, 2 * (2 * 2 * 4096 * 14336))
    activation = next(part for part in mixture.parts if part.path.endswith(".act_fn"))
    assert experts.width == 2 * 2 * 14336  # gate and up, of two experts
    assert (activation.width, activation.flops) == (2 * 14336, 5 * 2 * 14336)
    assert experts.share_met(1) == 2 / 8
    assert experts.share_met(2) == pytest.approx(1 - (6 / 8) ** 2)
    assert experts.share_met(1000) == pytest.approx(1)
    assert next(describe_decoder(DECODERS["llama3-8b"]).parts).share_met(1) == 1


@pytest.mark.parametrize(("gated", "up"), [(True, "gate_up_proj"), (False, "up_proj")])
def test_products_have_the_names_of_runtimes(gated: bool, up: str) -> None:
    """The first product of a feed-forward layer is two side by side if one of them is a gate."""
    shape = Decoder(1, 64, 128, 200, gated=gated)
    products = [part.path for part in describe_decoder(shape).blocks[0].parts if ".mlp." in part.path]
    assert products[:1] == [f"model.layers.0.mlp.{up}"]


def test_a_model_has_blocks() -> None:
    """Nothing else of it could be placed."""
    with pytest.raises(InvalidProblemError, match=r"^llama3-8b: the model has no blocks$"):
        describe_decoder(DECODERS["llama3-8b"], name="llama3-8b").replace(blocks=())


def test_names_and_numbers() -> None:
    """Numbers change a named shape, and make one alone."""
    assert get_decoder("llama3-8b", {"layers": 4}).layers == 4
    wider = get_decoder("llama3-8b", {"hidden": 1024})
    assert (wider.heads, wider.kv_heads, wider.head_dim) == (8, 8, 128)
    assert get_decoder(None, {"layers": 1, "hidden": 96, "ffn": 8, "vocab": 9, "heads": 4}).head_dim == 24


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers is 0; it must be at least 1 and at most 10000"),
        ({"ffn": 2**40}, "ffn is 1099511627776; it must be at least 1 and at most 4294967296"),
        ({"heads": 5}, "heads is 5; it must divide hidden, which is 64"),
        ({"kv_heads": 3}, "kv_heads is 3; it must divide heads, which is 4"),
        ({"head_dim": 0, "heads": None}, "head_dim is 0"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token is 3; it must be at most experts, which is 2"),
    ],
)
def test_bad_numbers_are_named(changes: dict[str, Any], message: str) -> None:
    """The message says the value and its bound."""
    with pytest.raises(InvalidProblemError, match=message):
        get_decoder(None, {"layers": 2, "hidden": 64, "ffn": 128, "vocab": 100, "heads": 4} | changes)


def test_unknown_names_are_refused() -> None:
    """A model, a precision, or numbers that are not all there."""
    with pytest.raises(UnknownNameError, match="no decoder 'gpt5'; there are llama3-8b"):
        get_decoder("gpt5", {})
    with pytest.raises(InvalidProblemError, match="ffn is missing"):
        get_decoder(None, {"layers": 2, "hidden": 64})
    with pytest.raises(UnknownNameError, match="precision is 'int3'; it must be one of f32"):
        bits_of("int3")
