"""Advantages: the weights of the policy gradient, from costs relative to a baseline."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MovingBaseline", "batch_advantages"]


def batch_advantages(costs: Tensor) -> Tensor:
    """``[batch]`` how many standard deviations cheaper than the mean of the other samples each one is.

    Leaving a sample out of its own baseline keeps the gradient unbiased (Kool et al., "Buy 4 REINFORCE samples, get a
    baseline for free", 2019). Zeros where all costs agree, or for a single sample.
    """
    if len(costs) < 2:
        return torch.zeros_like(costs)
    deviation = costs.std()
    baseline = (costs.sum() - costs) / (len(costs) - 1)
    return torch.where(deviation > 1e-9, (baseline - costs) / deviation.clamp_min(1e-9), torch.zeros_like(costs))


class MovingBaseline:
    """An exponential moving average of costs; the advantage of a sample is baseline minus cost.

    Parameters
    ----------
    decay
        Share of the old average that an update keeps.
    """

    def __init__(self, decay: float = 0.9) -> None:
        self.decay = decay
        self.value: Tensor | None = None

    def advantages(self, costs: Tensor) -> Tensor:
        """``[batch, ...]`` baseline minus cost; the first batch is its own baseline. Updates the average."""
        mean = costs.mean(dim=0)
        if self.value is None:
            self.value = mean
        advantages = self.value - costs
        self.value = self.decay * self.value + (1 - self.decay) * mean
        return advantages

    def memory(self) -> dict[str, Tensor]:
        """Return the average, for checkpoints."""
        return {} if self.value is None else {"baseline": self.value}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Take back what `memory` returned."""
        self.value = memory.get("baseline")
