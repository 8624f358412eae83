r"""The optimiser of every training.

It computes what ``torch.optim.Adam`` does by default, in the same order, and keeps its state under the same names. That
class loads torch's compiler, which takes longer than many a training; nothing here is compiled.

.. math::
    m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad
    v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
    w \leftarrow w - \alpha \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

References
----------
Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Adam"]

_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8


class Adam:
    """Steps down a gradient by running means of it and of its square.

    Parameters
    ----------
    weights
        What to change.
    learning_rate
        Step size, which may be changed between two steps.
    """

    def __init__(self, weights: Iterable[Tensor], learning_rate: float) -> None:
        self.weights = list(weights)
        self.learning_rate = learning_rate
        self._state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change every weight that has a gradient."""
        for index, weight in enumerate(self.weights):
            if weight.grad is None:
                continue
            if index not in self._state:
                means = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
                self._state[index] = {"step": torch.tensor(0.0), **means}
            state = self._state[index]
            mean, mean_square = state["exp_avg"], state["exp_avg_sq"]
            state["step"] += 1
            count = float(state["step"])
            mean.lerp_(weight.grad, 1 - _DECAY)
            mean_square.mul_(_SQUARE_DECAY).addcmul_(weight.grad, weight.grad, value=1 - _SQUARE_DECAY)
            root = (mean_square.sqrt() / math.sqrt(1 - _SQUARE_DECAY**count)).add_(_EPSILON)
            weight.addcdiv_(mean, root, value=-self.learning_rate / (1 - _DECAY**count))

    def state_dict(self) -> dict[str, Any]:
        """Return the moments of past gradients by weight, and no step size."""
        return {"state": {index: dict(state) for index, state in self._state.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` returned, or that of torch's own class; step sizes stay.

        Raises
        ------
        ValueError
            Moments of other weights.
        """
        found: dict[int, dict[str, Tensor]] = {}
        for index, moments in state["state"].items():
            if not 0 <= index < len(self.weights):
                raise ValueError(f"moments of weight {index}; there are {len(self.weights)} weights")
            if moments.keys() != {"step", "exp_avg", "exp_avg_sq"}:
                raise ValueError(f"weight {index} has moments {sorted(moments)}")
            for name, moment in moments.items():
                weight = self.weights[index]
                shape, kind = (torch.Size(), torch.float32) if name == "step" else (weight.shape, weight.dtype)
                if moment.shape != shape or moment.dtype != kind:
                    raise ValueError(f"{name} of weight {index} has shape {tuple(moment.shape)} of {moment.dtype}")
            found[index] = {name: moment.clone() for name, moment in moments.items()}
        self._state = found
