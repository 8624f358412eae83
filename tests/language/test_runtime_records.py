"""One record per runtime: it lacks nothing, others may add theirs, and problem files say what is served."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from names_written import PROGRAMS

import placekit as pk
from placekit.language.runtimes import OWN, RUNTIMES, get_runtime, register_runtime
from placekit.language.runtimes.launch import launch_lines
from placekit.language.runtimes.record import Launch, Placed, Runtime
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.served import Served

NAMES = ("embed", "layers.0.mlp", "layers.1.mlp", "head")


def problem_of(served: Served | None = None) -> pk.Problem:
    """Return a chain of two blocks on two cards."""
    graph = pk.OpGraph.from_edges(NAMES, list(pairwise(NAMES))).replace(op_flops=[1.0] * 4)
    costs = pk.CostTable(("gpu",), np.ones((4, 1)), np.zeros((3, 1)), np.ones(4))
    return pk.Problem(graph, pk.Platform.of(gpu=2), costs, served=served)


def write_counts(runtime: Runtime, placed: Placed) -> Launch:
    """Return the number of ops of every device."""
    counts = np.bincount(placed.placement.device_of_op, minlength=2).tolist()
    return Launch(runtime, arguments=(runtime.options["ops"], ",".join(map(str, counts))))


MINE: dict[str, Any] = {
    "name": "mine", "host": "none", "headroom": 0.05, "chunk": 64, "goal": "latency", "kernels": "general",
    "version": "1.0", "pages": ("README.md",), "program": "mine run {model}", "options": {"ops": "--ops"},
    "write": write_counts, "read": None, "not_searched": (),
}  # fmt: skip


def test_a_registered_runtime_prints_its_line() -> None:
    """By its name, as those of placekit; the name is taken then."""
    register_runtime(Runtime(**MINE))
    try:
        problem = problem_of()
        placement = pk.Placement.of(problem, np.array([0, 0, 0, 1]))
        assert launch_lines("mine", "m", problem, placement) == ("mine run m --ops 3,1",)
        with pytest.raises(InvalidProblemError, match="cannot register runtime 'mine': the name is taken"):
            register_runtime(Runtime(**MINE))
    finally:
        RUNTIMES.unregister("mine")
    with pytest.raises(UnknownNameError, match="no runtime 'mine'; it is one of vllm"):
        get_runtime("mine")


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("host", "last-but-one", "host is 'last-but-one'; it is one of none, first, last, any"),
        ("goal", "context", "goal is 'context'; it is one of latency, throughput"),
        ("kernels", "mine", "kernels is 'mine'; it is one of general"),
        ("headroom", 1.0, "headroom is 1.0; it is from 0.0 to 0.99"),
        ("chunk", 0, "chunk is 0; it is from 1"),
        ("version", "", "version is ''; it is that of the runtime whose documents"),
        ("pages", (), r"pages is \(\); these documents are named"),
        ("program", "mine", "program is 'mine'; it has {model} where the model stands"),
        ("options", {}, "options is {}; it has the name of every option"),
        ("write", "mine:write", "write is 'mine:write'; it is a function"),
        ("not_searched", ("",), r"not_searched is \(''"),
    ],
)
def test_a_record_that_lacks_a_part_is_refused(part: str, value: object, said: str) -> None:
    """Where it is made, by name; what is not given at all is Python's error."""
    with pytest.raises(InvalidProblemError, match=f"runtime 'mine': {said}"):
        Runtime(**{**MINE, part: value})
    with pytest.raises(TypeError, match=part):
        Runtime(**{name: each for name, each in MINE.items() if name != part})


def test_what_is_no_record_is_refused() -> None:
    """A function, for example."""
    with pytest.raises(InvalidProblemError, match="and no Runtime"):
        register_runtime(write_counts)  # type: ignore[arg-type]  # what the error is about


@pytest.mark.parametrize("record", OWN, ids=lambda record: record.name)
def test_records_name_what_their_tables_of_names_do(record: Runtime) -> None:
    """Options and versions of programs stand in the table that tests keep, too: a slip of the pen is in one of both."""
    told = PROGRAMS.get(record.name, {})
    if record.exports == "arguments":
        assert set(record.options.values()) <= set(told["options"])
        assert record.version == told["version"]
        assert list(record.pages) == told["pages"]


def test_records_have_the_numbers_of_their_programs() -> None:
    """Tokens of a chunk, and of a step from which on cards compute for hosts; degrees where an option has them."""
    assert {record.name: (record.chunk, record.offload_tokens) for record in OWN if record.chunk is not None} == {
        "vllm": (2048, None),
        "sglang": (2048, None),
        "tensorrt-llm": (8192, None),
        "llama.cpp": (512, 32),
        "openvino": (256, None),
        "placekit": (2048, None),
    }
    assert all(record.is_parallel == ("degree" in record.options) for record in OWN)


def test_a_model_for_llama_cpp_is_a_gguf() -> None:
    """A file that is one stays; any other name gets the ending, be there a point in it or not."""
    for model, file in (("a/m.gguf", "a/m.gguf"), ("org/m-1.5b", "m-1.5b.gguf"), ("org/m-1.q8", "m-1.q8.gguf")):
        assert Launch(RUNTIMES["llama.cpp"]).line(model) == f"llama-server -m {file}"


def test_problem_files_say_what_is_served(tmp_path: Path) -> None:
    """All fields come back, and files of 0.5 have them in the provenance of the costs."""
    served = Served(
        "vllm",
        4096,
        8,
        4,
        512,
        "int8",
        0.1,
        1,
        2,
        3,
        hosts_dense=True,
        hosts_cache=True,
        tied=True,
        cards=("gpu.0", "gpu.1"),
        nodes=("n0", "n1"),
    )
    assert {each.name for each in fields(served) if getattr(served, each.name) == each.default} == set()
    problem, path = problem_of(served), tmp_path / "p.json"
    pk.write_problem(problem, path)
    assert pk.read_problem(path) == problem
    assert problem.content_hash == problem_of().content_hash
    document = json.loads(path.read_text())
    old = {**document.pop("served"), "of another version": 1}
    document["costs"]["provenance"]["serving"] = old
    path.write_text(json.dumps(document))
    assert pk.read_problem(path).served == served
    document["served"] = {"sequences": "many"}
    path.write_text(json.dumps(document))
    with pytest.raises(pk.PlacekitError, match=r"served.sequences is 'many'"):
        pk.read_problem(path)
    assert replace(served, chunk=None).to_dict().keys() == served.to_dict().keys() - {"chunk"}
