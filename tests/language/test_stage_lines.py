"""Stages of servers and trainers, read from their lines on small models: defaults by their own rules, and refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_plans import launch_of

import placekit as pk
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import model_step
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.machine_order import startable
from placekit.language.runtimes.record import Launch, Placed
from placekit.language.runtimes.rules import LEAST_CARD_BYTES, Rules
from placekit.language.runtimes.typed import parse_line
from placekit.language.serving import Phase
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import InvalidProblemError, PlacekitError, UnsupportedProblemError
from placekit.model.memory import Pool
from placekit.model.platform import Device, DirectLink, Platform
from placekit.model.served import Served

SHAPE = Decoder(6, 64, 128, 500, heads=4)
GRAPH = model_step(describe_decoder(SHAPE), Phase("decode", 1, 1, 10.0)).graph
NUMBERS = block_numbers(GRAPH)
CARDS = pk.Platform.of(cpu=1, gpu=4, host="cpu")
TRTLLM = "trtllm-serve x --pp_size 2 --extra_llm_api_options a.yaml\npp_partition: "
TITAN = (
    "torchrun --nproc_per_node=2 -m torchtitan.train --job.config_file x.toml --parallelism.pipeline_parallel_degree"
)


def problem_on(platform: Platform) -> pk.Problem:
    """Return the small model on devices that need the same time for every op."""
    kinds = platform.kinds
    costs = pk.CostTable(
        kinds, np.ones((GRAPH.num_ops, len(kinds))), np.zeros((GRAPH.num_tensors, len(kinds))), np.ones(GRAPH.num_ops),
        direct_links=platform.direct_link_names,
        direct_time_s=np.zeros((GRAPH.num_tensors, len(platform.direct_links))),
    )  # fmt: skip
    return pk.Problem(GRAPH, platform, costs)


def read(line: str, platform: Platform = CARDS) -> Placed:
    """Return the plan that a line means."""
    launch, _ = parse_line(line, RUNTIMES.values(), None)
    assert launch.runtime.read is not None
    return launch.runtime.read(launch.runtime, launch, problem_on(platform))


def blocks_of(placed: Placed) -> list[tuple[str, int]]:
    """Return the devices of the blocks in their order, each with how many it has."""
    homes = [int(placed.placement.device_of_op[number == NUMBERS][0]) for number in range(SHAPE.layers)]
    return [(placed.platform.device_names[at], homes.count(at)) for at in dict.fromkeys(homes)]


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("vllm serve x -pp 2", [3, 3]),
        ("vllm serve x", [6]),
        ("vllm serve x -pp 4", [1, 2, 2, 1]),  # what is left goes to stages before the last one
        ("VLLM_PP_LAYER_PARTITION=1,5 vllm serve x -pp 2", [1, 5]),
        (f"{TRTLLM}[1, 5]", [1, 5]),
        ("trtllm-serve x --pp_size 4", [2, 2, 1, 1]),  # to the first ones
        ("trtllm-serve x --extra_llm_api_options a.yaml\npipeline_parallel_size: 3", [2, 2, 2]),
        ("torchrun --nproc-per-node 2 pretrain_gpt.py --pipeline-model-parallel-size 2", [3, 3]),
        (
            "torchrun --nproc-per-node 3 pretrain_gpt.py --pipeline-model-parallel-size 3 "
            "--pipeline-model-parallel-layout 'Et|(t)*3|t,t,L'",
            [1, 3, 2],
        ),
        (
            "torchrun --nproc-per-node 2 pretrain_gpt.py --pipeline-model-parallel-size 2 "
            "--pipeline-model-parallel-layout 'Et*2|t*4L'",
            [2, 4],
        ),
        (f"{TITAN} 1\n[parallelism]\n", [6]),
    ],
)
def test_stages_have_blocks_by_the_runtime_s_rule(line: str, counts: list[int]) -> None:
    """Told, or divided by each in its own way; cards in their order, ends with the first stage and the last one."""
    placed = read(line)
    assert blocks_of(placed) == [(f"gpu.{at}", count) for at, count in enumerate(counts)]
    device = placed.placement.device_of_op
    assert device[GRAPH.op_index["model.embed_tokens"]] == 1
    assert device[GRAPH.op_index["lm_head"]] == len(counts)
    assert placed.placement.team_of_device is None


def test_replicas_fill_pipelines_or_stages() -> None:
    """A server's ranks fill one pipeline after the other, a trainer's the replicas of a stage."""
    server = read("vllm serve x -pp 2 --data-parallel-size 2").placement
    assert server.teams == ((0,), (1, 3), (2, 4))
    trainer = read("torchrun --nproc-per-node 4 pretrain_gpt.py --pipeline-model-parallel-size 2").placement
    assert trainer.teams == ((0,), (1, 2), (3, 4))


def test_torchrun_starts_one_rank_unless_told() -> None:
    """As its parser says; a word instead of a number, such as ``gpu``, is all cards."""
    with pytest.raises(InvalidProblemError, match=r"2 ranks on gpu\.0; there are 1"):
        read("torchrun --standalone pretrain_gpt.py --pipeline-model-parallel-size 2")
    every = read("torchrun --nproc-per-node=gpu pretrain_gpt.py --pipeline-model-parallel-size 2").placement
    assert every.teams == ((0,), (1, 2), (3, 4))


def test_a_trainer_that_is_not_started_is_one_pipeline() -> None:
    """Without the command that says how many ranks there are."""
    megatron = RUNTIMES["megatron"]
    assert megatron.read is not None
    launch = Launch(megatron, arguments=(megatron.options["stages"], "2"))
    placed = megatron.read(megatron, launch, problem_on(CARDS))
    assert blocks_of(placed) == [("gpu.0", 3), ("gpu.1", 3)]
    assert placed.placement.team_of_device is None


def test_ranks_that_compute_together_are_a_device() -> None:
    """A device of the platform has them as its members, in any order."""
    pair = Platform((Device("pair", "gpu", members=("gpu.0", "gpu.1")), Device("single", "gpu")))
    assert blocks_of(read("vllm serve x -tp 2", pair)) == [("pair", 6)]
    for devices in (CARDS, Platform((Device("single", "gpu"), *pair.devices[:1]))):
        with pytest.raises(InvalidProblemError, match="compute together; no team of the platform has them"):
            read("vllm serve x -tp 2", devices)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vllm serve x -pp 0", "--pipeline-parallel-size 0: it is from 1 on"),
        ("vllm serve x -tp 0", "--tensor-parallel-size 0: it is from 1 on"),
        ("vllm serve x -pp 5", "the line has 5 ranks on gpu.0, gpu.1, gpu.2, gpu.3; there are 4"),
        ("vllm serve x -pp 3 --data-parallel-size 2", "the line has 6 ranks on"),
        ("VLLM_PP_LAYER_PARTITION=1,2 vllm serve x -pp 2", "VLLM_PP_LAYER_PARTITION=1,2: 3 blocks; the model has 6"),
        ("VLLM_PP_LAYER_PARTITION=1,a vllm serve x -pp 2", "it has the blocks of 2 stages"),
        (f"{TRTLLM}[1, 4]", "tensorrt-llm: stages of 1, 4 blocks are 5; the model has 6"),
        (f"{TRTLLM}6", "pp_partition: 6: it has the blocks of 2 stages"),
        (f"{TRTLLM}[1.5, 4.5]", "it has the blocks of 2 stages"),
        (
            "torchrun pretrain_gpt.py --pipeline-model-parallel-size 4",
            "6 blocks are no multiple of 4 stages: give --pip",
        ),
        (
            "torchrun pretrain_gpt.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|t*5",
            "Et|t*5: it has E, blocks as t, m and L in 2 stages",
        ),
        ("device = 'HETERO:gpu.0'", "have no map from modules to devices"),
        ("device = 'HETERO:gpu.0,gpu.9'\naffinities = {'': 'gpu.0'}", "'device': 'gpu.9': devices are cpu.0, gpu.0"),
        (
            f"{TITAN} 2\n[parallelism]\nmodule_fqns_per_model_part = [['layers.0'], ['layers.2']]",
            "has blocks [0, 2]; the model has 0 to 5, once each",
        ),
        (f"{TITAN} 2\n[parallelism]\n", "torchtitan without module_fqns_per_model_part chooses stages by itself"),
        (
            f"{TITAN} 3\n[parallelism]\nmodule_fqns_per_model_part = [['layers.0', 'layers.1', 'layers.2'], "
            "['layers.3', 'layers.4', 'layers.5']]",
            "module_fqns_per_model_part has 2 stages; the line has 3",
        ),
    ],
)
def test_lines_that_have_no_plan(line: str, words: str) -> None:
    """The message names the option, its value and what there is."""
    with pytest.raises(PlacekitError) as caught:
        read(line)
    assert words in str(caught.value)


def test_layers_that_no_device_has() -> None:
    """Six blocks and the output are seven layers; a platform without a host has no place for what stays behind."""
    assert blocks_of(read("llama-server -m x -ngl 7", pk.Platform.of(gpu=1))) == [("gpu.0", 6)]
    with pytest.raises(InvalidProblemError, match="--n-gpu-layers 3 leaves 4 layers to a host; the platform has none"):
        read("llama-server -m x -ngl 3", pk.Platform.of(gpu=1))


def test_settings_that_are_no_names_with_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is refused, and so is what only PyYAML reads where it is not installed."""
    path = tmp_path / "a.yaml"
    line = f"trtllm-serve x --pp_size 2 --extra_llm_api_options {path}"
    path.write_text("pp_partition:\n- 1\n- 5\n")
    assert blocks_of(read(line)) == [("gpu.0", 1), ("gpu.1", 5)]
    path.write_text("- 1\n- 5\n")
    with pytest.raises(PlacekitError, match="the settings of tensorrt-llm cannot be read: there are no names with"):
        read(line)
    path.write_text("pp_partition:\n- 1\n- 5\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(
        PlacekitError, match="the settings of tensorrt-llm cannot be read: it takes PyYAML: pip install"
    ):
        read(line)
    path.write_text("pp_partition: [2, 4]\n\nmax_batch_size: 8\n")
    assert blocks_of(read(line)) == [("gpu.0", 2), ("gpu.1", 4)]


def rack(**cards: int) -> Platform:
    """Return machines with so many cards each."""
    devices = [Device(f"{node}.{at}", "l4", node=node) for node, count in cards.items() for at in range(count)]
    return Platform(tuple(devices), direct_links=(DirectLink(3e-5, 2.8e9, between_nodes=True),))


def lines_on(runtime: str, platform: Platform, stages: int, teams: list[int] | None = None) -> Launch:
    """Return the lines of a plan with as many blocks on each of the first devices."""
    at = np.minimum(np.maximum(NUMBERS, 0) * stages // SHAPE.layers, stages - 1)
    at[[name.startswith(("model.norm", "lm_head", "output")) for name in GRAPH.op_names]] = stages - 1
    team_of = None if teams is None else np.array(teams)
    homes = sorted(set(teams or range(stages)))
    placement = pk.Placement(GRAPH.op_names, platform.device_names, np.array(homes)[at], team_of_device=team_of)
    return launch_of(runtime, GRAPH, platform, placement)


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "megatron"])
def test_lines_of_machines_need_the_machines(runtime: str) -> None:
    """Read back on the machines, by their names or in their order; refused where there is one only."""
    told = lines_on(runtime, rack(a=1, b=1), 2)
    assert [start.node for start in told.starts] == ["a", "b"]
    lines = "\n".join(told.lines("x"))
    assert blocks_of(read(lines, rack(a=1, b=1))) == [("a.0", 3), ("b.0", 3)]
    assert blocks_of(read(lines, rack(c=1, d=2))) == [("c.0", 3), ("d.0", 3)]
    with pytest.raises(InvalidProblemError, match="the line is for 2 machines; machines are one"):
        read(lines)
    with pytest.raises(InvalidProblemError, match="the line is for 2 machines; machines are a"):
        read(lines, rack(a=2))


def test_lines_of_one_plan_differ_in_their_machine_alone() -> None:
    """In any order; what all machines have in their environment is said once."""
    platform = rack(a=2, b=2)
    lines = [
        f"CUDA_VISIBLE_DEVICES=1 NCCL_DEBUG={level} sglang serve --model-path x --pp-size {stages} --nnodes 2 "
        f"--node-rank {rank} --dist-init-addr a:5000  # on {node}"
        for rank, node, stages, level in ((1, "b", 2, "INFO"), (0, "a", 2, "INFO"), (1, "b", 3, "INFO"))
    ]
    launch, model = parse_line("\n".join(lines[:2]), RUNTIMES.values(), None)
    assert model == "x"
    assert launch.environment == {"CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "INFO"}
    assert [(start.node, dict(start.environment)) for start in launch.starts] == [("a", {}), ("b", {})]
    assert blocks_of(read("\n".join(lines[:2]), platform)) == [("a.1", 3), ("b.1", 3)]
    with pytest.raises(InvalidProblemError, match="the lines differ in more than their machine: options are --pp-size"):
        read("\n".join(lines[1:]), platform)
    with pytest.raises(InvalidProblemError, match=r"the line cannot be split into words: No escaped character"):
        read("vllm serve x \\", platform)


def test_replicas_on_several_machines_are_started_one_by_one() -> None:
    """A server on two machines is one pipeline."""
    with pytest.raises(UnsupportedProblemError, match="vllm: replicas on several machines are started one by one"):
        lines_on("vllm", rack(a=2, b=2), 2, [0, 1, 0, 1])
    with pytest.raises(
        UnsupportedProblemError, match="tensorrt-llm starts replicas one by one; place with --teams off"
    ):
        lines_on("tensorrt-llm", pk.Platform.of(gpu=4), 2, [0, 0, 2, 2])


def test_stages_are_put_in_an_order_of_machines() -> None:
    """Machine by machine, with as many blocks in each place as before; what no order mends keeps its reason."""
    platform = rack(a=2, b=1)
    problem = problem_on(platform)
    at = np.array([0, 2, 1])[np.minimum(np.maximum(NUMBERS, 0) // 2, 2)]
    at[[name.startswith(("model.norm", "lm_head", "output")) for name in GRAPH.op_names]] = 1
    mixed = pk.Placement(GRAPH.op_names, platform.device_names, at)
    assert blocks_of(Placed(GRAPH, platform, mixed, Served())) == [("a.0", 2), ("b.0", 2), ("a.1", 2)]
    moved = startable(RUNTIMES["megatron"], problem, mixed)
    assert blocks_of(Placed(GRAPH, platform, moved, Served())) == [("a.0", 2), ("a.1", 2), ("b.0", 2)]
    assert startable(RUNTIMES["megatron"], problem, moved) is moved
    on_host = pk.Placement(GRAPH.op_names, CARDS.device_names, np.zeros(GRAPH.num_ops, dtype=int))
    for runtime in ("megatron", "tensorrt-llm"):
        with pytest.raises(UnsupportedProblemError, match=f"{runtime} has stages on accelerators only, but 'cpu.0'"):
            startable(RUNTIMES[runtime], problem_on(CARDS), on_host)


def test_stages_have_one_degree() -> None:
    """A single card beside a team of two is a plan that no line says."""
    platform = Platform((Device("pair", "gpu", members=("gpu.0", "gpu.1")), Device("single", "gpu")))
    with pytest.raises(
        UnsupportedProblemError, match="vllm has one tensor-parallel degree for all stages, not 1 and 2"
    ):
        lines_on("vllm", platform, 2)


def test_blocks_of_prediction_are_on_the_last_stage() -> None:
    """As many as it has, counted apart from the others."""
    served = Served(predicting_blocks=3)
    at = np.where(NUMBERS < 3, 0, 1)
    at[[name.startswith(("model.norm", "lm_head", "output")) for name in GRAPH.op_names]] = 1
    gpus = pk.Platform.of(gpu=2)
    placement = pk.Placement(GRAPH.op_names, gpus.device_names, at)
    told = launch_of("megatron", GRAPH, gpus, placement, served)
    assert told.values["--pipeline-model-parallel-layout"] == "Et*3|m*3L"
    assert told.values["--mtp-num-layers"] == "3"
    with pytest.raises(
        UnsupportedProblemError, match="megatron has all 4 blocks of multi-token prediction on the last"
    ):
        launch_of("megatron", GRAPH, gpus, placement, Served(predicting_blocks=4))


RULES: dict[str, Any] = {
    "name": "mine", "host": "first", "headroom": 0.1, "chunk": None, "goal": "latency", "kernels": "general",
}  # fmt: skip


def test_memory_that_a_runtime_leaves() -> None:
    """Cards keep the headroom and what the runtime itself takes; host memory and small cards a tenth at most."""
    rules = Rules(**RULES, reserved_bytes=2**30, logit_rows=4)
    model = describe_decoder(SHAPE)
    own = 2**30 + 4 * 500 * 4
    assert (rules.card_bytes(None), rules.card_bytes(model)) == (2**30, own)
    copied = Rules(**RULES, reserved_bytes=2**30, offload_tokens=32)
    assert copied.card_bytes(model) == 2**30 + max(block.weight_bytes for block in model.blocks)
    devices = (
        Device("host", "cpu", memory_bytes=2.0**36, is_host=True),
        Device("card", "l4", memory_bytes=2.0**34),
        Device("tiny", "t4", memory_bytes=LEAST_CARD_BYTES / 2),
        Device("any", "a10"),
    )
    platform, words = rules.usable(Platform(devices), model)
    host, card, tiny, unlimited = (device.memory_bytes for device in platform.devices)
    assert card == pytest.approx(0.9 * 2**34 - own)
    assert unlimited is None
    assert host is not None
    assert tiny is not None
    assert host / 2**36 == tiny / (LEAST_CARD_BYTES / 2)
    assert words.startswith("10% of every card and 1 GiB of every card for mine itself")
    pooled, _ = rules.usable(Platform(devices[:2], pools=(Pool("all", 2.0**35, ("host", "card")),)), model)
    assert pooled.pools[0].memory_bytes == pytest.approx(host / 2**36 * 2**35 - own)
    greedy = Rules(**RULES, reserved_bytes=0.9 * LEAST_CARD_BYTES)
    exact = Platform((Device("card", "l4", memory_bytes=LEAST_CARD_BYTES),))
    with pytest.raises(InvalidProblemError, match=r"device 'card' has .*; mine itself takes"):
        greedy.usable(exact, None)
    none = Rules(**(RULES | {"headroom": 0.0}))
    assert none.usable(exact, None) == (exact, "")


def test_devices_that_a_runtime_uses() -> None:
    """All, or accelerators and at most one host."""
    platform = pk.Platform.of(cpu=2, gpu=1, host="cpu")
    for host, names in (("any", platform.device_names), ("last", ("cpu.0", "gpu.0")), ("none", ("gpu.0",))):
        rules = Rules(**(RULES | {"host": host}))
        assert set(rules.devices(platform).device_names) == set(names)
    with pytest.raises(InvalidProblemError, match=r"mine runs on accelerators only; the platform has cpu.0, cpu.1"):
        Rules(**(RULES | {"host": "none"})).devices(pk.Platform.of(cpu=2, host="cpu"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": "gpu"}, "host is 'gpu'; it is one of none, first, last, any"),
        ({"goal": "speed"}, "goal is 'speed'; it is one of latency, throughput"),
        ({"kernels": "own"}, "kernels is 'own'; it is one of general, llama.cpp, servers"),
        ({"headroom": 1.0}, "headroom is 1.0; it is from 0.0 to 0.99"),
        ({"headroom": -0.1}, "headroom is -0.1; it is from 0.0 to 0.99"),
        ({"chunk": 0}, "chunk is 0; it is from 1 to"),
    ],
)
def test_rules_out_of_range(given: dict[str, Any], words: str) -> None:
    """The message names the runtime."""
    with pytest.raises(InvalidProblemError, match=f"runtime 'mine': {words}"):
        Rules(**(RULES | given))
    assert Rules(**(RULES | {"headroom": 0.99, "chunk": 1})).chunk == 1
