"""A server of the page in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from page_server import Served


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve the page for the tests of this process."""
    pytest.importorskip("starlette")
    uvicorn = pytest.importorskip("uvicorn")
    from placekit.page.server import PageServer

    folder = tmp_path_factory.mktemp("page")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        app = PageServer(folder).app(port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield Served(port, folder)
        server.should_exit = True
        thread.join(10)
