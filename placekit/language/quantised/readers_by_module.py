"""Readers of ``quantization_config`` whose formats tell modules apart: by name, pattern or class.

References
----------
compressed-tensors: ``quantization/quant_args.py``; ModelOpt: ``hf_quant_config.json``; AutoRound: ``extra_config``;
torchao: ``core/config.py``; Quark: ``quantization/config``; MLX: ``nn.quantize``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from placekit.language.quantised.packed import (
    BLOCKS,
    HEAD,
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


def read_auto_round(values: Values) -> Quantised:
    """AutoRound: integers as in GPTQ or small floats; `extra_config` has other values by module."""

    def packing(own: Values, base: Values) -> Packing:
        bits = own.number("bits", default=None if own is base else base.number("bits", default=4))
        kind = str(own.any_of("data_type", default=base.any_of("data_type", default="int")))
        if bits >= 16:
            return PLAIN
        group = own.number("group_size", default=base.number("group_size", default=128))
        if kind.startswith(("int", "uint")):
            return packed(bits, group, 16 + bits)
        if kind.startswith(("mx", "nv")):
            return packed(bits, group, 8)
        if kind.startswith("fp") and bits == 8:
            return packed(8)
        raise (own if "data_type" in own.given else base).refuse("data_type")

    rules = []
    for name in values.table("extra_config"):
        own = values.inner("extra_config").inner(name)
        regex = bool(re.search(r"[\\^$()|+*]", name))
        names = values.matcher("extra_config", [f".*?(?:{name})" if regex else name], are_regexes=regex)
        rules.append(Rule(names, packing(own, values)))
    blocks = values.names("block_name_to_quantize", "to_quant_block_names")
    base = packing(values, values)
    if blocks:
        rules.append(Rule(values.matcher("block_name_to_quantize", blocks), base, frozenset(BLOCKS)))
        return Quantised("", {}, rules)
    return alike(base, rules=rules)


def read_compressed_tensors(values: Values) -> Quantised:
    """compressed-tensors: groups of modules by name, pattern or class, each with a scheme of its own."""
    sparse = values.table("sparsity_config")
    if sparse and sparse.get("format", "dense") != "dense":
        raise values.refuse("sparsity_config")
    outer = str(values.any_of("format", default=""))
    named: list[Rule] = []
    patterns: list[Rule] = []
    classes: dict[str, Packing] = {}
    for group in values.table("config_groups"):
        own = values.inner("config_groups").inner(group)
        packing = _scheme(own, str(own.any_of("format", default=outer)))
        for target in own.names("targets"):
            if "Linear" in target and not target.startswith("re:"):
                classes.update(dict.fromkeys(PRODUCTS, packing))
            elif target == "Embedding":
                classes[TABLE] = packing
            elif re.fullmatch(r"[A-Z]\w+", target):
                raise own.refuse("targets", "with a class of modules that is not known")
            else:
                rule = Rule(own.matcher("targets", [target]), packing)
                (patterns if target.startswith("re:") else named).append(rule)
    if not values.table("config_groups"):
        raise values.refuse("config_groups")
    return Quantised("", classes, (*named, *patterns))


def _scheme(group: Values, layout: str) -> Packing:
    """Return the storage of a group of compressed-tensors or ModelOpt whose format is `layout`."""
    if group.any_of("weights") is None or layout in ("dense", "fakequant"):
        return PLAIN
    own = group.inner("weights")
    bits, kind = own.number("num_bits"), own.any_of("type", default="int")
    if bits >= 16:
        return PLAIN
    if kind not in ("int", "float"):
        raise own.refuse("type")
    size = own.any_of("group_size")
    if own.any_of("strategy") == "block" and size is None:
        sides = own.any_of("block_structure", default=[128, 128])
        if not isinstance(sides, list) or not all(isinstance(side, int) and side > 0 for side in sides):
            raise own.refuse("block_structure")
        size = math.prod(sides)
    is_float = kind == "float"
    if layout.startswith(("nvfp4", "mxfp")) and size is None:
        size = 16 if layout.startswith("nv") else 32
    scale = str(own.any_of("scale_dtype", default="uint8" if (is_float and bits < 8) or "mxfp" in layout else "16"))
    scale_bits = 8 if re.search(r"8", scale) else 32 if "32" in scale else 16
    if not is_float and layout.startswith(("int-quantized", "naive")):
        stored = 8.0  # a byte for each, whatever it could do with
    elif layout.startswith("pack"):
        stored = 32 / (32 // bits)  # as many as go into 32 bits
    else:
        stored = bits
    zero_bits = 0 if is_float or own.any_of("symmetric", default=True) else bits
    return packed(stored, None if size is None else own.number("group_size", default=size), scale_bits + zero_bits)


_ALGORITHMS: Mapping[str, Callable[[float], Packing]] = {
    "FP8": lambda _: packed(8), "FP8_PER_CHANNEL_PER_TOKEN": lambda _: packed(8), "FP8_PB_WO": lambda _: packed(8),
    "FP8_PB_REAL": lambda _: packed(8), "W8A16": lambda _: packed(8), "W8A8_SQ_PER_CHANNEL": lambda _: packed(8),
    "INT8_SQ": lambda _: packed(8), "W4A16": lambda _: packed(4),
    "NVFP4": lambda _: NVFP4, "W4A16_NVFP4": lambda _: NVFP4, "NVFP4_AWQ": lambda _: NVFP4,
    "W4A8_NVFP4_FP8": lambda _: NVFP4, "MXFP4": lambda _: MXFP4, "W4A8_MXFP4_FP8": lambda _: MXFP4,
    "MXFP8": lambda _: packed(8, 32, 8), "W4A16_AWQ": lambda group: packed(4, group, 16),
    "W4A8_AWQ": lambda group: packed(4, group, 16), "NO_QUANT": lambda _: PLAIN,
}  # fmt: skip
"""Storage by `quant_algo` of ModelOpt, from the size of groups."""


def read_modelopt(values: Values) -> Quantised:
    """ModelOpt: one algorithm, or one for every module of a list."""

    def packing(own: Values) -> Packing:
        found = _ALGORITHMS.get(str(own.any_of("quant_algo", default="NO_QUANT")).upper())
        if found is None:
            raise own.refuse("quant_algo")
        return found(own.number("group_size", default=128))

    values.asked.add("config_groups")  # which repeats what the algorithm means
    if str(values.any_of("quant_algo", default="")).upper() == "MIXED_PRECISION":
        if not values.table("quantized_layers"):
            raise values.refuse("quantized_layers")
        rules = []
        for name in values.table("quantized_layers"):
            own = values.inner("quantized_layers").inner(name)
            rules.append(Rule(values.matcher("quantized_layers", [name]), packing(own)))
        return Quantised("", {}, rules)
    if values.any_of("quant_algo") is None and values.given.get("config_groups"):
        return read_compressed_tensors(values)
    return alike(packing(values), (*BLOCKS, HEAD))


def read_torchao(values: Values) -> Quantised:
    """torchao: the class of a configuration tells the bits; or one class for every module."""
    kind = values.any_of("quant_type")
    if isinstance(kind, str):
        kind = {"_type": kind, "_data": values.table("quant_type_kwargs")}
    elif isinstance(kind, dict) and "default" in kind:
        kind = kind["default"]
    if not isinstance(kind, dict):
        raise values.refuse("quant_type")
    data = kind.get("_data")
    by_module = next((data[key] for key in ("fqn_to_config", "module_fqn_to_config") if isinstance(data, dict)
                      and isinstance(data.get(key), dict)), None)  # fmt: skip
    kinds = (*BLOCKS, TOWER, HEAD, TABLE) if values.any_of("include_input_output_embeddings") else (*BLOCKS, TOWER)
    if by_module is None:
        return alike(_torchao_packing(values, kind), kinds)
    rules = [
        Rule(values.matcher("quant_type", [name]), _torchao_packing(values, each))
        for name, each in by_module.items()
        if name != "_default"
    ]
    return alike(_torchao_packing(values, by_module.get("_default")), kinds, rules)


def _torchao_packing(values: Values, kind: Any) -> Packing:
    """Return the storage that a configuration of torchao means, written as its class and fields; None for plain."""
    if kind is None:
        return PLAIN
    name, data = (str(kind.get("_type", "")), kind.get("_data") or {}) if isinstance(kind, dict) else ("", {})
    low = name.lower().replace("_", "").removesuffix("config")
    group = data.get("group_size", 128) if isinstance(data, dict) else None
    if not isinstance(group, int) or isinstance(group, bool):
        raise values.refuse("quant_type")
    if re.fullmatch(r"(int8|float8)weightonly|int8dynamicactivationint8weight|float8\w*activationfloat8weight", low):
        return packed(8)
    if low in ("int4weightonly", "float8dynamicactivationint4weight"):
        return packed(4, group, 32)  # a scale and a zero point of 16 bits
    raise values.refuse("quant_type")


_QUARK = {
    "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "uint8": 8, "int4": 4, "uint4": 4, "int3": 3, "int2": 2, "fp4": 4,
    "fp6_e2m3": 6, "fp6_e3m2": 6, "bfloat16": 16, "float16": 16, "float32": 16,
}  # fmt: skip


def read_quark(values: Values) -> Quantised:
    """Quark: a scheme for all, others by patterns of names and by class."""

    def packing(own: Values) -> Packing:
        given = own.any_of("weight")
        steps = given if isinstance(given, list) else [given] if given is not None else []
        if not steps:
            return PLAIN
        if not all(isinstance(step, dict) for step in steps):
            raise own.refuse("weight")
        told = [Values(own.where, step, f"{own.within}: weight") for step in steps]
        finest = min(told, key=lambda each: _QUARK.get(each.any_of("mx_element_dtype", "dtype"), math.inf))
        kind = finest.any_of("mx_element_dtype", "dtype")
        if kind not in _QUARK:
            raise finest.refuse("dtype")
        bits = _QUARK[kind]
        if bits >= 16:
            return PLAIN
        if finest.any_of("qscheme", default="per_tensor") != "per_group":
            return packed(bits)
        is_small = len(told) > 1 or finest.any_of("scale_format") == "e8m0" or kind.startswith("fp4")
        has_zero = kind.startswith(("int", "uint")) and finest.any_of("symmetric", default=True) is False
        return packed(bits, finest.number("group_size"), (8 if is_small else 16) + bits * has_zero)

    rules = []
    for name in values.table("layer_quant_config"):
        own = values.inner("layer_quant_config").inner(name)
        if own.any_of("weight") is not None:  # others tell outputs, such as those that are cached
            rules.append(Rule(values.matcher("layer_quant_config", [name]), packing(own)))
    by_class = values.table("layer_type_quant_config")
    if any("Linear" not in name for name in by_class):
        raise values.refuse("layer_type_quant_config", "with a class of modules that is not known")
    linear = [packing(values.inner("layer_type_quant_config").inner(name)) for name in by_class]
    base = linear[0] if linear else packing(values.inner("global_quant_config"))
    return alike(base, PRODUCTS, rules)


def read_mlx(values: Values) -> Quantised:
    """MLX: tables and the head are packed, too; keys that are names of modules have other values for them."""

    def packing(own: Values, base: Values) -> Packing:
        mode = own.any_of("mode", default=base.any_of("mode", default="affine"))
        small = {"mxfp4": MXFP4, "nvfp4": NVFP4, "mxfp8": packed(8, 32, 8)}
        if mode in small:
            return small[mode]
        if mode != "affine":
            raise own.refuse("mode")
        bits = own.number("bits", default=base.number("bits", default=4))
        return packed(bits, own.number("group_size", default=base.number("group_size", default=64)), 32)

    rules = []
    for name, own in values.given.items():
        if own is False or isinstance(own, dict):
            values.asked.add(name)
            found = PLAIN if own is False else packing(values.inner(name), values)
            rules.append(Rule(values.matcher(name, [name]), found))
    return alike(packing(values, values), (*PRODUCTS, TABLE), rules)
