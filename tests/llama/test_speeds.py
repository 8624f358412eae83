"""Predicted speed against that of the real program, and plans against llama.cpp's own: on a quiet machine only.

Devices are servers on this machine, pinned to cores; each was measured alone by llama-bench. Timings beside other work
mean nothing: the module prints the load.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median

import pytest
from llama_models import Shape, write_model
from llama_plans import placekit, platform_text
from llama_programs import BOUND, bench, needs_llama, rpc_servers, run

import placekit as pk
from placekit.io.files.platform_toml import read_platform
from placekit.language.planning.given import Split, given_report
from placekit.language.planning.measured import with_measured
from placekit.language.read import read_description
from placekit.language.runtimes.llama.rpc import as_one_machine
from placekit.language.runtimes.llama.server_steps import with_server_steps
from placekit.language.serving import Serving
from placekit.language.task import decoder_task

pytestmark = [pytest.mark.slow, needs_llama]

MODELS = {
    "deep": Shape(blocks=16, hidden=2048, ffn=5632, vocab=4096, heads=16, kv_heads=8),
    "wide": Shape(blocks=8, hidden=3072, ffn=8192, vocab=4096, heads=24, kv_heads=8),
}
"""Large models: waking a second server takes a millisecond per token on two cores, which is little beside them."""
GENERATED, TIMES, ROUNDS = 1, 16, 10
"""Tokens of a run, runs in a row, and rounds over all that is compared; the best run of each counts.

What a split takes at best is the sum of what its servers take at best only if both are undisturbed at once: others on
the machine leave enough moments of one token, and hardly any longer one.
"""
PROMPT_TIMES = 5
"""Runs of a prompt, which take longer; no speed of theirs is compared."""
LEAST_DIFFERENCE = 0.05
"""Difference of two measured splits from which on their order counts."""
ALIKE = 0.01
"""Difference of two predictions up to which they say nothing about the order; both are within 10 % all the same."""


@dataclass
class Rig:
    """Two servers, what llama-bench measured of each and of the host, and the models."""

    threads: tuple[int, int]
    addresses: list[str]
    models: dict[str, Path]
    folder: Path

    def samples(self, model: str, *arguments: str) -> list[float]:
        """Return generated tokens per second of a few short runs."""
        rpc = ("--rpc", ",".join(self.addresses), "-r", str(TIMES), "-t", "1")
        return list(map(float, bench(self.models[model], *rpc, *arguments, generated=GENERATED)[0]["samples_ts"]))

    def measured(self, model: str) -> dict[str, Path]:
        """Return the file of llama-bench for each device and the host, measured once."""
        found = {}
        for name, words in {
            "CPU": ("-dev", "none", "-ngl", "0"),
            **{f"RPC[{address}]": ("-dev", f"RPC{at}", "-ngl", "99") for at, address in enumerate(self.addresses)},
        }.items():
            path = self.folder / f"{model}-{self.threads}-{name}.json"
            if not path.is_file():
                rpc = ("--rpc", ",".join(self.addresses), "-t", "1", *words)
                rows = bench(self.models[model], *rpc, "-r", str(PROMPT_TIMES), prompt=64)
                rows += bench(self.models[model], *rpc, "-r", str(TIMES * ROUNDS), generated=GENERATED)
                for row in rows:
                    row["avg_ts"] = max(row["samples_ts"])
                path.write_text(json.dumps(rows))
            found[name] = path
        return found


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the models: about 440 MB each."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write_model(folder / f"{name}.gguf", shape) for name, shape in MODELS.items()}


@pytest.fixture(scope="module", params=[(1, 2), (2, 1), (1, 1)], ids=str)
def rig(
    request: pytest.FixtureRequest, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """Start two servers with so many threads."""
    with rpc_servers(request.param) as addresses:
        yield Rig(request.param, addresses, models, tmp_path_factory.mktemp("rig"))


def best_speeds(rig: Rig, model: str, words_of: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the tokens per second of the best run with some options, by name."""
    best = dict.fromkeys(words_of, 0.0)
    for _ in range(ROUNDS):
        best = {name: max(speed, *rig.samples(model, *words_of[name])) for name, speed in best.items()}
    return best


ECHO = """
import socket
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    peer, _ = listening.accept()
    while told := peer.recv(64):
        peer.sendall(told)
"""


def latency_s() -> float:
    """Return half of the time from one core to another and back, of a peer that sleeps meanwhile: the median."""
    home = os.sched_getaffinity(0)
    here, there = min(home), max(home)
    words = [*BOUND, "taskset", "-c", str(there), sys.executable, "-c", ECHO]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        os.sched_setaffinity(0, {here})
        try:
            with socket.create_connection(("127.0.0.1", int(peer.stdout.readline()))) as line:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return median(_there_and_back_s(line) for _ in range(200)) / 2
        finally:
            os.sched_setaffinity(0, home)


def _there_and_back_s(line: socket.socket) -> float:
    time.sleep(0.005)  # as long as a server computes
    begin = time.perf_counter()
    line.sendall(b"x")
    line.recv(64)
    return time.perf_counter() - begin


def with_speed(path: Path, tokens_per_s: float, target: Path) -> Path:
    """Write a file of llama-bench with another speed of generation."""
    rows = json.loads(path.read_text())
    for row in rows:
        if row["n_gen"]:
            row["avg_ts"] = tokens_per_s
    target.write_text(json.dumps(rows))
    return target


@pytest.mark.parametrize("model", MODELS)
def test_predicted_splits(rig: Rig, model: str, tmp_path: Path) -> None:
    """Generation within 10 % of what is measured, and the ranking right, by speeds of the servers alone."""
    blocks = MODELS[model].blocks
    first_blocks = [blocks * at // 6 for at in range(1, 6)]
    alone = [f"RPC[{address}]" for address in rig.addresses]
    words: dict[str, Sequence[str]] = {name: ("-dev", f"RPC{at}", "-ngl", "99") for at, name in enumerate(alone)}
    for first in first_blocks:
        words[str(first)] = ("-dev", "RPC0/RPC1", "-ngl", "99", "-ts", f"{first}/{blocks - first + 1}")
    measured = best_speeds(rig, model, words)
    paths = rig.measured(model)
    paths |= {name: with_speed(paths[name], measured[name], tmp_path / f"{name}.json") for name in alone}
    (tmp_path / "p.toml").write_text(platform_text([2**40] * 2, rig.addresses, latency_s=latency_s()))
    machine = as_one_machine(read_platform(tmp_path / "p.toml"))
    described = read_description(str(rig.models[model]))
    files = [f"{name}={path}" for name, path in paths.items()]
    costs = with_measured(pk.Analytic.from_platform_file(machine), machine, files, described).costs
    task = decoder_task(described, Serving(0, GENERATED), machine, partial(costs.cost_table, platform=machine))
    task = with_server_steps(task)
    found: list[tuple[int, float, float]] = []
    for first in first_blocks:
        per_token = given_report(task, Split(0, (first, blocks - first))).time_per_token_s
        assert per_token is not None
        found.append((first, 1 / per_token, measured[str(first)]))
    told = "; ".join(f"{first} blocks: {mine:.1f} predicted, {speed:.1f}" for first, mine, speed in found)
    print(f"\n{model} on {rig.threads} threads, load {os.getloadavg()[0]:.1f}: {told}")  # noqa: T201  # the figures
    assert all(mine == pytest.approx(speed, rel=0.10) for _, mine, speed in found), told
    for (_, mine, speed), (_, other, beside) in combinations(found, 2):
        if abs(speed / beside - 1) > LEAST_DIFFERENCE and abs(mine / other - 1) > ALIKE:
            assert (mine > other) == (speed > beside), told


def bench_words(arguments: Sequence[str]) -> list[str]:
    """Return options of llama-server as llama-bench spells them; without what it has not, such as the context."""
    value = dict(pairwise(arguments))
    words = ["-ngl", value.get("--n-gpu-layers", value.get("-ngl", "99")).replace("-1", "99")]
    split = value.get("--tensor-split", value.get("-ts"))
    words += ["-ts", split.replace(",", "/")] if split else []
    words += ["-dev", value["--device"].replace(",", "/")] if "--device" in value else []
    rules = value.get("--override-tensor", value.get("-ot"))
    return [*words, "-ot", rules.replace(",", ";")] if rules else words


LIMITS = [None, (0.75, 0.75), (0.55, 0.8)]
RATIOS: list[tuple[bool, float]] = []


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("model", ["deep"])
def test_fit_is_not_faster(rig: Rig, model: str, limits: tuple[float, float] | None, tmp_path: Path) -> None:
    """Ours is never below 0.97 of the line that llama-fit-params gives for the same devices and free memory."""
    size, mib = rig.models[model].stat().st_size, 2**20
    servers = ("--rpc", ",".join(rig.addresses))
    free = [
        int(each) for each in re.findall(r"RPC\d: .*, (\d+) MiB free", run("llama-bench", *servers, "--list-devices"))
    ]
    held = [int(share * size) + 24 * mib for share in limits] if limits else [each * mib for each in free]
    targets = ",".join(str(each - limit // mib) for each, limit in zip(free, held, strict=True)) if limits else "1024"
    wanted = ("-m", str(rig.models[model]), "-c", "512", "-ub", "64", "--fit-target", targets)
    theirs = shlex.split(run("llama-fit-params", *servers, "--device", "RPC0,RPC1", *wanted))
    (tmp_path / "p.toml").write_text(platform_text(held, rig.addresses))
    files = [word for name, path in rig.measured(model).items() for word in ("--measured", f"{name}={path}")]
    asked = ("--phase", f"decode:{GENERATED}", "--context", "512", "--chunk", "64", "--for", "llama.cpp", *files)
    answer = placekit(tmp_path, "llm", rig.models[model], "--platform", "p.toml", "--memory-headroom", "0%", *asked)
    ours = shlex.split(answer["launch"][-1])
    order = ours[ours.index("--rpc") + 1].split(",") if "--rpc" in ours else []
    names = {f"RPC{at}": f"RPC{rig.addresses.index(address)}" for at, address in enumerate(order)}
    words = [",".join(names.get(part, part) for part in word.split(",")) for word in bench_words(ours)]
    words = ["/".join(names.get(part, part) for part in word.split("/")) for word in words]
    fit = [*bench_words(theirs), "-dev", "RPC0/RPC1"]
    mine, real = best_speeds(rig, model, {"ours": words, "theirs": fit}).values()
    RATIOS.append((len(set(rig.threads)) > 1, mine / real))
    print(  # noqa: T201  # the table
        f"\n{rig.threads} threads, limits {limits}, load {os.getloadavg()[0]:.1f}: ours {' '.join(words)}: {mine:.1f} "
        f"tokens/s; theirs {' '.join(theirs)}: {real:.1f}; {mine / real:.2f}x"
    )
    assert mine >= 0.97 * real


def test_unequal_devices_gain() -> None:
    """The median over unequal devices is at least 1.15."""
    gains = [gain for is_unequal, gain in RATIOS if is_unequal]
    if not gains:
        pytest.skip("the cases were not run")
    assert median(gains) >= 1.15, gains
