"""The entry point ``placekit``: the table of commands, and what an error looks like.

Heavy packages are imported inside the commands, so that ``placekit --help`` answers at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from placekit.cli.bench import bench
from placekit.cli.calibrate import calibrate
from placekit.cli.console import one_line, print_error, take_stdout
from placekit.cli.devices import devices
from placekit.cli.explain import explain
from placekit.cli.export import export
from placekit.cli.learn import learn
from placekit.cli.llm import llm
from placekit.cli.methods import methods
from placekit.cli.problem import problem
from placekit.cli.profile import profile
from placekit.cli.report import report
from placekit.cli.show import show
from placekit.cli.solve import solve
from placekit.cli.time import time
from placekit.cli.verify import verify
from placekit.cli.warm_up import warm_up
from placekit.cli.zoo import zoo
from placekit.model.errors import JudgeDisagreementError, PlacekitError

__all__ = ["EXIT_INTERRUPTED", "EXIT_USAGE", "app", "main"]

EXIT_USAGE = 2
"""Bad arguments or bad input."""
EXIT_INTERRUPTED = 130
"""Ctrl-C where there is no answer to return: the shell's convention, 128 + SIGINT."""

DEAF = ("highs", "cp-sat", "quick bounds", "load ", "compile-queue")
"""Beginnings of the names of threads that nobody waits for: of a native solver, a long kernel, an import, compilers."""

app = typer.Typer(
    name="placekit",
    help="Decide on which device every operator of a neural network runs, and prove how good the decision is.",
    epilog="Exit codes: 0 ok, 2 usage or bad input, 3 infeasible, 4 stopped without a feasible answer, "
    "5 a result that does not verify.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    devices,
    profile,
    calibrate,
    problem,
    solve,
    learn,
    llm,
    time,
    export,
    show,
    zoo,
    bench,
    report,
    explain,
    verify,
    methods,
    warm_up,
):
    app.command()(command)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from placekit import __version__

        print(f"placekit {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[  # noqa: ARG001  # acts in its callback
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    take_stdout(None)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {one_line(record.getMessage())}"


def main() -> None:
    """Run the command line; every `PlacekitError` becomes one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without Unicode shows "?" instead of failing
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logging.getLogger("placekit").handlers[:] = [handler]
    try:
        _run()
    except JudgeDisagreementError:  # a bug of ours, not of the input: show where
        raise
    except PlacekitError as error:
        print_error(error)
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        print_error("interrupted")
        _leave(EXIT_INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has left (`placekit ... | head`): nothing more to say
        _discard_stdout()
        sys.exit(EXIT_INTERRUPTED)
    except (OSError, MemoryError) as error:  # a full disk behind stdout, a file that went away: the machine's fault
        _discard_stdout()
        print_error(_what_failed(error))
        sys.exit(EXIT_USAGE)


def _run() -> None:
    """Run the command, and write out what it printed: where that fails is told here, not when Python exits."""
    try:
        app()
    except SystemExit as end:
        sys.stdout.flush()
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code == EXIT_INTERRUPTED or any(thread.name.startswith(DEAF) for thread in threading.enumerate()):
            _leave(code)
        raise
    sys.stdout.flush()


def _leave(code: int) -> NoReturn:
    """End the process at once: neither a deaf native solver nor one more Ctrl-C delays the end or aborts in it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _discard_stdout() -> None:
    """Let what is still to be written to stdout vanish."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _what_failed(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


if __name__ == "__main__":
    main()
