"""From ``--objective``, ``--contiguity`` and the options of the variants to an execution model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

import typer

from placekit.cli.parameters import COMMON, OBJECTIVE
from placekit.model.contiguity import Contiguity
from placekit.model.errors import UnknownNameError
from placekit.model.platform import Platform
from placekit.objectives import Objective, get_objective

__all__ = ["GoalChoice", "ObjectiveChoice", "OverlapOption"]

OverlapOption = Annotated[
    bool | None, typer.Option("--overlap/--no-overlap", help="Devices compute and transfer at the same time.")
]


@dataclass(frozen=True)
class GoalChoice:
    """Objective and contiguity that the user chose; None where nothing was said."""

    panel: ClassVar[str] = OBJECTIVE
    beside: ClassVar[tuple[str, ...]] = ()
    """Fields that are no variant of the objective."""

    name: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="NAME",
            help="throughput (default for a model), offload-latency, makespan or serial-latency.",
            rich_help_panel=COMMON,
        ),
    ] = None
    contiguity: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Shape of each device's ops: none, convex or acyclic."),
    ] = None

    def objective(self, default: Objective | None = None) -> Objective | None:
        """Return the chosen objective; where nothing was said, `default` and its variant.

        Raises
        ------
        PlacekitError
            An unknown objective, or a variant that the objective does not have.
        """
        chosen = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in ("name", "contiguity", *self.beside)
        }
        variant = {name: value for name, value in chosen.items() if value is not None}
        if self.name is None and not variant:
            return default
        if self.name == "training-plan":
            raise UnknownNameError("no objective 'training-plan'; `placekit train-plan` plans the training of a model")
        name = self.name or (default.name if default else "throughput")
        inherited = default.to_dict() if default is not None and default.name == name else {}
        return get_objective(name, inherited | variant)

    def contiguity_or_none(self) -> Contiguity | None:
        """Return the chosen contiguity; None for the objective's own default.

        Raises
        ------
        UnknownNameError
            No contiguity has that name.
        """
        if self.contiguity is None:
            return None
        if self.contiguity not in set(Contiguity):
            raise UnknownNameError(f"no contiguity {self.contiguity!r}; it is one of {', '.join(Contiguity)}")
        return Contiguity(self.contiguity)


@dataclass(frozen=True)
class ObjectiveChoice(GoalChoice):
    """Objective, contiguity and variant that the user chose; None where nothing was said."""

    overlap: OverlapOption = None
    teams: Annotated[
        str | None,
        typer.Option(
            metavar="off|equal|any",
            help="throughput: devices may share the samples of the same ops (a model: equal).",
        ),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(metavar="1f1b|gpipe", help="throughput: schedule of backward ops."),
    ] = None
    subgraph_cost_s: Annotated[
        float | None,
        typer.Option("--subgraph-cost", metavar="SECONDS", help="serial-latency: fixed cost of each subgraph."),
    ] = None
    calls_per_device: Annotated[
        int | None,
        typer.Option("--calls", metavar="N", help="offload-latency: calls of each accelerator per sample (1)."),
    ] = None
    order: Annotated[
        str | None,
        typer.Option(metavar="fifo|upward-rank", help="makespan: which ready op a device starts first (fifo)."),
    ] = None
    contention: Annotated[bool | None, typer.Option(help="makespan: a device sends one tensor at a time.")] = None

    def for_model(self, platform: Platform | None = None) -> ObjectiveChoice:
        """Return the choice for a model: its equal devices may be teams in a throughput, unless something else is said.

        A copy on each of them is what a runtime makes of equal devices by itself: a plan without it can lose to that.
        Problem and workload files say themselves what they allow; teams know no direct links between devices.
        """
        is_throughput = self.name in (None, "throughput")
        is_open = is_throughput and self.teams is None and not (platform and platform.direct_links)
        return replace(self, teams="equal") if is_open else self
