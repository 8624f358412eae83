"""Requests to a server of the page."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CARDS = {"model": "gpt2", "cards": "RTX 4090, RTX 3090", "runtime": "llama.cpp"}
"""A question that is answered at once."""


@dataclass(frozen=True)
class Served:
    """A running server."""

    port: int
    folder: Path

    def ask(
        self, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, http.client.HTTPResponse]:
        """Return status, JSON value or text, and the response; a body makes it a POST."""
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        asked.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        got = asked.getresponse()
        content = got.read()
        is_json = got.headers.get_content_type() == "application/json"
        asked.close()
        return got.status, json.loads(content) if is_json else content.decode(), got

    def plan(self, **question: Any) -> tuple[int, Any]:
        """Return status and answer of a question."""
        return self.ask("/plan", json.dumps(CARDS | question))[:2]
