"""Options that take names: one that does not exist is an error that lists those that do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

PLATFORM = '[[device]]\nname = "GPU"\nkind = "rtx4090"\n'
LINES = {
    "solve P -m nonsense": "methods are auto, ",
    "solve P -m single:nonsense": "devices are CPU, GPU.0, GPU.1",
    "solve P --objective nonsense": "objectives are throughput, ",
    "solve P --contiguity nonsense": "one of none, convex, acyclic",
    "solve P --schedule nonsense": "1f1b",
    "solve P --objective makespan --order nonsense": "one of fifo, upward-rank",
    "solve P --teams nonsense": "equal",
    "solve P --memory nonsense=1GB": "kinds are cpu, gpu",
    "solve P --pin conv=nonsense": "devices are CPU, GPU.0, GPU.1",
    "solve P -m ilp --param nonsense=1": "parameters are: ",
    "train-plan 7b -m nonsense": "there are dp, ",
    "train-plan 7b --accelerator nonsense": "a100-80gb",
    "solve M -d nonsense": "OpenVINO offers CPU",
    "solve M --precision nonsense": "precisions are f32, bf16, f16",
    "solve M --costs nonsense": "one of 'analytic', 'profiled'",
    "profile M -d nonsense": "OpenVINO offers CPU",
    "calibrate M --executor nonsense": "executors are serial, ",
    "time M P --executor nonsense": "executors are serial, ",
    "export M P --to nonsense": "runtimes are openvino, ",
    "learn P -m nonsense": "methods are auto, ",
    "learn P -m greedy": "learned methods are hsdag, ",
    "learn P --reward nonsense": "rewards are judge, measured",
    "learn P --param nonsense=1": "parameters are: updates, ",
    "llm nonsense --platform T": "there are llama3-8b, ",
    "llm gpt2 --platform T --precision nonsense": "one of f32, bf16, ",
    "llm gpt2 --platform T --cache-precision nonsense": "one of f32, bf16, ",
    "llm gpt2 --platform T --phase nonsense:3": "prefill:TOKENS or decode:TOKENS",
    "llm gpt2 --platform T --granularity nonsense": "one of layer, op",
    "llm gpt2 --platform T --memory nonsense=1GB": "devices are GPU",
    "methods nonsense": "methods are auto, ",
    "show --schema nonsense": "formats are ",
    "show P --schedule nonsense": "there are 1f1b, gpipe, interleaved",
    "zoo nonsense": "models are resnet50, ",
    "bench nonsense": "shipped suites are ",
    "explain R --objective nonsense": "objectives are throughput, ",
    "verify R P --objective nonsense": "objectives are throughput, ",
}


def test_unknown_name_lists_the_known_ones(call: Call, diamond_file: Path, model_file: Path, tmp_path: Path) -> None:
    """Exit code 2, one line on stderr, nothing on stdout."""
    (tmp_path / "p.toml").write_text(PLATFORM)
    assert call("solve", diamond_file).returncode == 0
    places = {"P": diamond_file, "M": model_file, "T": "p.toml", "R": "diamond.result.json"}
    for line, told in LINES.items():
        done = call(*(places.get(word, word) for word in line.split()))
        assert done.returncode == 2, line
        assert done.stdout == "", line
        assert len(done.stderr.splitlines()) == 1, line
        assert told in done.stderr, f"{line}: {done.stderr}"


@pytest.mark.parametrize("kind", ["problem", "costs", "placement", "result", "workload", "training-plan"])
def test_every_schema_of_the_help_is_there(call: Call, kind: str) -> None:
    """What the help of ``--schema`` names is known."""
    assert call("show", "--schema", kind).returncode == 0


def test_empty_costs_are_no_profile(call: Call, model_file: Path) -> None:
    """An empty name, as of a shell variable that is not set, does not mean the default."""
    done = call("solve", model_file, "--costs", "")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
