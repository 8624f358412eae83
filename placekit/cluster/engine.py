"""Connection to a running Dask cluster: the only module that knows the engine, so that another could take its place.

The engine carries functions, arguments and results between machines. What runs there, and on which cores, is decided by
those who submit it.
"""

from __future__ import annotations

import logging
import pickle
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

from placekit.io.needs import require
from placekit.model.errors import PlacekitError

if TYPE_CHECKING:
    import distributed

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")

ANSWER_S = 5.0
"""Seconds within which a scheduler has to answer: the error is told within ten."""
COME_BACK_S = 60.0
"""Seconds that a node has to start a worker again."""
_WATCH_S, _LOOK_S = 5.0, 0.1


class ClusterError(PlacekitError):
    """A cluster that does not answer, lacks a worker, or has workers with other versions."""


@dataclass(frozen=True)
class Worker:
    """A worker process of the cluster."""

    address: str  # where the engine reaches it
    name: str  # as ``dask worker --name`` has it
    host: str  # name or number of its machine in the network
    threads: int  # tasks that it takes at once


class Cluster:
    """An existing scheduler and its workers.

    Parameters
    ----------
    address
        Where the scheduler listens: ``"tcp://10.0.0.1:8786"`` or ``"10.0.0.1:8786"``.

    Raises
    ------
    ClusterError
        Nobody answers within `ANSWER_S` seconds, or there is no worker.
    """

    def __init__(self, address: str) -> None:
        _require_answer(address)
        engine = require("distributed", "--cluster")
        # what goes wrong is told by the errors here, once; the engine would print it with tracebacks, again and again
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        warnings.filterwarnings("ignore", module="distributed")
        self.address = address
        try:
            # a client that found no scheduler would wait again where it is thrown away
            quiet = type("QuietClient", (engine.Client,), {"__del__": lambda _: None})
            self._client: Any = quiet(address, timeout=ANSWER_S, set_as_default=False)
        except Exception as error:  # whatever comes from another program that listens there
            raise ClusterError(f"{address} is no Dask scheduler: {type(error).__name__}: {error}") from None
        if not self.workers():
            self.close()
            raise ClusterError(
                f"the scheduler at {address} has no workers; start some with `dask worker {address} --nthreads 1`"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, which goes on; tasks that nobody else waits for are cancelled."""
        with suppress(Exception):  # a scheduler that is gone cannot be told
            self._client.close(timeout=2)

    def workers(self) -> tuple[Worker, ...]:
        """Return the workers that are there now, by name."""
        try:
            found = self._client.scheduler_info(n_workers=-1)["workers"]
        except Exception as error:
            raise ClusterError(f"the scheduler at {self.address} stopped: {error}") from None
        made = (
            Worker(address, str(each["name"]), str(each["host"]), int(each["nthreads"]))
            for address, each in found.items()
        )
        return tuple(sorted(made, key=lambda worker: worker.name))

    def by_node(self, nodes: Iterable[str]) -> dict[str, Worker]:
        """Return the worker of every node: the one that carries its name, with ``-0`` where a command started several.

        Raises
        ------
        ClusterError
            A node without a worker.
        """
        named = {worker.name: worker for worker in self.workers()}
        found = {}
        for node in nodes:
            worker = named.get(node) or named.get(f"{node}-0")
            if worker is None:
                raise ClusterError(
                    f"no worker at {self.address} is called {node!r}; workers are {', '.join(named)}. Start one on "
                    f"that machine: dask worker {self.address} --nthreads 1 --name {node}"
                )
            found[node] = worker
        return found

    def ask(self, function: Callable[..., T], *arguments: Any, workers: Sequence[Worker] | None = None) -> dict[str, T]:
        """Run `function` once in every worker, or in some, beside what runs there; return its values by address.

        An error that it raises is raised here.
        """
        asked = None if workers is None else [worker.address for worker in workers]
        try:
            return dict(self._client.run(function, *arguments, workers=asked))
        except OSError as error:
            raise ClusterError(f"a worker of {self.address} does not answer: {error}") from None

    def require_same_versions(self, packages: Iterable[str]) -> None:
        """Refuse workers whose Python, packages or commit of placekit are not those of this process.

        Raises
        ------
        ClusterError
            The message names the worker, its host, and both versions.
        """
        versions = _teller_of_versions(("distributed", *packages))
        mine, hosts = versions(), {worker.address: f"{worker.name} on {worker.host}" for worker in self.workers()}
        for address, told in self.ask(versions).items():
            other = [f"{name} {told[name]} there, {mine[name]} here" for name in mine if told[name] != mine[name]]
            if other:
                raise ClusterError(
                    f"worker {hosts.get(address, address)} has other versions, so that its rows would not compare: "
                    f"{'; '.join(other)}"
                )

    def submit(
        self, function: Callable[..., T], *arguments: Any, worker: Worker | None = None
    ) -> distributed.Future[T]:
        """Start `function` on a worker; arguments may be futures of others, whose values go from worker to worker."""
        import distributed

        is_future = [isinstance(each, distributed.Future) for each in arguments]
        known = [None if later else each for each, later in zip(arguments, is_future, strict=True)]
        packed = pickle.dumps((function, known, is_future))
        later = [each for each in arguments if isinstance(each, distributed.Future)]
        only = None if worker is None else [worker.address]
        future: distributed.Future[T] = self._client.submit(_carrier(), packed, *later, workers=only, pure=False)
        return future

    def on_nodes(
        self, function: Callable[..., T], arguments: Mapping[str, tuple[Any, ...]], on_done: Callable[[int], None]
    ) -> dict[str, T]:
        """Run `function` at once on the worker of every node; return its values by node.

        A node whose worker leaves gets `COME_BACK_S` seconds to start one again, which then begins anew.

        Raises
        ------
        ClusterError
            A node without a worker. An error that `function` raises is raised here, and the other nodes are cancelled.
        """
        where: dict[str, Worker] = {}
        asked: dict[str, Any] = {}
        found: dict[str, T] = {}
        gone_s: dict[str, float] = {}
        try:
            while len(found) < len(arguments):
                there = {worker.address for worker in self.workers()}
                for node in arguments.keys() - found.keys():
                    if node in asked and where[node].address in there:
                        continue
                    if node in asked:
                        _LOGGER.warning("the worker of node %r left; waiting for one that comes back", node)
                        self._client.cancel([asked.pop(node)], force=True)
                        gone_s[node] = time.perf_counter()
                    try:
                        where[node] = self.by_node([node])[node]
                    except ClusterError:
                        if time.perf_counter() - gone_s.get(node, -COME_BACK_S) > COME_BACK_S:
                            raise
                        continue
                    asked[node] = self.submit(function, *arguments[node], worker=where[node])
                for node, future in list(asked.items()):
                    if future.done() and node not in found:
                        found[node] = self._outcome(future)
                        on_done(len(found))
                time.sleep(_LOOK_S)
        finally:
            self._client.cancel([*asked.values()], force=True)
        return found

    def wait(self, asked: Sequence[distributed.Future[Any]], timeout_s: float) -> None:
        """Return when futures have their values, which stay where they are; an error that one raised is raised here.

        Raises
        ------
        ClusterError
            They did not come within `timeout_s`: a worker left, or takes longer.
        """
        engine, begin = require("distributed", "--cluster"), time.perf_counter()
        while any(future.status == "pending" for future in asked):
            with suppress(TimeoutError), self._client.as_current():
                engine.wait([*asked], timeout=min(timeout_s, _WATCH_S))
            there = [worker.name for worker in self.workers()] if time.perf_counter() - begin > timeout_s else None
            if there is not None:
                raise ClusterError(f"no answer for {timeout_s:.0f} s; workers are {', '.join(there) or 'gone'}")
        for future in asked:
            if future.status != "finished":
                self._outcome(future)

    def values(self, asked: Sequence[distributed.Future[Any]], timeout_s: float) -> list[Any]:
        """Return the values of futures, as `wait` does."""
        self.wait(asked, timeout_s)
        return [self._outcome(future) for future in asked]

    def forget(self, function: Callable[..., Any], *arguments: Any, worker: Worker) -> None:
        """Call `function` on a worker, if the worker is still there, and do not wait for it."""
        engine = require("distributed", "--cluster")
        with suppress(Exception):
            engine.fire_and_forget(self.submit(function, *arguments, worker=worker))

    def executor(self) -> ClusterExecutor:
        """Return an executor that leaves the choice of workers to the engine."""
        return ClusterExecutor(self)

    def _outcome(self, future: distributed.Future[T]) -> T:
        import distributed

        try:
            value: T = future.result()
        except distributed.KilledWorker as error:
            raise RuntimeError(f"the worker process died: {error.last_worker.address}, and others before it") from None
        except distributed.client.FutureCancelledError:
            raise ClusterError(f"the scheduler at {self.address} stopped, or forgot a task") from None
        return value


class ClusterExecutor(Executor):
    """The interface of :mod:`concurrent.futures` to a cluster, which it leaves at the end.

    Tasks of a worker that dies go to others by themselves. A scheduler that stops fails all futures by `ClusterError`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.width = sum(worker.threads for worker in cluster.workers())  # tasks that the workers take at once, of late
        self._running: dict[Future[Any], distributed.Future[Any]] = {}
        self._ended = Event()
        Thread(target=self._watch, name="watch-cluster", daemon=True).start()

    def submit(self, function: Callable[..., T], /, *arguments: Any, **named: Any) -> Future[T]:
        """Run `function` on some worker."""
        assert not named  # the engine takes options of its own by name
        told: Future[T] = Future()
        asked: Any = self.cluster.submit(function, *arguments)
        self._running[told] = asked

        def done(asked: Any) -> None:
            self._running.pop(told, None)
            try:
                told.set_result(self.cluster._outcome(asked))
            except BaseException as error:
                told.set_exception(error)

        asked.add_done_callback(done)
        return told

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what still runs, unless it is to be waited for, and leave the cluster."""
        if self._ended.is_set():
            return
        self._ended.set()
        if wait and not cancel_futures:
            futures.wait([*self._running])
        with suppress(Exception):  # a scheduler that is gone has forgotten them
            self.cluster._client.cancel([*self._running.values()], force=True)
        self.before_leaving()
        self.cluster.close()

    def before_leaving(self) -> None:
        """Clean up on the workers."""

    def _watch(self) -> None:
        """Say so where no worker is left: tasks then wait for one that comes."""
        is_told = False
        while not self._ended.wait(_WATCH_S):
            with suppress(Exception):
                width = sum(worker.threads for worker in self.cluster.workers())
                if not width and not is_told:
                    _LOGGER.warning("no worker is left at %s; waiting for one that comes back", self.cluster.address)
                is_told, self.width = not width, width or self.width


def _require_answer(address: str) -> None:
    """Raise within `ANSWER_S` unless somebody listens at `address`; a scheduler that is just starting gets the time."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClusterError(f"--cluster {address}: write the address of a scheduler as HOST:PORT or tcp://HOST:PORT")
    begin = time.perf_counter()
    while True:
        left_s = ANSWER_S - (time.perf_counter() - begin)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=max(left_s, 0.1)).close()
        except OSError as error:
            if left_s < 0.2:
                raise ClusterError(f"nobody answers at {address}: {error.strerror or error}") from None
            time.sleep(0.2)
        else:
            return


def is_wanted_here() -> Callable[[], bool]:
    """Return what tells whether anybody still waits for the task that calls this, inside a worker."""
    import distributed

    worker = distributed.get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state in ("executing", "long-running")

    return is_wanted


def _carrier() -> Callable[..., Any]:
    """Return a function that travels by its code: what it calls stays packed on its way through the scheduler.

    The scheduler looks into tasks, and would need placekit where it runs.
    """

    def call(packed: bytes, *later: Any) -> Any:
        import multiprocessing
        import pickle

        multiprocessing.current_process().daemon = False  # what runs here may start processes
        function, known, is_future = pickle.loads(packed)  # noqa: S301  # of the client, which may run anything here
        come = iter(later)
        return function(*(next(come) if awaited else each for each, awaited in zip(known, is_future, strict=True)))

    return call


def _teller_of_versions(packages: tuple[str, ...]) -> Callable[[], Mapping[str, str | None]]:
    """Return a function that travels by its code, so that a worker with another placekit, or none, can tell its own."""

    def versions() -> Mapping[str, str | None]:
        import importlib.metadata
        import importlib.util
        import subprocess
        import sys
        from pathlib import Path

        told: dict[str, str | None] = {"python": ".".join(map(str, sys.version_info[:2]))}
        for package in packages:
            try:
                told[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                told[package] = None
        spec = importlib.util.find_spec("placekit")
        folder = Path(spec.origin).parent if spec and spec.origin else None
        command = ["git", "describe", "--always", "--dirty"]
        asked = folder and subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
        told["commit of placekit"] = asked.stdout.strip() or None if asked else None
        return told

    return versions
