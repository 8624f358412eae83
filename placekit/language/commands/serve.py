"""``placekit serve``: a planned language model started, measured, and compared with the runtime's own choice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, ClassVar

import typer

from placekit.cli.console import print_json, print_line, show_parts
from placekit.cli.options import JsonOption, SearchOptions
from placekit.cli.output.progress import SolveLine
from placekit.cli.parameters import option
from placekit.language.commands.answer_parts import rate, verdict_text
from placekit.language.commands.llm_options import LlmOptions, refuse_contradictions
from placekit.language.planning.planner import plan_models
from placekit.language.planning.question import GivenModel, Search
from placekit.language.runtimes import get_runtime
from placekit.language.serve.compare import Kept, Wanted, faster_server, launch_of, require_server
from placekit.language.serve.process import require_free, require_lenders, require_program
from placekit.language.serve.speeds import RequestSpeeds
from placekit.model.errors import InvalidProblemError

DEFAULT_RUNTIME = "llama.cpp"


@dataclass(frozen=True)
class ServeOptions:
    """Way in which the plan is served."""

    panel: ClassVar[str] = "Serving"

    host: str = option("127.0.0.1", "Address to listen on.", "ADDRESS")
    port: int = option(8080, "Port to listen on.", "PORT", min=1, max=65535)
    start_within: float = option(600.0, "Seconds that a server may take to answer.", "SECONDS", min=0.1)
    own_choice: bool = option(True, "Also measure what the runtime chooses by itself, and keep the faster one.")
    once: bool = option(False, "End the server after it was measured.", names="--once")


def serve(
    name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Model, as of `placekit llm`; llama.cpp serves a .gguf file.")
    ] = None,
    *,
    search: SearchOptions,
    asked: LlmOptions,
    served: ServeOptions,
    as_json: JsonOption = False,
) -> None:
    """Start the planned line of a language model, and keep it if it beats the runtime's own choice.

    Ctrl-C ends all that was started.
    """
    given = {"--line": asked.line, "--problem": asked.problem, "--instead": asked.instead, "--plot": asked.plot}
    if (wrong := next((each for each, value in given.items() if value is not None), None)) is not None:
        raise InvalidProblemError(f"{wrong} goes with placekit llm, not with serve")
    if as_json and not served.once:
        raise InvalidProblemError("--json goes with --once: the object is printed at the end")
    refuse_contradictions(asked)
    runtime = get_runtime(asked.goal.runtime or DEFAULT_RUNTIME)
    require_server(runtime)
    if runtime.takes_gguf and not (name is not None and Path(name).suffix.lower() == ".gguf" and Path(name).is_file()):
        raise InvalidProblemError(f"{runtime.name} serves a .gguf file that is here; {name or 'no model'} is none")
    platform = replace(asked.memory, headroom=None).apply(asked.machine.platform())
    model = GivenModel.read(name, asked.numbers.given, asked.weights.precision)
    how = Search(search.method, search.stop, search.seed, search.params, partial(SolveLine, search.time_limit))
    answer = plan_models([model], platform, runtime, replace(asked.wishes, compares=False), how)
    launch = launch_of(answer)
    wanted = Wanted(model.name, served.host, served.port, served.start_within, served.own_choice)
    require_program(launch, wanted.model)
    require_free(wanted.host, wanted.port)
    require_lenders(launch)
    if not as_json:
        show_parts([verdict_text(answer)])
        print_line("\n".join(["", *answer.launch, ""]))
    with _ended_by_signals(), faster_server(answer, wanted, _silent if as_json else _tell) as kept:
        if as_json:
            print_json(document(kept, launch.runtime.name))
        else:
            print_line(kept_line(kept))
        if not served.once:
            kept.server.wait()


def document(kept: Kept, runtime: str) -> dict[str, Any]:
    """Return what was measured as JSON values."""
    return {
        "runtime": runtime,
        "kept": kept.which,
        "gain": kept.gain,
        "planned": None if kept.planned is None else kept.planned.to_dict(),
        "own_choice": None if kept.own_choice is None else kept.own_choice.to_dict(),
        "why_not": kept.why_not,
        "url": kept.server.url,
        "started_s": kept.server.started_s,
        "arguments": list(kept.launch.arguments),
    }


def kept_line(kept: Kept) -> str:
    """Return which server is kept, by how much it is faster, and where it answers."""
    name, gain = kept.launch.runtime.name, kept.gain
    where = f"it answers at {kept.server.url}; Ctrl-C ends it"
    if kept.which == "planned":
        told = "" if gain is None else f": a request is {gain:.2f}x as fast as by {name}'s own choice"
        return f"Kept the planned line{told}; {where}"
    told = "the planned line did not start" if gain is None else f"a request is {1 / gain:.2f}x as fast"
    return f"Kept {name}'s own choice: {told}; {where}"


def _tell(which: str, told: RequestSpeeds | str) -> None:
    if isinstance(told, RequestSpeeds):
        rates = f"prompt {rate(told.prompt_tokens_per_s)}, generated {rate(told.generated_tokens_per_s)} tokens/s"
        print_line(f"measured {which}: {rates}")
    else:
        print_line(f"{which}: {told}")


def _silent(which: str, told: RequestSpeeds | str) -> None:
    """Say nothing: the object at the end has it."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP what Ctrl-C is, so that servers are ended then, too."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
