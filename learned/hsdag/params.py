"""Parameters of HSDAG, and the two forms in which it is compared: ``paper`` and ``placekit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from placekit.learned.learner import TrainingParams
from placekit.model.errors import InvalidProblemError


@dataclass(frozen=True)
class HsdagParams(TrainingParams):
    """Parameters of `Hsdag`. The defaults are those of the fidelity ``"placekit"``.

    Parameters
    ----------
    fidelity
        Which form: sets the defaults of all other parameters, see `FIDELITIES`.
    hidden
        Hidden width.
    dropout
        Rate in the networks, while sampling; 0 for none.
    levels
        How often the graph is parsed; 0 for until nothing changes, which leaves one group per connected component.
    min_groups
        Parsing ends with a level that has no more groups than this.
    steps
        Steps of an episode: the state is renewed after each, and all of them make one update.
    samples
        Placements drawn at every step, per level if there are several.
    deviations
        How many groups of a level leave the preferred device in a placement, about: bounds the logits. 0 leaves their
        scale to the network.
    anneal_updates
        Updates over which the bound rises from next to nothing, where every device is as likely as any other, to its
        final value; as many as there are nodes where those are fewer. 0, or a warm start: begin near the best single
        device, or near the warm start, with the final bound.
    has_residual
        True to add logits per node that are trained for this problem alone.
    noise
        Deviation of the noise on the logits of edge scores while sampling, so that groups vary.
    swaps
        Placements of every step and level that differ from a sample in the device of one group. What one gains is due
        to that group alone (a counterfactual baseline: Foerster et al., AAAI 2018), whatever the others do.
    restart
        Updates without a better placement after which the finest level, and with it the start, is left
        (:mod:`placekit.learned.hsdag.starts`); 0 for never.
    """

    updates: int = 5000
    patience: int = 2000
    learning_rate: float = 1e-3
    entropy_start: float = 0.0
    entropy_end: float = 0.0
    fidelity: str = "placekit"
    hidden: int = 64
    dropout: float = 0.0
    levels: int = 8
    min_groups: int = 2
    steps: int = 2
    samples: int = 16
    deviations: float = 3.0
    anneal_updates: int = 20
    has_residual: bool = True
    noise: float = 0.3
    swaps: int = 128
    restart: int = 15

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fidelity not in FIDELITIES:
            raise InvalidProblemError(
                f"hsdag: fidelity is {self.fidelity!r}; it must be one of {', '.join(FIDELITIES)}"
            )
        self.require("hidden", "min_groups", "steps", "samples", least=1)
        self.require("levels", "swaps", "restart", "deviations", least=0)
        self.require("anneal_updates", "noise", least=0)
        if not 0 <= self.dropout < 1:
            raise InvalidProblemError(f"hsdag: dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.is_paper and self.samples != 1:
            raise InvalidProblemError(f"hsdag: fidelity 'paper' needs samples = 1, not {self.samples}")

    @property
    def is_paper(self) -> bool:
        """True for the form of the paper, see `FIDELITIES`."""
        return self.fidelity == "paper"


FIDELITIES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "placekit": {},
        "paper": {
            "updates": 100,
            "patience": 0,
            "learning_rate": 1e-4,
            "max_grad_norm": 1e9,
            "hidden": 128,
            "dropout": 0.2,
            "levels": 1,
            "steps": 20,
            "samples": 1,
            "deviations": 0.0,
            "has_residual": False,
            "noise": 0.0,
            "swaps": 0,
            "restart": 0,
        },
    }
)
"""What each form sets beside the defaults.

``paper``: the equations and table 6 as published: nodes are chains of ops, groups of the last level are placed, their
embeddings are scaled by their numbers of edges, features have no costs, and returns are discounted per step.

``placekit``: groups on several levels, the nodes included, drawn from at once; many samples per update with a baseline
of their own; logits of bounded size, annealed; scores of edges know what a cut costs
(:func:`placekit.learned.hsdag.parsing.NodeGraph.edge_costs`); the answer of the policy without randomness.
"""
