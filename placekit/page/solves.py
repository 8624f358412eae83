"""Solves of dropped files, each in a process of its own that ends with its page or its server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

SUFFIXES = (".onnx", ".xml", ".bin", ".pt2", ".json", ".graphml", ".txt")
"""Suffixes of files that can be dropped."""
BEAT_S = 0.5
"""Seconds without news after which a line is sent all the same: writing it shows whether the page is there."""
MAX_LINE_BYTES = 64 << 20


@asynccontextmanager
async def solving(folder: Path, asked: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """Start a solve of the files in a folder, and yield its lines; end its process at the end of the block."""
    suffix = next((each for each, _ in asked["files"] if each != ".bin"), ".bin")
    name = re.sub(r"[^\w.+-]", "-", str(asked.get("name", "")))[:100] or f"model{suffix}"
    told = {key: asked.get(key) for key in ("cards", "ram", "processor", "link", "objective", "method", "seconds")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "placekit.page.solve_file",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        limit=MAX_LINE_BYTES, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        process.stdin.write(
            (json.dumps({**told, "file": str(folder / f"model{suffix}"), "name": name}) + "\n").encode()
        )
        yield _lines(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    """Yield what a process tells up to its answer or its error; an empty line where it tells nothing for a while."""
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.readline())
    try:
        while True:
            done, _ = await asyncio.wait({reading}, timeout=BEAT_S)
            if not done:
                yield {}
                continue
            line = reading.result()
            if not line:
                yield {
                    "error": f"the solve ended with status {await process.wait()}: too little memory?",
                    "field": "file",
                }
                return
            told: dict[str, Any] = json.loads(line)
            yield told
            if "error" in told or "text" in told:
                return
            reading = asyncio.ensure_future(process.stdout.readline())
    finally:
        reading.cancel()
