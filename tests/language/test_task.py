"""A served decoder as a problem: costs that add up, memory that counts the cache, proofs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import placekit as pk
from placekit.cost_models.sheets.device_table import get_spec
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import ModelStep, model_step
from placekit.language.report import serving_report
from placekit.language.serving import Phase, Serving, parse_phases
from placekit.language.task import LanguageTask, TaskForm, alive_bytes, decoder_task
from placekit.model.errors import InvalidProblemError

SMALL = Decoder(4, 512, 1024, 2000, heads=8, kv_heads=2)
MIXTURE = replace(SMALL, experts=8, experts_per_token=2)
PLATFORM = pk.Platform.of(
    a10=1, t4=2, memory_bytes={"a10": 2**30, "t4": 2**29}, links={kind: pk.Link(1e-5, 1e10) for kind in ("a10", "t4")}
)


def task_of(model: Decoder = SMALL, serving: Serving | None = None, **choices: Any) -> LanguageTask:
    """Return the task on `PLATFORM` with analytic costs."""
    serving = serving or Serving(64, 16, sequences=4)
    return decoder_task(model, serving, PLATFORM, lambda graph: pk.Analytic().cost_table(graph, PLATFORM), **choices)


def step_of(model: Decoder, phase: Phase, batch: int = 1) -> ModelStep:
    """Return a step of a decoder in 16 bits."""
    return model_step(describe_decoder(model), phase, batch=batch)


@pytest.mark.parametrize("model", [SMALL, MIXTURE, DECODERS["gpt2"]])
def test_weights_of_ops_sum_up_to_the_parameters(model: Decoder) -> None:
    """Every parameter is held by one op, at 16 bits."""
    step = step_of(model, Phase("decode", 1, 1, 10.0))
    again = sum(num_bytes * (len(ops) - 1) for num_bytes, ops in step.shared_weights)
    assert step.weight_bytes.sum() - again == 2 * model.num_parameters


def test_flops_of_a_prompt() -> None:
    """Two per parameter and token in blocks, four per query channel and visible token, the head for the last one."""
    tokens = 100
    graph = step_of(SMALL, Phase("prefill", 1, tokens, 0.0)).graph
    products = np.isin(graph.op_types, ("MatMul", "ScaledDotProductAttention"))
    in_blocks = SMALL.layers * (SMALL.block_parameters - 2 * SMALL.hidden)
    attention = SMALL.layers * 4 * tokens * (tokens + 1) / 2 * SMALL.query_width
    head = 2 * SMALL.hidden * SMALL.vocab
    assert graph.op_flops[products].sum() == 2 * tokens * in_blocks + attention + head


def test_a_step_of_decoding_reads_weights_and_cache_once() -> None:
    """Memory bandwidth decides: bytes of weights and cache over bandwidth, and little more, whatever the batch."""
    model = replace(DECODERS["llama3-8b"], layers=8)
    spec = get_spec("l4")
    platform = pk.Platform.of(l4=1)
    for batch in (1, 8):
        step = step_of(model, Phase("decode", 1, 1, 2000.0), batch=batch)
        time_s = pk.Analytic().cost_table(step.graph, platform).op_time_s.sum()
        cache = 2 * model.layers * model.cache_values_per_token * 2000 * batch
        table = 2 * model.hidden * model.vocab  # of the embedding one row is read
        least_s = (step.weight_bytes.sum() - table + cache) / spec.memory_bandwidth_bytes_per_s
        assert least_s < time_s < 1.1 * least_s


def test_experts_that_are_not_met_are_not_read() -> None:
    """One token reads two of eight experts; all eight are held."""
    step = step_of(MIXTURE, Phase("decode", 1, 1, 10.0))
    is_expert = np.array(["_exps" in name for name in step.graph.op_names])
    assert step.graph.op_weight_bytes[is_expert].sum() == pytest.approx(step.weight_bytes[is_expert].sum() / 4)


def test_phases_add_up() -> None:
    """Costs are those of the prompt, and of decoding as often as tokens are generated."""
    task = task_of(serving=Serving(64, 16))
    prefill, decode = task.costs_of_phase["prefill"], task.costs_of_phase["decode"]
    np.testing.assert_allclose(task.problem.costs.op_time_s, prefill.op_time_s + 16 * decode.op_time_s)
    np.testing.assert_allclose(
        task.problem.costs.transfer_time_s, prefill.transfer_time_s + 16 * decode.transfer_time_s
    )


def test_memory_counts_the_cache_of_all_sequences() -> None:
    """Keys and values of every layer, for the whole context of every sequence."""
    serving = Serving(64, 16, context=100, sequences=3)
    task = task_of(serving=serving, precision="int4", form=TaskForm(cache_precision="int8"))
    cache = SMALL.layers * 2 * 2 * 64 * 100 * 3 * 8.5 / 8
    held = task.problem.costs.op_memory_bytes.sum()
    assert held == pytest.approx(task.weight_bytes.sum() + cache)


def test_blocks_stay_whole_or_not() -> None:
    """Embedding, blocks, norm, head and output are the classes of layers; ops are fewer than there are names only."""
    assert task_of(form=TaskForm(granularity="layer")).problem.num_classes == SMALL.layers + 4
    assert task_of(form=TaskForm(granularity="op")).problem.num_classes > 5 * SMALL.layers
    with pytest.raises(InvalidProblemError, match="granularity is 'head'; it must be one of layer, op"):
        task_of(form=TaskForm(granularity="head"))


def test_alive_bytes() -> None:
    """Of a - b - c with a read by c, too, all but c's own output is alive at c."""
    graph = pk.OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")])
    assert alive_bytes(graph.replace(tensor_bytes=[1.0, 10.0, 100.0])) == 111
    chain = pk.OpGraph.from_edges(["a", "b", "c", "d"], [("a", "b"), ("b", "c"), ("c", "d")])
    assert alive_bytes(chain.replace(tensor_bytes=[1.0, 10.0, 100.0])) == 110


@pytest.mark.parametrize("teams", ["off", "equal"])
@pytest.mark.parametrize("model", [SMALL, MIXTURE])
def test_report_agrees_with_the_judge(model: Decoder, teams: str) -> None:
    """Rates are those of the objective; a request takes its phases; the most sequences fit, one more does not."""
    task = task_of(model, form=TaskForm(objective=pk.Throughput(teams=teams)))  # type: ignore[arg-type]  # a parameter
    result = pk.solve(task.problem, stop=pk.MaxRuntime(20))
    assert result.status is pk.Status.OPTIMAL
    assert result.placement is not None
    assert result.objective is not None
    report = serving_report(task, result.placement)
    assert report.steady_requests_per_s == pytest.approx(1 / result.objective)
    assert report.time_to_first_token_s is not None
    assert report.time_per_token_s is not None
    assert report.request_s == pytest.approx(report.time_to_first_token_s + 16 * report.time_per_token_s)
    assert report.requests_per_s == pytest.approx(min(1 / result.objective, 4 / report.request_s))
    if teams == "off":
        alone = pk.evaluate(task.problem, result.placement).device_loads
        assert report.request_s == pytest.approx(sum(load.load_s for load in alone))
    assert report.most_sequences is not None
    for sequences, fits in ((report.most_sequences, True), (report.most_sequences + 1, False)):
        other = task_of(model, Serving(64, 16, sequences=sequences), form=TaskForm(objective=task.problem.objective))
        broken = pk.evaluate(other.problem, result.placement).violations
        assert (not broken) == fits
        assert fits or {each.device for each in broken} >= {report.next_breaks}


def test_an_op_on_a_device_that_cannot_run_it_has_no_report() -> None:
    """The op and the device are named."""
    task = task_of()
    costs = task.problem.costs
    supported = np.ones((task.problem.graph.num_ops, len(costs.kinds)), dtype=np.bool_)
    supported[3, costs.kinds.index("t4")] = False
    problem = task.problem.replace(costs=costs.replace(supported=supported))
    placement = pk.Placement.of(problem, np.full(problem.graph.num_ops, PLATFORM.index("t4.0")))
    with pytest.raises(InvalidProblemError, match=rf"{problem.graph.op_names[3]}.*t4"):
        serving_report(replace(task, problem=problem), placement)


@pytest.mark.slow
def test_teams_of_24_machines_are_proven() -> None:
    """80 layers over machines of three kinds."""
    links = {"h100": pk.Link(5e-5, 12.5e9), "l4": pk.Link(5e-5, 3e9), "t4": pk.Link(5e-5, 1.25e9)}
    memory = {"h100": 80 * 2.0**30, "l4": 24 * 2.0**30, "t4": 16 * 2.0**30}
    platform = pk.Platform.of(memory_bytes=memory, links=links, h100=4, l4=8, t4=12)
    task = decoder_task(
        DECODERS["llama3-70b"], Serving(512, 128, sequences=16), platform,
        lambda graph: pk.Analytic().cost_table(graph, platform), form=TaskForm(objective=pk.Throughput(teams="equal")),
    )  # fmt: skip
    result = pk.solve(task.problem, stop=pk.MaxRuntime(60))
    assert result.status is pk.Status.OPTIMAL
    assert result.placement is not None
    assert max(map(len, result.placement.teams)) > 1


def test_phases_and_servings_that_are_none() -> None:
    """One line each: value and bound."""
    for text in ("prefill", "prefill:x", "train:3", "decode:-1"):
        with pytest.raises(InvalidProblemError, match=r"it should be prefill:TOKENS or decode:TOKENS"):
            parse_phases([text])
    with pytest.raises(InvalidProblemError, match="decode is given twice"):
        parse_phases(["decode:1", "decode:2"])
    assert parse_phases(["decode:7"]) == {"prompt": 0, "generated": 7}
    with pytest.raises(InvalidProblemError, match=r"context is 5; it must be from 30 \(prompt and generated tokens\)"):
        Serving(10, 20, context=5)
    with pytest.raises(InvalidProblemError, match="batch is 4; it must be at most sequences, which is 2"):
        Serving(10, 20, sequences=2, batch=4)
    with pytest.raises(InvalidProblemError, match="both 0"):
        Serving(0, 0)
    with pytest.raises(InvalidProblemError, match="sequences is 0; it must be from 1"):
        Serving(10, 20, sequences=0)
    with pytest.raises(InvalidProblemError, match=r"device 'a10.0' has 1 GiB; activations of a step alone take"):
        task_of(serving=Serving(10**6, 1))
