"""Lines for llama.cpp start the real program, and every tensor is where the plan has it, by llama.cpp's own log."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_models import Shape, write_model
from llama_plans import placekit, platform_text
from llama_programs import Loaded, free_port, needs_llama, printed_servers, rpc_servers, start_line

import placekit as pk
from placekit.io.files.platform_toml import read_platform
from placekit.language.planning.experts import hosted_ops
from placekit.language.planning.question import Wishes
from placekit.language.serving import Serving

pytestmark = [pytest.mark.slow, needs_llama]

MODELS = {
    "dense": Shape(hidden=512, ffn=1536),
    "tied": Shape(blocks=7, hidden=512, ffn=1024, is_tied=True),
    "experts": Shape(ffn=256, experts=8, experts_per_token=2),
    "predicting": Shape(blocks=6, ffn=256, experts=8, experts_per_token=2, predicting=1),
}
SHORT = ("--phase", "prefill:64", "--phase", "decode:32", "--chunk", "64")
ROOM = 6 * 2**20  # bytes of compute buffers, and a tenth that small devices keep free
TOLERANCE, TOLERANCE_MIB = 0.05, {"model": 0.1, "KV": 0.1, "compute": 32.0}
"""Share, and MiB: these models are small, and the file tells weights and cache to the byte."""


@dataclass(frozen=True)
class Case:
    """A plan: a model, the share of its weights that every device of another server may hold, and options."""

    model: str
    shares: tuple[float, ...]
    options: tuple[str, ...] = ()
    pins: tuple[str, ...] = field(default=())  # of tensors, for a plan by single ops

    @property
    def name(self) -> str:
        """Name of the test."""
        words = [self.model, "-".join(map(str, self.shares)), *self.options, *self.pins]
        return " ".join(re.sub(r"^--", "", word) for word in words)


WHOLE = 3.0
SHARES = ((WHOLE,), (0.6,), (0.5, 0.7), (0.4, 0.3, 0.5), (WHOLE, WHOLE))
CACHES = ("f32", "f16", "bf16", "int8", "int4")
SLOTS = ((1, 256), (2, 512), (4, 1000), (3, 96))  # sequences, and the context of each
EXPERT_PINS = (
    ("*exps=CPU",),
    ("*blk.[0-3].*exps=CPU",),
    ("*blk.0.*exps={1}", "*blk.2.*exps={1}"),
    ("*blk.7.*exps=CPU", "*blk.1.*exps={1}"),
)
DENSE_PINS = (("*ffn_up=CPU",), ("*blk.5.ffn_down={1}",), ("*blk.[1-2].ffn_*=CPU",))
CASES = [
    *(Case(model, shares) for model in MODELS for shares in SHARES),
    *(Case("dense", (0.5, 0.5), ("--cache-precision", name)) for name in CACHES),
    *(Case("predicting", (0.8, 0.8), ("--cache-precision", name)) for name in ("int8", "bf16")),
    *(Case("dense", (0.7, 0.6), ("--sequences", str(n), "--context", str(each))) for n, each in SLOTS),
    *(Case("experts", shares, ("--goal", "latency")) for shares in ((0.2,), (0.3,), (0.25, 0.25))),
    *(Case("dense", (share,), ("--context", each)) for share, each in ((0.8, "512"), (0.45, "2048"), (0.6, "8192"))),
    Case("dense", ()),
    Case("experts", (), ("--cache-precision", "int8")),
    *(Case("experts", (WHOLE, WHOLE), pins=pins) for pins in EXPERT_PINS),
    *(Case("dense", (WHOLE, WHOLE), pins=pins) for pins in DENSE_PINS),
]


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    """Start three servers of devices with a thread each."""
    with rpc_servers([1, 1, 1]) as found:
        yield found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the models."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write_model(folder / f"{name}.gguf", shape) for name, shape in MODELS.items()}


def planned(case: Case, model: Path, addresses: Sequence[str], folder: Path) -> tuple[str, dict[str, str], Any]:
    """Return the line of a plan, the device of every op by its name, and the answer."""
    size = model.stat().st_size
    (folder / "p.toml").write_text(platform_text([int(1.12 * share * size + ROOM) for share in case.shares], addresses))
    where = ("--platform", "p.toml", "-o", "placement.json")
    if case.pins:
        names = [f"RPC[{address}]" for address in addresses]
        count = MODELS[case.model].blocks
        homes = [f"*blk.{at}.*={names[at * len(case.shares) // count]}" for at in range(count)]
        wanted = ["token_embd=CPU", f"output*={names[len(case.shares) - 1]}", *homes]
        pins = [word for pin in (*wanted, *(pin.format(*names) for pin in case.pins)) for word in ("--pin", pin)]
        asked = ("--granularity", "op", "--contiguity", "none", "--context", "256", "--problem", "problem.json", *pins)
        answer = placekit(folder, "llm", model, *where, *SHORT, *asked, *case.options)
        told = placekit(folder, "export", "problem.json", "placement.json", "--to", "llama.cpp")
        line = shlex.join(["llama-server", "-m", str(model), *told["arguments"]])
    else:
        answer = placekit(folder, "llm", model, *where, *SHORT, "--for", "llama.cpp", *case.options)
        line = answer["launch"][-1]
    return line, json.loads((folder / "placement.json").read_text())["ops"], answer


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_line_starts_and_tensors_are_where_the_plan_has_them(
    case: Case, models: dict[str, Path], addresses: list[str], tmp_path: Path
) -> None:
    """Layers by the log, single tensors by the rules that it prints, and buffers by their size."""
    line, device_of, answer = planned(case, models[case.model], addresses, tmp_path)
    loaded = start_line(line, tmp_path)
    words = shlex.split(line)
    servers = words[words.index("--rpc") + 1].split(",") if "--rpc" in words else []
    device = {"CPU": "CPU"} | {f"RPC[{address}]": f"RPC{at}" for at, address in enumerate(servers)}
    buffer = {"CPU": "CPU"} | {f"RPC[{address}]": f"RPC0[{address}]" for address in servers}
    blocks, predicting = MODELS[case.model].blocks, MODELS[case.model].predicting
    home = [device_of[f"blk.{number}.attn"] for number in range(blocks)]
    head = next(where for op, where in device_of.items() if op.startswith("output") and "norm" not in op)
    assert [loaded.layers[number] for number in range(blocks)] == [device[each] for each in home]
    assert loaded.layers[blocks + predicting] == device[head]
    by_rule = {
        tensor.removesuffix(".weight"): where.replace("CPU_REPACK", "CPU") for tensor, where in loaded.moved.items()
    }
    for option, ending in (("--n-cpu-moe", "_exps"), ("--n-cpu-ffn", "")):
        hosted = int(words[words.index(option) + 1]) if option in words else 0
        for number, name in product(range(hosted), ("gate", "up", "down")):
            assert by_rule.pop(f"blk.{number}.ffn_{name}{ending}") == "CPU"
    assert by_rule == {
        op: buffer[where]
        for op, where in device_of.items()
        if (found := re.fullmatch(r"blk\.(\d+)\.(ffn_\w+|attn_\w+)", op))
        and where != home[int(found[1])] and not op.endswith(("_add", "attn"))
    }  # fmt: skip
    assert_buffers(loaded, answer, {name: buffer[name] for name in {*device_of.values()} if name != "CPU"})


OTHER_MACHINE = """
[[device]]
name = "CPU"
kind = "cpu-core-f32"
host = true
node = "desk"
memory = {limit}

[[device]]
name = "far"
kind = "cpu-core-bf16"
host = true
node = "{address}"
memory = "2 GiB"

[[direct_link]]
between_nodes = true
latency_s = 1e-6
bandwidth_bytes_per_s = 1e12
"""


def test_printed_lines_start_the_servers_of_other_machines(models: dict[str, Path], tmp_path: Path) -> None:
    """Each line but the last starts a server of devices at its address; the last one finds layers there."""
    model, address = models["dense"], f"127.0.0.1:{free_port()}"
    (tmp_path / "p.toml").write_text(OTHER_MACHINE.format(limit=int(0.8 * model.stat().st_size), address=address))
    answer = placekit(tmp_path, "llm", model, "--platform", "p.toml", *SHORT, "--for", "llama.cpp")
    server, last = answer["launch"]
    with printed_servers([server], [address]):
        loaded = start_line(last, tmp_path)
    assert "RPC0" in loaded.layers.values()
    assert {"-H", "-p", "-d", "-t"} <= set(server.split())


TYPED = (  # what people type, with {0} and {1} for the addresses of servers
    ("dense", "--rpc {0} -ngl 99 --n-cpu-ffn 3"),
    ("dense", "--rpc {0},{1} -ngl 5 -ts 1,2 --n-cpu-ffn 6"),
    ("tied", "--rpc {0},{1} -ngl all -ts 2,1 -ncffn 2"),
    ("experts", "--rpc {0},{1} -ngl 99 -ts 3,1 --n-cpu-moe 3"),
    ("experts", "--rpc {0} -ngl 7 -cmoe"),
    ("dense", "--rpc {0} -ngl 99 -nkvo"),
    ("dense", "--rpc {0},{1} -ngl 6 -ts 1,1 --no-kv-offload -ctk q8_0 -ctv q8_0 -fa on"),
    ("experts", "--rpc {0} -ngl 99 -nkvo -ncmoe 2"),
    ("dense", "--rpc {0} -ngl 99 -ot 'blk\\.[0-3]\\.ffn_up=CPU'"),
    ("dense", "--rpc {0},{1} -ngl 99 -ts 1,1 -ot 'blk\\.(1|2)\\.ffn_.*=RPC0[{1}],output\\.weight=CPU'"),
    ("experts", "--rpc {0} -ngl 99 -ot exps=CPU"),
    ("experts", "--rpc {0},{1} -ngl 99 -ts 1,0 -ot 'blk\\.[4-7]\\..*_exps=RPC0[{1}]'"),
    ("predicting", "--rpc {0},{1} -ngl 6 -ts 1,1 -ot '\\.ffn_(gate|up)_exps=CPU'"),
    ("dense", "--rpc {0},{1} -ngl 99 -dev RPC1,RPC0 -ts 1,2 -ot 'attn_(q|k|v)=CPU'"),
    ("tied", "--rpc {0},{1} -ngl 4"),
    ("dense", "--rpc {0} -ngl 0 -ub 128"),
)


@pytest.mark.parametrize(("name", "typed"), TYPED, ids=[f"{name} {typed}" for name, typed in TYPED])
def test_typed_lines_are_read_as_llama_cpp_loads_them(
    name: str, typed: str, models: dict[str, Path], addresses: list[str], tmp_path: Path
) -> None:
    """The reader has every layer, tensor and cache where the real program has it."""
    line = f"llama-server -m {models[name]} -c 512 -np 1 --fit off {typed.format(*addresses)}"
    (tmp_path / "p.toml").write_text(platform_text([2**32] * 2, addresses))
    wishes = Wishes(serving=Serving(64, 32))
    read = pk.read_line(line, None, read_platform(tmp_path / "p.toml"), wishes=wishes)
    loaded = start_line(line, tmp_path)
    words = shlex.split(line)
    listed = words[words.index("--rpc") + 1].split(",")
    device = {"CPU": "CPU"} | {f"RPC[{address}]": f"RPC{at}" for at, address in enumerate(listed)}
    buffer = {"CPU": "CPU"} | {f"RPC[{address}]": f"RPC0[{address}]" for address in listed}
    where = read.placement.values()
    graph, blocks = read.task.problem.graph, MODELS[name].blocks
    home = [read.placement[f"blk.{number}.attn"] for number in range(blocks)]
    assert [loaded.layers[number] for number in range(blocks)] == [device[each] for each in home]
    assert read.loads
    by_rule = {
        tensor.removesuffix(".weight"): to.replace("CPU_REPACK", "CPU") for tensor, to in loaded.moved.items()
        if int((re.findall(r"blk\.(\d+)", tensor) or ["0"])[0]) < blocks
    }  # fmt: skip
    served = read.task.problem.served
    assert served is not None
    mine = {
        op: buffer[to] for op, to in zip(graph.op_names, where, strict=True)
        if (found := re.fullmatch(r"blk\.(\d+)\.(ffn_\w+|attn_\w+)", op)) and not op.endswith(("_add", "attn"))
        and to != home[int(found[1])]
    }  # fmt: skip
    hosted = hosted_ops(read.task, served.hosted_blocks) & (graph.op_weight_bytes > 0)
    named = [graph.op_names[op] for op in np.flatnonzero(hosted)]
    mine |= {op: "CPU" for op in named if _home_of(op, home) != "CPU"}
    head = read.placement["output"] if "output" in graph.op_names else home[-1]
    mine |= {"output": buffer[head]} if head != home[-1] else {}
    assert {op: to for op, to in by_rule.items() if to != buffer.get(_home_of(op, home), "")} == mine
    cache = sum(size for (_, sort), size in loaded.buffers.items() if sort == "KV")
    of_host = loaded.buffers.get(("CPU", "KV"), 0.0)
    told = {each.device: each.cache_bytes / 2**20 for each in read.report.memory}
    assert sum(told.values()) == pytest.approx(cache, abs=0.1)
    assert told.get("CPU", 0.0) == pytest.approx(of_host, abs=0.1)
    weights = {each.device: each.weight_bytes / 2**20 for each in read.report.memory if each.device != "CPU"}
    for each, size in weights.items():
        assert size == pytest.approx(loaded.buffers[buffer[each], "model"], rel=TOLERANCE, abs=0.1)


def _home_of(tensor: str, home: Sequence[str]) -> str:
    found = re.match(r"blk\.(\d+)\.", tensor)
    return home[int(found[1])] if found else home[-1]


def assert_buffers(loaded: Loaded, answer: Any, buffer: dict[str, str]) -> None:
    """Require buffers of devices of the size that was predicted."""
    for each in answer["serving"]["memory"]:
        if each["device"] in buffer:
            sorts = (("model", "weight"), ("KV", "cache"), ("compute", "activation"))
            for sort, key in sorts:
                mine, theirs = each[f"{key}_bytes"] / 2**20, loaded.buffers.get((buffer[each["device"]], sort), 0.0)
                assert mine == pytest.approx(theirs, rel=TOLERANCE, abs=TOLERANCE_MIB[sort]), (sort, each["device"])
