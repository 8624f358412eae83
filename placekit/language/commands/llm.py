"""``placekit llm``: a language model given by its numbers, placed on devices to be served."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from placekit.cli.console import check_writable, print_json, print_line, show_parts
from placekit.cli.options import DetailsOption, JsonOption, OptionsFile, SearchOptions, exit_code, output_option
from placekit.cli.output.files import OutputFiles, file_facts
from placekit.cli.output.progress import SolveLine
from placekit.cli.output.render import fact_lines, paragraphs
from placekit.io.files.problem_json import write_problem
from placekit.language.commands.answer_parts import summary_parts, verdict_text
from placekit.language.commands.answer_plot import plot_answer
from placekit.language.commands.line_parts import line_parts, named_model, text_of
from placekit.language.commands.llm_options import LlmOptions, refuse_contradictions
from placekit.language.commands.serving_parts import detail_parts, tables
from placekit.language.decoder import DECODERS
from placekit.language.planning.answer import Answer
from placekit.language.planning.planner import plan_models
from placekit.language.planning.question import GivenModel, Search
from placekit.language.planning.read_line import ReadLine, read_line
from placekit.language.precision import split_precisions
from placekit.language.read import called, is_program
from placekit.language.runtimes import get_runtime
from placekit.model.errors import InvalidProblemError
from placekit.plotting.canvas import save_figure
from placekit.solve.registry import get_method


def llm(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Model: a config.json of transformers or its folder, a .gguf file, a .pt2 or a stateful .xml with "
            "open numbers of sequences and tokens, a model of today (qwen3-8b, gpt-oss-20b, llama-3.3-70b, ...), "
            f"or a shape whose numbers options change: {', '.join(DECODERS)}.",
        ),
    ] = None,
    *,
    search: SearchOptions,
    asked: LlmOptions,
    output: Path | None = output_option("Placement file; the result goes beside it. `-` is standard output."),
    options: OptionsFile = None,  # noqa: ARG001  # acts in its callback
    as_json: JsonOption = False,
    details: DetailsOption = False,
) -> None:
    """Place a language model, without its weights, and predict how it is served.

    Costs are analytic. Named accelerators have the memory of their data sheet.
    """
    get_method(search.method, search.params)
    refuse_contradictions(asked)
    line = None if asked.line is None else text_of(asked.line)
    name = named_model(line) if name is None and line is not None and not asked.numbers.given else name
    platform = replace(asked.memory, headroom=None).apply(asked.machine.platform())
    models = [GivenModel.read(name, asked.numbers.given, each) for each in split_precisions(asked.weights.precision)]
    files = OutputFiles.of(Path(str(name) if is_program(name) else f"{called(name)}.llm"), output)
    for path in (asked.problem, asked.plot):
        if path is not None:
            check_writable(path)
    how = Search(search.method, search.stop, search.seed, search.params, partial(SolveLine, search.time_limit))
    read, record = None, None if asked.goal.runtime is None else get_runtime(asked.goal.runtime)
    if line is not None:
        if len(models) > 1:
            raise InvalidProblemError(f"--precision {asked.weights.precision}: give one with --line")
        read = read_line(line, models[0], platform, wishes=asked.wishes, search=how, runtime=asked.goal.runtime)
        if record not in (None, read.launch.runtime):
            raise InvalidProblemError(f"--for {asked.goal.runtime}: the line is of {read.launch.runtime.name}")
    answer = read.best if read else plan_models(models, platform, record, asked.wishes, how)
    plan = answer.plan
    written = files.write(plan.result, plan.task.problem)
    if asked.plot is not None:
        save_figure(plot_answer(answer), asked.plot)
        written["plot"] = str(asked.plot)
    if asked.problem is not None:
        write_problem(plan.task.problem, asked.problem)
        written["problem"] = str(asked.problem)
    launch = _with_names(answer.launch, written, asked.machine.file)
    if as_json:
        document = plan.result.to_dict() | {**answer.to_dict(), "launch": launch, "files": written}
        print_json(document if read is None else document | {"line": read.to_dict()})
    else:
        _show(answer, launch, written, read, has_details=details)
    raise typer.Exit(exit_code(plan.result.placement, plan.result.status))


def _with_names(launch: Sequence[str], written: Mapping[str, str], platform: Path | None) -> list[str]:
    """Return the lines with the names of files in them."""
    named = {"PLACEMENT": shlex.quote(written.get("placement", "")), "PLATFORM": shlex.quote(str(platform))}
    return [re.sub("|".join(named), lambda found: named[found[0]], line) for line in launch]


def _show(
    answer: Answer, launch: Sequence[str], written: Mapping[str, str], read: ReadLine | None, *, has_details: bool
) -> None:
    """Print the answer: the verdict, the lines, numbers, and further tables."""
    if read is not None:
        show_parts([*line_parts(read), ""])
    show_parts([verdict_text(answer)])
    print_line("\n".join(["", *launch, ""] if launch else [""]))
    details = detail_parts(answer) if has_details else None
    show_parts(paragraphs(summary_parts(answer), *tables(answer), details, fact_lines(file_facts(written))))
