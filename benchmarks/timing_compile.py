"""How long a placement takes to compile, by number of stages, and what OpenVINO's model cache saves.

Learning from measured rewards compiles every placement that it tries, so this bounds how many it can try.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from placekit.cost_models.base import Progress
from placekit.cost_models.openvino.compiled_plan import compile_plan
from placekit.cost_models.openvino.devices import shared_core
from placekit.cost_models.openvino.stages import StagePlan, plan_stages
from placekit.cost_models.splits import split_placement
from placekit.io.model import ModelSource
from placekit.problem import Problem

__all__ = ["NUM_STAGES", "compile_times"]

Row = dict[str, Any]

NUM_STAGES = (1, 2, 6)
"""Stages of the placements: blocks of equal work, on two devices in turn."""

_REPETITIONS = 3


def compile_times(source: ModelSource, problem: Problem, *, is_quick: bool, progress: Progress | None) -> Row:
    """Compile placements of `NUM_STAGES` stages without a cache, into an empty one, and out of it.

    Compiling without and out of a cache is done in turns, so that both meet the same machine.

    Returns
    -------
    dict[str, Any]
        ``"plans"``: for every number of stages that the blocks come to, the median seconds ``cold_s`` and ``cached_s``
        in all and ``stage_cold_s`` and ``stage_cached_s`` per stage, ``store_s`` (the one time that fills the cache),
        ``cache_bytes``, and whether every stage came out of the cache, ``is_cached``.
    """
    shared_core()  # loading the plugin is nobody's compile time
    plans = []
    for done, count in enumerate(NUM_STAGES, 1):
        placement = split_placement(problem, [block % 2 for block in range(count)], [1.0] * count)
        plan = plan_stages(source, placement, problem.platform)
        plans.append(_times(plan, 1 if is_quick else _REPETITIONS))
        if progress is not None:
            progress(done, len(NUM_STAGES), f"compiled {len(plan.stages)} stages")
    return {"plans": plans}


def _times(plan: StagePlan, repetitions: int) -> Row:
    compile_plan(plan)  # the first time of a model reads its weights
    with tempfile.TemporaryDirectory(prefix="placekit-compile-") as folder:
        store_s = compile_plan(plan, cache_dir=folder).compile_s
        cold_s, cached_s, hits = [], [], []
        for _ in range(repetitions):
            cold_s.append([stage.compile_s for stage in compile_plan(plan).stages])
            cached = compile_plan(plan, cache_dir=folder)
            cached_s.append([stage.compile_s for stage in cached.stages])
            hits.append(all(stage.is_cached for stage in cached.stages))
        cache_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "num_stages": len(plan.stages),
        "cold_s": float(np.median(np.sum(cold_s, axis=1))),
        "cached_s": float(np.median(np.sum(cached_s, axis=1))),
        "ratio": float(np.median(np.sum(cached_s, axis=1) / np.sum(cold_s, axis=1))),
        "stage_cold_s": np.median(cold_s, axis=0).tolist(),
        "stage_cached_s": np.median(cached_s, axis=0).tolist(),
        "store_s": store_s,
        "cache_bytes": cache_bytes,
        "is_cached": all(hits),
    }
