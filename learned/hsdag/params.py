"""Parameters of HSDAG, and the two forms in which it is compared: ``paper`` and ``placekit``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from placekit.learned.hsdag.parsing import COARSENINGS
from placekit.learned.learner import TrainingParams
from placekit.model.errors import InvalidProblemError

__all__ = ["FIDELITIES", "HsdagParams"]

_RETURNS = ("advantage", "step")


@dataclass(frozen=True)
class HsdagParams(TrainingParams):
    """Parameters of `Hsdag`. The defaults are those of the fidelity ``"placekit"``.

    Parameters
    ----------
    fidelity
        Which form: sets the defaults of all other parameters, see `FIDELITIES`.
    coarsening
        Which ops form a node: ``"classes"`` or ``"chains"`` (:mod:`placekit.learned.hsdag.parsing`).
    hidden
        Hidden width.
    dropout
        Rate in the networks, while sampling; 0 for none.
    levels
        How often the graph is parsed; 0 for until nothing changes, which leaves one group per connected component.
    min_groups
        Parsing ends with a level that has no more groups than this.
    scales_by_count
        True to scale the embedding of a group by the number of its edges.
    weighs_transfers
        True to let what it costs to cut an edge, over what sharing a device costs its ends, enter its score
        (:func:`placekit.learned.hsdag.parsing.NodeGraph.edge_costs`).
    steps
        Steps of an episode: the state is renewed after each, and all of them make one update.
    samples
        Placements drawn at every step, per level if `is_multilevel`.
    is_multilevel
        True to draw from the groups of every level, the nodes included; False to draw from the last level only.
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
    swap_weight
        Weight of swaps beside samples.
    restart
        Updates without a better placement after which the finest level, and with it the start, is left
        (:mod:`placekit.learned.hsdag.starts`); 0 for never.
    descend
        The same for coarser levels.
    returns
        ``"advantage"``: standardised, within samples of one level; ``"step"``: ``discount**t / cost`` at step t, as in
        the paper.
    discount
        See `returns`.
    without
        Feature groups to leave out, separated by commas (:mod:`placekit.learned.features`).

    Raises
    ------
    InvalidProblemError
        A value out of its range.
    """

    updates: int = 5000
    patience: int = 2000
    learning_rate: float = 1e-3
    entropy_start: float = 0.0
    entropy_end: float = 0.0
    fidelity: str = "placekit"
    coarsening: str = "classes"
    hidden: int = 64
    dropout: float = 0.0
    levels: int = 8
    min_groups: int = 2
    scales_by_count: bool = False
    weighs_transfers: bool = True
    steps: int = 2
    samples: int = 16
    is_multilevel: bool = True
    deviations: float = 3.0
    anneal_updates: int = 20
    has_residual: bool = True
    noise: float = 0.3
    swaps: int = 128
    swap_weight: float = 4.0
    restart: int = 15
    descend: int = 5
    returns: str = "advantage"
    discount: float = 1.0
    without: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (
            ("fidelity", tuple(FIDELITIES)),
            ("coarsening", COARSENINGS),
            ("returns", _RETURNS),
        ):
            if getattr(self, name) not in choices:
                raise InvalidProblemError(
                    f"hsdag: {name} is {getattr(self, name)!r}; it must be one of {', '.join(choices)}"
                )
        self.require("hidden", "min_groups", "steps", "samples", least=1)
        self.require("levels", "swaps", "swap_weight", "restart", "descend", "deviations", least=0)
        self.require("anneal_updates", "noise", "discount", least=0)
        if not 0 <= self.dropout < 1:
            raise InvalidProblemError(f"hsdag: dropout is {self.dropout}; it must be at least 0 and below 1")
        if self.returns != "advantage" and self.samples != 1:
            raise InvalidProblemError(f"hsdag: returns {self.returns!r} need samples = 1, not {self.samples}")

    @property
    def without_groups(self) -> tuple[str, ...]:
        """The feature groups to leave out."""
        return tuple(name.strip() for name in self.without.split(",") if name.strip())


FIDELITIES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "placekit": {},
        "paper": {
            "updates": 100,
            "patience": 0,
            "learning_rate": 1e-4,
            "max_grad_norm": 1e9,
            "coarsening": "chains",
            "hidden": 128,
            "dropout": 0.2,
            "levels": 1,
            "scales_by_count": True,
            "weighs_transfers": False,
            "steps": 20,
            "samples": 1,
            "is_multilevel": False,
            "deviations": 0.0,
            "has_residual": False,
            "noise": 0.0,
            "swaps": 0,
            "restart": 0,
            "returns": "step",
            "discount": 0.95,  # the paper names none; this is that of the released code
            "without": "bytes,flops,times",
        },
    }
)
"""What each form sets beside the defaults.

``paper``: the equations and table 6 as published. ``placekit``: groups on several levels, drawn from at once; many
samples per update with a baseline of their own; logits of bounded size, annealed; the answer of the policy without
randomness.
"""
