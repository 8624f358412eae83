"""Readers of ``quantization_config``, one per method: which modules are packed, and in how many bits.

A value that no reader understands, or an object or list under a key that no reader knows, is an error: it may name
modules that are packed otherwise.

References
----------
transformers: ``utils/quantization_config.py``; vLLM: ``model_executor/layers/quantization``; GPTQModel:
``QuantizeConfig.dynamic``; ExLlamaV3: ``doc/exl3.md``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from placekit.language.quantised.packed import (
    BLOCKS,
    EXPERTS,
    HEAD,
    LINEAR,
    MXFP4,
    NVFP4,
    PLAIN,
    PRODUCTS,
    TABLE,
    TOWER,
    Packing,
    Quantised,
    Rule,
    Values,
    alike,
    packed,
)  # fmt: skip
from placekit.language.quantised.readers_by_module import (
    read_auto_round,
    read_compressed_tensors,
    read_mlx,
    read_modelopt,
    read_quark,
    read_torchao,
)

SIDE_FILES: Mapping[str, str] = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}
"""Files beside a configuration that has no quantisation, and their method."""

_IGNORED = (
    "ignore", "ignored_layers", "modules_to_not_convert", "modules_to_not_quantize", "exclude", "exclude_modules",
    "exclude_layers", "skip_modules", "llm_int8_skip_modules", "linear_weights_not_to_quantize",
)  # fmt: skip
_OTHER = frozenset(
    (
        "meta", "calibration", "dataset", "tokenizer", "producer", "kv_cache_scheme", "kv_cache_quant_algo", "export",
        "algo_config", "transform_config", "tune_metadata", "exllama_config", "module_name_preceding_first_block",
        "kv_cache_group", "kv_cache_config", "kv_cache_post_rope", "softmax_quant_spec", "quantizer", "supported_types",
        "kernel_config", "fmt", "bnb_4bit_quant_storage",
    )
)  # fmt: skip
"""Keys with objects or lists that change no weights."""


def read_quantised(where: str, given: Mapping[str, Any]) -> Quantised:
    """Return the quantisation that a configuration describes.

    `where` is the file, for messages. Raises `UnsupportedProblemError`: a value that is not understood; with its key.
    """
    values = Values(where, given)
    method = (
        str(values.any_of("quant_method", default="mlx" if "group_size" in given else "")).lower().replace("_", "-")
    )
    if isinstance(given.get("quantization"), dict):  # ModelOpt's file has the values one level below
        values = values.inner("quantization")
    reader = _READERS.get(method)
    if reader is None:
        raise values.refuse("quant_method", f"which is none of {', '.join(_READERS)}")
    ignored = [Rule(values.matcher(key, values.names(key)), PLAIN) for key in _IGNORED if values.given.get(key)]
    found = reader(values)
    for key, value in values.given.items():
        if value and isinstance(value, dict | list) and key not in values.asked | _OTHER:
            raise values.refuse(key)
    return Quantised(method, found.of_kind, (*ignored, *found.rules))


def _always(bits: float, *kinds: str) -> Callable[[Values], Quantised]:
    return lambda _: alike(packed(bits), kinds or (*BLOCKS, TOWER))


def _gptq(values: Values) -> Quantised:
    """GPTQ: scales of 16 bits and zero points as wide as numbers; rules that replace bits, or keep modules."""

    def packing(bits: float, group: float) -> Packing:
        return packed(bits, group, 16 + bits)

    bits, group = values.number("bits", "w_bit"), values.number("group_size", default=128)
    kinds = (*BLOCKS, HEAD) if values.any_of("lm_head") is True else BLOCKS
    rules = []
    for name, change in values.table("dynamic").items():
        names = values.matcher("dynamic", [re.sub(r"^[+-]:", "", name)], are_regexes=True)
        if name.startswith("-:"):
            rules.append(Rule(names, PLAIN))
            continue
        own = Values(values.where, change if isinstance(change, dict) else {}, f"{values.within}: dynamic: {name}")
        if not isinstance(change, dict):
            raise values.refuse("dynamic")
        mine = packing(own.number("bits", default=bits), own.number("group_size", default=group))
        rules.append(Rule(names, mine, frozenset(kinds)))
    within = values.names("modules_in_block_to_quantize")
    if within:
        chosen = values.matcher("modules_in_block_to_quantize", within)
        rules.append(Rule(chosen, packing(bits, group), frozenset(kinds)))
        return Quantised("", {}, rules)
    values.names("block_name_to_quantize")
    return alike(packing(bits, group), kinds, rules)


def _awq(values: Values) -> Quantised:
    """AWQ: groups with a scale of 16 bits, and a zero point unless the configuration says that there is none."""
    bits, group = values.number("bits", "w_bit", default=4), values.number("group_size", "q_group_size", default=128)
    has_zero = values.any_of("zero_point", default=True) is not False
    return alike(packed(bits, group, 16 + bits * has_zero))


def _bitsandbytes(values: Values) -> Quantised:
    """bitsandbytes: 8 bits by row; or 4 bits with a scale of 32 per 64, itself in 8 bits if quantised twice."""
    if values.any_of("load_in_8bit", "_load_in_8bit"):
        return alike(packed(8), (*BLOCKS, TOWER))
    if not values.any_of("load_in_4bit", "_load_in_4bit"):
        raise values.refuse("load_in_4bit")
    twice = values.any_of("bnb_4bit_use_double_quant") is True
    return alike(packed(4, 64, 8 + 32 / 256 if twice else 32), (*BLOCKS, TOWER))


def _fp8(values: Values) -> Quantised:
    """8-bit floats or integers, with a scale for every square block, row or matrix."""
    block = values.any_of("weight_block_size")
    is_mx = values.any_of("quant_method") == "mxfp8"
    block = [1, 32] if block is None and is_mx else block
    if block is not None and not (
        isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) and side > 0 for side in block)
    ):
        raise values.refuse("weight_block_size")
    scale = 8 if is_mx or values.any_of("scale_fmt") == "ue8m0" else 32
    usual = packed(8, None if block is None else math.prod(block), scale)
    kinds = {LINEAR: usual, EXPERTS: usual, TOWER: usual}
    experts = str(values.any_of("expert_dtype", default="fp8"))
    if experts not in ("fp8", "fp4"):
        raise values.refuse("expert_dtype")
    if experts == "fp4":
        kinds[EXPERTS] = MXFP4
    more = values.names("modules_to_convert")
    return Quantised("", kinds, [Rule(values.matcher("modules_to_convert", more), usual)] if more else [])


def _hqq(values: Values) -> Quantised:
    """HQQ: a scale and a zero point of 16 bits per group, or of 8 bits with groups of their own."""

    def packing(own: Values) -> Packing:
        weights = own.inner("weight_quant_params") if "weight_quant_params" in own.given else own
        bits, group = weights.number("nbits", default=4), weights.number("group_size", default=64)
        stored = {3: 3.2, 5: 8.0, 6: 8.0, 7: 8.0}.get(int(bits), bits)  # ten of three bits in 32, or a byte for each
        beside = 0.0
        for key in ("scale_quant_params", "zero_quant_params"):
            twice = own.table(key)
            beside += 16.0 if not twice else 8 + 32 / own.inner(key).number("group_size", default=128)
        return packed(stored, group, beside)

    own = values.inner("quant_config") if "quant_config" in values.given else values
    by_module = own.table("dynamic_config") or {
        key: each for key, each in own.given.items() if isinstance(each, dict | None) and not key.endswith("_params")
    }
    if own is values or not by_module or "weight_quant_params" in own.given:
        return alike(packing(own))
    rules = []
    for name, each in by_module.items():
        if each is not None:
            rules.append(Rule(own.matcher(name, [name]), packing(Values(own.where, each, f"{own.within}: {name}"))))
    return Quantised("", {}, rules)


def _aqlm(values: Values) -> Quantised:
    """AQLM: codes of vectors, and codebooks for every module."""
    books, code = values.number("num_codebooks", default=1), values.number("nbits_per_codebook", default=16)
    size = values.number("in_group_size", default=8) * values.number("out_group_size", default=1)
    stored = next((wide for wide in (8, 16, 32) if code <= wide), 64)
    return alike(Packing(books * stored / size, 2 * books * size * 2.0**code))


def _vptq(values: Values) -> Quantised:
    """VPTQ: indices of vectors and of residual vectors, and codebooks for every module."""

    def packing(own: Values) -> Packing:
        def second(key: str, least: int) -> int:
            found = own.any_of(key)
            if not isinstance(found, list) or len(found) != 2 or not all(isinstance(each, int) for each in found):
                raise own.refuse(key)
            if found[1] < least:
                raise own.refuse(key)
            return int(found[1])

        length, centroids = second("vector_lens", 1), second("num_centroids", 2)
        rest = max(second("num_res_centroids", -1), 1)
        held = (centroids + (rest if rest > 1 else 0)) * length * own.number("group_num", default=1) * 2.0
        return Packing((math.log2(centroids) + math.log2(rest)) / length, held)

    rules: list[Rule] = []
    for key in ("config_for_layers", "shared_layer_config"):
        rules += [
            Rule(values.matcher(key, [name]), packing(values.inner(key).inner(name))) for name in values.table(key)
        ]
    if not rules:
        raise values.refuse("config_for_layers")
    return Quantised("", {}, rules)


def _spqr(values: Values) -> Quantised:
    """SpQR: the configuration has the shapes of what every module stores: dense parts, and outliers."""
    bytes_each = {"dense_weights": 8, "row_offsets": 4, "col_vals": 4}
    held: dict[str, float] = {}
    for key, shape in values.table("shapes").items():
        module, _, last = key.removesuffix(".shape").rpartition(".")
        sides = shape if isinstance(shape, list) else [shape]
        if last in bytes_each and all(isinstance(side, int) for side in sides):
            held[module] = held.get(module, 0.0) + bytes_each[last] * math.prod(sides)
    if not held:
        raise values.refuse("shapes")
    return Quantised(
        "", {}, [Rule(values.matcher("shapes", [name]), Packing(0.0, each)) for name, each in held.items()]
    )


def _exl(values: Values) -> Quantised:
    """EXL2 and EXL3: a mean of bits that need not be whole, another one for the head, or bits of every module."""
    rules = []
    for name in values.table("tensor_storage"):
        own = values.inner("tensor_storage").inner(name)
        if own.any_of("bits_per_weight") is not None:
            rules.append(Rule(values.matcher("tensor_storage", [name]), packed(own.number("bits_per_weight"))))
    bits = values.number("bits")
    usual = packed(bits)
    return Quantised("", {LINEAR: usual, EXPERTS: usual, HEAD: packed(values.number("head_bits", default=bits))}, rules)


def _grouped(bits: str, bits_default: float, group: float, group_bits: float) -> Callable[[Values], Quantised]:
    """Return a reader of numbers in groups, from the key of their bits and the defaults of both sizes."""
    return lambda values: alike(
        packed(values.number(bits, default=bits_default), values.number("group_size", default=group), group_bits),
        (*BLOCKS, TOWER),
    )


def _bitnet(values: Values) -> Quantised:
    """BitNet: four ternary numbers in a byte; nothing is packed if weights are quantised while they run."""
    is_packed = values.any_of("quantization_mode", default="offline") == "offline"
    return alike(packed(2) if is_packed else PLAIN)


def _quanto(values: Values) -> Quantised:
    found = {"int8": packed(8), "float8": packed(8), "int4": packed(4, 128, 32), "int2": packed(2, 128, 32)}
    kind = values.any_of("weights", default="int8")
    if kind not in found:
        raise values.refuse("weights")
    return alike(found[kind], (*BLOCKS, TOWER))


def _small_float(*keys: str) -> Callable[[Values], Quantised]:
    """Return a reader of NVFP4 or MXFP4, which the first of `keys` tells."""

    def read(values: Values) -> Quantised:
        found = {"nvfp4": NVFP4, "mxfp4": MXFP4}
        kind = values.any_of(*keys, default="nvfp4")
        if kind not in found:
            raise values.refuse(next(key for key in keys if values.given.get(key) is not None))
        for key in ("keep_master_weights", "store_master_weights", "pseudoquantization", "module_config_overrides"):
            if values.any_of(key):
                raise values.refuse(key)
        return alike(found[kind], (*BLOCKS, TOWER))

    return read


def _gemma(values: Values) -> Quantised:
    """Gemma's own format: bits by patterns of names, scales by row."""
    bits = values.number("num_bits", default=4)
    rules = []
    for name in values.table("module_quant_configs"):
        own = values.inner("module_quant_configs").inner(name)
        names = values.matcher("module_quant_configs", [f".*?(?:{name})"], are_regexes=True)
        rules.append(Rule(names, packed(own.number("num_bits", default=bits)), frozenset(PRODUCTS)))
    kinds = (*BLOCKS, TOWER, TABLE) if values.any_of("quantize_embeddings") else (*BLOCKS, TOWER)
    return alike(packed(bits), kinds, rules)


_READERS: Mapping[str, Callable[[Values], Quantised]] = {
    "gptq": _gptq, "gptq-marlin": _gptq, "awq": _awq, "awq-marlin": _awq,
    "auto-round": read_auto_round, "autoround": read_auto_round, "intel/auto-round": read_auto_round,
    "compressed-tensors": read_compressed_tensors, "modelopt": read_modelopt, "modelopt-fp4": read_modelopt,
    "modelopt-mixed": read_modelopt, "bitsandbytes": _bitsandbytes,
    "fp8": _fp8, "mxfp8": _fp8, "blockwise-int8": _fp8, "fbgemm-fp8": _always(8), "ptpc-fp8": _always(8),
    "w8a8-fp8": _always(8), "w8a8-int8": _always(8), "eetq": _always(8), "experts-int8": _always(8, EXPERTS),
    "mxfp4": lambda _: alike(MXFP4, (EXPERTS,)), "nvfp4": _small_float(),
    "fp-quant": _small_float("forward_dtype"), "fouroversix": _small_float("weight_dtype", "dtype"),
    "hqq": _hqq, "aqlm": _aqlm, "vptq": _vptq, "spqr": _spqr, "bitnet": _bitnet, "quanto": _quanto,
    "exl2": _exl, "exl3": _exl, "torchao": read_torchao, "quark": read_quark, "gemma": _gemma, "mlx": read_mlx,
    "higgs": _grouped("bits", 4, 256, 16), "metal": _grouped("bits", 4, 64, 32), "sinq": _grouped("nbits", 4, 64, 32),
}  # fmt: skip
"""Readers by method, in lower case and with hyphens."""
