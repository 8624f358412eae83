"""``placekit llm``: a language model given by its numbers, placed on devices to be served."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from placekit.cli.console import check_writable, print_json, show_parts
from placekit.cli.files import OutputFiles
from placekit.cli.objectives import GoalChoice, OverlapOption
from placekit.cli.options import JsonOption, output_option
from placekit.cli.options_file import OptionsFile
from placekit.cli.parameters import OBJECTIVE, OUTPUT, PLATFORM, with_options
from placekit.cli.platforms import MemoryLimits
from placekit.cli.progress import SolveLine
from placekit.cli.search import SearchOptions, exit_code
from placekit.cli.serving_parts import model_told, serving_parts
from placekit.cli.task import PinOption, parse_pins
from placekit.cli.verdicts import with_verdict
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.device_table import DEVICE_TABLE
from placekit.io.model import MODEL_SUFFIXES
from placekit.io.platform_toml import read_platform
from placekit.io.problem_json import write_problem
from placekit.language.decoder import BITS, DECODERS, get_decoder
from placekit.language.model import model_task
from placekit.language.report import serving_report
from placekit.language.serving import Serving, parse_phases
from placekit.language.task import LanguageTask, decoder_task
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Platform
from placekit.solve.registry import get_method
from placekit.solve.solve import solve as solve_problem

__all__ = ["llm"]

_N = "N"


@dataclass(frozen=True)
class DecoderNumbers:
    """Numbers of a decoder; None for what its name says."""

    panel: ClassVar[str] = "Model"

    layers: Annotated[int | None, typer.Option(metavar=_N, help="Number of blocks.")] = None
    hidden: Annotated[int | None, typer.Option(metavar=_N, help="Size of the hidden state.")] = None
    heads: Annotated[int | None, typer.Option(metavar=_N, help="Number of query heads (hidden / head-dim).")] = None
    kv_heads: Annotated[
        int | None, typer.Option(metavar=_N, help="Number of key-value heads (grouped-query attention; as heads).")
    ] = None
    head_dim: Annotated[int | None, typer.Option(metavar=_N, help="Size of a head (128).")] = None
    ffn: Annotated[
        int | None, typer.Option(metavar=_N, help="Width of the feed-forward layer, of a single expert.")
    ] = None
    vocab: Annotated[int | None, typer.Option(metavar=_N, help="Vocabulary size.")] = None
    experts: Annotated[int | None, typer.Option(metavar=_N, help="Number of experts per block (1).")] = None
    experts_per_token: Annotated[int | None, typer.Option(metavar=_N, help="Active experts per token (1).")] = None
    gated: Annotated[bool | None, typer.Option(help="Feed-forward layers have three matrices (default), or two.")] = (
        None
    )

    @property
    def given(self) -> dict[str, Any]:
        """The numbers that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class WeightChoice:
    """Precisions of a language model, and the granularity of its plan."""

    panel: ClassVar[str] = "Model"

    precision: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Precision of weights: {', '.join(BITS)} (f16; a model file: its own)."),
    ] = None
    cache_precision: Annotated[str, typer.Option(metavar="NAME", help="Precision of the key-value cache.")] = "f16"
    granularity: Annotated[
        str, typer.Option(metavar="layer|op", help="Granularity of the plan: whole blocks, or single operators.")
    ] = "layer"


@dataclass(frozen=True)
class ServingOptions:
    """Requests that are served."""

    panel: ClassVar[str] = "Serving"

    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="prefill:P", help="Tokens of a request: prefill:P and decode:G (prefill:512, decode:128)."
        ),
    ] = None
    context: Annotated[
        int | None, typer.Option(metavar="C", help="Context length that the cache has room for (P + G).")
    ] = None
    sequences: Annotated[int, typer.Option(metavar="B", help="Sequences in flight, each with its cache.")] = 1
    batch: Annotated[int, typer.Option(metavar=_N, help="Batch size of a decoding step.")] = 1

    def serving(self) -> Serving:
        """Return the requests.

        Raises
        ------
        InvalidProblemError
            A phase or a number that no request has.
        """
        tokens = parse_phases(self.phase or [])
        return Serving(context=self.context, sequences=self.sequences, batch=self.batch, **tokens)  # type: ignore[arg-type]  # None: P + G


@dataclass(frozen=True)
class ServingGoal(GoalChoice):
    """Objective of serving; None where nothing was said."""

    panel: ClassVar[str] = OBJECTIVE

    name: Annotated[
        str | None,
        typer.Option("--objective", metavar="NAME", help="throughput (default), serial-latency or makespan."),
    ] = None
    overlap: OverlapOption = None
    teams: Annotated[
        str | None,
        typer.Option(metavar="off|equal|any", help="throughput: devices may share requests to the same blocks (off)."),
    ] = None


@dataclass(frozen=True)
class LlmOptions:
    """Everything beside the name of a language model that makes a problem."""

    panel: ClassVar[str] = OUTPUT

    platform: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Platform file (.toml): devices, memory, links.", rich_help_panel=PLATFORM),
    ]
    memory: MemoryLimits = field(default_factory=MemoryLimits)
    pins: PinOption = None
    numbers: DecoderNumbers = field(default_factory=DecoderNumbers)
    weights: WeightChoice = field(default_factory=WeightChoice)
    requests: ServingOptions = field(default_factory=ServingOptions)
    goal: ServingGoal = field(default_factory=ServingGoal)
    problem: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the problem for show, explain, verify and export.")
    ] = None


@with_options
def llm(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help=f"{', '.join(DECODERS)}, whose numbers options change; or a model (.pt2, stateful .xml) with open "
            "numbers of sequences and tokens.",
        ),
    ] = None,
    *,
    search: SearchOptions,
    asked: LlmOptions,
    output: Annotated[
        Path | None, output_option("Placement file; the result goes beside it. `-` is standard output.")
    ] = None,
    options: OptionsFile = None,  # noqa: ARG001  # acts in its callback
    as_json: JsonOption = False,
) -> None:
    """Place a language model by its numbers, without weights or torch, and predict what serving it is like.

    Costs are analytic; a sample is a batch of requests. Named accelerators have the memory of their data sheet unless
    the platform file or --memory says otherwise.
    """
    get_method(search.method, search.params)
    task, told = language_task(name, asked)
    pins = parse_pins(asked.pins)
    task = replace(task, problem=task.problem.pin(pins))
    files = OutputFiles.of(Path(f"{name or 'llm'}.llm" if _is_decoder(name) else str(name)), output)
    if asked.problem is not None:
        check_writable(asked.problem)
    with SolveLine(search.time_limit) as line:
        result = solve_problem(
            task.problem, search.method, stop=search.stop(), seed=search.seed, params=search.params, on_progress=line
        )
    result = with_verdict(result, task.problem)
    written = files.write(result, task.problem)
    if asked.problem is not None:
        write_problem(task.problem, asked.problem)
        written["problem"] = str(asked.problem)
    report = None if result.placement is None else serving_report(task, result.placement)
    if as_json:
        served = None if report is None else report.to_dict()
        print_json(result.to_dict() | {"model": told, "serving": served, "files": written})
    else:
        show_parts(serving_parts(task, pins, result, report, told, written))
    raise typer.Exit(exit_code(result.placement, result.status))


def _is_decoder(name: str | None) -> bool:
    """Return whether `name` is that of a shape, or none; not a model file."""
    return name is None or Path(name).suffix.lower() not in MODEL_SUFFIXES


def language_task(name: str | None, asked: LlmOptions) -> tuple[LanguageTask, str]:
    """Return what is asked of a shape or of a model file, and which of them in a sentence.

    Raises
    ------
    PlacekitError
        Bad input, or an option that does not go with the model.
    """
    serving = asked.requests.serving()
    platform = asked.memory.apply(_with_sheet_memory(read_platform(asked.platform)))
    costs = Analytic.from_platform_file(platform)
    numbers, precision = asked.numbers.given, asked.weights.precision
    chosen = {"objective": asked.goal.objective(), "contiguity": asked.goal.contiguity_or_none()}
    choices: dict[str, Any] = {
        "cache_precision": asked.weights.cache_precision,
        "granularity": asked.weights.granularity,
        **{key: value for key, value in chosen.items() if value is not None},
    }

    def cost_table(graph: Any) -> Any:
        return costs.cost_table(graph, platform)

    if _is_decoder(name):
        shape, bits = get_decoder(name, numbers), precision or "f16"
        task = decoder_task(shape, serving, platform, cost_table, precision=bits, name=name or "llm", **choices)
        return task, model_told(task, shape, bits)
    if numbers or precision is not None:
        option = "precision" if precision is not None else next(iter(numbers)).replace("_", "-")
        raise InvalidProblemError(f"--{option} goes with numbers of a model; {name} has its own")
    task = model_task(Path(str(name)), serving, platform, cost_table, **choices)
    return task, model_told(task, str(name))


def _with_sheet_memory(platform: Platform) -> Platform:
    """Return the platform; devices without a limit have that of the accelerator which they name, if it has one."""

    def limit(kind: str) -> float | None:
        named = DEVICE_TABLE.get(platform.spec_of_kind.get(kind, kind))
        return None if named is None else named.memory_bytes

    return platform.replace(
        devices=tuple(
            device.replace(memory_bytes=limit(device.kind)) if device.memory_bytes is None else device
            for device in platform.devices
        )
    )
