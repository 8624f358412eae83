"""Work in a process of its own that ends when a solve does not: its CPU time is limited, whatever else runs.

The kernel sends SIGXCPU to a process that has used up its limit. The process writes where its threads are, and ends.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from placekit.machine import num_usable_cpus

MARGIN_CPU_S = 10.0
"""CPU seconds that a solve may take beyond its time limit: kernels are compiled meanwhile, and packages imported."""
SILENT_S = 1800.0
"""Wall seconds without a word that mean threads that wait for each other."""


class Died(Exception):  # noqa: N818  # not an error of the caller's
    """The end of a process that did not end by itself; the message says by what, and where it was."""


def limit_cpu(seconds: float) -> None:
    """Let this process use so many more seconds of every core, and a margin.

    Parameters
    ----------
    seconds
        Wall seconds of what comes next.
    """
    soft = int(process_time() + num_usable_cpus() * seconds + MARGIN_CPU_S) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def messages(work: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """Call ``work(send, *arguments)`` in a new process, and yield everything that it sends.

    Raises
    ------
    Died
        The process was ended by a signal, or said nothing for `SILENT_S`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile() as stack:
        child = context.Process(target=_begin, args=(work, theirs, stack.name, arguments))
        child.start()
        theirs.close()
        try:
            while ours.poll(SILENT_S):
                yield ours.recv()
            child.kill()
            raise Died(f"silent for {SILENT_S:g} s")
        except EOFError:
            child.join()
            if child.exitcode == -signal.SIGXCPU:
                raise Died(f"does not end; it is at {_innermost(Path(stack.name))}") from None
            if child.exitcode:
                raise Died(f"the process ended with code {child.exitcode}") from None
        finally:
            child.kill()
            child.join()


def _begin(work: Callable[..., None], pipe: Any, stack: str, arguments: tuple[Any, ...]) -> None:
    """Be the child."""
    with open(stack, "w") as file, pipe:  # noqa: PTH123  # it stays open until the end
        faulthandler.register(signal.SIGXCPU, file=file, all_threads=False, chain=True)
        work(pipe.send, *arguments)
        sys.stdout.flush()


def _innermost(stack: Path) -> str:
    """Return the innermost lines of the stack that belong to the project, the deepest first."""
    lines = [line.strip().removeprefix("File ") for line in stack.read_text().splitlines() if "File" in line]
    own = [line for line in lines if "placekit" in line or "solvers" in line]
    return " < ".join(own[:3]) or "an unknown place"
