"""Memories that devices of a random problem share, which a placement that is known just fills, or just does not."""

from __future__ import annotations

import numpy as np

from placekit.model.memory import Pool
from placekit.model.problem import Problem

from .twists import HAIRS, planted


def with_pools(rng: np.random.Generator, problem: Problem) -> Problem:
    """Return `problem` with one or two pools of whole groups of devices; with bytes for its ops if they have none.

    Parameters
    ----------
    rng
        Source of all choices.
    problem
        A problem on several devices.
    """
    costs, platform = problem.costs, problem.platform
    if costs.blocks is None and not costs.op_memory_bytes.any():
        sizes = rng.integers(1, 10, problem.graph.num_ops) * float(rng.choice([1.0, 0.1, 1e8 / 3, 2.0**30]))
        problem = problem.replace(costs=costs.replace(op_memory_bytes=sizes))
    pool_of_kind = rng.integers(-1, 2, len(platform.kinds))
    node_of_device = [device.node for device in platform.devices]
    use = problem.stage_memory.use(planted(rng, problem), platform.num_devices).total
    pools = []
    for number in (0, 1):
        inside = pool_of_kind[platform.kind_of_device] == number
        parts = [np.flatnonzero(inside & [each == node for each in node_of_device]) for node in set(node_of_device)]
        parts = [members for members in parts if len(members)]  # on each node a pool of its own, all of one size
        most = max((float(use[members].sum()) for members in parts), default=0.0) * float(rng.choice([*HAIRS, 0.7]))
        if most > 0:
            names = [tuple(platform.device_names[d] for d in members.tolist()) for members in parts]
            pools += [Pool(f"ram{number}.{at}", most, each) for at, each in enumerate(names)]
    return problem.replace(platform=platform.replace(pools=tuple(pools)))
