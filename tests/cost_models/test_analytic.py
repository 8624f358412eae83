"""Analytic costs: hand-computed rooflines, fusion, what is supported, guesses, named errors."""

from __future__ import annotations

import json
import math
import pickle
import re
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import graphs

from placekit.cost_models.analytic import Analytic, fused_groups
from placekit.cost_models.base import CostModel
from placekit.cost_models.op_classes import DENSE_TYPES, DEPTHWISE_TYPES, FUSABLE_TYPES, LOOKUP_TYPES, VIEW_TYPES
from placekit.cost_models.sheets.device_table import (
    DEVICE_TABLE,
    DeviceSpec,
    get_spec,
    guess_spec,
    memory_of_kind,
    spec_from_values,
)
from placekit.io.files.costs_json import read_costs, write_costs
from placekit.io.files.platform_toml import read_platform
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device, Link, Platform
from placekit.model.problem import Problem

TOY = DeviceSpec(
    "toy",
    dense_flops_per_s=100.0,
    depthwise_flops_per_s=20.0,
    other_flops_per_s=10.0,
    memory_bandwidth_bytes_per_s=5.0,
    op_overhead_s=1.0,
    link=Link(0.5, 2.0),
    unsupported_op_types=frozenset({"Loop"}),
)


def block() -> OpGraph:
    r"""Return a residual block.

    ::

        in(Parameter, 10 B) -> conv(Convolution, 10 B) -> bias(Add, 10 B) -> relu(Relu, 10 B) -> sum(Add, 10 B)
          \______________________________________________________________________________________/      |
                                                                                        view(Reshape, 10 B)
                                                                                                  |
                                                                                     table(Gather, 2 B) -> loop(Loop)
    """
    names = ["in", "conv", "bias", "relu", "sum", "view", "table", "loop"]
    types = ["Parameter", "Convolution", "Add", "Relu", "Add", "Reshape", "Gather", "Loop"]
    edges = [*pairwise(names), ("in", "sum")]
    graph = OpGraph.from_edges(names, edges, name="block", op_types=types, output_bytes=[10] * 6 + [2, 0])
    return graph.replace(
        op_flops=np.array([0, 5000.0, 10, 10, 10, 0, 0, 70]),
        op_weight_bytes=np.array([0, 40.0, 5, 0, 0, 0, 1000, 0]),
    )


def toy_platform(**links: Link) -> Platform:
    """Return a host and a toy device."""
    return Platform((Device("H", "host", is_host=True), Device("T", "toy")), links)


def test_block_without_fusion_costs_what_the_formula_says() -> None:
    """max(FLOPs / rate, bytes / bandwidth) + overhead, by hand, for every op."""
    costs = Analytic({"toy": TOY, "host": "cpu-core-f32"}, fuse=False).cost_table(block(), toy_platform())
    expected = [
        0,  # a parameter is free
        1 + max(50, (40 + 10 + 10) / 5),  # compute-bound
        1 + max(1, (5 + 10 + 10) / 5),  # memory-bound: weights, in, out
        1 + max(1, 20 / 5),
        1 + max(1, 30 / 5),  # two inputs
        0,  # a view is free
        1 + max(0, (2 + 2) / 5),  # of its table of 1000 bytes, reads what it writes
        1 + max(7, 2 / 5),  # no output
    ]
    np.testing.assert_allclose(costs.op_time_s[:-1, 1], expected[:-1])
    assert costs.op_time_s[-1, 1] == 0  # not supported
    np.testing.assert_allclose(costs.supported[:, 1], [True] * 7 + [False])
    assert costs.op_group.tolist() == list(range(8))
    assert costs.kinds == ("host", "toy")


def test_fused_group_launches_once_and_keeps_its_tensors_inside() -> None:
    """Conv, bias, relu and sum are one group; the lead carries its time, reads what comes from outside."""
    costs = Analytic({"toy": TOY, "host": "cpu-core-f32"}).cost_table(block(), toy_platform())
    assert costs.op_group.tolist() == [0, 1, 1, 1, 1, 5, 6, 7]
    # 5000 dense + 30 other FLOPs against 45 bytes of weights, the input once, the output once
    np.testing.assert_allclose(costs.op_time_s[1:5, 1], [1 + max(50 + 3, (45 + 10 + 10) / 5), 0, 0, 0])


def test_transfers_follow_the_platform_and_else_the_spec() -> None:
    """A declared link wins; without one a device has its spec's and a host none."""
    model = Analytic({"toy": TOY, "host": "cpu-core-f32"})
    costs = model.cost_table(block(), toy_platform())
    np.testing.assert_allclose(costs.transfer_time_s[0], [0, 0.5 + 10 / 2])
    costs = model.cost_table(block(), toy_platform(toy=Link(1.0, 10.0), host=Link(2.0, float("inf"))))
    np.testing.assert_allclose(costs.transfer_time_s[0], [2, 1 + 10 / 10])


def test_depthwise_and_dense_work_have_their_own_rates() -> None:
    """The same FLOPs take five times as long when depthwise."""
    graph = OpGraph.from_edges(["d", "g"], [("d", "g")], op_types=["MatMul", "GroupConvolution"])
    graph = graph.replace(op_flops=np.array([1000.0, 1000.0]))
    costs = Analytic({"toy": TOY}, fuse=False).cost_table(graph, Platform((Device("T", "toy"),)))
    np.testing.assert_allclose(costs.op_time_s[:, 0], [11, 51])


@pytest.mark.parametrize(
    ("types", "edges", "expected"),
    [
        ("MatMul Relu Relu", "ab ac", [0, 1, 2]),  # two consumers: the tensor is needed anyway
        ("Relu Relu", "ab", [0, 1]),  # no product leads
        ("MatMul Relu Softmax Relu", "ab bc cd", [0, 0, 2, 3]),  # the chain ends at what is not elementwise
        ("MatMul MatMul Add", "ac bc ab", [0, 1, 1]),  # of two products only one has a single consumer
        ("MatMul Convolution Add", "ac bc", [0, 1, 1]),  # of two candidates the later
        ("GroupConvolution Clamp", "ab", [0, 0]),
    ],
)
def test_fusion_rules(types: str, edges: str, expected: list[int]) -> None:
    """Each rule on its smallest graph."""
    op_types = types.split()
    graph = OpGraph.from_edges(list("abcd"[: len(op_types)]), [(e[0], e[1]) for e in edges.split()], op_types=op_types)
    assert fused_groups(graph).tolist() == expected


def test_broadcast_pass_and_support_stop_fusion() -> None:
    """An op that writes more than it reads, runs in the other pass, or runs elsewhere keeps to itself."""
    graph = OpGraph.from_edges(["a", "b"], [("a", "b")], op_types=["MatMul", "Add"], output_bytes=[4, 4])
    assert fused_groups(graph).tolist() == [0, 0]
    assert fused_groups(graph.replace(is_backward=np.array([False, True]))).tolist() == [0, 1]
    assert fused_groups(graph, np.array([[True, True], [True, False]])).tolist() == [0, 1]
    row = OpGraph.from_edges(
        ["a", "b", "c"], [("a", "b"), ("b", "c")], op_types=["MatMul", "Add", "Op"], output_bytes=[4, 8, 0]
    )
    assert fused_groups(row).tolist() == [0, 1, 2]


@given(graph=graphs(max_ops=12), data=st.data())
def test_graph_of_fused_groups_is_acyclic(graph: OpGraph, data: st.DataObject) -> None:
    """Whatever the graph, contracting the groups closes no cycle, and a group is led by its first op."""
    types = data.draw(
        st.lists(st.sampled_from(["MatMul", "Relu", "Add"]), min_size=graph.num_ops, max_size=graph.num_ops)
    )
    graph = graph.replace(op_types=tuple(types))
    group = fused_groups(graph)
    quotient = nx.DiGraph(
        (group[u], group[v]) for u, v in zip(graph.senders, graph.receivers, strict=True) if group[u] != group[v]
    )
    assert nx.is_directed_acyclic_graph(quotient)
    assert (group[group] == group).all()


@given(graph=graphs(), fuse=st.booleans())
def test_costs_of_any_graph_make_a_problem_and_fusion_never_adds_time(graph: OpGraph, fuse: bool) -> None:
    """The table fits the graph; a fused model takes at most as long in all as an unfused one."""
    platform = Platform(
        (Device("cpu", "cpu-8core-f32", is_host=True), *(Device(f"{kind}.0", kind) for kind in ("gpu-discrete", "npu")))
    )
    costs = Analytic(fuse=fuse).cost_table(graph, platform)
    assert Problem(graph, platform, costs).num_classes <= graph.num_ops
    assert costs.kinds == platform.kinds
    unfused = Analytic(fuse=False).cost_table(graph, platform)
    assert (costs.op_time_s.sum(axis=0) <= unfused.op_time_s.sum(axis=0) * (1 + 1e-12)).all()


def test_provenance_is_json_and_says_what_was_assumed(tmp_path: Path) -> None:
    """The specs with their sources travel with the numbers."""
    costs = Analytic({"toy": TOY}).cost_table(block(), toy_platform())
    assert costs.provenance["source"] == "analytic"
    assert costs.provenance["specs"]["toy"]["dense_flops_per_s"] == 100
    assert "measured" in costs.provenance["specs"]["host"]["source"]
    assert json.loads(json.dumps(dict(costs.provenance))) == dict(costs.provenance)
    write_costs(costs, block(), tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json", block()) == costs


def test_tensors_of_unknown_size_are_counted() -> None:
    """A dynamic model is underestimated, and the table says so."""
    graph = block().replace(tensor_shapes=((1, -1),) * 3 + ((2,),) * 4)
    costs = Analytic({"toy": TOY}).cost_table(graph, toy_platform())
    assert costs.provenance["num_tensors_of_unknown_size"] == 3


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (Device("GPU.0", "GPU", openvino="GPU.0"), "gpu-discrete"),
        (Device("NPU", "NPU", openvino="NPU"), "npu"),
        (Device("x", "igpu", openvino="GPU.0"), "gpu-integrated"),
        (Device("ACC.0", "accelerator"), "gpu-discrete"),
        (Device("CPU", "CPU", openvino="CPU", is_host=True), "cpu-core-f32 x8"),
        (Device("CPU[0-1]", "CPU x2 f32", is_host=True, cores=(0, 1)), "cpu-core-f32 x2"),
        (Device("c", "CPU x1 f32", is_host=True, cores=(3,)), "cpu-core-f32"),
        (
            Device("c", "k", openvino="CPU", cores=(0, 1), properties={"INFERENCE_PRECISION_HINT": "bf16"}),
            "cpu-core-bf16 x2",
        ),
        (Device("c", "k", openvino="CPU", properties={"INFERENCE_NUM_THREADS": "4"}), "cpu-core-f32 x4"),
        (Device("n", "gpu-integrated"), "gpu-integrated"),
        (Device("h", "mystery", is_host=True), "cpu-8core-f32"),
    ],
)
def test_spec_is_guessed_from_what_the_device_says(device: Device, name: str) -> None:
    """By OpenVINO string, kind, cores and precision."""
    assert guess_spec(device).name == name


def test_device_that_says_nothing_is_a_named_error() -> None:
    """The message lists the entries."""
    with pytest.raises(
        UnknownNameError, match=r"device 'x' of kind 'tpu' has no spec.*; give `spec`: classes are cpu-core-f32"
    ):
        Analytic().cost_table(block(), Platform((Device("x", "tpu"),)))
    with pytest.raises(UnknownNameError, match=r"no device spec 'quantum': classes are cpu-core-f32.*no card"):
        Analytic({"x": "quantum"})
    with pytest.raises(InvalidProblemError, match="spec for unknown kind 'gpu'; kinds are host, toy"):
        Analytic({"gpu": "npu"}).cost_table(block(), toy_platform())


@pytest.mark.parametrize(
    "kind", ["gpu-rtx5090", "GPU RTX 5090", "gpu-rtx5999", "cuda-h300", "accelerator2000", "npu-x9", "my4091"]
)
def test_a_product_that_nobody_knows_is_no_class(kind: str) -> None:
    """Its first word may be one: the error has the nearest names of the table and of the file."""
    platform = Platform((Device("x", kind),), specs={"my4090": {"base": "rtx4090"}})
    with pytest.raises(UnknownNameError, match=r"no class of devices.*the file has my4090; classes are") as raised:
        Analytic().spec_of_kind(platform)
    near = {"gpu-rtx5090": "has 'RTX 5090'", "GPU RTX 5090": "has 'RTX 5090'", "gpu-rtx5999": "RTX 5090",
            "cuda-h300": "H100",
            "npu-x9": "mean 'npu'?", "my4091": "mean 'my4090'?"}  # fmt: skip
    assert near.get(kind, "") in str(raised.value)


@pytest.mark.parametrize(
    "kind", ["gpu", "GPU.0", "gpu-1", "cuda:0", "CUDA0", "dgpu", "igpu", "acc", "accelerator", "npu"]
)
def test_classes_stay_classes(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """With the number of a device or without, and without a word."""
    assert guess_spec(Device("x", kind)).name in ("gpu-discrete", "gpu-integrated", "npu")
    assert not caplog.records


@pytest.mark.parametrize(
    ("device", "told"),
    [
        (Device("c", "cpu-zen5", is_host=True), "kind 'cpu-zen5'.*counts as cpu-core-f32 x8"),
        (Device("h", "threadripper", is_host=True), "counts as cpu-8core-f32"),
        (Device("g", "gpu-b580", openvino="GPU.0"), "kind 'gpu-b580'.*counts as gpu-discrete"),
    ],
)
def test_a_kind_that_counts_as_a_class_is_a_warning(
    device: Device, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A host works in any case, and OpenVINO's string tells the class of what it runs."""
    guess_spec(device)
    assert re.search(told, caplog.text)


def test_more_cores_are_faster_but_less_than_linearly() -> None:
    """Ninety percent of every added core, and a full memory bus."""
    core, eight = get_spec("cpu-core-f32"), get_spec("cpu-8core-f32")
    assert 7 < eight.dense_flops_per_s / core.dense_flops_per_s < 8
    assert 1 < eight.memory_bandwidth_bytes_per_s / core.memory_bandwidth_bytes_per_s < 8
    assert core.on_cores(1) is core


@pytest.mark.parametrize("spec", DEVICE_TABLE.values(), ids=list(DEVICE_TABLE))
def test_every_entry_of_the_device_table_is_documented_and_ordered(spec: DeviceSpec) -> None:
    """A source for every entry; dense work is the fastest class everywhere."""
    assert len(spec.source) > 40
    assert spec.dense_flops_per_s >= spec.depthwise_flops_per_s
    assert spec.dense_flops_per_s >= spec.other_flops_per_s
    assert spec_from_values("copy", {"base": spec.name}).dense_flops_per_s == spec.dense_flops_per_s


def test_the_page_lists_every_entry_with_its_numbers() -> None:
    """The table of docs/platforms.md is the device table."""
    page = (Path(__file__).parents[2] / "docs" / "platforms.md").read_text()
    for spec in DEVICE_TABLE.values():
        link = "host" if spec.link is None else f"{spec.link.bandwidth_bytes_per_s / 1e9:.3g}"
        memory = "" if spec.memory_bytes is None else f"{spec.memory_bytes / 2**30:g}"
        rates = f"{spec.dense_flops_per_s / 1e12:.3g} | {spec.memory_bandwidth_bytes_per_s / 1e9:.4g}"
        assert f"| `{spec.name}` | {rates} | {link} | {memory} |" in page


def test_a_named_card_needs_no_numbers() -> None:
    """A kind called like an entry: the newer card is faster where its data sheet says so, and knows its link."""
    newer, older = get_spec("h100"), get_spec("a100-80gb")
    assert newer.dense_flops_per_s / older.dense_flops_per_s == pytest.approx(989 / 312, rel=1e-3)
    assert newer.memory_bandwidth_bytes_per_s / older.memory_bandwidth_bytes_per_s == pytest.approx(
        3350 / 2039, rel=5e-3
    )
    chosen = Analytic().spec_of_kind(Platform((Device("a", "h100"), Device("b", "rtx4090"))))
    assert {kind: spec.name for kind, spec in chosen.items()} == {"h100": "h100-sxm5-80-gb", "rtx4090": "rtx-4090"}


def test_one_core_is_near_the_measured_resnet50() -> None:
    """8.19 GFLOP took 32 ms in f32 and 16 ms in bf16 on the core that the table describes."""
    for name, measured_s in (("cpu-core-f32", 0.032), ("cpu-core-bf16", 0.016)):
        assert 8.19e9 / get_spec(name).dense_flops_per_s == pytest.approx(measured_s, rel=0.25)


def test_specs_of_a_platform_file_are_used(tmp_path: Path) -> None:
    """Entries of the file come before those of the table; the rest is guessed."""
    path = tmp_path / "platform.toml"
    path.write_text(
        '[[device]]\nname = "CPU"\nkind = "cpu"\nhost = true\n'
        '[[device]]\nname = "A"\nkind = "acc"\nspec = "chip"\n'
        '[[device]]\nname = "N"\nkind = "n"\nspec = "npu"\n'
        '[spec.chip]\nbase = "npu"\ndense_flops_per_s = 1e15\nunsupported_op_types = ["Relu"]\n'
    )
    platform = read_platform(path)
    specs = Analytic.from_platform_file(platform).spec_of_kind(platform)
    assert specs["acc"].dense_flops_per_s == 1e15
    assert specs["acc"].unsupported_op_types == frozenset({"Relu"})
    assert specs["acc"].op_overhead_s == get_spec("npu").op_overhead_s
    assert specs["n"] == get_spec("npu")
    assert specs["cpu"].name == "cpu-core-f32 x8"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base": "quantum"}, "spec 's' has base 'quantum': classes are cpu-core-f32"),
        ({"speed": 1}, "spec 's' has no field 'speed'"),
        ({"dense_flops_per_s": 1.0}, "spec 's' lacks depthwise_flops_per_s; give it, or a base"),
        ({"base": "npu", "dense_flops_per_s": 0.0}, "dense_flops_per_s is 0.0; it must be finite and > 0"),
        ({"base": "npu", "op_overhead_s": -1.0}, "op_overhead_s is -1.0; it must be finite and >= 0"),
        ({"base": "npu", "op_overhead_s": math.inf}, "op_overhead_s is inf; it must be finite and >= 0"),
        ({"base": "npu", "other_flops_per_s": math.inf}, "other_flops_per_s is inf; it must be finite and > 0"),
        ({"base": "npu", "int8_speed": 0.5}, "int8_speed is 0.5; it must be finite and >= 1"),
        ({"base": "npu", "int8_speed": math.inf}, "int8_speed is inf; it must be finite and >= 1"),
        ({"base": "npu", "f32_speed": 0.0}, "f32_speed is 0.0; it must be > 0 and <= 1"),
        ({"base": "npu", "f32_speed": 1.5}, "f32_speed is 1.5; it must be > 0 and <= 1"),
    ],
)
def test_broken_spec_is_a_named_error(values: dict[str, object], message: str) -> None:
    """The message names the spec, the field and the bound."""
    with pytest.raises((UnknownNameError, InvalidProblemError), match=message):
        spec_from_values("s", values)


def test_analytic_is_a_cost_model_and_pickles() -> None:
    """One protocol for all cost models; workers get copies."""
    model = Analytic({"toy": TOY, "gpu": "gpu-discrete"}, fuse=False)
    assert isinstance(model, CostModel)
    assert model.name == "analytic"
    assert pickle.loads(pickle.dumps(model)) == model


def test_progress_is_reported_once() -> None:
    """As the protocol asks."""
    calls: list[tuple[int, int, str]] = []
    Analytic({"toy": TOY}).cost_table(block(), toy_platform(), progress=lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(1, 1)]


def test_classes_of_ops_do_not_overlap() -> None:
    """An op is limited by one thing."""
    classes = [DENSE_TYPES, DEPTHWISE_TYPES, VIEW_TYPES, LOOKUP_TYPES, FUSABLE_TYPES]
    assert sum(map(len, classes)) == len(frozenset.union(*classes))


def test_specs_of_a_file_are_found_by_kind(tmp_path: Path) -> None:
    """A kind called like a spec of the file needs no `spec`; the error of another lists the file's own."""
    path = tmp_path / "platform.toml"
    own = '[spec.my4090]\nbase = "rtx4090"\nmemory_bandwidth_bytes_per_s = 666e9\n'
    path.write_text(f'[[device]]\nname = "A"\nkind = "my4090"\n{own}')
    platform = read_platform(path)
    specs = Analytic.from_platform_file(platform).spec_of_kind(platform)
    assert specs["my4090"].memory_bandwidth_bytes_per_s == 666e9
    path.write_text(f'[[device]]\nname = "A"\nkind = "a"\nspec = "my4900"\n{own}')
    with pytest.raises(
        UnknownNameError, match=r"no device spec 'my4900': the file has my4090; classes are .*did you mean 'my4090'"
    ):
        Analytic.from_platform_file(read_platform(path))


@pytest.mark.parametrize(
    ("kind", "spec", "base", "expected"),
    [
        ("rtx4090", "mine", "rtx4090", (24 * 2.0**30, "rtx4090")),
        ("rtx4090", "mine", "gpu-discrete", (24 * 2.0**30, "rtx4090")),
        ("card", "mine", "rtx4090", (24 * 2.0**30, "rtx4090")),
        ("card", "l4", None, (24 * 2.0**30, "l4")),
        ("card", None, None, (None, "")),
        ("npu", None, None, (None, "npu")),
    ],
)
def test_memory_is_that_of_the_kind(
    kind: str, spec: str | None, base: str | None, expected: tuple[float | None, str]
) -> None:
    """A spec has rates, and takes no card its memory; other kinds have that of what their spec is or is based on."""
    specs = {} if base is None else {"mine": {"base": base}}
    platform = Platform((Device("A", kind),), spec_of_kind={} if spec is None else {kind: spec}, specs=specs)
    assert memory_of_kind(platform, kind) == expected
