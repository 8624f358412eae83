r"""The network of Placeto: message passing both ways, pooling around a node, a decision for it.

1. Every node starts from its own features, its present device, whether it was decided, whether it is its turn, and when
   it starts in the simulator relative to the node whose turn it is, :math:`y_v = FNN(x_v)`.
2. Two passes of a few rounds: :math:`x_v \leftarrow y_v + \mathrm{ReLU}(g(\sum_{u \in pred(v)} \mathrm{ReLU}(f(x_u))))`
   over predecessors, and the same with weights of its own over successors; concatenated.
3. For the node to place: the means over its ancestors, its descendants, and the nodes parallel to it, each through a
   network of its own, beside its own embedding; two layers; a logit per device. (Published: sums, which grow with the
   graph.)

Nothing depends on labels or on the size of the graph, so the policy carries over to other graphs.

Shapes
------
``B`` episodes, ``N`` nodes, ``R`` nodes decided at once, ``W`` width, ``D`` devices.

References
----------
Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed machine learning", NeurIPS
2019, arXiv 1906.08879, section 3.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["MessagePassing", "PlacetoNetwork"]


def _two_layers(width_in: int, hidden: int, width_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width_in, hidden), nn.ReLU(), nn.Linear(hidden, width_out))


class MessagePassing(nn.Module):
    """Rounds of messages along edges in one direction; step 2 of the module docstring.

    Parameters
    ----------
    width
        Width of the embeddings.
    rounds
        Number of rounds.
    """

    def __init__(self, width: int, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds
        self.say = _two_layers(width, width, width)
        self.hear = _two_layers(width, width, width)

    def forward(self, y: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Return ``[B, N, W]`` embeddings from `y` ``[B, N, W]`` and edges from `source` to `target`."""
        heard_of = y.new_zeros(y.shape[1], 1).index_fill(0, target, 1.0)  # nodes that hear of nobody keep their own
        x = y
        for _ in range(self.rounds):
            said = torch.relu(self.say(x))[:, source]
            total = torch.zeros_like(y).index_add(1, target, said)
            x = y + heard_of * torch.relu(self.hear(total))
        return x


class PlacetoNetwork(nn.Module):
    """Logits of some nodes and all devices; see the module docstring.

    Parameters
    ----------
    num_features, num_devices
        Width of the nodes' own features, and number of devices.
    width
        Width of the embeddings.
    rounds
        Rounds of message passing.

    Notes
    -----
    O(B (rounds (N W + E) W + R N W)) per call.
    """

    def __init__(self, num_features: int, num_devices: int, width: int, rounds: int) -> None:
        super().__init__()
        self.enter = _two_layers(num_features + num_devices + 3, width, width)
        self.forwards, self.backwards = MessagePassing(width, rounds), MessagePassing(width, rounds)
        self.pools = nn.ModuleList(_two_layers(2 * width, 2 * width, 2 * width) for _ in range(3))
        self.head = nn.Sequential(
            nn.Linear(8 * width, 16 * width),
            nn.ReLU(),
            nn.Linear(16 * width, 8 * width),
            nn.ReLU(),
            nn.Linear(8 * width, num_devices),
        )

    def forward(self, state: Tensor, senders: Tensor, receivers: Tensor, relations: Tensor, nodes: Tensor) -> Tensor:
        """Return logits ``[B, R, D]``.

        Parameters
        ----------
        state
            ``[B, N, features + D + 3]``: own features, one-hot of the present device, whether it was decided, whether
            it is its turn, and when it starts.
        senders, receivers
            Edges.
        relations
            ``[3, R, N]`` weights of the means over ancestors, descendants and parallel nodes.
        nodes
            ``[R]`` the nodes to decide.
        """
        y = self.enter(state)
        embedded = torch.cat([self.forwards(y, senders, receivers), self.backwards(y, receivers, senders)], dim=2)
        around = [relations[i] @ torch.relu(pool(embedded)) for i, pool in enumerate(self.pools)]
        logits: Tensor = self.head(torch.cat([embedded[:, nodes], *around], dim=2))
        return logits
