"""Starts: where training begins anew, and on which level, once nothing improves any more.

1. The first start is annealed, and so is every other one: every device is as likely as any other, and all levels are
   drawn from at once. The weights are drawn anew as well: a policy that has settled ends where it ended before.
2. Those in between begin on the best placement so far, which another parsing divides into other groups (iterated local
   search: Lourenço et al., 2003). They keep their parsing, and go from its coarsest level to the finest, so that large
   groups settle before their members do. The noise of the parsing changes from start to start (`_NOISE_SCALES`): the
   policy's own groups first, then such as it would not make.

A level is left after 5 updates without a better placement of its start, the finest one, and with it
the start, after `HsdagParams.restart`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_DESCEND = 5
_NOISE_SCALES = (1.0, 3.0, 10.0)


class Starts:
    """State of the present start.

    Parameters
    ----------
    restart
        See the module docstring; 0 for the first start only.

    Attributes
    ----------
    number : int
        Starts before this one.
    level : int
        The only level that is drawn from, 0 for all of them.
    noise : Tensor or None
        ``[E]`` noise on the scores of edges that is kept; None for new noise in every parsing.
    """

    def __init__(self, restart: int) -> None:
        self.restart = restart
        self.number, self.level = 0, 0
        self.noise: Tensor | None = None
        self._best, self._stale = math.inf, 0

    def note(self, cost: float) -> None:
        """Take in the least cost of an update."""
        self._stale = 0 if cost < self._best - 1e-7 else self._stale + 1  # costs are single precision, around 1
        self._best = min(self._best, cost)

    def is_next_due(self) -> bool:
        """Go to the next finer level where this one is done, or return whether the start is."""
        if not self.restart or self._stale < (_DESCEND if self.level else self.restart):
            return False
        self._stale = 0
        if self.level:
            self.level -= 1
            return False
        self.number += 1
        self._best = math.inf
        return True

    @property
    def is_annealed(self) -> bool:
        """True if this start is annealed, False if it is on the best placement so far."""
        return self.number % 2 == 0

    @property
    def noise_scale(self) -> float:
        """Factor of the noise in the parsing of this start."""
        return _NOISE_SCALES[self.number // 2 % len(_NOISE_SCALES)]

    def memory(self) -> dict[str, Tensor]:
        """Return all of it, for checkpoints."""
        noise = torch.empty(0) if self.noise is None else self.noise
        state = torch.tensor([self.number, self.level, self._stale, self._best], dtype=torch.float64)
        return {"starts": state, "noise": noise}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        number, level, stale, self._best = memory["starts"].tolist()
        self.number, self.level, self._stale = int(number), int(level), int(stale)
        self.noise = memory["noise"] if len(memory["noise"]) else None
