"""Measured stages as a Chrome trace, with what was predicted beside them; opens in Perfetto.

Every device is two processes, one measured and one predicted; every stage is a thread, every sample a slice. Times
are in microseconds from the first slice, as the format has it (see :mod:`placekit.io.trace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.stage_costs import StageCosts

__all__ = ["predicted_stage_times", "timing_trace"]

_SAMPLES_AHEAD = 2
"""Samples under way beyond one per stage, as queues of an ordinary pipeline hold them."""


def predicted_stage_times(
    stages: StageCosts, stage_s: NDArray[np.float64], num_samples: int, *, is_serial: bool
) -> NDArray[np.float64]:
    """Return start and end of every stage if every stage takes what was predicted.

    Stages begin as early as their device and their inputs allow, older samples first; in serial execution one stage
    runs at a time and samples follow each other.

    Parameters
    ----------
    stages
        The stages.
    stage_s
        ``[num_stages]`` predicted seconds of every stage.
    num_samples
        Number of samples.
    is_serial
        Whether the stages run one after another.

    Returns
    -------
    NDArray[np.float64]
        ``[num_samples, num_stages, 2]`` seconds from the start of the first sample.

    Notes
    -----
    O(num_samples * num_stages**2).
    """
    times = np.full((num_samples, stages.num_stages, 2), np.nan)
    ahead = 1 if is_serial else stages.num_stages + _SAMPLES_AHEAD
    following = [0] * stages.num_stages  # the next sample of every stage
    free_s: dict[int, float] = {}
    for _ in range(num_samples * stages.num_stages):
        start_s, sample, stage = min(_ready(stages, times, following, free_s, ahead, is_serial=is_serial))
        times[sample, stage] = start_s, start_s + stage_s[stage]
        following[stage] += 1
        free_s[0 if is_serial else int(stages.device[stage])] = start_s + float(stage_s[stage])
    return times


def _ready(
    stages: StageCosts,
    times: NDArray[np.float64],
    following: Sequence[int],
    free_s: dict[int, float],
    ahead: int,
    *,
    is_serial: bool,
) -> Iterator[tuple[float, int, int]]:
    """Yield when each stage could begin its next sample, that sample and the stage, where all it needs is known."""
    for stage, sample in enumerate(following):
        if sample == len(times):
            continue
        needs = [times[sample, each, 1] for each in stages.producers[stage]]
        needs += [times[sample - ahead, :, 1].max()] if sample >= ahead else []
        needs.append(free_s.get(0 if is_serial else int(stages.device[stage]), 0.0))
        start_s = float(np.max(needs))  # NaN if one of them has not run
        if not np.isnan(start_s):
            yield start_s, sample, stage


def timing_trace(
    names: Sequence[str],
    devices: Sequence[str],
    measured_s: NDArray[np.float64],
    predicted_s: NDArray[np.float64] | None,
) -> dict[str, Any]:
    """Return the trace.

    Parameters
    ----------
    names, devices
        ``[num_stages]`` name of every stage, and of its device.
    measured_s, predicted_s
        ``[num_samples, num_stages, 2]`` start and end of every stage; the second is None without a prediction.
    """
    order = list(dict.fromkeys(devices))
    events: list[dict[str, Any]] = []
    for at, (what, times) in enumerate((("measured", measured_s), ("predicted", predicted_s))):
        if times is None or not times.size:
            continue
        start_s = float(times.min())
        for number, device in enumerate(order):
            pid = at * len(order) + number
            told = {"name": f"{what}: {device}"}
            events.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": told})
            events.append({"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}})
        for tid, (name, device) in enumerate(zip(names, devices, strict=True)):
            where = {"pid": at * len(order) + order.index(device), "tid": tid}
            events.append({"ph": "M", "name": "thread_name", **where, "args": {"name": f"stage {name}"}})
            for sample, (begin_s, end_s) in enumerate(times[:, tid].tolist()):
                span = {"ts": (begin_s - start_s) * 1e6, "dur": (end_s - begin_s) * 1e6}
                events.append(
                    {"ph": "X", "name": f"sample {sample}", "cat": what, **where, **span, "args": {"stage": name}}
                )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
