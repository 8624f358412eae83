"""From ``--objective``, ``--contiguity`` and the options of the variants to an execution model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from placekit.model.errors import UnknownNameError

if TYPE_CHECKING:
    from placekit.model.contiguity import Contiguity
    from placekit.model.platform import Platform
    from placekit.objectives import Objective

__all__ = ["ContiguityOption", "ObjectiveChoice", "ObjectiveOption"]

ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="throughput, offload-latency, makespan, serial-latency, for solve training-plan; default: as the file "
        "says, throughput for a model.",
    ),
]
ContiguityOption = Annotated[
    str | None, typer.Option("--contiguity", metavar="RULE", help="none, convex or acyclic; default: the objective's.")
]


@dataclass(frozen=True)
class ObjectiveChoice:
    """What the user said about the objective; None where nothing was said.

    Parameters
    ----------
    name
        A name from :data:`placekit.objectives.OBJECTIVES`.
    contiguity
        ``"none"``, ``"convex"`` or ``"acyclic"``.
    overlap, schedule, subgraph_cost_s, calls_per_device, order, contention, teams
        The variants.
    """

    name: ObjectiveOption = None
    contiguity: ContiguityOption = None
    overlap: Annotated[
        bool | None, typer.Option("--overlap/--no-overlap", help="Devices compute and transfer at the same time.")
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="1f1b|gpipe",
            help="Schedule of a training pipeline; training-plan: also interleaved.",
        ),
    ] = None
    subgraph_cost_s: Annotated[
        float | None,
        typer.Option("--subgraph-cost", metavar="SECONDS", help="serial-latency: fixed cost of a subgraph."),
    ] = None
    calls_per_device: Annotated[
        int | None,
        typer.Option("--calls", metavar="N", help="offload-latency: calls per accelerator and sample (1)."),
    ] = None
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="fifo|upward-rank", help="makespan: which ready op a device starts (fifo)."),
    ] = None
    contention: Annotated[
        bool | None, typer.Option("--contention/--no-contention", help="makespan: one transfer at a time per sender.")
    ] = None
    teams: Annotated[
        str | None,
        typer.Option(
            "--teams",
            metavar="off|equal|any",
            help="throughput: devices that share the samples of the same ops; a model: equal, a file: as it says.",
        ),
    ] = None

    def objective(self, default: Objective | None = None) -> Objective | None:
        """Return the chosen objective; where nothing was said, `default` and its variant.

        Raises
        ------
        PlacekitError
            An unknown objective, or a variant that the objective does not have.
        """
        from placekit.objectives import get_objective

        given = {
            "overlap": self.overlap,
            "schedule": self.schedule,
            "subgraph_cost_s": self.subgraph_cost_s,
            "calls_per_device": self.calls_per_device,
            "order": self.order,
            "contention": self.contention,
            "teams": self.teams,
        }
        variant = {name: value for name, value in given.items() if value is not None}
        if self.name is None and not variant:
            return default
        name = self.name or (default.name if default else "throughput")
        inherited = default.to_dict() if default is not None and default.name == name else {}
        return get_objective(name, inherited | variant)

    def for_model(self, platform: Platform | None = None) -> ObjectiveChoice:
        """Return the choice for a model: its equal devices may be teams in a throughput, unless something else is said.

        A copy on each of them is what a runtime makes of equal devices by itself: a plan without it can lose to that.
        Problem and workload files say themselves what they allow; teams know no direct links between devices.
        """
        is_throughput = self.name in (None, "throughput")
        is_open = is_throughput and self.teams is None and not (platform and platform.direct_links)
        return replace(self, teams="equal") if is_open else self

    def contiguity_or_none(self) -> Contiguity | None:
        """Return the chosen contiguity; None for the objective's own default.

        Raises
        ------
        UnknownNameError
            No contiguity has that name.
        """
        from placekit.model.contiguity import Contiguity

        if self.contiguity is None:
            return None
        if self.contiguity not in set(Contiguity):
            raise UnknownNameError(f"no contiguity {self.contiguity!r}; it is one of {', '.join(Contiguity)}")
        return Contiguity(self.contiguity)
