"""Programs of llama.cpp as `make llama` builds them: servers of devices, and runs whose log is read."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("LLAMA_CPP", ROOT / ".llama.cpp")) / "build" / "bin"
needs_llama = pytest.mark.skipif(
    not (FOLDER / "llama-server").is_file(), reason=f"llama.cpp is not built in {FOLDER}: make llama"
)
BOUND = ("setpriv", "--pdeathsig", "KILL")
"""Before a program that ends with this process, however that ends: servers of devices spin."""
SPINS = {"GOMP_SPINCOUNT": "10000"}
"""For servers of devices that share a core: the threads of one spin for 5 ms after a step, while another computes."""
LOADED = "listening on http://"


def free_port() -> int:
    """Return a port of this machine that nothing listens to."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _end(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@contextmanager
def rpc_servers(threads: Sequence[int]) -> Iterator[list[str]]:
    """Start a server of devices for every number of threads, pinned to cores in turn, and yield their addresses."""
    cores = sorted(os.sched_getaffinity(0))
    started, addresses = [], []
    try:
        for at, count in enumerate(threads):
            pinned = ",".join(str(cores[(at + each) % len(cores)]) for each in range(count))
            port = free_port()
            words = [
                *BOUND,
                "taskset",
                "-c",
                pinned,
                str(FOLDER / "ggml-rpc-server"),
                "-H",
                "127.0.0.1",
                "-p",
                str(port),
            ]
            started.append(
                subprocess.Popen(
                    [*words, "-t", str(count)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    start_new_session=True, env={**os.environ, **SPINS},
                )
            )  # fmt: skip
            addresses.append(f"127.0.0.1:{port}")
        for address in addresses:
            _wait_for(address)
        yield addresses
    finally:
        for process in started:
            _end(process)


@contextmanager
def printed_servers(lines: Sequence[str], addresses: Sequence[str]) -> Iterator[None]:
    """Start lines of servers of devices as they are printed, and wait until all addresses answer."""
    started: list[subprocess.Popen[Any]] = []
    try:
        for line in lines:
            program, *arguments = shlex.split(line, comments=True)
            started.append(subprocess.Popen([*BOUND, str(FOLDER / program), *arguments], start_new_session=True))
        for address in addresses:
            _wait_for(address)
        yield
    finally:
        for process in started:
            _end(process)


def _wait_for(address: str) -> None:
    host, _, port = address.partition(":")
    for _ in range(200):
        with suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no server at {address}")


@dataclass(frozen=True)
class Loaded:
    """Places of layers and tensors, and sizes of buffers, by llama.cpp's own log."""

    layers: dict[int, str]  # device by number; the output is the last
    moved: dict[str, str]  # buffer by tensor that a rule moves
    buffers: dict[tuple[str, str], float]  # MiB by buffer and sort: model, KV, compute, output
    text: str

    @classmethod
    def of(cls, text: str) -> Loaded:
        """Read a log."""
        layers = re.findall(r"load_tensors: layer +(\d+) assigned to device (\S+),", text)
        moved = re.findall(r"tensor (\S+) \(.*\) buffer type overridden to (\S+)", text)
        sizes = re.findall(r": +(\S+) +(model|KV|compute|output) +buffer size += +([\d.]+) MiB", text)
        buffers: dict[tuple[str, str], float] = {}
        for name, sort, size in sizes:
            buffers[name, sort] = buffers.get((name, sort), 0.0) + float(size)
        return cls({int(number): name for number, name in layers}, dict(moved), buffers, text)


def start_line(line: str, folder: Path, seconds: float = 120) -> Loaded:
    """Start a line of llama-server as it is printed, wait until it serves, end it, and return what it logged.

    Raises `AssertionError` if the program ends by itself.
    """
    program, *arguments = shlex.split(line)
    assert program == "llama-server"
    log = folder / "server.log"
    words = [
        *BOUND,
        str(FOLDER / program),
        *arguments,
        "--host",
        "127.0.0.1",
        "--port",
        str(free_port()),
        "-v",
        "--no-warmup",
    ]
    with log.open("w") as file:
        process = subprocess.Popen(words, cwd=folder, stdout=file, stderr=file, start_new_session=True)
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end and LOADED not in (text := log.read_text(errors="replace")):
                assert process.poll() is None, f"{line}\n{text[-2000:]}"
                time.sleep(0.1)
        finally:
            _end(process)
    text = log.read_text(errors="replace")
    assert LOADED in text, f"not serving after {seconds} s: {line}\n{text[-2000:]}"
    return Loaded.of(text)


def run(program: str, *arguments: str, seconds: float = 300) -> str:
    """Run a program of llama.cpp to its end, and return what it prints."""
    process = subprocess.Popen(
        [*BOUND, str(FOLDER / program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        told, log = process.communicate(timeout=seconds)
    finally:
        _end(process)
    assert process.returncode == 0, f"{program} {' '.join(arguments)}\n{log[-2000:]}"
    return told


def bench(model: Path, *arguments: str, prompt: int = 0, generated: int = 0, seconds: float = 300) -> list[Any]:
    """Return the tests of llama-bench."""
    lengths = ["-p", str(prompt), "-n", str(generated)]
    return list(json.loads(run("llama-bench", "-m", str(model), *lengths, "-o", "json", *arguments, seconds=seconds)))
