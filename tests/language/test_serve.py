"""``placekit serve``: a planned line started, measured, compared and ended; a stand-in is the program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from llama_models import Shape, write_model
from signals import interruptible

STAND_IN = f"""#!{sys.executable}
import json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
told, is_own = sys.argv, "on" in sys.argv
fault = os.environ.get("FAULT", "")
child = subprocess.Popen(["sleep", "600"])
with open(os.environ["PIDS"], "a") as file:
    file.write(f"{{os.getpid()}} {{child.pid}}\\n")
if fault == "dies" or (fault == "plan dies" and not is_own) or (fault == "own dies" and is_own):
    print("loading\\nerror: no memory left for the cache\\nbye", flush=True)
    sys.exit(3)
if fault == "hangs":
    time.sleep(600)
rate = 10.0 if is_own == (os.environ.get("FAST") == "planned") else 20.0

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def answer(self, values):
        text = json.dumps(values).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.answer({{"status": "ok"}})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if fault == "no timings":
            return self.answer({{"content": ""}})
        count, made = len(asked["prompt"]), asked["n_predict"]
        self.answer({{"timings": {{"prompt_n": count, "predicted_n": made, "prompt_per_second": 10 * rate,
                                 "predicted_per_second": rate}}}})

HTTPServer(("127.0.0.1", int(told[told.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    """Return a port that nothing listens to."""
    with closing(socket.socket()) as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


@pytest.fixture
def serve(tmp_path: Path, port: int) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start ``placekit serve`` with the stand-in on its path, in a folder with a small model."""
    write_model(tmp_path / "tiny.gguf", Shape(blocks=2, hidden=64, ffn=96))
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "llama-server").write_text(STAND_IN)
    (programs / "llama-server").chmod(0o755)
    started = []

    def run(*arguments: str, on_path: bool = True, **environment: str) -> subprocess.Popen[str]:
        path = f"{programs}:{os.environ['PATH']}" if on_path else "/usr/bin:/bin"
        words = ["tiny.gguf", "--ram", "8 GB DDR4-3200 x2", "--port", str(port), *arguments]
        process = subprocess.Popen(
            interruptible("-m", "placekit.cli.main", "serve", *words), cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PATH": path, "PIDS": str(tmp_path / "pids"), "PYTHONPATH": str(Path.cwd()),
                 "PLACEKIT_CACHE": str(tmp_path / "cache"), **environment},
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait(30)


def ended(tmp_path: Path) -> bool:
    """Return whether all servers, and what they started, are gone."""
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) > 1

    def lives(pid: int) -> bool:
        try:
            return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False

    end = time.monotonic() + 20
    while time.monotonic() < end and any(map(lives, pids)):
        time.sleep(0.1)
    return not any(map(lives, pids))


@pytest.mark.parametrize(("fast", "kept", "gain"), [("planned", "planned", 2.0), ("own", "own choice", 0.5)])
def test_the_faster_line_is_kept(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path, fast: str, kept: str, gain: float
) -> None:
    """Both are measured once; the object has the numbers, and nothing is left at the end."""
    told, errors = serve("--once", "--json", FAST=fast).communicate(timeout=120)
    found: dict[str, Any] = json.loads(told)
    assert (found["kept"], found["gain"]) == (kept, pytest.approx(gain)), errors
    assert found["planned"]["generated_tokens_per_s"] == (20.0 if fast == "planned" else 10.0)
    assert found["planned"]["prompt_tokens"] == 512
    assert ("on" in found["arguments"]) == (kept == "own choice")
    assert ended(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_that_was_started(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    """Also the children of the server; one line says so."""
    process = serve(FAST="planned")
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("Kept"):
            break
    assert "Kept the planned line: a request is 2.00x as fast as by llama.cpp's own choice" in lines[-1]
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip().splitlines()[-1]) == (130, "error: interrupted")
    assert ended(tmp_path)


@pytest.mark.parametrize(
    ("fault", "options", "told"),
    [
        ("dies", (), "the server did not start (code 3): error: no memory left for the cache"),
        ("hangs", ("--start-within", "1", "--no-own-choice"), "/health in time: it said nothing"),
        ("no timings", ("--no-own-choice",), "the answer has no timings"),
    ],
)
def test_a_start_that_fails_is_one_line(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path, fault: str, options: tuple[str, ...], told: str
) -> None:
    """With what the program said of it, and nothing is left."""
    process = serve("--once", *options, FAULT=fault)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert told in errors
    assert errors.strip().count("\n") == 0
    assert ended(tmp_path)


@pytest.mark.parametrize(("fault", "kept"), [("plan dies", "own choice"), ("own dies", "planned")])
def test_the_line_that_starts_is_kept(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path, fault: str, kept: str
) -> None:
    """Where the other one does not; the reason is told."""
    told, _ = serve("--once", "--json", FAULT=fault).communicate(timeout=120)
    found = json.loads(told)
    assert found["kept"] == kept
    assert "no memory left" in found["why_not"]
    assert ended(tmp_path)


def test_what_cannot_be_served_is_one_line(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path, port: int
) -> None:
    """A program that is not there, a port that is taken, a model without a file, an option of another command."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        cases = [
            (serve("--once"), f"port {port} of 127.0.0.1 cannot be used"),
            (serve("--once", on_path=False), "llama-server is not installed: no program of this name on PATH"),
            (serve("--line", "llama-server -ngl 1"), "--line goes with placekit llm"),
            (serve("--json"), "--json goes with --once"),
            (serve("--for", "megatron"), "megatron"),
        ]
        for process, told in cases:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 2, errors
            assert told in errors
            assert errors.strip().count("\n") == 0
    (tmp_path / "tiny.gguf").unlink()
    _, errors = serve("--once").communicate(timeout=120)
    assert "error: llama.cpp serves a .gguf file that is here; tiny.gguf is none" in errors
