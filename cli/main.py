"""Entry point ``placekit``, and the form of errors."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from placekit.cli.console import one_line, print_error, print_line, take_stdout
from placekit.cli.help_pages import TableOfCommands, UsageError, usage_error_line
from placekit.interrupts import EXIT_INTERRUPTED, was_interrupted
from placekit.model.errors import JudgeDisagreementError, PlacekitError

EXIT_USAGE = 2
"""Bad arguments or bad input."""

DEAF = ("highs", "cp-sat", "quick bounds")
"""Beginnings of the names of threads that nobody waits for: of a native solver, and of a long kernel."""

app = typer.Typer(
    name="placekit",
    cls=TableOfCommands,
    help="Decide on which device every operator of a neural network runs, and prove how good the decision is.",
    epilog="Exit codes: 0 ok, 2 usage or bad input, 3 infeasible, 4 stopped without a feasible answer, "
    "5 a result that does not verify. `placekit COMMAND --help` says more about a command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    except KeyboardInterrupt:
        _leave_interrupted()
    except ModuleNotFoundError as error:
        from placekit.io.needs import missing

        if (line := missing(error, "this command")) is None:
            raise
        print_error(line)
        sys.exit(EXIT_USAGE)
    except PlacekitError as error:
        if was_interrupted():
            _leave_interrupted()
        print_error(error)
        sys.exit(EXIT_USAGE)
    except BrokenPipeError:  # the reader of a pipe has left (`placekit ... | head`): nothing more to say
        _discard_stdout()
        sys.exit(EXIT_INTERRUPTED)
    except (OSError, MemoryError) as error:  # a full disk behind stdout, a file that went away: the machine's fault
        _discard_stdout()
        print_error(_what_failed(error))
        sys.exit(EXIT_USAGE)
    except Exception:
        if was_interrupted():
            _leave_interrupted()
        raise


def _leave_interrupted() -> NoReturn:
    print_error("interrupted")
    _leave(EXIT_INTERRUPTED)


def _run() -> NoReturn:
    """Run the command and flush its output, so that a failure to write is reported here and not at exit."""
    try:
        code = app(prog_name="placekit", standalone_mode=False)
    except UsageError as error:
        if len(sys.argv) == 1:  # without a command: the help
            print_line(error, sys.stderr)
        else:
            print_error(usage_error_line(error))
        code = EXIT_USAGE
    sys.stdout.flush()
    code = code if isinstance(code, int) else 0
    if code == EXIT_INTERRUPTED:
        _leave_interrupted()
    if any(thread.name.startswith(DEAF) for thread in threading.enumerate()):
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End the process at once, without waiting for native solvers or for a further Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _discard_stdout() -> None:
    """Discard the remaining output to stdout."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _what_failed(error: OSError | MemoryError) -> str:
    if isinstance(error, MemoryError):
        return f"out of memory: {error}"
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


if __name__ == "__main__":
    main()
