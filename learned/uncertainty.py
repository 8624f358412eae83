"""How undecided a policy is about every op: the entropy of its device over samples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from placekit.learned.learner import Learner
from placekit.learned.threads import one_thread
from placekit.solve.stop import is_wanted

__all__ = ["op_uncertainty"]

NUM_SAMPLES = 256
"""Placements that are sampled at least."""


@one_thread()
def op_uncertainty(learner: Learner, seed: int) -> NDArray[np.float64]:
    """``[num_ops]`` entropy of the device of every op, in nats, from the samples of a policy.

    Samples serve every learner alike, whatever it decides on: ops, groups on several levels, or one op at a time. There
    are fewer where the solve is to end.

    Parameters
    ----------
    learner
        Whose policy; its weights stay as they are.
    seed
        Seed of the samples.

    Notes
    -----
    O(samples * ops), beside the samples themselves.
    """
    generator = torch.Generator().manual_seed(seed)
    count, parts = 0, list[NDArray[np.int64]]()
    while count < NUM_SAMPLES and (not parts or is_wanted()):
        with torch.no_grad():
            parts.append(learner.rollout(generator).placements)
        count += len(parts[-1])
    placements = np.concatenate(parts)
    entropy = np.zeros(placements.shape[1])
    for device in range(int(placements.max()) + 1):
        share = (placements == device).mean(axis=0)
        entropy -= share * np.log(np.where(share > 0, share, 1.0))
    return entropy
