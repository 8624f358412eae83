"""Killed in the middle (SIGKILL), with a full disk, or two at once: files are old or new, never half, and say which."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import placekit as pk
from placekit.benchmarks.store import read_lines
from placekit.cost_models.measured.cache import ProfileCache
from placekit.io.files.placement_json import read_placement
from placekit.io.files.problem_json import read_problem
from placekit.io.files.result_json import read_result
from placekit.model.errors import InvalidFileError

COMMON = """
import sys, itertools
from pathlib import Path
import numpy as np
import placekit as pk
folder = Path(sys.argv[1])
def problem(scale=1.0, num_ops=300):
    names = [f"op{i}" for i in range(num_ops)]
    graph = pk.OpGraph.from_edges(names, list(zip(names, names[1:])))
    costs = pk.CostTable(("cpu",), np.full((num_ops, 1), scale), np.zeros((num_ops - 1, 1)), np.ones(num_ops))
    return pk.Problem(graph, pk.Platform.of(cpu=2), costs)
"""

SOLVE = """
from placekit.cli.output.files import OutputFiles
made = problem()
answers = [pk.solve(made, f"single:cpu.{device}") for device in (0, 1)]
files = OutputFiles.of(Path("x.json"), folder / "x.placement.json")
files.write(answers[0], made)
print("ready", flush=True)
for number in itertools.count():
    files.write(answers[number % 2], made)
"""

PROBLEM = """
from placekit.io.files.problem_json import write_problem
made = [problem(1.0), problem(2.0)]
write_problem(made[0], folder / "x.json")
print("ready", flush=True)
for number in itertools.count():
    write_problem(made[number % 2], folder / "x.json")
"""

PROFILE = """
from placekit.cost_models.measured.cache import ProfileCache
cache = ProfileCache(folder)
print("ready", flush=True)
for number in itertools.count():
    cache.store("entry", {"time_s": np.full(20_000, float(number))}, {"number": number})
"""

BENCH = """
from placekit.benchmarks.store import append_row
print("ready", flush=True)
for number in itertools.count():
    append_row(folder / "rows.jsonl", {"number": number, "padding": "x" * 3000})
"""

LEARN = """
from placekit.learned.hsdag.method import Hsdag
from placekit.learned.method import Session
method = Hsdag.from_params(None, {"hidden": 8, "steps": 1, "samples": 2, "patience": 0, "updates": 10**6, "swaps": 2})
checkpoint = folder / "x.pt"
heard = lambda metrics: print("ready", flush=True) if metrics.update % 3 == 1 else None
method.session = Session(checkpoint, checkpoint if checkpoint.exists() else None, None, folder, heard, 0.02)
made = problem(num_ops=12)
uneven = made.costs.replace(op_time_s=np.random.default_rng(0).random((12, 1)))  # no answer meets a bound
pk.solve(made.replace(costs=uneven, contiguity="none"), method)
"""


def check_solve(folder: Path) -> None:
    """Ask for two whole files; a pair that is torn apart is told by its hashes."""
    result, placement = read_result(folder / "x.result.json"), read_placement(folder / "x.placement.json")
    told = [json.loads((folder / f"x.{kind}.json").read_text()) for kind in ("result", "placement")]
    assert result.placement is not None
    same = dict(placement.ops) == result.placement.as_dict()
    assert same == (told[0]["placement_hash"] == told[1]["hash"])


def check_problem(folder: Path) -> None:
    """Ask for one of the two problems."""
    assert read_problem(folder / "x.json").costs.op_time_s[0, 0] in (1.0, 2.0)


def check_profile(folder: Path) -> None:
    """Ask for a whole entry: its array and its values are of one measurement."""
    stored = ProfileCache(folder).load("entry")
    if stored is not None:
        arrays, meta = stored
        assert (arrays["time_s"] == meta["number"]).all()


def check_bench(folder: Path) -> None:
    """Ask for whole lines: every process began at 0 and missed none."""
    numbers = [row["number"] for _, row in read_lines(folder / "rows.jsonl")]
    assert all(after in (before + 1, 0) for before, after in pairwise(numbers))


def check_learn(folder: Path) -> None:
    """Ask for a whole checkpoint, if there is one."""
    from placekit.learned.training.checkpoint import read_checkpoint

    if (folder / "x.pt").exists():
        assert read_checkpoint(folder / "x.pt").training is not None


KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "solve": (SOLVE, check_solve),
    "problem": (PROBLEM, check_problem),
    "profile": (PROFILE, check_profile),
    "bench": (BENCH, check_bench),
    "learn": (LEARN, check_learn),
}


def start(script: str, folder: Path, **options: object) -> subprocess.Popen[str]:
    """Start a script, and return when it has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMON + script, str(folder)], stdout=subprocess.PIPE, text=True, **options
    )  # type: ignore[call-overload]  # options of Popen
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process  # type: ignore[no-any-return]  # as above


@pytest.mark.parametrize(
    ("kind", "kills"),
    [("solve", 2), ("bench", 2), *(pytest.param(kind, 30, marks=pytest.mark.slow) for kind in KINDS)],
)
def test_killed_writers_leave_whole_files(kind: str, kills: int, tmp_path: Path) -> None:
    """Whenever the kill comes, whoever reads afterwards finds what was or what is."""
    script, check = KINDS[kind]
    for seed in range(kills):
        process = start(script, tmp_path)
        time.sleep(random.Random(seed).uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        check(tmp_path)
    if kind == "learn":
        updates = [row["update"] for _, row in read_lines(tmp_path / "metrics.jsonl")]
        # lines after the last checkpoint are cut off at the next start only
        assert updates == list(range(1, len(updates) + 1))


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    """Both write the same entry all the time; whoever reads in between finds a whole one."""
    writers = [start(PROFILE, tmp_path) for _ in range(2)]
    try:
        for _ in range(50):
            check_profile(tmp_path)
            assert ProfileCache(tmp_path).load("entry") is not None
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


FULL = """
import resource
from placekit.cli.output.files import OutputFiles
from placekit.io.files.problem_json import write_problem
from placekit.model.errors import PlacekitError
made = problem()
old, new = (pk.solve(made, f"single:cpu.{device}") for device in (0, 1))
files = OutputFiles.of(Path("x.json"), folder / "x.placement.json")
files.write(old, made)
write_problem(made, folder / "p.json", arrays="npz")
size = {name: (folder / name).stat().st_size for name in ("x.placement.json", "x.result.json", "p.npz", "p.json")}
for write, first, second in (
    (lambda: files.write(new, made), "x.placement.json", "x.result.json"),
    (lambda: write_problem(problem(2.0), folder / "p.json", arrays="npz"), "p.npz", "p.json"),
):
    assert size[first] + 100 < size[second]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size[first] + 100, -1))  # the first fits, the second does not
    try:
        write()
    except PlacekitError as error:
        print("refused", error)
"""


def test_a_full_disk_leaves_every_file_as_it_was(tmp_path: Path) -> None:
    """Also the one of a pair that would still have fitted."""
    done = subprocess.run(
        [sys.executable, "-c", COMMON + FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("refused cannot write") == 2, done.stdout + done.stderr
    assert set(read_placement(tmp_path / "x.placement.json").ops.values()) == {"cpu.0"}
    check_solve(tmp_path)
    assert read_problem(tmp_path / "p.json").costs.op_time_s[0, 0] == 1.0
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_result_with_another_placement_is_refused(tmp_path: Path) -> None:
    """Its hash is that of its placement."""
    graph = pk.OpGraph.from_edges(["a", "b"], [("a", "b")])
    costs = pk.CostTable(("cpu",), np.ones((2, 1)), np.zeros((1, 1)), np.ones(2))
    result = pk.solve(pk.Problem(graph, pk.Platform.of(cpu=2), costs), "single:cpu.0")
    document = result.to_dict()
    (tmp_path / "r.json").write_text(json.dumps(document))
    assert read_result(tmp_path / "r.json").placement == result.placement
    document["placement"]["a"] = "cpu.1"
    (tmp_path / "r.json").write_text(json.dumps(document))
    with pytest.raises(InvalidFileError, match="not the hash of its placement"):
        read_result(tmp_path / "r.json")


def test_a_read_only_or_garbage_cache_saves_nothing_and_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read is measured again, what cannot be written is not kept, and both are told."""
    cache = ProfileCache(tmp_path)
    monkeypatch.setattr(
        logging.getLogger("placekit.cost_models.measured.cache"), "disabled", False
    )  # by what others imported
    caplog.set_level(logging.WARNING, logger="placekit")
    for garbage in (b"", b"PK\x03\x04", os.urandom(3000), b"[" * 100_000):
        cache.path("entry").parent.mkdir(exist_ok=True)
        cache.path("entry").write_bytes(garbage)
        assert cache.load("entry") is None
    assert caplog.text.count("measured again") == 4
    cache.path("entry").unlink()
    os.mkfifo(cache.path("entry"))
    assert cache.load("entry") is None
    blocked = ProfileCache(Path("/proc/placekit"))
    blocked.store("entry", {"a": np.zeros(1)}, {})
    assert blocked.load("entry") is None
    assert "could not be kept" in caplog.text
