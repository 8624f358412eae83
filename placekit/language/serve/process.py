"""A server as a group of processes of its own: its start, its health, and its end."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from placekit.language.runtimes.record import Launch
from placekit.language.serve.asking import ask
from placekit.model.errors import DeviceUnavailableError, ExecutionError

GRACE_S = 10.0
"""Time that a server gets to end by itself."""
LENDER_S = 5.0
"""Time that a server of another machine gets to accept a connection."""
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    process: subprocess.Popen[Any]
    url: str
    log: Path
    started_s: float  # seconds until it answered

    def wait(self) -> None:
        """Wait until the server ends; raises `ExecutionError` then, since nobody asked it to."""
        code = self.process.wait()
        raise ExecutionError(f"the server ended with code {code}: {last_line(self.log)}")


def require_program(launch: Launch, model: str) -> list[str]:
    """Return the words that start a server, the first of them the path of its program.

    Raises `DeviceUnavailableError`: the program is not installed.
    """
    words = shlex.split(launch.line(model))
    while words and re.match(r"[A-Z][A-Z0-9_]*=", words[0]):
        words.pop(0)
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise DeviceUnavailableError(
            f"{words[0] if words else launch.runtime.name} is not installed: no program of this name on PATH"
        )
    return [found, *words[1:]]


def require_free(host: str, port: int) -> None:
    """Raise `DeviceUnavailableError` if something listens to a port."""
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind((host, port))
        except OSError as error:
            raise DeviceUnavailableError(f"port {port} of {host} cannot be used: {error.strerror or error}") from None


def require_lenders(launch: Launch) -> None:
    """Raise `DeviceUnavailableError` if a server that lends the devices of another machine does not answer."""
    given = launch.values.get(launch.runtime.options.get("servers", ""), "")
    for address, line in zip(filter(None, given.split(",")), launch.elsewhere, strict=True):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), LENDER_S).close()
        except OSError as error:
            raise DeviceUnavailableError(
                f"nothing answers at {address} ({error.strerror or error}); start there first: {line}"
            ) from None


@contextmanager
def started(launch: Launch, model: str, host: str, port: int, within_s: float) -> Iterator[Server]:
    """Start a server, yield it when it answers, and end it with all that it started.

    Raises
    ------
    DeviceUnavailableError
        Its program is not installed, the port is taken, or another machine does not lend its devices.
    ExecutionError
        It ends by itself, or does not answer within `within_s` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="placekit-serve-") as folder:
        if launch.settings:
            settings = Path(folder) / launch.file
            settings.write_text(launch.settings + "\n", encoding="utf-8")
            launch = replace(launch, file=str(settings))
        words = [*require_program(launch, model), "--host", host, "--port", str(port)]
        require_free(host, port)
        require_lenders(launch)
        log, begun = Path(folder) / "server.log", time.monotonic()
        with log.open("wb") as file:
            process = _start(words, launch.environment, file)
            try:
                url = f"http://{host}:{port}"
                _wait_for(process, url, log, begun + within_s)
                yield Server(process, url, log, time.monotonic() - begun)
            finally:
                end(process)


def _start(words: Sequence[str], environment: Mapping[str, str], log: Any) -> subprocess.Popen[Any]:
    try:
        return subprocess.Popen(  # noqa: S603  # the program of the runtime, found on PATH
            list(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment},
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ExecutionError(f"{words[0]} cannot be started: {error.strerror or error}") from None


def _wait_for(process: subprocess.Popen[Any], url: str, log: Path, until: float) -> None:
    while time.monotonic() < until:
        code = process.poll()
        if code is not None:
            raise ExecutionError(f"the server did not start (code {code}): {last_line(log)}")
        with suppress(OSError):
            if ask(url, "/health", within_s=5.0)[0] == 200:
                return
        time.sleep(_PAUSE_S)
    raise ExecutionError(f"the server does not answer at {url}/health in time: {last_line(log)}")


def last_line(log: Path) -> str:
    """Return the last line of a log that tells of an error, or the last one."""
    with suppress(OSError):
        lines = [
            line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
        ]
        wrong = [line for line in lines if re.search(r"error|failed|unable|cannot|no module", line, re.IGNORECASE)]
        if lines:
            return (wrong or lines)[-1][:300]
    return "it said nothing"


def end(process: subprocess.Popen[Any]) -> None:
    """End a server and all processes of its group: asked first, then killed."""
    for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        until = time.monotonic() + patience_s
        while time.monotonic() < until and _has_members(process):
            time.sleep(_PAUSE_S / 2)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)


def _has_members(process: subprocess.Popen[Any]) -> bool:
    """Return whether some process of the group of a server runs; the server itself is reaped.

    Children that it left are reaped by the first process of the machine or container, which may take its time.
    """
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return any(_is_running_member(each, process.pid) for each in psutil.process_iter())


def _is_running_member(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.Error):  # it has ended, or is another user's
        return False
