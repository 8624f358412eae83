"""Joined paths: every row of the tables of inputs, runtimes and exports leads from a file to the last artefact.

The rows are read from the pages, and compared with what the product offers. Each is walked by a function here, through
the command line, up to what another program loads, runs or parses; a row without one fails.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from gguf_headers import VOCAB, attention, feed_forward, write_header, write_model
from llama_layers import devices_of_layers
from names_written import DRIVERS, PROGRAMS, Written
from table_rows import ROOT, Row, faults_of, pages, walked_rows
from test_docs_commands import OTHER_TESTS, RUN, reason_not_to_run
from test_docs_commands import pages as commands_of_pages

from placekit import runtime
from placekit.cost_models.openvino.devices import shared_core
from placekit.io.files.detect import kind_of_file
from placekit.io.readers import OTHER_KINDS, READERS, reader_of_suffix
from placekit.language.runtimes import RUNTIMES
from placekit.model.errors import PlacekitError
from placekit.training.generate import chain_problem
from placekit.training.piper_json import write_piper

Call = Callable[..., Any]
Walk = Callable[[Call, Path], None]
COMMANDS = commands_of_pages()
LLM, FILES, DEPLOY = "docs/language_models.md", "docs/files.md", "docs/deploy.md"
JOURNEYS: list[Any] = []
"""Walks as parameters of a test; each walks one row or several."""
WALKED: set[Row] = set()


def walks(*rows: Row, marks: Sequence[pytest.MarkDecorator] = ()) -> Callable[[Walk], Walk]:
    """Register a function that walks these rows."""

    def register(walk: Walk) -> Walk:
        JOURNEYS.append(pytest.param(walk, rows, id=f"{Path(rows[0][0]).stem}: {rows[0][1]}", marks=marks))
        WALKED.update(rows)
        return walk

    return register


def run(call: Call, line: str) -> str:
    """Run a command that has to end well, and return what it prints."""
    done = call(*shlex.split(line))
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return str(done.stdout)


MACHINES = """
[[device]]
name = "CPU"
kind = "cpu-8core-bf16"
host = true
memory = "4 GiB"

[[device]]
name = "GPU.0"
kind = "rtx4090"
memory = "60 MiB"

[[device]]
name = "GPU.1"
kind = "l4"
memory = "60 MiB"

[link.rtx4090]
latency_s = 20e-6
bandwidth_bytes_per_s = 20e9

[link.l4]
latency_s = 20e-6
bandwidth_bytes_per_s = 20e9
"""
BLOCKS = 8
NUMBERS = f"--layers {BLOCKS} --hidden 512 --heads 8 --kv-heads 4 --ffn 1024 --vocab 2000"
REQUESTS = "--phase prefill:64 --phase decode:16 --sequences 2"
SHORT = "--context 80"  # of one request: buffers for the default context fill a card of 60 MiB
TWO_CPUS = "".join(
    f'[[device]]\nname = "{name}"\nkind = "cpu"\nhost = true\nopenvino = "CPU"\n'
    'properties = { INFERENCE_PRECISION_HINT = "f32" }\n'
    for name in ("left", "right")
)


def plan_numbers(call: Call, asked: str) -> dict[str, Any]:
    """Plan a model by its numbers, for a host and two cards, each of which holds a part of it; return what is told."""
    Path("pc.toml").write_text(MACHINES)
    command = f"llm {NUMBERS} {REQUESTS} --platform pc.toml {asked} --problem llm.problem.json --json"
    told: dict[str, Any] = json.loads(run(call, command))
    assert told["placement"] is not None
    return told


def homes_of(placement: Path) -> list[str]:
    """Return the device of every block, by its attention."""
    document = json.loads(placement.read_text())
    attention_of = {
        int(found[1]): device or document["default_device"]
        for op, device in document["ops"].items()
        if (found := re.search(r"layers\.(\d+)\.self_attn\.attn", op))
    }
    return [attention_of[block] for block in range(BLOCKS)]


def for_runtime(name: str, more: str = "") -> Walk:
    """Return the walk from numbers to the launch line and the export of a runtime: both say the same, in its words."""

    def walk(call: Call, folder: Path) -> None:
        told = plan_numbers(call, f"--for {name} {more}")
        run(call, f"export llm.problem.json llm.placement.json --to {name}")
        exported = json.loads((folder / f"llm.{name}.json").read_text())
        line, names = told["launch"][0], Written()
        names.read_line(line)
        names.read_keys(exported.get("config", {}))
        assert shlex.split(line)[-len(exported["arguments"]) :] == exported["arguments"]
        for each in ("options", "variables", "keys"):
            allowed = {*PROGRAMS[name].get(each, ()), *(DRIVERS if each == "variables" else ())}
            assert getattr(names, each) <= allowed
        homes = homes_of(folder / "llm.placement.json")
        held = {each["device"] for each in told["serving"]["memory"] if each["weight_bytes"]}
        assert held - {"CPU"} == set(homes) - {"CPU"}
        counts = [homes.count(device) for device in dict.fromkeys(homes)]
        assert told["launch"][1:] == settings_of(folder, name)
        assert partition(name, exported) == (homes if name == "llama.cpp" else counts)

    return walk


def settings_of(folder: Path, name: str) -> list[str]:
    """Return the lines of the runtime's own file, if there is one."""
    return [line for path in folder.glob(f"llm.{name}.[ty]*ml") for line in path.read_text().splitlines()]


def partition(name: str, exported: dict[str, Any]) -> list[Any]:
    """Return the numbers of blocks per stage, or for llama.cpp the device of every block, as the runtime reads it."""
    words, config = exported["arguments"], exported.get("config", {})
    if name == "llama.cpp":
        buffers = dict(zip(["CPU", "CUDA0", "CUDA1"], ["CPU", "GPU.0", "GPU.1"], strict=True))
        return [buffers[buffer] for buffer in devices_of_layers(words, BLOCKS)[:BLOCKS]]
    if name == "tensorrt-llm":
        return list(config["pp_partition"])
    if name == "torchtitan":
        parts = config["parallelism"]["module_fqns_per_model_part"]
        return [sum(module.startswith("layers.") for module in part) for part in parts]
    if name == "megatron":
        layout = words[words.index("--pipeline-model-parallel-layout") + 1]
        unrolled = re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), layout)
        return [stage.count("t") for stage in unrolled.split("|")]
    return [int(count) for count in exported["environment"][f"{name.upper()}_PP_LAYER_PARTITION"].split(",")]


walks((LLM, "--for vllm"), (LLM, "--to vllm"), (LLM, "numbers"))(for_runtime("vllm"))
for each in ("sglang", "tensorrt-llm", "megatron", "torchtitan", "llama.cpp"):
    walks((LLM, f"--for {each}"), (LLM, f"--to {each}"))(for_runtime(each, SHORT if each == "llama.cpp" else ""))


@walks((LLM, "--for accelerate"), (LLM, "--to accelerate"), (LLM, "--to device-map"))
def accelerate_takes_the_line(call: Call, folder: Path) -> None:
    """Run the printed line as Python, hook a module of these paths by it, and compare it with the export."""
    accelerate = pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")
    told = plan_numbers(call, "--for accelerate")
    run(call, "export llm.problem.json llm.placement.json --to accelerate -o map.json")
    found: dict[str, Any] = {}
    exec(told["launch"][0], found)
    mapped = found["device_map"]
    assert mapped == json.loads((folder / "map.json").read_text())
    run(call, "export llm.problem.json llm.placement.json --to device-map -o same.json")
    assert mapped == json.loads((folder / "same.json").read_text())
    layer = torch.nn.Linear
    model = torch.nn.Module()
    model.model = torch.nn.Module()
    model.model.embed_tokens, model.model.norm, model.lm_head = torch.nn.Embedding(9, 4), layer(4, 4), layer(4, 9)
    model.model.layers = torch.nn.ModuleList([layer(4, 4) for _ in range(BLOCKS)])
    accelerate.utils.check_device_map(model, mapped)
    accelerate.dispatch_model(model, dict.fromkeys(mapped, "cpu"), main_device="cpu", force_hooks=True)
    assert all(hasattr(model.get_submodule(path), "_hf_hook") for path in mapped)
    places = [next(mapped[path] for path in (f"model.layers.{block}", "model.layers", "model", "") if path in mapped)
              for block in range(BLOCKS)]  # fmt: skip
    assert ["cpu" if place == "cpu" else f"GPU.{place}" for place in places] == [
        "cpu" if home == "CPU" else home for home in homes_of(folder / "llm.placement.json")
    ]


def stateful_bundle(asked: str) -> Walk:
    """Return the walk from a stateful model to a bundle that generates as the whole model does, by its cache."""

    def walk(call: Call, folder: Path) -> None:
        pytest.importorskip("openvino")
        pytest.importorskip("torch")
        from language_models import write_stateful

        write_stateful(folder / "stateful.xml")
        (folder / "two.toml").write_text(TWO_CPUS)
        run(call, f"llm stateful.xml {REQUESTS} {asked} --platform two.toml -o s.placement.json")
        run(
            call,
            "export stateful.xml s.placement.json --platform two.toml -o s.bundle --shape input_ids[1,1],beam_idx[1]",
        )
        whole = shared_core().compile_model(folder / "stateful.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        request = whole.create_infer_request()
        with runtime.load("s.bundle") as pipe:
            for token in (7, 8, 7, 9):
                step = {"input_ids": np.array([[token]]), "beam_idx": np.array([0], np.int32)}
                expected = request.infer(step)[0]
                np.testing.assert_allclose(
                    pipe(step).popitem()[1], expected, rtol=1e-2, atol=np.abs(expected).max() / 100
                )

    return walk


walks((LLM, "--for openvino"))(stateful_bundle("--for openvino"))
walks((LLM, "--for placekit"))(stateful_bundle("--for placekit"))
walks((LLM, "stateful `.xml`"))(stateful_bundle(""))


@walks((LLM, "`.gguf`"), (LLM, "of a split one the first file"))
def a_header_becomes_a_line(call: Call, folder: Path) -> None:
    """From the header of a file to arguments of llama.cpp that put every block where the plan has it.

    The same tensors in two files, of which the first is given, have the same placement.
    """
    pytest.importorskip("gguf")
    keys = {".embedding_length": 512, ".attention.head_count": 8, ".attention.head_count_kv": 4}
    blocks = [attention(512, 8, 4, 64) | feed_forward(512, 1024)] * BLOCKS
    write_model(folder / "small.gguf", "llama", {**keys, ".feed_forward_length": 1024}, blocks)
    (folder / "pc.toml").write_text(MACHINES)
    run(call, f"llm small.gguf {REQUESTS} {SHORT} --for llama.cpp --platform pc.toml --problem g.problem.json")
    run(call, "export g.problem.json small.placement.json --to llama.cpp")
    words = json.loads((folder / "g.llama.cpp.json").read_text())["arguments"]
    document = json.loads((folder / "small.placement.json").read_text())
    told = devices_of_layers(words, BLOCKS)
    for op, device in document["ops"].items():
        if found := re.match(r"blk\.(\d+)\.attn_q", op):
            home = device or document["default_device"]
            assert told[int(found[1])] == (home if home == "CPU" else f"CUDA{home[-1]}")
    ends = {"token_embd": (512, VOCAB), "output_norm": (512,), "output": (512, VOCAB)}
    tensors = ends | {
        f"blk.{number}.{name}": shape for number, block in enumerate(blocks) for name, shape in block.items()
    }
    half, more = len(tensors) // 2, {".block_count": BLOCKS, ".context_length": 32768, ".feed_forward_length": 1024}
    for number, part in enumerate((list(tensors)[:half], list(tensors)[half:])):
        split = {"split.no": number, "split.count": 2, "split.tensors.count": len(tensors)}
        named = folder / f"parts-0000{number + 1}-of-00002.gguf"
        write_header(named, "llama", {**keys, **more, **split}, {name: tensors[name] for name in part})
    run(call, f"llm parts-00001-of-00002.gguf {REQUESTS} {SHORT} --for llama.cpp --platform pc.toml -o parts.json")
    assert json.loads((folder / "parts.json").read_text())["ops"] == document["ops"]


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": BLOCKS, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2000,
    "torch_dtype": "float16",
}  # fmt: skip


@walks(
    (LLM, "`config.json` of transformers"), (LLM, "its folder"), marks=[pytest.mark.slow, pytest.mark.zoo]
)  # fmt: skip
def a_configuration_becomes_a_map(call: Call, folder: Path) -> None:
    """From a configuration to a device map that transformers loads weights by."""
    transformers = pytest.importorskip("transformers", minversion="5")
    torch = pytest.importorskip("torch")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "pc.toml").write_text(MACHINES)
    run(call, f"llm config.json {REQUESTS} --for accelerate --platform pc.toml --problem c.problem.json -o c.json")
    run(call, "export c.problem.json c.json --to accelerate -o map.json")
    mapped = json.loads((folder / "map.json").read_text())
    run(call, f"llm . {REQUESTS} --for accelerate --platform pc.toml --problem f.problem.json -o f.json")
    run(call, "export f.problem.json f.json --to accelerate -o same.json")
    assert mapped == json.loads((folder / "same.json").read_text())
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder)).eval()
    model.save_pretrained(folder / "model")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "model", device_map=dict.fromkeys(mapped, "cpu"), dtype=model.dtype
    )
    tokens = torch.tensor([[1, 7, 99]])
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


@walks((LLM, "--to onnxruntime"))
def nodes_are_run_by_onnxruntime(call: Call, folder: Path) -> None:
    """From a file to a session with the option that was written: the outputs are those of the file.

    Every node has the label of its device, and the option binds each of the labels.
    """
    onnx = pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    model, placement = onnx_model(call, folder)
    run(call, f"export {model.name} {placement.name} --platform pc.toml --to onnxruntime --force -o placed.onnx")
    labels = {
        node.name: prop.value for node in onnx.load(folder / "placed.onnx").graph.node for prop in node.metadata_props
        if prop.key == "layer_ann"
    }  # fmt: skip
    assert labels == {"Exp": "CPU", "Relu": "CPU", "Tanh": "GPU_0", "Sigmoid": "GPU_0"}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    settings = json.loads((folder / "placed.session.json").read_text())
    (rules,) = settings.values()
    assert set(re.findall(r"\(=(.*?)\)", rules)) == set(labels.values())
    for name, value in settings.items():
        options.add_session_config_entry(name, value)
    data = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    provider = ["CPUExecutionProvider"]
    one = ort.InferenceSession(model, providers=provider).run(None, data)[0]
    other = ort.InferenceSession(folder / "placed.onnx", options, providers=provider).run(None, data)[0]
    np.testing.assert_array_equal(one, other)


KINDS = ("Exp", "Relu", "Tanh", "Sigmoid")


def onnx_model(call: Call, folder: Path) -> tuple[Path, Path]:
    """Write four nodes, and solve with two of them pinned to a card; return the model and the placement."""
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node(kind, [before], [after], name=kind)
             for kind, before, after in zip(KINDS, "xabc", "abcy", strict=True)]  # fmt: skip
    ends = [[onnx.helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, [2, 4])] for end in "xy"]
    graph = onnx.helper.make_graph(nodes, "chain", *ends)
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)]),
              folder / "chain.onnx")  # fmt: skip
    return folder / "chain.onnx", solved(call, folder / "chain.onnx", *PINS)


PINS = ("Exp=CPU", "Relu=CPU", "Tanh=GPU.0", "Sigmoid=GPU.0")


def solved(call: Call, model: Path, *pins: str) -> Path:
    """Solve a model with pins, for devices that need not be here; return the placement."""
    (model.parent / "pc.toml").write_text(MACHINES)
    pinned = " ".join(f"--pin '{pin}'" for pin in pins)
    command = f"solve {model.name} --platform pc.toml --costs analytic --objective serial-latency {pinned} -o p.json"
    run(call, command)
    return model.with_name("p.json")


@walks((DEPLOY, "--to netron"), (LLM, "--to netron"))
def copies_are_read_by_their_programs(call: Call, folder: Path) -> None:
    """Export copies of an ONNX file and of an IR: both compute, and all nodes say a device of the placement.

    Netron 9.3.3 shows the entries of ``metadata_props`` of a node, and the attributes of ``data`` of a layer.
    """
    onnx = pytest.importorskip("onnx")
    ov = pytest.importorskip("openvino")
    model, placement = onnx_model(call, folder)
    run(call, f"export {model.name} {placement.name} --platform pc.toml --to netron")
    copied = onnx.load(folder / "chain.netron.onnx")
    onnx.checker.check_model(copied)
    assert [each.metadata_props[0].value for each in copied.graph.node] == ["CPU", "CPU", "GPU.0", "GPU.0"]
    core = shared_core()
    ov.save_model(core.read_model(model), folder / "ir.xml", compress_to_fp16=False)
    solved(call, folder / "ir.xml", *PINS[:3], "y=GPU.0")
    run(call, "export ir.xml p.json --platform pc.toml --to netron")
    layers = [(each.attrib["type"].capitalize(), each) for each in ET.parse(folder / "ir.netron.xml").iter("layer")]
    shown = [(kind, data.get("device")) for kind, each in layers if kind in KINDS for data in each.iter("data")]
    assert shown == list(zip(KINDS, ("CPU", "CPU", "GPU.0", "GPU.0"), strict=True))
    compiled = core.compile_model(core.read_model(folder / "ir.netron.xml", folder / "ir.bin"), "CPU")
    assert compiled(np.zeros((2, 4), np.float32))[0].shape == (2, 4)


@walks((DEPLOY, "--to model-explorer"), (LLM, "--to model-explorer"))
def nodes_of_the_graph_have_data(call: Call, folder: Path) -> None:
    """Of an ONNX file and of a problem: data for every node of the graph that is opened, in the keys of the format."""
    model, placement = onnx_model(call, folder)
    run(call, f"export {model.name} {placement.name} --platform pc.toml --to model-explorer -o onnx.json")
    assert set(json.loads((folder / "onnx.json").read_text())["results"]) == set(KINDS)
    run(call, f"problem {model.name} --platform pc.toml --costs analytic -o chain.problem.json")
    run(call, "solve chain.problem.json -o q.json")
    run(call, "export chain.problem.json q.json --to model-explorer -o shown.json")
    data, graph = (json.loads((folder / name).read_text()) for name in ("shown.json", "shown.graph.json"))
    assert set(data["results"]) == {node["id"] for node in graph["graphs"][0]["nodes"]}
    names = Written()
    names.read_keys([{**data, "results": None}, *data["results"].values(), graph])
    assert names.keys == set(PROGRAMS["model-explorer"]["keys"])


@walks((FILES, "workload"))
def a_workload_is_solved_and_proven(call: Call, folder: Path) -> None:
    """From the file of the page to a result that is verified and explained."""
    page = (ROOT / "docs" / "workloads.md").read_text()
    (folder / "workload.json").write_text(re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0])
    run(call, "solve workload.json -o best.json")
    run(call, "verify best.result.json")
    run(call, "explain best.result.json")
    (folder / "mine.json").write_text('{"embed": "ACC.0", "block": "ACC.1", "head": "ACC.1"}')
    scored = json.loads(run(call, "solve workload.json -m file:mine.json -o scored.json --json"))
    assert scored["objective"] == pytest.approx(5.5e-3)


@walks((FILES, "graph"))
def a_graph_of_networkx_is_solved_and_proven(call: Call, folder: Path) -> None:
    """As GraphML by every command that takes a problem; the JSON of the same graph has the same answer."""
    graph = nx.DiGraph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], **{"devices.gpu": 2})
    for name, seconds in zip("abcd", (1.0, 2.0, 3.0, 1.0), strict=True):
        graph.nodes[name].update({"time_s.gpu": seconds, "transfer_s.gpu": 0.5, "memory_bytes": 10.0})
    nx.write_graphml(graph, folder / "g.graphml")
    (folder / "g.json").write_text(json.dumps(nx.node_link_data(graph)))
    found = [json.loads(run(call, f"solve {name} -o {name}.placed.json --json")) for name in ("g.graphml", "g.json")]
    assert [each["objective"] for each in found] == [
        5.0,
        5.0,
    ]  # two ops of 4 s together, and half a second for each of two tensors
    assert found[0]["status"] == "optimal"
    assert "checked" in run(call, "verify g.graphml.placed.result.json g.graphml")
    run(call, "explain g.graphml.placed.result.json g.graphml")
    run(call, "show g.graphml")
    run(call, "show g.graphml.placed.json --graph g.svg --of g.graphml")
    run(call, "problem g.graphml -o g.problem.json")
    assert json.loads(run(call, "solve g.problem.json -o p.json --json"))["objective"] == 5.0
    run(call, "export g.graphml g.graphml.placed.json --to model-explorer -o shown.json")
    data, graph_shown = (json.loads((folder / name).read_text()) for name in ("shown.json", "shown.graph.json"))
    nodes = graph_shown["graphs"][0]["nodes"]
    assert {(edge["sourceNodeId"], node["id"]) for node in nodes for edge in node["incomingEdges"]} == set(graph.edges)
    devices = json.loads((folder / "g.graphml.placed.json").read_text())["ops"]
    assert data["results"].keys() == devices.keys()


@walks((FILES, "problem"))
def a_problem_is_made_solved_and_verified(call: Call, folder: Path) -> None:
    """From a model to its problem file, to an answer, to a proof read back from the result."""
    model, _ = onnx_model(call, folder)
    run(call, f"problem {model.name} --platform pc.toml --costs analytic -o chain.problem.json")
    solved_as = json.loads(run(call, "solve chain.problem.json -o q.json --json"))
    assert solved_as["status"] == "optimal"
    assert "checked" in run(call, "verify q.result.json chain.problem.json")
    run(call, "show q.result.json --graph q.svg")
    assert (folder / "q.svg").read_text().lstrip().startswith("<")


PUBLISHED = {
    "qwen3-8b": (36, "11 GiB"), "gpt-oss-20b": (24, "10 GiB"), "llama-3.3-70b": (80, "90 GiB"),
    "deepseek-v3": (61, "420 GiB"), "gemma-3-27b": (62, "36 GiB"), "glm-4.5-air": (46, "140 GiB"),
    "llama3-8b": (32, "11 GiB"), "gpt2": (12, "420 MiB"),
}  # fmt: skip
"""By name: the published number of blocks, and a memory that two cards need for them, and one has not."""


def a_name_becomes_stages(name: str, blocks: int, memory: str) -> Walk:
    """Return the walk from a name to vLLM's numbers of blocks per stage, which are those of the placement."""

    def walk(call: Call, folder: Path) -> None:
        card = '[[device]]\nname = "{}"\nkind = "{}"\nmemory = "{}"\n'
        (folder / "two.toml").write_text(card.format("big", "h100", memory) + card.format("small", "l4", memory))
        run(call, f"llm {name} --for vllm --platform two.toml --problem n.problem.json -o n.json")
        run(call, "export n.problem.json n.json --to vllm")
        exported = json.loads((folder / "n.vllm.json").read_text())
        document = json.loads((folder / "n.json").read_text())
        homes: dict[str, str] = {}
        for op, device in document["ops"].items():
            if found := re.match(r"(.*\.)?(layers|h)\.(\d+)\.", op):
                homes.setdefault(found[3], device or document["default_device"])
        counts = [list(homes.values()).count(device) for device in exported["devices"]]
        assert partition("vllm", exported) == counts
        assert (len(counts), sum(counts)) == (2, blocks)

    return walk


for each, (count, memory) in PUBLISHED.items():
    walks((LLM, f"`{each}`"))(a_name_becomes_stages(each, count, memory))


def modules_on_devices(name: str) -> Walk:
    """Return the walk from numbers to affinities that every operator of a model with these modules has, by its name."""

    def walk(call: Call, folder: Path) -> None:
        ov = pytest.importorskip("openvino")
        ops = pytest.importorskip("openvino.opset13")
        plan_numbers(call, f"--for {name}")
        run(call, f"export llm.problem.json llm.placement.json --to {name} -o modules.json")
        told = json.loads((folder / "modules.json").read_text())
        homes = homes_of(folder / "llm.placement.json")
        assert told["device"].removeprefix("HETERO:").split(",") == list(dict.fromkeys(told["affinities"].values()))
        x = y = ops.parameter([1, 4], np.float32, name="x")
        modules = ["embed_tokens", *(f"layers.{block}.mlp" for block in range(BLOCKS)), "norm"]
        for module in modules:
            y = ops.relu(y, name=f"__module.model.{module}/aten::relu/Relu")
        model = ov.Model([ops.result(y)], [x], "modules")
        for node in model.get_ordered_ops()[1:-1]:
            path = node.get_friendly_name().removeprefix("__module.").partition("/")[0]
            own = [each for each in told["affinities"] if f"{path}.".startswith(f"{each}." if each else "")]
            node.get_rt_info()["affinity"] = told["affinities"][max(own, key=len)]
        given = [node.get_rt_info()["affinity"].astype(str) for node in model.get_ordered_ops()[1:-1]]
        assert given[1 : 1 + BLOCKS] == homes

    return walk


walks((LLM, "--to openvino"))(modules_on_devices("openvino"))
walks((LLM, "--to placekit"))(modules_on_devices("placekit"))


def ir_model(folder: Path) -> Path:
    """Write two products as IR, and the platform of two CPUs."""
    ov = pytest.importorskip("openvino")
    ops = pytest.importorskip("openvino.opset13")
    rng = np.random.default_rng(0)
    x = y = ops.parameter([2, 64], np.float32, name="x")
    for name in ("first", "second"):
        weights = ops.constant(rng.standard_normal((64, 64), dtype=np.float32) / 8)
        y = ops.tanh(ops.matmul(y, weights, False, False, name=f"{name}.product"), name=f"{name}.tanh")
    (folder / "two.toml").write_text(TWO_CPUS)
    ov.save_model(ov.Model([ops.result(y, name="y")], [x], "pair"), folder / "pair.xml", compress_to_fp16=False)
    return folder / "pair.xml"


ON_TWO = "--platform two.toml --teams off --pin 'first*=left' --pin 'second*=right'"


def has_outputs_of(model: Path, bundle: str, *stages: str) -> None:
    """Compare a bundle with the whole model on a random sample; its stages are on these devices."""
    sample = np.random.default_rng(1).standard_normal((2, 64), dtype=np.float32)
    whole = shared_core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(sample)[0]
    manifest = json.loads(Path(bundle, "manifest.json").read_text())
    assert [stage["members"] for stage in manifest["stages"]] == [[device] for device in stages]
    with runtime.load(bundle) as pipe:
        np.testing.assert_allclose(pipe([sample]).popitem()[1], whole, rtol=0, atol=1e-5)
    assert np.abs(whole).max() > 0.1


@walks((LLM, "--to openvino"), (LLM, "--to placekit"), (FILES, "openvino"), (FILES, "platform"), (FILES, "placement"))
def a_placement_becomes_a_bundle(call: Call, folder: Path) -> None:
    """From an IR and a platform to stages on its devices, whose output is that of the whole model."""
    model = ir_model(folder)
    run(call, f"solve pair.xml {ON_TWO} --costs analytic -o p.json")
    for to in ("openvino", "placekit"):
        run(call, f"export pair.xml p.json --platform two.toml --to {to} -o {to}.bundle")
        has_outputs_of(model, f"{to}.bundle", "left", "right")


@walks((FILES, "costs"), (FILES, "result"))
def measured_costs_become_a_bundle(call: Call, folder: Path) -> None:
    """From measurements to a result that has their objective, is verified, and is exported by itself."""
    model = ir_model(folder)
    run(call, "profile pair.xml --platform two.toml --repetitions 3 -o pair.costs.json")
    found = json.loads(run(call, f"solve pair.xml {ON_TWO} --costs pair.costs.json -o p.json --json"))
    costs = json.loads((folder / "pair.costs.json").read_text())
    placed = json.loads((folder / "p.json").read_text())["ops"]
    load, after = dict.fromkeys(("left", "right"), 0.0), dict(pairwise(costs["ops"]))
    for op, seconds in zip(costs["ops"], costs["costs"]["op_time_s"]["cpu"], strict=True):
        load[placed[op]] += seconds
    for op, seconds in zip(costs["tensors"]["producer"], costs["costs"]["transfer_time_s"]["cpu"], strict=True):
        for end in (op, after[op]):
            load[placed[end]] += seconds if placed[op] != placed[after[op]] else 0.0
    assert found["objective"] == pytest.approx(max(load.values()))
    assert "checked" in run(call, f"verify p.result.json pair.xml {ON_TWO} --costs pair.costs.json")
    run(call, "export pair.xml p.result.json --platform two.toml -o p.bundle")
    has_outputs_of(model, "p.bundle", "left", "right")


@walks((LLM, "--to openvino"))
def ops_become_a_script_for_hetero(call: Call, folder: Path) -> None:
    """From an IR to a script that compiles it for HETERO, with the device of every op and the output of the file."""
    model = ir_model(folder)
    run(call, "solve pair.xml -d CPU --precision f32 --costs analytic -m single -o p.json")
    run(call, "export pair.xml p.json -d CPU --precision f32 --to openvino --hetero")
    compiled = runpy.run_path(str(folder / "pair.hetero.py"))["load"](shared_core())
    sample = np.random.default_rng(1).standard_normal((2, 64), dtype=np.float32)
    assert compiled.get_property("EXECUTION_DEVICES") == ["CPU"]
    whole = shared_core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(sample)[0]
    np.testing.assert_allclose(compiled(sample)[0], whole, rtol=0, atol=1e-5)


@walks((FILES, "onnx"))
def an_onnx_file_becomes_a_bundle(call: Call, folder: Path) -> None:
    """From a file to stages on two CPUs whose output is that of onnxruntime."""
    ort = pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    model, _ = onnx_model(call, folder)
    (folder / "two.toml").write_text(TWO_CPUS)
    pins = "--pin Exp=left --pin Relu=left --pin Tanh=right --pin Sigmoid=right"
    run(call, f"solve chain.onnx --platform two.toml --costs analytic --teams off {pins} -o two.json")
    run(call, "export chain.onnx two.json --platform two.toml -o two.bundle")
    sample = np.random.default_rng(1).standard_normal((2, 4), dtype=np.float32)
    with runtime.load("two.bundle") as pipe:
        (found,) = pipe([sample]).values()
    expected = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": sample})[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@walks((FILES, "compute-graph"))
def a_graph_of_doppler_becomes_a_schedule(call: Call, folder: Path) -> None:
    """From a diamond of 1, 2, 3 and 1 s to the best schedule, which is proven, and read back as a trace."""
    rows = "10000000000,20000000000\n20000000000,5000000000\n30000000000,5000000000\n10000000000,0\n"
    (folder / "diamond.txt").write_text(f"6\n0, 1,\n0, 0, 1, 2, 2,\n1, 2, 3, 3, 3,\n{rows}")
    found = json.loads(run(call, "solve diamond.txt -o d.json --json"))
    assert (found["objective"], found["status"]) == (pytest.approx(6.0), "optimal")
    assert "checked" in run(call, "verify d.result.json diamond.txt")
    run(call, "show d.result.json --trace d.trace.json")
    events = json.loads((folder / "d.trace.json").read_text())["traceEvents"]
    assert max(each["ts"] + each["dur"] for each in events if each["ph"] == "X") == pytest.approx(6e6)


@walks((FILES, "training-problem"), (FILES, "training-plan"))
def a_training_problem_becomes_a_step(call: Call, folder: Path) -> None:
    """From Piper's format to a plan, to the trace of a step in which every device of every stage works."""
    chain = chain_problem(8, num_devices=3, memory_bytes=2**31, tensor_degrees=(1,), num_microbatches=7)
    write_piper(chain, folder / "chain.json")
    run(call, "train-plan chain.json")
    plan = json.loads((folder / "chain.plan.json").read_text())
    assert len(plan["stages"]) == 3
    assert sorted(layer for stage in plan["stages"] for layer in stage["layers"]) == list(range(8))
    assert plan["objective"] == pytest.approx(max(stage["load"]["load_s"] for stage in plan["stages"]))
    run(call, "explain chain.plan.json chain.json --time-limit 0")
    run(call, "show chain.plan.json --schedule 1f1b --trace step.json")
    events = json.loads((folder / "step.json").read_text())["traceEvents"]
    assert {each["pid"] for each in events if each["ph"] == "X"} == set(range(len(plan["stages"])))


def runs_as(module: Any, folder: Path, *, inputs: str, samples: Any) -> None:
    """Start the script of a pipeline on samples: its outputs are those of the module."""
    torch = pytest.importorskip("torch")
    torch.save({inputs: samples}, folder / "inputs.pt")
    script: list[str | Path] = [sys.executable, next(folder.glob("*.pipeline")) / "run.py"]
    done = subprocess.run(
        [*script, "--inputs", folder / "inputs.pt", "--outputs", folder / "outputs.pt"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ", 2 stages" in done.stdout
    (outputs,) = torch.load(folder / "outputs.pt", weights_only=True).values()
    with torch.no_grad():
        for sample, found in zip(samples, outputs, strict=True):
            torch.testing.assert_close(found, module(sample))


@walks((FILES, "torch"), (LLM, "--to torch-pipeline"), marks=[pytest.mark.slow])
def a_program_becomes_a_pipeline(call: Call, folder: Path) -> None:
    """From a saved program to a script of two processes, which computes what the module does."""
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4))).eval()
    torch.export.save(torch.export.export(module, (torch.zeros(8, 16),)), folder / "four.pt2")
    (folder / "two.toml").write_text(TWO_CPUS)
    pins = "--pin '[01]*=left' --pin '[23]*=right'"
    run(call, f"solve four.pt2 --platform two.toml --costs analytic --teams off {pins} -o p.json")
    run(call, "export four.pt2 p.json --platform two.toml --to torch-pipeline")
    runs_as(module, folder, inputs="input", samples=torch.randn(3, 8, 16))


@walks((LLM, "`.pt2`"), marks=[pytest.mark.slow])
def a_decoder_becomes_a_pipeline(call: Call, folder: Path) -> None:
    """From a program of a language model with open dimensions to a script, which computes what the module does."""
    torch = pytest.importorskip("torch")
    from language_models import TorchDecoder

    module = TorchDecoder(4, 64, 4, 2, 128, 300, is_fused=False).eval()
    open_dims = {"ids": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    example = (torch.zeros(3, 8, dtype=torch.long),)
    torch.export.save(torch.export.export(module, example, dynamic_shapes=open_dims), folder / "decoder.pt2")
    (folder / "two.toml").write_text(TWO_CPUS)
    run(call, f"llm decoder.pt2 {REQUESTS} --platform two.toml --teams off -o d.json")
    run(call, "export decoder.pt2 d.json --platform two.toml --to torch-pipeline --shape ids[2,64]")
    runs_as(module, folder, inputs="ids", samples=torch.randint(300, (3, 2, 64)))


@pytest.mark.parametrize(("walk", "rows"), JOURNEYS)
def test_rows_are_walked_to_their_end(walk: Walk, rows: tuple[Row, ...], call: Call, tmp_path: Path) -> None:
    """From a file or numbers, through commands, to what the program of the row loads, runs or parses.

    The commands have the option or the name of the row, or are given a file of its kind.
    """
    words: list[str] = []

    def noted(*arguments: str) -> Any:
        words.extend((*arguments, ";"))
        return call(*arguments)

    walk(noted, tmp_path)
    line = shlex.join(words)
    kinds = {kind for word in set(words) if (tmp_path / word).is_file() for kind in kinds_of(tmp_path / word)}
    for page, name in rows:
        if page == FILES:
            assert name in kinds, f"no command is given a file of the kind {name}"
        elif name.startswith("--") or "`" in name:
            found = re.search(r"`(.*)`", name)
            assert (found[1] if found else name) in line, f"no command has {name}"


def kinds_of(path: Path) -> list[str]:
    """Return the kind of a file, or the reader of a model; nothing for files that no command takes."""
    try:
        kind = kind_of_file(path)
    except PlacekitError:
        return []
    return [kind if kind != "model" else str(reader_of_suffix(path.suffix))]


def test_every_row_is_walked() -> None:
    """Each row of the tables has a walk here, and each walk has a row."""
    assert faults_of(pages(), WALKED) == []
    assert set(walked_rows(pages())) == WALKED


@pytest.mark.parametrize(
    ("page", "after", "added"),
    [
        (LLM, "| `--to` | what is written |\n|---|---|\n", "| mlx | a file |\n"),
        (LLM, "| `--to` | what is written |\n|---|---|\n", "| [`mlx`](deploy.md) | a file |\n"),
        (LLM, "| `--to` | what is written |\n|---|---|\n", "| `vllm`, `mlx` | a file |\n"),
        (LLM, "| model | what is read |\n|---|---|\n", "| `.gguf`, or `.mlx` | a file |\n"),
        (FILES, "| file | read | write | known by |\n|---|---|---|---|\n", "| mlx | - | - | suffix `.mlx` |\n"),
        (DEPLOY, "# Deploying a placement\n", "\n| `--to` | program |\n|---|---|\n| `vllm` | vLLM |\n"),
        (DEPLOY, "# Deploying a placement\n", "\n| Inputs | what is read |\n|---|---|\n| mlx | a file |\n"),
    ],
)
def test_a_new_row_without_a_walk_is_a_fault(page: str, after: str, added: str) -> None:
    """However it is written: without backticks, as a link, beside others, or in a table with other headers."""
    texts = pages()
    assert texts[page].count(after) == 1
    texts[page] = texts[page].replace(after, after + added)
    assert len(faults_of(texts, WALKED)) == 1


def test_rows_are_what_the_product_offers(call: Call, tmp_path: Path) -> None:
    """Names of exports, runtimes, and kinds of files: each has a row, and none has a row alone."""
    told = call("export", "model.xml", "placement.json", "--to", "nothing").stderr
    offered = " ".join(told.split()).rpartition("runtimes are ")[2].split(", ")
    named = {name for _, name in walked_rows(pages())}
    assert {name for name in named if name.startswith("--to")} == {f"--to {name}" for name in offered}
    assert {name for name in named if name.startswith("--for")} == {f"--for {name}" for name in RUNTIMES}
    kinds = {name for page, name in walked_rows(pages()) if page == FILES}
    assert kinds == {*READERS, *OTHER_KINDS} - {"model"}
    suffixes = [suffix for reader in READERS.values() for suffix in reader.suffixes]
    assert [suffix for suffix in suffixes if f"suffix `{suffix}`" not in pages()[FILES]] == []


def test_the_line_says_the_placement_that_is_written(call: Call, tmp_path: Path) -> None:
    """Also where a verdict knows a simpler one: the line, the table of memory, and the file are of one plan."""
    for_runtime("llama.cpp", f"--batch 1 {SHORT}")(call, tmp_path)


def test_commands_of_pages_that_the_first_page_names_are_run() -> None:
    """Each linked page with commands is run by a test: test_docs_commands.py runs it, or names the test that does.

    Pages of results repeat benchmarks of hours: there each command has its reason not to run.
    """
    rows = re.findall(r"^\| (?!you have|---)(.*) \| (.*) \|$", pages()["docs/index.md"], re.MULTILINE)
    assert len(rows) > 5
    for cell, linked in rows:
        names = [f"docs/{target}" for target in re.findall(r"\]\(([^)#]+)", linked)]
        assert names
        assert all(name in pages() for name in names), linked
        assert any(name in COMMANDS for name in names) or "doubts" in cell, f"{cell}: no page has commands"
        for name in (name for name in names if name in COMMANDS):
            if name.startswith("docs/results/"):
                assert all(map(reason_not_to_run, COMMANDS[name]))
            elif name in OTHER_TESTS:
                path, _, test = OTHER_TESTS[name].partition("::")
                source = (ROOT / path).read_text()
                found = [node for node in ast.parse(source).body if getattr(node, "name", None) == test]
                assert Path(name).name in source, f"{path} is not about {name}"
                assert any("main()" in ast.unparse(node) for node in found), f"{OTHER_TESTS[name]} runs no commands"
            else:
                assert RUN[name], f"{name} has commands, and none is run"
