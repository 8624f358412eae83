"""``placekit page``: the page in a browser of this machine, or as a folder with answers."""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.console import print_json, print_line
from placekit.cli.options import JsonOption
from placekit.cli.parameters import option
from placekit.io.needs import require
from placekit.model.errors import InvalidProblemError

PORT = 8421
"""Default port; addresses of questions stay valid as long as it does."""


def page(
    questions: Annotated[
        Path | None, typer.Argument(help="With --static: a JSON list of questions.", show_default=False)
    ] = None,
    *,
    port: int | None = option(
        None, f"Port on 127.0.0.1 (default {PORT}, or a free one if it is taken).", "N", min=0, max=65535
    ),
    no_open: bool = option(False, "Do not open the page in a browser."),
    static: Path | None = option(None, "Write a copy with the answers to QUESTIONS, for a web site.", "FOLDER"),
    as_json: JsonOption = False,
) -> None:
    """Plan language models and solve models on a page in the browser.

    The page answers this machine only, and needs no network.
    """
    if (static is None) != (questions is None):
        raise InvalidProblemError("--static FOLDER and a file of QUESTIONS go together; give both or none")
    if static is not None and questions is not None:
        from placekit.page.static import write_static

        written = write_static(questions, static)
        if as_json:
            print_json({"files": {"page": str(static / "index.html")}, "questions": written})
        else:
            print_line(f"wrote {static / 'index.html'} with {written} answers")
        return
    require("starlette", "placekit page")
    require("uvicorn", "placekit page")
    _serve(port, opens=not no_open, as_json=as_json)


def _serve(port: int | None, *, opens: bool, as_json: bool) -> None:
    """Answer requests until Ctrl-C."""
    import uvicorn

    from placekit.page.server import HOST, PageServer

    listening = _listening(HOST, port)
    number = listening.getsockname()[1]
    address = f"http://{HOST}:{number}/"
    with tempfile.TemporaryDirectory(prefix="placekit-page-") as folder, listening:
        app = PageServer(Path(folder)).app(number)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, limit_concurrency=64,
            timeout_graceful_shutdown=1, lifespan="off", ws="none",
        )  # fmt: skip
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # also then the folder is removed
        if as_json:
            print_json({"address": address})
        else:
            print_line(f"{address}  (Ctrl-C ends it)")
        threading.Thread(target=_warm_up, name="warm up", daemon=True).start()
        if opens:
            threading.Timer(0.2, webbrowser.open, [address]).start()
        uvicorn.Server(config).run(sockets=[listening])


def _listening(host: str, port: int | None) -> socket.socket:
    """Return a socket on a port, or on a free one if none was asked for and the default is taken."""
    try:
        return socket.create_server((host, PORT if port is None else port))
    except OSError as error:
        if port is not None:
            raise InvalidProblemError(f"--port {port}: {error.strerror}; give another one, or none") from None
        return socket.create_server((host, 0))


def _warm_up() -> None:
    """Plan a small model once, so that the first question does not wait for imports."""
    from placekit.language.planning.planner import plan_serving
    from placekit.page.questions import Question

    question = Question(model="gpt2", cards="RTX 4090, RTX 3090", runtime="llama.cpp")
    plan_serving(question.model, question.platform, question.runtime, wishes=question.wishes)
