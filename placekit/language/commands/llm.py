"""``placekit llm``: a language model given by its numbers, placed on devices to be served."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.console import RenderableType

from placekit.cli.console import check_writable, print_line, tell
from placekit.cli.inputs.machine_line import MachineOptions
from placekit.cli.inputs.objectives import GoalChoice, OverlapOption
from placekit.cli.inputs.platforms import MemoryLimits
from placekit.cli.inputs.task import PinOption, parse_pins
from placekit.cli.options import JsonOption, OptionsFile, SearchOptions, exit_code, output_option
from placekit.cli.output.files import OutputFiles
from placekit.cli.output.progress import SolveLine
from placekit.cli.parameters import COMMON, OBJECTIVE, OUTPUT, PLATFORM, option
from placekit.io.files.problem_json import write_problem
from placekit.language.commands.line_parts import line_parts, named_model, text_of
from placekit.language.commands.serving_parts import answer_parts, model_told
from placekit.language.decoder import BITS, DECODERS
from placekit.language.planning.planner import plan_serving
from placekit.language.planning.question import GivenModel, Search, Wishes
from placekit.language.planning.read_line import read_line
from placekit.language.read import called, is_program
from placekit.language.runtimes import OWN, get_runtime
from placekit.language.serving import Serving, parse_phases
from placekit.language.tensor_parallel import parse_degrees
from placekit.model.errors import InvalidProblemError
from placekit.solve.registry import get_method

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

    @property
    def serving(self) -> Serving:
        """The requests; their batch is said by `batch`, and a chunk of None is the runtime's."""
        tokens = parse_phases(self.phase or [])
        return Serving(context=self.context, sequences=self.sequences, chunk=self.chunk or None, **tokens)  # type: ignore[arg-type]  # None: P + G


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
        "Rates of llama-bench -o json, or DEVICE=FILE.",
        "FILE",
        panel=PLATFORM,
    )
    costs: str | None = option(None, "analytic, or aiconfigurator[:VERSION].", "NAME", panel=PLATFORM)
    line: str | None = option(None, "Your launch line, or its file: how good it is.", "LINE", panel=COMMON)
    numbers: DecoderNumbers = field(default_factory=DecoderNumbers)
    weights: WeightChoice = field(default_factory=WeightChoice)
    requests: ServingOptions = field(default_factory=ServingOptions)
    goal: ServingGoal = field(default_factory=ServingGoal)
    problem: Path | None = option(None, "Write the problem for show, explain, verify and export.", "FILE")

    @property
    def wishes(self) -> Wishes:
        """What is asked of a plan."""
        goal, weights = self.goal, self.weights
        return Wishes(
            serving=self.requests.serving, batch=self.requests.batch, whole_prompts=self.requests.chunk == 0,
            goal=goal.goal,  # type: ignore[arg-type]  # checked below
            objective=goal.objective(), contiguity=goal.contiguity_or_none(), pins=parse_pins(self.pins),
            degrees=parse_degrees(goal.tensor_parallel), apart=goal.apart, cache_precision=weights.cache_precision,
            granularity=weights.granularity, together=weights.together, headroom=self.memory.headroom,
            measured=tuple(self.measured or ()), kernels=None if self.costs == "analytic" else self.costs,
            compares=goal.name is None,
        )  # fmt: skip


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
    _refuse_contradictions(asked)
    line = None if asked.line is None else text_of(asked.line)
    name = named_model(line) if name is None and line is not None and not asked.numbers.given else name
    platform = replace(asked.memory, headroom=None).apply(asked.machine.platform())
    model = GivenModel.read(name, asked.numbers.given, asked.weights.precision)
    files = OutputFiles.of(Path(str(name) if is_program(name) else f"{called(name)}.llm"), output)
    if asked.problem is not None:
        check_writable(asked.problem)
    how = Search(search.method, search.stop, search.seed, search.params, partial(SolveLine, search.time_limit))
    read = None
    if line is not None:
        read = read_line(line, model, platform, wishes=asked.wishes, search=how, runtime=asked.goal.runtime)
        if asked.goal.runtime not in (None, read.launch.runtime.name):
            raise InvalidProblemError(f"--for {asked.goal.runtime}: the line is of {read.launch.runtime.name}")
    answer = read.best if read else plan_serving(model, platform, asked.goal.runtime, wishes=asked.wishes, search=how)
    plan = answer.plan
    written = files.write(plan.result, plan.task.problem)
    named = {"PLACEMENT": shlex.quote(written.get("placement", "")), "PLATFORM": shlex.quote(str(asked.machine.file))}
    launch = [re.sub("|".join(named), lambda found: named[found[0]], line) for line in answer.launch]
    if asked.problem is not None:
        write_problem(plan.task.problem, asked.problem)
        written["problem"] = str(asked.problem)
    told = model_told(plan.task, answer.model.called)
    document = plan.result.to_dict() | {"model": told, **answer.to_dict(), "files": written}
    parts: Iterator[RenderableType] = answer_parts(answer, told, written)
    if read is not None:
        document["line"] = read.to_dict()
        parts = chain(line_parts(read), [""], parts)
    tell(as_json, document, parts)
    if launch and not as_json:
        print_line("\n".join(["", *launch]))
    raise typer.Exit(exit_code(plan.result.placement, plan.result.status))


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
