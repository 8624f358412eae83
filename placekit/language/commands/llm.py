"""``placekit llm``: a language model given by its numbers, placed on devices to be served."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import typer

from placekit.cli.console import check_writable, print_line, tell
from placekit.cli.inputs.machine_line import MachineOptions
from placekit.cli.inputs.objectives import GoalChoice, OverlapOption
from placekit.cli.inputs.platforms import MemoryLimits, warn_of_unlimited, with_sheet_memory
from placekit.cli.inputs.task import PinOption, parse_pins
from placekit.cli.options import JsonOption, OptionsFile, SearchOptions, exit_code, output_option
from placekit.cli.output.files import OutputFiles
from placekit.cli.output.progress import SolveLine
from placekit.cli.parameters import COMMON, OBJECTIVE, OUTPUT, PLATFORM, option
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.sheets.cards import KERNELS
from placekit.io.files.problem_json import write_problem
from placekit.language.commands.serving_parts import Answer, answer_parts, model_told
from placekit.language.commands.settled import settled
from placekit.language.decoder import BITS, DECODERS
from placekit.language.description import PREDICTING, ModelDescription
from placekit.language.model import model_task
from placekit.language.planning.apart import apart_cases
from placekit.language.planning.context import ContextPoint, context_points
from placekit.language.planning.measured import with_measured
from placekit.language.planning.plan import MakeTask, ServingPlan, fastest, plan_cases, plans
from placekit.language.read import called, is_program, read_description
from placekit.language.runtimes import DEFAULT_HEADROOM, OWN, get_runtime, loadable
from placekit.language.runtimes.launch import launch_lines
from placekit.language.runtimes.record import Runtime
from placekit.language.runtimes.rpc import as_one_machine
from placekit.language.serving import Serving, parse_phases
from placekit.language.task import LanguageTask, decoder_task
from placekit.language.tensor_parallel import parse_degrees
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.model.platform import Platform
from placekit.model.problem import Problem
from placekit.model.served import Served
from placekit.solve.registry import get_method
from placekit.solve.result import Result
from placekit.solve.solve import solve as solve_problem
from placekit.solvers.chain.method import Chain, ChainParams

_N = "N"
DEFAULT_CHUNK = 2048
"""Prompt tokens of a prefill step without a runtime."""


@dataclass(frozen=True)
class DecoderNumbers:
    """Numbers of a decoder; None where the name decides."""

    panel: ClassVar[str] = "Model"

    layers: int | None = option(None, "Number of blocks.", _N)
    hidden: int | None = option(None, "Size of the hidden state.", _N)
    heads: int | None = option(None, "Number of query heads (hidden / head-dim).", _N)
    kv_heads: int | None = option(None, "Number of key-value heads (as heads).", _N)
    head_dim: int | None = option(None, "Size of a head (128).", _N)
    ffn: int | None = option(None, "Width of the feed-forward layer, of a single expert.", _N)
    vocab: int | None = option(None, "Vocabulary size.", _N)
    experts: int | None = option(None, "Number of experts per block (1).", _N)
    experts_per_token: int | None = option(None, "Active experts per token (1).", _N)
    gated: bool | None = option(None, "Feed-forward layers have three matrices (default), or two.")

    @property
    def given(self) -> dict[str, Any]:
        """The numbers that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class WeightChoice:
    """Precisions of a language model, and the granularity of its plan."""

    panel: ClassVar[str] = "Model"

    precision: str | None = option(None, f"Precision of weights: {', '.join(BITS)} (f16; a file: its own).", "NAME")
    cache_precision: str = option("f16", "Precision of the key-value cache.", "NAME")
    granularity: str = option("layer", "Granularity of the plan: whole blocks, or single operators.", "layer|op")
    together: int = option(1, "Consecutive blocks that stay on one device.", _N)


@dataclass(frozen=True)
class ServingOptions:
    """Requests that are served."""

    panel: ClassVar[str] = "Serving"

    phase: list[str] | None = option(
        None, "Tokens of a request: prefill:P and decode:G (prefill:512, decode:128).", "prefill:P"
    )
    context: int | None = option(None, "Context length that the cache has room for (P + G).", "C")
    sequences: int = option(1, "Sequences in flight, each with its cache.", "B")
    batch: int | None = option(None, "Batch size of a decoding step. Default: the fastest of up to six sizes.", _N)
    chunk: int | None = option(None, "Prompt tokens per prefill step; 0: whole prompts (the runtime's, else 2048).", _N)

    def serving(self, default_chunk: int | None) -> Serving:
        """Return the requests; without `batch` all sequences are one batch."""
        tokens = parse_phases(self.phase or [])
        chunk = default_chunk if self.chunk is None else self.chunk or None
        batch = self.sequences if self.batch is None else self.batch
        return Serving(context=self.context, sequences=self.sequences, batch=batch, chunk=chunk, **tokens)  # type: ignore[arg-type]  # None: P + G


@dataclass(frozen=True)
class ServingGoal(GoalChoice):
    """Objective of serving; None for the default."""

    panel: ClassVar[str] = OBJECTIVE
    beside: ClassVar[tuple[str, ...]] = ("runtime", "goal", "tensor_parallel", "apart")

    name: str | None = option(
        None, "throughput, serial-latency or makespan. Default: what --goal says.", "NAME", names="--objective"
    )
    runtime: str | None = option(
        None,
        f"Follow a runtime's rules, and print its launch line: {', '.join(each.name for each in OWN)}.",
        "RUNTIME",
        names="--for",
        panel=COMMON,
    )
    goal: str | None = option(
        None,
        "What is best: time per token, tokens per second, or the longest context. Default: the runtime's; "
        "with one sequence, latency.",
        "latency|throughput|context",
    )
    overlap: OverlapOption = None
    teams: str | None = option(
        None, "throughput: devices may share requests to the same blocks (off).", "off|equal|any"
    )
    tensor_parallel: str = option(
        "1",
        "Tensor-parallel degrees to choose from: equal accelerators that compute every block together, such as 1,2,4.",
        "DEGREES",
    )
    apart: bool = option(
        False, "Also try prefill and decode on devices of their own, with the cache sent between them."
    )


@dataclass(frozen=True)
class LlmOptions:
    """Options that, with the name of a language model, make a problem."""

    panel: ClassVar[str] = OUTPUT

    machine: MachineOptions = field(default_factory=MachineOptions)
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    pins: PinOption = None
    measured: list[str] | None = option(
        None,
        "Rates of a device by llama-bench -o json; or DEVICE=FILE.",
        "FILE",
        panel=PLATFORM,
    )
    numbers: DecoderNumbers = field(default_factory=DecoderNumbers)
    weights: WeightChoice = field(default_factory=WeightChoice)
    requests: ServingOptions = field(default_factory=ServingOptions)
    goal: ServingGoal = field(default_factory=ServingGoal)
    problem: Path | None = option(None, "Write the problem for show, explain, verify and export.", "FILE")


def llm(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Model: a config.json of transformers or its folder, a .gguf file, a .pt2 or a stateful .xml with "
            f"open numbers of sequences and tokens, or a name whose numbers options change: {', '.join(DECODERS)}.",
        ),
    ] = None,
    *,
    search: SearchOptions,
    asked: LlmOptions,
    output: Path | None = output_option("Placement file; the result goes beside it. `-` is standard output."),
    options: OptionsFile = None,  # noqa: ARG001  # acts in its callback
    as_json: JsonOption = False,
) -> None:
    """Place a language model, without its weights, and predict how it is served.

    Costs are analytic. Named accelerators have the memory of their data sheet.
    """
    get_method(search.method, search.params)
    planner = Planner.of(name, asked, search)
    files = OutputFiles.of(Path(str(name) if is_program(name) else f"{called(name)}.llm"), output)
    if asked.problem is not None:
        check_writable(asked.problem)
    answer = planner.answer()
    plan = answer.plan
    written = files.write(plan.result, plan.task.problem)
    named = {"PLACEMENT": shlex.quote(written.get("placement", "")), "PLATFORM": shlex.quote(str(asked.machine.file))}
    launch = [re.sub("|".join(named), lambda found: named[found[0]], line) for line in answer.launch]
    if asked.problem is not None:
        write_problem(plan.task.problem, asked.problem)
        written["problem"] = str(asked.problem)
    told = planner.told(plan.task)
    document = plan.result.to_dict() | {"model": told, **answer.to_dict(), "files": written}
    tell(as_json, document, answer_parts(answer, told, written))
    if launch and not as_json:
        print_line("\n".join(["", *launch]))
    raise typer.Exit(exit_code(plan.result.placement, plan.result.status))


@dataclass(frozen=True)
class Planner:
    """Planner for one model, one platform and the options."""

    name: str  # of the model in a launch line
    make: MakeTask
    told: Callable[[LanguageTask], str]  # describes the model of a task
    machine: Platform  # with all of its memory
    usable: Platform  # without the headroom
    runtime: Runtime | None  # whose rules hold
    headroom: str  # as the options or the runtime set it
    measured: Mapping[str, str]  # words for the measurements of a device, by its kind
    asked: LlmOptions
    search: SearchOptions

    @classmethod
    def of(cls, name: str | None, asked: LlmOptions, search: SearchOptions) -> Self:
        """Return the planner of a model."""
        _refuse_contradictions(asked)
        runtime = None if asked.goal.runtime is None else get_runtime(asked.goal.runtime)
        machine = with_sheet_memory(replace(asked.memory, headroom=None).apply(asked.machine.platform()))
        machine = as_one_machine(machine) if runtime is not None and runtime.has_rpc else machine
        make, told, described = language_model(name, asked)
        costs = Analytic.from_platform_file(machine, KERNELS["general" if runtime is None else runtime.kernels])
        machine = costs.with_links(machine)
        warn_of_unlimited(machine)
        measured = with_measured(costs, machine, asked.measured or (), described)
        usable, headroom = usable_memory(machine, asked.memory.headroom, runtime, described)
        make = partial(make, measured.costs)
        return cls(name or "MODEL", make, told, machine, usable, runtime, headroom, measured.told, asked, search)

    def answer(self) -> Answer:
        """Return the plan, its comparisons and its launch lines."""
        goal = self.asked.goal
        serving = self.asked.requests.serving(DEFAULT_CHUNK if self.runtime is None else self.runtime.chunk)
        found = self.plans(serving, self.runtime)
        plan, experts = fastest(found), self._experts(found, serving)
        phases = self._phases(plan, serving)
        plan = fastest([*phases.values(), plan])
        compared: dict[str, ServingPlan | None] = {}
        points: tuple[ContextPoint, ...] = ()
        launch: tuple[str, ...] = ()
        if goal.goal == "context" and plan.report is not None:
            points = tuple(
                context_points(lambda served: fastest(self.plans(served, self.runtime)), self._cases, serving, plan)
            )
            plan = points[-1].plan
        plan = settled(plan)
        if self.runtime is not None and plan.result.placement is not None:
            launch = launch_lines(self.runtime.name, self.name, plan.task.problem, plan.result.placement)
        elif plan.report is not None and self.asked.weights.granularity == "layer" and goal.name is None:
            compared = {names: self._plan_or_none(plan.task.serving, rule) for names, rule in self._rules()}
        return Answer(
            plan,
            self.headroom,
            self.machine,
            parse_pins(self.asked.pins),
            compared,
            points,
            launch,
            experts,
            phases,
            self.measured,
        )

    def plans(
        self, serving: Serving, runtime: Runtime | None, platform: Platform | None = None, *, apart: bool = False
    ) -> list[ServingPlan]:
        """Return one plan for every case (batch size, degree, experts), on `platform` or all usable devices."""
        goal, batch = self.asked.goal, self.asked.requests.batch
        started = time.monotonic()

        def solve(problem: Problem[Any]) -> Result:
            stop = self.search.stop(time.monotonic() - started)
            chain = Chain(ChainParams(is_even=runtime is not None))
            method = chain if self.search.method == "auto" and chain.supports(problem) is None else self.search.method
            with SolveLine(self.search.time_limit) as line:
                return solve_problem(
                    problem, method, stop=stop, seed=self.search.seed, params=self.search.params, on_progress=line
                )

        made, pins, contiguity = partial(self._made, runtime), parse_pins(self.asked.pins), goal.contiguity_or_none()
        cases = plan_cases(
            made, serving, platform or self.usable, runtime, batch=batch, goal=goal.goal, objective=goal.objective(),
            contiguity=contiguity, pins=pins, degrees=self._degrees(runtime),
        )  # fmt: skip
        return plans(apart_cases(cases) if apart else cases, solve, runtime)

    def _phases(self, shared: ServingPlan, serving: Serving) -> dict[str, ServingPlan]:
        """Return, with `--apart`, the plan with shared devices and the one with the phases apart."""
        if not self.asked.goal.apart:
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
        host = self.usable.with_devices(device for device in self.usable.devices if device.is_host)
        alone: ServingPlan | None = None
        with suppress(PlacekitError):  # the host may lack memory for activations
            alone = fastest(self.plans(serving, self.runtime, host))
        return {
            f"experts of {best.task.hosted_blocks} blocks on the host": best,
            "whole blocks only": fastest([plan for plan in found if not plan.task.hosted_blocks]),
            f"{host.device_names[0]} alone": alone,
        }

    def _degrees(self, runtime: Runtime | None) -> tuple[int, ...]:
        """Return the tensor-parallel degrees to try; only 1 to compare with a runtime that has no others."""
        is_compared = runtime is not None and self.runtime is None and not runtime.is_parallel
        return (1,) if is_compared else parse_degrees(self.asked.goal.tensor_parallel)

    def _plan_or_none(self, serving: Serving, runtime: Runtime) -> ServingPlan | None:
        """Return the best plan under the rules of a runtime; None if it cannot run the model on these devices."""
        try:
            return fastest(self.plans(serving, runtime))
        except PlacekitError:
            return None

    def _made(self, runtime: Runtime | None, serving: Serving, platform: Platform, **choices: Any) -> LanguageTask:
        """Return the task, whose problem says what is served: exports need it."""
        task = self.make(serving, platform, **choices)
        blocks = () if task.description is None else task.description.blocks
        served = Served(
            runtime=None if runtime is None else runtime.name,
            context=serving.context,
            sequences=serving.sequences,
            batch=serving.batch,
            chunk=serving.chunk,
            cache_precision=self.asked.weights.cache_precision,
            headroom=None if runtime is None else runtime.headroom,
            predicting_blocks=sum(block.kind.startswith(PREDICTING) for block in blocks),
            further_blocks=0 if task.description is None else task.description.further_in_gguf,
            tied=task.description is not None and task.description.is_tied,
            cards=tuple(device.name for device in self.machine.devices if not device.is_host),
        )
        problem = task.problem.replace(served=served)
        if self.measured:
            costs = problem.costs
            told = {**costs.provenance, "measured": dict(self.measured)}
            problem = problem.replace(costs=costs.replace(provenance=told))
        return replace(task, problem=problem)

    def _cases(self, serving: Serving) -> list[LanguageTask]:
        """Return the problems with all sequences in one batch, since memory does not depend on batches."""
        return list(
            plan_cases(
                self.make, serving, self.usable, self.runtime, batch=serving.batch,
                contiguity=self.asked.goal.contiguity_or_none(), pins=parse_pins(self.asked.pins),
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


_AGAINST = {"latency": ("throughput",), "throughput": ("serial-latency", "makespan")}
"""Objectives that minimise something else than a goal asks for."""


def _refuse_contradictions(asked: LlmOptions) -> None:
    """Refuse options of which one would be ignored."""
    goal, served, weights = asked.goal, asked.requests, asked.weights
    pairs = {
        f"--goal {goal.goal} and --objective {goal.name}": goal.name in _AGAINST.get(goal.goal or "", ()),
        f"--goal context and --context {served.context}": goal.goal == "context" and served.context is not None,
        f"--goal latency and --teams {goal.teams}": goal.goal == "latency" and goal.teams not in (None, "off"),
        f"--for {goal.runtime} and --granularity op": weights.granularity == "op"
        and goal.runtime is not None
        and get_runtime(goal.runtime).host != "any",  # whose stages are cut anywhere
        f"--for {goal.runtime} and --contiguity {goal.contiguity}": goal.runtime is not None
        and goal.contiguity not in (None, "acyclic"),
        "--apart and --goal context": goal.apart and goal.goal == "context",
    }
    why = next((pair for pair, holds in pairs.items() if holds), None)
    if why is not None:
        raise InvalidProblemError(f"{why} contradict each other: leave out one of them")


def usable_memory(
    machine: Platform, headroom: str | None, runtime: Runtime | None, model: ModelDescription | None
) -> tuple[Platform, str]:
    """Return the platform with the memory that a plan may fill, and words for what stays free.

    The user's headroom counts for every device; without it hosts keep a tenth, and cards what the runtime needs.
    """
    if headroom is not None or runtime is None:
        free = headroom or f"{DEFAULT_HEADROOM:.0%}"
        return MemoryLimits(headroom=free).apply(machine), f"{free} of every memory"
    return runtime.usable(machine, model)


def language_model(
    name: str | None, asked: LlmOptions
) -> tuple[Callable[..., LanguageTask], Callable[[LanguageTask], str], ModelDescription | None]:
    """Return what makes tasks of a model from costs, what describes the model of a task, and its blocks."""
    numbers, precision = asked.numbers.given, asked.weights.precision
    kept: dict[str, Any] = {
        "cache_precision": asked.weights.cache_precision,
        "granularity": asked.weights.granularity,
        "together": asked.weights.together,
    }
    described: ModelDescription | None = None
    if is_program(name):
        if numbers or precision is not None:
            given = "precision" if precision is not None else next(iter(numbers)).replace("_", "-")
            raise InvalidProblemError(f"--{given} goes with numbers of a model; {name} has its own")
        called_so, make = str(name), partial(model_task, Path(str(name)))
    else:
        described = read_description(name, numbers, precision)
        runtime = asked.goal.runtime
        if runtime is not None and get_runtime(runtime).trains_prediction:
            described = described.with_speculative()
        called_so, make = described.name, partial(decoder_task, described)

    def made(costs: Analytic, serving: Serving, platform: Platform, **choices: Any) -> LanguageTask:
        own = costs.for_kinds(platform.kinds)
        return make(serving, platform, lambda graph: own.cost_table(graph, platform), **kept, **choices)

    return made, partial(model_told, name=called_so), described
