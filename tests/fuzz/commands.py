"""``python -m tests.fuzz.commands --minutes 10 --seed 0``: broken files through whole commands.

A command that reads a broken file ends within `MOST_S` seconds and `MOST_BYTES`, with an exit code that it knows, with
one line that says what is wrong, and shows nothing that a terminal or a browser obeys. Commands run one after another
in forked processes. Every finding names a seed and a number that make it again; the exit status is 1 if there is any.
OpenVINO, onnx and torch must be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import runpy
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter, sleep
from typing import IO, NoReturn

import psutil

from placekit.model.errors import PlacekitError

from .files import KINDS, make_files, mend_digest
from .mutations import broken

MOST_S = 10.0
HANG = 20
"""Wall time that a command may take beside other processes, in times of its limit."""
MOST_BYTES = 4e9
CODES = {0, 2, 3, 4, 5}
"""What the help of the command line promises."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Parameters
    ----------
    code
        Its exit code; minus the signal that ended it.
    printed, errors
        What it wrote to stdout and stderr.
    took_s, peak_bytes
        The smaller of wall and CPU time, wall time if it was killed; and the most memory that it held.
    """

    code: int
    printed: str
    errors: str
    took_s: float
    peak_bytes: float


def run_apart(work: Callable[[], None], folder: Path, most_s: float = MOST_S) -> Ended:
    """Do `work` in a forked process in `folder`, killed after `most_s` seconds of wall and of CPU time, or a hang."""
    begin = perf_counter()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            _work(work, folder, printed.fileno(), errors.fileno())
        while True:
            ended, status, usage = os.wait4(child, os.WNOHANG)
            took_s = perf_counter() - begin
            if ended:
                break
            if took_s > most_s and (took_s > HANG * most_s or sum(psutil.Process(child).cpu_times()[:2]) > most_s):
                os.kill(child, signal.SIGKILL)
                os.wait4(child, 0)
                return Ended(-signal.SIGKILL, _text_of(printed), _text_of(errors), took_s, 0.0)
            sleep(0.01)
        took_s, code = min(took_s, usage.ru_utime + usage.ru_stime), os.waitstatus_to_exitcode(status)
        return Ended(code, _text_of(printed), _text_of(errors), took_s, 1024.0 * usage.ru_maxrss)


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="backslashreplace")


def _work(work: Callable[[], None], folder: Path, printed: int, errors: int) -> NoReturn:
    """Be the child: never return."""
    code = 70
    try:
        os.dup2(printed, 1)
        os.dup2(errors, 2)
        os.chdir(folder)
        resource.setrlimit(resource.RLIMIT_AS, (int(8 * MOST_BYTES), int(8 * MOST_BYTES)))
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _placekit(arguments: tuple[str, ...]) -> None:
    if arguments[0] == "load":
        from placekit import runtime
        from placekit.io.visible import visible

        try:
            runtime.load(arguments[1]).close()
        except PlacekitError as error:
            print(f"error: {' '.join(visible(str(error)).split())}", file=sys.stderr)
            raise SystemExit(2) from None
        return
    sys.argv = ["placekit", *arguments]
    runpy.run_module("placekit", run_name="__main__")


def wrong(ended: Ended, folder: Path) -> str | None:
    """Return what is wrong with the end of a command in `folder`; None if nothing is."""
    if ended.took_s > MOST_S:
        return f"took {ended.took_s:.1f} s"
    if ended.peak_bytes > MOST_BYTES:
        return f"took {ended.peak_bytes / 1e9:.1f} GB"
    if "Traceback" in ended.errors:
        return f"traceback: {ended.errors.strip().splitlines()[-1][:200]}"
    if ended.code not in CODES:
        return f"exit code {ended.code}: {ended.errors[-200:]!r}"
    said = [line for line in ended.errors.splitlines() if line.startswith(("error: ", "Error: "))]
    if ended.code == 2 and len(said) != 1:
        return f"exit code 2 with {len(said)} errors: {ended.errors[-300:]!r}"
    obeyed = [c for c in ended.printed + ended.errors if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160]
    if obeyed:
        return f"a terminal obeys {obeyed[0]!r}"
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".md", ".svg") and "<script>fuzz" in path.read_text(errors="replace"):
            return f"{path.name} has raw HTML"
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run until the minutes are over, or `--cases` files of each kind are through."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.commands", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, about (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all files (default: 0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first file of each kind (default: 0)")
    parser.add_argument("--cases", type=int, default=None, help="files of each kind at most")
    parser.add_argument("--kind", choices=KINDS, action="append", help="this kind only; repeatable")
    options = parser.parse_args(arguments)
    ends_s = perf_counter() + 60 * options.minutes
    kinds = options.kind or list(KINDS)
    for package in ("onnx", "openvino", "torch"):  # once, not in every process
        import_module(package)
    done: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    slowest: dict[str, float] = {}
    num_findings, case = 0, options.first
    last = None if options.cases is None else options.first + options.cases
    with tempfile.TemporaryDirectory() as scratch:
        valid = Path(scratch, "valid")
        valid.mkdir()
        os.environ["PLACEKIT_CACHE"] = str(Path(scratch, "cache"))
        _make_valid(valid, kinds)
        while perf_counter() < ends_s and (last is None or case < last):
            for name in kinds:
                ended, found = _one(name, options.seed, case, valid, Path(scratch, "case"))
                done[name] += 1
                refused[name] += ended.code == 2
                slowest[name] = max(slowest.get(name, 0.0), ended.took_s)
                if found is not None:
                    num_findings += 1
                    print(f"{name}, seed {options.seed}, file {case}: {found}", flush=True)
                if perf_counter() >= ends_s:
                    break
            case += 1
    for name in kinds:
        print(f"{name:<10} {done[name]:>5} files, {refused[name]:>5} refused, {slowest.get(name, 0.0):5.1f} s at most")
    print(f"seed {options.seed}: {sum(done.values())} files, {num_findings} findings")
    return 1 if num_findings else 0


def _make_valid(folder: Path, kinds: list[str]) -> None:
    """Write the valid files, and see that every use of them ends well."""
    make_files(folder, partial(_well, folder))
    for name in kinds:
        for use in KINDS[name].uses:
            copy = folder.with_name("copy")
            shutil.copytree(folder, copy)
            _well(copy, use)
            shutil.rmtree(copy)


def _well(folder: Path, arguments: tuple[str, ...]) -> None:
    """Run a command on valid files, which has to end well."""
    ended = run_apart(partial(_placekit, arguments), folder, 300.0)
    if ended.code:
        raise PlacekitError(f"placekit {' '.join(arguments)}: {ended.errors}")


def _one(name: str, seed: int, case: int, valid: Path, folder: Path) -> tuple[Ended, str | None]:
    """Break one file, run one command on it, and return how it ended and what is wrong with that."""
    rng = random.Random(f"{name} {seed} {case}")  # nothing secret
    kind = KINDS[name]
    file, use = rng.choice(kind.files), rng.choice(kind.uses)
    shutil.copytree(valid, folder)
    path = folder / file
    path.write_bytes(broken(file, path.read_bytes(), rng))
    if file.endswith(".npz"):
        sibling = path.with_suffix(".json")
        document = json.loads(sibling.read_text())
        mend_digest(document, path.read_bytes())
        sibling.write_text(json.dumps(document))
    try:
        ended = run_apart(partial(_placekit, use), folder)
        found = wrong(ended, folder)
    finally:
        shutil.rmtree(folder)
    return ended, None if found is None else f"{file}, placekit {' '.join(use)}: {found}"


if __name__ == "__main__":
    sys.exit(main())
