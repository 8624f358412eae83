"""Small modules that the tests of PyTorch models share."""

from __future__ import annotations

import torch
import torch.utils.checkpoint
from torch import nn


class Attention(nn.Module):
    """A block of a decoder: layer norm, causal attention, feed-forward."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what comes after the block."""
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (each.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for each in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        after: torch.Tensor = x + self.down(nn.functional.gelu(self.up(x)))
        return after


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self, vocabulary: int = 50, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Attention(width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the logits and the last hidden state."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(x), "hidden": x}


class Convolutional(nn.Module):
    """Dense, depthwise and transposed convolutions, batch norm, pooling, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise, self.up = nn.Conv2d(8, 8, 3, groups=8), nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.pool, self.classifier = nn.MaxPool2d(2), nn.Linear(4, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the scores of ten classes."""
        x = self.pool(self.up(self.depthwise(self.stem(image))))
        scores: torch.Tensor = self.classifier(x.mean((2, 3)))
        return scores


class Recurrent(nn.Module):
    """A bidirectional LSTM of two layers and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's states."""
        states: torch.Tensor = self.gru(self.lstm(x)[0])[0]
        return states


class Counter(nn.Module):
    """A module with state: it counts its calls in a buffer."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scaled inputs, and count."""
        self.calls += 1
        scaled: torch.Tensor = self.scale(x) * self.calls
        return scaled


class Views(nn.Module):
    """Weights that are read through views: slices, a transposed one, an expanded one, two halves of one memory."""

    mask: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.arange(800.0).view(100, 8) / 800)
        both = torch.ones(4, 8)
        for name, each in {"mask": torch.ones(1, 8).expand(16, 8), "low": both[:2], "high": both[2:]}.items():
            self.register_buffer(name, each)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sum of all of them."""
        table = torch.cat([self.positions[:8], self.positions.t()[:, 50:58].t()])
        return (x + table) * self.mask + self.low[0] + self.high[1]


class Changing(nn.Module):
    """Works in place: seen under another name by a later reader, and by nobody else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sum of what was changed."""
        y = x * 2
        before = torch.sigmoid(y)
        y[:, 0].zero_()
        z = (x + 1).relu_()
        kept = x.clone()
        kept.view(-1)[1:3] = 7.0
        return before + y + z.add_(before) + kept


class Infinite(nn.Module):
    """Numbers that JSON does not have: infinities of both signs and NaN, as masks and limits have them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a sum of finite numbers."""
        inf = float("inf")
        masked = torch.softmax(x.masked_fill(x < -1, -inf), -1) + torch.softmax(torch.where(x > 0, x, -inf), -1)
        limited = x.clamp(0.0, inf) + torch.relu(torch.full_like(x, -inf)) + torch.relu(x + -inf)
        replaced = torch.nan_to_num(x.masked_fill(x > 1, float("nan"))) + (x / 0).nan_to_num(0.0, 1.0, -1.0)
        return masked + limited + replaced + torch.relu(-torch.full((5, 8), inf))


class Regions(nn.Module):
    """Parts with a mode of their own: without gradients, in autocast, in none inside of it, in a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.norm, self.cell = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.GRU(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what the parts give; some of it twice, some as it came."""
        with torch.no_grad():
            scale = torch.relu(self.a(x)) * 2
            with torch.autocast("cpu", dtype=torch.bfloat16):
                low = self.norm(self.a(x) + scale)
                with torch.autocast("cpu", enabled=False):
                    high = self.b(low.float())
                low = self.b(high) + low + nn.functional.mse_loss(self.a(x), x) + self.cell(x)[0]
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            kept = x
        checked = torch.utils.checkpoint.checkpoint(self.b, self.a(x), use_reentrant=False)
        return low, high.sum(), self.b(low.float() + kept), checked, low


def examples() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """Return every module with arguments that it takes."""
    return {
        "tied": (Tied().eval(), (torch.zeros(2, 8, dtype=torch.long),)),
        "convolutional": (Convolutional().eval(), (torch.zeros(1, 3, 16, 16),)),
        "recurrent": (Recurrent().eval(), (torch.zeros(2, 7, 6),)),
        "counter": (Counter().eval(), (torch.zeros(3, 4),)),
        "changing": (Changing().eval(), (torch.zeros(16, 8),)),
        "infinite": (Infinite().eval(), (torch.zeros(5, 8),)),
        "regions": (Regions().eval(), (torch.zeros(5, 8),)),
        "views": (Views().eval(), (torch.zeros(16, 8),)),
        "perceptron": (nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 2)).eval(), (torch.zeros(5, 8),)),
    }
