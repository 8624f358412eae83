"""Names that are written for other programs stand in `names_of_programs.toml`, and nothing else is written."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from names_written import DRIVERS, PROGRAMS, Written
from serving_plans import TOLD, require_served

import placekit as pk
from placekit.cluster import engine
from placekit.cluster.nodes import nodes_of
from placekit.exports.commands.writers import ExportTask
from placekit.exports.model_explorer import explorer_graph, node_data
from placekit.exports.onnxruntime import SETTING
from placekit.language.commands.launch_files import WRITERS
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import model_step
from placekit.language.planning.apart import PROXY, apart_cases
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.launch import launch_lines, servers
from placekit.language.runtimes.llama.rpc import as_one_machine
from placekit.language.runtimes.typed import _TORCHRUN_FLAGS, parse_line
from placekit.language.serving import Phase, Serving
from placekit.language.task import decoder_task
from placekit.model.errors import PlacekitError, UnsupportedProblemError
from placekit.model.platform import Device
from placekit.model.problem import Problem
from placekit.model.served import Served
from placekit.runtime.bundles import run_pipeline
from placekit.runtime.bundles.torch_bundle import start_lines
from placekit.runtime.stages.stage_plan import PlacedStage, StagePlan

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
BLOCKS = 6
MODEL = describe_decoder(Decoder(BLOCKS, 64, 128, 500, heads=4, experts=4, experts_per_token=2))
GRAPH = model_step(MODEL, Phase("decode", 1, 1, 10.0)).graph
SERVED = Served(context=4096, sequences=4, chunk=512, headroom=0.1, cache_precision="int8")


def problem_of(platform: pk.Platform, served: Served) -> Problem[Any]:
    """Return a small mixture of experts with a cost table of ones."""
    kinds = platform.kinds
    costs = pk.CostTable(
        kinds,
        np.ones((GRAPH.num_ops, len(kinds))),
        np.zeros((GRAPH.num_tensors, len(kinds))),
        np.ones(GRAPH.num_ops),
        direct_links=tuple(link.name for link in platform.direct_links),
        direct_time_s=np.zeros((GRAPH.num_tensors, len(platform.direct_links))),
    )
    return pk.Problem(GRAPH, platform, costs, served=served)


def placement_of(problem: Problem[Any], stages: Sequence[int], teams: Sequence[int] | None = None) -> pk.Placement:
    """Return runs of whole blocks on the devices `stages`; the embedding is with the first, the head with the last."""
    at = [stages[int(found[1]) * len(stages) // BLOCKS] if (found := re.search(r"layers\.(\d+)\.", name))
          else stages[0 if "embed" in name else -1] for name in GRAPH.op_names]  # fmt: skip
    return pk.Placement.of(problem, np.array(at), team_of_device=teams)


def plans() -> Iterator[tuple[Problem[Any], pk.Placement]]:
    """Yield plans of every shape: stages in order and not, replicas, tensor parallel, experts, prediction, phases."""
    for kind, cache in (("rtx4090", "int8"), ("mi300x", "f16"), ("arc-a770", "int4"), ("m2-ultra", "bf16")):
        counts: dict[str, Any] = {"cpu": 1, kind: 3}
        told = problem_of(pk.Platform.of(**counts, host="cpu"), replace(SERVED, cache_precision=cache))
        for stages in ([1, 2, 3], [3, 1], [0, 1, 2], [0]):
            yield told, placement_of(told, stages)
    told = problem_of(pk.Platform.of(cpu=1, rtx4090=4, host="cpu"), SERVED)
    yield told, placement_of(told, [1, 3], [0, 1, 1, 3, 3])
    at = placement_of(told, [1, 2]).device_of_op.copy()
    at[[op for op, name in enumerate(GRAPH.op_names) if name.endswith("_exps")]] = 0
    yield told, pk.Placement.of(told, at)
    desktop = pk.Platform.of(cpu=1, rtx4090=1, host="cpu").replace(spec_of_kind={"cpu": "ryzen-9-7950x"})
    hosted = problem_of(desktop, replace(SERVED, hosted_blocks=2))
    yield hosted, placement_of(hosted, [1])
    dense = hosted.replace(served=replace(SERVED, hosted_blocks=2, hosts_dense=True))
    yield dense, placement_of(dense, [1])
    cached = hosted.replace(served=replace(SERVED, hosts_cache=True))
    yield cached, placement_of(cached, [1])
    predicting = problem_of(pk.Platform.of(rtx4090=2), replace(SERVED, predicting_blocks=1))
    yield predicting, placement_of(predicting, [0, 1])
    pairs = [pk.Device(f"g{at}&g{at + 1}", "rtx4090 tp2", members=(f"g{at}", f"g{at + 1}")) for at in (0, 2)]
    parallel = problem_of(pk.Platform(tuple(pairs)), SERVED)
    yield parallel, placement_of(parallel, [0, 1])
    cards = [pk.Device(f"g{card}", "rtx4090", node=f"machine{card // 2}") for card in range(4)]
    between = pk.DirectLink(1e-5, 1e9, between_nodes=True)
    nodes = replace(SERVED, cards=tuple(card.name for card in cards), nodes=tuple(str(card.node) for card in cards))
    apart = problem_of(pk.Platform(tuple(cards), direct_links=(between,)), nodes)
    for stages in ([0, 1, 2, 3], [2, 3, 0, 1], [3, 1], [1, 0, 2, 3], [0, 2, 3]):
        yield apart, placement_of(apart, stages)
    unequal = problem_of(pk.Platform((pk.Device("a", "l4"), pk.Device("b", "t4"), pk.Device("c", "l4"))), SERVED)
    yield unequal, placement_of(unequal, [0, 1, 2])
    yield unequal, placement_of(unequal, [2, 1])
    remote = as_one_machine(pk.Platform((pk.Device("h", "cpu", is_host=True), pk.Device("RPC[attic]", "rtx4090"))))
    elsewhere = problem_of(remote, SERVED)
    yield elsewhere, placement_of(elsewhere, [0, 1])
    yield phases_apart()


def phases_apart() -> tuple[Problem[Any], pk.Placement]:
    """Return a plan with a server for prefill and one for decode."""
    platform = pk.Platform.of(rtx4090=2)
    serving = Serving(64, 16, sequences=4, chunk=32)
    task = decoder_task(MODEL, serving, platform, lambda graph: pk.Analytic().cost_table(graph, platform))
    (apart,) = apart_cases([task])
    told = apart.problem.replace(served=SERVED)
    proxy = told.platform.device_names.index(PROXY)
    at = [proxy if name == PROXY else int(name.startswith("decode.")) for name in told.graph.op_names]
    return told, pk.Placement.of(told, np.array(at))


@pytest.mark.parametrize("runtime", ["device-map", "accelerate", "llama.cpp", "openvino"])
def test_a_plan_with_two_servers_goes_to_no_runtime_of_one(runtime: str, tmp_path: Path) -> None:
    """Also maps of modules would lose that each phase has a server of its own."""
    problem, placement = phases_apart()
    path = tmp_path / "export.json"
    task = ExportTask(path, None, path, problem.graph, problem.platform, placement, None, problem, check=False)
    with pytest.raises(UnsupportedProblemError, match="plan again without --apart"):
        WRITERS[runtime].write(task)
    assert not path.exists()


@pytest.fixture(scope="module")
def written() -> dict[str, Written]:
    """Return what the lines and files of all plans name, by runtime; a plan that a runtime refuses has none."""
    found = {runtime: Written() for runtime in TOLD}
    for problem, placement in plans():
        for runtime, names in found.items():
            try:
                told = servers(runtime, problem, placement)
                lines = launch_lines(runtime, "MODEL", problem, placement)
            except PlacekitError:
                continue
            settings = [line for each in told.values() for line in each.settings.splitlines()]
            for line in lines:
                if line not in settings and not line.startswith("#"):
                    names.read_line(line)
            for each in told.values():
                names.read_keys(dict(each.config))
                read = tomllib.loads(each.settings) if runtime == "torchtitan" else yaml.safe_load(each.settings)
                assert (read or {}) == dict(each.config), "the file that people copy says what the JSON file says"
    return found


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_line_is_read_back_to_its_plan(runtime: str) -> None:
    """A reader reads what its writer writes: the same devices for all that has weights, the same teams and sizes."""
    record, known = RUNTIMES[runtime], list(RUNTIMES.values())
    count = 0
    for problem, placement in plans():
        if "prefill" in problem.graph.op_names[0]:
            continue  # two servers
        try:
            lines = launch_lines(runtime, "MODEL", problem, placement)
        except PlacekitError:
            continue
        launch, model = parse_line("\n".join(lines), known, runtime)
        assert launch.runtime is record
        assert model in ("MODEL", "MODEL.gguf", None)
        assert record.read is not None
        read = record.read(record, launch, problem)
        held = problem.graph.op_weight_bytes > 0
        assert (read.placement.device_of_op[held] == placement.device_of_op[held]).all(), lines
        assert set(read.placement.teams) == set(placement.teams), lines
        require_served(record, read.served, problem.served or Served())
        count += 1
    assert count > 1


@pytest.mark.parametrize("runtime", TOLD)
def test_names_are_those_of_the_table(written: dict[str, Written], runtime: str) -> None:
    """No other option, variable or key is written, and each of the table is: a slip of the pen is in one of both."""
    told, names = PROGRAMS[runtime], written[runtime]
    by_serve = {"--host", "--port"} if RUNTIMES[runtime].is_server else set()
    assert names.options | by_serve == set(told.get("options", ()))
    assert names.variables - DRIVERS == set(told.get("variables", ()))
    assert names.keys == set(told.get("keys", ()))
    assert names.commands == set(told["commands"])
    allowed = told.get("values", {})
    assert {(name, value) for name, value in names.values if value not in allowed.get(name, [value])} == set()
    assert names.settings == {(key, word) for key, words in told.get("settings", {}).items() for word in words}


@pytest.mark.parametrize("runtime", [name for name in TOLD if RUNTIMES[name].has_phases_apart])
def test_servers_of_phases_listen_to_ports_of_their_own(runtime: str) -> None:
    """They may be on one machine; vLLM has ports of its own for the cache that is sent."""
    told = servers(runtime, *phases_apart()).values()
    ports = [int(each.values["--port"]) for each in told]
    ports += [int(each.environment["VLLM_NIXL_SIDE_CHANNEL_PORT"]) for each in told if runtime == "vllm"]
    assert len(set(ports)) == len(ports) == (4 if runtime == "vllm" else 2)
    assert all(1024 <= port < 2**16 for port in ports)


@pytest.mark.parametrize(("runtime", "script"), [("megatron", "pretrain_gpt.py"), ("torchtitan", "torchtitan.train")])
def test_torchrun_parses_what_starts_a_trainer(written: dict[str, Written], runtime: str, script: str) -> None:
    """By its own parser, which says what is the script, or the module, and what are options of that."""
    parser = pytest.importorskip("torch.distributed.run").get_args_parser()
    own = {name for action in parser._actions for name in action.option_strings}
    passed = set()
    for words in written[runtime].lines:
        told = parser.parse_args(words[1:])
        assert (words[0], told.module, told.training_script) == ("torchrun", runtime == "torchtitan", script)
        assert told.standalone or (int(told.nnodes) > 1 and told.rdzv_endpoint.endswith(":29500"))
        assert int(told.nproc_per_node) > 0
        passed |= {word for word in told.training_script_args if word.startswith("--")}
    assert passed == set(PROGRAMS[runtime]["options"]) - own


def test_variables_of_drivers_are_those_of_the_table(written: dict[str, Written]) -> None:
    """Cards of NVIDIA, AMD and Intel that are not in the order of the machine."""
    found = {name for names in written.values() for name in names.variables}
    assert found - {name for each in PROGRAMS.values() for name in each.get("variables", ())} == set()
    assert found >= DRIVERS


def test_every_program_has_its_version_and_pages() -> None:
    """Also each that is in the table alone; runtimes without arguments are told by files and Python."""
    assert [name for name, each in PROGRAMS.items() if not (each["version"] and all(each["pages"]))] == []
    assert set(RUNTIMES) - set(TOLD) == {"accelerate", "openvino", "placekit"}


def test_a_slip_of_the_pen_is_found() -> None:
    """Read back from a line: one letter is enough."""
    names = Written()
    names.read_line('X_Y=1,2 python -m serve --mem-fraction-statik 0.9 -fa on --json \'{"a": {"b": 1}}\'')
    assert names.options - set(PROGRAMS["sglang"]["options"]) == {"--mem-fraction-statik", "-fa", "--json"}
    assert (names.variables, names.keys, names.commands) == ({"X_Y"}, {"a", "b"}, {"python -m serve"})


def test_openvino_has_every_property_that_is_asked_or_set() -> None:
    """Words in capitals in what calls OpenVINO are its properties, or values of them; its package lists both."""
    library = importlib.import_module("openvino._pyopenvino").properties
    known = set(_texts(library))
    assert "INFERENCE_PRECISION_HINT" in known
    places = ["cost_models/openvino/*.py", "placekit/runtime/**/*.py", "placekit/exports/**/*.py"]
    files = [file for place in places for file in ROOT.glob(place)]
    used = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"[A-Z]{2,}(_[A-Z0-9]+)+", node.value)
    }
    assert len(used) > 10
    values = {"CUMULATIVE_THROUGHPUT"}  # of PERFORMANCE_HINT
    assert used - known - values - {"WORLD_SIZE"} == set()  # the last is torchrun's


def _texts(module: Any) -> Iterator[str]:
    """Yield what the functions of a module without arguments return, at all depths."""
    for name in dir(module):
        each = getattr(module, name)
        if inspect.ismodule(each):
            yield from _texts(each)
        elif inspect.isroutine(each) and not name.startswith("_"):
            try:
                text = each()
            except TypeError:
                continue
            if isinstance(text, str):
                yield text


def test_onnxruntime_knows_the_session_option() -> None:
    """It takes any name without a word, and refuses rules without a bracket under this one only."""
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    assert PROGRAMS["onnxruntime"]["keys"] == [SETTING]
    ends = [[onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])] for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", *ends)
    model = onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 17)])

    def load(name: str) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry(name, "cpu=cpu_0")
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    load(f"{SETTING}s")
    with pytest.raises(Exception, match="Invalid layering config"):
        load(SETTING)


def test_torchrun_parses_what_starts_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process per stage, of the script in the folder, with its own options."""
    parser = pytest.importorskip("torch.distributed.run").get_args_parser()
    called: list[list[str]] = []
    (tmp_path / "manifest.json").write_text(json.dumps({"stages": [{}, {}, {}]}))
    monkeypatch.setattr(run_pipeline, "HERE", tmp_path)
    monkeypatch.setattr("subprocess.call", called.append)
    monkeypatch.setattr("sys.argv", ["run.py", "--samples", "4"])
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit) as ended:
        run_pipeline.main()
    assert not ended.value.code
    ((_, *words),) = called
    assert words[:2] == ["-m", "torch.distributed.run"]
    told = parser.parse_args(words[2:])
    assert (told.standalone, told.nproc_per_node) == (True, "3")
    assert (told.training_script, told.training_script_args) == (run_pipeline.__file__, ["--samples", "4"])
    names = {name for action in parser._actions for name in action.option_strings}
    lines = start_lines(_on_nodes("a", "a", "b"), "run.py")
    told = parser.parse_args(lines["b"].split()[1:])
    assert (told.nnodes, told.node_rank, told.nproc_per_node) == ("2", 1, "1")
    assert (told.master_addr, told.master_port, told.training_script) == ("a", 29500, "run.py")
    assert start_lines(_on_nodes("a", "a"), "run.py") == {}
    used = {word for word in [*words[2:], *lines["a"].split()] if word.startswith("--")} - {"--samples"}
    assert used == set(PROGRAMS["torchrun"]["options"]) <= names
    flags = {name for action in parser._actions if action.nargs == 0 for name in action.option_strings}
    flags -= {"-h", "--help", "-m", "--module"}
    assert flags == {spelt for flag in _TORCHRUN_FLAGS for spelt in (flag, f"--{flag[2:].replace('-', '_')}")}


def test_torch_asks_for_the_variables_of_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that is started by itself, between those of another machine, needs each: torch names what is missing."""
    rendezvous = pytest.importorskip("torch.distributed.rendezvous").rendezvous
    lines = start_lines(_on_nodes("a", "b", "a"), "run.py")
    assert lines == {
        f"{node}, stage {at}": f"WORLD_SIZE=3 MASTER_ADDR=a MASTER_PORT=29500 RANK={at} python run.py"
        for at, node in enumerate("aba")
    }
    names = Written()
    names.read_line(lines["b, stage 1"])
    assert names.variables == set(PROGRAMS["torchrun"]["variables"])
    for name in names.variables:
        monkeypatch.setenv(name, "1")
    for name in names.variables:
        with monkeypatch.context() as without:
            without.delenv(name)
            with pytest.raises(ValueError, match=f"environment variable {name} expected, but not set"):
                next(iter(rendezvous("env://")))


def _on_nodes(*nodes: str) -> StagePlan:
    stages = tuple(
        PlacedStage(str(at), (Device(f"d{at}", "cpu", node=node),), None, (), (), ()) for at, node in enumerate(nodes)
    )
    return StagePlan("model", None, stages, (), (), (), (), ())


@pytest.fixture
def dask_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return lines that start schedulers and workers, of the docs and of errors."""
    workers: dict[str, Any] = {}

    class Client:
        def __init__(self, *_: object, **__: object) -> None: ...

        def scheduler_info(self, **_: object) -> dict[str, Any]:
            return {"workers": workers}

        def close(self, **_: object) -> None: ...

    monkeypatch.setattr(engine, "_require_answer", lambda address: address)
    monkeypatch.setattr(engine, "require", lambda *_: SimpleNamespace(Client=Client))
    with pytest.raises(engine.ClusterError) as lonely:
        engine.Cluster("10.0.0.1:8786")
    workers["tcp://10.0.0.2:1"] = {"name": "desk", "host": "10.0.0.2", "nthreads": 1}
    with pytest.raises(engine.ClusterError) as nobody:
        engine.Cluster("10.0.0.1:8786").by_node(["attic"])
    with pytest.raises(PlacekitError) as nameless:
        nodes_of(pk.Platform.of(cpu=1))
    told = [re.findall(r"dask worker [^`\n]*", str(error.value)) for error in (lonely, nobody, nameless)]
    assert [len(lines) for lines in told] == [1, 1, 1]
    pages = [line for page in (ROOT / "docs").rglob("*.md") for line in page.read_text().splitlines()]
    shown = [line.removeprefix("$ ") for line in pages if line.startswith(("dask ", "$ dask "))]
    assert shown
    return [*shown, *(line for (line,) in told)]


def test_dask_parses_what_starts_its_workers(dask_lines: list[str]) -> None:
    """By the parsers of its own commands; its workers get no other option."""
    commands = {f"dask {name}": pytest.importorskip(f"distributed.cli.dask_{name}").main
                for name in ("scheduler", "worker")}  # fmt: skip
    names = Written()
    for line in dask_lines:
        words = shlex.split(line, comments=True)
        commands[" ".join(words[:2])].make_context(words[1], words[2:])
        names.read_line(" ".join([*words[:2], *(word for word in words[2:] if word.startswith("--"))]))
    assert names.options == set(PROGRAMS["dask"]["options"])
    assert names.commands == set(PROGRAMS["dask"]["commands"])
    texts = [node.value for file in (ROOT / "placekit" / "cluster").glob("*.py")
             for node in ast.walk(ast.parse(file.read_text()))
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
    assert re.findall(r"start it with (-[\w-]+)", "\n".join(texts)) == ["--nthreads"]


def test_model_explorer_gets_the_keys_of_its_format() -> None:
    """Node data, and a graph with an edge."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    placement = pk.Placement(("a", "b"), ("cpu", "gpu"), np.array([0, 1]))
    data, names = node_data([("a", 0), ("b", 1)], placement, [0.001, 0.002]), Written()
    assert set(data["results"]) == {"a", "b"}
    names.read_keys([{**data, "results": None}, *data["results"].values(), explorer_graph(graph, placement)])
    assert names.keys == set(PROGRAMS["model-explorer"]["keys"])
