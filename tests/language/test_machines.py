"""Several machines: the order that a runtime has, lines of each, and torchrun's own ranks."""

from __future__ import annotations

import logging
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from serving_plans import launch_of

import placekit as pk
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import model_step
from placekit.language.planning.question import Wishes
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.typed import parse_line
from placekit.language.serving import Phase, Serving
from placekit.model.errors import UnsupportedProblemError
from placekit.model.platform import Device, DirectLink, Platform
from placekit.model.served import Served

LINK = DirectLink(3e-5, 2.8e9, between_nodes=True)
SIZES = {"n0": ("a100-40gb", 2), "n1": ("l4", 4), "n2": ("t4", 4)}
GRAPH = model_step(describe_decoder(Decoder(6, 64, 128, 500, heads=4)), Phase("decode", 1, 1, 10.0)).graph
NUMBERS = [int(name.split(".")[2]) if "layers" in name else 0 if "embed" in name else 5 for name in GRAPH.op_names]


def rack(sizes: dict[str, tuple[str, int]]) -> Platform:
    """Return machines with cards of one kind each."""
    cards = [Device(f"{node}.{at}", kind, node=node) for node, (kind, count) in sizes.items() for at in range(count)]
    return Platform(tuple(cards), direct_links=(LINK,))


@pytest.mark.parametrize("runtime", ["vllm", "megatron", "torchtitan"])
def test_machines_stand_in_an_order_that_the_runtime_has(runtime: str) -> None:
    """The line of every machine is read back to the plan; what the order costs stays below a tenth."""
    wishes = Wishes(serving=Serving(512, 128, sequences=16))
    plan = pk.plan_serving("llama3-70b", rack(SIZES), runtime, precision="int4", wishes=wishes)
    placement, problem = plan.result.placement, plan.plan.task.problem
    assert placement is not None
    assert plan.result.objective is not None
    assert plan.result.lower_bound is not None
    assert plan.result.objective <= 1.1 * plan.result.lower_bound
    launch, _ = parse_line("\n".join(plan.launch), RUNTIMES.values(), runtime)
    record = RUNTIMES[runtime]
    assert record.read is not None
    assert (record.read(record, launch, problem).placement.device_of_op == placement.device_of_op).all()
    if runtime == "vllm":
        counts = [int(start.arguments[-1]) for start in launch.starts]
        assert counts[1:] == sorted(counts[1:])


@pytest.mark.parametrize(
    ("runtime", "stages", "told"),
    [
        ("sglang", [0, 1, 3], "sglang has as many ranks on every machine; the plan has a 2, b 1"),
        ("megatron", [0, 2, 1], "megatron numbers ranks machine by machine; stages on 'a' are before and behind those"),
        ("vllm", [0, 2, 3, 4], "machines with fewer cards before those with more; the plan has a 1, b 2, c 1"),
        ("vllm", [1, 0, 2], "vllm on Ray takes the cards of a machine in the order of their numbers; the plan has a.1"),
    ],
)
def test_an_order_that_the_runtime_has_not_is_refused(runtime: str, stages: list[int], told: str) -> None:
    """With the rule that it breaks, and what the plan has."""
    platform = rack({"a": ("l4", 2), "b": ("t4", 2), "c": ("l4", 1)})
    at = np.array([stages[number * len(stages) // 6] for number in NUMBERS])
    placement = pk.Placement(GRAPH.op_names, platform.device_names, at)
    with pytest.raises(UnsupportedProblemError, match=told):
        launch_of(runtime, GRAPH, platform, placement)


@pytest.mark.parametrize(
    ("runtime", "first", "second"),
    [
        ("vllm", "--head --port 6379 --num-gpus 1", "--address a:6379 --num-gpus 1"),
        (
            "sglang",
            "--nnodes 2 --node-rank 0 --dist-init-addr a:29500",
            "--nnodes 2 --node-rank 1 --dist-init-addr a:29500",
        ),
    ],
)
def test_machines_meet_at_the_first_one(runtime: str, first: str, second: str) -> None:
    """At its address, and at the port that Ray or torch has by default."""
    platform = rack({"a": ("l4", 1), "b": ("l4", 1)})
    placement = pk.Placement(GRAPH.op_names, platform.device_names, np.array(NUMBERS) // 3)
    starts = launch_of(runtime, GRAPH, platform, placement).starts
    assert [" ".join(start.arguments) for start in starts] == [first, second]


def test_as_many_ranks_on_every_machine() -> None:
    """Four stages on two machines are two on each, not three and one."""
    platform = rack({"a": ("l4", 3), "b": ("l4", 1)})
    placement = pk.Placement(GRAPH.op_names, platform.device_names, np.array(NUMBERS) * 4 // 6)
    with pytest.raises(UnsupportedProblemError, match="as many ranks on every machine; the plan has a 3, b 1"):
        launch_of("sglang", GRAPH, platform, placement)


def test_cards_are_numbered_on_their_machine() -> None:
    """Card 1 of the second machine is its number 1, whatever stands on the first."""
    platform = rack({"a": ("l4", 2), "b": ("t4", 3)})
    served = Served(cards=platform.device_names, nodes=tuple(str(each.node) for each in platform.devices))
    at = np.array([[1, 1, 1, 4, 4, 4][number] for number in NUMBERS])
    placement = pk.Placement(GRAPH.op_names, platform.device_names, at)
    told = launch_of("sglang", GRAPH, platform, placement, served)
    assert [dict(start.environment) for start in told.starts] == [
        {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "2"}
    ]  # fmt: skip
    assert [start.node for start in told.starts] == ["a", "b"]


@pytest.mark.slow
def test_torchrun_has_the_ranks_of_the_lines(tmp_path: Path) -> None:
    """Two lines, started here as two machines: rank by rank the devices are those of the plan."""
    pytest.importorskip("torch")
    platform = rack({"a": ("l4", 1), "b": ("t4", 2)})
    placement = pk.Placement(GRAPH.op_names, platform.device_names, np.array(NUMBERS) // 2)
    told = launch_of("megatron", GRAPH, platform, placement)
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port = asked.getsockname()[1]
    script = tmp_path / "pretrain_gpt.py"
    script.write_text(
        "import os, pathlib\n"
        "rank, local = os.environ['RANK'], os.environ['LOCAL_RANK']\n"
        f"pathlib.Path({str(tmp_path)!r}, f'rank{{rank}}').write_text(os.environ['GROUP_RANK'] + ' ' + local)\n"
    )
    started = []
    for line in told.lines("x"):
        words = shlex.split(
            line.replace("a:29500", f"127.0.0.1:{port}").replace("pretrain_gpt.py", str(script)), comments=True
        )
        assert words[0] == "torchrun"
        started.append(subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *words[1:]], cwd=tmp_path))
    assert [process.wait(120) for process in started] == [0, 0]
    ranks = [(tmp_path / f"rank{rank}").read_text().split() for rank in range(3)]
    assert [f"{'ab'[int(group)]}.{local}" for group, local in ranks] == [n.replace("n", "") for n in told.devices]


def test_cards_without_kernels_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """A T4 has no bf16, an RTX 3060 no fp8; llama.cpp computes both."""
    pair = Platform.of(
        t4=1, l4=1, memory_bytes={"t4": 16e9, "l4": 24e9}, links=dict.fromkeys(("t4", "l4"), pk.Link(2e-5, 1e10))
    )
    with caplog.at_level(logging.WARNING):
        pk.plan_serving("gpt2", pair, "llama.cpp", precision="bf16")
        assert "kernels" not in caplog.text
        pk.plan_serving("gpt2", pair, "vllm", precision="bf16")
    assert "vllm: no bf16 kernels, as gpt2 asks for, on t4.0: give --dtype float16, or other cards" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        pk.plan_serving("gpt2", pair, "sglang", precision="int4", wishes=Wishes(cache_precision="fp8"))
    assert "sglang: no fp8 kernels, as gpt2 asks for, on t4.0: choose int8 or int4" in caplog.text
