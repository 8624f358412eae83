"""Launch lines that people have: what they mean by the runtime's own rule, what is refused, and the best instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.language.decoder import get_decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.planning.question import Wishes
from placekit.language.runtimes import OWN, RUNTIMES
from placekit.language.runtimes.typed import parse_line
from placekit.language.serving import Serving
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import InvalidProblemError, PlacekitError, UnsupportedProblemError

CARDS = pk.Platform.of(
    cpu=1, rtx4090=1, rtx3060=1, host="cpu", memory_bytes={"cpu": 64e9, "rtx4090": 24e9, "rtx3060": 12e9},
    links={"rtx4090": pk.Link(2e-5, 2e10), "rtx3060": pk.Link(2e-5, 1e10)},
).replace(spec_of_kind={"cpu": "cpu-8core-bf16", "rtx3060": "RTX 3060 12 GB"})  # fmt: skip
SMALL = CARDS.with_devices(device for device in CARDS.devices if device.kind != "rtx4090")
WIDE = pk.Platform.of(rtx4090=1, l4=1, memory_bytes={"rtx4090": 24e9, "l4": 24e9},
                      links={"rtx4090": pk.Link(2e-5, 2e10), "l4": pk.Link(2e-5, 2e10)})  # fmt: skip


def blocks_on(read: Any) -> list[int]:
    """Return the blocks of every device, and the device of the head as the last entry."""
    number = block_numbers(read.task.problem.graph)
    device = read.placement.device_of_op
    return [len(np.unique(number[(device == at) & (number >= 0)])) for at in range(len(CARDS.devices))]


@pytest.mark.parametrize(
    ("line", "blocks", "head"),
    [
        # 32 blocks and the output are 33 layers; of shares 3 and 1 the first has 25, of 1 and 1 17
        ("llama-server -m x.gguf -ngl 99 -ts 3,1", [0, 25, 7], 2),
        ("llama-server -m x.gguf --n-gpu-layers 20 --tensor-split=1,0", [13, 19, 0], 1),
        ("llama-server -m x.gguf -ngl 20 -ts 1", [13, 19, 0], 1),  # no share is none
        ("./build/bin/llama-server --model x.gguf -ngl 10 -dev CUDA1 -t 8 --mlock", [23, 0, 9], 2),
        ("llama-cli -m x.gguf -ngl 0", [32, 0, 0], 0),
        ("llama-server -m x.gguf -ngl all -dev CUDA1,CUDA0 -ts 1,1 \\\n -fa --port 8080", [0, 15, 17], 1),
    ],
)
def test_blocks_are_where_llama_cpp_puts_them(line: str, blocks: list[int], head: int) -> None:
    """By hand from its rule: the last layers go to the devices, by shares."""
    read = pk.read_line(line, "llama3-8b", CARDS, precision="int4")
    assert blocks_on(read) == blocks
    assert read.placement.device_of_op[read.task.problem.graph.op_index["lm_head"]] == head
    assert read.loads
    assert read.gain is not None
    assert read.gain >= 1 - 1e-9


def test_it_says_where_there_is_no_room() -> None:
    """A cache of 131,072 tokens does not fit beside all blocks on the smaller card."""
    read = pk.read_line("llama-server -m x -ngl 99 -dev CUDA1 -c 131072", "llama3-8b", CARDS, precision="int4")
    assert [each.device for each in read.too_full] == ["rtx3060.0"]
    assert read.task.serving.context == 131072
    assert read.best.result.placement is not None


def test_feed_forward_on_the_host_counts() -> None:
    """The weights of 8 blocks' feed-forward leave the card, and time goes up."""
    plain, hosted = (
        pk.read_line(f"llama-server -m x -ngl 99 -dev CUDA0 {more}", "llama3-8b", CARDS, precision="int4")
        for more in ("", "--n-cpu-ffn 8")
    )
    held = [read.report.memory[-1].weight_bytes for read in (plain, hosted)]
    assert held[0] - held[1] == pytest.approx(8 * 3 * 4096 * 14336 * 4.5 / 8, rel=0.01)
    assert hosted.report.tokens_per_s < plain.report.tokens_per_s


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("vllm serve x -pp 2", [16, 16]),
        ("VLLM_PP_LAYER_PARTITION=20,12 vllm serve x --pipeline-parallel-size=2 --max-model-len 2048", [20, 12]),
        ("python -m sglang.launch_server --model-path x --pp-size 2", [16, 16]),
        ("CUDA_VISIBLE_DEVICES=1,0 SGLANG_PP_LAYER_PARTITION=4,28 python -m sglang.launch_server --model x --pp-size 2",
         [28, 4]),
    ],
)  # fmt: skip
def test_stages_of_servers(line: str, counts: list[int]) -> None:
    """The list of blocks, or as many for each stage; ranks are the visible cards in their order."""
    read = pk.read_line(line, "llama3-8b", CARDS, precision="int4")
    of_card = blocks_on(read)
    assert [count for count in of_card if count] == counts


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "begins with ''"),
        ("ollama run x", "begins with 'ollama'; programs are"),
        ("llama-server -m 'x", "cannot be split into words"),
        ("llama-server -m x -ngl 3 --n-cpu-mo 8", "'--n-cpu-mo' is not known; near is --n-cpu-moe"),
        ("llama-server -m x -ngl", "'-ngl' has no value"),
        ("llama-server -m x -ngl many", "--n-gpu-layers 'many': it is a whole number"),
        ("llama-server -m x -ngl 9 stray", "'stray' follows no option"),
        ("llama-server -m x -m y -ngl 9", "two models: 'x' and 'y'"),
        ("llama-server -m x -ngl 9 -ts 1,1,1", "3 shares for 2 devices"),
        ("llama-server -m x -ngl 9 -ts a,1", "a share that is no number"),
        ("llama-server -m x -ngl 9 -dev CUDA7", "--device CUDA7: devices are CUDA0, CUDA1"),
        ("llama-server -m x -ngl 9 --rpc desk:50052", "no device is at this address"),
        ("vllm serve x -tp two", "--tensor-parallel-size 'two': it is a whole number"),
        ("vllm serve x -pp 3", "3 ranks on rtx4090.0, rtx3060.0; there are 2"),
        ("VLLM_PP_LAYER_PARTITION=20,20 vllm serve x -pp 2", "40 blocks; the model has 32"),
        ("VLLM_PP_LAYER_PARTITION=32 vllm serve x -pp 2", "it has the blocks of 2 stages"),
    ],
)
def test_a_line_that_is_wrong_is_refused_by_its_word(line: str, told: str) -> None:
    """One line that names the word, the value and what there is."""
    with pytest.raises(InvalidProblemError) as caught:
        pk.read_line(line, "llama3-8b", CARDS, precision="int4")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("llama-server -m x -c 4096", "without --n-gpu-layers llama.cpp chooses it"),
        ("llama-server -m x -ngl auto -c 4096", "without --n-gpu-layers llama.cpp chooses it"),
        ("llama-server -m x -ngl 9 --model-draft y", "llama.cpp: --model-draft is not read"),
        ("llama-server -m x -ngl 9 -sm row", "--split-mode row is not read"),
        (
            "llama-server -m x -ngl 9 -ot ffn_up=CPU",
            "rules part blk.24.ffn_gate.weight and blk.24.ffn_up.weight, one op",
        ),
        ("llama-server -m x -ngl 9 -ctk q5_1", "-ctk q5_1 is not read"),
        ("vllm serve x -tp 2 --enable-expert-parallel", "vllm: --enable-expert-parallel is not read"),
        ("vllm serve x --kv-cache-dtype int3", "--kv-cache-dtype int3 is not read"),
        ("torchrun pretrain_gpt.py --context-parallel-size 2", "--context-parallel-size is not read"),
        ("torchrun -m torchtitan.train --parallelism.pipeline_parallel_degree 2", "without module_fqns_per_model_part"),
        ('device_map = {"": "disk"}', "weights on a disk are not read"),
    ],
)
def test_what_is_not_read_is_said(line: str, told: str) -> None:
    """Nothing that a line says is passed over."""
    with pytest.raises(UnsupportedProblemError, match=told):
        pk.read_line(line, "llama3-8b", CARDS, precision="int4")


def test_every_runtime_of_placekit_reads_lines() -> None:
    """A record of a package may have no reader: its line is not taken for another."""
    assert [record.name for record in OWN if record.read is None] == []
    silent = replace(RUNTIMES["tensorrt-llm"], read=None)
    with pytest.raises(UnsupportedProblemError, match="lines of tensorrt-llm are not read"):
        parse_line("trtllm-serve x --pp_size 2", [silent])


TRTLLM = "trtllm-serve x --pp_size 2 --extra_llm_api_options"
TITAN = (
    "torchrun --nproc_per_node=2 -m torchtitan.train --job.config_file x.toml --parallelism.pipeline_parallel_degree"
)
PARTS = [["tok_embeddings", *(f"layers.{at}" for at in range(9))], [*(f"layers.{at}" for at in range(9, 32)), "norm"]]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (TRTLLM.replace("2 --extra_llm_api_options", "2"), [16, 16]),
        (f"{TRTLLM} settings.yaml\npp_partition: [20, 12]\nmax_seq_len: 2048", [20, 12]),
        (f"CUDA_VISIBLE_DEVICES=1,0 {TRTLLM} a.yaml\npp_partition: [20, 12]", [12, 20]),
        (f"{TRTLLM} a.yaml\npp_partition:\n- 30\n- 2\nkv_cache_config:\n  dtype: fp8", [30, 2]),
        ("torchrun --standalone --nproc-per-node 2 pretrain_gpt.py --bf16 --num-layers 32 --hidden-size 4096 "
         "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*20|(t)*12L'", [20, 12]),
        ("python -m torch.distributed.run --nproc_per_node=2 my.py --pipeline-model-parallel-size=2", [16, 16]),
        (f"{TITAN} 2\n[parallelism]\nmodule_fqns_per_model_part = {PARTS}", [9, 23]),
        ("export CUDA_VISIBLE_DEVICES=1\nvllm serve x  # one card", [32]),
        ('device_map = {"model.embed_tokens": 0, **{f"model.layers.{i}": 0 for i in range(0, 20)}, '
         '**{f"model.layers.{i}": "cuda:1" for i in range(20, 32)}, "model.norm": 1, "lm_head": 1}', [20, 12]),
        ('{"model": 1, "lm_head": "cuda:1"}', [32]),
        ('device = "HETERO:rtx4090.0,cpu.0"\naffinities = {"model.embed_tokens": "cpu.0", "lm_head": "cpu.0", '
         '"model.norm": "cpu.0", "model.layers": "rtx4090.0"}', [32]),
    ],
)  # fmt: skip
def test_lines_of_the_other_runtimes(line: str, counts: list[int]) -> None:
    """Settings below the line count as its file, maps are Python or JSON, and ranks are the visible cards."""
    launch, _ = parse_line(line, RUNTIMES.values())
    read = pk.read_line(line, "llama3-8b", CARDS, precision="int4")
    assert [count for count in blocks_on(read) if count] == counts
    assert read.launch.runtime is launch.runtime
    assert read.report.tokens_per_s > 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{TRTLLM} nowhere.yaml", "--extra_llm_api_options nowhere.yaml cannot be read"),
        (f"{TRTLLM} a.yaml\npp_partition: [32]", "it has the blocks of 2 stages"),
        (f"{TRTLLM} a.yaml\npp_partition: [30, 3]", "stages of 30, 3 blocks are 33; the model has 32"),
        (f"{TRTLLM} a.yaml\npp_partition: [30", "the settings of tensorrt-llm cannot be read"),
        ("torchrun a.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*3L", "in 2 stages"),
        ("torchrun a.py --pipeline-model-parallel-siz 2", "near is --pipeline-model-parallel-size"),
        (f"{TITAN} 2\n[parallelism]\nmodule_fqns_per_model_part = [['layers.0'], ['layers.2']]", "has blocks [0, 2]"),
        ('device_map = {"model": 7, "lm_head": 0}', "'model': 7: devices are cpu, 0, 1"),
        ('device_map = {"model": 0}', "no entry for 'lm_head'"),
        ('device_map = {"model": open("x")}', "line 1 of the map has more than names"),
        ('my_map = {"model": 0}', "Python that assigns my_map: maps are called affinities, device, device_map"),
        ('affinities = {"": "NPU"}', "'': 'NPU': devices are cpu.0, rtx4090.0, rtx3060.0"),
        ("llama-server -m x -ngl 9 -ot exps", "--override-tensor exps: buffers are CUDA0, CUDA1, CPU"),
        ("llama-server -m x -ngl 9 -ot '(=CPU'", "a pattern cannot be read"),
        ("vllm serve x\nllama-server -m x", "the lines are of vllm and llama.cpp"),
        ("vllm serve x\nvllm serve x", "there are 2 lines of vllm"),
        ("CUDA_VISIBLE_DEVICES=2 vllm serve x", "CUDA_VISIBLE_DEVICES=2: there are 2 devices"),
        ("vllm serve x --gpu-memory-utilization 90", "--gpu-memory-utilization '90': it is a share"),
    ],
)
def test_wrong_settings_and_maps_are_refused_by_their_word(line: str, told: str) -> None:
    """One line that names the word, the value and what there is."""
    with pytest.raises(PlacekitError) as caught:
        pk.read_line(line, "llama3-8b", CARDS, precision="int4")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rules_move_tensors_and_what_is_between() -> None:
    """Rules for feed-forward layers of 8 blocks are as heavy as `--n-cpu-ffn 8`, and all layers stay on the card."""
    rule, option = (
        pk.read_line(f"llama-server -m x -ngl 99 -dev CUDA0 {more}", "llama3-8b", CARDS, precision="int4")
        for more in (r"-ot 'blk\.[0-7]\.ffn_(up|gate|down)\.=CPU'", "--n-cpu-ffn 8")
    )
    card, moved = (next(each for each in read.report.memory if each.device == "rtx4090.0") for read in (option, rule))
    assert moved.weight_bytes == pytest.approx(card.weight_bytes)
    assert rule.report.time_per_token_s == pytest.approx(option.report.time_per_token_s, rel=0.02)
    mlp = [op for op in rule.task.problem.graph.op_names if ".layers.3.mlp" in op and not op.endswith("add")]
    assert len(mlp) == 3
    assert {rule.placement[op] for op in mlp} == {"cpu.0"}, "what runs between two tensors of the host runs there"


def test_llama_cpp_sees_the_visible_cards() -> None:
    """CUDA0 is the first visible card, whatever its number."""
    read = pk.read_line(
        "CUDA_VISIBLE_DEVICES=1,0 llama-server -m x -ngl 99 -ts 1,0", "llama3-8b", CARDS, precision="int4"
    )
    assert blocks_on(read) == [0, 0, 32]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("sudo nohup ./llama-server -hf ggml-org/x:Q4 -ngl all -ts 2,1 --jinja --temp 0.7 -fa on -t 8 > log 2>&1 &",
         [22, 10]),
        ("CUDA_VISIBLE_DEVICES=0 llama-cli -m x.gguf -ngl -2 -p 'hello; world & more' -n 64 -no-cnv", [32]),
        ("cd /models && export CUDA_VISIBLE_DEVICES=1 && llama-bench -m x -ngl 99 -fa 1 -p 512 -n 128", [32]),
        ("python3 -m vllm.entrypoints.openai.api_server --model x --enforce-eager --dtype auto -pp 2", [16, 16]),
        ("vllm serve x -q awq --pipeline-parallel-size 2 --enable-auto-tool-choice --tool-call-parser x", [16, 16]),
        ("sglang serve --model-path x --pp 2 --trust-remote-code --log-level info", [16, 16]),
        ("trtllm-serve serve x --backend pytorch --pp_size 2 --host 0.0.0.0", [16, 16]),
        ("nohup torchrun --nproc_per_node 2 --nnodes=1 pretrain_gpt.py --tensor-model-parallel-size 1 "
         "--pipeline-model-parallel-size 2 --micro-batch-size 4 --seq-length 4096 --use-mcore-models", [16, 16]),
    ],
)  # fmt: skip
def test_lines_as_people_type_them(line: str, counts: list[int]) -> None:
    """Other names of options, words around the command, and options that change nothing."""
    read = pk.read_line(line, "llama3-8b", CARDS, precision="int4")
    assert [count for count in blocks_on(read) if count] == counts


def test_a_line_without_a_context_takes_the_model_s() -> None:
    """llama.cpp loads with as much as the model was trained for."""
    shape = describe_decoder(get_decoder("llama3-8b", {}), "int4")
    read = pk.read_line("llama-server -m x -ngl 99", replace(shape, trained_tokens=16384), CARDS)
    assert read.task.serving.context == 16384


def test_the_share_of_memory_is_that_of_the_line() -> None:
    """What vLLM may fill of a card is its limit."""
    limits = [
        pk.read_line(f"vllm serve x {more}", "llama3-8b", CARDS, precision="int4").report.memory[0].limit_bytes
        for more in ("", "--gpu-memory-utilization 0.8")
    ]
    assert limits[0] is not None and limits[1] is not None  # noqa: PT018  # for mypy
    assert limits[0] - limits[1] == pytest.approx(0.1 * 24e9, rel=1e-6)


def test_the_best_is_sought_with_the_degree_of_the_line() -> None:
    """A line with a team of two is no better than the best: teams of two are tried, though nobody asked for them."""
    pair = pk.Platform.of(rtx4090=2, memory_bytes={"rtx4090": 24e9}, links={"rtx4090": pk.Link(2e-5, 2e10)})
    read = pk.read_line("vllm serve x -tp 2", "llama3-8b", pair, precision="int4")
    assert read.task.problem.platform.devices[0].member_names == ("rtx4090.0", "rtx4090.1")
    assert {plan.task.problem.platform.devices[0].degree for plan in read.best.tried} == {1, 2}
    assert read.gain is not None
    assert read.gain >= 1 - 1e-9


@pytest.mark.parametrize(
    ("runtime", "model", "cards", "wishes", "part"),
    [
        ("llama.cpp", "llama3-8b", SMALL, Wishes(serving=Serving(512, 128, context=131072)), "-nkvo"),
        ("llama.cpp", "mixtral-8x7b", SMALL, Wishes(serving=Serving(512, 128, context=8192)), "--n-cpu-moe"),
        ("llama.cpp", "llama3-70b", CARDS, Wishes(serving=Serving(4096, 128)), "-ub 1024 --n-cpu-ffn"),
        ("llama.cpp", "llama3-8b", CARDS, Wishes(serving=Serving(256, 64), cache_precision="int8"), "-ctk q8_0"),
        ("vllm", "llama3-8b", CARDS, Wishes(serving=Serving(256, 64, sequences=4), batch=4), "--max-num-seqs 4"),
        ("sglang", "llama3-70b", WIDE, Wishes(serving=Serving(256, 64), goal="latency"), "--pp-size 2"),
        ("accelerate", "llama3-70b", CARDS, Wishes(serving=Serving(256, 64)), "device_map"),
    ],
)
def test_the_line_of_a_plan_is_as_fast_as_the_plan(
    runtime: str, model: str, cards: pk.Platform, wishes: Wishes, part: str
) -> None:
    """What the reader makes of the planner's own line delivers what the planner said."""
    plan = pk.plan_serving(model, cards, runtime, precision="int4", wishes=wishes)
    assert plan.report is not None
    line = "\n".join(plan.launch)
    assert part in line
    read = pk.read_line(line, model, cards, precision="int4", wishes=wishes, runtime=runtime)
    assert read.loads
    assert read.report.tokens_per_s == pytest.approx(plan.report.tokens_per_s)
    for mine, told in zip(read.report.memory, plan.report.memory, strict=True):
        assert mine.device == told.device
        assert mine.weight_bytes == pytest.approx(told.weight_bytes)
        assert mine.cache_bytes == pytest.approx(told.cache_bytes)
