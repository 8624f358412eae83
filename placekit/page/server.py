"""Server of the page: on 127.0.0.1, for pages of its own, with bounds on what is sent and on what runs at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from placekit.io.reading import parse_json
from placekit.model.errors import PlacekitError
from placekit.page.answers import Answers, GoneError
from placekit.page.questions import DroppedModels, QuestionError, asset, known
from placekit.page.solves import SUFFIXES, solving

_LOGGER = logging.getLogger(__name__)

HOST = "127.0.0.1"
MAX_QUESTION_BYTES, MAX_HEADER_BYTES, MAX_FILE_BYTES = 64 << 10, 256 << 20, 4 << 30
"""Bytes of a question, of the header of a GGUF file (with its vocabulary some 10 MB), and of the files of a solve."""
MAX_PLANS, MAX_WAITING, MAX_SOLVES, MAX_GRAPHS = 2, 16, 2, 8
"""Plans that are made, and asked for, at a time; solves of files at a time; and graphs that are kept."""
LOOK_EVERY_S = 0.1
"""Seconds between two looks at whether a page is still there."""
ASSETS = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript", "files.js": "text/javascript"}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'"
    " data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_GRAPH_POLICY = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


class RefusedError(Exception):
    """A request that is refused, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class OwnPagesOnly:
    """Refuses requests of other hosts and origins, so that no other page in the browser can ask anything."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        refused = self._refused(Request(scope)) if scope["type"] == "http" else None
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return _error(403, f"host {', '.join(hosts)!r} is refused: the page is for this machine alone")
        if not {f"http://{each}" for each in self._hosts}.issuperset(origins):
            return _error(403, f"origin {origins[0]!r} is refused: the server answers its own page only")
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return _error(403, "requests from other sites are refused")
        return None


def _error(status: int, message: str, field: str | None = None) -> Response:
    return JSONResponse({"error": " ".join(message.split())[:2000], "field": field}, status)


async def _chunks(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the body of a request, up to `most` bytes."""
    told, count = request.headers.get("content-length", "0"), 0
    if not told.isdecimal() or int(told) > most:
        raise RefusedError(413, f"the body has {told} bytes; the limit is {most}")
    async for chunk in request.stream():
        count += len(chunk)
        if count > most:
            raise RefusedError(413, f"the body has more than {most} bytes, the limit")
        yield chunk


async def _body(request: Request, most: int) -> bytes:
    return b"".join([chunk async for chunk in _chunks(request, most)])


class PageServer:
    """Requests of the page, and what they may take."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._dropped = DroppedModels(folder)
        self._answers = Answers(self._dropped)
        self._graphs: OrderedDict[str, str] = OrderedDict()
        self._plans = asyncio.Semaphore(MAX_PLANS)
        self._waiting = self._solves = 0

    def app(self, port: int) -> ASGIApp:
        """Return the application for a port."""
        posts = {"plan": self._plan, "model": self._model, "solve": self._solve}
        routes = [
            Route("/", _asset("page.html")),
            *(Route(f"/{name}", _asset(name)) for name in ASSETS),
            Route("/known", _known),
            Route("/graph/{token}", self._graph),
            *(Route(f"/{name}", _answered(answer), methods=["POST"]) for name, answer in posts.items()),
        ]
        return OwnPagesOnly(Starlette(routes=routes), port)

    async def _plan(self, request: Request) -> Response:
        asked = parse_json(await _body(request, MAX_QUESTION_BYTES), "the question")
        return await self._computed(request, lambda gone: self._answers.answer(asked, gone))

    async def _model(self, request: Request) -> Response:
        name, content = request.query_params.get("name", ""), await _body(request, MAX_HEADER_BYTES)
        return await self._computed(request, lambda _: {"model": self._dropped.add(name[:200], content)})

    async def _computed(self, request: Request, work: Callable[[threading.Event], dict[str, Any]]) -> Response:
        """Compute in a thread, a few at a time; what nobody waits for any more is ended."""
        if self._waiting >= MAX_WAITING:
            raise RefusedError(503, f"{self._waiting} questions wait already: ask again later")
        self._waiting += 1
        gone = threading.Event()
        try:
            async with self._plans:
                thread = asyncio.ensure_future(asyncio.to_thread(work, gone))
                while not (await asyncio.wait({thread}, timeout=LOOK_EVERY_S))[0]:
                    if await request.is_disconnected():
                        gone.set()
                return JSONResponse(await thread)
        finally:
            gone.set()
            self._waiting -= 1

    async def _solve(self, request: Request) -> Response:
        asked = parse_json(request.query_params.get("question", ""), "the question")
        if self._solves >= MAX_SOLVES:
            raise RefusedError(503, f"{self._solves} solves run already: end one of them, or wait")
        self._solves += 1
        scratch = tempfile.TemporaryDirectory(dir=self._folder)
        try:
            await _store(request, Path(scratch.name), asked)
        except BaseException:
            self._solves -= 1
            scratch.cleanup()
            raise

        async def lines() -> AsyncIterator[bytes]:
            try:
                async with solving(Path(scratch.name), asked) as told:
                    async for line in told:
                        yield (json.dumps(self._with_graph(line)) + "\n").encode()
            finally:
                self._solves -= 1
                scratch.cleanup()

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    def _with_graph(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return a line with the address of its graph in the place of the graph."""
        if "graph" not in line:
            return line
        token = secrets.token_urlsafe(16)
        self._graphs[token] = line["graph"]
        while len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)
        return line | {"graph": f"graph/{token}"}

    async def _graph(self, request: Request) -> Response:
        page = self._graphs.get(request.path_params["token"])
        if page is None:
            return _error(404, "this graph is no longer kept: solve again")
        return Response(page, media_type="text/html", headers={"content-security-policy": _GRAPH_POLICY})


def _answered(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that tells errors in one line, with the field that caused them."""

    async def handler(request: Request) -> Response:
        try:
            return await answer(request)
        except PlacekitError as error:
            return _error(400, str(error), getattr(error, "field", None))
        except RefusedError as error:
            return _error(error.status, str(error))
        except GoneError:
            return _error(499, "the page is gone")
        except Exception as error:
            _LOGGER.exception("%s", request.url.path)
            return _error(500, f"this is a bug of placekit: {type(error).__name__}: {error}")

    return handler


def _asset(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def handler(_: Request) -> Response:
        return Response(asset(name), media_type=ASSETS[name], headers=_HEADERS)

    return handler


async def _known(_: Request) -> Response:
    return JSONResponse(known())


async def _store(request: Request, folder: Path, asked: Any) -> None:
    """Write the body into a folder: one file after the other, as long as was asked, under names of the server's."""
    files: Any = asked.get("files") if isinstance(asked, dict) else None
    if not isinstance(files, list) or not 1 <= len(files) <= 2 or not all(map(_is_file, files)):
        files = []
    if not files or (len(files) == 2 and {suffix for suffix, _ in files} != {".xml", ".bin"}):
        raise QuestionError("file", f"give a file that ends in one of {', '.join(SUFFIXES)}, an .xml with its .bin")
    chunks, rest = _chunks(request, MAX_FILE_BYTES), b""
    for suffix, size in files:
        left = size
        with (folder / f"model{suffix}").open("wb") as file:
            while left:
                rest = rest or await anext(chunks, b"")
                if not rest:
                    raise QuestionError("file", f"the {suffix} is cut off: {left} of {size} bytes lack")
                count = file.write(rest[:left])
                left, rest = left - count, rest[count:]


def _is_file(told: Any) -> bool:
    is_pair = isinstance(told, list) and len(told) == 2
    return is_pair and told[0] in SUFFIXES and type(told[1]) is int and 0 <= told[1] <= MAX_FILE_BYTES
