"""Small GGUF files with random weights that llama.cpp loads and runs: dense, with experts, with a predicting block."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_PIECES = 256


@dataclass(frozen=True)
class Shape:
    """Numbers of a model."""

    blocks: int = 8
    hidden: int = 256
    ffn: int = 512
    vocab: int = 320
    heads: int = 4
    kv_heads: int = 2
    experts: int = 0
    experts_per_token: int = 0
    is_tied: bool = False
    predicting: int = 0  # blocks of multi-token prediction, as GLM-4.5 has them
    context: int = 32768
    quant: str = "Q4_0"

    @property
    def family(self) -> str:
        """Architecture of the file."""
        return "glm4moe" if self.predicting else "llama"


def write_model(path: Path, shape: Shape, *, is_hollow: bool = False) -> Path:
    """Write the file of a model, and return its path; a hollow one has no weights on the disk, to be measured only."""
    import gguf

    kind = gguf.GGMLQuantizationType[shape.quant]
    writer = gguf.GGUFWriter(path, shape.family)
    _write_keys(writer, shape)
    draw, sizes = np.random.default_rng(0), gguf.GGML_QUANT_SIZES[kind]

    def tensor(name: str, *dims: int, is_plain: bool = False) -> None:
        if is_hollow:
            is_packed = not (is_plain or len(dims) == 1)
            size = int(np.prod(dims)) * (sizes[1] if is_packed else 4) // (sizes[0] if is_packed else 1)
            held = [*dims[:-1], dims[-1] * sizes[1] // sizes[0]] if is_packed else dims
            dtype = np.dtype(np.uint8 if is_packed else np.float32)
            writer.add_tensor_info(name, held, dtype, size, raw_dtype=kind if is_packed else None)
            return
        # one row drawn and repeated: time of a run depends on sizes, and drawing a large file would take minutes
        row = draw.standard_normal((1, dims[-1]), dtype=np.float32) / np.float32(dims[-1] ** 0.5)
        if is_plain or len(dims) == 1:
            writer.add_tensor(name, np.ascontiguousarray(np.broadcast_to(row.reshape(-1), dims)))
            return
        packed = gguf.quants.quantize(row, kind)
        whole = np.ascontiguousarray(np.broadcast_to(packed.reshape(-1), (*dims[:-1], packed.shape[-1])))
        writer.add_tensor(name, whole, raw_dtype=kind)

    for name, dims in _outside(shape).items():
        tensor(name, *dims)
    for number in range(shape.blocks + shape.predicting):
        for name, dims in _block(shape, is_predicting=number >= shape.blocks).items():
            tensor(f"blk.{number}.{name}", *dims, is_plain="ffn_gate_inp" in name)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    if is_hollow:
        writer.write_ti_data_to_file()
        kept = sum(writer.ggml_pad(each.nbytes, writer.data_alignment) for each in writer.tensors[0].values())
        writer.close()
        os.truncate(path, path.stat().st_size + writer.data_alignment + kept)
        return path
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_keys(writer: Any, shape: Shape) -> None:
    writer.add_block_count(shape.blocks + shape.predicting)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_vocab_size(shape.vocab)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_per_token)
        writer.add_expert_feed_forward_length(shape.ffn)
    if shape.predicting:
        writer.add_expert_shared_count(0)
        writer.add_leading_dense_block_count(0)
        writer.add_nextn_predict_layers(shape.predicting)
    pieces = [f"<0x{byte:02X}>".encode() for byte in range(_PIECES)]
    others = [b"<unk>", b"<s>", b"</s>", *(f"word{at}".encode() for at in range(shape.vocab - _PIECES - 3))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*others[:3], *pieces, *others[3:]])
    writer.add_token_scores([0.0] * shape.vocab)
    writer.add_token_types([2, 3, 3, *[6] * _PIECES, *[1] * (shape.vocab - _PIECES - 3)])


def _outside(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors outside of the blocks, rows first."""
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (shape.vocab, shape.hidden)}
    found["output_norm.weight"] = (shape.hidden,)
    return found if shape.is_tied else found | {"output.weight": (shape.vocab, shape.hidden)}


def _block(shape: Shape, *, is_predicting: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors of a block, rows first."""
    hidden, ffn, kept = shape.hidden, shape.ffn, shape.hidden // shape.heads * shape.kv_heads
    found: dict[str, tuple[int, ...]] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (hidden, hidden),
        "attn_k.weight": (kept, hidden),
        "attn_v.weight": (kept, hidden),
        "attn_output.weight": (hidden, hidden),
        ("post_attention_norm.weight" if shape.predicting else "ffn_norm.weight"): (hidden,),
    }
    if shape.experts:
        each = (shape.experts,)
        found["ffn_gate_inp.weight"] = (shape.experts, hidden)
        found |= {"ffn_gate_exps.weight": (*each, ffn, hidden), "ffn_up_exps.weight": (*each, ffn, hidden)}
        found["ffn_down_exps.weight"] = (*each, hidden, ffn)
    else:
        found |= {"ffn_gate.weight": (ffn, hidden), "ffn_up.weight": (ffn, hidden), "ffn_down.weight": (hidden, ffn)}
    if shape.predicting:
        found["exp_probs_b.bias"] = (shape.experts,)
    if is_predicting:
        found |= {"nextn.eh_proj.weight": (hidden, 2 * hidden), "nextn.enorm.weight": (hidden,)}
        found["nextn.hnorm.weight"] = (hidden,)
    return found
