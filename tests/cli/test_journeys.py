"""Joined paths: every row of the tables of inputs, runtimes and exports leads from a file to the last artefact.

The rows are read from the pages. A row is walked by a function here, or by a test elsewhere that is named; a row
without either fails.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from gguf_headers import attention, feed_forward, write_model
from llama_layers import devices_of_layers
from names_written import DRIVERS, PROGRAMS, Written

from placekit import runtime
from placekit.cost_models.openvino.devices import shared_core

ROOT = Path(__file__).parents[2]
Call = Callable[..., Any]
Walk = Callable[[Call, Path], None]
HEADERS = (
    ("`--for`", "devices"), ("`--to`", "what is written"), ("`--to`", "of"),
    ("model", "what is read"), ("file", "read"), ("you have", "read"),
)  # fmt: skip
"""First two columns of the tables of inputs, runtimes and exports."""


def rows(*columns: str) -> list[tuple[str, ...]]:
    """Return the page and the first two cells of all rows of tables whose first column is one of these."""
    found: list[tuple[str, ...]] = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        header: tuple[str, ...] = ()
        for line in path.read_text().splitlines():
            cells = tuple(cell.strip() for cell in line.strip("|").split("|"))[:2] if line.startswith("|") else ()
            if not cells or not header:
                header = cells
            elif header in HEADERS and header[0] in columns and not set(line) <= set("|-: "):
                found.append((str(path.relative_to(ROOT)), *cells))
    return found


def walked_rows() -> list[tuple[str, str]]:
    """Return the page and the name of every row that has to be walked: each name of an option, or the first cell."""
    named = [
        (page, f"{option} {name}")
        for option in ("--for", "--to")
        for page, cell, _ in rows(f"`{option}`")
        for name in re.findall(r"`([^`]+)`", cell)
    ]
    return named + [(page, cell) for page, cell, _ in rows("model", "file")]


WALKS: dict[tuple[str, str], Walk | str] = {}
"""By page and row: the function that walks it, or the test that does."""


def walks(page: str, *names: str) -> Callable[[Walk], Walk]:
    """Register a function for rows of a page."""

    def register(walk: Walk) -> Walk:
        WALKS.update({(page, name): walk for name in names})
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


for each in ("vllm", "sglang", "tensorrt-llm", "megatron", "torchtitan", "llama.cpp"):
    WALKS["docs/language_models.md", f"--for {each}"] = for_runtime(each, SHORT if each == "llama.cpp" else "")


@walks("docs/language_models.md", "--for accelerate")
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


for each in ("openvino", "placekit"):
    WALKS["docs/language_models.md", f"--for {each}"] = stateful_bundle(f"--for {each}")
WALKS["docs/language_models.md", "`.pt2`, stateful `.xml`"] = stateful_bundle("")


@walks("docs/language_models.md", "`.gguf`, of a split one the first file")
def a_header_becomes_a_line(call: Call, folder: Path) -> None:
    """From the header of a file to arguments of llama.cpp that put every block where the plan has it."""
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


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": BLOCKS, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2000,
    "torch_dtype": "float16",
}  # fmt: skip


@walks("docs/language_models.md", "`config.json` of transformers, or its folder")
def a_configuration_becomes_a_map(call: Call, folder: Path) -> None:
    """From a configuration to a device map that transformers loads weights by."""
    transformers = pytest.importorskip("transformers", minversion="5")
    torch = pytest.importorskip("torch")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "pc.toml").write_text(MACHINES)
    run(call, f"llm config.json {REQUESTS} --for accelerate --platform pc.toml --problem c.problem.json -o c.json")
    run(call, "export c.problem.json c.json --to accelerate -o map.json")
    mapped = json.loads((folder / "map.json").read_text())
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder)).eval()
    model.save_pretrained(folder / "model")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "model", device_map=dict.fromkeys(mapped, "cpu"), dtype=model.dtype
    )
    tokens = torch.tensor([[1, 7, 99]])
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)


@walks("docs/language_models.md", "--to onnxruntime")
def nodes_are_run_by_onnxruntime(call: Call, folder: Path) -> None:
    """From a file to a session with the option that was written: the outputs are those of the file."""
    ort = pytest.importorskip("onnxruntime")
    model, placement = onnx_model(call, folder)
    run(call, f"export {model.name} {placement.name} --platform pc.toml --to onnxruntime --force -o placed.onnx")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    for name, value in json.loads((folder / "placed.session.json").read_text()).items():
        options.add_session_config_entry(name, value)
    data = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    provider = ["CPUExecutionProvider"]
    one = ort.InferenceSession(model, providers=provider).run(None, data)[0]
    other = ort.InferenceSession(folder / "placed.onnx", options, providers=provider).run(None, data)[0]
    np.testing.assert_array_equal(one, other)


def onnx_model(call: Call, folder: Path) -> tuple[Path, Path]:
    """Write four nodes, and solve with two of them pinned to a card; return the model and the placement."""
    onnx = pytest.importorskip("onnx")
    kinds = ("Exp", "Relu", "Tanh", "Sigmoid")
    nodes = [onnx.helper.make_node(kind, [before], [after], name=kind)
             for kind, before, after in zip(kinds, "xabc", "abcy", strict=True)]  # fmt: skip
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


@walks("docs/deploy.md", "--to netron")
def copies_are_read_by_their_programs(call: Call, folder: Path) -> None:
    """Export copies of an ONNX file and of an IR: both compute, and all nodes say a device of the placement."""
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
    text = (folder / "ir.netron.xml").read_text()
    assert {'device="CPU"', 'device="GPU.0"'} <= set(re.findall(r'device="[^"]+"', text))
    compiled = core.compile_model(core.read_model(folder / "ir.netron.xml", folder / "ir.bin"), "CPU")
    assert compiled(np.zeros((2, 4), np.float32))[0].shape == (2, 4)


@walks("docs/deploy.md", "--to model-explorer")
def nodes_of_the_graph_have_data(call: Call, folder: Path) -> None:
    """Of an ONNX file and of a problem: data for every node of the graph that is opened, in the keys of the format."""
    model, placement = onnx_model(call, folder)
    run(call, f"export {model.name} {placement.name} --platform pc.toml --to model-explorer -o onnx.json")
    assert set(json.loads((folder / "onnx.json").read_text())["results"]) == {"Exp", "Relu", "Tanh", "Sigmoid"}
    run(call, f"problem {model.name} --platform pc.toml --costs analytic -o chain.problem.json")
    run(call, "solve chain.problem.json -o q.json")
    run(call, "export chain.problem.json q.json --to model-explorer -o shown.json")
    data, graph = (json.loads((folder / name).read_text()) for name in ("shown.json", "shown.graph.json"))
    assert set(data["results"]) == {node["id"] for node in graph["graphs"][0]["nodes"]}
    names = Written()
    names.read_keys([{**data, "results": None}, *data["results"].values(), graph])
    assert names.keys == set(PROGRAMS["model-explorer"]["keys"])


@walks("docs/files.md", "workload")
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


@walks("docs/files.md", "graph")
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


@walks("docs/files.md", "problem")
def a_problem_is_made_solved_and_verified(call: Call, folder: Path) -> None:
    """From a model to its problem file, to an answer, to a proof read back from the result."""
    model, _ = onnx_model(call, folder)
    run(call, f"problem {model.name} --platform pc.toml --costs analytic -o chain.problem.json")
    solved_as = json.loads(run(call, "solve chain.problem.json -o q.json --json"))
    assert solved_as["status"] == "optimal"
    assert "checked" in run(call, "verify q.result.json chain.problem.json")
    run(call, "show q.result.json --graph q.svg")
    assert (folder / "q.svg").read_text().lstrip().startswith("<")


BUNDLES = "tests/cli/test_export.py"
NEIGHBOURS = "tests/cli/test_llm.py::test_placements_go_to_other_runtimes"
PUBLISHED = "a name: `qwen3-8b`, `gpt-oss-20b`, `llama-3.3-70b`, `deepseek-v3`, `gemma-3-27b`, `glm-4.5-air`, ..."
WALKS |= {
    ("docs/language_models.md", PUBLISHED): (
        "tests/language/test_families.py::test_published_models_have_their_parameters"
    ),
    ("docs/language_models.md", "`llama3-8b`, `gpt2`, ..., or numbers"): (
        "tests/exports/test_device_map.py::test_transformers_loads_what_llm_placed"
    ),
    ("docs/language_models.md", "--to openvino"): f"{BUNDLES}::test_a_bundle_runs",
    ("docs/language_models.md", "--to netron"): "tests/cli/test_journeys.py::copies_are_read_by_their_programs",
    ("docs/language_models.md", "--to model-explorer"): "tests/cli/test_journeys.py::nodes_of_the_graph_have_data",
    ("docs/files.md", "costs"): "tests/cli/test_json.py::test_every_command_prints_one_object",
    ("docs/files.md", "placement"): f"{BUNDLES}::test_a_bundle_runs",
    ("docs/files.md", "result"): f"{BUNDLES}::test_results_are_placements_too",
    ("docs/files.md", "platform"): f"{BUNDLES}::test_a_bundle_runs",
    **{("docs/language_models.md", f"--to {name}"): NEIGHBOURS for name in (
        "device-map", "accelerate", "vllm", "sglang", "tensorrt-llm", "megatron", "torchtitan", "llama.cpp"
    )},
}  # fmt: skip


@pytest.mark.parametrize(
    ("page", "row"),
    [
        pytest.param(*row, marks=[pytest.mark.slow, pytest.mark.zoo] if "config.json" in row[1] else ())
        for row in walked_rows()
    ],
)
def test_every_row_is_walked_to_its_end(page: str, row: str, call: Call, tmp_path: Path) -> None:
    """By a function of this file, from a file or numbers through commands; or by a test that has this name."""
    walk = WALKS.get((page, row))
    assert walk is not None, f"{page} has a row {row!r} that no test walks: add one to WALKS"
    if not isinstance(walk, str):
        walk(call, tmp_path)
        return
    path, _, name = walk.partition("::")
    tests = [node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name in tests, f"{walk} walks {row!r}, and is gone"


def test_the_line_says_the_placement_that_is_written(call: Call, tmp_path: Path) -> None:
    """Also where a verdict knows a simpler one: the line, the table of memory, and the file are of one plan."""
    for_runtime("llama.cpp", f"--batch 1 {SHORT}")(call, tmp_path)


def test_no_walk_is_left_of_a_row_that_is_gone() -> None:
    """Names that were taken from the pages are taken out here, too."""
    assert set(WALKS) - set(walked_rows()) == set()
    assert len(walked_rows()) > 25


def test_every_row_of_the_first_page_leads_to_commands_that_run() -> None:
    """Of the pages that a row names, one at least has commands, and each page with commands is run by a test."""
    found = rows("you have")
    assert len(found) > 5
    for page, cell, pages in found:
        linked = [(ROOT / page).parent / target for target in re.findall(r"\]\(([^)#]+)", pages)]
        assert all(path.is_file() for path in linked), pages
        if "doubts" not in cell:
            assert any("$ placekit" in path.read_text() for path in linked), cell
