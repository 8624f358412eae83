"""The planned line of a runtime beside its own choice, each started and measured once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from placekit.language.planning.answer import Answer
from placekit.language.runtimes.record import Launch, Runtime
from placekit.language.serve.process import Server, started
from placekit.language.serve.speeds import RequestSpeeds, measure
from placekit.model.errors import ExecutionError, InvalidProblemError

_OF_BOTH = (
    "all_context", "sequences", "chunk", "steps", "cache_keys", "cache_values", "flash_attention", "servers", "threads",
)  # fmt: skip
"""Options of a planned line that say what is served, not where: the runtime's own choice gets them, too."""

Which = Literal["planned", "own choice"]


@dataclass(frozen=True)
class Wanted:
    """Way in which a plan is served."""

    model: str
    host: str = "127.0.0.1"
    port: int = 8080
    within_s: float = 600.0  # until a server answers
    compares: bool = True  # with the runtime's own choice, if it has one


@dataclass(frozen=True)
class Kept:
    """The server that is kept, and what was measured."""

    which: Which
    server: Server
    launch: Launch
    planned: RequestSpeeds | None  # None where it did not start
    own_choice: RequestSpeeds | None  # None where there is none, or it did not start
    why_not: str = ""  # why one of them did not start

    @property
    def gain(self) -> float | None:
        """Speedup of a request by the planned line over the choice of the runtime."""
        if self.planned is None or self.own_choice is None:
            return None
        return self.own_choice.request_s / self.planned.request_s


def require_server(runtime: Runtime) -> None:
    """Raise `InvalidProblemError` if a runtime is a library, or starts a program of the user's that trains."""
    if not runtime.is_server:
        raise InvalidProblemError(f"{runtime.name} is no server that a line starts")


def launch_of(answer: Answer) -> Launch:
    """Return what starts the one server of a plan.

    Raises `InvalidProblemError`: no plan, no runtime, several servers, or servers on several machines.
    """
    servers = answer.servers
    if answer.report is None:
        raise InvalidProblemError(f"{answer.model.called} does not fit, so that there is nothing to serve")
    if list(servers) != [""]:
        raise InvalidProblemError("a plan of one server is served: give --for, and leave out --apart")
    launch = servers[""]
    require_server(launch.runtime)
    if len(launch.starts) > 1:
        nodes = ", ".join(str(each.node) for each in launch.starts)
        raise InvalidProblemError(
            f"a plan of one machine is served, this one is of {nodes}: start the lines of placekit llm on them"
        )
    return launch


def own_choice(launch: Launch) -> Launch | None:
    """Return the launch in which the runtime itself chooses places; None if it has no such choice."""
    options = launch.runtime.options
    if "fit" not in options:
        return None
    kept = {options[key] for key in _OF_BOTH if key in options}
    words = [word for pair in pairwise(launch.arguments) if pair[0] in kept for word in pair]
    return replace(launch, arguments=(*words, options["fit"], "on"))


@contextmanager
def faster_server(
    answer: Answer,
    wanted: Wanted,
    tell: Callable[[str, RequestSpeeds | str], None] = lambda which, told: None,  # noqa: ARG005
) -> Iterator[Kept]:
    """Start the planned line and the runtime's own choice one after the other, and yield the faster one, running.

    The runtime's own choice comes first, so that the planned one need not be started again where it is faster. `tell`
    hears what was measured, or why a server did not start. Raises `PlacekitError`: neither starts.
    """
    launch = launch_of(answer)
    own = own_choice(launch) if wanted.compares else None
    theirs: RequestSpeeds | None = None
    why_not = ""
    if own is not None:
        try:
            with started(own, wanted.model, wanted.host, wanted.port, wanted.within_s) as server:
                theirs = _measured(answer, wanted, server)
                tell("own choice", theirs)
        except ExecutionError as error:
            why_not = f"own choice: {error}"
            tell("own choice", str(error))
    ours: RequestSpeeds | None = None
    try:
        with started(launch, wanted.model, wanted.host, wanted.port, wanted.within_s) as server:
            ours = _measured(answer, wanted, server)
            tell("planned", ours)
            if theirs is None or ours.request_s <= theirs.request_s:
                yield Kept("planned", server, launch, ours, theirs, why_not)
                return
    except ExecutionError as error:
        if ours is not None or theirs is None:
            raise
        why_not = f"planned: {error}"
        tell("planned", str(error))
    assert own is not None
    with started(own, wanted.model, wanted.host, wanted.port, wanted.within_s) as server:
        yield Kept("own choice", server, own, ours, theirs, why_not)


def _measured(answer: Answer, wanted: Wanted, server: Server) -> RequestSpeeds:
    serving, runtime = answer.plan.task.serving, answer.plan.runtime
    return measure(
        server.url, serving.prompt, serving.generated, model=wanted.model,
        tells_timings=runtime is not None and runtime.takes_gguf,
    )  # fmt: skip
