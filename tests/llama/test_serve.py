"""``placekit serve`` with the real llama-server: both lines start, are measured by its own timings, and end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from llama_models import Shape, write_model
from llama_programs import FOLDER, free_port, needs_llama

pytestmark = [pytest.mark.slow, needs_llama]


def test_the_real_program_is_measured_both_ways(tmp_path: Path) -> None:
    """On the processor: the faster request is kept, and llama-server counted the tokens that were asked for."""
    write_model(tmp_path / "tiny.gguf", Shape(blocks=4, hidden=256, ffn=512))
    words = ["tiny.gguf", "--ram", "8 GB DDR4-3200 x2", "--phase", "prefill:64", "--phase", "decode:16", "--once"]
    done = subprocess.run(
        [sys.executable, "-m", "placekit.cli.main", "serve", *words, "--port", str(free_port()), "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False,
        env={**os.environ, "PATH": f"{FOLDER}:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for which in ("planned", "own_choice"):
        assert (told[which]["prompt_tokens"], told[which]["generated_tokens"]) == (64, 16)
        assert told[which]["generated_tokens_per_s"] > 0
    assert told["kept"] == ("planned" if told["gain"] >= 1 else "own choice")
