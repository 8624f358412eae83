"""The answer of the planner of language models: the plan, its numbers, and what it is better than."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from placekit.language.compared.rivals import Rival
from placekit.language.compared.variants import Variant
from placekit.language.planning.context import ContextPoint, room_for_context
from placekit.language.planning.plan import ServingPlan
from placekit.language.planning.question import GivenModel
from placekit.language.report import ServingReport
from placekit.language.runtimes.launch import servers
from placekit.language.runtimes.record import Launch
from placekit.language.task import LanguageTask
from placekit.language.truth import PUBLISHED, class_of_plan
from placekit.model.blocks.block_paths import block_numbers
from placekit.model.platform import Platform
from placekit.solve.result import Result


@dataclass(frozen=True)
class Place:
    """Blocks on a device, or on a team that computes them together."""

    device: str
    members: tuple[str, ...]  # of the team; the device alone without one
    is_host: bool
    blocks: int  # whole blocks, or with cards those whose attention is there

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"members": list(self.members)}


@dataclass(frozen=True)
class Speed:
    """Tokens per second of a phase as llama-bench counts them, of all sequences in flight together."""

    tokens_per_s: float
    least: float | None = None  # least, most: the range that two of three measurements like this are within
    most: float | None = None
    factor: float | None = None  # of the range; None where no measurements are like this
    full_tokens_per_s: float | None = None  # with the cache filled to the context


@dataclass(frozen=True)
class ContextRoom:
    """Tokens of a sequence that there is room for."""

    planned: int
    longest: int | None  # on the devices of the plan as they are; None without a plan
    limit: int | None  # of the model itself; None if nothing says so
    asked: int | None  # by the user; None for the default


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
    rivals: tuple[Rival, ...] = ()  # the runtime's own choice, and plans for fewer cards
    precisions: tuple[Variant, ...] = ()  # the model in every precision that was asked for; empty for one
    exchanged: tuple[Variant, ...] = ()  # with another card, for every exchange that was asked for
    full: ServingReport | None = None  # what the plan delivers with the cache filled to the context
    asked_context: int | None = None  # that the user asked for; None for the default

    @property
    def result(self) -> Result:
        """Placement, bound and status of the best plan."""
        return self.plan.result

    @property
    def report(self) -> ServingReport | None:
        """Delivery of the best plan; None if nothing fits."""
        return self.plan.report

    @property
    def servers(self) -> dict[str, Launch]:
        """Lines of every server: one called ``""``, or one for each phase; empty without a runtime or a placement.

        A file with the ops of a model is started as `launch` says.
        """
        placement, runtime = self.plan.result.placement, self.plan.runtime
        if runtime is None or placement is None or self.model.description is None:
            return {}
        return servers(runtime.name, self.plan.task.problem, placement)

    @property
    def places(self) -> tuple[Place, ...]:
        """Devices with blocks, in the order of the blocks."""
        placement, problem = self.plan.result.placement, self.plan.task.problem
        if placement is None:
            return ()
        number, home, found = block_numbers(problem.graph), placement.device_of_op, []
        for at in dict.fromkeys(home[(order := np.argsort(number, kind="stable"))[number[order] >= 0]].tolist()):
            held = len(np.unique(number[(home == at) & (number >= 0)]))
            device = problem.platform.devices[at]
            names = [
                problem.platform.devices[member].name
                for members in placement.teams
                if at in members
                for member in members
            ]
            found.append(Place(placement.team_name(at), tuple(names), device.is_host, held))
        return tuple(found)

    @property
    def context(self) -> ContextRoom:
        """Context lengths: planned, longest, the model's limit, and what was asked for."""
        description = self.plan.task.description
        limit = None if description is None else description.trained_tokens
        return ContextRoom(self.plan.task.serving.context, room_for_context(self.plan), limit, self.asked_context)

    @property
    def speeds(self) -> dict[str, Speed]:
        """Speeds of ``"prompt"`` and ``"generated"``, with their ranges; empty without a plan."""
        report, full = self.plan.report, self.full
        if report is None:
            return {}
        rates = {
            "prompt": (report.prompt_tokens_per_s, None if full is None else full.prompt_tokens_per_s),
            "generated": (report.generated_tokens_per_s, None if full is None else full.generated_tokens_per_s),
        }
        is_like = self.plan.runtime is not None and self.plan.runtime.bench and self.plan.task.serving.sequences == 1
        found = {}
        for what, (rate, filled) in rates.items():
            factor = PUBLISHED[what].get(self.split_class) if is_like and not self.is_measured else None
            if rate:
                least, most = (rate / factor, rate * factor) if factor else (None, None)
                found[what] = Speed(rate, least, most, factor, filled)
        return found

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
    def range_from(self) -> str:
        """Source of the ranges of speeds: ``"measured"`` devices, ``"published"`` measurements, or ``"none"``."""
        if self.plan.report is not None and self.is_measured:
            return "measured"
        return "published" if any(each.factor for each in self.speeds.values()) else "none"

    def to_dict(self) -> dict[str, Any]:
        """Return what the result does not have, as JSON values."""
        report, runtime, task = self.plan.report, self.plan.runtime, self.plan.task
        return {
            "model": model_numbers(self.model, task),
            "serving": None if report is None else report.to_dict(),
            "requests": {
                name: getattr(task.serving, name)
                for name in ("prompt", "generated", "sequences", "batch", "chunk", "depth")
            },
            "places": [each.to_dict() for each in self.places],
            "hosted_blocks": task.hosted_blocks,
            "speed": {what: asdict(each) for what, each in self.speeds.items()},
            "range": None if report is None else {"class": self.split_class, "from": self.range_from},
            "context": asdict(self.context),
            "rivals": [each.to_dict(self.plan) for each in self.rivals],
            "precisions": [each.to_dict() for each in self.precisions],
            "instead": [each.to_dict() for each in self.exchanged],
            "runtime": None if runtime is None else runtime.name,
            "space": None if runtime is None else runtime.space,
            "not_tried": [] if runtime is None else list(runtime.not_searched),
            "headroom_bytes": self.headroom_bytes,
            "compared": {names: None if plan is None else plan.tokens_per_s for names, plan in self.compared.items()},
            "experts": {what: None if plan is None else plan.tokens_per_s for what, plan in self.experts.items()},
            "phases": {where: plan.tokens_per_s for where, plan in self.phases.items()},
            "tried": [tried_numbers(plan) for plan in self.tried],
            "contexts": [
                {
                    "context": each.context,
                    **{name: getattr(each.plan.report, name) for name in _OF_POINTS},
                    "devices": 0 if each.plan.report is None else len(each.plan.report.memory),
                }
                for each in self.points
            ],
            "launch": list(self.launch),
            "measured": list(self.measured),
            "kernels": list(self.kernels),
        }

    @property
    def headroom_bytes(self) -> dict[str, float]:
        """Bytes of every device with a limit that stay free."""
        usable = {
            name: device.memory_bytes / device.degree
            for device in self.plan.task.platform.devices
            if device.memory_bytes is not None
            for name in device.member_names
        }
        return {
            device.name: device.memory_bytes - usable[device.name]
            for device in self.machine.devices
            if device.memory_bytes is not None and device.name in usable
        }


_OF_POINTS = ("tokens_per_s", "prompt_tokens_per_s", "generated_tokens_per_s", "time_per_token_s")


def model_numbers(model: GivenModel, task: LanguageTask) -> dict[str, Any]:
    """Return the numbers of a model as JSON values."""
    weights = task.held_bytes(np.ones(len(task.weight_bytes), dtype=bool)) + task.hosted_bytes
    told: dict[str, Any] = {"name": model.called, "weight_bytes": weights}
    description = task.description
    if description is None:
        return told | {"blocks": int((task.cache_bytes > 0).sum())}
    return told | {
        "family": description.family,
        "precision": description.precision,
        "parameters": description.parameters,
        "active_parameters": description.active_parameters,
        "lookup_parameters": description.lookup_parameters,
        "bits_per_weight": 8 * description.weight_bytes / description.parameters,
        "blocks": len(description.blocks),
        "predicting_blocks": len(description.speculative),
        "hidden": description.hidden,
        "vocab": description.vocab,
        "cache_values_per_token": description.cache_values,
        "state_bytes": description.state_bytes,
        "kinds": description.kinds(),
    }


def tried_numbers(plan: ServingPlan) -> dict[str, Any]:
    """Return what was tried, and what it delivers, as JSON values."""
    report = plan.report
    return {
        "batch": plan.task.serving.batch,
        "degree": max(device.degree for device in plan.task.problem.platform.devices),
        "hosted_blocks": plan.task.hosted_blocks,
        "devices": None if report is None else [each.device for each in report.memory],
        "tokens_per_s": None if report is None else report.tokens_per_s,
        "prompt_tokens_per_s": None if report is None else report.prompt_tokens_per_s,
        "generated_tokens_per_s": None if report is None else report.generated_tokens_per_s,
    }
