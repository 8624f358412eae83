"""Options of ``placekit llm``, and of commands that ask the same questions."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from placekit.cli.inputs.machine_line import MachineOptions
from placekit.cli.inputs.objectives import GoalChoice, OverlapOption
from placekit.cli.inputs.platforms import MemoryLimits
from placekit.cli.inputs.task import PinOption, parse_pins
from placekit.cli.options import parse_pairs
from placekit.cli.parameters import COMMON, OBJECTIVE, OUTPUT, PLATFORM, option
from placekit.language.planning.question import DEFAULT_CONTEXT, Wishes
from placekit.language.runtimes import OWN, get_runtime
from placekit.language.serving import Serving, parse_phases
from placekit.language.tensor_parallel import parse_degrees
from placekit.model.errors import InvalidProblemError

_N = "N"


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
    gated: bool | None = option(None, "Three feed-forward matrices (default), or two.")

    @property
    def given(self) -> dict[str, Any]:
        """The numbers that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class WeightChoice:
    """Precisions of a language model, and the granularity of its plan."""

    panel: ClassVar[str] = "Model"

    precision: str | None = option(
        None, "Of weights: f16, q4_k_m, mxfp4, ... or bits (4.9); q4_k_m,q8_0: a table.", "NAME"
    )
    cache_precision: str = option("f16", "Of the cache, such as q8_0.", "NAME")
    granularity: str = option("layer", "Granularity of the plan: whole blocks, or single operators.", "layer|op")
    together: int = option(1, "Consecutive blocks that stay together.", _N)


@dataclass(frozen=True)
class ServingOptions:
    """Requests that are served."""

    panel: ClassVar[str] = "Serving"

    phase: list[str] | None = option(
        None, "Tokens of a request: prefill:P and decode:G (prefill:512, decode:128).", "prefill:P"
    )
    context: int | None = option(None, f"Context length ({DEFAULT_CONTEXT}, or the model's limit).", "C")
    sequences: int = option(1, "Sequences in flight, each with its cache.", "B")
    batch: int | None = option(None, "Batch size of a decoding step (the fastest).", _N)
    chunk: int | None = option(None, "Prompt tokens per prefill step (the runtime's); 0: all.", _N)

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
        None, "What is best. Default: the runtime's; with one sequence, latency.", "latency|throughput|context"
    )
    overlap: OverlapOption = None
    teams: str | None = option(
        None, "throughput: devices may share requests to the same blocks (off).", "off|equal|any"
    )
    tensor_parallel: str = option("1", "Tensor-parallel degrees to choose from, such as 1,2,4.", "DEGREES")
    apart: bool = option(
        False, "Also try prefill and decode on devices of their own, with the cache sent between them."
    )


_OF_CACHE_TYPE = {"q8_0": "int8", "q4_0": "int4"}
"""Precisions by the names that users of llama.cpp know."""


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
    instead: list[str] | None = option(
        None, "The same question with another card: GPU1='RTX 5090'.", "DEVICE=CARD", panel=COMMON
    )
    numbers: DecoderNumbers = field(default_factory=DecoderNumbers)
    weights: WeightChoice = field(default_factory=WeightChoice)
    requests: ServingOptions = field(default_factory=ServingOptions)
    goal: ServingGoal = field(default_factory=ServingGoal)
    problem: Path | None = option(None, "Write the problem for show, explain, verify and export.", "FILE")
    plot: Path | None = option(None, "Draw the plan: .png, .svg or .pdf.", "FILE")

    @property
    def wishes(self) -> Wishes:
        """Options of a question about a plan."""
        goal, weights = self.goal, self.weights
        cache = _OF_CACHE_TYPE.get(weights.cache_precision, weights.cache_precision)
        return Wishes(
            serving=self.requests.serving, batch=self.requests.batch, whole_prompts=self.requests.chunk == 0,
            goal=goal.goal,  # type: ignore[arg-type]  # checked below
            objective=goal.objective(), contiguity=goal.contiguity_or_none(), pins=parse_pins(self.pins),
            degrees=parse_degrees(goal.tensor_parallel), apart=goal.apart, cache_precision=cache,
            granularity=weights.granularity, together=weights.together, headroom=self.memory.headroom,
            measured=tuple(self.measured or ()), kernels=None if self.costs == "analytic" else self.costs,
            instead=parse_pairs("--instead", self.instead, "DEVICE=CARD"), compares=goal.name is None,
        )  # fmt: skip


_AGAINST = {"latency": ("throughput",), "throughput": ("serial-latency", "makespan")}
"""Objectives that minimise something else than a goal asks for."""


def refuse_contradictions(asked: LlmOptions) -> None:
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
