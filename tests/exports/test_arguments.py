"""Arguments of language-model runtimes: read as these read them, they give the placement back."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import pairwise

import numpy as np
import pytest
from serving_plans import TOLD, launch_of

import placekit as pk
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import model_step
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.llama.tensors import GGUF_TENSORS
from placekit.language.runtimes.record import Launch
from placekit.language.serving import Phase
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.served import Served

MODEL = Decoder(9, 64, 128, 500, heads=4, experts=4, experts_per_token=2)
GRAPH = model_step(describe_decoder(MODEL), Phase("decode", 1, 1, 10.0)).graph
PLATFORM = pk.Platform.of(cpu=1, gpu=3, host="cpu")


def block_of(name: str) -> int:
    """Return the block of an op; -1 before and 9 behind."""
    found = re.search(r"layers\.(\d+)\.", name)
    return int(found[1]) if found else (-1 if "embed" in name else MODEL.layers)


def placement_of(ends: tuple[int, ...], devices: tuple[int, ...]) -> pk.Placement:
    """Return the placement of blocks: up to the first of `ends` on the first of `devices`, and so on."""
    at = [devices[int(np.searchsorted(ends, block_of(name), side="right"))] for name in GRAPH.op_names]
    return pk.Placement(GRAPH.op_names, PLATFORM.device_names, np.array(at))


def options(told: Launch) -> dict[str, list[str]]:
    """Return the values of every option."""
    found: dict[str, list[str]] = {}
    for name, value in pairwise(told.arguments):
        if name.startswith("-"):
            found.setdefault(name, []).append(value)
    return found


ON_CARDS = [((2, 5, 10), (1, 2, 3)), ((4, 10), (3, 1)), ((10,), (2,)), ((0, 4, 9, 10), (3, 1, 2, 2))]
SPLITS = [*ON_CARDS, ((0, 4, 9, 10), (0, 1, 2, 3)), ((3, 10), (0, 2))]


@pytest.mark.parametrize(("ends", "devices"), ON_CARDS)
@pytest.mark.parametrize(
    ("runtime", "variable", "size"),
    [
        ("vllm", "VLLM_PP_LAYER_PARTITION", "--pipeline-parallel-size"),
        ("sglang", "SGLANG_PP_LAYER_PARTITION", "--pp-size"),
    ],
)
def test_vllm_partition_gives_the_stages_back(
    ends: tuple[int, ...], devices: tuple[int, ...], runtime: str, variable: str, size: str
) -> None:
    """Layers per stage, as `get_pp_indices` reads them: as many as stages, all layers in all; ranks see their cards."""
    placement = placement_of(ends, devices)
    told = launch_of(runtime, GRAPH, PLATFORM, placement)
    counts = [int(count) for count in told.environment[variable].split(",")]
    assert options(told)[size] == [str(len(counts))]
    ranks = told.environment.get("CUDA_VISIBLE_DEVICES", "0,1,2").split(",")
    assert [f"gpu.{rank}" for rank in ranks][: len(counts)] == list(told.devices)
    assert sum(counts) == MODEL.layers
    homes = [device for device, count in zip(told.devices, counts, strict=True) for _ in range(count)]
    assert homes == [placement[f"model.layers.{block}.self_attn.attn"] for block in range(MODEL.layers)]
    assert told.devices[0] == placement["model.embed_tokens"]
    assert told.devices[-1] == placement["lm_head"]


@pytest.mark.parametrize(("ends", "devices"), ON_CARDS)
def test_megatron_layout_gives_the_stages_back(ends: tuple[int, ...], devices: tuple[int, ...]) -> None:
    """Letters after unrolling ``x*n``: one E at the front, one L at the end, a t per block."""
    placement = placement_of(ends, devices)
    told = launch_of("megatron", GRAPH, PLATFORM, placement)
    layout = options(told)["--pipeline-model-parallel-layout"][0]
    stages = re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), layout).split("|")
    assert options(told)["--pipeline-model-parallel-size"] == [str(len(stages))]
    assert re.fullmatch("Et*L", "".join(stages))
    homes = [device for device, stage in zip(told.devices, stages, strict=True) for _ in range(stage.count("t"))]
    assert homes == [placement[f"model.layers.{block}.self_attn.attn"] for block in range(MODEL.layers)]


@pytest.mark.parametrize(("ends", "devices"), ON_CARDS)
def test_settings_of_tensorrt_llm_and_torchtitan_give_the_stages_back(
    ends: tuple[int, ...], devices: tuple[int, ...]
) -> None:
    """A list of counts in YAML, and a list of module paths per stage in TOML."""
    placement = placement_of(ends, devices)
    told = launch_of("tensorrt-llm", GRAPH, PLATFORM, placement)
    settings = dict(line.split(": ", 1) for line in told.settings.splitlines())
    counts = json.loads(settings["pp_partition"])
    homes = [device for device, count in zip(told.devices, counts, strict=True) for _ in range(count)]
    assert homes == [placement[f"model.layers.{block}.self_attn.attn"] for block in range(MODEL.layers)]
    told = launch_of("torchtitan", GRAPH, PLATFORM, placement)
    parts = tomllib.loads(told.settings)["parallelism"]["module_fqns_per_model_part"]
    modules = ["tok_embeddings", *(f"layers.{block}" for block in range(MODEL.layers)), "norm", "output"]
    assert [module for part in parts for module in part] == modules
    assert [sum(module.startswith("layers.") for module in part) for part in parts] == counts


def test_a_cpu_is_no_stage_of_a_runtime_on_accelerators() -> None:
    """It is refused, and the refusal names the way out."""
    for runtime in ("vllm", "sglang", "tensorrt-llm", "megatron", "torchtitan"):
        with pytest.raises(UnsupportedProblemError, match=f"'cpu.0' holds blocks 0 to 2; place with --for {runtime}"):
            launch_of(runtime, GRAPH, PLATFORM, placement_of((3, 10), (0, 2)))


@pytest.mark.parametrize(
    ("kind", "name", "buffer"),
    [("rtx4090", "a", "CUDA0"), ("arc-a770", "a", "SYCL0"), ("mi300x", "a", "ROCm0"), ("m2-ultra", "a", "MTL0"),
     ("rtx4090", "Vulkan3", "Vulkan3")],
)  # fmt: skip
def test_buffers_are_called_after_the_backend(kind: str, name: str, buffer: str) -> None:
    """By the kind or spec of the device, or by its own name."""
    platform = pk.Platform((pk.Device("CPU", "cpu", is_host=True), pk.Device(name, kind)))
    placement = pk.Placement(GRAPH.op_names, platform.device_names, np.ones(GRAPH.num_ops, dtype=np.int64))
    told = launch_of("llama.cpp", GRAPH, platform, placement)
    assert options(told)["--device"] == [buffer]


def test_llama_cpp_holds_the_cache_that_was_planned() -> None:
    """Its context is that of all slots together; values are quantised with flash attention only."""
    served = Served(context=4096, sequences=3, chunk=512, cache_precision="int8")
    told = launch_of("llama.cpp", GRAPH, PLATFORM, placement_of((10,), (1,)), served)
    values = options(told)
    assert (values["-c"], values["-np"], values["-ctk"], values["-ctv"]) == (["12288"], ["3"], ["q8_0"], ["q8_0"])
    assert (values["-fa"], values["--fit"], values["-ub"]) == (["on"], ["off"], ["512"])


def llama_homes(told: Launch) -> dict[str, str]:
    """Return the buffer of every tensor as llama.cpp chooses it, in its own single precision."""
    values = options(told)
    layers, offloaded = MODEL.layers, int(values["--n-gpu-layers"][0])
    devices = values.get("--device", [""])[0].split(",")
    split = np.cumsum(np.array(values.get("--tensor-split", ["1"])[0].split(","), dtype=np.float32))
    split = (split / split[-1]).astype(np.float32)
    first, active = max(layers + 1 - offloaded, 0), min(offloaded, layers + 1)

    def home(block: int) -> str:
        if block < first or block - first >= active:
            return "CPU"
        return devices[int(np.searchsorted(split, np.float32(block - first) / np.float32(active), side="right"))]

    tensors = {"token_embd.weight": "CPU", "output_norm.weight": home(layers), "output.weight": home(layers)}
    for block in range(layers):
        for name in {name for names in GGUF_TENSORS.values() for name in names}:
            tensors[f"blk.{block}.{name}.weight"] = home(block)
    assert all(len(given) == 1 for given in values.values()), "llama.cpp keeps the last value of a repeated flag"
    told_rules = values.get("--override-tensor", [""])[0]
    rules = [rule.rpartition("=")[::2] for rule in told_rules.split(",") if rule]
    assert {buffer for _, buffer in rules} <= {"CPU", *devices}, "llama.cpp: unknown buffer type"
    assert len({pattern for pattern, _ in rules}) == len(rules), "the first rule of a pattern hides the others"
    return {
        name: next((buffer for pattern, buffer in rules if re.search(pattern, name)), at)
        for name, at in tensors.items()
    }


def buffer_of(placement: pk.Placement, op: str) -> str:
    """Return the buffer that stands for the device of an op."""
    device = placement[op]
    return "CPU" if device == "cpu.0" else f"CUDA{device[-1]}"


@pytest.mark.parametrize(("ends", "devices"), SPLITS)
@pytest.mark.parametrize("moved", [{}, {3: 0, 7: 0}, {1: 3, 5: 1, 8: 0}, dict.fromkeys(range(9), 2)])
@pytest.mark.parametrize("last", [None, (0, 3), (1, 0), (3, 2)])
def test_llama_cpp_puts_every_tensor_where_the_placement_has_it(
    ends: tuple[int, ...], devices: tuple[int, ...], moved: dict[int, int], last: tuple[int, int] | None
) -> None:
    """Blocks by the split, embedding and output by it or by a rule; experts, last norm and head that are moved, too."""
    placement = placement_of(ends, devices)
    at = placement.device_of_op.copy()
    for op, name in enumerate(GRAPH.op_names):
        if name.endswith("_exps") and block_of(name) in moved:
            at[op] = moved[block_of(name)]
    if last is not None:
        at[GRAPH.op_index["model.norm"]], at[GRAPH.op_index["lm_head"]] = last
    placement = pk.Placement(GRAPH.op_names, PLATFORM.device_names, at)
    homes = llama_homes(launch_of("llama.cpp", GRAPH, PLATFORM, placement))
    assert homes["token_embd.weight"] == buffer_of(placement, "model.embed_tokens")
    assert homes["output_norm.weight"] == buffer_of(placement, "model.norm")
    assert homes["output.weight"] == buffer_of(placement, "lm_head")
    for name in GRAPH.op_names:
        path = re.sub(r"^model\.layers\.\d+\.", "", name)
        for tensor in GGUF_TENSORS.get(path, ()):
            assert homes[f"blk.{block_of(name)}.{tensor}.weight"] == buffer_of(placement, name), name


def test_ends_that_llama_cpp_cannot_have_are_refused() -> None:
    """A head that is the embedding stays where the last block is; one tensor is on one device."""
    ends = placement_of((0, 5, 9, 10), (0, 1, 2, 1))
    assert "gpu" in launch_of("llama.cpp", GRAPH, PLATFORM, ends).devices[0]
    with pytest.raises(UnsupportedProblemError, match="has a head that is the embedding where the last block is, not"):
        launch_of("llama.cpp", GRAPH, PLATFORM, ends, Served(tied=True))
    at_block = placement_of((0, 5, 10), (0, 1, 2))
    told = launch_of("llama.cpp", GRAPH, PLATFORM, at_block, Served(tied=True))
    assert not [pattern for pattern in options(told).get("--override-tensor", []) if "output" in pattern]
    names = ("embed.a", "embed.b", "layers.0", "head")
    graph = OpGraph.from_edges(names, list(pairwise(names))).replace(op_weight_bytes=[1.0] * 4, op_flops=[1.0] * 4)
    apart = pk.Placement(names, PLATFORM.device_names, np.array([0, 1, 1, 1]))
    with pytest.raises(UnsupportedProblemError, match=r"has one tensor token_embd; 'embed.b' is on .*, and another op"):
        launch_of("llama.cpp", graph, PLATFORM, apart)


def test_tensor_names_are_those_of_gguf() -> None:
    """The package that writes such files has the same names for the same modules."""
    gguf = pytest.importorskip("gguf")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for path, tensors in GGUF_TENSORS.items():
        if "qkv" in path or "gate_up" in path or "exps" in path or "shared" in path or path == "mlp.gate":
            continue  # several tensors in one, or merged by the converter
        assert names.get_name(f"model.layers.1.{path}") == f"blk.1.{tensors[0]}"
    known = {name.format(bid=1) for name in gguf.TENSOR_NAMES.values()} | {"blk.1.ffn_gate_up_chexps"}
    assert {f"blk.1.{tensor}" for tensors in GGUF_TENSORS.values() for tensor in tensors} <= known


def test_replicas_are_told_where_there_are_some() -> None:
    """Whole pipelines are replicated by vLLM and Megatron: teams of one size; by llama.cpp nothing is."""
    platform = pk.Platform.of(cpu=1, gpu=4, host="cpu")
    at = [1 if block_of(name) < 4 else 3 for name in GRAPH.op_names]
    even = pk.Placement(GRAPH.op_names, platform.device_names, np.array(at), team_of_device=np.array([0, 1, 1, 3, 3]))
    told = launch_of("vllm", GRAPH, platform, even)
    assert options(told)["--data-parallel-size"] == ["2"]
    assert told.devices == ("gpu.0", "gpu.2", "gpu.1", "gpu.3")
    assert launch_of("megatron", GRAPH, platform, even).devices == ("gpu.0", "gpu.1", "gpu.2", "gpu.3")
    uneven = pk.Placement(GRAPH.op_names, platform.device_names, np.array(at), team_of_device=np.array([0, 1, 1, 3, 4]))
    for runtime in ("vllm", "megatron"):
        with pytest.raises(UnsupportedProblemError, match=r"teams \('gpu.0\+gpu.1'\) are larger than others"):
            launch_of(runtime, GRAPH, platform, uneven)
    with pytest.raises(UnsupportedProblemError, match=r"llama.cpp has no replicas, as 'gpu.0\+gpu.1' is"):
        launch_of("llama.cpp", GRAPH, platform, uneven)


def test_placements_that_cannot_be_told_are_refused() -> None:
    """Halves of blocks, devices that come back, a CPU in the middle; models without blocks."""
    at = placement_of((4, 10), (1, 2)).device_of_op.copy()
    at[GRAPH.op_index["model.layers.1.mlp.down_proj_exps"]] = 2
    halves = pk.Placement(GRAPH.op_names, PLATFORM.device_names, at)
    with pytest.raises(UnsupportedProblemError, match="vllm takes whole blocks, but block 1 of 'decoder' is on"):
        launch_of("vllm", GRAPH, PLATFORM, halves)
    with pytest.raises(UnsupportedProblemError, match=r"a run of blocks per stage, but 'gpu.0' has block 6"):
        launch_of("megatron", GRAPH, PLATFORM, placement_of((3, 6, 10), (1, 2, 1)))
    with pytest.raises(UnsupportedProblemError, match="keeps the first blocks on the CPU; block 5 is there behind"):
        launch_of("llama.cpp", GRAPH, PLATFORM, placement_of((5, 10), (1, 0)))
    with pytest.raises(UnsupportedProblemError, match=r"'gpu.0' has block 6 and blocks before those of 'gpu.1'"):
        launch_of("llama.cpp", GRAPH, PLATFORM, placement_of((3, 6, 10), (1, 2, 1)))
    flat = OpGraph.from_edges(["a", "b"], [("a", "b")])
    with pytest.raises(UnsupportedProblemError, match="no blocks"):
        launch_of("vllm", flat, PLATFORM, pk.Placement(("a", "b"), PLATFORM.device_names, np.array([0, 1])))


@pytest.mark.parametrize(
    ("runtime", "model", "said"),
    [
        ("vllm", "models/Qwen3/config.json", "vllm serve models/Qwen3"),
        ("vllm", "llama3-8b", "vllm serve llama3-8b"),
        ("llama.cpp", "models/Qwen3/config.json", "llama-server -m Qwen3.gguf"),
        ("llama.cpp", "models/q3.gguf", "llama-server -m models/q3.gguf"),
    ],
)
def test_a_line_names_what_the_runtime_reads(runtime: str, model: str, said: str) -> None:
    """Runtimes of transformers' models read a folder, llama.cpp a GGUF file."""
    assert Launch(RUNTIMES[runtime]).line(model) == said


@pytest.mark.parametrize("runtime", TOLD)
def test_an_op_away_from_its_block_is_refused_by_every_runtime(runtime: str) -> None:
    """Also one without weights, which no rule of llama.cpp moves: its device would lose it without a word."""
    names = ["embed", *(f"layers.{block}.{part}" for block in range(4) for part in ("attn", "act", "mlp")), "head"]
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    weights = np.array([0.0 if name.endswith("act") else 1.0 for name in names])
    graph = graph.replace(op_flops=np.ones(len(names)), op_weight_bytes=weights)
    platform = pk.Platform.of(gpu=3)
    device = np.array([0] * 7 + [1] * 7)
    if runtime == "llama.cpp":
        platform, device = pk.Platform.of(cpu=1, gpu=3, host="cpu"), np.array([0, *([1] * 6), *([2] * 7)])
    launch_of(runtime, graph, platform, pk.Placement(tuple(names), platform.device_names, device))
    device[names.index("layers.1.act")] = platform.num_devices - 1
    with pytest.raises(UnsupportedProblemError, match=r"block 1'? .*is on|'layers.1.act' is on 'gpu.2'"):
        launch_of(runtime, graph, platform, pk.Placement(tuple(names), platform.device_names, device))
