"""Exports refuse in words what they cannot say, on graphs of a few ops."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from records import thawed

import placekit as pk
import placekit.exports
from placekit.exports.blocks import BlockStage, block_placement, block_stages
from placekit.exports.device_map import device_map, module_affinities
from placekit.exports.kept import require_kept
from placekit.exports.netron import write_netron
from placekit.exports.onnxruntime import session_setting
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.model.platform import Device

PLATFORM = pk.Platform.of(cpu=1, gpu=2, host="cpu")


def chain(*names: str, weights: float = 1.0) -> OpGraph:
    """Return ops one after the other, each with weights."""
    graph = OpGraph.from_edges(names, list(pairwise(names)))
    return graph.replace(op_weight_bytes=[weights] * len(names), op_flops=[weights] * len(names))


def on(graph: OpGraph, *devices: int) -> pk.Placement:
    """Return a placement on the CPU, 0, and the GPUs, 1 and 2."""
    return pk.Placement(graph.op_names, PLATFORM.device_names, np.array(devices))


@pytest.mark.parametrize(
    ("names", "devices", "words"),
    [
        (["h.0.a", "h.0.b"], [1, 2], "takes whole blocks, but block 0 of 'graph' is on 'gpu.0' and 'gpu.1'; place"),
        (["in", "on", "h.0"], [1, 2, 1], "what is before the blocks of 'graph' is on 'gpu.0' and 'gpu.1'"),
        (["h.0", "h.1", "h.2"], [1, 2, 1], "'gpu.0' has block 2 and blocks before 'gpu.1'"),
        (["in", "h.0", "h.1"], [2, 1, 2], "'gpu.1' holds what is before the blocks and blocks from the other end"),
        (["h.0", "h.1", "out"], [1, 2, 1], "'gpu.0' holds what is behind the blocks and blocks from the other end"),
        (["in", "out"], [1, 2], r"'graph' has no blocks \(h.0, layers.1, ...\) in its ops"),
        (["a.0", "a.1", "b.0", "b.1"], [1, 2, 2, 2], "several stacks of blocks: a., b."),
    ],
)
def test_stages_that_are_no_chain_of_blocks(names: list[str], devices: list[int], words: str) -> None:
    """The message says which device has what."""
    graph = chain(*names).replace(name="graph")
    with pytest.raises(UnsupportedProblemError, match=words):
        block_stages(graph, on(graph, *devices), "x")


def test_ends_of_a_chain_may_have_stages_of_their_own() -> None:
    """Before the blocks and behind them: stages without blocks."""
    graph = chain("in", "h.0", "h.1", "out")
    ends = block_stages(graph, on(graph, 0, 1, 1, 2), "x")
    assert ends == [
        BlockStage("cpu.0", ("cpu.0",), range(0), has_front=True, has_back=False),
        BlockStage("gpu.0", ("gpu.0",), range(2), has_front=False, has_back=False),
        BlockStage("gpu.1", ("gpu.1",), range(2, 2), has_front=False, has_back=True),
    ]
    first, second = block_stages(graph, on(graph, 1, 1, 2, 2), "x")
    assert first == BlockStage("gpu.0", ("gpu.0",), range(1), has_front=True, has_back=False)
    assert second == BlockStage("gpu.1", ("gpu.1",), range(1, 2), has_front=False, has_back=True)
    alone = chain("h.0", "h.1")
    first, second = block_stages(alone, on(alone, 1, 2), "x")
    assert (first.has_front, first.has_back, second.has_front, second.has_back) == (True, False, False, False)


def test_blocks_of_a_placement() -> None:
    """Paths inside blocks, numbers, and ops that only move data."""
    graph = chain("in", "h.0.a", "h.1.a", "out").replace(op_flops=[0.0, 0, 1, 0], op_weight_bytes=[0.0, 1, 0, 0])
    blocks = block_placement(graph)
    assert blocks.rest_of_op == ("in", "a", "a", "out")
    assert blocks.is_work.tolist() == [False, True, True, False]
    assert blocks.num_blocks == 2


def test_a_split_device_has_no_tensor_parallelism_here() -> None:
    """A device made of several ones, where it holds ops."""
    both = Device("pair", "gpu", members=("gpu.0", "gpu.1"))
    platform = pk.Platform((Device("cpu.0", "cpu", is_host=True), both))
    graph = chain("h.0", "h.1")
    for devices, is_refused in (([0, 1], True), ([0, 0], False)):
        placement = pk.Placement(graph.op_names, platform.device_names, np.array(devices))
        if is_refused:
            with pytest.raises(UnsupportedProblemError, match="HETERO has no tensor parallelism, as on 'pair'"):
                module_affinities(graph, platform, placement)
        else:
            assert module_affinities(graph, platform, placement)["affinities"] == {"": "cpu.0"}


def test_maps_that_cannot_be() -> None:
    """Names of a GGUF, nothing to map, and a module with weights around modules on other devices."""
    graph = chain("token_embd", "blk.0.attn")
    with pytest.raises(UnsupportedProblemError, match="'token_embd' is a name of a GGUF, which no module has"):
        device_map(graph, PLATFORM, on(graph, 1, 1))
    graph = chain("a", "b", weights=0.0)
    with pytest.raises(UnsupportedProblemError, match="has no op with weights: there is nothing to map"):
        device_map(graph, PLATFORM, on(graph, 1, 1))
    graph = chain("x.a", "x")
    with pytest.raises(UnsupportedProblemError, match="'x' holds weights itself, and modules inside it are on other"):
        device_map(graph, PLATFORM, on(graph, 1, 2))


def test_affinities_of_modules_keep_every_device() -> None:
    """HETERO counts names: two devices of one name are one device to it."""
    platform = pk.Platform((Device("a", "gpu", openvino="GPU"), Device("b", "gpu", openvino="GPU")))
    graph = chain("h.0", "h.1")
    placement = pk.Placement(graph.op_names, platform.device_names, np.array([0, 1]))
    with pytest.raises(UnsupportedProblemError, match=r"op 'h.1' is on 'b' in the placement and would be on 'a'"):
        module_affinities(graph, platform, placement)


def test_a_device_that_loses_its_ops() -> None:
    """Named with how many and which; ends of the graph, and ops that are not counted, may be anywhere."""
    graph = chain("x", "a", "b", "y").replace(op_types=("Parameter", "Op", "Op", "Result"))
    placement = on(graph, 0, 1, 1, 2)
    require_kept("netron", graph, placement, [(1, "gpu.0")])
    require_kept("netron", graph, placement, [(0, "gpu.1"), (1, "gpu.0"), (3, "cpu.0")])
    require_kept("netron", graph, placement, [(1, "gpu.0"), (2, "cpu.0")], np.array([True, True, False, True]))
    with pytest.raises(
        UnsupportedProblemError, match=r"device 'gpu.0' has 2 ops in the .* none in the export \(a, b\)"
    ):
        require_kept("netron", graph, placement, [])
    with pytest.raises(UnsupportedProblemError, match=r"device 'gpu.0' has 1 op in the placement"):
        require_kept("netron", graph, placement, [], np.array([True, True, False, True]))
    with pytest.raises(UnsupportedProblemError, match=r"device 'gpu.0' has 2 ops"):
        require_kept("netron", graph, placement, [(0, "cpu.0")])


def test_layers_of_another_model(tmp_path: Path) -> None:
    """An IR none of whose layers has the name of an op; layers that are no ops say nothing."""
    path = tmp_path / "model.xml"
    path.write_text("<net><layers><layer name='z' type='Relu'/><layer name='b' type='Relu'/></layers></net>")
    graph = chain("a", "b")
    with pytest.raises(UnsupportedProblemError, match=r"netron: device 'gpu.0' has 1 op"):
        write_netron(path, graph, on(graph, 1, 2), tmp_path / "out.xml")
    write_netron(path, graph, on(graph, 1, 1), tmp_path / "out.xml")
    assert (tmp_path / "out.xml").read_text().count("device=") == 1
    other = chain("c", "d")
    with pytest.raises(UnsupportedProblemError, match=r"model.xml: no layer has the name of an op"):
        write_netron(path, other, on(other, 1, 1), tmp_path / "out.xml")


def test_devices_of_a_session() -> None:
    """An NPU by either name, and GPUs in the order of the platform, whichever is used."""
    devices = (
        Device("host", "cpu", is_host=True),
        Device("n", "npu"),
        Device("first", "gpu"),
        Device("next one!", "gpu"),
    )
    platform, graph = pk.Platform(devices), chain("a", "b", "c")
    placement = pk.Placement(graph.op_names, platform.device_names, np.array([0, 1, 3]))
    assert session_setting(platform, placement) == "cpu(=host);npu(=n);gpu:1(=next_one)"
    named = pk.Platform((Device("x", "card", openvino="NPU.0"), Device("y", "card")))
    placement = pk.Placement(graph.op_names, named.device_names, np.array([0, 1, 0]))
    assert session_setting(named, placement) == "npu(=x);gpu:1(=y)"


def test_records_cannot_be_changed() -> None:
    """Those of blocks are shared by the exports."""
    assert thawed(placekit.exports) == []
