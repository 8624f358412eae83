"""Nine runtimes, ten configurations, three rigs: every plan has a launch line, and the line says the plan."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from serving_plans import best_plan, launch_of, require_served

import placekit as pk
from placekit.language.config.from_config import _built, read_config
from placekit.language.description import ModelDescription
from placekit.language.planning.plan import ServingPlan, plan_cases
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.launch import launch_lines
from placekit.language.runtimes.typed import parse_line
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, decoder_task
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.errors import UnsupportedProblemError
from placekit.model.served import Served
from placekit.solve.solve import solve
from placekit.solvers.chain.method import Chain

pytest.importorskip("transformers")

CONFIGS = sorted((Path(__file__).parent / "configs").glob("*.json"))
HOST = "cpu-8core-bf16"
RIGS: dict[str, dict[str, int]] = {
    "one card and a CPU": {HOST: 1, "rtx4090": 1},
    "two cards, one card and a CPU": {HOST: 1, "rtx3090": 2, "l4": 1},
    "three cards": {"t4": 2, "l4": 1},
}
SAMPLE = (RIGS["two cards, one card and a CPU"], "qwen3-30b-a3b")
described = cache(read_config)


def planned(model: ModelDescription, runtime: str, counts: dict[str, int]) -> ServingPlan:
    """Return the plan on cards that hold the model with room to spare, or on cards and a CPU that hold it together."""
    rules = RUNTIMES[runtime]
    cards = sum(count for kind, count in counts.items() if kind != HOST)
    is_shared = rules.host != "none" and HOST in counts
    size = (0.6 if is_shared else 1.6) * (model.weight_bytes + 2**30) / cards
    limits = {kind: 2 * model.weight_bytes + 2**33 if kind == HOST else size for kind in counts}
    links = {kind: pk.Link(20e-6, 20e9) for kind in counts if kind != HOST}
    platform = pk.Platform.of(host=[HOST] if HOST in counts else (), memory_bytes=limits, links=links, **counts)

    def make(serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        return decoder_task(
            model, serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform), **choices
        )

    serving = Serving(64, 16, sequences=2, chunk=rules.chunk)
    return best_plan(plan_cases(make, serving, platform, rules), partial(solve, method=Chain()), rules)


@pytest.mark.parametrize(
    ("counts", "config"),
    [
        pytest.param(
            counts, path, id=f"{path.stem} on {name}",
            marks=[] if (counts, path.stem) == SAMPLE else pytest.mark.slow,
        )
        for name, counts in RIGS.items() for path in CONFIGS
    ],
)  # fmt: skip
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_plan_has_a_line(runtime: str, counts: dict[str, int], config: Path) -> None:
    """The line is parsed as the runtime does, and gives every block its place."""
    model = described(config)
    plan = planned(model, runtime, counts)
    placement = plan.result.placement
    assert placement is not None
    assert plan.result.status is pk.Status.OPTIMAL
    lines = launch_lines(runtime, str(config), plan.task.problem, placement)
    homes = [placement[block.parts[-1].path] for block in model.blocks]
    check = {"llama.cpp": check_llama_cpp, "accelerate": check_modules, "openvino": check_modules}.get(runtime)
    (check or (check_modules if runtime == "placekit" else check_stages))(runtime, lines, homes, plan)
    record, problem = RUNTIMES[runtime], plan.task.problem
    typed, _ = parse_line("\n".join(lines), RUNTIMES.values(), runtime)  # by the same rules as lines of other people
    assert typed.runtime is record
    assert record.read is not None
    read = record.read(record, typed, problem)
    assert (read.placement.device_of_op == placement.device_of_op).all()
    require_served(record, read.served, problem.served or Served())


def check_stages(runtime: str, lines: tuple[str, ...], homes: list[str], plan: ServingPlan) -> None:
    """Stages of whole blocks are told by counts, letters or module paths."""
    words = shlex.split(lines[0])
    values = dict(pairwise(words))
    variables = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
    stages = len(dict.fromkeys(homes))
    if runtime in ("vllm", "sglang"):
        counts = [int(count) for count in variables[f"{runtime.upper()}_PP_LAYER_PARTITION"].split(",")]
        assert int(values["--pipeline-parallel-size" if runtime == "vllm" else "--pp-size"]) == len(counts)
    elif runtime == "tensorrt-llm":
        settings = dict(line.split(": ", 1) for line in lines[1:])
        counts = json.loads(settings["pp_partition"])
        assert int(values["--pp_size"]) == len(counts)
    elif runtime == "megatron":
        letters = re.sub(r"([a-zE-L])\*(\d+)", lambda found: found[1] * int(found[2]), values[words[-2]])
        counts = [stage.count("t") + stage.count("m") for stage in letters.split("|")]
        assert letters.startswith("E")
        assert letters.endswith("L")
    else:
        told = tomllib.loads("\n".join(lines[1:]))["parallelism"]["module_fqns_per_model_part"]
        counts = [sum(module.startswith("layers.") for module in part) for part in told]
    assert counts == [homes.count(home) for home in dict.fromkeys(homes)]
    assert len(counts) == stages
    used = {home.rpartition(".")[0] for home in homes}
    assert HOST not in used, plan


def check_llama_cpp(runtime: str, lines: tuple[str, ...], homes: list[str], plan: ServingPlan) -> None:
    """Check that the last blocks and the output are offloaded, and divided by the split."""
    words = shlex.split(lines[0])
    values = dict(pairwise(words))
    assert "llama-server" in words[:2], runtime
    on_host = sum(home.startswith(HOST) for home in homes)
    offloaded = len(homes) + 1 - on_host if on_host < len(homes) else 0
    assert int(values["--n-gpu-layers"]) == offloaded
    if offloaded:
        split = [int(count) for count in values["--tensor-split"].split(",")]
        assert sum(split) == offloaded
        assert len(values["--device"].split(",")) == len(split)
    option = "--n-cpu-moe" if plan.task.has_experts else "--n-cpu-ffn"
    assert int(values.get(option, 0)) == plan.task.hosted_blocks


def check_modules(runtime: str, lines: tuple[str, ...], homes: list[str], plan: ServingPlan) -> None:
    """Every block has one place in a map of modules, the one of the plan."""
    found: dict[str, Any] = {}
    exec("\n".join(lines), found)  # the line is Python to paste
    told = found["device_map" if runtime == "accelerate" else "affinities"]
    assert plan.task.description is not None
    places = []
    for block in plan.task.description.blocks:
        entry = [path for path in told if f"{block.path}.".startswith(f"{path}." if path else "")]
        inside = [path for path in told if path.startswith(f"{block.path}.")]
        assert entry or inside, block.path
        places.append({told[path] for path in entry or inside})
    assert all(len(place) == 1 for place in places)
    if runtime == "accelerate":
        utils = pytest.importorskip("accelerate.utils")
        path = next(path for path in CONFIGS if path.stem == plan.task.description.name)
        utils.check_device_map(_built(path, json.loads(path.read_text()))[0], told)
    pairs = {(home, *place) for home, place in zip(homes, places, strict=True)}
    assert len(pairs) == len(set(homes))


def test_megatron_trains_multi_token_prediction() -> None:
    """Its blocks are behind the others, counted and told as ``m``; a server is not told of them."""
    path = next(path for path in CONFIGS if path.stem == "deepseek-v3")
    model, without = described(path).with_speculative(), described(path)
    assert model.parameters - without.parameters == without.blocks[-1].parameters
    plan = planned(model, "megatron", RIGS["three cards"])
    placement, problem = plan.result.placement, plan.task.problem
    assert placement is not None
    assert block_numbers(problem.graph).max() == 61
    served = Served(predicting_blocks=1)
    told = launch_of("megatron", problem.graph, problem.platform, placement, served)
    assert told.arguments[:2] == ("--mtp-num-layers", "1")
    layout = re.sub(r"t\*(\d+)", lambda found: "t" * int(found[1]), told.arguments[-1])
    assert layout.endswith("mL")
    assert layout.count("t") == 61
    with pytest.raises(UnsupportedProblemError, match="plan again with --for vllm"):
        launch_of("vllm", problem.graph, problem.platform, placement, served)
