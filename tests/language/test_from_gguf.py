"""GGUF headers: bytes of every tensor, kinds of blocks, and files that are cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.language.from_gguf import read_gguf
from placekit.model.errors import InvalidFileError

gguf = pytest.importorskip("gguf")

HIDDEN, FFN, VOCAB = 64, 96, 100


def write(path: Path, family: str = "llama", *, tied: bool = False, experts: int = 0, **numbers: Any) -> int:
    """Write a small model and return the bytes of its tensors."""
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(2)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(4)
    writer.add_token_list([f"token {each}" for each in range(VOCAB)])
    for key, value in numbers.items():
        writer.add_uint32(f"{family}.{key.replace('__', '.')}", value)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (VOCAB, HIDDEN), "output_norm": (HIDDEN,)}
    if not tied:
        shapes["output"] = (VOCAB, HIDDEN)
    for block in range(2):
        of_block: dict[str, tuple[int, ...]] = {
            "attn_norm": (HIDDEN,), "attn_q": (64, HIDDEN), "attn_k": (32, HIDDEN), "attn_v": (32, HIDDEN),
            "attn_output": (HIDDEN, 64), "ffn_norm": (HIDDEN,),
        }  # fmt: skip
        many, suffix = ((experts,), "_exps") if experts else ((), "")
        of_block |= {f"ffn_{each}{suffix}": (*many, FFN, HIDDEN) for each in ("gate", "up")}
        of_block[f"ffn_down{suffix}"] = (*many, HIDDEN, FFN)
        shapes |= {f"blk.{block}.{name}": shape for name, shape in of_block.items()}
    total = 0
    for name, shape in shapes.items():
        kind = np.float32 if len(shape) == 1 else np.float16
        data = np.zeros(shape, kind)
        total += data.nbytes
        writer.add_tensor(f"{name}.weight", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return total


def test_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    """Every tensor is counted, and keys and values follow from shapes."""
    total = write(tmp_path / "small.gguf")
    model = read_gguf(tmp_path / "small.gguf")
    assert model.weight_bytes == total
    assert (model.vocab, model.hidden, model.cache_values) == (VOCAB, HIDDEN, 2 * 64)
    assert model.kinds() == {"grouped-query attention + dense feed-forward": 2}
    assert "blk.1.ffn_down.weight" in {name for part in model.blocks[1].parts for name in part.tensors}


def test_experts_windows_and_tied_heads(tmp_path: Path) -> None:
    """Active experts come from keys; Gemma 2's first block of two has the window; a tied table counts once."""
    total = write(
        tmp_path / "mixture.gguf", "gemma2", tied=True, experts=8, expert_used_count=2, attention__sliding_window=16
    )
    model = read_gguf(tmp_path / "mixture.gguf")
    assert model.weight_bytes == total
    assert [block.window for block in model.blocks] == [16, None]
    assert model.parameters - model.active_parameters == 2 * 6 * 3 * HIDDEN * FFN
    assert model.shared[0][2] == ("token_embd", "output")


def test_header_alone_is_enough(tmp_path: Path) -> None:
    """A file without the data of its tensors has the same description."""
    total = write(tmp_path / "small.gguf")
    data = (tmp_path / "small.gguf").read_bytes()
    header = gguf.GGUFReader(tmp_path / "small.gguf").data_offset
    (tmp_path / "header.gguf").write_bytes(data[:header])
    assert read_gguf(tmp_path / "header.gguf").weight_bytes == total


def test_files_that_are_none(tmp_path: Path) -> None:
    """One line with the file and what is wrong."""
    write(tmp_path / "small.gguf")
    data = (tmp_path / "small.gguf").read_bytes()
    for cut in (3, 10, 100, 1000, len(data) - 5000):
        (tmp_path / "cut.gguf").write_bytes(data[:cut])
        with pytest.raises(InvalidFileError, match=r"cut\.gguf.*cut off|no GGUF file") as raised:
            read_gguf(tmp_path / "cut.gguf")
        assert "\n" not in str(raised.value)
    (tmp_path / "text.gguf").write_text("this is no model " * 10)
    with pytest.raises(InvalidFileError, match="it does not start with GGUF"):
        read_gguf(tmp_path / "text.gguf")
    write(tmp_path / "bert.gguf", "bert")
    with pytest.raises(InvalidFileError, match="bert is an encoder"):
        read_gguf(tmp_path / "bert.gguf")
    with pytest.raises(InvalidFileError, match="there is no such file"):
        read_gguf(tmp_path / "missing.gguf")
