"""Compiling for a measurement or a stage: one stream, on threads that stay where their caller has bound them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.machine import native_threads
from placekit.machine import usable_cpus

if TYPE_CHECKING:
    import openvino

_LOGGER = logging.getLogger(__name__)

_MAY_USE_ALL = len(usable_cpus()) == os.cpu_count()
"""True if this process may use all cores; if not, OpenVINO binds threads whatever it is asked (seen with 1 of 2)."""
_MOST_HELD = 64
_held: list[openvino.CompiledModel] = []
"""Models that keep executors which bind threads, until the process ends; at most `_MOST_HELD`."""
_seen: dict[tuple[tuple[str, Any], ...], set[int]] = {}
"""By properties: threads that were there when no executor bound any; each executor has threads of its own."""


def compile_properties(device: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties to compile with for a measurement: one stream, the device's own, no pinning.

    Pinning would bind every one-thread model of the process to the same core; the caller binds threads instead.
    """
    common: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1"}
    if device == "CPU":
        common["ENABLE_CPU_PINNING"] = False
    return common | dict(properties)


def compile_unbound(
    core: openvino.Core, model: openvino.Model, device: str, config: Mapping[str, Any]
) -> openvino.CompiledModel:
    """Compile a model with properties that ask for no pinning, and see to it that OpenVINO does as it is asked.

    A model gets the executor of one that is gone, if both have as many streams and threads on the same sort of core.
    Whether the executor binds threads is not compared (``IStreamsExecutor::Config::operator==``, OpenVINO 2026.4):
    where the process once had a pinned model, one without pinning may move every thread that runs it to the core of
    that model, and to all cores when it is done. Such executors are taken away first, each by a small model that is
    kept. To look for them takes a compilation, 25 ms, and is done where OpenVINO has threads that are new.

    Raises
    ------
    RuntimeError
        From OpenVINO: the device cannot run the model, or has no such properties.
    """
    if device == "CPU" and str(config.get("ENABLE_CPU_PINNING")).upper() in ("FALSE", "NO"):
        _hold_executors_that_bind(config)
    before = native_threads()
    compiled = core.compile_model(model, device, dict(config))
    new = native_threads() - before
    for threads in _seen.values():
        threads.update(new)
    return compiled


def _hold_executors_that_bind(config: Mapping[str, Any]) -> None:
    if not _MAY_USE_ALL or not hasattr(os, "sched_setaffinity"):
        return
    seen = _seen.setdefault(tuple(sorted(config.items())), set())
    if not native_threads() <= seen:
        while len(_held) < _MOST_HELD and (binding := _next_if_it_binds(config)) is not None:
            _held.append(binding)
            _LOGGER.debug("%d executors of pinned models are held", len(_held))
        seen |= native_threads()


def _next_if_it_binds(config: Mapping[str, Any]) -> openvino.CompiledModel | None:
    """Return a model with the executor that the next one would get, if it binds threads; else leave it to that one."""
    compiled = shared_core().compile_model(_small_model(), "CPU", dict(config))
    with ThreadPoolExecutor(1) as thread:  # one of its own, as it is bound to cores
        return compiled if thread.submit(_is_moved_by, compiled.create_infer_request()).result() else None


def _is_moved_by(request: openvino.InferRequest) -> bool:
    """Return whether an inference moves the calling thread to other cores, be they those of the inference before."""
    count = os.cpu_count() or 1
    for cores in (set(range(1, count)), set(range(count - 1))):
        if cores:  # on one core there is nothing to see, and nothing to lose
            os.sched_setaffinity(0, cores)
            request.infer()
            if os.sched_getaffinity(0) != cores:
                return True
    return False


@cache
def _small_model() -> openvino.Model:
    import openvino
    from openvino import opset13

    given = opset13.parameter([1], openvino.Type.f32)
    return openvino.Model([opset13.relu(given)], [given])
