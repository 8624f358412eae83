"""Threads bound to the cores of their devices."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from placekit.cost_models.openvino.machine import cores_of_threads, format_cores, move_threads, native_threads
from placekit.model.errors import DeviceUnavailableError
from placekit.model.platform import Device


def check_cores(devices: Sequence[Device]) -> None:
    """Raise unless this process may use the cores of all `devices`."""
    if not hasattr(os, "sched_getaffinity"):
        return
    # the calling thread may be bound to fewer than the process may use
    allowed = os.sched_getaffinity(0) | os.sched_getaffinity(os.getpid())
    for device in devices:
        if not allowed.issuperset(device.cores):
            raise DeviceUnavailableError(
                f"device {device.name!r} needs cores {format_cores(device.cores)}; this process may use "
                f"{format_cores(sorted(allowed))}"
            )


def pin_this_thread(cores: Sequence[int]) -> None:
    """Bind the calling thread to `cores`; with none, or where threads cannot be bound, leave it free."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


@contextmanager
def helpers_on(devices: Sequence[Device]) -> Iterator[None]:
    """Keep OpenVINO's helper threads on the cores of the `devices` that have more than one.

    A one-core device computes in the thread that calls it. A larger one is helped by threads that all models of a
    process share and that stay on the cores where they were born, which is anywhere. They cannot be told from other
    native threads, so all threads of the process that Python did not start are moved, and put back at the end. Two
    devices of several cores therefore share their cores.
    """
    cores = {core for device in devices if len(device.cores) > 1 for core in device.cores}
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    native = native_threads()
    before = {thread: home for thread, home in cores_of_threads().items() if thread in native}
    move_threads(dict.fromkeys(before, cores))
    try:
        yield
    finally:
        move_threads(before)
