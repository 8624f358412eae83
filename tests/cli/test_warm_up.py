"""``placekit warm-up``: what it prepares, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from placekit.kernels import groups


def test_warm_up_prepares_every_objective(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how long that took, in a line or as JSON."""
    prepared: list[str] = []
    monkeypatch.setattr("placekit.cli.commands.warm_up.prepare", lambda *names, **_: prepared.extend(names))
    done = call("warm-up", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"compile_s", "wall_s"}
    assert prepared == list(groups())
    assert {"makespan", "throughput", "offload-latency", "serial-latency", "training-plan", "learned"} <= set(prepared)
    assert call("warm-up").stdout.startswith("kernels: ")
