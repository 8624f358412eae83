"""Compiling for a measurement or a stage: one stream, on threads that stay where their caller has bound them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any

from placekit.cost_models.openvino.devices import shared_core

if TYPE_CHECKING:
    import openvino

_held: list[openvino.CompiledModel] = []
"""Models that keep executors which bind threads, until the process ends."""


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
    kept: one compilation and two inferences of it, a millisecond or two, if there are none.

    Raises
    ------
    RuntimeError
        From OpenVINO: the device cannot run the model, or has no such properties.
    """
    if device == "CPU" and hasattr(os, "sched_setaffinity"):
        while (binding := _next_if_it_binds(config)) is not None:
            _held.append(binding)
    return core.compile_model(model, device, dict(config))


def _next_if_it_binds(config: Mapping[str, Any]) -> openvino.CompiledModel | None:
    """Return a model with the executor that the next one would get, if it binds threads; else leave it to that one."""
    compiled = shared_core().compile_model(_small_model(), "CPU", dict(config))
    with ThreadPoolExecutor(1) as thread:  # one of its own, as it is bound to cores
        return compiled if thread.submit(_is_moved_by, compiled.create_infer_request()).result() else None


def _is_moved_by(request: openvino.InferRequest) -> bool:
    """Return whether an inference moves the calling thread to other cores; it may move it back to those of the first.

    On a machine with one core there is nothing to see, and nothing to lose.
    """
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # all that this machine lets it use
    allowed = sorted(os.sched_getaffinity(0))
    for cores in (set(allowed[1:]), set(allowed[:-1])):
        if cores:
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
