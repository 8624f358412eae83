"""What published models keep of a sequence, from headers of their GGUF files, against llama.cpp's rules by hand.

Rules: attention keeps ``head_count_kv * (key_length + value_length)`` numbers of a token, latent attention (with
``key_length_mla``) ``head_count_kv * key_length``; a state has 4 bytes per number: ``(conv_kernel - 1) * (inner_size +
2 * group_count * state_size)`` for the convolution and ``inner_size * state_size`` beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gguf_headers import (
    Shapes,
    attention,
    experts,
    feed_forward,
    fused_attention,
    latent_attention,
    state_space,
    write_model,
)
from llama_layers import devices_of_layers
from serving_plans import best_plan, launch_of

import placekit as pk
from placekit.language.gguf.from_gguf import read_gguf
from placekit.language.planning.plan import plan_cases
from placekit.language.runtimes import RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, decoder_task
from placekit.model.errors import InvalidFileError
from placekit.model.served import Served
from placekit.solve.solve import solve
from placekit.solvers.chain.method import Chain

gguf = pytest.importorskip("gguf")

CONTEXT = 32768
Parts = tuple[str, dict[str, Any], list[Shapes]]
"""Family, keys and blocks of a model."""


@dataclass(frozen=True)
class Case:
    """A published model: what its file has, and what llama.cpp keeps of a sequence of `CONTEXT` tokens."""

    family: str
    keys: Mapping[str, Any]
    blocks: Sequence[Shapes]
    values: int  # numbers per token that all blocks keep
    windowed: int = 0  # of them those with a window
    window: int = 0
    state_bytes: int = 0
    further: int = 0  # blocks of multi-token prediction


def dense(family: str, count: int, hidden: int, heads: int, kv_heads: int, ffn: int, *, size: int = 0,
          fused: bool = False, num_experts: int = 0, **keys: Any) -> Parts:  # fmt: skip
    """Return family, keys and blocks of a model of equal blocks; `keys` have two underscores for a dot."""
    told = {".embedding_length": hidden, ".attention.head_count": heads, ".attention.head_count_kv": kv_heads}
    told |= {".feed_forward_length": ffn} | {f".{key.replace('__', '.')}": value for key, value in keys.items()}
    if size:
        told |= {".attention.key_length": size, ".attention.value_length": size}
    size = size or hidden // heads
    mixer = fused_attention(hidden, heads, kv_heads, size) if fused else attention(hidden, heads, kv_heads, size)
    if num_experts:
        told |= {".expert_count": num_experts, ".expert_used_count": 2}
    fed = experts(hidden, ffn, num_experts) if num_experts else feed_forward(hidden, ffn)
    return family, told, [mixer | fed] * count


def latent(family: str, count: int, hidden: int, heads: int, **keys: Any) -> Parts:
    """Return family, keys and blocks of a model with DeepSeek's latent attention."""
    told = {
        ".embedding_length": hidden, ".attention.head_count": heads, ".attention.head_count_kv": 1,
        ".feed_forward_length": 2 * hidden, ".attention.kv_lora_rank": 512, ".rope.dimension_count": 64,
        ".attention.key_length": 576, ".attention.value_length": 512, ".attention.key_length_mla": 192,
        ".attention.value_length_mla": 128, **{f".{key.replace('__', '.')}": value for key, value in keys.items()},
    }  # fmt: skip
    block = latent_attention(hidden, heads, 512, 64, 128, 128) | feed_forward(hidden, 2 * hidden)
    return family, told, [block] * count


def hybrid(family: str, hidden: int, heads: int, kv_heads: Sequence[int], size: int, ssm: Mapping[str, int],
           **keys: Any) -> Parts:  # fmt: skip
    """Return family, keys and blocks of a model whose blocks without key-value heads are recurrent."""
    told = {
        ".embedding_length": hidden, ".attention.head_count": heads, ".attention.head_count_kv": list(kv_heads),
        ".feed_forward_length": 2 * hidden, ".attention.key_length": size, ".attention.value_length": size,
        **{f".ssm.{key}": value for key, value in ssm.items()},
        **{f".{key.replace('__', '.')}": value for key, value in keys.items()},
    }  # fmt: skip
    inner = ssm.get("inner_size", hidden)
    recurrent = state_space(hidden, inner, 4, inner + 2 * ssm.get("group_count", 0) * ssm.get("state_size", 0))
    fed = feed_forward(hidden, 2 * hidden)
    return family, told, [(attention(hidden, heads, each, size) if each else recurrent) | fed for each in kv_heads]


def by_interval(family: str, count: int, hidden: int, heads: int, kv_heads: int, ssm: Mapping[str, int],
                further: int = 0) -> Parts:  # fmt: skip
    """Return family, keys and blocks of a model in which one block of four has attention, with heads of 256."""
    family, told, plain = dense(family, count + further, hidden, heads, kv_heads, 2 * hidden, size=256)
    inner = ssm["inner_size"]
    linear = {
        "attn_norm": (hidden,), "attn_qkv": (hidden, 2 * inner), "attn_gate": (hidden, inner),
        "ssm_conv1d": (4, inner + 2 * ssm["group_count"] * 128), "ssm_a": (ssm["time_step_rank"],),
        "ssm_norm": (128,), "ssm_out": (inner, hidden), **feed_forward(hidden, 2 * hidden),
    }  # fmt: skip
    told |= {".full_attention_interval": 4, **{f".ssm.{key}": value for key, value in ssm.items()}}
    told |= {".nextn_predict_layers": further} if further else {}
    blocks = [plain[0] if number % 4 == 3 or number >= count else linear for number in range(count + further)]
    return family, told, blocks


def recurrent(family: str, count: int, hidden: int, block: Shapes, **keys: Any) -> Parts:
    """Return family, keys and blocks of a model without attention."""
    told = {".embedding_length": hidden, ".attention.head_count": 0, ".feed_forward_length": 0}
    return family, told | {f".{key.replace('__', '.')}": value for key, value in keys.items()}, [block] * count


GEMMA_3N = [number % 5 != 4 for number in range(35)]
GEMMA_4 = [number % 6 != 5 for number in range(42)]
MIMO = [number not in (0, 5, 11, 17, 23, 29, 35, 41, 47) for number in range(48)]
KIMI = [1 if number in (3, 7, 11, 15, 19, 23, 26) else 0 for number in range(27)]
GRANITE = [4 if number in (5, 15, 25, 35) else 0 for number in range(40)]
NEMOTRON = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
KDA = {
    "attn_norm": (2304,), "attn_q": (2304, 4096), "attn_k": (2304, 4096), "attn_v": (2304, 4096),
    "ssm_conv1d_q": (4, 1, 4096), "ssm_f_a": (2304, 128), "ssm_a": (1, 32), "attn_output": (4096, 2304),
}  # fmt: skip
SHORT = {"attn_norm": (2048,), "shortconv.conv": (3, 2048), "shortconv.in_proj": (2048, 6144),
         "shortconv.out_proj": (2048, 2048)}  # fmt: skip
RWKV = {
    "attn_norm": (2560,), "attn_norm_2": (2560,), "time_mix_receptance": (2560, 2560), "time_mix_w0": (2560,),
    "time_mix_output": (2560, 2560), "channel_mix_key": (2560, 10240), "channel_mix_value": (10240, 2560),
}  # fmt: skip


def gemma_4() -> Parts:
    """Return Gemma 4 E4B: heads of 256 in blocks with a window, of 512 in the others."""
    keys = {
        ".embedding_length": 2560, ".attention.head_count": 8, ".attention.head_count_kv": 2,
        ".feed_forward_length": 10240, ".attention.key_length": 512, ".attention.value_length": 512,
        ".attention.key_length_swa": 256, ".attention.value_length_swa": 256, ".attention.sliding_window": 512,
        ".attention.shared_kv_layers": 18, ".attention.sliding_window_pattern": GEMMA_4,
    }  # fmt: skip
    return "gemma4", keys, [attention(2560, 8, 2, 256 if local else 512) | feed_forward(2560, 10240)
                            for local in GEMMA_4]  # fmt: skip


def mimo() -> Parts:
    """Return MiMo-V2-Flash: keys of 192 and values of 128; 8 key-value heads in blocks with a window, else 4."""
    heads = [8 if local else 4 for local in MIMO]
    keys = {
        ".embedding_length": 4096, ".attention.head_count": 64, ".attention.head_count_kv": heads,
        ".attention.key_length": 192, ".attention.value_length": 128, ".attention.sliding_window": 128,
        ".attention.sliding_window_pattern": MIMO, ".feed_forward_length": 16384,
    }  # fmt: skip
    return "mimo2", keys, [attention(4096, 64, each, 192, 128) | feed_forward(4096, 16384) for each in heads]


def nemotron() -> Parts:
    """Return Nemotron-H 8B: M is a state space, * is attention, - is a feed-forward layer alone."""
    keys = {
        ".embedding_length": 4096, ".attention.head_count": 32, ".attention.key_length": 128,
        ".attention.value_length": 128, ".attention.head_count_kv": [8 * (each == "*") for each in NEMOTRON],
        ".feed_forward_length": [21504 * (each == "-") for each in NEMOTRON], ".ssm.inner_size": 8192,
        ".ssm.state_size": 128, ".ssm.group_count": 8, ".ssm.conv_kernel": 4, ".ssm.time_step_rank": 128,
    }  # fmt: skip
    fed = {"attn_norm": (4096,), "ffn_up": (4096, 21504), "ffn_down": (21504, 4096)}
    of = {"M": state_space(4096, 8192, 4, 10240), "*": attention(4096, 32, 8, 128), "-": fed}
    return "nemotron_h", keys, [of[each] for each in NEMOTRON]


def deepseek_of_2024() -> Parts:
    """Return DeepSeek V3 as files were before llama.cpp multiplied with the latent vector: keys of all heads."""
    keys = {
        ".embedding_length": 7168, ".attention.head_count": 128, ".attention.head_count_kv": 128,
        ".attention.kv_lora_rank": 512, ".attention.key_length": 192, ".attention.value_length": 128,
        ".feed_forward_length": 18432,
    }  # fmt: skip
    block = {"attn_norm": (7168,), "attn_q_a": (7168, 1536), "attn_q_b": (1536, 24576), "attn_kv_a_mqa": (7168, 576),
             "attn_kv_b": (512, 32768), "attn_output": (16384, 7168), **feed_forward(7168, 18432)}  # fmt: skip
    return "deepseek2", keys, [block] * 61


def minicpm_3() -> Parts:
    """Return MiniCPM3-4B: low-rank products, but keys (96) and values (2560 / 40) of all heads are kept."""
    keys = {
        ".embedding_length": 2560, ".attention.head_count": 40, ".attention.head_count_kv": 40,
        ".attention.kv_lora_rank": 256, ".attention.key_length": 96, ".feed_forward_length": 6400,
    }  # fmt: skip
    block = {"attn_norm": (2560,), "attn_q_a": (2560, 768), "attn_q_b": (768, 3840), "attn_kv_a_mqa": (2560, 288),
             "attn_kv_b": (256, 5120), "attn_output": (2560, 2560), **feed_forward(2560, 6400)}  # fmt: skip
    return "minicpm3", keys, [block] * 62


def kimi() -> Parts:
    """Return Kimi Linear: latent attention in 7 blocks, linear attention in 20."""
    family, keys, (block, *_) = latent("kimi-linear", 1, 2304, 32, kda__head_dim=128, ssm__conv_kernel=4)
    keys[".attention.head_count_kv"] = KIMI
    return family, keys, [block if each else KDA | feed_forward(2304, 4608) for each in KIMI]


SSM = {"conv_kernel": 4, "state_size": 128, "group_count": 16, "time_step_rank": 32}
CASES: dict[str, Case] = {
    "Llama 3.1 8B": Case(*dense("llama", 32, 4096, 32, 8, 14336), 32 * 8 * (128 + 128)),
    "Llama 3.3 70B": Case(*dense("llama", 80, 8192, 64, 8, 28672), 80 * 8 * (128 + 128)),
    "Mistral Small 24B": Case(*dense("llama", 40, 5120, 32, 8, 32768, size=128), 40 * 8 * (128 + 128)),
    "Mixtral 8x7B": Case(*dense("llama", 32, 4096, 32, 8, 14336, num_experts=8), 32 * 8 * (128 + 128)),
    "Qwen2.5 7B": Case(*dense("qwen2", 28, 3584, 28, 4, 18944), 28 * 4 * (128 + 128)),
    "Qwen3 30B-A3B": Case(*dense("qwen3moe", 48, 2048, 32, 4, 768, size=128, num_experts=128), 48 * 4 * (128 + 128)),
    "Command-R 35B": Case(*dense("command-r", 40, 8192, 64, 64, 22528), 40 * 64 * (128 + 128)),
    "MiniMax-M2": Case(*dense("minimax-m2", 62, 3072, 48, 8, 1536, size=128, num_experts=256), 62 * 8 * (128 + 128)),
    "Hunyuan-A13B": Case(*dense("hunyuan-moe", 32, 4096, 32, 8, 3072, size=128, num_experts=64), 32 * 8 * (128 + 128)),
    "SmolLM3 3B": Case(*dense("smollm3", 36, 2048, 16, 4, 11008), 36 * 4 * (128 + 128)),
    "StarCoder2 7B": Case(*dense("starcoder2", 32, 4608, 36, 4, 18432), 32 * 4 * (128 + 128)),
    "OLMo 2 7B": Case(*dense("olmo2", 32, 4096, 32, 32, 11008), 32 * 32 * (128 + 128)),
    "Phi-4": Case(*dense("phi3", 40, 5120, 40, 10, 17920, fused=True), 40 * 10 * (128 + 128)),
    # llama.cpp does not use the window of Phi-3 files
    "Phi-3-mini": Case(
        *dense("phi3", 32, 3072, 32, 32, 8192, fused=True, attention__sliding_window=2047), 32 * 32 * (96 + 96)
    ),
    "Falcon 7B": Case(*dense("falcon", 32, 4544, 71, 1, 18176, fused=True), 32 * 1 * (64 + 64)),
    # blocks with a window: the first of every two
    "gpt-oss-20b": Case(
        *dense("gpt-oss", 24, 2880, 64, 8, 2880, size=64, num_experts=32, attention__sliding_window=128),
        24 * 8 * (64 + 64), 12 * 8 * (64 + 64), 128,
    ),
    "gpt-oss-120b": Case(
        *dense("gpt-oss", 36, 2880, 64, 8, 2880, size=64, num_experts=128, attention__sliding_window=128),
        36 * 8 * (64 + 64), 18 * 8 * (64 + 64), 128,
    ),
    "Gemma 2 9B": Case(
        *dense("gemma2", 42, 3584, 16, 8, 14336, size=256, attention__sliding_window=4096),
        42 * 8 * (256 + 256), 21 * 8 * (256 + 256), 4096,
    ),
    # all but the last of every six: 10 of 62 blocks see all tokens
    "Gemma 3 27B": Case(
        *dense("gemma3", 62, 5376, 32, 16, 21504, size=128, attention__sliding_window=1024),
        62 * 16 * (128 + 128), 52 * 16 * (128 + 128), 1024,
    ),
    # the last 15 blocks use earlier caches; of the first 20, 4 see all tokens
    "Gemma 3n E4B": Case(
        *dense("gemma3n", 35, 2048, 8, 2, 16384, size=256, attention__sliding_window=512,
               attention__shared_kv_layers=15, attention__sliding_window_pattern=GEMMA_3N),
        20 * 2 * (256 + 256), 16 * 2 * (256 + 256), 512,
    ),
    # the last 18 blocks use earlier caches; of the first 24, 4 see all tokens, with heads of 512
    "Gemma 4 E4B": Case(*gemma_4(), 20 * 2 * (256 + 256) + 4 * 2 * (512 + 512), 20 * 2 * (256 + 256), 512),
    # three of four: chunks of 8,192
    "Llama 4 Scout": Case(
        *dense("llama4", 48, 5120, 40, 8, 8192, num_experts=16), 48 * 8 * (128 + 128), 36 * 8 * (128 + 128), 8192
    ),
    "Command R7B": Case(
        *dense("cohere2", 32, 4096, 32, 8, 14336, attention__sliding_window=4096),
        32 * 8 * (128 + 128), 24 * 8 * (128 + 128), 4096,
    ),
    "EXAONE 4 32B": Case(
        *dense("exaone4", 64, 5120, 40, 8, 27392, attention__sliding_window=4096),
        64 * 8 * (128 + 128), 48 * 8 * (128 + 128), 4096,
    ),
    "OLMo 3 7B": Case(
        *dense("olmo2", 32, 4096, 32, 32, 11008, attention__sliding_window=4096),
        32 * 32 * (128 + 128), 24 * 32 * (128 + 128), 4096,
    ),
    # here the first of every four sees all tokens
    "SmallThinker 21B": Case(
        *dense("smallthinker", 52, 2560, 28, 4, 768, size=128, num_experts=64, attention__sliding_window=4096),
        52 * 4 * (128 + 128), 39 * 4 * (128 + 128), 4096,
    ),
    "MiMo-V2-Flash": Case(*mimo(), (9 * 4 + 39 * 8) * (192 + 128), 39 * 8 * (192 + 128), 128),
    # the block of multi-token prediction keeps nothing: it is not loaded
    "GLM-4.5-Air": Case(
        *dense("glm4moe", 47, 4096, 96, 8, 1408, size=128, num_experts=128, nextn_predict_layers=1),
        46 * 8 * (128 + 128), further=1,
    ),
    # latent attention keeps one key, which is the values too
    "DeepSeek V2 Lite": Case(*latent("deepseek2", 27, 2048, 16), 27 * (512 + 64)),
    "DeepSeek V3": Case(*latent("deepseek2", 61, 7168, 128), 61 * (512 + 64)),
    "DeepSeek V3, file of 2024": Case(*deepseek_of_2024(), 61 * 128 * (192 + 128)),
    "MiniCPM3 4B": Case(*minicpm_3(), 62 * 40 * (96 + 64)),
    # an indexer keeps keys of its own
    "GLM-5": Case(
        *latent("glm-dsa", 79, 6144, 64, nextn_predict_layers=1, attention__indexer__key_length=128),
        78 * (512 + 64 + 128), further=1,
    ),
    # linear attention: a convolution for queries, keys and values, and 32 matrices of 128 x 128
    "Kimi Linear 48B": Case(*kimi(), 7 * (512 + 64), state_bytes=20 * (3 * 3 * 4096 + 32 * 128 * 128) * 4),
    "Qwen3-Next 80B-A3B": Case(
        *by_interval("qwen3next", 48, 2048, 16, 2, {**SSM, "inner_size": 4096}), 12 * 2 * (256 + 256),
        state_bytes=36 * (3 * (4096 + 2 * 16 * 128) + 4096 * 128) * 4,
    ),
    "Qwen3.6 27B with prediction": Case(
        *by_interval("qwen35", 64, 5120, 24, 4, {**SSM, "inner_size": 6144, "time_step_rank": 48}, further=1),
        16 * 4 * (256 + 256), state_bytes=48 * (3 * (6144 + 2 * 16 * 128) + 6144 * 128) * 4, further=1,
    ),
    "Granite 4.0 H Tiny": Case(
        *hybrid("granitehybrid", 1536, 12, GRANITE, 128,
                {"inner_size": 3072, "state_size": 128, "group_count": 1, "conv_kernel": 4}),
        4 * 4 * (128 + 128), state_bytes=36 * (3 * (3072 + 2 * 1 * 128) + 3072 * 128) * 4,
    ),
    # Mamba 1 has no groups
    "Jamba Mini": Case(
        *hybrid("jamba", 4096, 32, [8 * (number % 8 == 4) for number in range(32)], 128,
                {"inner_size": 8192, "state_size": 16, "conv_kernel": 4, "time_step_rank": 256}),
        4 * 8 * (128 + 128), state_bytes=28 * (3 * 8192 + 8192 * 16) * 4,
    ),
    "Nemotron-H 8B": Case(
        *nemotron(), 4 * 8 * (128 + 128), state_bytes=24 * (3 * (8192 + 2 * 8 * 128) + 8192 * 128) * 4
    ),
    # every block has both
    "Falcon-H1 7B": Case(
        "falcon-h1",
        dense("falcon-h1", 44, 3072, 12, 2, 12288, size=128)[1] | {".ssm.inner_size": 3072, ".ssm.state_size": 256,
                                                                  ".ssm.group_count": 1, ".ssm.conv_kernel": 4},
        [attention(3072, 12, 2, 128) | state_space(3072, 3072, 4, 3584) | feed_forward(3072, 12288)] * 44,
        44 * 2 * (128 + 128), state_bytes=44 * (3 * (3072 + 2 * 1 * 256) + 3072 * 256) * 4,
    ),
    "LFM2 1.2B": Case(
        "lfm2",
        {".embedding_length": 2048, ".attention.head_count": 32, ".feed_forward_length": 8192, ".shortconv.l_cache": 3,
         ".attention.head_count_kv": [8 * (number in (2, 5, 8, 10, 12, 14)) for number in range(16)]},
        [(attention(2048, 32, 8, 64) if number in (2, 5, 8, 10, 12, 14) else SHORT) | feed_forward(2048, 8192)
         for number in range(16)],
        6 * 8 * (64 + 64), state_bytes=10 * 2048 * (3 - 1) * 4,
    ),
    "Mamba 2.8B": Case(
        *recurrent("mamba", 64, 2560, state_space(2560, 5120, 4, 5120), ssm__inner_size=5120, ssm__state_size=16,
                   ssm__conv_kernel=4, ssm__time_step_rank=160),
        0, state_bytes=64 * (3 * 5120 + 5120 * 16) * 4,
    ),
    "Mamba 2 2.7B": Case(
        *recurrent("mamba2", 64, 2560, state_space(2560, 5120, 4, 5376), ssm__inner_size=5120, ssm__state_size=128,
                   ssm__conv_kernel=4, ssm__group_count=1),
        0, state_bytes=64 * (3 * (5120 + 2 * 1 * 128) + 5120 * 128) * 4,
    ),
    # two shifted tokens, and a matrix of 64 x 64 for each of 40 heads
    "RWKV 7 2.9B": Case(
        *recurrent("rwkv7", 32, 2560, RWKV, wkv__head_size=64), 0, state_bytes=32 * (2 * 2560 + 2560 * 64) * 4
    ),
}  # fmt: skip


NO_DECODERS = {
    "clip", "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
    "eurobert", "gemma-embedding", "llama-embed", "t5", "t5encoder", "wavtokenizer-dec", "dream", "llada", "llada-moe",
    "rnd1",
}  # fmt: skip
"""Encoders, projectors, and models that write all tokens at once."""
FAMILIES = list(gguf.MODEL_ARCH_NAMES.values())


@pytest.mark.parametrize("name", CASES)
def test_published_models_keep_what_llama_cpp_keeps(tmp_path: Path, name: str) -> None:
    """Numbers per token, blocks with a window, states, and blocks of multi-token prediction."""
    case = CASES[name]
    write_model(tmp_path / "model.gguf", case.family, case.keys, case.blocks)
    model = read_gguf(tmp_path / "model.gguf")
    assert model.cache_values == case.values
    assert model.state_bytes == case.state_bytes
    assert {block.window for block in model.blocks if block.window} == ({case.window} if case.window else set())
    tokens = (case.values - case.windowed) * CONTEXT + case.windowed * case.window
    assert model.cache_bytes(CONTEXT, 2.0) == 2 * tokens + case.state_bytes
    assert len(model.speculative) == case.further
    assert len(model.blocks) == len(case.blocks) - case.further
    assert sum(part.parameters for part in model.parts) + sum(block.parameters for block in model.speculative) == sum(
        math.prod(shape) for block in case.blocks for shape in block.values()
    ) + case.keys[".embedding_length"] * (2 * 32000 + 1)


def _names(family: str) -> list[str]:
    """Return the tensors of a block that the package lists for a family."""
    number = next(each for each, name in gguf.MODEL_ARCH_NAMES.items() if name == family)
    names = [gguf.TENSOR_NAMES[each] for each in gguf.MODEL_TENSORS[number]]
    return [name.removeprefix("blk.{bid}.") for name in names if name.startswith("blk.{bid}.")]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_architecture_is_read_or_refused_by_its_name(tmp_path: Path, family: str) -> None:
    """The tensors that the package lists say whether blocks have attention or a state; all keys are there."""
    stateful = [name for name in _names(family) if name.startswith(("ssm_", "time_mix", "shortconv"))]
    attends = any(name in ("attn_k", "attn_qkv", "attn_kv_a_mqa") for name in _names(family))
    state = dict.fromkeys(stateful, (64, 64)) | {"attn_norm": (64,)}
    plain = attention(64, 4, 2, 16) | feed_forward(64, 128)
    keys: dict[str, Any] = {
        ".embedding_length": 64, ".attention.head_count": 4, ".attention.head_count_kv": 2,
        ".feed_forward_length": 128, ".attention.sliding_window_pattern": [False] * 4,
    }  # fmt: skip
    blocks = [plain] * 4
    if stateful:
        keys |= {".ssm.inner_size": 64, ".ssm.state_size": 16, ".ssm.conv_kernel": 4, ".kda.head_dim": 16,
                 ".wkv.head_size": 16, ".shortconv.l_cache": 3, ".full_attention_interval": 2}  # fmt: skip
        is_hybrid = attends and family != "falcon-h1"
        keys[".attention.head_count_kv"] = [0, 2, 0, 2] if is_hybrid else 2 if attends else 0
        keys[".feed_forward_length"] = 0 if family.startswith("nemotron") else 128
        blocks = [state, plain] * 2 if is_hybrid else [state | plain if attends else state] * 4
    write_model(tmp_path / "model.gguf", family, keys, blocks)
    if family in NO_DECODERS:
        with pytest.raises(InvalidFileError, match=rf"{re.escape(family)} is|a projector") as raised:
            read_gguf(tmp_path / "model.gguf")
        assert "\n" not in str(raised.value)
        return
    model = read_gguf(tmp_path / "model.gguf")
    with_cache = 0 if not attends else 2 if stateful and family != "falcon-h1" else 4
    assert model.cache_values == with_cache * 2 * (16 + 16)
    assert (model.state_bytes > 0) == bool(stateful)
    assert not model.notes


@pytest.mark.parametrize("name", CASES)
def test_published_models_go_to_a_plan_and_a_line(tmp_path: Path, name: str) -> None:
    """On a CPU and two cards that hold the model together, llama.cpp's rule of layers gives the plan back."""
    case = CASES[name]
    write_model(tmp_path / "model.gguf", case.family, case.keys, case.blocks)
    model = read_gguf(tmp_path / "model.gguf")
    card = (0.4 * model.weight_bytes + model.cache_bytes(80)) + 2**29
    platform = pk.Platform.of(
        host=["cpu-8core-bf16"], memory_bytes={"rtx4090": card, "cpu-8core-bf16": 2 * model.weight_bytes + 2**33},
        links={"rtx4090": pk.Link(20e-6, 20e9)}, **{"cpu-8core-bf16": 1, "rtx4090": 2},
    )  # fmt: skip

    def make(serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        return decoder_task(
            model, serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform), **choices
        )

    rules = RUNTIMES["llama.cpp"]
    cases = plan_cases(make, Serving(64, 16, chunk=rules.chunk), platform, rules)
    plan = best_plan(cases, partial(solve, method=Chain()), rules)
    placement, problem = plan.result.placement, plan.task.problem
    assert placement is not None
    assert plan.result.status is pk.Status.OPTIMAL
    served = Served(further_blocks=model.further_in_gguf, tied=model.is_tied)
    told = launch_of("llama.cpp", problem.graph, problem.platform, placement, served)
    homes = [placement[block.parts[-1].path] for block in model.blocks]
    buffers = {"cpu-8core-bf16.0": "CPU", "rtx4090.0": "CUDA0", "rtx4090.1": "CUDA1"}
    found = devices_of_layers(told.arguments, len(case.blocks))
    assert found[: len(homes)] == [buffers[home] for home in homes]
    assert found[-1] == buffers[placement[list(model.parts)[-1].path]]
    assert len(set(homes)) > 1
    assert "--override-tensor" not in told.arguments
