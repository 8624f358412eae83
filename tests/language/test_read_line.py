"""Launch lines that people have: what they mean by the runtime's own rule, what is refused, and the best instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.typed import parse_line
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import InvalidProblemError, PlacekitError, UnsupportedProblemError

CARDS = pk.Platform.of(
    cpu=1, rtx4090=1, rtx3060=1, host="cpu", memory_bytes={"cpu": 64e9, "rtx4090": 24e9, "rtx3060": 12e9},
    links={"rtx4090": pk.Link(2e-5, 2e10), "rtx3060": pk.Link(2e-5, 1e10)},
).replace(spec_of_kind={"cpu": "cpu-8core-bf16", "rtx3060": "RTX 3060 12 GB"})  # fmt: skip


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
        ("vllm serve x -pp 3", "3 ranks on devices 0,1; there are 2"),
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
        ("llama-server -m x -ngl 9 -sm row", "--split-mode row is not read"),
        ("llama-server -m x -ngl 9 -ot exps=CPU", "rules of --override-tensor are not read"),
        ("llama-server -m x -ngl 9 -ctk q5_1", "-ctk q5_1 is not read"),
        ("vllm serve x -dp 2", "replicas are not read"),
    ],
)
def test_what_is_not_read_is_said(line: str, told: str) -> None:
    """Nothing that a line says is passed over."""
    with pytest.raises(UnsupportedProblemError, match=told):
        pk.read_line(line, "llama3-8b", CARDS, precision="int4")


def test_runtimes_without_a_reader_are_named() -> None:
    """A program whose record has no reader is not taken for another."""
    assert RUNTIMES["tensorrt-llm"].read is None
    with pytest.raises(PlacekitError, match="'trtllm-serve'"):
        parse_line("trtllm-serve x --pp_size 2", RUNTIMES.values())


def test_the_best_is_sought_with_the_degree_of_the_line() -> None:
    """A line with a team of two is no better than the best: teams of two are tried, though nobody asked for them."""
    pair = pk.Platform.of(rtx4090=2, memory_bytes={"rtx4090": 24e9}, links={"rtx4090": pk.Link(2e-5, 2e10)})
    read = pk.read_line("vllm serve x -tp 2", "llama3-8b", pair, precision="int4")
    assert read.task.problem.platform.devices[0].member_names == ("rtx4090.0", "rtx4090.1")
    assert {plan.task.problem.platform.devices[0].degree for plan in read.best.tried} == {1, 2}
    assert read.gain is not None
    assert read.gain >= 1 - 1e-9
