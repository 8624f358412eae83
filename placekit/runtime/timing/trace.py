"""Measured stages as a Chrome trace, with what was predicted beside them; opens in Perfetto.

Every device is two processes, one measured and one predicted; every stage is a thread, every sample a slice, on the
member of the stage's team that ran it. Members that share a compiled model are one measured process together, with a
thread for each sample that is under way at once: which member ran it is not known. Times are in microseconds from the
first slice, as the format has it (see :mod:`placekit.io.trace`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.cost_models.measured.stage_costs import StageCosts
from placekit.io.trace import assign_lanes, named
from placekit.model.device_groups import team_name
from placekit.runtime.pipelines.pipeline import UNKNOWN_MEMBER

StageTimes: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64]]
"""``[num_samples, num_stages, 2]`` start and end of every stage, in seconds, and ``[num_samples, num_stages]`` which
member of its team ran it, or `UNKNOWN_MEMBER`."""

_SAMPLES_AHEAD = 2
"""Samples under way beyond one per stage, as queues of an ordinary pipeline hold them."""


def predicted_stage_times(
    stages: StageCosts, stage_s: NDArray[np.float64], num_samples: int, *, is_serial: bool
) -> StageTimes:
    """Return when and on which member every stage runs if it takes what was predicted.

    Stages begin as early as their device and their inputs allow, older samples first, on the member of their team that
    is free first; in serial execution one stage runs at a time and samples follow each other. `stage_s` has
    ``[num_rows]`` predicted seconds of every stage on every member. Times count from the start of the first sample.

    Notes
    -----
    O(num_samples * num_rows**2).
    """
    times = np.full((num_samples, stages.num_stages, 2), np.nan)
    members = np.zeros((num_samples, stages.num_stages), dtype=np.int64)
    rows = [stages.rows_of(stage).tolist() for stage in range(stages.num_stages)]
    unit = [0 if is_serial else device for device in stages.device.tolist()]
    ahead = 1 if is_serial else len(stages.stage) + _SAMPLES_AHEAD
    following = [0] * stages.num_stages  # the next sample of every stage
    free_s: dict[int, float] = {}
    for _ in range(num_samples * stages.num_stages):
        ready = _ready(stages, times, following, ahead)
        start_s, sample, row = min(
            (max(ready_s, free_s.get(unit[row], 0.0)), sample, row)
            for sample, stage, ready_s in ready
            for row in rows[stage]
        )
        stage = int(stages.stage[row])
        times[sample, stage] = start_s, start_s + stage_s[row]
        members[sample, stage] = row - rows[stage][0]
        following[stage] += 1
        free_s[unit[row]] = start_s + float(stage_s[row])
    return times, members


def _ready(
    stages: StageCosts, times: NDArray[np.float64], following: Sequence[int], ahead: int
) -> Iterator[tuple[int, int, float]]:
    """Yield the next sample of each stage, the stage, and when all it needs is there, where that is known."""
    for stage, sample in enumerate(following):
        if sample == len(times):
            continue
        needs = [times[sample, each, 1] for each in stages.producers[stage]]
        needs += [times[sample - ahead, :, 1].max()] if sample >= ahead else []
        ready_s = float(np.max(needs, initial=0.0))  # NaN if one of them has not run
        if not np.isnan(ready_s):
            yield sample, stage, ready_s


def timing_trace(
    names: Sequence[str], teams: Sequence[Sequence[str]], measured: StageTimes, predicted: StageTimes | None
) -> dict[str, Any]:
    """Return the trace.

    `names` and `teams` have the name of every stage, and of the members of its team.
    """
    events: list[dict[str, Any]] = []
    num_processes = 0
    for what, known in (("measured", measured), ("predicted", predicted)):
        if known is None or not known[0].size:
            continue
        times, members = known
        start_s = float(times.min())
        is_shared = (members == UNKNOWN_MEMBER).any(axis=0)
        teams_now = [(team_name(team),) if one else team for team, one in zip(teams, is_shared, strict=True)]
        order = list(dict.fromkeys(device for team in teams_now for device in team))
        one_device = np.zeros(len(times), dtype=np.int64)
        first, num_processes = num_processes, num_processes + len(order)
        for pid, device in enumerate(order, first):
            events += named("process", pid, 0, f"{what}: {device}", pid)
        for stage, (name, team) in enumerate(zip(names, teams_now, strict=True)):
            # a team that shares a model has one stage: its threads are the samples under way at once
            rows = (assign_lanes(one_device, *times[:, stage].T) if is_shared[stage] else members[:, stage]).tolist()
            at_once = range(max(rows) + 1) if is_shared[stage] else ()
            places = [{"pid": first + order.index(team[0]), "tid": row} for row in at_once]
            places = places or [{"pid": first + order.index(device), "tid": stage} for device in team]
            told = {"name": f"stage {name}"}
            events += [{"ph": "M", "name": "thread_name", **where, "args": told} for where in places]
            for sample, (begin_s, end_s) in enumerate(times[:, stage].tolist()):
                span = {"ts": (begin_s - start_s) * 1e6, "dur": (end_s - begin_s) * 1e6}
                where = places[rows[sample]]
                events.append(
                    {"ph": "X", "name": f"sample {sample}", "cat": what, **where, **span, "args": {"stage": name}}
                )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
