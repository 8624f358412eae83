"""``placekit llm --line``: a line of one's own, and the best plan beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_the_command_reads_a_line_or_a_file(call: Callable[..., Any], tmp_path: Path) -> None:
    """It says yours, the best and the factor; JSON has both."""
    line = "llama-server -m x.gguf -ngl 17 -c 4096"
    (tmp_path / "run.sh").write_text(f"{line}\n")
    cards = ("--cards", "RTX 4090", "--ram", "64 GB DDR5-5600 x2")
    done = call("llm", "llama3-8b", "--precision", "int4", *cards, "--line", "run.sh")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("yours  it loads; prompt ")
    assert re.search(
        r"; a request in all [\d.]+ tokens/s, with the plan below [\d.]+ \([\d.]+x\)", " ".join(done.stdout.split())
    )
    told = json.loads(call("llm", "llama3-8b", "--precision", "int4", *cards, "--line", line, "--json").stdout)
    assert told["line"]["loads"] is True
    assert told["line"]["best_gain"] == pytest.approx(
        told["serving"]["tokens_per_s"] / told["line"]["serving"]["tokens_per_s"]
    )
    own = call("llm", "--precision", "int4", *cards, "--line", line.replace("x.gguf", "llama3-8b"), "--json")
    assert json.loads(own.stdout)["line"] == told["line"] | {"arguments": told["line"]["arguments"]}, own.stderr
    lost = call("llm", *cards, "--line", line)
    assert lost.returncode == 2
    assert lost.stderr.strip() == "error: x.gguf: no such file or folder"
    other = call("llm", "llama3-8b", *cards, "--for", "vllm", "--line", line)
    assert other.returncode == 2
    assert "--for vllm: the line is of llama.cpp" in other.stderr
