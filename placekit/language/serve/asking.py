"""Requests to a server of this machine or network, over plain HTTP."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit


def ask(url: str, path: str, values: Any = None, *, within_s: float) -> tuple[int, str]:
    """Return status and text of an answer: to a GET, or to a POST of `values` as JSON.

    Raises `OSError`: nobody answers in time, or not by HTTP.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=within_s)
    try:
        body = None if values is None else json.dumps(values)
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except HTTPException as error:
        raise OSError(f"no HTTP: {error!r}") from None
    finally:
        connection.close()
