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
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from llama_models import Shape, write_model
from names_written import PROGRAMS
from pipelines import wait_until
from signals import interruptible

import placekit as pk
from placekit.language.runtimes import RUNTIMES
from placekit.language.runtimes.record import Launch
from placekit.language.serve import speeds
from placekit.language.serve.compare import launch_of, require_server
from placekit.language.serve.process import GRACE_S, end, require_lenders, started
from placekit.language.serve.speeds import RequestSpeeds, measure
from placekit.model.errors import DeviceUnavailableError, InvalidProblemError
from placekit.model.platform import Device
from placekit.model.served import Served

TESTS = Path(__file__).parents[1]
TABLE = TESTS / "exports" / "names_of_programs.toml"


def put_stand_in(folder: Path, name: str) -> dict[str, str]:
    """Make a script that is called like a server and stands in for it; return the environment that it takes."""
    folder.mkdir()
    (folder / name).write_text(f"#!{sys.executable}\n{(TESTS / 'stand_in_server.py').read_text()}")
    (folder / name).chmod(0o755)
    files = {variable: str(folder / variable.lower()) for variable in ("PIDS", "SENT")}
    return {"PATH": f"{folder}:{os.environ['PATH']}", "NAMES_OF_PROGRAMS": str(TABLE), **files}


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
    stand_in = put_stand_in(tmp_path / "programs", "llama-server")
    started = []

    def run(*arguments: str, on_path: bool = True, **environment: str) -> subprocess.Popen[str]:
        without = {} if on_path else {"PATH": "/usr/bin:/bin"}
        words = ["tiny.gguf", "--ram", "8 GB DDR4-3200 x2", "--port", str(port), *arguments]
        process = subprocess.Popen(
            interruptible("-m", "placekit.cli.main", "serve", *words), cwd=tmp_path, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **stand_in, **without, "PYTHONPATH": str(Path.cwd()),
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
    pids = [int(pid) for pid in (tmp_path / "programs" / "pids").read_text().split()]
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


def test_a_child_that_nobody_reaps_delays_no_end() -> None:
    """In a container the first process may leave it as it is for ever; it has ended all the same."""
    server = subprocess.Popen(["sleep", "600"], process_group=0)
    child = subprocess.Popen(["true"], process_group=server.pid)
    try:
        assert wait_until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
        begun = time.monotonic()
        end(server)
        assert time.monotonic() - begun < GRACE_S / 2
        assert server.returncode == -signal.SIGTERM
    finally:
        server.kill()
        child.wait()


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
            (serve("--cards", "RTX 4090", "--for", "megatron"), "megatron is no server that a line starts"),
        ]
        for process, told in cases:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 2, errors
            assert told in errors
            assert errors.strip().count("\n") == 0
    (tmp_path / "tiny.gguf").unlink()
    _, errors = serve("--once").communicate(timeout=120)
    assert "error: llama.cpp serves a .gguf file that is here; tiny.gguf is none" in errors


def test_servers_are_served_and_trainers_are_not() -> None:
    """A trainer takes cards, and torchrun would get --host; a library has no line."""
    able = {"vllm", "sglang", "tensorrt-llm", "llama.cpp"}
    for name, record in RUNTIMES.items():
        if name in able:
            require_server(record)
        else:
            with pytest.raises(InvalidProblemError, match=f"^{name} is no server that a line starts$"):
                require_server(record)


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
def test_a_plan_of_several_machines_is_not_served(runtime: str) -> None:
    """Only the first machine would be started, and wait for the others."""
    cards = tuple(Device(f"{node}.gpu", "t4", node=node) for node in ("attic", "desk"))
    platform = pk.Platform(cards, direct_links=(pk.DirectLink(3e-5, 2.8e9, between_nodes=True),))
    answer = pk.plan_serving("llama3-8b", platform, runtime)
    with pytest.raises(InvalidProblemError, match=r"a plan of one machine is served, this one is of (attic|desk), "):
        launch_of(answer)


def test_machines_that_lend_devices_are_asked_first(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their servers are no child of ours: the user is told which line to start, and where."""
    monkeypatch.setenv("PATH", put_stand_in(tmp_path / "programs", "llama-server")["PATH"])
    far = Device("far", "t4", node=f"127.0.0.1:{port}")
    platform = pk.Platform(
        (Device("cpu", "cpu", is_host=True, node="here"), far),
        direct_links=(pk.DirectLink(3e-5, 2.8e9, between_nodes=True),),
    )
    launch = launch_of(pk.plan_serving("llama3-8b", platform, "llama.cpp"))
    told = rf"^nothing answers at 127\.0\.0\.1:{port} .*; start there first: ggml-rpc-server -H 127\.0\.0\.1 -p {port} "
    with pytest.raises(DeviceUnavailableError, match=told):
        require_lenders(launch)
    with pytest.raises(DeviceUnavailableError, match=told), started(launch, "m.gguf", "127.0.0.1", port, 1.0):
        pass
    with closing(socket.socket()) as lender:
        lender.bind(("127.0.0.1", port))
        lender.listen()
        require_lenders(launch)


@pytest.mark.parametrize(
    ("runtime", "program"),
    [("vllm", "vllm"), ("sglang", "python"), ("tensorrt-llm", "trtllm-serve"), ("llama.cpp", "llama-server")],
)
def test_a_server_gets_options_and_requests_of_its_table(
    runtime: str, program: str, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways; the clock says the speeds of those that do not, and no cache has the beginning of a prompt."""
    for name, value in put_stand_in(tmp_path / "programs", program).items():
        monkeypatch.setenv(name, value)
    clock = iter([0.0, 1.0, 1.0, 3.0, 10.0, 12.0, 20.0, 25.5])
    monkeypatch.setattr(speeds, "time", SimpleNamespace(perf_counter=clock.__next__))
    record = RUNTIMES[runtime]
    config = {"pp_partition": [2]} if record.settings else {}
    launch = Launch(record, {}, tuple(record.planned(Served(context=64, sequences=2))), config=config)
    with started(launch, "m.gguf", "127.0.0.1", port, 60.0) as server:
        found = measure(server.url, 64, 8, model="m.gguf", tells_timings=record.takes_gguf)
    sent = [json.loads(line) for line in (tmp_path / "programs" / "sent").read_text().splitlines()]
    keys = {path: sorted(body) for path, body in sent}
    assert keys == {path: sorted(told) for path, told in PROGRAMS[runtime]["requests"].items()}
    asked = [body for _, body in sent if body]
    limits = [(len(body["prompt"]), body.get("max_tokens", body.get("n_predict"))) for body in asked]
    assert all(body["ignore_eos"] is True for body in asked)  # else a model may end its text early
    if record.takes_gguf:
        assert limits == [(16, 4), (64, 8)]
        assert [body["cache_prompt"] for body in asked] == [False] * 2
        assert found == RequestSpeeds(64, 8, 100.0, 10.0)
    else:
        assert limits == [(16, 1), (16, 4), (64, 1), (64, 8)]
        assert {(body["model"], body["stream"], body["temperature"]) for body in asked} == {("m.gguf", False, 0)}
        assert len({body["prompt"][0] for body in asked}) == 4
        assert found == RequestSpeeds(64, 7, 64 / 2.0, 7 / 3.5)
