"""Description of a language model from the header of a GGUF file: exact bytes of every tensor, no weights, no torch.

References
----------
GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; names of tensors and keys as in the
package ``gguf``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from placekit.io.needs import require
from placekit.language.description import PREDICTING, Block, ModelDescription, Part
from placekit.language.graph import free_name
from placekit.language.modules import CONV_BYTES, STATE_BYTES
from placekit.model.errors import InvalidFileError, UnsupportedProblemError

_ENCODERS = re.compile(r"bert|t5|clip|wavtokenizer|gemma-embedding", re.IGNORECASE)
_FULL_EVERY: Mapping[str, int] = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "exaone4": 4, "olmo2": 4, "llama4": 4,
    "smallthinker": 4,
}  # fmt: skip
"""Blocks of which all but the last have a window, by family: llama.cpp's own table, for files that do not say it."""
_KEEPS_NOTHING = re.compile(r"ffn|norm|exp_probs|layer_output|inp_gate|proj|post|scale|altup|laurel|nextn")


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a file: name, dimensions with the innermost first, type and bytes."""

    name: str
    shape: tuple[int, ...]
    kind: str
    num_bytes: int

    @property
    def size(self) -> int:
        """Numbers of the tensor."""
        return math.prod(self.shape)


@dataclass
class _File:
    """Keys and tensors of a file."""

    path: Path
    keys: dict[str, Any]
    tensors: list[_Tensor]

    @property
    def family(self) -> str:
        """Architecture of the model; empty if the file has none."""
        return str(self.keys.get("general.architecture", ""))

    def value(self, name: str, layer: int = 0) -> int:
        """Return a number of the family, that of one block where a list has one for each; 0 without it."""
        found = self.keys.get(f"{self.family}.{name}")
        if isinstance(found, list):
            found = found[layer] if layer < len(found) else 0
        return int(found) if isinstance(found, int | float) else 0


@cache
def _header_class() -> Any:
    """Return a reader of headers that reads no data of tensors and skips lists of strings."""
    gguf = require("gguf", "a .gguf file", called="gguf", install='"placekit[llm]"')

    class Header(gguf.GGUFReader):  # type: ignore[misc, name-defined]  # a package without types
        """Header of a GGUF file."""

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> tuple[int, list[Any], list[int], list[Any]]:
            text = gguf.GGUFValueType.STRING
            if raw_type != gguf.GGUFValueType.ARRAY or self._get(orig_offs, "uint32")[0] != text:
                return super()._get_field_parts(orig_offs, raw_type)  # type: ignore[no-any-return]
            view, at = memoryview(self.data), orig_offs + 12
            for _ in range(int(self._get(orig_offs + 4, "uint64")[0])):
                length = view[at : at + 8]
                if len(length) < 8:
                    raise IndexError("the list of strings is cut")
                at += 8 + int.from_bytes(length, "little")
            return at - orig_offs, [], [], [gguf.GGUFValueType.ARRAY, text]

        def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
            self.found: list[_Tensor] = []
            self.end = start_offs
            for each in fields:
                _, name, _, dims, raw_kind, offset = each.parts
                kind = gguf.GGMLQuantizationType(raw_kind[0])
                shape = tuple(int(side) for side in dims)
                block, stored = gguf.GGML_QUANT_SIZES[kind]
                num_bytes = math.prod(shape) // block * stored
                tensor = _Tensor(bytes(name).decode(), shape, kind.name, num_bytes)
                self.found.append(tensor)
                self.end = max(self.end, start_offs + int(offset[0]) + tensor.num_bytes)

    return Header


def _read_header(path: Path) -> _File:
    if not path.is_file():
        raise InvalidFileError(f"{path}: there is no such file")
    kind = _header_class()
    try:
        header = kind(path)
        keys = {name: each.contents() for name, each in header.fields.items() if each.data}
    except Exception as error:  # the package checks no lengths
        if isinstance(error, ValueError) and "magic" in str(error):
            raise InvalidFileError(f"{path} is no GGUF file: it does not start with GGUF") from None
        told = f": {error}" if "version" in str(error) else ""
        raise InvalidFileError(f"{path}: the header is cut off or damaged{told}") from None
    present = path.stat().st_size
    if header.data_offset < present < header.end:
        raise InvalidFileError(f"{path} is cut off: {present} of at least {header.end} bytes are there")
    return _File(path, keys, header.found)


def _read_files(path: Path) -> _File:
    """Return keys and tensors of a file, and of those that follow it in a split."""
    first = _read_header(path)
    found = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if found:
        stem, number, count = found[1], int(found[2]), int(found[3])
        for other in range(1, count + 1):
            if other != number:
                more = _read_header(path.with_name(f"{stem}-{other:05d}-of-{count:05d}.gguf"))
                first.tensors += more.tensors
                first.keys = more.keys | first.keys
    return first


def read_gguf(path: Path) -> ModelDescription:
    """Return the description of the model of a GGUF file; of a split one, give the first file.

    Raises `InvalidFileError`: a file that is cut off, or that holds no language model; `UnsupportedProblemError`: a
    block that keeps something which is not known; `SolverUnavailableError`: the package ``gguf`` is not installed.
    """
    file = _read_files(path)
    if _ENCODERS.search(file.family):
        raise InvalidFileError(f"{path}: {file.family} is an encoder; it generates no tokens")
    count, hidden = file.value("block_count"), file.value("embedding_length")
    names = {tensor.name for tensor in file.tensors}
    if not count or not hidden or "token_embd.weight" not in names:
        raise InvalidFileError(
            f"{path}: no language model: {file.family or 'the file'} has no block_count, embedding_length or token_embd"
        )
    by_block: dict[int, dict[str, list[_Tensor]]] = {}
    outside: dict[str, list[_Tensor]] = {}
    for tensor in file.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(.+)", tensor.name)
        rest = found[2] if found else tensor.name
        group = by_block.setdefault(int(found[1]), {}) if found else outside
        group.setdefault(re.sub(r"\.(weight|bias|scale)$", "", rest), []).append(tensor)
    front, back, shared = _outside(outside, hidden)
    further = file.value("nextn_predict_layers")
    state = front[-1].path
    blocks: list[Block] = []
    for number in sorted(by_block):
        block = _block(file, number, by_block[number], state, hidden)
        state = block.parts[-1].path if number < count - further else state
        blocks.append(block)
    back = [replace(part, inputs=(state if at == 0 else back[at - 1].path,)) for at, part in enumerate(back)]
    first_further = len(blocks) - further
    notes = []
    window = file.value("attention.sliding_window")
    if window and not any(block.window for block in blocks):
        notes.append(f"a window of {window} tokens is there, but not which blocks have it: counted as full attention")
    return ModelDescription(
        re.sub(r"-\d{5}-of-\d{5}$", "", path.stem), file.family, hidden,
        next(tensor.shape[-1] for tensor in file.tensors if tensor.name == "token_embd.weight"), _precision(file),
        tuple(front), tuple(blocks[:first_further]), tuple(back),
        tuple(replace(block, kind=f"{PREDICTING}: {block.kind}") for block in blocks[first_further:]),
        shared, tuple(notes),
    )  # fmt: skip


def _precision(file: _File) -> str:
    held = Counter[str]()
    for tensor in file.tensors:
        held[tensor.kind] += tensor.num_bytes
    bits = 8 * sum(held.values()) / max(sum(tensor.size for tensor in file.tensors), 1)
    return f"{held.most_common(1)[0][0]} ({bits:.2f} bits per weight)"


def _part(path: str, tensors: list[_Tensor], inputs: tuple[str, ...], file: _File | None = None) -> Part:
    """Return the part with these tensors."""
    largest = max(tensors, key=lambda each: each.size)
    experts, active = 1, 1
    if "_exps" in path and len(largest.shape) > 1:
        experts = largest.shape[-1]
        active = min((file.value("expert_used_count") if file else 0) or experts, experts)
    count = sum(tensor.size for tensor in tensors)
    matrices = sum(tensor.size for tensor in tensors if len(tensor.shape) > 1)
    out = largest.shape[1] if len(largest.shape) > 1 else largest.shape[0]
    width = float(out * (active if experts > 1 and "down" not in path else 1))
    flops = 2.0 * matrices * active / experts if matrices else 4.0 * width
    return Part(
        path, "MatMul" if matrices else "RMSNorm", inputs, width, count,
        float(sum(tensor.num_bytes for tensor in tensors)), experts, active, flops,
        tensors=tuple(tensor.name for tensor in tensors),
    )  # fmt: skip


def _outside(
    outside: Mapping[str, list[_Tensor]], hidden: int
) -> tuple[list[Part], list[Part], tuple[tuple[float, int, tuple[str, ...]], ...]]:
    """Return the parts before and behind the blocks, and tied weights."""
    front: list[Part] = []
    back: list[Part] = []
    for name, tensors in outside.items():
        part = _part(name, tensors, ())
        if name in ("token_embd", "position_embd", "token_types", "per_layer_token_embd"):
            front.append(replace(part, op_type="Gather", width=float(tensors[0].shape[0]), is_lookup=True, flops=0.0))
        elif name.startswith("output"):
            back.append(replace(part, is_last=name == "output"))
        else:
            front.append(part)
    table = next(part for part in front if part.path == "token_embd")
    front.sort(key=lambda part: not part.is_lookup)
    lookups = tuple(part.path for part in front if part.is_lookup)
    front = [part if part.is_lookup else replace(part, inputs=(table.path,)) for part in front]
    if len(front) > 1:
        inputs = tuple(dict.fromkeys([*lookups, *(part.path for part in front if not part.is_lookup)]))
        path = free_name("embeddings", outside)
        front.append(Part(path, "Add", inputs, float(hidden), flops=float(hidden)))
    back.sort(key=lambda part: part.is_last)
    if not any(part.is_last for part in back):
        vocab = table.parameters // hidden
        path = free_name("output", outside)
        head = replace(
            table, path=path, op_type="MatMul", width=float(vocab), flops=2.0 * table.parameters, is_lookup=False,
            is_last=True,
        )  # fmt: skip
        return front, [*back, head], ((table.weight_bytes, table.parameters, (table.path, path)),)
    return front, back, ()


def _kept(file: _File, number: int, tensors: Mapping[str, list[_Tensor]]) -> tuple[str, Part | None]:
    """Return words for the mixer of a block and the part that keeps something; None for a block without one."""
    path = f"blk.{number}"
    own = f"{path}.{free_name('attn', tensors)}"

    def out(name: str) -> int:
        return tensors[name][0].shape[1] if name in tensors else 0

    width = tensors["attn_output"][0].shape[0] if "attn_output" in tensors else 0
    heads = file.value("attention.head_count", number)
    kv_heads = file.value("attention.head_count_kv", number) or heads
    values, kind, pair = 0, "attention", (4.0 * width, 4.0 * width)
    convolution = tensors.get("ssm_conv1d") or tensors.get("shortconv.conv")
    state = 0.0
    if convolution:
        taps, channels = convolution[0].shape[:2]
        state = float(channels * (taps - 1) * CONV_BYTES)
        state += (
            file.value("ssm.inner_size") * file.value("ssm.state_size") * STATE_BYTES if "ssm_conv1d" in tensors else 0
        )
        kind = "state space" if "ssm_conv1d" in tensors else "short convolution"
    if "attn_kv_a_mqa" in tensors:
        values, kind, kv_heads = out("attn_kv_a_mqa"), "latent attention", 1
        rank, turned = file.value("attention.kv_lora_rank"), file.value("rope.dimension_count")
        mixed = file.value("attention.value_length_mla") or file.value("attention.value_length")
        keys = file.value("attention.key_length_mla") or file.value("attention.key_length")
        pair = (2.0 * heads * (keys + mixed), 2.0 * heads * (2 * rank + turned))
        values += out("indexer.attn_k")
    elif "attn_k" in tensors:
        values = out("attn_k") + (out("attn_v") or out("attn_k"))
    elif "attn_qkv" in tensors and not convolution:
        values = out("attn_qkv") - width
    if values and kind == "attention" and values < 2 * width:
        kind = "grouped-query attention"
    elif values and convolution:
        kind = f"{kind} + attention"
    unknown = [name for name in tensors if not _KEEPS_NOTHING.search(name)]
    if not values and not state:
        if "attn_q" in tensors:  # Gemma 3n's last blocks use the cache of earlier ones
            return "attention to the cache of an earlier block", Part(own, "ScaledDotProductAttention", pair_flops=pair)
        if unknown:
            raise UnsupportedProblemError(
                f"{file.path}: {path}.{unknown[0]}: it is not known what it keeps of a sequence"
            )
        return "", None
    window = _window(file, number) if values else None
    return kind + (f", window {window}" if window else ""), Part(
        own if values else f"{path}.{free_name('state', tensors)}",
        "ScaledDotProductAttention" if values else "StateUpdate",
        width=float(width or file.value("ssm.inner_size") or file.value("embedding_length")), flops=1.5 * state,
        pair_flops=pair if values else (0.0, 0.0), cache_values=values, heads=heads if values else 0,
        kv_heads=kv_heads if values else 0, window=window, state_bytes=state,
    )  # fmt: skip


def _window(file: _File, number: int) -> int | None:
    """Return the window of a block; None for all tokens."""
    window = file.value("attention.sliding_window") or file.value("attention.chunk_size")
    if not window:
        return None
    pattern = file.keys.get(f"{file.family}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return window if number < len(pattern) and pattern[number] else None
    every = int(pattern) if isinstance(pattern, int) else _FULL_EVERY.get(file.family, 0)
    return window if every and number % every < every - 1 else None


def _block(file: _File, number: int, tensors: Mapping[str, list[_Tensor]], state: str, hidden: int) -> Block:
    path = f"blk.{number}"
    kind, kept = _kept(file, number, tensors)
    parts: list[Part] = []

    def add(name: str, *inputs: str) -> str:
        parts.append(_part(f"{path}.{name}", tensors[name], inputs, file))
        return parts[-1].path

    def plus(name: str, *inputs: str) -> str:
        parts.append(Part(f"{path}.{free_name(name, tensors)}", "Add", inputs, float(hidden), flops=float(hidden)))
        return parts[-1].path

    fed = [name for name in tensors if name.startswith(("ffn", "exp_probs")) and "norm" not in name]
    before = [name for name in tensors if name in ("attn_norm", "attn_norm_2")]
    norms = [name for name in tensors if re.search(r"ffn.*norm|post.*norm|layer_output_norm", name)]
    outs = [name for name in ("attn_output", "ssm_out", "shortconv.out_proj") if name in tensors]
    inner = [name for name in tensors if name not in {*fed, *before, *norms, *outs}]
    source = state
    for name in before:
        source = add(name, source)
    if kept is not None:
        waiting = tuple(add(name, source) for name in inner)
        parts.append(replace(kept, inputs=waiting or (source,)))
        ends = [add(name, kept.path) for name in outs] or [kept.path]
        state = source = plus("attn_add", state, *ends)
    else:
        for name in inner:
            source = add(name, source)
    for name in norms:
        source = add(name, source)
    if fed:
        ups = [add(name, source) for name in fed if "down" not in name]
        ends = [add(name, *(ups or [source])) for name in fed if "down" in name] or ups
        plus("ffn_add", state, *ends)
    experts = max((part for part in parts), key=lambda part: part.experts)
    words = (
        f"{experts.experts} experts, {experts.experts_per_token:g} active"
        if experts.experts > 1
        else "dense feed-forward"
    )
    words += " and shared ones" if experts.experts > 1 and any("shexp" in name for name in fed) else ""
    return Block(path, " + ".join(each for each in (kind, words if fed else "") if each), tuple(parts))
