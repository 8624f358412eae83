"""Stages compiled for their devices."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from placekit.cost_models.openvino.counters import compile_properties
from placekit.cost_models.openvino.devices import require_device, shared_core
from placekit.model.errors import DeviceUnavailableError, ExecutionError
from placekit.model.platform import Device
from placekit.runtime.stages import PlacedStage, StagePlan

if TYPE_CHECKING:
    import openvino

__all__ = ["CompiledPlan", "CompiledStage", "compile_plan", "require_devices"]

_LOGGER = logging.getLogger(__name__)
_NUM_THREADS = "INFERENCE_NUM_THREADS"


@dataclass(frozen=True, eq=False)
class CompiledStage:
    """A stage that is ready to run on a device.

    Parameters
    ----------
    stage, device
        The stage, and the member of its team.
    compiled
        What OpenVINO made of it; members of a team can have one together.
    compile_s
        Seconds that this took.
    is_cached
        Whether it came out of the model cache.
    """

    stage: PlacedStage
    device: Device
    compiled: openvino.CompiledModel
    compile_s: float
    is_cached: bool


@dataclass(frozen=True, eq=False)
class CompiledPlan:
    """A plan whose stages are compiled, each for every member of its team, in the plan's order."""

    plan: StagePlan
    stages: tuple[CompiledStage, ...]

    @property
    def members(self) -> tuple[tuple[CompiledStage, ...], ...]:
        """``[num_stages]`` every stage on each member of its team."""
        waiting = iter(self.stages)
        return tuple(tuple(islice(waiting, len(stage.members))) for stage in self.plan.stages)

    @property
    def num_turns(self) -> int:
        """Size of the largest team."""
        return max((len(stage.members) for stage in self.plan.stages), default=1)

    def turn(self, number: int) -> CompiledPlan:
        """Return the plan in which every stage is on one member only of its team, the `number`-th modulo its size.

        `num_turns` of them have every stage on every member.
        """
        chosen = tuple(members[number % len(members)] for members in self.members)
        stages = tuple(replace(each.stage, members=(each.device,)) for each in chosen)
        return CompiledPlan(replace(self.plan, stages=stages), chosen)

    @property
    def compile_s(self) -> float:
        """Seconds that compiling all stages took."""
        return sum(stage.compile_s for stage in self.stages)


def compile_plan(
    plan: StagePlan, core: openvino.Core | None = None, *, cache_dir: str | Path | None = None
) -> CompiledPlan:
    """Compile every stage for its device.

    Each device is compiled as it is profiled: one stream, its own properties, OpenVINO's pinning off. The cores of a
    core group are not OpenVINO's business; whoever runs the stage binds its threads.

    Equal members of a team, groups of as many cores with the same properties, have one compiled model with a stream for
    each: OpenVINO keeps its weights once, so that one member finds in the cache what another has just read. This is
    so if the team has one stage only; of several, the streams of the one would know nothing of those of the other. The
    members of any other team have one each.

    Parameters
    ----------
    plan
        The plan.
    core
        OpenVINO core; the shared one if None.
    cache_dir
        Where OpenVINO keeps compiled models, about twice the size of the weights; None for nowhere.

    Raises
    ------
    DeviceUnavailableError
        A device that this machine does not have, or that names no OpenVINO device.
    ExecutionError
        A stage that its device cannot compile; the message names the stage, and the op where the device can tell.
    """
    core = core or shared_core()
    require_devices(plan.devices, core)
    stages: list[CompiledStage] = []
    for stage in plan.stages:
        if _are_equal(stage.members) and [each.members for each in plan.stages].count(stage.members) == 1:
            first = _compile(stage, stage.device, core, cache_dir, num_streams=len(stage.members))
            stages += [first, *(replace(first, device=each, compile_s=0.0) for each in stage.members[1:])]
        else:
            stages += [_compile(stage, device, core, cache_dir) for device in stage.members]
    compiled = CompiledPlan(plan, tuple(stages))
    _LOGGER.debug("compiled %d stages of %r in %.3f s", len(stages), plan.name, compiled.compile_s)
    return compiled


def require_devices(devices: Iterable[Device], core: openvino.Core) -> None:
    """Raise unless every device is one of OpenVINO's that this machine has.

    Raises
    ------
    DeviceUnavailableError
        As `compile_plan`.
    """
    for device in devices:
        if device.openvino is None:
            raise DeviceUnavailableError(f"device {device.name!r} names no OpenVINO device, so it cannot run a stage")
        require_device(device.openvino, core)


def _are_equal(members: Sequence[Device]) -> bool:
    """Return whether devices are groups of CPU cores, of the same size, that compute in the same way."""
    properties = dict(members[0].properties)
    return (
        all(each.openvino == "CPU" and dict(each.properties) == properties for each in members)
        and len({len(each.cores) for each in members}) == 1
        and "NUM_STREAMS" not in properties
        and properties.get(_NUM_THREADS, "").isdigit()  # without it a stream would take all cores
    )


def _compile(
    stage: PlacedStage, device: Device, core: openvino.Core, cache_dir: str | Path | None, *, num_streams: int = 1
) -> CompiledStage:
    target = device.openvino or device.name
    config = compile_properties(target, device.properties)
    if num_streams > 1:
        # the hint is for streams side by side: as many as the other hint's are slower by some per cent
        threads = num_streams * int(device.properties[_NUM_THREADS])
        config |= {"PERFORMANCE_HINT": "THROUGHPUT", "NUM_STREAMS": num_streams, _NUM_THREADS: threads}
    if cache_dir is not None:
        config["CACHE_DIR"] = str(cache_dir)
    start = time.perf_counter()
    try:
        compiled = core.compile_model(stage.model, target, config)
    except RuntimeError as error:
        raise ExecutionError(
            f"stage {stage.name!r} ({len(stage.op_names)} ops from {stage.op_names[0]!r}) cannot be compiled for "
            f"{target}: {_refused(stage, core, target)}{_last_line(error)}"
        ) from error
    compile_s = time.perf_counter() - start
    return CompiledStage(stage, device, compiled, compile_s, _is_cached(compiled))


def _refused(stage: PlacedStage, core: openvino.Core, target: str) -> str:
    """Return which ops of the stage the device says it does not support, as the start of a message."""
    try:
        accepted = core.query_model(stage.model, target)
    except RuntimeError:  # a device that cannot be asked
        return ""
    refused = [name for name in stage.op_names if name not in accepted]
    more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return f"it does not support op {refused[0]!r}{more}; " if refused else ""


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _is_cached(compiled: openvino.CompiledModel) -> bool:
    try:
        return bool(compiled.get_property("LOADED_FROM_CACHE"))
    except RuntimeError:  # a device without this property
        return False
