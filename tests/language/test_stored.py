"""Bytes of weights from the headers of safetensors files beside a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors_files import write_headers

from placekit.language.config.from_config import read_config
from placekit.language.config.stored import stored_bytes
from placekit.model.errors import InvalidFileError

pytest.importorskip("transformers")

CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "vocab_size": 100, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip


def folder_of(path: Path) -> dict[str, int]:
    """Write a folder in two files, experts one by one and packed; return bytes by tensor."""
    (path / "config.json").write_text(json.dumps(CONFIG))
    tensors = {"model.embed_tokens.weight": 12800, "model.norm.weight": 128, "lm_head.weight": 12801}
    for block in range(2):
        tensors[f"model.layers.{block}.self_attn.q_proj.qweight"] = 5000 + block
        tensors[f"model.layers.{block}.self_attn.q_proj.scales"] = 300
        for expert in range(4):
            tensors[f"model.layers.{block}.mlp.experts.{expert}.up_proj.qweight"] = 1000 * (block + 1)
    names = list(tensors)
    files = {name: f"model-0000{1 + at % 2}-of-00002.safetensors" for at, name in enumerate(names)}
    for file in set(files.values()):
        write_headers(path / file, {name: tensors[name] for name in names if files[name] == file})
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return tensors


def test_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    """In all, of every block, of its experts, and of the head; --precision asks for something else."""
    tensors = folder_of(tmp_path)
    model = read_config(tmp_path)
    assert model.weight_bytes == pytest.approx(sum(tensors.values()))
    assert model.precision == "U8 as stored"
    for block, each in enumerate(model.blocks):
        held = [num_bytes for name, num_bytes in tensors.items() if f"layers.{block}." in name]
        assert each.weight_bytes == pytest.approx(sum(held))
        assert sum(part.weight_bytes for part in each.parts if part.experts > 1) == pytest.approx(4000 * (block + 1))
    assert next(part for part in model.back if part.is_last).weight_bytes == pytest.approx(12801)
    assert read_config(tmp_path, "int8").precision == "int8"


def test_an_index_alone_says_nothing(tmp_path: Path) -> None:
    """Weights are counted as the configuration has them."""
    folder_of(tmp_path)
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    assert stored_bytes(tmp_path) is None
    assert read_config(tmp_path).precision == "bfloat16"


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """One line with the file."""
    folder_of(tmp_path)
    file = tmp_path / "model-00001-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(InvalidFileError, match=r"model-00001-of-00002\.safetensors: the header .* is cut off"):
        read_config(tmp_path)
    file.unlink()
    with pytest.raises(InvalidFileError, match=r"there is no such file, and model\.safetensors\.index\.json names it"):
        read_config(tmp_path)
