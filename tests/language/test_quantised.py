"""Bits of single modules of quantised models, by hand from the formats; and values that are not understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from limits import SOON_S, Stopwatch
from safetensors_files import write_headers

from placekit.language.config.from_config import _built, read_config
from placekit.language.description import ModelDescription
from placekit.language.quantised.readers import read_quantised
from placekit.model.errors import UnsupportedProblemError

pytest.importorskip("transformers", minversion="5")

LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTURE: dict[str, Any] = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "vocab_size": 128, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip

Q0, Q1 = (f"model.layers.{block}.self_attn.q_proj" for block in range(2))
UP0, UP1 = (f"model.layers.{block}.mlp.up_proj" for block in range(2))
DOWN0 = "model.layers.0.mlp.down_proj"
HEAD, TABLE = "lm_head", "model.embed_tokens"
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}


def described(folder: Path, quantised: dict[str, Any], base: dict[str, Any] = LLAMA) -> ModelDescription:
    """Return the description of the model with a quantisation."""
    (folder / "config.json").write_text(json.dumps({**base, "quantization_config": quantised}))
    return read_config(folder)


def bits_of(model: ModelDescription) -> dict[str, float]:
    """Return the bits of a parameter, by the path of its part."""
    return {part.path: part.weight_bytes * 8 / part.parameters for part in model.parts if part.parameters}


def torchao(kind: str, **fields: Any) -> dict[str, Any]:
    """Return the quantisation of torchao by a class of its configurations."""
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_data": fields}}}


def groups(*given: dict[str, Any], layout: str = "pack-quantized", **more: Any) -> dict[str, Any]:
    """Return the quantisation of compressed-tensors with some groups."""
    named = {f"group_{number}": group for number, group in enumerate(given)}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": named, **more}


def linear(weights: dict[str, Any] | None, *targets: str) -> dict[str, Any]:
    """Return a group of compressed-tensors."""
    return {"targets": list(targets or ["Linear"]), "weights": weights}


CASES: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    # a scale of 16 bits and a zero point of 4 for every 128 numbers
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128}, {Q0: 4 + 20 / 128, HEAD: 16, TABLE: 16}),
    "gptq with its head": (
        {"quant_method": "gptq", "bits": 8, "group_size": -1, "lm_head": True},
        {Q0: 8, HEAD: 8, TABLE: 16},
    ),
    "gptq, rules: the first that matches": (
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "dynamic": {r"+:model\.layers\.0\..*": {"bits": 8, "group_size": 32}, "-:.*self_attn.*": {}},
        },
        {Q0: 8 + 24 / 32, DOWN0: 8 + 24 / 32, Q1: 16, UP1: 4 + 20 / 128, HEAD: 16},
    ),
    "gptq, rules: a group alone, no sign": (
        {"quant_method": "gptq", "bits": 3, "group_size": 64, "dynamic": {".*down_proj": {"group_size": 128}}},
        {DOWN0: 3 + 19 / 128, UP0: 3 + 19 / 64},
    ),
    "gptq, chosen modules": (
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "modules_in_block_to_quantize": [["mlp.up_proj", "mlp.gate_proj"], ["mlp.down_proj"]],
        },
        {Q0: 16, UP0: 4 + 20 / 128},
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "modules_to_not_convert": ["mlp"]},
        {Q0: 4 + 20 / 64, UP0: 16, HEAD: 16},
    ),
    "awq by its own names": (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 128, "zero_point": False},
        {Q0: 4 + 16 / 128},
    ),
    "auto-round": (
        {
            "quant_method": "auto-round",
            "bits": 4,
            "group_size": 128,
            "extra_config": {
                Q0: {"bits": 16},
                UP0: {"bits": 8, "group_size": 32},
                HEAD: {"bits": 8},
                r".*layers\.1\.mlp.*": {"bits": 2},
            },
        },
        {Q0: 16, Q1: 4 + 20 / 128, UP0: 8 + 24 / 32, HEAD: 8 + 24 / 128, UP1: 2 + 18 / 128},
    ),
    "auto-round of some blocks": (
        {
            "quant_method": "intel/auto-round",
            "bits": 4,
            "group_size": 16,
            "data_type": "nv_fp",
            "block_name_to_quantize": "model.layers.1",
        },
        {Q0: 16, Q1: 4.5},
    ),
    # the scale alone: a symmetric scheme has no zero points
    "compressed-tensors": (groups(linear(INT4), ignore=["lm_head"]), {Q0: 4 + 16 / 128, HEAD: 16, TABLE: 16}),
    "compressed-tensors, zero points": (
        groups(linear({**INT4, "symmetric": False})),
        {Q0: 4 + 20 / 128, HEAD: 4 + 20 / 128},
    ),
    "compressed-tensors, ignored by patterns": (
        groups(linear(INT4), ignore=["re:.*lm_head", "re:.*layers\\.[1-9].*mlp.*"]),
        {Q1: 4.125, UP0: 4.125, UP1: 16, HEAD: 16},
    ),
    "compressed-tensors, ignored by name": (groups(linear(INT4), ignore=[Q0]), {Q0: 16, Q1: 4.125}),
    "compressed-tensors, two groups": (
        groups(
            linear({"num_bits": 8, "type": "float", "strategy": "channel"}, "re:.*self_attn.*"),
            linear({**INT4, "group_size": 32}, "re:.*mlp.*"),
            layout="mixed-precision",
        ),
        {Q0: 8, UP0: 4.5, HEAD: 16},
    ),
    "compressed-tensors, a name before the class": (
        groups(linear(INT4), linear({**INT4, "num_bits": 8}, DOWN0)),
        {DOWN0: 8 + 16 / 128, UP0: 4.125},
    ),
    "compressed-tensors, ten numbers of 3 bits in 32": (groups(linear({**INT4, "num_bits": 3})), {Q0: 3.2 + 16 / 128}),
    "compressed-tensors, 4 bits in a byte each": (groups(linear(INT4), layout="int-quantized"), {Q0: 8 + 16 / 128}),
    "compressed-tensors, blocks": (
        groups(
            linear({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}),
            layout="float-quantized",
        ),
        {Q0: 8 + 16 / 128**2},
    ),
    "compressed-tensors, not packed": (groups(linear(INT4), layout="dense"), {Q0: 16}),
    "compressed-tensors, caches alone": (groups(linear(None)), {Q0: 16}),
    "nvfp4": (groups(linear(NVFP4), layout="nvfp4-pack-quantized", ignore=["lm_head"]), {Q0: 4 + 8 / 16, HEAD: 16}),
    "mxfp4": (groups(linear({**NVFP4, "group_size": 32}), layout="mxfp4-pack-quantized"), {Q0: 4 + 8 / 32}),
    "mxfp8": (
        groups(
            linear({**NVFP4, "num_bits": 8, "group_size": 32, "scale_dtype": "torch.uint8"}), layout="mxfp8-quantized"
        ),
        {Q0: 8 + 8 / 32},
    ),
    "modelopt": (
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "ignore": ["lm_head", "model.layers.0*"],
            "config_groups": {"group_0": {"weights": NVFP4}},
        },
        {Q0: 16, Q1: 4.5, HEAD: 16},
    ),
    "modelopt, several algorithms": (
        {
            "quant_method": "modelopt",
            "quantization": {
                "quant_algo": "MIXED_PRECISION",
                "exclude_modules": ["lm_head"],
                "quantized_layers": {
                    Q0: {"quant_algo": "FP8"},
                    UP0: {"quant_algo": "W4A8_AWQ", "group_size": 128},
                    UP1: {"quant_algo": "MXFP8"},
                },
            },
        },
        {Q0: 8, UP0: 4 + 16 / 128, UP1: 8.25, Q1: 16, HEAD: 16},
    ),
    "bitsandbytes, 8 bits": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {Q0: 8, HEAD: 16}),
    "bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["lm_head", UP0]},
        {Q0: 4 + 32 / 64, UP0: 16},
    ),
    "bitsandbytes, scales quantised": (
        {"quant_method": "bitsandbytes", "_load_in_4bit": True, "bnb_4bit_use_double_quant": True},
        {Q0: 4 + (8 + 32 / 256) / 64},
    ),
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {Q0: 8 + 32 / 128**2, HEAD: 16}),
    "fp8 by rows": ({"quant_method": "fp8", "ignored_layers": [UP0]}, {Q0: 8, UP0: 16}),
    "fp8 with a table": (
        {"quant_method": "fp8", "modules_to_convert": ["embed_tokens"]},
        {TABLE: 8, HEAD: 16},
    ),
    "fbgemm": ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": [Q0, "lm_head"]}, {Q0: 16, Q1: 8}),
    # scale and zero point of 16 bits
    "hqq": (
        {
            "quant_method": "hqq",
            "quant_config": {"weight_quant_params": {"nbits": 3, "group_size": 64}},
            "skip_modules": ["lm_head"],
        },
        {Q0: 3.2 + 32 / 64, HEAD: 16},
    ),
    "hqq by module": (
        {
            "quant_method": "hqq",
            "quant_config": {"self_attn.q_proj": {"nbits": 8, "group_size": 128}, "mlp.up_proj": None},
        },
        {Q0: 8 + 32 / 128, UP0: 16, DOWN0: 16},
    ),
    # a code of 16 bits for eight numbers, and 65,536 vectors of eight numbers of 16 bits for 65,536 numbers
    "aqlm": (
        {"quant_method": "aqlm", "in_group_size": 8, "num_codebooks": 1, "nbits_per_codebook": 16},
        {Q0: 2 + 65536 * 8 * 16 / (256 * 256)},
    ),
    "aqlm, two small books": (
        {
            "quant_method": "aqlm",
            "num_codebooks": 2,
            "nbits_per_codebook": 8,
            "linear_weights_not_to_quantize": [f"{UP0}.weight"],
        },
        {Q0: 2 * 8 / 8 + 2 * 256 * 8 * 16 / (256 * 256), UP0: 16},
    ),
    "vptq": (
        {
            "quant_method": "vptq",
            "config_for_layers": {
                Q0: {"vector_lens": [-1, 8], "num_centroids": [-1, 256], "num_res_centroids": [-1, 16], "group_num": 1}
            },
        },
        {Q0: (8 + 4) / 8 + (256 + 16) * 8 * 16 / (256 * 256), Q1: 16},
    ),
    "spqr": (
        {
            "quant_method": "spqr",
            "bits": 3,
            "shapes": {
                f"{Q0}.dense_weights.shape": 256 * 64,
                f"{Q0}.row_offsets.shape": 257,
                f"{Q0}.col_vals.shape": 100,
                f"{Q0}.in_perm.shape": 256,
            },
        },
        {Q0: 8 * (8 * 256 * 64 + 4 * 357) / (256 * 256), Q1: 16},
    ),
    "bitnet": ({"quant_method": "bitnet", "modules_to_not_convert": ["lm_head"]}, {Q0: 2, HEAD: 16}),
    "bitnet that packs nothing": ({"quant_method": "bitnet", "quantization_mode": "online"}, {Q0: 16}),
    "higgs": ({"quant_method": "higgs", "bits": 4, "group_size": 256}, {Q0: 4 + 16 / 256, HEAD: 16}),
    "quanto": ({"quant_method": "quanto", "weights": "int4"}, {Q0: 4 + 32 / 128}),
    "eetq": ({"quant_method": "eetq"}, {Q0: 8}),
    "exl3": ({"quant_method": "exl3", "bits": 3.5, "head_bits": 6}, {Q0: 3.5, HEAD: 6, TABLE: 16}),
    "exl3 by module": (
        {"quant_method": "exl3", "bits": 3.1, "head_bits": 6, "tensor_storage": {Q0: {"bits_per_weight": 5}}},
        {Q0: 5, Q1: 3.1},
    ),
    "torchao": (torchao("Int4WeightOnlyConfig", group_size=64), {Q0: 4 + 32 / 64, HEAD: 16}),
    "torchao, named": (
        {"quant_method": "torchao", "quant_type": "int8_weight_only", "include_input_output_embeddings": True},
        {Q0: 8, HEAD: 8, TABLE: 8},
    ),
    "torchao by module": (
        torchao(
            "ModuleFqnToConfig",
            module_fqn_to_config={
                "_default": {"_type": "Float8WeightOnlyConfig", "_data": {}},
                Q0: None,
                "re:.*down_proj": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}},
            },
        ),
        {Q0: 16, Q1: 8, DOWN0: 5},
    ),
    "quark": (
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
            "layer_quant_config": {
                "*down_proj": {
                    "weight": {"dtype": "uint4", "qscheme": "per_group", "group_size": 128, "symmetric": False}
                }
            },
            "exclude": ["lm_head"],
            "export": {"kv_cache_group": []},
        },
        {Q0: 8, DOWN0: 4 + 20 / 128, HEAD: 16},
    ),
    "quark, mxfp4": (
        {
            "quant_method": "quark",
            "global_quant_config": {
                "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
            },
            "exclude": ["re:.*self_attn.*"],
        },
        {Q0: 16, UP0: 4.25},
    ),
    # MLX has no method, packs tables, and has a scale and a bias of 16 bits
    "mlx": (
        {"bits": 4, "group_size": 64, Q0: {"bits": 8, "group_size": 64}, UP0: False},
        {Q0: 8.5, UP0: 16, TABLE: 4.5, HEAD: 4.5},
    ),
}


@pytest.fixture(scope="module")
def llama() -> Any:
    """Return the model of transformers."""
    return _built(Path("config.json"), dict(LLAMA))[0]


@pytest.mark.parametrize("name", CASES)
def test_bits_of_modules(llama: Any, name: str) -> None:
    """Each module has the bits that the format stores of it."""
    quantised, expected = CASES[name]
    bytes_of, _ = read_quantised("config.json", quantised).bytes_of(llama, 2.0)
    weights = dict(llama.named_parameters())
    bits = {
        module: bytes_of(f"{module}.weight", weights[f"{module}.weight"]) * 8 / weights[f"{module}.weight"].numel()
        for module in (*expected, "model.norm")
    }
    assert bits.pop("model.norm") == 16
    assert bits == pytest.approx(expected, rel=1e-9)


def test_experts_that_a_checkpoint_has_one_by_one(tmp_path: Path) -> None:
    """Transformers stacks them; rules name them as the checkpoint does, gate and up projections apart."""
    up = "model.layers.0.mlp.experts.gate_up_proj"
    down = "model.layers.0.mlp.experts.down_proj"
    usual = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    told = bits_of(
        described(tmp_path, {**usual, "dynamic": {r"-:.*experts\.0\.": {}, r".*up_proj": {"bits": 8}}}, MIXTURE)
    )
    packed, wide = 4 + 20 / 32, 8 + 24 / 32
    assert told[up] == pytest.approx((16 + 3 * (packed + wide) / 2) / 4)
    assert told[down] == pytest.approx((16 + 3 * packed) / 4)
    assert told["model.layers.0.mlp.gate"] == 16
    only = bits_of(described(tmp_path, {"quant_method": "mxfp4"}, MIXTURE))
    assert (only[up], only["model.layers.0.self_attn.q_proj"]) == (4.25, 16)
    mixed = bits_of(described(tmp_path, {"quant_method": "fp8", "expert_dtype": "fp4"}, MIXTURE))
    assert (mixed[down], mixed["model.layers.0.self_attn.q_proj"]) == (4.25, 8)


def test_a_tied_head_is_stored_as_its_table(tmp_path: Path) -> None:
    """It is one tensor, which is not packed where tables are not."""
    model = described(tmp_path, groups(linear(INT4)), {**LLAMA, "tie_word_embeddings": True})
    assert bits_of(model)[HEAD] == bits_of(model)[TABLE] == 16


def test_a_file_beside_the_configuration_has_the_quantisation(tmp_path: Path) -> None:
    """ModelOpt and old tools write one of their own; a changed one is read anew."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    beside = tmp_path / "hf_quant_config.json"
    for algorithm, bits in (("NVFP4", 4.5), ("FP8", 8)):
        told = {"quant_algo": algorithm, "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
        beside.write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": told}))
        assert bits_of(read_config(tmp_path))[Q0] == bits
    beside.unlink()
    (tmp_path / "quantize_config.json").write_text('{"bits": 4, "group_size": 128, "desc_act": false}')
    assert bits_of(read_config(tmp_path))[Q0] == 4 + 20 / 128


REFUSED = [
    ({"quant_method": "magic"}, r"quant_method is 'magic', which is none of gptq"),
    ({"quant_method": "gptq", "bits": "four"}, r"bits is 'four'"),
    ({"quant_method": "gptq"}, r"bits is None"),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:(": {}}}, r"dynamic is .* no regular expression"),
    ({"quant_method": "gptq", "bits": 4, "dynamic": {".*": {"bits": "x"}}}, r"dynamic: \.\*: bits is 'x'"),
    ({"quant_method": "gptq", "bits": 4, "other_rules": {"mlp": 8}}, r"other_rules is \{'mlp': 8\}"),
    ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": [3]}, r"modules_to_not_convert is \[3\]"),
    ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, r"config_groups is None"),
    (groups(linear({**INT4, "type": "posit"})), r"config_groups: group_0: weights: type is 'posit'"),
    (groups(linear(INT4, "LlamaMLP")), r"group_0: targets is \['LlamaMLP'\], with a class"),
    (groups(linear(INT4), sparsity_config={"format": "sparse-24-bitmask"}), r"sparsity_config is"),
    ({"quant_method": "modelopt", "quant_algo": "FP2"}, r"quant_algo is 'FP2'"),
    ({"quant_method": "bitsandbytes"}, r"load_in_4bit is None"),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "odd"}, r"data_type is 'odd'"),
    (torchao("SomeOtherConfig"), r"quant_type is \{'default'"),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp5"}}}, r"weight: dtype is 'fp5'"),
    ({"quant_method": "spqr", "bits": 3}, r"shapes is None"),
    ({"quant_method": "fp8", "weight_block_size": [128]}, r"weight_block_size is \[128\]"),
]


@pytest.mark.parametrize(("quantised", "message"), REFUSED)
def test_what_is_not_understood_is_named(quantised: dict[str, Any], message: str) -> None:
    """One line with the file, the key and the value, and what to do."""
    with pytest.raises(UnsupportedProblemError, match=message) as raised:
        read_quantised("there/config.json", quantised)
    assert str(raised.value).startswith("there/config.json: quantization_config: ")
    assert "give --precision" in str(raised.value)


def test_files_and_precisions_win_over_what_is_not_understood(tmp_path: Path) -> None:
    """Headers beside the configuration tell the bytes of every group; --precision asks for others."""
    with pytest.raises(UnsupportedProblemError, match="quant_method is 'magic'"):
        described(tmp_path, {"quant_method": "magic"})
    assert read_config(tmp_path, "int8").precision == "int8"
    held = {f"{Q0}.weight": 1000, f"{UP1}.weight": 3000, "lm_head.weight": 500, "model.embed_tokens.weight": 700}
    write_headers(tmp_path / "model.safetensors", held)
    model = read_config(tmp_path)
    assert [block.weight_bytes for block in model.blocks] == pytest.approx([1000, 3000])
    assert bits_of(model)[HEAD] == pytest.approx(500 * 8 / (256 * 1024))


def test_a_rule_for_every_module_of_thousands_is_quick(tmp_path: Path) -> None:
    """Tools write one entry per expert: as many rules as modules, each found by its name."""
    wide = {**MIXTURE, "num_experts": 128, "num_hidden_layers": 8}
    rules = {
        f"model.layers.{block}.mlp.experts.{expert}.{half}": {"bits": 2 + 2 * (expert % 2), "group_size": 32}
        for block in range(8)
        for expert in range(128)
        for half in ("gate_proj", "up_proj", "down_proj")
    }
    watch = Stopwatch()
    told = bits_of(described(tmp_path, {"quant_method": "auto-round", "bits": 8, "extra_config": rules}, wide))
    assert watch.seconds() < SOON_S
    assert told["model.layers.3.mlp.experts.down_proj"] == pytest.approx((2 + 18 / 32 + 4 + 20 / 32) / 2)
