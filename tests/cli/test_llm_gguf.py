"""``placekit llm`` on GGUF files: from a file to a plan, and to the line that starts llama.cpp."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gguf_headers import attention, experts, feed_forward, write_header, write_model
from llama_layers import devices_of_layers

pytest.importorskip("gguf")

PC = """
[[device]]
name = "CPU"
kind = "cpu-8core-bf16"
host = true
memory = "64 GiB"

[[device]]
name = "GPU"
kind = "rtx4090"
"""


@pytest.fixture
def pc(tmp_path: Path) -> Path:
    """Return a platform file: a card and a CPU."""
    path = tmp_path / "pc.toml"
    path.write_text(PC)
    return path


HIDDEN = 4096
KEYS: dict[str, Any] = {
    ".embedding_length": HIDDEN, ".attention.head_count": 32, ".attention.head_count_kv": 8,
    ".feed_forward_length": 14336,
}  # fmt: skip
PLAIN = attention(HIDDEN, 32, 8, 128) | feed_forward(HIDDEN, 14336)
MIXTURE = attention(HIDDEN, 32, 8, 128) | experts(HIDDEN, 2048, 8)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"embeddings": (4096, 4096), "output_": (4096, 4096), "position_embd": (4096, 50)},
        {f"blk.1.{name}": (4096, 4096) for name in ("attn", "attn_add", "ffn_add", "ffn_add_", "state")},
    ],
)
def test_names_of_a_file_never_collide_with_ours(
    call: Callable[..., Any], pc: Path, tmp_path: Path, more: dict[str, tuple[int, ...]]
) -> None:
    """A file may call its tensors as it likes: there is a plan, and the line of llama.cpp has all blocks."""
    tensors = {"token_embd": (HIDDEN, 32000), "output_norm": (HIDDEN,), "output": (HIDDEN, 32000)} | more
    tensors |= {f"blk.{number}.{name}": shape for number in range(2) for name, shape in PLAIN.items()}
    write_header(tmp_path / "small.gguf", "llama", {".block_count": 2, **KEYS}, tensors)
    done = call("llm", "small.gguf", "--platform", pc, "--for", "llama.cpp", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "optimal"
    values = dict(pairwise(shlex.split(told["launch"][0])))
    assert values["-m"] == "small.gguf"
    assert values["--n-gpu-layers"] == "3"
    apart = call("llm", "small.gguf", "--platform", pc, "--apart", "--sequences", "2", "--json")
    assert apart.returncode == 0, apart.stderr


def assigned(path: Path) -> dict[str, str]:
    """Return the device of every op of a placement file."""
    values = json.loads(path.read_text())
    return {op: device or values["default_device"] for op, device in values["ops"].items()}


@pytest.mark.parametrize("tied", [False, True])
def test_ops_of_a_file_are_tensors_of_llama_cpp(
    call: Callable[..., Any], pc: Path, tmp_path: Path, *, tied: bool
) -> None:
    """Any op of a plan op by op can be told: by the tensor's own name, also with all blocks and all experts."""
    write_model(tmp_path / "moe.gguf", "qwen3moe", KEYS | {".expert_used_count": 2}, [MIXTURE] * 3, tied=tied)
    pins = {"*exps*": "CPU", "*attn*": "GPU", "*ffn_norm": "CPU", "*ffn_gate_inp": "GPU", "output": "GPU"}
    done = call(
        "llm", "moe.gguf", "--platform", pc, "--granularity", "op", "--contiguity", "none", "--problem", "p.json",
        *(word for pattern, device in pins.items() for word in ("--pin", f"{pattern}={device}")),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = call("export", "p.json", "moe.placement.json", "--to", "llama.cpp", "--json")
    assert done.returncode == 0, done.stderr
    words = json.loads((tmp_path / "p.llama.cpp.json").read_text())["arguments"]
    rules = dict(rule.rpartition("=")[::2] for rule in dict(pairwise(words))["--override-tensor"].split(","))
    homes = dict(enumerate(devices_of_layers(words, 3)))
    placed = assigned(tmp_path / "moe.placement.json")
    assert placed["blk.1.ffn_norm"] == "CPU"
    for op, device in placed.items():
        found = re.match(r"blk\.(\d+)\.(ffn|attn_[kqvon]\w*)", op)
        home = homes[int(found[1])] if found else homes[3] if op.startswith("output") else "CPU"
        if (found and "add" not in op) or op.startswith(("output", "token")):
            at = next((buffer for pattern, buffer in rules.items() if re.search(pattern, f"{op}.weight")), home)
            if not (tied and op == "token_embd"):
                assert at == ("CPU" if device == "CPU" else "CUDA0"), op


def test_a_head_that_is_the_embedding_follows_the_last_block(
    call: Callable[..., Any], pc: Path, tmp_path: Path
) -> None:
    """No rule can move it, since the embedding has the same name: the export says so."""
    write_model(tmp_path / "tied.gguf", "qwen3moe", KEYS | {".expert_used_count": 2}, [MIXTURE] * 3, tied=True)
    done = call(
        "llm", "tied.gguf", "--platform", pc, "--granularity", "op", "--contiguity", "none", "--problem", "p.json",
        "--pin", "output=CPU", "--pin", "*attn*=GPU",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = call("export", "p.json", "tied.placement.json", "--to", "llama.cpp")
    assert done.returncode == 2
    assert "a head that is the embedding where the last block is, not on CPU" in done.stderr


CONFIG = {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": 1024, "intermediate_size": 2048,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 32000,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 512,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16",
}  # fmt: skip
DEEPSEEK = CONFIG | {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 64, "q_lora_rank": 64,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "n_group": 1, "topk_group": 1,
}  # fmt: skip
QWEN = {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "qwen3_5_text", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 32000,
        "full_attention_interval": 4, "mtp_num_hidden_layers": 1, "linear_num_key_heads": 4,
        "linear_num_value_heads": 8, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    },
    "vision_config": {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 1024},
}  # fmt: skip
TWO_CARDS = """
[[device]]
name = "GPU"
kind = "rtx4090"
count = 2
memory = "{memory} MiB"
"""


@pytest.mark.parametrize(
    ("config", "further", "memory"),
    [(None, 1, 1900), (CONFIG, 1, 200), (DEEPSEEK, 0, 165), (QWEN, 1, 130)],
    ids=["a file", "a configuration", "left out", "of the text model"],
)
def test_lines_count_the_block_of_multi_token_prediction(
    call: Callable[..., Any], tmp_path: Path, config: dict[str, Any] | None, further: int, memory: int
) -> None:
    """Llama.cpp counts it where the file has it: the converter leaves it out of files of DeepSeek V3."""
    if config is None:
        keys = KEYS | {".expert_used_count": 2, ".nextn_predict_layers": 1}
        write_model(tmp_path / "model.gguf", "glm4moe", keys, [MIXTURE] * 5)
    else:
        pytest.importorskip("transformers")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    (tmp_path / "cards.toml").write_text(TWO_CARDS.format(memory=memory))
    name = "model.gguf" if config is None else "model"
    done = call("llm", name, "--platform", "cards.toml", "--for", "llama.cpp", "--chunk", "64", "--json")
    assert done.returncode == 0, done.stderr
    words = shlex.split(json.loads(done.stdout)["launch"][0])
    assert dict(pairwise(words))["--n-gpu-layers"] == str(4 + further + 1)
    placed = assigned(tmp_path / "model.placement.json")
    homes = [
        next(device for op, device in placed.items() if re.match(rf"(blk|model.*layers)\.{block}\.", op))
        for block in range(4)
    ]
    assert len(set(homes)) == 2
    found = devices_of_layers(words, 4 + further)
    assert found[:4] == [f"CUDA{home[-1]}" for home in homes]


@pytest.mark.parametrize("runtime", ["accelerate", "openvino"])
@pytest.mark.parametrize("limit", ["24GiB", "400MiB"])
def test_a_map_of_modules_is_not_made_of_names_of_a_gguf(
    call: Callable[..., Any], pc: Path, tmp_path: Path, runtime: str, limit: str
) -> None:
    """Modules have other names than tensors of llama.cpp, whatever the split is."""
    path = tmp_path / "plain.gguf"
    write_model(path, "llama", KEYS, [PLAIN] * 3)
    done = call("llm", path, "--platform", pc, "--for", runtime, "--memory", f"GPU={limit}")
    assert done.returncode == 2
    assert re.fullmatch(r"error: .* is a name of a GGUF.*config\.json.*\n", done.stderr)


STRETCHED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (None, 32768),
        (CONFIG | {"max_position_embeddings": 3000}, 3000),
        (CONFIG | {"max_position_embeddings": 1000, "rope_scaling": STRETCHED}, 4000),
        (CONFIG | {"max_position_embeddings": 5000, "rope_scaling": STRETCHED}, 5000),
        (CONFIG | {"max_position_embeddings": 300}, 640),  # what is asked for is more
    ],
)
def test_no_context_is_longer_than_what_a_model_was_trained_for(
    call: Callable[..., Any], pc: Path, tmp_path: Path, config: dict[str, Any] | None, most: int
) -> None:
    """Memory has room for more, and the file says how far its positions go."""
    if config is None:
        write_model(tmp_path / "m.gguf", "llama", KEYS, [PLAIN] * 2)
    else:
        (tmp_path / "config.json").write_text(json.dumps(config))
    model = "m.gguf" if config is None else "."
    done = call("llm", model, "--platform", pc, "--goal", "context", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["contexts"][-1]["context"] == most
    told = call("llm", model, "--platform", pc, "--goal", "context").stdout
    assert ("the model was trained for no longer context" in told) == (most != 640)
