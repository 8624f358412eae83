"""Feed-forward layers in host memory: their costs against the judge's, and the best number of blocks against all."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from serving_plans import launch_of

import placekit as pk
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.planning.experts import hosted_ops, hosting_cases, with_hosted_experts
from placekit.language.planning.plan import fastest, plan_cases, plans
from placekit.language.planning.question import Wishes
from placekit.language.runtimes import RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.model.contiguity import Contiguity
from placekit.objectives.evaluate import evaluate
from placekit.solve.solve import solve
from placekit.solvers.chain.costs import chain_of
from placekit.solvers.chain.method import Chain, chain_plan

HOST = "cpu-8core-bf16"


def task_of(rng: np.random.Generator, layers: int, share: float, experts: int) -> LanguageTask:
    """Return a model on a card that holds a share of it, a second card, and a host; 1 expert is a dense model."""
    width = int(rng.integers(256, 1024))
    model = Decoder(layers, 64, width, 1000, heads=4, experts=experts, experts_per_token=min(experts, 2))
    size = share * 2 * model.num_parameters
    devices = (
        pk.Device("CPU", HOST, 2.2 * model.num_parameters, is_host=True),
        pk.Device("big", "l4", size),
        pk.Device("small", "t4", size / 2),
    )
    links = {kind: pk.Link(1e-7, float(rng.uniform(1e9, 1e11))) for kind in ("l4", "t4")}
    platform = pk.Platform(devices, links)
    return decoder_task(
        model, Serving(32, 8), platform, lambda graph: pk.Analytic().cost_table(graph, platform),
        form=TaskForm(objective=pk.SerialLatency(), contiguity=Contiguity.ACYCLIC),
    )  # fmt: skip


@pytest.mark.parametrize("experts", [1, 8])
@pytest.mark.parametrize("seed", range(3))
def test_costs_are_those_of_experts_placed_on_the_host(seed: int, experts: int) -> None:
    """Time and memory equal the judge's for a placement that has the experts there op by op."""
    rng = np.random.default_rng(seed)
    task = task_of(rng, 3, 3.0, experts)
    for count in (1, 2, 3):
        hosted = with_hosted_experts(task, count)
        assert hosted is not None
        at = np.where(np.arange(task.problem.graph.num_ops) < rng.integers(5, 40), 1, 2)
        chain = chain_of(task.problem)
        assert chain is not None
        at = np.array([at[chain.block_of_op == block].min() for block in chain.block_of_op])
        folded = evaluate(hosted.problem, pk.Placement.of(hosted.problem, at))
        alone = np.arange(len(at))
        free = task.problem.replace(
            contiguity="none",
            colocation=alone,
            costs=task.problem.costs.replace(op_group=alone),
        )
        placed = evaluate(free, pk.Placement.of(free, np.where(hosted_ops(task, count), 0, at)))
        assert folded.objective == pytest.approx(placed.objective, rel=1e-12)
        held = task.problem.costs.op_memory_bytes[hosted_ops(task, count)].sum()
        assert held == hosted.hosted_bytes > 0


@pytest.mark.parametrize("experts", [1, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_number_of_blocks_equals_all(seed: int, experts: int) -> None:
    """Every number of blocks, with every placement in runs: none is better, and one is as good."""
    rng = np.random.default_rng(seed)
    task = task_of(rng, 2, float(rng.uniform(0.3, 0.7)), experts)
    chain = chain_of(task.problem)
    assert chain is not None
    best: dict[int, float] = {}
    for count in (1, 2):
        hosted = with_hosted_experts(task, count)
        for devices in itertools.product(range(3), repeat=chain.num_blocks) if hosted is not None else ():
            runs = [device for device, _ in itertools.groupby(devices)]
            if len(set(runs)) == len(runs):
                assert hosted is not None
                judged = evaluate(hosted.problem, pk.Placement.of(hosted.problem, np.array(devices)[chain.block_of_op]))
                if judged.is_feasible and judged.objective is not None:
                    best[count] = min(best.get(count, np.inf), judged.objective)
    found = list(hosting_cases(task))
    if best:
        result = solve(found[0].problem, Chain())
        assert result.status is pk.Status.OPTIMAL
        assert result.objective == pytest.approx(min(best.values()), rel=1e-12)
        assert found[-1].hosted_blocks == max(best)
    else:
        assert not found


@pytest.mark.parametrize("experts", [1, 8])
@pytest.mark.parametrize("seed", range(4))
def test_numbers_that_a_bound_rules_out_change_nothing(seed: int, experts: int) -> None:
    """The cases of twelve blocks are those of trying every number, with much and with little memory."""
    rng = np.random.default_rng(seed)
    for room in (0.3, 0.6, 0.9, 2.0):
        task = task_of(rng, 12, room, experts)
        every = {
            count: plan.value
            for count in range(1, 13)
            if (hosted := with_hosted_experts(task, count)) is not None
            and (plan := chain_plan(hosted.problem, hosted.first_kind)) is not None
        }
        found = [(case.hosted_blocks, chain_plan(case.problem, case.first_kind)) for case in hosting_cases(task)]
        assert {count for count, _ in found} == (
            {min(every, key=lambda each: every[each]), max(every)} if every else set()
        )
        assert [plan and plan.value for _, plan in found] == [every[count] for count, _ in found]


@pytest.mark.parametrize(
    ("name", "precision", "serving", "option", "gib"),
    [
        ("mixtral-8x7b", "int8", Serving(chunk=512), "--n-cpu-moe", 46.21),
        ("llama3-8b", "f16", Serving(16, 32_768, chunk=512), "--n-cpu-ffn", 14.96),
    ],
)
def test_llama_cpp_is_told(name: str, precision: str, serving: Serving, option: str, gib: float) -> None:
    """Attention on the card, feed-forward on the host: faster than whole blocks there, and one argument says so."""
    devices = (pk.Device("CPU", HOST, is_host=True), pk.Device("GPU", "rtx4090", gib * 0.44 * 2**30))
    platform = pk.Platform(devices, {"rtx4090": pk.Link(20e-6, 20e9)})

    def make(serving: Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        return decoder_task(
            DECODERS[name], serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform),
            precision=precision, **choices,
        )  # fmt: skip

    rules = RUNTIMES["llama.cpp"]
    found = plans(plan_cases(make, serving, platform, rules), lambda each: solve(each, Chain()), rules)
    plan = fastest([each for each in found if not each.task.host_cache_bytes])
    assert plan.task.hosted_blocks > 0
    assert plan.tokens_per_s > found[0].tokens_per_s
    problem, placement, report = plan.task.problem, plan.result.placement, plan.report
    assert placement is not None
    assert report is not None
    served = problem.served
    told = launch_of("llama.cpp", problem.graph, problem.platform, placement, served)
    assert f"{option} {plan.task.hosted_blocks}" in told.command
    assert sum(each.weight_bytes for each in report.memory) == pytest.approx(gib * 2**30, rel=1e-3)
    assert plan.task.platform.devices[0].memory_bytes is None


def test_the_cache_goes_to_the_host() -> None:
    """A long cache leaves no room for blocks: attention is computed where the cache is, and memory says so."""
    devices = (pk.Device("CPU", HOST, 64e9, is_host=True), pk.Device("GPU", "rtx4090", 8e9))
    platform = pk.Platform(devices, {"rtx4090": pk.Link(20e-6, 20e9)})
    wishes = Wishes(serving=Serving(512, 128, context=65_536))
    found = pk.plan_serving("llama3-8b", platform, "llama.cpp", precision="int4", wishes=wishes)
    plan, whole = found.plan, fastest([each for each in found.tried if not each.task.host_cache_bytes])
    assert plan.tokens_per_s > 1.5 * whole.tokens_per_s
    assert plan.report is not None
    of_one = 65_536 * 2 * 8 * 128 * 2 * 32
    assert [each.cache_bytes for each in plan.report.memory] == [of_one, 0]
    limits = [each.limit_bytes for each in plan.report.memory]
    assert limits[0] == pytest.approx(0.9 * 64e9)
    assert plan.report.most_sequences == int((0.9 * 64e9 - plan.report.memory[0].weight_bytes) / of_one)
    assert found.launch[0].endswith("-nkvo -t 8 --device CUDA0 --tensor-split 33")
    cards = platform.replace(devices=(devices[0], devices[1].replace(memory_bytes=24e9)))
    roomy = pk.plan_serving("llama3-8b", cards, "llama.cpp", precision="int4")
    assert not any(each.task.host_cache_bytes for each in roomy.tried), "with all blocks on cards nothing is gained"
