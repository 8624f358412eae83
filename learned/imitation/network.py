"""The network of the policy: messages between the states of neighbouring ops, the same weights for every device.

A round of messages does, for every state (an op on a device),

1. take the state of the op on this device, and the mean of its states on the others;
2. send both along every tensor, forwards and backwards, with the transfer time over the device's link; receivers add
   what comes from one direction, scaled by the root of its number, and keep the largest;
3. take the mean of all states on this device, and the load that the scores so far would put on it, relative to the
   fullest device and to what a fair share is: what a device can still take depends on all ops;
4. update the state by a gated unit (GRU) and normalise it.

Scores are read off at the end, one for every state: the devices of an op by softmax; and one number for every op that
says when it starts, as a share of the makespan. Any number of rounds works: training draws it anew for every batch.

Shapes as in :mod:`placekit.learned.imitation.inputs`; ``H`` hidden width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from placekit.learned.imitation.inputs import NUM_FEATURES, Batch

_LEAST = 1e-3


class Scores(NamedTuple):
    """Outputs of the network."""

    # ``[N]`` log-probability of every state: devices of an op sum to 1; minus infinity where it may not go
    log_probs: Tensor
    start: Tensor  # ``[O]`` when each op starts, about 0 for the first and 1 for the last


def sum_rows(values: Tensor, index: Tensor, num: int) -> Tensor:
    """``[num, ...]`` sums of the rows of `values` by `index`."""
    return values.new_zeros((num, *values.shape[1:])).index_add(0, index, values)


def log_softmax_by(scores: Tensor, allowed: Tensor, index: Tensor, num: int) -> Tensor:
    """``[N]`` log-softmax of `scores` among the rows with the same `index`, minus infinity where not allowed."""
    masked = scores.masked_fill(~allowed, -torch.inf)
    top = torch.full((num,), -torch.inf, dtype=scores.dtype, device=scores.device)
    top = top.scatter_reduce(0, index, masked.detach(), "amax")
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    shifted = torch.where(allowed, scores - top[index], torch.zeros_like(scores))
    total = sum_rows(torch.where(allowed, shifted.exp(), torch.zeros_like(shifted)), index, num)
    return (shifted - total.clamp_min(1e-30).log()[index]).masked_fill(~allowed, -torch.inf)


class _Messages(nn.Module):
    """Messages along tensors in one direction."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.own = nn.Linear(hidden, hidden)
        self.others = nn.Linear(hidden, hidden, bias=False)
        self.cost = nn.Linear(1, hidden, bias=False)

    def forward(self, state: Tensor, others: Tensor, cost: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """``[N, 2 H]`` sum and maximum of what arrives."""
        message = torch.relu((self.own(state) + self.others(others)).index_select(0, source) + self.cost(cost))
        num, hidden = state.shape
        count = torch.bincount(target, minlength=num).clamp_min(1)
        total = sum_rows(message, target, num) / count.to(state.dtype).sqrt()[:, None]
        largest = torch.zeros_like(state).scatter_reduce(0, target[:, None].expand(-1, hidden), message, "amax")
        return torch.cat([total, largest], dim=1)


class StateNetwork(nn.Module):
    """The network of the module docstring, with states of width `hidden`."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.input = nn.Sequential(nn.Linear(NUM_FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.forwards, self.backwards = _Messages(hidden), _Messages(hidden)
        self.update = nn.GRUCell(6 * hidden + 2, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.score = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.start = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, batch: Batch, rounds: int, check_stop: Callable[[], None] = lambda: None) -> Scores:
        """Return the scores after so many rounds; what `check_stop` raises before one of them ends them."""
        op, device = batch.op_of_state, batch.device_of_state
        num_ops, num_devices = len(batch.graph_of_op), len(batch.graph_of_device)
        ones = torch.ones(len(op), dtype=batch.features.dtype, device=op.device)
        per_op, per_device = sum_rows(ones, op, num_ops), sum_rows(ones, device, num_devices)
        num_others = (per_op - 1).clamp_min(1)[op, None]
        cost = torch.log(batch.transfer[batch.pair_tensor] + _LEAST)[:, None]
        ends = batch.producer_state[batch.pair_tensor], batch.pair_reader
        state = self.norm(self.input(batch.features))
        for _ in range(rounds):
            check_stop()
            others = (sum_rows(state, op, num_ops).index_select(0, op) - state) / num_others
            on_device = (sum_rows(state, device, num_devices) / per_device[:, None]).index_select(0, device)
            seen = [
                others,
                self.forwards(state, others, cost, ends[0], ends[1]),
                self.backwards(state, others, cost, ends[1], ends[0]),
                on_device,
                self._loads(batch, state).index_select(0, device),
            ]
            state = self.norm(self.update(torch.cat(seen, dim=1), state))
        log_probs = self._log_probs(batch, state)
        probs = torch.where(batch.allowed, log_probs.exp(), torch.zeros_like(log_probs))
        start = sum_rows(probs * self.start(state)[:, 0], op, num_ops)
        return Scores(log_probs, start)

    def _log_probs(self, batch: Batch, state: Tensor) -> Tensor:
        num_ops = len(batch.graph_of_op)
        return log_softmax_by(self.score(state)[:, 0], batch.allowed, batch.op_of_state, num_ops)

    def _loads(self, batch: Batch, state: Tensor) -> Tensor:
        """``[M, 2]`` load of every device by the scores so far, over the largest and over a fair share, as logs."""
        log_probs = self._log_probs(batch, state)
        work = torch.where(batch.allowed, log_probs.exp() * batch.time, torch.zeros_like(batch.time))
        graph = batch.graph_of_device
        load = sum_rows(work, batch.device_of_state, len(graph))
        num_graphs = len(batch.objective)
        largest = load.new_zeros(num_graphs).scatter_reduce(0, graph, load, "amax")
        count = sum_rows(torch.ones_like(load), graph, num_graphs)
        fair = sum_rows(load, graph, num_graphs) / count
        relative = [load / (total[graph] + 1e-6) for total in (largest, fair)]
        return torch.log(torch.stack(relative, dim=1) + 0.05)
