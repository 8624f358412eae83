"""The answer of the planner of language models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placekit.language.planning.context import ContextPoint
from placekit.language.planning.plan import ServingPlan
from placekit.language.planning.question import GivenModel
from placekit.language.report import ServingReport
from placekit.language.runtimes.launch import servers
from placekit.language.runtimes.record import Launch
from placekit.language.truth import PUBLISHED, class_of_plan
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.platform import Platform
from placekit.solve.result import Result


@dataclass(frozen=True)
class Answer:
    """The best plan, what it was compared with, and what starts it."""

    model: GivenModel
    plan: ServingPlan
    tried: tuple[ServingPlan, ...]  # of every batch size, degree and number of hosted experts that was solved
    headroom: str  # what stays free of every memory
    machine: Platform  # with all of its memory
    pins: Mapping[str, str]  # device by op or pattern, as given
    compared: Mapping[str, ServingPlan | None]  # that runtimes can follow, by the names of those of equal rules
    points: tuple[ContextPoint, ...]  # from the fastest to the longest context
    launch: tuple[str, ...]  # lines that start the runtime
    experts: Mapping[str, ServingPlan | None]  # with experts on the host and without; empty where no plan has any there
    phases: Mapping[str, ServingPlan]  # prefill and decode on the same devices, and apart; empty if not asked for
    measured: Mapping[str, str]  # words for the measurements of a device, by its kind; empty without any
    kernels: Mapping[str, str]  # words for the measured share of kernel times, by kind and phase; empty without any

    @property
    def result(self) -> Result:
        """Placement, bound and status of the best plan."""
        return self.plan.result

    @property
    def report(self) -> ServingReport | None:
        """What the best plan delivers; None if nothing fits."""
        return self.plan.report

    @property
    def servers(self) -> dict[str, Launch]:
        """What starts every server: one called ``""``, or one for each phase; empty without a runtime or a placement.

        A file with the ops of a model is started as `launch` says.
        """
        placement, runtime = self.plan.result.placement, self.plan.runtime
        if runtime is None or placement is None or self.model.description is None:
            return {}
        return servers(runtime.name, self.plan.task.problem, placement)

    @property
    def split_class(self) -> str:
        """Class of the split, as of published measurements."""
        placement = self.plan.result.placement
        assert placement is not None
        return class_of_plan(self.plan.task, placement)

    @property
    def is_measured(self) -> bool:
        """True if every device with a block was measured."""
        placement = self.plan.result.placement
        assert placement is not None
        devices, blocks = self.plan.task.problem.platform.devices, block_numbers(self.plan.task.problem.graph)
        used = {devices[int(at)].kind for at in placement.device_of_op[blocks >= 0]}
        return used <= self.measured.keys()

    @property
    def bench(self) -> dict[str, dict[str, float | None]]:
        """Tokens per second as llama-bench counts them, with the factor that predictions are within.

        ``"prompt"`` and ``"generated"``; empty for other runtimes, or several sequences in a batch.
        """
        plan, serving = self.plan, self.plan.task.serving
        report = plan.report
        if plan.runtime is None or plan.runtime.bench is None or report is None or serving.batch > 1:
            return {}
        told = (
            ("prompt", report.time_to_first_token_s, serving.prompt), ("generated", report.time_per_token_s, 1)
        )  # fmt: skip
        return {
            what: {
                "tokens_per_s": tokens / seconds,
                "factor": None if self.is_measured else PUBLISHED[what].get(self.split_class),
            }
            for what, seconds, tokens in told
            if seconds
        }

    def to_dict(self) -> dict[str, Any]:
        """Return what the result does not have, as JSON values."""
        report, runtime = self.plan.report, self.plan.runtime
        return {
            "serving": None if report is None else report.to_dict(),
            "runtime": None if runtime is None else runtime.name,
            "space": None if runtime is None else runtime.space,
            "headroom": self.headroom,
            "compared": {names: None if plan is None else plan.tokens_per_s for names, plan in self.compared.items()},
            "experts": {what: None if plan is None else plan.tokens_per_s for what, plan in self.experts.items()},
            "phases": {where: plan.tokens_per_s for where, plan in self.phases.items()},
            "contexts": [{"context": each.context, "tokens_per_s": each.plan.tokens_per_s} for each in self.points],
            "launch": list(self.launch),
            "llama_bench": self.bench,
            "measured": dict(self.measured),
            "kernels": dict(self.kernels),
        }
