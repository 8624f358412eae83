"""Tensor-parallel teams: their formulas, the best cut against all cuts, and what runtimes are told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from serving_plans import best_plan, launch_of

import placekit as pk
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.planning.plan import ServingPlan, plan_cases
from placekit.language.planning.tensor_cut import all_teams, best_teams
from placekit.language.report import serving_report
from placekit.language.runtimes import RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.language.tensor_parallel import parse_degrees, with_teams
from placekit.model.contiguity import Contiguity
from placekit.model.errors import InvalidProblemError
from placekit.model.served import Served
from placekit.objectives.evaluate import evaluate
from placekit.solve.solve import solve
from placekit.solvers.chain.costs import chain_of
from placekit.solvers.chain.method import Chain, ChainParams

SMALL = Decoder(3, 64, 256, 1000, heads=4, kv_heads=4)
LINK = pk.Link(1e-6, 1e9)


def make(model: Decoder, serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
    """Return a task with analytic costs."""
    return decoder_task(
        model, serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform), **choices
    )  # fmt: skip


def cuts(devices: Sequence[int], degrees: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield the cuts of equal devices into teams, up to exchange of devices."""
    if not devices:
        yield []
    for degree in (degree for degree in degrees if degree <= len(devices)):
        for rest in cuts(devices[degree:], degrees):
            if not rest or len(rest[0]) <= degree:
                yield [tuple(devices[:degree]), *rest]


def least(task: LanguageTask) -> float:
    """Return the least objective of all placements in runs of blocks, by the judge."""
    problem, chain = task.problem, chain_of(task.problem)
    assert chain is not None
    best = np.inf
    for devices in itertools.product(range(problem.platform.num_devices), repeat=chain.num_blocks):
        runs = [device for device, _ in itertools.groupby(devices)]
        if len(set(runs)) == len(runs):
            judged = evaluate(problem, pk.Placement.of(problem, np.array(devices)[chain.block_of_op]))
            if judged.is_feasible and judged.objective is not None:
                best = min(best, judged.objective)
    return best


@pytest.mark.parametrize("objective", [pk.SerialLatency(), pk.Throughput()])
@pytest.mark.parametrize("seed", range(2))
def test_the_best_cut_equals_all_cuts(seed: int, objective: Any) -> None:
    """Every cut of two and one devices and a host, with every placement: none is better, and one is as good."""
    rng = np.random.default_rng(seed)
    model = Decoder(2, 64, int(rng.integers(128, 1024)), int(rng.integers(100, 4000)), heads=4)
    size = model.num_parameters * 2 * float(rng.uniform(0.4, 0.8))
    kinds = {"cpu-8core-f32": 1, "l4": 2}
    devices = tuple(
        pk.Device(f"{kind}.{at}", kind, size if kind == "l4" else None, is_host=kind != "l4")
        for kind, count in kinds.items() for at in range(count)
    )  # fmt: skip
    platform = pk.Platform(devices, {"l4": pk.Link(1e-7, float(rng.uniform(1e9, 1e11)))})
    form = TaskForm(objective, Contiguity.ACYCLIC)

    def made(teams: Any) -> LanguageTask:
        return make(model, Serving(32, 8), platform, form=replace(form, tensor_teams=teams))

    teams = best_teams(made(all_teams(platform, (1, 2))), platform, (1, 2))
    assert teams is not None
    result = solve(made(teams).problem, Chain())
    brute = min(least(made([(0,), *cut])) for cut in cuts([1, 2], (1, 2)))
    assert result.status is pk.Status.OPTIMAL
    assert result.objective == pytest.approx(brute, rel=1e-12)


def test_what_a_team_takes() -> None:
    """Half of the operations and bytes, all launches, and all-reduces: two per block, one in front, half for logits."""
    platform = pk.Platform.of(l4=2, links={"l4": LINK}, memory_bytes={"l4": 1e9})
    serving = Serving(64, 16)
    alone, team = make(SMALL, serving, platform), make(SMALL, serving, platform, form=TaskForm(tensor_teams=[(0, 1)]))
    assert team.platform.devices[0].memory_bytes == pytest.approx(2e9)
    assert team.platform.devices[0].member_names == ("l4.0", "l4.1")
    costs, plain = team.costs_of_phase["decode"], alone.costs_of_phase["decode"]
    graph, spec = team.problem.graph, pk.Analytic().spec_of_kind(platform)["l4"]
    at = graph.op_names.index("lm_head")
    gathered = 2 * (LINK.latency_s + 1000 * 4 / 2 / LINK.bandwidth_bytes_per_s)
    moved = (64 * 1000 * 2 + 64 * 2 * 2) / spec.memory_bandwidth_bytes_per_s  # weights, norm and hidden state
    assert plain.op_time_s[at, 0] > moved / 2
    halved = (plain.op_time_s[at, 0] - spec.op_overhead_s) / 2 + spec.op_overhead_s
    assert costs.op_time_s[at, 0] == pytest.approx(halved + gathered, rel=0.05)
    added = graph.op_names.index("model.layers.0.self_attn.add")
    all_reduce = 4 * (LINK.latency_s + 64 * 2 / 2 / LINK.bandwidth_bytes_per_s)
    assert costs.op_time_s[added, 0] - plain.op_time_s[added, 0] == pytest.approx(all_reduce)
    report = serving_report(team, pk.Placement.of(team.problem, np.zeros(graph.num_ops, dtype=np.int64)))
    assert [each.device for each in report.memory] == ["l4.0", "l4.1"]
    assert report.memory[0].weight_bytes == pytest.approx(SMALL.num_parameters)


def planned(platform: pk.Platform, runtime: str | None, **choices: Any) -> ServingPlan:
    """Return the best plan of the small model."""
    rules = None if runtime is None else RUNTIMES[runtime]
    serving = Serving(64, 16, sequences=2)
    return best_plan(
        plan_cases(partial(make, SMALL), serving, platform, rules, **choices),
        partial(solve, method=Chain()),
        rules,
    )


@pytest.mark.parametrize(
    ("runtime", "option"),
    [
        ("vllm", "--tensor-parallel-size 2"),
        ("sglang", "--tp-size 2"),
        ("tensorrt-llm", "--tp_size 2"),
        ("megatron", "--tensor-model-parallel-size 2"),
        ("torchtitan", "--parallelism.tensor_parallel_degree 2"),
    ],
)
def test_runtimes_are_told_the_degree(runtime: str, option: str) -> None:
    """Ranks of a team follow each other, and cards keep the numbers that they have on the machine."""
    platform = pk.Platform.of(l4=3, t4=2, links={"l4": LINK, "t4": LINK})
    found = planned(platform, runtime, degrees=(2,))
    problem, placement = found.task.problem, found.result.placement
    assert placement is not None
    served = Served(cards=tuple(platform.device_names))
    told = launch_of(runtime, problem.graph, problem.platform, placement, served)
    assert option in told.command
    pairs = set(zip(told.devices[::2], told.devices[1::2], strict=True))
    assert pairs <= {("l4.0", "l4.1"), ("t4.0", "t4.1")}
    environment = {**told.environment, **(told.starts[0].environment if told.starts else {})}
    cards = [platform.device_names[int(at)] for at in environment["CUDA_VISIBLE_DEVICES"].split(",")]
    assert tuple(cards) == told.devices


def test_degrees_that_cannot_be_are_refused() -> None:
    """By the runtime, by the heads, or by the devices: one line each."""
    platform = pk.Platform.of(l4=3, links={"l4": LINK})
    with pytest.raises(InvalidProblemError, match=r"llama\.cpp has no tensor parallelism"):
        planned(platform, "llama.cpp", degrees=(1, 2))
    with pytest.raises(InvalidProblemError, match="there are no 4 equal accelerators"):
        planned(platform, "vllm", degrees=(4,))
    with pytest.raises(InvalidProblemError, match=r"degree 3 does not divide the 4 query heads of model\.layers\.0"):
        planned(platform, "vllm", degrees=(3,))
    for text in ("", "0", "2,", "1025", "two", "-1", "1.5"):
        with pytest.raises(InvalidProblemError, match=f"^--tensor-parallel {text!r}: it should be degrees from 1 to"):
            parse_degrees(text)


def test_caches_that_do_not_divide_are_held_several_times() -> None:
    """One key-value head on two members: the cache is there twice, and no host stands beside such teams."""
    platform = pk.Platform.of(cpu=1, l4=2, host="cpu", links={"l4": LINK})
    model = Decoder(3, 64, 256, 1000, heads=4, kv_heads=1)
    alone = make(model, Serving(), platform)
    cards = platform.with_devices(platform.devices[1:])
    assert (
        make(model, Serving(), cards, form=TaskForm(tensor_teams=[(0, 1)])).cache_bytes.sum()
        == 2 * alone.cache_bytes.sum()
    )
    with pytest.raises(InvalidProblemError, match="different numbers of copies"):
        make(model, Serving(), platform, form=TaskForm(tensor_teams=[(0,), (1, 2)]))
    cases = list(plan_cases(partial(make, model), Serving(), platform, degrees=(1, 2)))
    assert [case.problem.platform.num_devices for case in cases] == [3, 3, 1]


def test_eighty_layers_on_twenty_four_machines() -> None:
    """Three kinds of eight machines, degrees 1, 2 and 4, replicas of equal teams: proven, and no worse than without."""
    memory = {"h100": 72e9, "a100-80gb": 72e9, "l4": 21.6e9}
    devices = tuple(pk.Device(f"{kind}.{at}", kind, size) for kind, size in memory.items() for at in range(8))
    platform = pk.Platform(devices, dict.fromkeys(memory, pk.Link(20e-6, 20e9)))
    serving = Serving(sequences=64, chunk=2048)
    found = [
        best_plan(
            plan_cases(
                partial(make, DECODERS["llama3-70b"]), serving, platform, batch=8, degrees=degrees,
                objective=pk.Throughput(teams="equal"),
            ),
            partial(solve, method=Chain()),
        )
        for degrees in ((1,), (1, 2, 4))
    ]  # fmt: skip
    assert found[1].result.status is pk.Status.OPTIMAL
    assert found[1].tokens_per_s >= found[0].tokens_per_s * (1 - 1e-9)


@pytest.mark.parametrize("runtime", ["vllm", "megatron"])
def test_runtimes_get_as_many_replicas_of_every_stage(runtime: str) -> None:
    """The best plan of one team size, against every size by itself, where the best plan of all mixes sizes."""
    kinds = {"h100": 4, "t4": 2}
    devices = tuple(pk.Device(f"{kind}.{at}", kind, 20e9) for kind, count in kinds.items() for at in range(count))
    platform = pk.Platform(devices, dict.fromkeys(kinds, pk.Link(20e-6, 20e9)))
    cases = list(
        plan_cases(
            partial(make, DECODERS["llama3-8b"]), Serving(sequences=32), platform, RUNTIMES[runtime], batch=8,
            objective=pk.Throughput(teams="equal"),
        )
    )  # fmt: skip
    found = best_plan(cases, partial(solve, method=Chain(ChainParams(is_even=True))), RUNTIMES[runtime])
    assert found.result.placement is not None
    assert found.result.objective is not None
    problem = found.task.problem
    told = launch_of(runtime, problem.graph, problem.platform, found.result.placement)
    assert told.devices
    by_size = []
    for size in (1, 2, 4):
        few = [device for device in devices if int(device.name[-1]) < kinds[device.kind] // size]
        task = make(
            DECODERS["llama3-8b"], Serving(sequences=32, batch=8), platform.with_devices(few),
            form=TaskForm(objective=pk.Throughput(), contiguity=Contiguity.ACYCLIC),
        )  # fmt: skip
        alone = solve(task.problem, Chain()).objective
        by_size.append(np.inf if alone is None else alone / size)
    assert found.result.objective == pytest.approx(min(by_size), rel=1e-9)
    mixed = best_plan(cases, partial(solve, method=Chain()))
    assert found.result.lower_bound == pytest.approx(mixed.result.lower_bound)
    assert mixed.result.objective is not None
    assert mixed.result.objective <= found.result.objective


def test_teams_have_the_direct_links_of_their_members() -> None:
    """A link between two kinds is one between all kinds of teams of those; one of all pairs stays one."""
    links = (
        pk.DirectLink(1e-6, 3e11, kinds=("l4", "l4")),
        pk.DirectLink(2e-6, 2e10, kinds=("l4", "t4")),
        pk.DirectLink(3e-6, 1e10),
    )
    platform = replace(pk.Platform.of(l4=3, t4=1), direct_links=links)
    found = {link.kinds: link.latency_s for link in with_teams(platform, [(0, 1), (2,), (3,)]).direct_links}
    assert found == {
        ("l4", "l4"): 1e-6, ("l4", "l4 tp2"): 1e-6, ("l4 tp2", "l4 tp2"): 1e-6,
        ("l4", "t4"): 2e-6, ("l4 tp2", "t4"): 2e-6,
        None: 3e-6,
    }  # fmt: skip
