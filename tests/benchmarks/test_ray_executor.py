"""Ray behind the Executor interface, with a stand-in for Ray that has the calls that the adapter makes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from placekit.benchmarks.ray_executor import RayExecutor
from placekit.benchmarks.workers import make_executor
from placekit.model.errors import SolverUnavailableError


class FakeRay(types.ModuleType):
    """A module with Ray's functions, over threads."""

    def __init__(self, is_initialized: bool) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.calls: list[str] = []
        self._is_initialized = is_initialized
        self._pool = ThreadPoolExecutor(2)

    def is_initialized(self) -> bool:
        """Whether somebody has connected already."""
        return self._is_initialized

    def init(self, **options: Any) -> None:
        """Connect."""
        self.calls.append(f"init {sorted(options)}")

    def shutdown(self) -> None:
        """Disconnect."""
        self.calls.append("shutdown")

    def remote(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Return Ray's decorator."""
        self.calls.append(f"remote {sorted(options)}")

        def decorate(fn: Callable[..., Any]) -> Any:
            def submit(*args: Any, **kwargs: Any) -> Any:
                future = self._pool.submit(fn, *args, **kwargs)
                return types.SimpleNamespace(future=lambda: future)

            return types.SimpleNamespace(remote=submit)

        return decorate

    def wait(self, references: list[Any], *, num_returns: int) -> None:
        """Wait for tasks."""
        self.calls.append("wait")
        for reference in references[:num_returns]:
            reference.future().result()

    def cancel(self, reference: Any, *, force: bool) -> None:
        """Cancel a task."""
        self.calls.append(f"cancel {force}")
        reference.future().cancel()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Return a Ray to which nobody is connected."""
    fake = FakeRay(is_initialized=False)
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


def test_tasks_give_futures_with_results_and_errors(ray: FakeRay) -> None:
    """What a task returns or raises comes out of its future."""
    with make_executor("ray", 2) as executor:
        futures: list[Future[int]] = [executor.submit(divmod_first, 7, by) for by in (2, 0)]
        assert futures[0].result() == 3
        with pytest.raises(ZeroDivisionError):
            futures[1].result()
    assert ray.calls[0].startswith("init ")
    assert "remote ['max_retries', 'num_cpus']" in ray.calls
    assert ray.calls[-1] == "shutdown"


def test_a_cluster_of_the_callers_is_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is connected already stays connected."""
    fake = FakeRay(is_initialized=True)
    monkeypatch.setitem(sys.modules, "ray", fake)
    RayExecutor().shutdown()
    assert fake.calls == []


def test_without_ray_the_error_gives_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is named with its extra."""
    monkeypatch.setattr("placekit.benchmarks.ray_executor.find_spec", {}.get)
    with pytest.raises(SolverUnavailableError, match=r"pip install 'placekit\[cluster\]'"):
        RayExecutor()


def divmod_first(number: int, by: int) -> int:
    """Return the quotient."""
    return number // by
