"""Prefill and decode apart: their costs, the best plan against all placements, and the lines of two servers."""

from __future__ import annotations

import itertools
import json
import shlex
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.cost_models.sheets.device_table import get_spec
from placekit.io.files.problem_json import read_problem, write_problem
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.planning.apart import PHASES, apart_cases, of_phase
from placekit.language.planning.plan import fastest, plan_cases, plans
from placekit.language.report import serving_report
from placekit.language.runtimes.launch import launch_lines
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.objectives.evaluate import evaluate
from placekit.solve.solve import solve
from placekit.solvers.chain.costs import chain_of
from placekit.solvers.chain.method import Chain

SERVING = Serving(32, 8, sequences=4, batch=2, chunk=16)


def make(model: Decoder, costs: pk.Analytic, serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
    """Return a task."""
    return decoder_task(model, serving, platform, lambda graph: costs.cost_table(graph, platform), **choices)


def small(rng: np.random.Generator, objective: Any, layers: int = 1) -> LanguageTask:
    """Return both phases apart of a small model on three cards."""
    model = Decoder(layers, 64, int(rng.integers(64, 512)), int(rng.integers(100, 4000)), heads=4, tied=True)
    kinds = ("l4", "t4", "a10")
    sizes = {kind: float(rng.uniform(0.5, 1.5)) * model.num_parameters * 2 for kind in kinds}
    links = {kind: pk.Link(1e-6, float(rng.uniform(1e8, 1e10))) for kind in kinds}
    platform = pk.Platform.of(l4=1, t4=1, a10=1, memory_bytes=sizes, links=links)
    form = TaskForm(objective, Contiguity.ACYCLIC)
    (task,) = apart_cases([make(model, pk.Analytic(), SERVING, platform, form=form)])
    return task


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Throughput()])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_plan_equals_all_placements(seed: int, objective: Any) -> None:
    """No other runs of blocks are better; no device has ops of both phases."""
    problem = small(np.random.default_rng(seed), objective).problem
    chain = chain_of(problem)
    assert chain is not None
    found = []
    proxy = int(chain.block_of_op[problem.graph.op_index["proxy"]])
    for devices in itertools.product(range(3), repeat=chain.num_blocks - 1):
        at = np.insert(np.array(devices), proxy, 3)
        runs = [device for device, _ in itertools.groupby(at.tolist())]
        if len(set(runs)) == len(runs):
            judged = evaluate(problem, pk.Placement.of(problem, at[chain.block_of_op]))
            found += [judged.objective] if judged.is_feasible and judged.objective is not None else []
    result = solve(problem, Chain())
    if found:
        assert result.status is pk.Status.OPTIMAL
        assert result.objective == pytest.approx(min(found), rel=1e-12)
        assert result.placement is not None
        homes = [
            {int(result.placement.device_of_op[op]) for op in ops} for ops in _ops_of_phases(problem.graph.op_names)
        ]
        assert not homes[0] & homes[1]
    else:
        assert result.status is pk.Status.INFEASIBLE


def _ops_of_phases(names: tuple[str, ...]) -> list[list[int]]:
    return [[op for op, name in enumerate(names) if name.startswith(f"{phase}.")] for phase in PHASES]


def test_what_it_takes() -> None:
    """Each phase takes what it takes alone, and the cache of the prompts crosses two links once."""
    task = small(np.random.default_rng(0), pk.SerialLatency(), layers=3)
    together = task.undivided
    assert together is not None
    names = task.problem.graph.op_names
    at = np.array([{"p": 0, "d": 1}[name[0]] if name != "proxy" else 3 for name in names])
    judged = evaluate(
        task.problem.replace(platform=_unlimited(task.problem.platform)), pk.Placement.of(task.problem, at)
    )
    steps = {phase.name: phase.count for phase in SERVING.phases}
    alone = sum(
        steps[phase] * together.costs_of_phase[phase].op_time_s[:, device].sum() for device, phase in enumerate(PHASES)
    )
    cache = float(together.cache_bytes.sum()) * SERVING.batch * 32 / 40
    links = [task.problem.platform.links[kind] for kind in ("l4", "t4")]

    sent = sum(3 * link.latency_s + cache / link.bandwidth_bytes_per_s for link in links)
    assert judged.objective == pytest.approx(alone + sent, rel=1e-9)
    report = serving_report(task, pk.Placement.of(task.problem, at))
    held = {each.device: each.cache_bytes for each in report.memory}
    assert held["l4.0"] == pytest.approx(2 * cache)
    assert held["t4.0"] == pytest.approx(float(together.cache_bytes.sum()) * SERVING.sequences)


def _unlimited(platform: pk.Platform) -> pk.Platform:
    return platform.replace(devices=tuple(each.replace(memory_bytes=None) for each in platform.devices))


def test_it_wins_where_devices_suit_one_phase(tmp_path: Path) -> None:
    """One card computes, one has the bandwidth: apart is faster, and each phase is where it suits."""
    specs = {
        "fast": replace(get_spec("a10"), dense_flops_per_s=300e12),
        "wide": replace(get_spec("a10"), memory_bandwidth_bytes_per_s=2e12),
    }
    platform = pk.Platform.of(fast=1, wide=1, links=dict.fromkeys(specs, pk.Link(20e-6, 20e9)))
    made = partial(make, DECODERS["llama3-8b"], pk.Analytic(specs))
    serving, solver = Serving(4096, 128, chunk=2048), partial(solve, method=Chain())
    shared = fastest(plans(plan_cases(made, serving, platform), solver))
    apart = fastest(plans(apart_cases(plan_cases(made, serving, platform)), solver))
    assert apart.tokens_per_s > 1.2 * shared.tokens_per_s
    placement = apart.result.placement
    assert placement is not None
    where = [set(of_phase(apart.task.problem, placement, phase)[2].values()) for phase in PHASES]
    assert where == [{"fast.0"}, {"wide.0"}]
    write_problem(apart.task.problem, tmp_path / "apart.json")  # export has nothing but the file
    with pytest.raises(UnsupportedProblemError, match=r"one for decode, which vllm, sglang, tensorrt-llm can be told"):
        launch_lines("megatron", "m", apart.task.problem, placement)
    both = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
    settings = {"pipeline_parallel_size": 1, "pp_partition": [32], "cache_transceiver_config": {"backend": "DEFAULT"}}
    for runtime, option, told in (
        ("vllm", "--kv-transfer-config", [both, both]),
        ("sglang", "--disaggregation-mode", ["prefill", "decode"]),
        ("tensorrt-llm", "--extra_llm_api_options", ["prefill.yaml", "decode.yaml"]),
    ):
        lines = launch_lines(runtime, "m", read_problem(tmp_path / "apart.json"), placement)
        starts = [at for at, line in enumerate(lines) if "VISIBLE" in line]
        values = [dict(pairwise(shlex.split(lines[at])))[option] for at in starts]
        assert [json.loads(value) if "{" in value else value for value in values] == told
        texts = [[line.split(": ", 1) for line in lines[at + 1 : end]] for at, end in pairwise([*starts, len(lines)])]
        files = [{key: json.loads(value) for key, value in text} for text in texts]
        if runtime == "tensorrt-llm":
            assert files == [{**settings, "disable_overlap_scheduler": True}, settings]
        assert [line.split()[:2] for line in lines if "VISIBLE" in line] == [
            ["CUDA_DEVICE_ORDER=PCI_BUS_ID", f"CUDA_VISIBLE_DEVICES={card}"] for card in (0, 1)
        ]


def test_requests_have_both_phases() -> None:
    """One line otherwise."""
    platform = pk.Platform.of(l4=2)
    task = make(Decoder(2, 64, 128, 100, heads=4), pk.Analytic(), Serving(64, 0), platform)
    with pytest.raises(InvalidProblemError, match="needs requests with both phases"):
        list(apart_cases([task]))
