"""Cache and states of the blocks of a GGUF file, by the rules of llama.cpp.

The keys of the file decide, as they do in llama.cpp, never the names of tensors. Where a block's tensors cannot belong
to what the keys say, the error names both.

- *Attention* keeps ``head_count_kv x (key_length + value_length)`` numbers per token, each key with one number or one
  per block. Latent attention (``key_length_mla``) keeps keys only, and an indexer its own keys.
- *Windows* are on the blocks that ``sliding_window_pattern`` says, or else on those of a fixed pattern of the family.
- *Shared caches*: the last ``shared_kv_layers`` blocks use the caches of earlier ones, and keep none.
- *Recurrent blocks* keep a state of 32-bit numbers: state-space models, linear attention, short convolutions, RWKV.

References
----------
llama.cpp, ``src/llama-hparams.cpp`` (`n_embd_k_gqa`, `n_embd_r`, `n_embd_s`, `has_kv`, `set_swa_pattern`),
``src/llama-model.cpp`` (`create_memory`) and ``src/models/*.cpp`` (`load_arch_hparams`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from placekit.io.needs import require
from placekit.language.gguf.header import GgufFile
from placekit.model.errors import InvalidFileError, UnsupportedProblemError

STATE_BYTES = 4
"""Bytes of a number of a recurrent state, that of a convolution too."""

_ENCODER = "is an encoder; it generates no tokens"
_DIFFUSION = "is a diffusion model; it keeps no cache, and generates no token after another"
_DRAFT = "is a draft model; it runs beside the model that it drafts for"
_NO_DECODERS: Mapping[str, str] = {
    **dict.fromkeys(("bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3",
                     "eurobert", "gemma-embedding", "llama-embed", "t5encoder"), _ENCODER),
    "t5": "is an encoder with a decoder, not a language model of one stack",
    "clip": "is a projector of another modality, not a language model",
    "wavtokenizer-dec": "is a decoder of audio, not a language model",
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    **dict.fromkeys(("eagle3", "dflash", "gemma4-assistant"), _DRAFT),
}  # fmt: skip
"""Words for architectures that are no decoders."""

_PERIODS: Mapping[str, int] = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "exaone4": 4, "exaone-moe": 4, "olmo2": 4,
    "afmoe": 4, "llama4": 4, "smallthinker": 4, "plamo3": 8,
}  # fmt: skip
"""Blocks of which one sees all tokens, by architecture, for files whose pattern is no list of blocks."""
_FULL_FIRST = frozenset({"smallthinker"})
"""Architectures whose first block of a period sees all tokens, not the last one."""
_FIXED_WINDOWS: Mapping[str, int] = {
    "gemma2": 4096,
    "llama4": 8192,
    "smallthinker": 4096,
    "exaone-moe": 128,
    "exaone4": 4096,
}
"""Windows of files without one; llama.cpp has 8,192 for Llama 4, and 4,096 for SmallThinker, in any case."""
_BY_LIST = frozenset({"gemma4", "step35", "mimo2"})
"""Architectures that give the blocks with a window as a list."""

_RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""Architectures in which every block is recurrent."""
_BOTH = frozenset({"falcon-h1"})
"""Architectures in which every block has attention and a recurrent state."""
_BY_HEADS = frozenset(
    {"jamba", "granitehybrid", "plamo2", "lfm2", "lfm2moe", "kimi-linear", "nemotron_h", "nemotron_h_moe"}
)
"""Architectures whose blocks without key-value heads are recurrent; of Nemotron-H those without feed-forward, too."""
_BY_INTERVAL = frozenset({"qwen3next", "qwen35", "qwen35moe"})
"""Architectures in which one block of every ``full_attention_interval`` has attention."""
_INDEXED = frozenset({"glm-dsa", "deepseek32"})
"""Architectures that keep the keys of an indexer, too."""

_RECURRENT_TENSOR = re.compile(r"ssm_|time_mix|shortconv|channel_mix")
_KNOWN_TENSOR = re.compile(
    r"attn_(?!compress)|ffn|exp_probs|layer_output|inp_gate|proj|post|scale|altup|laurel|nextn|rope|.*norm"
)
_KEEPS_MORE = re.compile(r"\.(ssm|wkv|kda|shortconv|linear|recurrent)|indexer|compress")
"""Keys of architectures that keep more of a sequence than keys and values."""


@dataclass(frozen=True)
class Kept:
    """Cache and state of a block, and the cost of its mixer."""

    kind: str = ""  # words for the mixer; empty without one
    cache_values: int = 0  # numbers per token
    window: int | None = None
    state_bytes: float = 0.0
    heads: int = 0
    kv_heads: int = 0
    width: int = 0  # numbers that the mixer writes of a token
    pair_flops: tuple[float, float] = (0.0, 0.0)


def refuse_other_models(file: GgufFile) -> None:
    """Refuse a model that is no decoder.

    Raises `InvalidFileError` with what it is.
    """
    if file.family in _NO_DECODERS:
        raise InvalidFileError(f"{file.path}: {file.family} {_NO_DECODERS[file.family]}")


class CacheRules:
    """Rules of llama.cpp for one file.

    Raises `InvalidFileError`: keys that are missing or contradict each other; `UnsupportedProblemError`: an unknown
    architecture that keeps more than keys and values.
    """

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.count = file.num_blocks
        self.further = file.value("nextn_predict_layers")
        if self.further and self.further >= self.count:
            raise InvalidFileError(
                f"{file.path}: nextn_predict_layers is {self.further}; it must be less than block_count, {self.count}"
            )
        if f"{file.family}.attention.head_count" not in file.keys and file.family not in _RECURRENT:
            raise InvalidFileError(f"{file.path}: {file.family}.attention.head_count, which says the cache, is missing")
        more = next((key for key in file.keys if key.startswith(f"{file.family}.") and _KEEPS_MORE.search(key)), None)
        if more is not None and not self.is_known:
            raise UnsupportedProblemError(
                f"{file.path}: architecture {file.family} is not known, nor what it keeps of a sequence by {more}"
            )
        self.heads = file.per_block("attention.head_count", self.count)
        self.says_kv_heads = f"{file.family}.attention.head_count_kv" in file.keys
        self.kv_heads = file.per_block("attention.head_count_kv", self.count) if self.says_kv_heads else self.heads
        self.ffn = file.per_block("feed_forward_length", self.count)
        # blocks with a cache of their own: the first ones
        default = max(self.main - 20, 0) if file.family == "gemma3n" else 0
        self.cached = self.count - file.value("attention.shared_kv_layers", default)

    @property
    def main(self) -> int:
        """Number of blocks without those of multi-token prediction."""
        return self.count - self.further

    @cached_property
    def is_known(self) -> bool:
        """True if the package ``gguf`` lists the architecture."""
        gguf = require("gguf", "a .gguf file")
        return self.file.family in gguf.MODEL_ARCH_NAMES.values()

    def notes(self) -> list[str]:
        """Return sentences about what is counted in a special way."""
        found = []
        if not self.is_known:
            found.append(f"architecture {self.file.family} is newer than the package gguf: counted by its keys alone")
        window = self.file.value("attention.sliding_window")
        if window and not any(self.window(number) for number in range(self.main)):
            why = "which llama.cpp does not use" if self.is_known else "and no pattern of blocks that have it"
            found.append(f"a window of {window:,} tokens is there, {why}: counted as full attention")
        return found

    def _head_size(self, what: str, *, swa: bool) -> int:
        """Return the channels of a key or of a value."""
        value = self.file.value
        first = next((heads for heads in self.heads if heads), 0)
        default = value("embedding_length") // first if first else 0
        size = value(f"attention.{what}_length", default)
        return value(f"attention.{what}_length_swa", size) if swa else size

    def window(self, number: int) -> int | None:
        """Return the window of a block; None for all tokens."""
        file, family = self.file, self.file.family
        pattern = file.keys.get(f"{family}.attention.sliding_window_pattern")
        given = file.keys.get(f"{family}.attention.sliding_window")
        window = file.value("attention.sliding_window", _FIXED_WINDOWS.get(family, 0))
        window = _FIXED_WINDOWS[family] if window and family in ("llama4", "smallthinker") else window
        if (family == "smallthinker" and given is None) or (family == "exaone4" and self.main != 64):
            return None
        if not window or number >= self.main:
            return None
        if isinstance(pattern, list) and (family in _BY_LIST | _PERIODS.keys() or not self.is_known):
            return window if file.per_block("attention.sliding_window_pattern", self.main)[number] else None
        if family in _BY_LIST:
            raise InvalidFileError(
                f"{file.path}: {family}.attention.sliding_window is {window}, and sliding_window_pattern, which says "
                "the blocks that have it, is not there"
            )
        period = _PERIODS.get(family, 1)
        if pattern is not None and (family in _PERIODS or not self.is_known):
            period = file.value("attention.sliding_window_pattern")
        if not period:
            return window
        first = family in _FULL_FIRST
        return window if (number % period != 0 if first else number % period < period - 1) else None

    def _is_recurrent(self, number: int) -> bool:
        family = self.file.family
        if family in _RECURRENT or family in _BOTH:
            return True
        if number >= self.main:
            return False
        if family in _BY_INTERVAL:
            if f"{family}.attention.recurrent_layers" in self.file.keys:
                return bool(self.file.per_block("attention.recurrent_layers", self.main)[number])
            interval = self.file.value("full_attention_interval", 4)
            return bool(interval) and (number + 1) % interval != 0
        if family.startswith("nemotron_h"):
            return not self.kv_heads[number] and not self.ffn[number]
        return family in _BY_HEADS and not self.kv_heads[number]

    def _has_attention(self, number: int) -> bool:
        family = self.file.family
        if family in _RECURRENT:
            return False
        if family.startswith("nemotron_h") and self.ffn[number]:
            return False
        return (family in _BOTH or not self._is_recurrent(number)) and self.kv_heads[number] > 0

    def kept(self, number: int, tensors: Mapping[str, tuple[int, ...]]) -> Kept:
        """Return what a block keeps; `tensors` are the shapes of its own, with the innermost side first.

        Raises `InvalidFileError`: tensors that contradict the keys; `UnsupportedProblemError`: a block of an unknown
        architecture that may keep something which is not known.
        """
        self._check_known(number, tensors)
        has_attention, is_recurrent = self._has_attention(number), self._is_recurrent(number)
        contrary = _RECURRENT_TENSOR if has_attention else re.compile(r"attn_k$")
        found = next((name for name in tensors if contrary.match(name)), None)
        if found is not None and not is_recurrent and number < self.main:
            raise InvalidFileError(
                f"{self.file.path}: blk.{number} has {'' if has_attention else 'no '}attention by {self._decided_by()} "
                f"({self.kv_heads[number]} key-value heads), and a tensor that contradicts it: {found!r}"
            )
        attention = self._attention(number, tensors) if has_attention else Kept()
        if not is_recurrent:
            return attention
        state = self._state()
        if not any(_RECURRENT_TENSOR.match(name) for name in tensors):
            raise InvalidFileError(
                f"{self.file.path}: blk.{number} is recurrent by {self._decided_by()}, and has no tensor of a "
                f"recurrent block: it has {', '.join(list(tensors)[:4]) or 'none'}"
            )
        if not attention.kind:
            return state
        return Kept(
            f"{state.kind} + {attention.kind}", attention.cache_values, attention.window, state.state_bytes,
            attention.heads, attention.kv_heads, attention.width + state.width, attention.pair_flops,
        )  # fmt: skip

    def _decided_by(self) -> str:
        """Return the key that says which blocks are recurrent."""
        family = self.file.family
        if family in _BY_INTERVAL:
            return "full_attention_interval"
        return f"the architecture {family}" if family in _RECURRENT | _BOTH else "head_count_kv"

    def _check_known(self, number: int, tensors: Collection[str]) -> None:
        """Refuse an unknown architecture that may keep something else than keys and values."""
        if self.is_known:
            return
        strange = next((name for name in tensors if not _KNOWN_TENSOR.match(name)), None)
        if strange is not None:
            raise UnsupportedProblemError(
                f"{self.file.path}: architecture {self.file.family} is not known, nor what blk.{number}.{strange} "
                "keeps of a sequence"
            )

    def _attention(self, number: int, tensors: Mapping[str, tuple[int, ...]]) -> Kept:
        value = self.file.value
        window = self.window(number)
        swa = window is not None
        heads, kv_heads = self.heads[number] or self.kv_heads[number], self.kv_heads[number]
        keys, values = self._head_size("key", swa=swa), self._head_size("value", swa=swa)
        if not self.says_kv_heads and keys and len(shape := tensors.get("attn_k", ())) > 1:  # then no key contradicts
            kv_heads = shape[1] // keys
        full_keys, full_values = value("attention.key_length_mla"), value("attention.value_length_mla")
        is_latent = bool(full_keys and full_values)
        if is_latent:
            rank, width = value("attention.kv_lora_rank", values), heads * full_values
            pair = (2.0 * heads * (full_keys + full_values), 2.0 * heads * (keys + rank))
            kept, kind = kv_heads * keys, "latent attention"
        else:
            width = heads * values
            pair = (2.0 * heads * (keys + values), 2.0 * heads * (keys + values))
            kept = kv_heads * (keys + values)
            kind = "attention" if kv_heads == heads else "grouped-query attention"
        if self.file.family in _INDEXED:
            kept += value("attention.indexer.key_length")
        if not kept:
            raise InvalidFileError(
                f"{self.file.path}: {self.file.family} has no attention.head_count or no attention.key_length, which "
                f"say what blk.{number} keeps"
            )
        is_shared = number >= self.cached and number < self.main
        if is_shared:
            kind, kept = "attention to the cache of an earlier block", 0
        elif not is_latent:
            self._check_sides(number, tensors, kv_heads, keys, values)
        kind += f", window {window}" if window else ""
        return Kept(kind, kept, window, 0.0, heads, kv_heads, width, pair)

    def _check_sides(
        self, number: int, tensors: Mapping[str, tuple[int, ...]], kv_heads: int, keys: int, values: int
    ) -> None:
        """Refuse a block whose products for keys and values are not of the size that the keys of the file say."""
        for name, size, told in (("attn_k", keys, "key_length"), ("attn_v", values, "value_length")):
            shape = tensors.get(name, ())
            if len(shape) > 1 and shape[1] != kv_heads * size:
                raise InvalidFileError(
                    f"{self.file.path}: blk.{number}.{name} makes {shape[1]} numbers, but head_count_kv {kv_heads} x "
                    f"{told} {size} are {kv_heads * size}"
                )
        if number < self.main and not any(re.match(r"attn_(k|qkv|kv)", name) for name in tensors):
            raise InvalidFileError(
                f"{self.file.path}: blk.{number} has attention by {self._decided_by()} ({kv_heads} key-value heads), "
                f"and no tensor for keys (attn_k, attn_qkv): it has {', '.join(list(tensors)[:4]) or 'none'}"
            )

    def _state(self) -> Kept:
        """Return the recurrent state of a block: what a convolution remembers, and what is summed up."""
        hidden = self._needed("embedding_length")
        family, value = self.file.family, self.file.value
        if "rwkv" in family:
            size = self._needed("wkv.head_size")
            shifts = value("token_shift_count", 2)
            numbers, kind, width = shifts * hidden + hidden * size, "linear attention", hidden
        elif family in ("lfm2", "lfm2moe"):
            numbers, kind, width = hidden * (self._needed("shortconv.l_cache") - 1), "short convolution", hidden
        elif family == "kimi-linear":
            size, taps = self._needed("kda.head_dim"), value("ssm.conv_kernel", 4)
            width = next(heads for heads in (*self.heads, 1) if heads) * size
            numbers, kind = 3 * (taps - 1) * width + width * size, "linear attention"
        else:
            width, size, taps = (self._needed(f"ssm.{name}") for name in ("inner_size", "state_size", "conv_kernel"))
            channels = width + 2 * value("ssm.group_count") * size
            numbers = (taps - 1) * channels + size * width
            kind = "linear attention" if family in _BY_INTERVAL else "state space"
        return Kept(kind, state_bytes=float(numbers * STATE_BYTES), width=width)

    def _needed(self, name: str) -> int:
        found = self.file.value(name)
        if not found:
            raise InvalidFileError(f"{self.file.path}: {self.file.family} has no {name}, which says what it keeps")
        return found
