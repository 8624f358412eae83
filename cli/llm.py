"""``placekit llm``: a language model given by its numbers, placed on devices to be served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placekit.cli.objectives import ObjectiveChoice
from placekit.cli.options import (
    JsonOption,
    MemoryHeadroomOption,
    MemoryLimitOption,
    MemoryOption,
    ParamOption,
    PinOption,
    SeedOption,
    output_option,
    parse_pairs,
    parse_params,
)
from placekit.cli.platforms import leave_free, limit_memory
from placekit.cli.solve import exit_code, stop_of
from placekit.cli.task import PIN_FORM
from placekit.language.decoder import BITS, DECODERS
from placekit.model.errors import InvalidProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from placekit.language.report import ServingReport
    from placekit.language.serving import Serving
    from placekit.language.task import Costs, LanguageTask
    from placekit.model.platform import Platform
    from placekit.solve.result import Result

__all__ = ["llm", "serving_lines"]


def llm(
    platform: Annotated[
        Path, typer.Option("--platform", metavar="FILE", help="Platform file (TOML): devices, memory, links, specs.")
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help=f"{', '.join(DECODERS)}, whose numbers options change; or a model (.pt2, stateful .xml) with open "
            "numbers of sequences and tokens.",
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option(metavar="N", help="Blocks.")] = None,
    hidden: Annotated[int | None, typer.Option(metavar="N", help="Size of the hidden state.")] = None,
    heads: Annotated[int | None, typer.Option(metavar="N", help="Query heads (hidden / head-dim).")] = None,
    kv_heads: Annotated[int | None, typer.Option(metavar="N", help="Heads of keys and values (heads).")] = None,
    head_dim: Annotated[int | None, typer.Option(metavar="N", help="Channels of a head (128).")] = None,
    ffn: Annotated[int | None, typer.Option(metavar="N", help="Width of the feed-forward part, of one expert.")] = None,
    vocab: Annotated[int | None, typer.Option(metavar="N", help="Tokens known.")] = None,
    experts: Annotated[int | None, typer.Option(metavar="N", help="Experts of a feed-forward part (1).")] = None,
    experts_per_token: Annotated[int | None, typer.Option(metavar="N", help="Experts that a token meets (1).")] = None,
    gated: Annotated[
        bool | None, typer.Option("--gated/--no-gated", help="Three feed-forward matrices (default), or two.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"Of weights: {', '.join(BITS)} (f16; of a model: its own).")
    ] = None,
    cache_precision: Annotated[str, typer.Option(metavar="NAME", help="Of keys and values.")] = "f16",
    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="prefill:P", help="Tokens of a request: prefill:P and decode:G (prefill:512, decode:128)."
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(metavar="C", help="Tokens of a sequence that the cache has room for (P + G).")
    ] = None,
    sequences: Annotated[int, typer.Option(metavar="B", help="Sequences in flight, with their cache.")] = 1,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences that take a step together.")] = 1,
    granularity: Annotated[str, typer.Option(metavar="layer|op", help="Blocks stay whole, or not.")] = "layer",
    objective: Annotated[
        str | None, typer.Option(metavar="NAME", help="throughput (default), serial-latency or makespan.")
    ] = None,
    contiguity: Annotated[str | None, typer.Option(metavar="RULE", help="As of solve.")] = None,
    teams: Annotated[
        str | None,
        typer.Option(
            metavar="off|equal|any", help="throughput: devices that share the requests of the same ops (off)."
        ),
    ] = None,
    overlap: Annotated[
        bool | None, typer.Option("--overlap/--no-overlap", help="Devices compute and transfer at the same time.")
    ] = None,
    memory: MemoryOption = None,
    memory_headroom: MemoryHeadroomOption = None,
    pin: PinOption = None,
    method: Annotated[str, typer.Option("--method", "-m", metavar="NAME", help="As of solve.")] = "auto",
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Stop after this time.")] = 60.0,
    gap: Annotated[float | None, typer.Option(metavar="RATIO", help="Stop at this proven gap.")] = None,
    memory_limit: MemoryLimitOption = None,
    seed: SeedOption = 0,
    param: ParamOption = None,
    problem: Annotated[
        Path | None,
        typer.Option("--problem", metavar="FILE", help="Write the problem, too: for show, explain, verify, export."),
    ] = None,
    output: Annotated[Path | None, output_option("Placement file; the result goes beside it; - for stdout.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Place a language model by its numbers, without weights or torch, and say what serving it will be like.

    Costs are analytic; a sample is a batch of requests. Named accelerators have the memory of their data sheet unless
    the platform file or --memory says otherwise.
    """
    from placekit.cli.console import check_writable, print_json, show_parts
    from placekit.cli.files import OutputFiles
    from placekit.cli.progress import SolveLine
    from placekit.cost_models.analytic import Analytic
    from placekit.io.platform_toml import read_platform
    from placekit.io.problem_json import write_problem
    from placekit.language.report import serving_report
    from placekit.language.serving import Serving, parse_phases
    from placekit.solve.registry import get_method
    from placekit.solve.solve import solve as solve_problem

    params = parse_params(param)
    get_method(method, params)
    numbers = {
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "ffn": ffn,
        "vocab": vocab, "experts": experts, "experts_per_token": experts_per_token, "gated": gated,
    }  # fmt: skip
    given = {key: value for key, value in numbers.items() if value is not None}
    tokens = parse_phases(phase or [])
    serving = Serving(context=context, sequences=sequences, batch=batch, **tokens)  # type: ignore[arg-type]  # None: P + G
    machine = leave_free(limit_memory(_with_sheet_memory(read_platform(platform)), memory), memory_headroom)
    model = Analytic.from_platform_file(machine)
    choice = ObjectiveChoice(objective, contiguity=contiguity, overlap=overlap, teams=teams)
    chosen = {"objective": choice.objective(), "contiguity": choice.contiguity_or_none()}
    task, model_told = _task(
        name, given, serving, machine, lambda graph: model.cost_table(graph, machine), precision,
        cache_precision=cache_precision, granularity=granularity,
        **{field: value for field, value in chosen.items() if value is not None},
    )  # fmt: skip
    pins = parse_pairs("--pin", pin, PIN_FORM)
    task = replace(task, problem=task.problem.pin(pins))
    files = OutputFiles.of(Path(f"{name or 'llm'}.llm" if _is_decoder(name) else str(name)), output)
    if problem is not None:
        check_writable(problem)
    with SolveLine(time_limit) as line:
        result = solve_problem(
            task.problem, method, stop=stop_of(time_limit, gap, memory_limit), seed=seed, params=params,
            on_progress=line,
        )  # fmt: skip
    written = files.write(result, task.problem)
    if problem is not None:
        write_problem(task.problem, problem)
        written["problem"] = str(problem)
    report = None if result.placement is None else serving_report(task, result.placement)
    if as_json:
        served = None if report is None else report.to_dict()
        print_json(result.to_dict() | {"model": model_told, "serving": served, "files": written})
    else:
        show_parts(_parts(task, pins, result, report, model_told, written))
    raise typer.Exit(exit_code(result))


def _is_decoder(name: str | None) -> bool:
    """Return whether `name` is that of a shape, or none; not a model file."""
    from placekit.io.model import MODEL_SUFFIXES

    return name is None or Path(name).suffix.lower() not in MODEL_SUFFIXES


def _task(
    name: str | None,
    numbers: Mapping[str, Any],
    serving: Serving,
    platform: Platform,
    costs: Costs,
    precision: str | None,
    **choices: Any,
) -> tuple[LanguageTask, str]:
    """Return what is asked of a shape or of a model file, and which of them it is in a sentence."""
    from placekit.cli.units import format_bytes, format_count
    from placekit.language.decoder import get_decoder
    from placekit.language.model import model_task
    from placekit.language.task import decoder_task

    if _is_decoder(name):
        shape, bits = get_decoder(name, numbers), precision or "f16"
        task = decoder_task(shape, serving, platform, costs, precision=bits, name=name or "llm", **choices)
        return task, (
            f"{task.problem.name}: {shape.num_parameters / 1e9:.2f} billion parameters in {bits}, {shape.layers} "
            f"blocks, hidden {shape.hidden}, {shape.heads} heads, {shape.kv_heads} of keys and values"
        )
    if numbers or precision is not None:
        option = "precision" if precision is not None else next(iter(numbers)).replace("_", "-")
        raise InvalidProblemError(f"--{option} goes with numbers of a model; {name} has its own")
    task = model_task(Path(str(name)), serving, platform, costs, **choices)
    layers = int((task.cache_bytes > 0).sum())
    return (
        task,
        f"{name}: weights of {format_bytes(task.weight_bytes.sum())}, {format_count(layers, 'op')} with a cache",
    )


def _with_sheet_memory(platform: Platform) -> Platform:
    """Return the platform; devices without a limit have that of the accelerator which they name, if it has one."""
    from placekit.cost_models.device_table import DEVICE_TABLE

    def limit(kind: str) -> float | None:
        named = DEVICE_TABLE.get(platform.spec_of_kind.get(kind, kind))
        return None if named is None else named.memory_bytes

    return platform.replace(
        devices=tuple(
            device.replace(memory_bytes=limit(device.kind)) if device.memory_bytes is None else device
            for device in platform.devices
        )
    )


def _parts(
    task: LanguageTask,
    pins: Mapping[str, str],
    result: Result,
    report: ServingReport | None,
    model_told: str,
    written: Mapping[str, str],
) -> Iterator[RenderableType]:
    from placekit.cli.facts import problem_facts
    from placekit.cli.files import file_facts
    from placekit.cli.render import fact_lines, result_lines

    shown = task.problem.replace(platform=task.platform)
    yield fact_lines({"model": model_told, **_asked(task), **problem_facts(shown, pins)})
    yield ""
    yield from result_lines(result, with_memory=report is None)
    if report is not None:
        yield ""
        yield from serving_lines(task, report)
    yield ""
    yield fact_lines(file_facts(written))


def _asked(task: LanguageTask) -> dict[str, str]:
    from placekit.cli.units import format_bytes, format_count

    serving = task.serving
    weights, cache = float(task.weight_bytes.sum()), float(task.cache_bytes.sum())
    return {
        "serving": f"{format_count(serving.prompt, 'token')} of prompt, {serving.generated} generated; "
        f"{format_count(serving.sequences, 'sequence')} in flight, {serving.batch} in a batch",
        "memory": f"weights {format_bytes(weights)}, cache {format_bytes(cache)} per sequence of {serving.context} "
        f"tokens, activations {format_bytes(task.activation_bytes)} per device",
    }


def serving_lines(task: LanguageTask, report: ServingReport) -> Iterator[RenderableType]:
    """Return what a placement delivers: memory by device, latency, rate, and what one more sequence breaks."""
    from placekit.cli.render import fact_lines, plain_table
    from placekit.cli.units import format_bytes, format_count, format_time

    table = plain_table("device", "weights", "cache", "activations", "limit", "sequences")
    for each in report.memory:
        most = "-" if each.most_sequences is None else str(each.most_sequences)
        sizes = (each.weight_bytes, each.cache_bytes, each.activation_bytes, each.limit_bytes)
        table.add_row(each.device, *map(format_bytes, sizes), most)
    yield table
    yield ""
    facts = {}
    if report.time_to_first_token_s is not None:
        facts["first token"] = f"{format_time(report.time_to_first_token_s)} after the prompt"
    if report.time_per_token_s is not None:
        facts["per token"] = format_time(report.time_per_token_s)
    facts["request"] = f"{format_time(report.request_s)} from end to end"
    told = "tokens/s" if task.serving.generated else "prompt tokens/s"
    facts["rate"] = f"{report.tokens_per_s:.4g} {told}, {report.requests_per_s:.4g} requests/s"
    if report.batches < report.batches_to_fill:
        steady = report.steady_requests_per_s * (task.serving.generated or task.serving.prompt)
        facts["not filled"] = (
            f"{report.batches} in flight where {report.batches_to_fill} batches keep every stage busy: {steady:.4g} "
            f"{told} then"
        )
    facts["room"] = (
        "no limit on sequences"
        if report.most_sequences is None
        else f"{format_count(report.most_sequences, 'sequence')} in flight at most; one more breaks the limit of "
        f"{report.next_breaks}"
    )
    yield fact_lines(facts)
