"""Ray behind the Executor interface, so that the runner needs not know about it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

from placekit.model.errors import SolverUnavailableError

P = ParamSpec("P")
T = TypeVar("T")


class RayExecutor(Executor):
    """Tasks on a Ray cluster.

    Connects to the cluster that ``RAY_ADDRESS`` names; without it a local one is started, and stopped at `shutdown`.
    placekit must be installed on every host. A worker that dies is an error of its own task only, so the executor
    never breaks.

    Parameters
    ----------
    cpus_per_task
        CPUs that Ray reserves for a task.

    Raises
    ------
    SolverUnavailableError
        Ray is not installed.
    """

    def __init__(self, cpus_per_task: float = 1) -> None:
        if find_spec("ray") is None:
            raise SolverUnavailableError("executor 'ray' needs the package 'ray': pip install 'placekit[cluster]'")
        import ray

        self._ray: Any = ray
        self._cpus_per_task = cpus_per_task
        self._is_mine = not ray.is_initialized()
        self._references: dict[Future[Any], Any] = {}
        if self._is_mine:
            ray.init(log_to_driver=False, include_dashboard=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start ``fn(*args, **kwargs)`` somewhere on the cluster; Ray does not repeat it if it fails."""
        task = self._ray.remote(num_cpus=self._cpus_per_task, max_retries=0)(_call)  # Ray refuses built-in functions
        reference = task.remote(fn, *args, **kwargs)
        future: Future[T] = reference.future()
        self._references[future] = reference
        future.add_done_callback(lambda done: self._references.pop(done, None))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the tasks, or cancel them; then stop the cluster if this executor started it."""
        pending = list(self._references.values())
        if cancel_futures:
            for reference in pending:
                self._ray.cancel(reference, force=True)
        elif wait and pending:
            self._ray.wait(pending, num_returns=len(pending))
        if self._is_mine:
            self._ray.shutdown()


def _call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)
