"""A pipeline of processes: one per device, bound to the device's cores, handing over tensors in shared memory."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.openvino.compiled_plan import require_devices
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.pipeline import Pipeline
from placekit.cost_models.openvino.pipeline_flow import FlowPlan
from placekit.cost_models.openvino.pipeline_memory import (
    SharedMemory,
    TensorSpec,
    lay_out,
    make_baton,
    make_inbox,
    read_messages,
    send_message,
)
from placekit.cost_models.openvino.pipeline_stage import check_cores
from placekit.cost_models.openvino.pipeline_worker import SentStage, WorkerTask
from placekit.cost_models.openvino.split import TensorKey
from placekit.cost_models.openvino.stage_file import openvino_view, specs_of, write_stages
from placekit.model.errors import DeviceUnavailableError, ExecutionError

__all__ = ["ProcessPipeline"]

# bound before anything is imported, so that every thread of the process is born on the device's cores; OpenVINO's
# telemetry forks a process to call home, which would outlive the worker and keep its descriptors
_PROGRAM = """
import os, sys
if sys.argv[1] and hasattr(os, "sched_setaffinity"): os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
sys.modules["openvino_telemetry"] = None
from placekit.cost_models.openvino.pipeline_worker import main
main()
"""
_EXIT_WAIT_S = 10.0


class ProcessPipeline(Pipeline):
    """A pipeline of processes, where isolation is wanted: nothing in common but tensors. Shapes must be fixed.

    A worker that ends, for whatever reason, is noticed at once: the pipeline fails with an error that names the device,
    the process, the signal and the stage that it was running, and ends the other workers, those of its team, too.
    Workers end with their parent, however that ends, and what they share has no name that could be left behind.

    Parameters
    ----------
    plan
        The stages.
    queue_size
        Samples that fit between a stage and the next.
    record
        Number of last samples whose stage times are kept.

    Raises
    ------
    DeviceUnavailableError
        A device that this machine does not have, cores that this process may not use, or no POSIX system.
    UnsupportedProblemError
        A tensor of dynamic shape.
    ExecutionError
        A stage that cannot be compiled, or a worker that did not start.
    PlacekitError
        As `Pipeline`.

    Notes
    -----
    Workers are new interpreters, no forks: runtimes with threads of their own do not survive a fork.
    """

    def __init__(self, plan: FlowPlan, *, queue_size: int = 2, record: int = 0) -> None:
        super().__init__(plan, queue_size=queue_size, record=record)
        if os.name != "posix":
            raise DeviceUnavailableError("pipelines of processes need a POSIX system; use threads here")
        check_cores(plan.devices)
        self._check_devices()
        self._layout = lay_out(len(plan.devices), self._num_times, self._wiring, self._specs())
        self._memory_fd = SharedMemory.create(self._layout)
        self._open = {self._memory_fd}  # descriptors to close at the end
        self._memory = SharedMemory(self._memory_fd, self._layout)
        self._times_s, self._members = self._memory.times_s, self._memory.members
        self._rings = {key: self._memory.ring(key, self._view) for key in (*plan.input_keys, *plan.output_keys)}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._reports: list[Connection] = []
        self._inboxes: list[tuple[int, int]] = []
        self._lifelines: list[int] = []
        self._collector = threading.Thread(target=self._collect, name=f"placekit-{plan.name}-out", daemon=True)
        try:
            with tempfile.TemporaryDirectory(prefix="placekit-") as folder:
                self._start_workers(self._sent_stages(plan, Path(folder)))
                self._await_ready()
        except BaseException:
            self._end()
            raise
        self._start()
        self._collector.start()

    def _takers(self) -> Collection[int]:
        return self._source_owner, self._sink_owner

    def _check_devices(self) -> None:
        """Raise unless all devices are here."""
        require_devices(self.plan.devices, shared_core())

    def _specs(self) -> Mapping[TensorKey, TensorSpec]:
        """Return what every tensor is."""
        return specs_of(self._ports)

    def _view(self, data: NDArray[np.uint8], spec: TensorSpec) -> Any:
        """Return the framework's tensor over the bytes of a slot."""
        return openvino_view(data, spec)

    def _sent_stages(self, plan: Any, folder: Path) -> Sequence[SentStage]:
        """Return the stages as they are sent to workers; `folder` is there until all are open."""
        return write_stages(plan, folder)

    def _start_workers(self, stages: Sequence[SentStage]) -> None:
        count = len(self.plan.devices)
        for _ in range(count + 1):
            self._inboxes.append(make_inbox(self._wiring))
            self._open.update(self._inboxes[-1])
        batons = [make_baton() if len(team) > 1 else None for team in self.plan.teams]
        self._open.update(end for baton in batons for end in baton or ())
        for worker, device in enumerate(self.plan.devices):
            owner = self._team_of_worker[worker]
            report, report_end = os.pipe()
            lifeline_end, lifeline = os.pipe()
            self._open |= {report_end, lifeline_end, lifeline}
            self._reports.append(Connection(report, writable=False))
            self._lifelines.append(lifeline)
            inboxes = [reader if each == worker else writer for each, (reader, writer) in enumerate(self._inboxes)]
            baton = batons[owner]
            task = WorkerTask(
                worker=worker,
                owner=owner,
                member=self.plan.teams[owner].index(device),
                device=device,
                stages=tuple(each for each in stages if self._owners[each.node] == owner),
                wiring=self._wiring,
                owner_of_node=tuple(self._owners),
                layout=self._layout,
                memory=self._memory_fd,
                report=report_end,
                lifeline=lifeline_end,
                baton=baton,
                team_of_worker=tuple(self._team_of_worker),
                inboxes=tuple(inboxes),
                parent=os.getpid(),
            )
            process = subprocess.Popen(  # noqa: S603  # this interpreter, and a program from above
                [sys.executable, "-P", "-c", _PROGRAM, ",".join(map(str, device.cores))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[self._memory_fd, report_end, lifeline_end, *(baton or ()), *inboxes],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(each).absolute()) for each in sys.path)},
                process_group=0,  # Ctrl-C is for the parent
            )
            self._processes.append(process)
            # only the worker may hold these ends, else their closing would tell nothing
            self._close_descriptors(report_end, lifeline_end)
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:  # if it has ended already, `_await_ready` reports that
                pickle.dump(task, process.stdin)
        self._close_descriptors(*(reader for reader, _ in self._inboxes[:-1]))

    def _close_descriptors(self, *descriptors: int) -> None:
        for each in descriptors:
            os.close(each)
        self._open.difference_update(descriptors)

    def _await_ready(self) -> None:
        for worker in range(len(self._processes)):
            error = self._news(worker)
            if error is not None:
                raise error

    def _news(self, worker: int) -> ExecutionError | None:
        """Wait for a worker's report; return what went wrong with it, None if it is ready."""
        try:
            kind, message = self._reports[worker].recv()
        except (EOFError, OSError):
            return ExecutionError(self._obituary(worker))
        return None if kind == "ready" else ExecutionError(message)

    def _obituary(self, worker: int) -> str:
        process, device = self._processes[worker], self.plan.devices[worker]
        code = process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        node = int(self._memory.running[worker]) - 1
        names = [stage.name for stage in self.plan.stages if device in stage.members]
        stages = f"stage {names[0]!r}" if len(names) == 1 else f"one of the stages {', '.join(map(repr, names[:8]))}"
        what = f"running stage {self.plan.stages[node].name!r}" if node >= 0 else f"waiting to run {stages}"
        return f"the worker of device {device.name!r} (process {process.pid}) {how} while {what}"

    def _announce(self, node: int, sample: int) -> None:
        self._flow.finish(node, sample)
        neighbours = (*self._wiring.consumers[node], *self._wiring.producers[node])
        owners = {self._owners[each] for each in neighbours if each < len(self.plan.stages)}
        workers = [each for each, team in enumerate(self._team_of_worker) if team in owners]
        send_message([self._inboxes[each][1] for each in workers], node, sample)
        self._may_submit.notify_all()
        if owners != {self._owners[each] for each in neighbours}:  # an input that is an output
            send_message([self._inboxes[-1][1]], self._wake)

    @property
    def _wake(self) -> int:
        """What the collector is sent to look again; no node has this number."""
        return len(self._owners)

    @property
    def _stop(self) -> int:
        """What the collector is sent to end."""
        return len(self._owners) + 1

    def _collect(self) -> None:
        """Deliver results as they come, until told to end."""
        inbox = self._inboxes[-1][0]
        poll = select.poll()
        poll.register(inbox, select.POLLIN)
        worker_of_fd = {report.fileno(): worker for worker, report in enumerate(self._reports)}
        for report in worker_of_fd:
            poll.register(report, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == inbox:
                    messages = read_messages(inbox)
                    if any(node == self._stop for node, _ in messages):
                        return
                    with self._lock:
                        for node, sample in messages:
                            if node < self._wake:
                                self._flow.finish(node, sample)
                        self._may_submit.notify_all()
                else:
                    poll.unregister(descriptor)
                    error = self._news(worker_of_fd[descriptor])
                    assert error is not None
                    self._fail(error)
                    for process in self._processes:
                        process.kill()
                    continue
            while (task := self._take_result()) is not None:
                self._deliver(task[1])

    def _take_result(self) -> tuple[int, int] | None:
        with self._lock:
            return self._flow.take(self._sink_owner)

    def _end(self) -> None:
        if self._collector.ident is not None:
            send_message([self._inboxes[-1][1]], self._stop)
            self._collector.join()
        self._close_descriptors(*self._lifelines)
        for process in self._processes:
            try:
                process.wait(_EXIT_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for report in self._reports:
            report.close()
        self._close_descriptors(*self._open)
        # nothing may refer to the shared memory any more, else the mapping would stay
        self._rings.clear()
        self._times_s, self._members = np.zeros(0), np.zeros(0, dtype=np.int64)
        del self._memory
