"""Language models from files: caches are found, phases add up, and no cut separates an op from its cache."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from serving_plans import best_plan

import placekit as pk
from placekit.cost_models.sheets.device_table import get_spec
from placekit.exports.blocks import block_placement
from placekit.io.models.model import ModelSource
from placekit.io.models.model_inputs import ModelInput
from placekit.io.models.openvino_graph import ATTENTION
from placekit.language.decoder import Decoder
from placekit.language.model import find_caches, model_task, step_shapes
from placekit.language.planning.plan import plan_cases
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.launch import launch_lines
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import DYNAMIC
from placekit.solvers.chain.method import Chain

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

SERVING = pk.Serving(64, 16, sequences=4, batch=2)
PLATFORM = pk.Platform.of(l4=1, t4=1)


def costs(graph: pk.OpGraph) -> pk.CostTable:
    """Return analytic costs on `PLATFORM`."""
    return pk.Analytic().cost_table(graph, PLATFORM)


@pytest.fixture(scope="module")
def stateful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a stateful OpenVINO model of three layers."""
    from language_models import write_stateful

    return write_stateful(tmp_path_factory.mktemp("stateful") / "stateful.xml")


def test_variables_are_the_cache(stateful: Path) -> None:
    """Two variables of two heads of sixteen numbers per layer; all sequences and the whole context of each."""
    task = model_task(stateful, SERVING, PLATFORM, costs, form=TaskForm(cache_precision="f16"))
    states = [op for op, op_type in enumerate(task.problem.graph.op_types) if op_type == "ReadValue"]
    assert np.flatnonzero(task.cache_bytes).tolist() == states
    assert task.cache_bytes.sum() == 3 * 2 * 2 * 16 * 80 * 2
    added = task.problem.costs.op_memory_bytes - task.weight_bytes
    np.testing.assert_allclose(added[states], 4 * task.cache_bytes[states])
    others = np.delete(added, states)
    assert set(others.tolist()) <= {0.0, -8.0}  # equal constants, a number each, are one weight of several ops


@pytest.mark.parametrize("granularity", ["layer", "op"])
def test_no_cut_separates_attention_from_its_cache(stateful: Path, granularity: str) -> None:
    """Reading, growing, assigning and using a cache are one class; the layers are not."""
    task = model_task(stateful, SERVING, PLATFORM, costs, form=TaskForm(granularity=granularity))
    names, classes = task.problem.graph.op_names, task.problem.op_class
    homes = []
    for layer in range(3):
        ops = [f"{end}.{layer}.{which}" for end in ("past", "present") for which in "kv"]
        found = {int(classes[names.index(op)]) for op in (*ops, f"layers.{layer}.self_attn.sdpa")}
        assert len(found) == 1
        homes.append(found.pop())
    assert len(set(homes)) == 3
    result = pk.solve(task.problem, stop=pk.MaxRuntime(20))
    assert result.status is pk.Status.OPTIMAL


@pytest.mark.parametrize("runtime", ["vllm", "llama.cpp", "accelerate"])
def test_states_go_with_their_blocks(stateful: Path, runtime: str) -> None:
    """States called ``past.0.k`` are no stack of blocks of their own: runtimes get three blocks."""
    rules, size = RUNTIMES[runtime], 520 * 2.0**10
    kinds = {"cpu-8core-bf16": 2**30, "l4": size, "t4": size}
    devices = tuple(
        pk.Device(f"{kind}.0", kind, float(limit), is_host=kind not in ("l4", "t4")) for kind, limit in kinds.items()
    )
    platform = pk.Platform(devices, dict.fromkeys(("l4", "t4"), pk.Link(1e-6, 1e10)))

    def made(serving: pk.Serving, platform: pk.Platform, **choices: Any) -> LanguageTask:
        return model_task(
            stateful, serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform), **choices
        )

    found = best_plan(plan_cases(made, SERVING, platform, rules), partial(pk.solve, method=Chain()), rules)
    assert found.result.placement is not None
    assert found.result.status is pk.Status.OPTIMAL
    problem = found.task.problem
    told = launch_lines(runtime, "m", problem, found.result.placement)
    expected = {"vllm": "VLLM_PP_LAYER_PARTITION=", "llama.cpp": "--n-gpu-layers", "accelerate": "device_map"}
    assert expected[runtime] in told[0]
    assert block_placement(problem.graph).num_blocks == 3
    if runtime == "vllm":
        counts = re.search(r"PARTITION=([\d,]+)", told[0])
        assert counts is not None
        assert sum(map(int, counts[1].split(","))) == 3


@pytest.mark.parametrize(("cache", "value_bytes"), [("f16", 2.0), ("int4", 4.5 / 8)])
def test_decoding_reads_the_cache(stateful: Path, cache: str, value_bytes: float) -> None:
    """A longer past costs its bytes over the bandwidth, at the attention op of its layer."""
    form = TaskForm(cache_precision=cache)
    near = model_task(stateful, pk.Serving(0, 1, context=100_001), PLATFORM, costs, form)
    far = model_task(stateful, pk.Serving(0, 1, context=200_001), PLATFORM, costs, form)
    added = far.problem.costs.op_time_s[:, 0] - near.problem.costs.op_time_s[:, 0]
    expected = 100_000 * 2 * 2 * 16 * value_bytes / get_spec("l4").memory_bandwidth_bytes_per_s
    is_attention = np.array([op_type == ATTENTION for op_type in near.problem.graph.op_types])
    np.testing.assert_allclose(added[is_attention], expected, rtol=1e-6)
    assert not added[~is_attention].any()


def test_a_model_without_attention_is_refused() -> None:
    """It is not known what it caches."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    with pytest.raises(UnsupportedProblemError, match="has no op of type ScaledDotProductAttention"):
        find_caches(graph, 1, {})


def test_a_state_that_no_attention_reads_is_refused() -> None:
    """It would be a cache of another kind."""
    graph = pk.OpGraph.from_edges(
        ["past", "use", "attend"], [("past", "use")], op_types=["ReadValue", "Relu", ATTENTION], name="lstm"
    )
    with pytest.raises(UnsupportedProblemError, match=r"^'lstm': no attention op reads the state 'past'$"):
        find_caches(graph, 1, {2: (0, 0, 0)})


def test_shapes_of_steps_are_of_sequences_and_tokens() -> None:
    """What is fixed stays; an open dimension behind these two is refused, since nothing says what it is."""
    phase = pk.Serving(0, 1).phases[0]
    inputs = [ModelInput("ids", (DYNAMIC, DYNAMIC), "i64"), ModelInput("mask", (1, DYNAMIC, 1, 16), "f32")]
    assert step_shapes(inputs, phase, 3) == {"ids": (3, 1), "mask": (1, 1, 1, 16)}
    told = (
        rf"^input 'past' has shape \[{DYNAMIC}, 2, {DYNAMIC}\]: dimensions behind sequences and tokens must be fixed$"
    )
    with pytest.raises(UnsupportedProblemError, match=told):
        step_shapes([ModelInput("past", (DYNAMIC, 2, DYNAMIC), "f32")], phase, 3)


def test_a_model_with_other_ops_for_one_token_is_refused(stateful: Path) -> None:
    """Times of the phases are added op by op."""

    def read(shapes: Mapping[str, Sequence[int]]) -> ModelSource:
        source = pk.read_model(stateful, shapes)
        if shapes and next(iter(shapes.values()))[1] == 1:
            names = [f"{name} of one token" for name in source.graph.op_names]
            return replace(source, graph=source.graph.replace(op_names=tuple(names)))
        return source

    assert model_task(read, pk.Serving(64, 0), PLATFORM, costs).problem.graph.num_ops > 10
    with pytest.raises(UnsupportedProblemError, match="has other ops for 1 token than for 64: export it with an open"):
        model_task(read, SERVING, PLATFORM, costs)


def torch_task(kv_heads: int, *, is_fused: bool, serving: pk.Serving = SERVING) -> LanguageTask:
    """Return the task of a torch decoder of two layers, four heads of sixteen."""
    from language_models import TorchDecoder

    module = TorchDecoder(2, 64, 4, kv_heads, 128, 300, is_fused=is_fused).eval()
    open_dims = {"ids": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}

    def read(shapes: Any) -> Any:
        ids = torch.zeros(3, 8, dtype=torch.long)
        return pk.read_torch(module, (ids,), dynamic_shapes=open_dims, shapes=shapes)

    return model_task(read, serving, PLATFORM, costs)


@pytest.mark.parametrize(
    ("kv_heads", "is_fused"),
    [
        (4, True),
        (2, False),
        pytest.param(1, False, marks=pytest.mark.slow),
        pytest.param(4, False, marks=pytest.mark.slow),
    ],
)
def test_keys_and_values_are_traced_back(kv_heads: int, *, is_fused: bool) -> None:
    """Before heads are repeated for groups, and behind the split of a fused projection."""
    task = torch_task(kv_heads, is_fused=is_fused)
    held = task.cache_bytes[task.cache_bytes > 0]
    assert held.tolist() == [2 * kv_heads * 16 * SERVING.context * 2] * 2


class Masked(torch.nn.Module):
    """Two layers of attention with an explicit mask, heads of 16 query channels and other values, groups of heads."""

    def __init__(self, heads: int, kv_heads: int, value_width: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.value_width = heads, kv_heads, value_width
        self.embed = torch.nn.Embedding(30, 32)
        widths = {"q": heads * 16, "k": kv_heads * 16, "v": kv_heads * value_width}
        self.layers: Any = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {name: torch.nn.Linear(32, width) for name, width in widths.items()}
                | {"o": torch.nn.Linear(heads * value_width, 32)}
            )
            for _ in range(2)
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the last hidden state."""
        x: torch.Tensor = self.embed(ids)
        batch, tokens = ids.shape
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril().view(1, 1, tokens, tokens)
        mask = mask.expand(batch, self.heads, tokens, tokens)  # as many dimensions as keys
        for layer in self.layers:
            parts: Any = {name: each(x).view(batch, tokens, -1, 16) for name, each in layer.items() if name in "qk"}
            parts["v"] = layer["v"](x).view(batch, tokens, -1, self.value_width)
            q, k, v = (parts[name].transpose(1, 2) for name in "qkv")
            k, v = (each.repeat_interleave(self.heads // self.kv_heads, 1) for each in (k, v))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + layer["o"](mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return x


@pytest.mark.parametrize(
    ("kv_heads", "value_width"),
    [(2, 8), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((4, 16), (2, 16), (1, 24)))],
)
def test_keys_and_values_are_known_by_their_place(kv_heads: int, value_width: int) -> None:
    """However long the prompt: as long as heads are wide, where the mask has the shape of keys, and around it."""
    module = Masked(4, kv_heads, value_width).eval()
    open_dims = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    exported = torch.export.export(module, (torch.zeros(2, 9, dtype=torch.long),), dynamic_shapes=open_dims)
    for prompt in (8, 15, 16, 17, 24):
        serving = pk.Serving(prompt, 16)
        task = model_task(lambda shapes: pk.read_torch(exported, shapes=shapes), serving, PLATFORM, costs)
        held = task.cache_bytes[task.cache_bytes > 0]
        assert held.tolist() == [kv_heads * (16 + value_width) * serving.context * 2] * 2


def test_a_module_costs_what_its_numbers_cost() -> None:
    """Weights in 32 bits and a cache in 16, once by torch.export and once from numbers alone; norms are not alike."""
    serving = pk.Serving(0, 32, context=4096)
    read = torch_task(2, is_fused=False, serving=serving)
    numbers = decoder_task(
        Decoder(2, 64, 128, 300, heads=4, kv_heads=2), serving, PLATFORM, costs, precision="f32",
    )  # fmt: skip
    assert read.cache_bytes.sum() == numbers.cache_bytes.sum()
    assert read.weight_bytes.sum() == pytest.approx(numbers.weight_bytes.sum(), rel=0.02)
    of_file, of_numbers = (
        task.problem.costs.op_time_s[[op_type == ATTENTION for op_type in task.problem.graph.op_types]]
        for task in (read, numbers)
    )
    np.testing.assert_allclose(of_file, of_numbers, rtol=0.02)
