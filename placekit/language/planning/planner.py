"""The planner of language models: where blocks go, for a runtime or for none, and what starts it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self

from placekit.advice.verdict import verdict, with_verdict
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.sheets.cards import KERNELS
from placekit.cost_models.sheets.sheet_memory import leave_free, warn_of_unlimited, with_sheet_memory
from placekit.language.compared.filled import filled_report
from placekit.language.compared.rivals import Rival, fewer_cards, is_no_worse, own_choice
from placekit.language.compared.variants import Variant, with_cards
from placekit.language.decoder import Decoder
from placekit.language.description import PREDICTING, ModelDescription
from placekit.language.planning.answer import Answer
from placekit.language.planning.apart import apart_cases
from placekit.language.planning.context import ContextPoint, context_points, longest_context, rounded
from placekit.language.planning.kernel_times import KernelTimes, with_kernel_times
from placekit.language.planning.measured import MeasuredDevices, with_measured
from placekit.language.planning.plan import ServingPlan, fastest, first_card, made_with_room, plan_cases, plans
from placekit.language.planning.question import GivenModel, Search, Wishes
from placekit.language.precision import split_precisions
from placekit.language.report import ServingReport, serving_report
from placekit.language.runtimes import DEFAULT_HEADROOM, get_runtime, loadable
from placekit.language.runtimes.launch import launch_lines
from placekit.language.runtimes.llama.rpc import as_one_machine
from placekit.language.runtimes.llama.server_steps import with_server_steps
from placekit.language.runtimes.machine_order import startable
from placekit.language.runtimes.record import Runtime
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm
from placekit.model.errors import InvalidProblemError, NoRoomError, PlacekitError
from placekit.model.platform import Device, Platform
from placekit.model.reprs import short_list
from placekit.model.served import Served
from placekit.objectives import SerialLatency
from placekit.objectives.evaluate import evaluate
from placekit.solve.result import Status

_LOGGER = logging.getLogger(__name__)


def plan_serving(
    model: str | Path | Decoder | ModelDescription | GivenModel,
    platform: Platform,
    runtime: str | Runtime | None = None,
    *,
    precision: str | None = None,
    wishes: Wishes | None = None,
    search: Search | None = None,
) -> Answer:
    """Return where the blocks of a language model go, how fast that is served, and what starts it.

    Parameters
    ----------
    model
        A ``config.json`` of transformers or its folder, a GGUF file, a file with the ops of a model, a name of
        `placekit.language.decoder.DECODERS`, or a shape.
    platform
        The devices with all of their memory; where there is no limit, it is that of the data sheet.
    runtime
        Whose rules hold, by name: ``"llama.cpp"``, ``"vllm"``, ... None for no runtime's.
    precision
        Of weights, instead of that of a name or a configuration: a name of `placekit.language.precision.PRECISIONS`, or
        bits (``"4.9"``). Of several (``"q4_k_m,q8_0,f16"``) the first that fits is planned, and all are compared.
    wishes
        Requests, goal and constraints; one sequence of 512 + 128 tokens if None.
    search
        How cases are solved; each to its optimum if None, where the ops are a chain.

    Returns
    -------
    Answer
        The placement with its proof (``result``), what it delivers (``report``), what was ``tried``, and the lines that
        start it (``launch``). Without a placement where the model does not fit.

    Raises
    ------
    PlacekitError
        A model or a runtime that is not known, or a runtime that cannot run the model on these devices.

    Examples
    --------
    >>> import placekit as pk
    >>> platform = pk.Platform.of(rtx4090=1, memory_bytes={"rtx4090": 24e9}, links={"rtx4090": pk.Link(2e-5, 2e10)})
    >>> plan = pk.plan_serving("llama3-8b", platform, "llama.cpp", precision="int4")
    >>> plan.result.status, plan.launch[0].split(" --fit")[0]
    (<Status.OPTIMAL: 'optimal'>, 'llama-server -m llama3-8b.gguf --n-gpu-layers 33 --split-mode layer')
    """
    record = get_runtime(runtime) if isinstance(runtime, str) else runtime
    models = [GivenModel.of(model, each) for each in split_precisions(precision)]
    return plan_models(models, platform, record, wishes or Wishes(), search or Search())


def plan_models(
    models: Sequence[GivenModel], platform: Platform, runtime: Runtime | None, wishes: Wishes, search: Search
) -> Answer:
    """Return the plan of the first of some models that fits, compared with all of them, and with other cards.

    The models are one in several precisions. See `plan_serving` for what is raised.
    """
    plain = replace(wishes, compares=False, instead={})
    answers: list[tuple[GivenModel, Answer | None]] = []
    main: Answer | None = None
    for model in models:
        answer = None
        try:
            answer = Planner.of(model, platform, runtime, wishes if main is None else plain, search).answer()
        except InvalidProblemError:  # activations of a step alone do not fit
            if len(models) == 1 or (main is None and model is models[-1] and not any(each for _, each in answers)):
                raise
        main = answer if main is None and answer is not None and answer.report is not None else main
        answers.append((model, answer))
    main = main or next(answer for _, answer in answers if answer is not None)
    exchanged = [
        variant_of(what, main.model, Planner.of(main.model, machine, runtime, plain, search).answer())
        for what, machine in with_cards(with_sheet_memory(platform), wishes.instead).items()
    ]
    precisions = [
        variant_of("" if model.description is None else model.description.precision, model, answer)
        for model, answer in answers
    ]
    return replace(main, precisions=tuple(precisions) if len(models) > 1 else (), exchanged=tuple(exchanged))


def variant_of(what: str, model: GivenModel, answer: Answer | None) -> Variant:
    """Return what a changed question delivers."""
    report = None if answer is None else answer.report
    described = model.description
    weights = 0.0 if described is None else described.weight_bytes
    return Variant(
        what, report is not None, weights, None if described is None else 8 * weights / described.parameters,
        None if answer is None else answer.context.longest,
        None if report is None else report.prompt_tokens_per_s,
        None if report is None else report.generated_tokens_per_s,
        None if report is None else report.tokens_per_s,
        () if answer is None else answer.launch,
    )  # fmt: skip


@dataclass(frozen=True)
class Planner:
    """Planner for one model, one platform and the options."""

    model: GivenModel
    machine: Platform  # with all of its memory
    usable: Platform  # without the headroom
    runtime: Runtime | None  # whose rules hold
    headroom: str  # words for what stays free
    rates: MeasuredDevices  # costs, with words for the measurements of a device by its kind
    wishes: Wishes
    search: Search
    kernels: KernelTimes | None = None  # measured times of kernels, in place of rates

    @classmethod
    def of(cls, model: GivenModel, platform: Platform, runtime: Runtime | None, wishes: Wishes, search: Search) -> Self:
        """Return the planner of a model on the devices of a platform."""
        machine = with_sheet_memory(platform)
        machine = as_one_machine(machine) if runtime is not None and runtime.has_rpc else machine
        model = model.for_runtime(runtime)
        costs = Analytic.from_platform_file(machine, KERNELS["general" if runtime is None else runtime.kernels])
        machine = costs.with_links(machine)
        warn_of_unlimited(machine)
        _warn_of_kernels(runtime, machine, model, wishes.cache_precision)
        rates = with_measured(costs, machine, wishes.measured, model.description)
        usable, headroom = usable_memory(machine, wishes.headroom, runtime, model.description)
        name = None if runtime is None else runtime.name
        kernels = wishes.kernels and KernelTimes.of(wishes.kernels, name, model.name, model.description)
        return cls(model, machine, usable, runtime, headroom, rates, wishes, search, kernels or None)

    def answer(self) -> Answer:
        """Return the plan, its comparisons and its launch lines."""
        description = self.model.description
        serving = self.wishes.served(self.runtime, None if description is None else description.trained_tokens)
        found: list[ServingPlan] = []
        has_default = not self.wishes.serving.has_own_context
        with suppress(NoRoomError) if has_default else nullcontext():
            found = self.plans(serving, self.runtime)
        if has_default and not any(plan.report for plan in found):
            serving = self._with_room(serving)  # the default context is longer than what fits
            found = self.plans(serving, self.runtime)
        plan, experts = fastest(found), self._experts(found, serving)
        phases = self._phases(plan, serving)
        plan = fastest([*phases.values(), plan])
        points: tuple[ContextPoint, ...] = ()
        if self.wishes.goal == "context" and plan.report is not None:
            points = tuple(
                context_points(lambda served: fastest(self.plans(served, self.runtime)), self._cases, serving, plan)
            )
            plan = points[-1].plan if points else plan
        plan = started(settled(plan))
        launch: tuple[str, ...] = ()
        compared: dict[str, ServingPlan | None] = {}
        if self.runtime is not None and plan.result.placement is not None:
            launch = launch_lines(self.runtime.name, self.model.name, plan.task.problem, plan.result.placement)
        elif plan.report is not None and self.wishes.granularity == "layer" and self.wishes.compares:
            compared = {names: self._plan_or_none(plan.task.serving, rule) for names, rule in self._rules()}
        return Answer(
            self.model, plan, tuple(found), self.headroom, self.machine, self.wishes.pins, compared, points, launch,
            experts, phases, self.rates.told, {} if self.kernels is None else self.kernels.told(plan.task),
            rivals=tuple(self._rivals(plan)), full=self._filled(plan),
            asked_context=self.wishes.serving.context if self.wishes.serving.has_own_context else None,
        )  # fmt: skip

    def _with_room(self, serving: Serving) -> Serving:
        """Return the requests with the longest context that fits, up to the present one; the same if none does."""
        least = replace(serving, context=serving.prompt + serving.generated)
        longest = longest_context(self._cases, least)
        return (
            serving if longest is None else replace(serving, context=rounded(longest, least.context, serving.context))
        )

    def _rivals(self, plan: ServingPlan) -> Iterator[Rival]:
        """Yield what the plan is better than."""
        is_plain = plan.task.undivided is None and self.wishes.granularity == "layer" and not self.wishes.pins
        if plan.report is None or not is_plain or not self.wishes.compares:
            return
        serving, runtime = plan.task.serving, self.runtime
        devices = self.usable if runtime is None else runtime.devices(self.usable)
        form = TaskForm(SerialLatency())
        yield from own_choice(plan, lambda platform: self.made(runtime, serving, platform, form=form), devices)
        fewer = replace(self, wishes=replace(self.wishes, batch=serving.batch))
        specs = self.rates.costs.spec_of_kind(self.machine)

        def beats(one: Device, other: Device) -> bool:
            return self.kernels is None and is_no_worse(one, other, self.usable, specs)

        yield from fewer_cards(plan, devices, lambda platform: fastest(fewer.plans(serving, runtime, platform)), beats)

    def _filled(self, plan: ServingPlan) -> ServingReport | None:
        """Return what a plan delivers with the cache filled to the context; None where its costs are not known then."""
        served, rule = plan.task.serving.filled, None if self.runtime is None else self.runtime.host
        if served == plan.task.serving or plan.report is None:
            return plan.report
        if plan.task.description is None or plan.task.undivided is not None or rule == "last":
            return None
        devices = self.usable if self.runtime is None else self.runtime.devices(self.usable)
        teams = tuple(
            tuple(devices.index(name) for name in device.member_names) for device in plan.task.problem.platform.devices
        )
        form = TaskForm(plan.task.problem.objective, tensor_teams=teams if max(map(len, teams)) > 1 else ())
        task = made_with_room(lambda platform: self.made(self.runtime, served, platform, form=form), devices)
        return filled_report(plan, task)

    def plans(
        self, serving: Serving, runtime: Runtime | None, platform: Platform | None = None, *, apart: bool = False
    ) -> list[ServingPlan]:
        """Return one plan for every case (batch size, degree, experts), on `platform` or all usable devices."""
        wishes = self.wishes
        cases = chain.from_iterable(
            plan_cases(
                partial(self.made, runtime), each, platform or self.usable, runtime, batch=wishes.batch,
                goal=wishes.goal, objective=wishes.objective, contiguity=wishes.contiguity, pins=wishes.pins,
                degrees=self._degrees(runtime),
            )
            for each in self._steps(serving, runtime)
        )  # fmt: skip
        solve = self.search.start(is_even=runtime is not None)
        return plans(apart_cases(cases) if apart else cases, solve, runtime)

    def _steps(self, serving: Serving, runtime: Runtime | None) -> Iterator[Serving]:
        """Yield the requests in steps of prefill of the runtime's size, and in larger ones that prompts fill."""
        yield serving
        wishes = self.wishes
        is_free = wishes.serving.chunk is None and not wishes.whole_prompts and wishes.goal != "context"
        for chunk in runtime.larger_chunks if runtime is not None and is_free else ():
            if serving.prompt > (serving.chunk or serving.prompt) and serving.prompt * 2 > chunk:
                yield replace(serving, chunk=chunk)

    def _phases(self, shared: ServingPlan, serving: Serving) -> dict[str, ServingPlan]:
        """Return, with `--apart`, the plan with shared devices and the one with the phases apart."""
        if not self.wishes.apart:
            return {}
        if self.runtime is not None and not self.runtime.has_phases_apart:
            raise InvalidProblemError(f"{self.runtime.name} serves both phases by one server: leave out --apart")
        apart = fastest(self.plans(serving, self.runtime, apart=True))
        return {"on the same devices": shared, "apart": apart}

    def _experts(self, found: list[ServingPlan], serving: Serving) -> dict[str, ServingPlan | None]:
        """Return the best plans with experts on the host, without, and on the host alone; empty without the first."""
        hosted = [plan for plan in found if plan.task.hosted_blocks and plan.report is not None]
        if not hosted:
            return {}
        best = fastest(hosted)
        host = self.usable.with_devices([device for device in self.usable.devices if device.is_host])
        alone: ServingPlan | None = None
        with suppress(PlacekitError):  # the host may lack memory for activations
            alone = fastest(self.plans(serving, self.runtime, host))
        return {
            f"{best.task.hosted_layers} of {best.task.hosted_blocks} blocks on the host": best,
            "whole blocks only": fastest([plan for plan in found if not plan.task.hosted_blocks]),
            f"{host.device_names[0]} alone": alone,
        }

    def _degrees(self, runtime: Runtime | None) -> tuple[int, ...]:
        """Return the tensor-parallel degrees to try; only 1 to compare with a runtime that has no others."""
        is_compared = runtime is not None and self.runtime is None and not runtime.is_parallel
        return (1,) if is_compared else self.wishes.degrees

    def _plan_or_none(self, serving: Serving, runtime: Runtime) -> ServingPlan | None:
        """Return the best plan under the rules of a runtime; None if it cannot run the model on these devices."""
        try:
            return fastest(self.plans(serving, runtime))
        except PlacekitError:
            return None

    def made(self, runtime: Runtime | None, serving: Serving, platform: Platform, *, form: TaskForm) -> LanguageTask:
        """Return the task, whose problem says what is served: exports need it."""
        task = self.model.task(self.rates.costs, self.wishes, serving, platform, form=form)
        task = task if self.kernels is None else with_kernel_times(task, self.kernels)
        task = with_server_steps(task)
        blocks = () if task.description is None else task.description.blocks
        cards = [device for device in self.machine.devices if not device.is_host]
        served = Served(
            runtime=None if runtime is None else runtime.name,
            context=serving.context,
            sequences=serving.sequences,
            batch=serving.batch,
            chunk=serving.chunk,
            cache_precision=self.wishes.cache_precision,
            headroom=None if runtime is None else runtime.headroom,
            predicting_blocks=sum(block.kind.startswith(PREDICTING) for block in blocks),
            further_blocks=0 if task.description is None else task.description.further_in_gguf,
            tied=task.description is not None and task.description.is_tied,
            cards=tuple(device.name for device in cards),
            nodes=tuple(str(device.node) for device in cards) if len({device.node for device in cards}) > 1 else (),
        )
        problem = task.problem.replace(served=served)
        if self.rates.told:
            costs = problem.costs
            told = {**costs.provenance, "measured": dict(self.rates.told)}
            problem = problem.replace(costs=costs.replace(provenance=told))
        return replace(task, problem=problem)

    def _cases(self, serving: Serving) -> list[LanguageTask]:
        """Return the problems with all sequences in one batch, since memory does not depend on batches."""
        return list(
            plan_cases(
                partial(self.model.task, self.rates.costs, self.wishes), serving, self.usable, self.runtime,
                batch=serving.batch, contiguity=self.wishes.contiguity, pins=self.wishes.pins,
                degrees=self._degrees(self.runtime),
            )
        )  # fmt: skip

    def _rules(self) -> Iterator[tuple[str, Runtime]]:
        """Yield each set of runtimes with equal rules: their names, and one of them."""
        by_rule: dict[tuple[str, str], list[Runtime]] = {}
        for runtime in loadable():
            if any(not device.is_host for device in self.machine.devices) or runtime.host != "none":
                by_rule.setdefault((runtime.host, runtime.goal), []).append(runtime)
        for same in by_rule.values():
            yield ", ".join(runtime.name for runtime in same), same[0]


def usable_memory(
    machine: Platform, headroom: str | None, runtime: Runtime | None, model: ModelDescription | None
) -> tuple[Platform, str]:
    """Return the platform with the memory that a plan may fill, and words for what stays free.

    The user's headroom counts for every device; without it hosts keep a tenth, and cards what the runtime needs.
    """
    if headroom is not None or runtime is None:
        free = headroom or f"{DEFAULT_HEADROOM:.0%}"
        return leave_free(machine, free), f"{free} of every memory"
    return runtime.usable(machine, model)


def _warn_of_kernels(runtime: Runtime | None, machine: Platform, model: GivenModel, cache_precision: str) -> None:
    """Log a warning for cards that lack kernels for the type of weights or cache, where the runtime needs them."""
    told = "" if model.description is None else model.description.precision
    types = dict.fromkeys(re.findall(r"\bbf16\b|\bfp8\b", f"{told} {cache_precision}"))
    for lacking, cards in ({} if runtime is None else runtime.lacking(machine, types)).items():
        way = "give --dtype float16" if lacking == "bf16" else "choose int8 or int4"
        _LOGGER.warning(
            "%s: no %s kernels, as %s asks for, on %s: %s, or other cards",
            runtime and runtime.name, lacking, model.called, short_list(cards), way,
        )  # fmt: skip


def settled(plan: ServingPlan) -> ServingPlan:
    """Return a plan with its verdict: a simpler placement that is exactly as good is told with what it delivers.

    With the phases apart, or with experts on the host, no single device is a plan. Costs of steps that the first card
    computes for the host hold for cards of one kind only.
    """
    task, found = plan.task, plan.result
    if task.undivided is not None or task.hosted_blocks:
        return plan
    result = with_verdict(found, task.problem)
    if task.first_kind is not None and first_card(task, result.placement) not in (None, task.first_kind):
        return replace(plan, result=replace(found, verdict=verdict(task.problem, found)))
    report = None if result.placement is None else serving_report(task, result.placement)
    return replace(plan, result=result, report=report)


def started(plan: ServingPlan) -> ServingPlan:
    """Return a plan whose machines stand in an order that its runtime can start; the bound stays that of all orders.

    Raises `UnsupportedProblemError`: there is no such order, with the runtime's reason.
    """
    task, found = plan.task, plan.result
    nodes = {device.node for device in task.problem.platform.devices if not device.is_host}
    if plan.runtime is None or found.placement is None or task.description is None or len(nodes) < 2:
        return plan
    placement = startable(plan.runtime, task.problem, found.placement)
    if placement is found.placement:
        return plan
    judged = evaluate(task.problem, placement)
    assert judged.objective is not None
    schedule = None if judged.score is None else judged.score.schedule
    lower = found.lower_bound
    result = replace(
        found, placement=placement, objective=judged.objective, device_loads=judged.device_loads, schedule=schedule,
        lower_bound=lower if lower is None else min(lower, judged.objective), status=Status.FEASIBLE,
    )  # fmt: skip
    if result.gap is not None and result.gap <= result.tolerance:
        result = replace(result, status=Status.OPTIMAL)
    result = replace(result, verdict=verdict(task.problem, result))
    return replace(plan, result=result, report=serving_report(task, placement))
