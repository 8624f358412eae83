"""Seconds that placekit's pipelines take besides the ops: for a call of a stage, and for a handover between two.

Both are measured once on a machine, with the pipeline itself (:mod:`placekit.runtime.pipelines.idle`), and kept. They
go into the costs of a model, where solvers and verdicts find them:

1. A call is shared out among the ops, in proportion to their times: a model on one device takes its ops and one call.
2. With two stages each takes the ``p`` seconds of a pipeline of two idle stages, where one alone takes ``c``. Half of a
   call is among its ops, so either end of a tensor that is cut costs ``p - c / 2``.

So ops that take less than a handover are never worth a stage. A model's inputs cost nothing: a call counts already.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.measured.cache import ProfileCache
from placekit.cost_models.measured.measuring import LoadMeter, measuring
from placekit.cost_models.openvino.machine import cpu_name
from placekit.model.errors import PlacekitError

if TYPE_CHECKING:
    import openvino

    from placekit.cost_models.base import Backend
    from placekit.model.graph import OpGraph
    from placekit.model.platform import Device

_LOGGER = logging.getLogger(__name__)

_SCHEMA = "idle pipeline 1"
_MOST_LOAD = 0.1
"""Share of the cores that other load may take; a measurement with more is made again after ten minutes."""
_RETRY_AFTER_S = 600.0


@dataclass(frozen=True)
class ExecutorCosts:
    """Costs of running stages.

    Parameters
    ----------
    call_s
        Seconds per sample of a pipeline of one idle stage, by kind of device.
    pair_s
        Seconds per sample of a pipeline of two; None on a machine with one device.
    """

    call_s: Mapping[str, float]
    pair_s: float | None

    @property
    def longest_call_s(self) -> float:
        """Seconds of a call on a kind that was not measured."""
        return max(self.call_s.values(), default=0.0)

    @property
    def end_s(self) -> float:
        """Seconds of either end of a tensor between two stages."""
        return 0.0 if self.pair_s is None else max(self.pair_s, self.longest_call_s) - self.longest_call_s / 2

    def with_call(self, kind: str, op_time_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``[num_ops]`` times with a call shared out among them."""
        total_s = float(op_time_s.sum())
        return op_time_s * (1 + self.call_s.get(kind, self.longest_call_s) / total_s) if total_s > 0 else op_time_s

    def ends_s(self, graph: OpGraph) -> NDArray[np.float64]:
        """``[num_tensors]`` seconds of either end; 0 for the model's inputs."""
        is_input = np.array([op_type == "Parameter" for op_type in graph.op_types], dtype=bool)
        return np.where(is_input[graph.tensor_producer], 0.0, self.end_s)


def executor_costs(
    devices: Sequence[Device], backend: Backend, cache: ProfileCache | None, core: openvino.Core | None = None
) -> ExecutorCosts:
    """Measure calls on the first device of every kind, and a handover between the first two devices.

    Parameters
    ----------
    devices
        Devices of the platform that are on this machine.
    backend
        The framework that runs stages on them.
    cache
        Where measurements are kept; None to measure anew and keep nothing.
    core
        OpenVINO core; the shared one if None.
    """
    first = list({device.kind: device for device in reversed(devices)}.values())
    keys = {device.kind: _key([device], backend) for device in first}
    of_key = {keys[device.kind]: device for device in first}  # equal ones once
    measured = {key: _idle_s([device], backend, cache, core) for key, device in of_key.items()}
    calls = {kind: found for kind, key in keys.items() if (found := measured[key]) is not None}
    return ExecutorCosts(calls, _idle_s(devices[:2], backend, cache, core) if len(devices) > 1 else None)


def _key(devices: Sequence[Device], backend: Backend) -> str:
    facts = [
        {**backend.device_facts(each), "cores": len(each.cores), "properties": dict(each.properties)}
        for each in devices
    ]
    return ProfileCache.key({"schema": _SCHEMA, backend.name: backend.version, "cpu": cpu_name(), "stages": facts})


def _idle_s(
    devices: Sequence[Device], backend: Backend, cache: ProfileCache | None, core: openvino.Core | None
) -> float | None:
    """Return the seconds per sample of idle stages on `devices`; None if they do not run there."""
    from placekit.runtime.pipelines.idle import (
        idle_s,  # measured with the pipeline itself, which knows nothing of cost models
    )

    key = _key(devices, backend)
    kept = cache.load(key) if cache else None
    known = _seconds(kept[1]) if kept else None
    if kept is not None and known is not None and not _is_due(kept[1]):
        return known
    names = ", ".join(device.name for device in devices)
    cores = sorted({each for device in devices for each in device.cores})
    try:
        with measuring(f"a pipeline on {names}"), LoadMeter(cores) as meter:
            seconds = idle_s(devices, backend.name, core)
    except PlacekitError as error:
        _LOGGER.warning("what a stage costs on %s is not known: %s", names, error)
        return known
    best_s = seconds if known is None else min(seconds, known)  # other load only ever adds time
    if cache:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        cache.store(key, {}, {"seconds": best_s, "foreign_load": float(meter.foreign_load), "date": now})
    return best_s


def _seconds(meta: Mapping[str, Any]) -> float | None:
    value = meta.get("seconds")
    return float(value) if isinstance(value, float) and 0 <= value < np.inf else None


def _is_due(meta: Mapping[str, Any]) -> bool:
    """Return whether a measurement was disturbed, and is so old that the next one may be better."""
    try:
        if float(meta["foreign_load"]) <= _MOST_LOAD:
            return False
        age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(str(meta["date"]))
    except (KeyError, ValueError, TypeError):
        return True
    return age.total_seconds() > _RETRY_AFTER_S
