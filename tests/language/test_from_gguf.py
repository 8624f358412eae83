"""GGUF headers: bytes of every tensor, kinds of blocks, and files that are cut off."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_headers import Shapes, attention, experts, feed_forward, state_space, write_header, write_model

from placekit.language.gguf.from_gguf import read_gguf
from placekit.language.read import read_description
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError

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
    with pytest.raises(InvalidFileError, match="no such file or folder"):
        read_gguf(tmp_path / "missing.gguf")


KEYS: dict[str, Any] = {
    ".embedding_length": 512, ".attention.head_count": 8, ".attention.head_count_kv": 2, ".feed_forward_length": 1024,
}  # fmt: skip
PLAIN = attention(512, 8, 2, 64) | feed_forward(512, 1024)
LATENT = {"attn_q": (512, 1536), "attn_kv_a_mqa": (512, 576), "attn_output": (1024, 512)}


def test_byte_order_does_not_matter(tmp_path: Path) -> None:
    """A big-endian file, with its vocabulary and lists of numbers, says what a little-endian one says."""
    lists = {"tokenizer.ggml.scores": [0.5] * 300, "tokenizer.ggml.token_type": [1] * 300}
    for name, is_big in (("little.gguf", False), ("big.gguf", True)):
        keys = KEYS | {".attention.head_count_kv": [2, 0], **lists}
        blocks = [PLAIN, feed_forward(512, 1024)]
        write_model(tmp_path / name, "deci", keys, blocks, is_big=is_big, tokens=300)
    little, big = (read_gguf(tmp_path / name) for name in ("little.gguf", "big.gguf"))
    assert big.replace(name="little") == little
    assert big.cache_values == 2 * 2 * 64


@pytest.mark.parametrize(
    ("number", "told"),
    [(156, "fork of llama.cpp"), (139, "fork"), (31, "Q4_0_4_4.*removed"), (4, "Q4_2.*removed"), (88, "upgrade")],
)
def test_unknown_types_of_tensors_are_named(tmp_path: Path, number: int, told: str) -> None:
    """The message has the tensor and the number of its type: the file is not damaged."""
    path = tmp_path / "types.gguf"
    write_model(path, "llama", KEYS, [PLAIN] * 2)
    data = bytearray(path.read_bytes())
    name = b"blk.1.ffn_up.weight"
    at = data.index(name) + len(name)
    at += 4 + 8 * struct.unpack_from("<I", data, at)[0]
    struct.pack_into("<I", data, at, number)
    path.write_bytes(data)
    with pytest.raises(InvalidFileError, match=rf"'blk\.1\.ffn_up\.weight' has type {number}, .*{told}") as raised:
        read_gguf(path)
    assert "damaged" not in str(raised.value)


@pytest.mark.parametrize(
    ("family", "keys", "tensors", "told"),
    [
        ("llama", {"general.type": "adapter", "adapter.type": "lora"}, {"blk.0.attn_q.weight.lora_a": (8, 4)}, "LoRA"),
        ("clip", {"general.type": "mmproj"}, {"v.blk.0.attn_q": (8, 8)}, "projector"),
        ("clip", {}, {"v.blk.0.attn_q": (8, 8)}, "projector"),
        ("llama", {"general.type": "imatrix"}, {"blk.0.attn_q.weight.in_sum2": (8, 1)}, "importance matrix"),
        ("llama", {".block_count": 2, **KEYS}, {}, "vocabulary only"),
        ("flux", {}, {"double_blocks.0.img_attn.qkv": (8, 8)}, "no language model: flux"),
        ("eagle3", {".block_count": 1, **KEYS}, {"token_embd": (512, 10)}, "eagle3 is a draft model"),
        ("llama", {"split.no": 1, "split.count": 3, **KEYS}, {"blk.0.attn_q": (8, 8)}, "part 2 of 3"),
    ],
)
def test_files_that_hold_no_model_are_called_what_they_are(
    tmp_path: Path, family: str, keys: Mapping[str, Any], tensors: Shapes, told: str
) -> None:
    """Adapters, projectors, importance matrices, vocabularies, drafts, parts of a split file."""
    write_header(tmp_path / "other.gguf", family, keys, tensors, tokens=20)
    with pytest.raises(InvalidFileError, match=rf"other\.gguf.*{told}"):
        read_gguf(tmp_path / "other.gguf")


def test_parts_of_a_split_file(tmp_path: Path) -> None:
    """Any part leads to all of them; a part that is missing, or that lacks tensors, is named."""
    ends = {"token_embd": (512, 100), "output_norm": (512,)}
    inside = [{f"blk.{number}.{name}": shape for name, shape in PLAIN.items()} for number in range(2)]
    chunks: list[dict[str, tuple[int, ...]]] = [{}, ends | inside[0], inside[1]]
    count = sum(map(len, chunks))
    for number, chunk in enumerate(chunks):
        split = {"split.no": number, "split.count": 3, "split.tensors.count": count}
        keys = split if number else {".block_count": 2, **KEYS, **split}
        write_header(tmp_path / f"m-{number + 1:05d}-of-00003.gguf", "llama", keys, chunk)
    model = read_gguf(tmp_path / "m-00001-of-00003.gguf")
    assert (model.name, len(model.blocks), model.cache_values) == ("m", 2, 2 * 2 * 2 * 64)
    assert read_gguf(tmp_path / "m-00003-of-00003.gguf").weight_bytes == model.weight_bytes
    write_header(
        tmp_path / "m-00003-of-00003.gguf", "llama", {"split.no": 2, "split.count": 3}, {"blk.1.attn_k": (8, 8)}
    )
    with pytest.raises(InvalidFileError, match=f"tensors; split.tensors.count is {count}"):
        read_gguf(tmp_path / "m-00001-of-00003.gguf")
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    with pytest.raises(InvalidFileError, match=r"m-00002-of-00003\.gguf: no such file"):
        read_gguf(tmp_path / "m-00001-of-00003.gguf")


SSM = state_space(512, 1024, 4, 1024)
RECURRENT = {".ssm.inner_size": 1024, ".ssm.state_size": 16, ".ssm.conv_kernel": 4}


@pytest.mark.parametrize(
    ("family", "more", "blocks", "told"),
    [
        ("llama", {}, [attention(512, 8, 4, 64) | feed_forward(512, 1024)], r"attn_k makes 256.*head_count_kv 2 x"),
        ("llama", {".attention.value_length": 32}, [PLAIN], r"attn_v makes 128 .*value_length 32"),
        ("llama", {".attention.head_count_kv": [2, 2]}, [PLAIN, feed_forward(512, 8)], "blk.1 has attention by head_c"),
        ("llama", {".attention.head_count_kv": [2, 0]}, [PLAIN] * 2, "blk.1 has no attention by head_count_kv.*attn_k"),
        ("llama", {".attention.head_count_kv": [2]}, [PLAIN] * 2, "head_count_kv has 1 numbers; there are 2 blocks"),
        ("llama", {".attention.head_count_kv": "two"}, [PLAIN], "head_count_kv is 'two'; it must be a whole number"),
        ("llama", {".embedding_length": 256}, [PLAIN], "token_embd.weight is 512 wide; embedding_length is 256"),
        ("llama", {".block_count": 1}, [PLAIN] * 2, "'blk.1.attn_norm.weight', but block_count is 1"),
        ("llama", {".nextn_predict_layers": 2}, [PLAIN] * 2, "nextn_predict_layers is 2; it must be less than"),
        ("llama", {".block_count": 10**6}, [PLAIN], "block_count is 1000000; it must be at most"),
        ("llama", {".expert_count": 8}, [PLAIN | experts(512, 64, 4)], "4 experts; expert_count is 8"),
        ("llama", {}, [PLAIN | experts(512, 64, 4)], "4 experts, and no expert_used_count"),
        ("llama", {}, [PLAIN | {"ffn_up.3": (512, 64)}], "'blk.0.ffn_up.3.weight' is a single expert"),
        ("jamba", RECURRENT | {".attention.head_count_kv": [0, 2]}, [PLAIN] * 2, "blk.0 is recurrent by head_count_kv"),
        ("jamba", RECURRENT | {".attention.head_count_kv": [2, 2]}, [PLAIN, SSM], "blk.1 has attention.*'ssm_in'"),
        ("jamba", {".attention.head_count_kv": [0, 2]}, [SSM, PLAIN], "jamba has no ssm.inner_size"),
        ("qwen3next", RECURRENT | {".full_attention_interval": 2}, [PLAIN] * 2, "recurrent by full_attention_interval"),
        ("gemma4", {".attention.sliding_window": 64}, [PLAIN], "sliding_window is 64, and sliding_window_pattern"),
        ("qwen99", RECURRENT, [PLAIN], "qwen99 is not known, nor what it keeps of a sequence by qwen99.ssm"),
        ("qwen99", {}, [PLAIN | {"memory_tape": (512, 512)}], "qwen99 is not known, nor what blk.0.memory_tape keeps"),
    ],
)  # fmt: skip
def test_keys_and_tensors_that_contradict_each_other(
    tmp_path: Path, family: str, more: Mapping[str, Any], blocks: list[Shapes], told: str
) -> None:
    """The error names both, or the key that is missing."""
    keys = KEYS | {".block_count": len(blocks)} | dict(more)
    hidden = KEYS[".embedding_length"]
    tensors = {"token_embd": (hidden, 100), "output_norm": (hidden,)}
    tensors |= {f"blk.{number}.{name}": shape for number, block in enumerate(blocks) for name, shape in block.items()}
    write_header(tmp_path / "odd.gguf", family, keys, tensors)
    with pytest.raises(PlacekitError, match=told) as raised:
        read_gguf(tmp_path / "odd.gguf")
    assert "\n" not in str(raised.value)


def test_an_architecture_that_is_new_is_read_by_its_keys(tmp_path: Path) -> None:
    """Heads, latent attention, windows and shared caches are keys of every family; the answer says so."""
    keys = KEYS | {".attention.sliding_window": 64, ".attention.sliding_window_pattern": [True, False, True],
                   ".attention.shared_kv_layers": 1}  # fmt: skip
    write_model(tmp_path / "new.gguf", "qwen99", keys, [PLAIN] * 3)
    model = read_gguf(tmp_path / "new.gguf")
    assert [(block.cache_values, block.window) for block in model.blocks] == [(256, 64), (256, None), (0, None)]
    assert "qwen99 is newer than the package gguf" in model.notes[0]
    keys = KEYS | {".attention.head_count_kv": 1, ".attention.key_length": 576, ".attention.value_length": 512,
                   ".attention.key_length_mla": 192, ".attention.value_length_mla": 128}  # fmt: skip
    write_model(tmp_path / "new.gguf", "qwen99", keys, [LATENT | feed_forward(512, 1024)])
    assert read_gguf(tmp_path / "new.gguf").cache_values == 576


def test_blocks_that_keep_nothing_and_blocks_without_tensors(tmp_path: Path) -> None:
    """A pruned model skips attention, or whole blocks: they have their number, since llama.cpp counts them."""
    keys = KEYS | {
        ".attention.head_count": [8, 0, 0, 8], ".attention.head_count_kv": [2, 0, 0, 2],
        ".feed_forward_length": [1024, 1024, 0, 1024],
    }  # fmt: skip
    write_model(tmp_path / "pruned.gguf", "deci", keys, [PLAIN, feed_forward(512, 1024), {}, PLAIN])
    model = read_gguf(tmp_path / "pruned.gguf")
    assert [block.cache_values for block in model.blocks] == [256, 0, 0, 256]
    assert [block.path for block in model.blocks] == [f"blk.{number}" for number in range(4)]
    assert model.blocks[2].kind == "skipped"


def test_towers_in_the_file_are_held(tmp_path: Path) -> None:
    """Tensors of an image model in the same file are one part, and no stack of blocks."""
    tensors = {f"v.blk.{number}.attn_q": (64, 64) for number in range(3)} | {"mm.0": (64, 512)}
    inside = {f"blk.0.{name}": shape for name, shape in PLAIN.items()}
    ends = {"token_embd": (512, 100), "output_norm": (512,)}
    write_header(tmp_path / "seeing.gguf", "llama", {".block_count": 1, **KEYS}, {**ends, **tensors, **inside})
    model = read_gguf(tmp_path / "seeing.gguf")
    assert [part.path for part in model.front if part.is_tower] == ["v", "mm"]
    assert sum(part.parameters for part in model.front if part.is_tower) == 3 * 64 * 64 + 64 * 512


@pytest.mark.parametrize("seed", range(8))
def test_broken_headers_end_in_one_line(tmp_path: Path, seed: int) -> None:
    """Bytes that are changed at random: a file is read, or refused with a line of its own."""
    draw = random.Random(seed)
    keys = KEYS | RECURRENT | {".attention.head_count_kv": [0, 2], ".attention.sliding_window_pattern": [True, False]}
    write_model(tmp_path / "whole.gguf", "jamba", keys, [SSM, PLAIN], is_big=seed % 2 == 1, tokens=10)
    whole = (tmp_path / "whole.gguf").read_bytes()
    lines = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 1, 3])):
            data[draw.randrange(len(data))] = draw.choice([0, 255, draw.randrange(256)])
        (tmp_path / "broken.gguf").write_bytes(data)
        try:
            read_gguf(tmp_path / "broken.gguf")
        except PlacekitError as error:
            lines.append(str(error))
    assert lines
    assert not any("\n" in line for line in lines)


def test_a_bias_does_not_hide_the_matrix(tmp_path: Path) -> None:
    """The order of tensors of one product does not matter: the matrix decides its size."""
    inside = {"blk.0.attn_k.bias": (128,), "blk.0.attn_v.bias": (128,)}
    inside |= {f"blk.0.{name}.weight": shape for name, shape in PLAIN.items()}
    ends = {"token_embd.weight": (512, 100), "output_norm.weight": (512,)}
    keys = {".block_count": 1, **KEYS, ".attention.head_count_kv": 4}
    write_header(tmp_path / "biased.gguf", "llama", keys, {**ends, **inside})
    with pytest.raises(InvalidFileError, match="attn_k makes 128 numbers, but head_count_kv 4 x key_length 64 are 256"):
        read_gguf(tmp_path / "biased.gguf")


@pytest.mark.parametrize(
    ("family", "told"),
    [("phi3", "which llama.cpp does"), ("exaone4", "which llama.cpp does"), ("qwen99", "and no pattern of blocks")],
)
def test_a_window_that_nothing_uses_is_a_note(tmp_path: Path, family: str, told: str) -> None:
    """Llama.cpp ignores it in some families; of an unknown one it is not known which blocks have it."""
    write_model(tmp_path / "wide.gguf", family, KEYS | {".attention.sliding_window": 2047}, [PLAIN] * 2)
    model = read_gguf(tmp_path / "wide.gguf")
    assert not any(block.window for block in model.blocks)
    assert any(f"a window of 2,047 tokens is there, {told}" in note for note in model.notes)


def test_a_file_has_a_precision_of_its_own(tmp_path: Path) -> None:
    """It is not read with another one, as a configuration without weights is."""
    path = tmp_path / "own.gguf"
    write_model(path, "llama", KEYS, [PLAIN] * 2)
    with pytest.raises(InvalidProblemError, match=r"--precision goes with numbers of a model; .*own\.gguf has its own"):
        read_description(str(path), precision="int4")
