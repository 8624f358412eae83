"""Models of transformers and torch-geometric: read without a missing op, every parameter and product accounted for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from placekit.model.errors import UnsupportedProblemError
from placekit.pytorch.source import read_torch

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.zoo

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TEXT = {**SMALL, "vocab_size": 500}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {**SMALL, "image_size": 64, "patch_size": 16}
DENSE = {"MatMul", "Convolution", "GroupConvolution", "Einsum"}


def ids() -> Any:
    """Return a sentence of 32 tokens."""
    return torch.ones(1, 32, dtype=torch.long)


def causal(name: str, **config: Any) -> Callable[[Any], tuple[Any, dict[str, Any]]]:
    """Return what makes a decoder of transformers by its name."""

    def make(t: Any) -> tuple[Any, dict[str, Any]]:
        settings = getattr(t, f"{name}Config")(**{**GROUPED, **config})
        return getattr(t, f"{name}ForCausalLM")(settings), {"input_ids": ids(), "use_cache": False}

    return make


def whisper(t: Any) -> tuple[Any, dict[str, Any]]:
    """Return a speech model."""
    sides = {
        f"{side}_{what}": value
        for side in ("encoder", "decoder")
        for what, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 128))
    }
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = t.WhisperConfig(
        d_model=64, vocab_size=500, max_source_positions=50, max_target_positions=40, **sides, **special
    )
    inputs = {"input_features": torch.zeros(1, 80, 100), "decoder_input_ids": ids(), "use_cache": False}
    return t.WhisperForConditionalGeneration(config), inputs


MODELS: dict[str, Callable[[Any], tuple[Any, dict[str, Any]]]] = {
    "llama": causal("Llama"),
    "mistral": causal("Mistral"),
    "qwen2": causal("Qwen2"),
    "mixtral": causal("Mixtral", num_local_experts=4),
    "bert": lambda t: (t.BertModel(t.BertConfig(**TEXT)), {"input_ids": ids()}),
    "gpt2": lambda t: (
        t.GPT2LMHeadModel(t.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=500, bos_token_id=1, eos_token_id=2)),
        {"input_ids": ids(), "use_cache": False},
    ),
    "t5": lambda t: (
        t.T5ForConditionalGeneration(
            t.T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=500)
        ),
        {"input_ids": ids(), "decoder_input_ids": ids(), "use_cache": False},
    ),
    "vit": lambda t: (t.ViTModel(t.ViTConfig(**IMAGE)), {"pixel_values": torch.zeros(1, 3, 64, 64)}),
    "whisper": whisper,
    "clip": lambda t: (
        t.CLIPModel(t.CLIPConfig(text_config={**TEXT, "eos_token_id": 2, "bos_token_id": 1}, vision_config=IMAGE)),
        {"input_ids": ids(), "pixel_values": torch.zeros(1, 3, 64, 64)},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in ("llama", "mixtral") else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_models_of_transformers(name: str) -> None:
    """Random small configurations: parameters and buffers to the byte, products as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    transformers = pytest.importorskip("transformers")
    module, inputs = MODELS[name](transformers)
    module.set_attn_implementation("eager")  # all products are matrix products, which both count alike
    module.eval()
    source = read_torch(module, (), inputs)
    assert not source.lowered.unknown
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(**inputs)
    counted = sum(
        flops for flops, kind in zip(source.graph.op_flops, source.graph.op_types, strict=True) if kind in DENSE
    )
    # torch's counter leaves out the experts' grouped products: 2 layers x 32 tokens x 2 experts x 3 matrices
    experts = 2 * 32 * 2 * 3 * 2 * 64 * 128 if name == "mixtral" else 0
    assert counted == pytest.approx(counter.get_total_flops() + experts, rel=0.01)
    held = {each.untyped_storage()._cdata: each.numel() * each.element_size() for each in module.parameters()}
    assert source.weight_bytes == pytest.approx(sum(held.values()), rel=0.02)  # and small buffers


def network(layer: str, **options: Any) -> Any:
    """Return two layers of message passing."""
    geometric = pytest.importorskip("torch_geometric.nn")

    class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = getattr(geometric, layer)(8, 16, **options)
            self.second = getattr(geometric, layer)(16, 4, **options)

        def forward(self, x: Any, edges: Any) -> Any:
            return self.second(self.first(x, edges).relu(), edges)

    return Network().eval()


RING = torch.stack([torch.arange(20), (torch.arange(20) + 1) % 20])


@pytest.mark.parametrize(
    ("layer", "options"), [("GCNConv", {"add_self_loops": False}), ("SAGEConv", {}), ("GraphConv", {})]
)
def test_models_of_torch_geometric(layer: str, options: dict[str, Any]) -> None:
    """Message passing over a graph of 20 nodes."""
    module = network(layer, **options)
    source = read_torch(module, (torch.zeros(20, 8), RING))
    assert not source.lowered.unknown
    assert source.weight_bytes == sum(each.numel() * each.element_size() for each in module.parameters())
    assert any(name.startswith("second.") for name in source.graph.op_names)


def test_sizes_that_values_decide_are_refused() -> None:
    """Removing self-loops leaves as many edges as the data say."""
    with pytest.raises(UnsupportedProblemError, match="has a size that depends on the values of tensors"):
        read_torch(network("GCNConv"), (torch.zeros(20, 8), RING))
