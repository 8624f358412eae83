"""From ``--objective``, ``--contiguity`` and the options of the variants to an execution model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

from placekit.cli.parameters import COMMON, OBJECTIVE, option, shared
from placekit.model.contiguity import Contiguity
from placekit.model.errors import UnknownNameError
from placekit.model.platform import Platform
from placekit.objectives import Objective, get_objective

OverlapOption = Annotated[bool | None, shared("Devices compute and transfer at the same time.")]


@dataclass(frozen=True)
class GoalChoice:
    """Objective and contiguity that the user chose; None where nothing was said."""

    panel: ClassVar[str] = OBJECTIVE
    beside: ClassVar[tuple[str, ...]] = ()
    """Fields that are no variant of the objective."""

    name: str | None = option(
        None,
        "throughput (default for a model), offload-latency, makespan or serial-latency.",
        "NAME",
        names="--objective",
        panel=COMMON,
    )
    contiguity: str | None = option(None, "Shape of each device's ops: none, convex or acyclic.", "RULE")

    def objective(self, default: Objective | None = None) -> Objective | None:
        """Return the chosen objective; where nothing was said, `default` and its variant."""
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
        """Return the chosen contiguity; None for the objective's own default."""
        if self.contiguity is None:
            return None
        if self.contiguity not in set(Contiguity):
            raise UnknownNameError(f"no contiguity {self.contiguity!r}; it is one of {', '.join(Contiguity)}")
        return Contiguity(self.contiguity)


@dataclass(frozen=True)
class ObjectiveChoice(GoalChoice):
    """Objective, contiguity and variant that the user chose; None where nothing was said."""

    overlap: OverlapOption = None
    teams: str | None = option(
        None, "throughput: devices may share the samples of the same ops (a model: equal).", "off|equal|any"
    )
    schedule: str | None = option(None, "throughput: schedule of backward ops.", "1f1b|gpipe")
    subgraph_cost_s: float | None = option(
        None, "serial-latency: fixed cost of each subgraph.", "SECONDS", names="--subgraph-cost"
    )
    calls_per_device: int | None = option(
        None, "offload-latency: calls of each accelerator per sample (1).", "N", names="--calls"
    )
    order: str | None = option(None, "makespan: which ready op a device starts first (fifo).", "fifo|upward-rank")
    contention: bool | None = option(None, "makespan: a device sends one tensor at a time.")
    steps: str | None = option(
        None,
        "makespan: the runtime follows the plan's order (runtime), or starts ops by --order (none).",
        "none|runtime",
    )

    def for_model(self, platform: Platform | None = None) -> ObjectiveChoice:
        """Return the choice for a model: its equal devices may be teams in a throughput, unless something else is said.

        A copy on each of them is what a runtime makes of equal devices by itself: a plan without it can lose to that.
        Problem and workload files say themselves what they allow; teams know no direct links between devices.
        """
        is_throughput = self.name in (None, "throughput")
        is_open = is_throughput and self.teams is None and not (platform and platform.direct_links)
        return replace(self, teams="equal") if is_open else self
