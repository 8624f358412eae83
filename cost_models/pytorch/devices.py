"""Devices as torch names them: core groups of the CPU, CUDA, MPS."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from placekit.cost_models.openvino.devices import core_groups
from placekit.cost_models.openvino.machine import cpu_name, memory_bytes, usable_cores
from placekit.io.needs import require_torch
from placekit.model.errors import DeviceUnavailableError, InvalidProblemError
from placekit.model.platform import Device, Platform

_LOGGER = logging.getLogger(__name__)

RUN_FAILURES = (RuntimeError, IndexError, ValueError, TypeError)
"""Errors that torch raises when an operator does not run."""

TORCH = "torch"
"""Property of a device that says what torch calls it, for example ``"cuda:0"``."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; torch adds whole stacks below."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def torch_device(device: Device) -> str:
    """Return what torch calls `device`: its property ``torch``, or ``"cpu"`` of a CPU or a group of its cores.

    Raises
    ------
    DeviceUnavailableError
        It names no torch device, or one that is not there.
    InvalidProblemError
        A precision other than f32: a program computes in the types that it was exported with.
    SolverUnavailableError
        torch is not installed.
    """
    name = device.properties.get(TORCH, "cpu" if device.openvino == "CPU" else "")
    if not name:
        raise DeviceUnavailableError(
            f"device {device.name!r} of kind {device.kind!r} names no torch device; give it the property torch "
            "('cpu', 'cuda:0', 'mps'), or use analytic costs"
        )
    precision = device.properties.get("INFERENCE_PRECISION_HINT", "f32")
    if precision != "f32":
        raise InvalidProblemError(
            f"device {device.name!r}: precision {precision} is OpenVINO's; a PyTorch program computes in the types "
            "that it was exported with: export it in the other type"
        )
    if name not in _available():
        raise DeviceUnavailableError(
            f"device {device.name!r}: torch offers {', '.join(_available())} here, not {name!r}"
        )
    return name


def _available() -> tuple[str, ...]:
    torch = require_torch("measuring and running PyTorch programs")
    cuda = tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) if torch.cuda.is_available() else ()
    return ("cpu", *cuda, *(("mps",) if torch.backends.mps.is_available() else ()))


def hardware_name(name: str) -> str:
    """Return the hardware behind a torch device."""
    torch = require_torch("measuring PyTorch programs")
    return str(torch.cuda.get_device_name(name)) if name.startswith("cuda") else cpu_name()


def default_platform() -> Platform:
    """Return all devices that torch has; two core groups (one on a single core) where that is the CPU only.

    Without torch the CPU is all there is, too.
    """
    if importlib.util.find_spec("torch") is not None and len(names := _available()) > 1:
        return platform_from_devices(",".join(names))
    return core_groups(min(2, len(usable_cores())))


def platform_from_devices(devices: str) -> Platform:
    """Return the platform of devices by torch's names: ``"cpu,cuda:0"``; upper case as OpenVINO writes it will do.

    Raises
    ------
    DeviceUnavailableError
        A device that is not there.
    InvalidProblemError
        No device, or the same one twice.
    """
    names = [name.strip().lower() for name in devices.split(",") if name.strip()]
    if not names:
        raise InvalidProblemError(f"devices {devices!r}: name at least one, for example cpu,cuda:0")
    return Platform(tuple(_device("cuda:0" if name == "cuda" else name) for name in names))


def _device(name: str) -> Device:
    if name == "cpu":
        return core_groups(1).devices[0].replace(name=name)
    if name not in _available():
        raise DeviceUnavailableError(f"device {name!r} is not available; torch offers {', '.join(_available())} here")
    torch = require_torch("measuring PyTorch programs")
    is_cuda = name.startswith("cuda")
    # mps works in the memory of the machine
    memory = float(torch.cuda.get_device_properties(name).total_memory) if is_cuda else memory_bytes()
    return Device(name, hardware_name(name) if is_cuda else name, memory_bytes=memory, properties={TORCH: name})


def synchronised(name: str) -> Callable[[], None]:
    """Return what waits until a device has done all that it was given."""
    torch = require_torch("running PyTorch programs")
    if name.startswith("cuda"):
        return lambda: torch.cuda.synchronize(name)
    if name == "mps":
        wait: Callable[[], None] = torch.mps.synchronize
        return wait
    return lambda: None


def use_threads(count: int) -> None:
    """Let the calling thread compute with `count` threads, itself included; 0 leaves the choice to torch.

    OpenMP keeps that number, and the threads, per calling thread; they are born on the cores that it is bound to. MKL
    has one number for the process unless it is told the calling thread's.
    """
    torch = require_torch("running PyTorch programs")
    if count > 0:
        torch.set_num_threads(count)
        setter = _mkl_setter()
        if setter is not None:
            setter(count)


@cache
def _mkl_setter() -> Any:
    """Return MKL's function for the threads of the calling thread; None without MKL."""
    torch = require_torch("running PyTorch programs")
    library = Path(str(torch.__file__)).parent / "lib" / "libtorch_cpu.so"
    try:
        return ctypes.CDLL(str(library)).MKL_Set_Num_Threads_Local
    except (OSError, AttributeError) as error:
        _LOGGER.debug("torch has no MKL of its own here: %s", error)
        return None


@contextmanager
def computing_with(count: int) -> Iterator[None]:
    """Let this thread compute with `count` threads inside the block, see `use_threads`."""
    torch = require_torch("running PyTorch programs")
    before = torch.get_num_threads()
    use_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        setter = _mkl_setter()
        if setter is not None and count > 0:
            setter(0)  # the process's number again
