"""Speeds of a server, measured once over HTTP: prompt tokens and generated tokens per second."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from placekit.language.serve.asking import ask
from placekit.model.errors import ExecutionError

_LIMIT_S = 3600.0
_WARM_UP = (16, 4)
"""Tokens of the request before the one that is measured."""
_ORDERS = count()
"""Orders of tokens that no request had yet."""


@dataclass(frozen=True)
class RequestSpeeds:
    """Speeds of one request."""

    prompt_tokens: int
    generated_tokens: int
    prompt_tokens_per_s: float
    generated_tokens_per_s: float

    @property
    def request_s(self) -> float:
        """Seconds of the whole request."""
        return self.prompt_tokens / self.prompt_tokens_per_s + self.generated_tokens / self.generated_tokens_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"request_s": self.request_s}


def measure(url: str, prompt: int, generated: int, *, model: str, tells_timings: bool) -> RequestSpeeds:
    """Return the speeds of one request of so many tokens, after a short one.

    A server that `tells_timings` (llama-server) says both speeds itself; of others the first token and the rest are
    timed by two requests. Raises `ExecutionError`: an answer that is none.
    """
    ask = _by_timings if tells_timings else _by_clock
    ask(url, model, *_WARM_UP)
    return ask(url, model, max(prompt, 2), max(generated, 2))


def _by_timings(url: str, _: str, prompt: int, generated: int) -> RequestSpeeds:
    told = _post(
        url,
        "/completion",
        {"prompt": _tokens(prompt), "n_predict": generated, "ignore_eos": True, "cache_prompt": False, "seed": 0},
    )
    try:
        timings = told["timings"]
        counts = int(timings["prompt_n"]), int(timings["predicted_n"])
        return RequestSpeeds(*counts, float(timings["prompt_per_second"]), float(timings["predicted_per_second"]))
    except (KeyError, TypeError, ValueError):
        raise ExecutionError(f"{url}/completion: the answer has no timings: {str(told)[:200]}") from None


def _by_clock(url: str, model: str, prompt: int, generated: int) -> RequestSpeeds:
    seconds = []
    for made in (1, generated):
        tokens = _tokens(prompt, shift=next(_ORDERS))
        begun = time.perf_counter()
        _post(
            url, "/v1/completions",
            {"model": model, "prompt": tokens, "max_tokens": made, "ignore_eos": True, "temperature": 0,
             "stream": False},
        )  # fmt: skip
        seconds.append(time.perf_counter() - begun)
    first_s, whole_s = seconds
    return RequestSpeeds(prompt, generated - 1, prompt / first_s, (generated - 1) / max(whole_s - first_s, 1e-9))


def _tokens(number: int, shift: int = 0) -> list[int]:
    """Return tokens that every vocabulary has; with another shift the first one differs, so that no cache helps."""
    return [100 + (at * 37 + shift * 11) % 150 for at in range(number)]


def _post(url: str, path: str, values: Any) -> Any:
    try:
        status, text = ask(url, path, values, within_s=_LIMIT_S)
        if status == 200:
            return json.loads(text)
    except (OSError, ValueError) as error:
        raise ExecutionError(f"{url}{path}: {error}") from None
    raise ExecutionError(f"{url}{path}: {status}: {text[:200]}")
