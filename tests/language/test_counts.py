"""Counts of a served model, by hand: parameters, steps of phases, bits of weights, memory of a task."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from records import thawed

import placekit as pk
import placekit.language
from placekit.language.decoder import BITS, Decoder, bits_of, get_decoder
from placekit.language.description import Block, Part
from placekit.language.from_numbers import describe_decoder
from placekit.language.gguf.buffers import CONTEXT_STEP
from placekit.language.graph import model_step, tokens_cached, tokens_seen
from placekit.language.planning.context import ContextPoint, room_for_context
from placekit.language.precision import PRECISIONS, precision_of, split_precisions
from placekit.language.serving import MAX_TOKENS, Phase, Serving, parse_phases
from placekit.language.task import LanguageTask, TaskForm, alive_bytes, decoder_task, join_labels, less_memory
from placekit.language.truth import class_of
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device

SHAPE = Decoder(2, 8, 6, 10, heads=4, kv_heads=2, experts=3, experts_per_token=2, positions=5)
SMALL = Decoder(4, 64, 128, 200, heads=8, kv_heads=2)
PLATFORM = pk.Platform.of(a10=2, memory_bytes={"a10": 2.0**30}, links={"a10": pk.Link(1e-5, 1e10)})


def test_parameters_of_a_block() -> None:
    """Attention 2 * 8 * 8 + 2 * 8 * 4, an expert 3 * 8 * 6, a router 8 * 3, two norms of 8."""
    assert (SHAPE.head_dim, SHAPE.query_width, SHAPE.kv_width, SHAPE.cache_values_per_token) == (2, 8, 4, 8)
    assert SHAPE.expert_parameters == 144
    assert SHAPE.block_parameters == 192 + 3 * 144 + 24 + 16
    assert replace(SHAPE, gated=False).block_parameters == 192 + 3 * 96 + 24 + 16
    assert replace(SHAPE, experts=1, experts_per_token=1).block_parameters == 192 + 144 + 16
    assert replace(SHAPE, experts=2).block_parameters == 192 + 2 * 144 + 16 + 16


def test_parameters_of_a_model() -> None:
    """Beside the blocks: two tables of 10 rows or one, 5 rows of positions, and a norm."""
    blocks = 2 * SHAPE.block_parameters
    assert SHAPE.num_parameters == blocks + 8 * (20 + 5 + 1)
    assert replace(SHAPE, tied=True).num_parameters == blocks + 8 * (10 + 5 + 1)


@pytest.mark.parametrize(
    ("hidden", "given", "heads", "kv_heads", "head_dim"),
    [
        (256, {}, 2, 2, 128),
        (96, {}, 1, 1, 96),
        (96, {"head_dim": 32}, 3, 3, 32),
        (96, {"heads": 6, "kv_heads": 2}, 6, 2, 16),
        (64, {"heads": 3, "head_dim": 16}, 3, 3, 16),
    ],
)
def test_heads_that_are_derived(hidden: int, given: dict[str, Any], heads: int, kv_heads: int, head_dim: int) -> None:
    """128 channels of a head at most, as many heads as fit, and keys and values of each."""
    shape = Decoder(1, hidden, 4, 4, **given)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (heads, kv_heads, head_dim)


def test_changes_of_a_shape() -> None:
    """Heads are derived anew where the change leaves them open, and stay otherwise."""
    wider, fewer = SMALL.replace(hidden=256), SMALL.replace(heads=4)
    assert (wider.heads, wider.kv_heads, wider.head_dim) == (2, 2, 128)
    assert (fewer.heads, fewer.kv_heads, fewer.head_dim) == (4, 4, 16)
    assert SMALL.replace(heads=4, kv_heads=2).kv_heads == 2
    assert SMALL.replace(layers=3) == replace(SMALL, layers=3)
    assert get_decoder(None, {"layers": 4, "hidden": 64, "ffn": 128, "vocab": 200, "heads": 8, "kv_heads": 2}) == SMALL
    assert get_decoder("gpt2", {"layers": None}).layers == 12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layers": 10001}, "layers is 10001; it must be at least 1 and at most 10000"),
        ({"vocab": 0}, "vocab is 0"),
        ({"hidden": 0, "heads": None, "head_dim": None}, "hidden is 0"),
        ({"heads": 0, "kv_heads": 1}, "heads is 0"),
        ({"kv_heads": 0}, "kv_heads is 0"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"experts": 0}, "experts is 0"),
        ({"experts_per_token": 0}, "experts_per_token is 0"),
        ({"heads": None, "head_dim": 24}, "head_dim is 24; it must divide hidden, which is 64"),
    ],
)
def test_shapes_out_of_range(changes: dict[str, Any], words: str) -> None:
    """Every number has a least and a most."""
    with pytest.raises(InvalidProblemError, match=f"^decoder: {words}"):
        replace(SMALL, **changes)
    assert replace(SMALL, layers=10000).layers == 10000


def test_what_is_missing_of_a_shape() -> None:
    """The first of the four that have to be given, with all of them and the names."""
    with pytest.raises(
        InvalidProblemError, match="layers is missing; give layers, hidden, ffn, vocab, or a name: llama3"
    ):
        get_decoder(None, {"heads": 4})


@pytest.mark.parametrize(
    ("serving", "phases"),
    [
        (Serving(100, 10), [("prefill", 1, 100, 0.0), ("decode", 10, 1, 104.5)]),
        (
            Serving(100, 10, sequences=4, batch=3, chunk=150, depth=7),
            [("prefill", 2, 50, 32.0), ("decode", 10, 1, 111.5)],
        ),
        (Serving(100, 1, sequences=3, batch=3, chunk=1), [("prefill", 100, 1, 49.5), ("decode", 1, 1, 100.0)]),
        (Serving(7, 0, chunk=3), [("prefill", 3, 3, 2.0)]),
        (Serving(0, 10, context=50), [("decode", 10, 1, 44.5)]),
        (Serving(0, 10, context=50, depth=5), [("decode", 10, 1, 9.5)]),
    ],
)
def test_steps_of_requests(serving: Serving, phases: list[tuple[str, int, int, float]]) -> None:
    """Steps, tokens of each, and tokens that are there before, on average."""
    assert [(each.name, each.count, each.tokens, each.past) for each in serving.phases] == phases


def test_tokens_that_a_token_sees() -> None:
    """Those before the step, and on average half of its own with itself."""
    assert Phase("prefill", 1, 5, 2.0).context == 5.0
    assert Phase("decode", 9, 1, 8.0).context == 9.0


def test_contexts_of_servings() -> None:
    """As long as a request, or longer if it is given; it can be taken as full."""
    plain, longer = Serving(10, 20, depth=3), Serving(10, 20, context=100)
    assert (plain.context, plain.has_own_context) == (33, False)
    assert (longer.context, longer.has_own_context) == (100, True)
    assert longer.filled.depth == 70
    same = Serving(10, 20, context=30)
    assert same == Serving(10, 20)  # however its context came about
    assert repr(same) == repr(Serving(10, 20))
    assert (same.has_own_context, Serving(10, 20).has_own_context) == (True, False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prompt": -1}, f"prompt is -1; it must be from 0 to {MAX_TOKENS}"),
        ({"generated": -1}, "generated is -1"),
        ({"depth": -1}, "depth is -1"),
        ({"batch": 0}, "batch is 0; it must be from 1"),
        ({"sequences": MAX_TOKENS + 1}, f"sequences is {MAX_TOKENS + 1}"),
        ({"chunk": 0}, "chunk is 0; it must be from 1 to"),
        ({"chunk": MAX_TOKENS + 1}, f"chunk is {MAX_TOKENS + 1}; it must be from 1 to"),
        ({"context": MAX_TOKENS + 1}, f"context is {MAX_TOKENS + 1}; it must be from 30"),
        ({"context": 29}, "context is 29; it must be from 30"),
    ],
)
def test_servings_out_of_range(given: dict[str, int], words: str) -> None:
    """Every number has a least and a most, which is still allowed."""
    with pytest.raises(InvalidProblemError, match=f"^serving: {words}"):
        Serving(**({"prompt": 10, "generated": 20} | given))
    most = Serving(10, 20, context=MAX_TOKENS, sequences=MAX_TOKENS, chunk=MAX_TOKENS)
    assert (most.context, most.sequences, most.chunk) == (MAX_TOKENS,) * 3
    assert Serving(1, 0, chunk=1).chunk == 1


def test_phases_in_words() -> None:
    """None of them leaves the defaults; a number has 18 digits at most."""
    assert parse_phases([]) == {}
    assert parse_phases(["prefill:" + "9" * 18]) == {"prompt": 10**18 - 1, "generated": 0}
    with pytest.raises(InvalidProblemError, match="should be prefill:TOKENS"):
        parse_phases(["prefill:" + "9" * 19])


def test_bits_of_mixes() -> None:
    """Head and rest make the bits of a file of Llama 3.1 8B; few bits have a head of Q5_K."""
    parameters, head = 8_030_261_248, 525_336_576
    for name, whole, of_head in (("q4_k_m", 4.8944, 6.5625), ("iq2_m", 2.9294, 5.5), ("iq3_xs", 3.4977, 6.5625)):
        found = PRECISIONS[name]
        assert found.head == of_head
        assert found.bits * (parameters - head) + found.head * head == pytest.approx(whole * parameters)
    for name in ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq3_xxs"):
        assert PRECISIONS[name].head == 5.5
    assert (PRECISIONS["q5_1"].bits, PRECISIONS["q5_1"].head) == (6.0, 6.5625)
    assert (PRECISIONS["int4"].bits, PRECISIONS["int4"].head) == (BITS["int4"], BITS["int4"])
    assert bits_of("int8") == 8.5


def test_bits_of_mixes_are_those_of_their_names() -> None:
    """The digit of a name is what most matrices have; the head and some others have more."""
    for name, precision in PRECISIONS.items():
        if (told := re.match(r"i?q(\d)_", name)) is not None:
            assert int(told[1]) - 0.1 <= precision.bits < int(told[1]) + 1.2, name
            assert precision.head >= precision.bits or int(told[1]) > 5, name


def test_bytes_of_a_weight() -> None:
    """By where it is: a mixture in MXFP4 has all else in 8 bits."""
    mixed, plain = PRECISIONS["mxfp4"], PRECISIONS["q4_0"]
    assert (mixed.bytes_each(), mixed.bytes_each(is_expert=True)) == (8.5 / 8, 4.25 / 8)
    assert mixed.bytes_each(is_head=True) == 8.5 / 8
    assert (plain.bytes_each(), plain.bytes_each(is_expert=True)) == (4.5 / 8, 4.5 / 8)
    assert plain.bytes_each(is_head=True) == 6.5625 / 8


def test_precisions_in_words() -> None:
    """Names in any case, bits within a range, several with commas."""
    assert precision_of(" Q4-K-M ") is PRECISIONS["q4_k_m"]
    assert (precision_of("32").bits, precision_of("1").head, precision_of("4.25").name) == (32.0, 1.0, "4.25 bits")
    for told in ("32.1", "0.9"):
        with pytest.raises(InvalidProblemError, match=f"precision is '{told}'; bits of a weight are from 1 to 32"):
            precision_of(told)
    with pytest.raises(
        UnknownNameError, match=r"precision is 'q4_k'; it must be one of f32, .* or bits .*did you mean"
    ):
        precision_of("q4_k")
    assert split_precisions(None) == [None]
    assert split_precisions("q4_k_m, f16") == ["q4_k_m", "f16"]
    for told in ("q8_0,,f16", "f16,F16", ""):
        with pytest.raises(InvalidProblemError, match="with commas between, each stands there once"):
            split_precisions(told)


def task_of(model: Decoder = SMALL, serving: Serving | None = None, **form: Any) -> LanguageTask:
    """Return a task on two cards with analytic costs."""
    serving = serving or Serving(64, 16, sequences=4)
    return decoder_task(
        model, serving, PLATFORM, lambda graph: pk.Analytic().cost_table(graph, PLATFORM), TaskForm(**form)
    )


def test_weights_that_ops_share_are_held_once() -> None:
    """On one device; on two, each has its own."""
    task = task_of(replace(SMALL, tied=True))
    ((num_bytes, ops),) = task.shared_weights
    assert num_bytes == 2 * SMALL.hidden * SMALL.vocab
    everything = np.ones(task.problem.graph.num_ops, dtype=bool)
    assert task.held_bytes(everything) == task.weight_bytes.sum() - num_bytes
    one = everything.copy()
    one[ops[0]] = False
    assert task.held_bytes(one) == task.weight_bytes[one].sum()
    assert task.held_bytes(~everything) == 0
    memory = task.problem.stage_memory.use(np.zeros(len(one), dtype=np.int64), 2).total
    assert memory.tolist() == pytest.approx([task.held_bytes(everything) + 4 * task.cache_bytes.sum(), 0.0])


def test_activations_are_set_aside() -> None:
    """Every device has less by what is alive at a time, and the task says how much there was."""
    task = task_of()
    assert task.activation_bytes == max(alive_bytes(task.problem.graph), task.activation_bytes) > 0
    limits = [device.memory_bytes for device in task.problem.platform.devices]
    assert limits == [2.0**30 - task.activation_bytes] * 2
    assert [device.memory_bytes for device in task.platform.devices] == [2.0**30] * 2
    team = pk.Platform((Device("pair", "a10", memory_bytes=100.0, members=("a", "b")),))
    assert less_memory(team, 49.0).devices[0].memory_bytes == 2.0
    with pytest.raises(InvalidProblemError, match="device 'pair' has 100 B; activations of a step alone take 100 B"):
        less_memory(team, 50.0)


def test_costs_are_replaced_and_memory_stays() -> None:
    """Twice the time of each step is twice the time of a request."""
    task = task_of()
    twice = {name: costs.replace(op_time_s=2 * costs.op_time_s) for name, costs in task.costs_of_phase.items()}
    other = task.with_costs(twice)
    np.testing.assert_allclose(other.problem.costs.op_time_s, 2 * task.problem.costs.op_time_s)
    np.testing.assert_array_equal(other.problem.costs.op_memory_bytes, task.problem.costs.op_memory_bytes)
    assert other.problem.costs.provenance == task.problem.costs.provenance
    assert other.costs_of_phase is twice


def test_blocks_that_stay_together() -> None:
    """Two by two; not at all with single ops."""
    assert task_of(together=2).problem.num_classes == SMALL.layers // 2 + 4
    for form in ({"together": 0}, {"together": 2, "granularity": "op"}):
        with pytest.raises(InvalidProblemError, match=f"together is {form['together']}; it must be at least 1"):
            task_of(**form)


def test_forms_of_a_task() -> None:
    """Pins and contiguity are the problem's."""
    pinned = task_of(pins={"lm_head": "a10.1"}, contiguity=pk.Contiguity.CONVEX, granularity="op").problem
    assert pinned.pinned[pinned.graph.op_index["lm_head"]] == 1
    assert (pinned.pinned >= 0).sum() == 1
    assert pinned.contiguity is pk.Contiguity.CONVEX


def test_what_the_host_may_hold_has_a_name() -> None:
    """Experts where there are some."""
    assert task_of().hosted_layers == "feed-forward layers"
    assert task_of(replace(SMALL, experts=2)).hosted_layers == "experts"


def test_memory_of_the_host_is_what_is_left_and_what_it_holds() -> None:
    """Experts and caches that are on the host beside all placements are part of its memory."""
    devices = (Device("cpu", "cpu-8core-f32", 1e9, is_host=True), Device("card", "a10", 2e9))
    host = pk.Platform(devices, links={"a10": pk.Link(1e-5, 1e10)})
    task = decoder_task(SMALL, Serving(64, 16, sequences=4), host, lambda g: pk.Analytic().cost_table(g, host))
    task = replace(task, hosted_bytes=3e6, host_cache_bytes=2e5)
    own = [device.memory_bytes for device in task.problem.platform.devices]
    assert own == [1e9 - task.activation_bytes, 2e9 - task.activation_bytes]
    assert [device.memory_bytes for device in task.platform.devices] == [1e9 + 3e6 + 4 * 2e5, 2e9]


def test_windows_of_a_block() -> None:
    """One cache of all tokens keeps all, and the longest window of several is that of the block."""

    def kept(*windows: int | None) -> int | None:
        parts = (Part("norm", "RMSNorm", window=3), *(Part("a", "A", cache_values=1, window=each) for each in windows))
        return Block("h.0", "block", parts).window

    assert [kept(4, 8), kept(4, None), kept(None), kept()] == [8, None, None, None]


def test_a_lookup_without_weights_reads_nothing() -> None:
    """As of a model whose embedding no file has."""
    model = describe_decoder(SMALL)
    embedding, *others = model.front
    assert embedding.is_lookup
    model = model.replace(front=(replace(embedding, parameters=0, weight_bytes=0.0), *others))
    graph = model_step(model, Phase("decode", 1, 1, 10.0)).graph
    assert graph.op_weight_bytes[graph.op_index[embedding.path]] == 0


def test_classes_of_splits() -> None:
    """Blocks on the host come before experts there, and both before the number of cards."""
    sides = ((0, True, False), (2, True, True), (1, False, True), (1, False, False), (2, False, False))
    found = [class_of(n, has_host_blocks=blocks, has_host_experts=experts) for n, blocks, experts in sides]
    assert found == ["host alone", "partly on the host", "experts on the host", "one card", "several cards"]


@pytest.mark.parametrize("window", [1, 3, 8, 30, 1000])
@pytest.mark.parametrize(("count", "tokens", "start"), [(1, 7, 0), (3, 4, 0), (3, 4, 5), (20, 1, 6), (5, 2, 40)])
def test_tokens_within_a_window(count: int, tokens: int, start: int, window: int) -> None:
    """Token by token, and step by step: the mean of what is seen, and of what is read from the cache."""
    phase = Phase("decode", count, tokens, start + (count - 1) * tokens / 2)
    seen = [min(start + at + 1, window) for at in range(count * tokens)]
    cached = [min(start + at * tokens, window) for at in range(count)]
    assert tokens_seen(phase, window) == pytest.approx(np.mean(seen))
    assert tokens_cached(phase, window) == pytest.approx(np.mean(cached))
    assert tokens_seen(phase) == pytest.approx(np.mean([start + at + 1 for at in range(count * tokens)]))
    assert tokens_cached(phase) == phase.past


def test_the_context_that_a_plan_has_room_for() -> None:
    """Room of a card beside weights and activations, in tokens of the cache, down to whole steps."""
    card = pk.Platform.of(l4=1, memory_bytes={"l4": 2.0**31})
    plan = pk.plan_serving(SMALL, card, wishes=pk.Wishes(serving=Serving(64, 16), compares=False)).plan
    assert plan.report is not None
    (memory,) = plan.report.memory
    assert memory.limit_bytes is not None
    left = memory.limit_bytes - memory.weight_bytes - memory.activation_bytes
    tokens = int(left / (memory.cache_bytes / plan.task.serving.context))
    assert room_for_context(plan) == tokens // CONTEXT_STEP * CONTEXT_STEP
    assert ContextPoint(80, plan) == ContextPoint(context=80, plan=plan)


def test_labels_are_joined_through_either() -> None:
    """With a, b of one label and b, c of another all three are one; labels of one each change nothing."""
    labels, others = np.array([5, 5, 7, 8]), np.array([0, 1, 1, 2])
    assert join_labels(labels, others).tolist() == [0, 0, 0, 1]
    assert join_labels(np.arange(4), others) is others


def test_records_cannot_be_changed() -> None:
    """But for those that gather what a file or a module says while it is read."""
    assert thawed(placekit.language) == ["BlockReader", "GgufFile", "KernelTimes", "Values", "_Parts", "_Writer"]
