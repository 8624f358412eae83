"""BERT, GPT-2 and a Llama-like decoder, from transformers' configurations.

Weights are drawn with variance 1 / width. transformers' default of 0.02 would make every attention uniform in a
narrow model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from placekit.model.errors import InvalidProblemError

_TILE = 64
_BIAS_DEVIATION = 0.05


class _FirstOutput(nn.Module):
    """A transformers model that takes tokens and a mask and returns its first output, without a cache of keys."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **self.options)
        first: torch.Tensor = outputs[0]
        return first


def _with_biases(model: nn.Module) -> nn.Module:
    """Draw the biases and norms, which start at exactly 0 and 1. In place.

    The converter removes an addition of zeros and a product with ones, so that the graph of an untrained model would
    lack ops that the graph of every trained one has.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * _BIAS_DEVIATION)
    return model


def bert(values: Mapping[str, Any]) -> nn.Module:
    """Return a BERT encoder (Devlin et al. 2018, arXiv:1810.04805); output: the last hidden state."""
    from transformers import BertConfig, BertModel

    settings: dict[str, Any] = {
        "vocab_size": values["vocabulary"],
        "hidden_size": values["width"],
        "num_hidden_layers": values["layers"],
        "num_attention_heads": values["heads"],
        "intermediate_size": values["feed_forward"] or 4 * values["width"],
        "max_position_embeddings": max(512, values["sequence"]),
        "initializer_range": values["width"] ** -0.5,
        "pad_token_id": 0,
        "attn_implementation": values["attention"],
    }
    model = _with_biases(BertModel(BertConfig(**settings), add_pooling_layer=False))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # as GPT-2 does: else the blocks drown what tells one token from another
            if name.endswith("output.dense.weight"):
                parameter.mul_((2 * values["layers"]) ** -0.5)
    return _FirstOutput(model)


def gpt2(values: Mapping[str, Any]) -> nn.Module:
    """Return a GPT-2 decoder (Radford et al. 2019); output: the logits of the next token at every position."""
    from transformers import GPT2Config, GPT2LMHeadModel

    settings: dict[str, Any] = {
        "vocab_size": values["vocabulary"],
        "n_positions": max(1024, values["sequence"]),
        "n_embd": values["width"],
        "n_layer": values["layers"],
        "n_head": values["heads"],
        "n_inner": values["feed_forward"] or None,
        "initializer_range": values["width"] ** -0.5,
        "bos_token_id": values["vocabulary"] - 1,
        "eos_token_id": values["vocabulary"] - 1,
        "attn_implementation": values["attention"],
    }
    return _FirstOutput(_with_biases(GPT2LMHeadModel(GPT2Config(**settings))), use_cache=False)


def decoder(values: Mapping[str, Any]) -> nn.Module:
    """Return a Llama-like decoder (Touvron et al. 2023, arXiv:2302.13971); output: the logits at every position.

    The feed-forward part is 8/3 as wide as the hidden state by default, rounded up to a multiple of 64.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    width, heads, kv_heads = values["width"], values["heads"], values["kv_heads"] or values["heads"]
    if width // heads % 2:
        raise InvalidProblemError(
            f"zoo model 'decoder': width / heads is {width // heads}; rotary positions need it even"
        )
    if heads % kv_heads:
        raise InvalidProblemError(
            f"zoo model 'decoder': kv_heads is {kv_heads}; it must divide heads, which is {heads}"
        )
    settings: dict[str, Any] = {
        "vocab_size": values["vocabulary"],
        "hidden_size": width,
        "num_hidden_layers": values["layers"],
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": values["feed_forward"] or -(-8 * width // (3 * _TILE)) * _TILE,
        "max_position_embeddings": max(2048, values["sequence"]),
        "initializer_range": width**-0.5,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 1,
        "attn_implementation": values["attention"],
    }
    model = LlamaForCausalLM(LlamaConfig(**settings))
    if values["experts"] > 1:
        if values["experts_per_token"] > values["experts"]:
            raise InvalidProblemError(
                f"zoo model 'decoder': experts_per_token is {values['experts_per_token']}; it must be at most experts, "
                f"which is {values['experts']}"
            )
        for layer in model.model.layers:
            layer.mlp = Mixture(width, settings["intermediate_size"], values["experts"], values["experts_per_token"])
    return _FirstOutput(_with_biases(model), use_cache=False)


class Mixture(nn.Module):
    """A feed-forward part of several gated experts, a few for every token (Jiang et al. 2024, arXiv:2401.04088).

    Every expert computes every token, and the router weighs what comes out: a graph whose shapes do not depend on data.
    """

    def __init__(self, hidden: int, feed_forward: int, experts: int, experts_per_token: int) -> None:
        super().__init__()
        self.experts_per_token = experts_per_token
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, feed_forward) for _ in range(experts))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=hidden**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of the experts of every token; weights of those that count sum to 1."""
        scores = self.gate(x)
        best, chosen = scores.topk(self.experts_per_token, dim=-1)
        shares = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
        total = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            total = total + shares[..., number : number + 1] * expert(x)
        return total


class Expert(nn.Module):
    """A gated feed-forward part (SwiGLU)."""

    def __init__(self, hidden: int, feed_forward: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, feed_forward, bias=False)
        self.up_proj = nn.Linear(hidden, feed_forward, bias=False)
        self.down_proj = nn.Linear(feed_forward, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the change of the hidden state."""
        change: torch.Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return change
