"""Ctrl-C while a command starts: one line and exit code 130 from the first import on.

Imports take most of a second, in which Python itself would show where it was interrupted. `placekit` arms the process
before it imports anything, and only where it is the command that was started: programs that import it keep their own
handling of signals.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

EXIT_INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended without an answer: the shell's convention, 128 + SIGINT."""


def is_command() -> bool:
    """Return True if this process was started as ``placekit`` or ``python -m placekit``."""
    name = sys.argv[0] if sys.argv else ""
    # a worker of multiprocessing gets the arguments of its parent
    return name == "-m" or (Path(name).name == "placekit" and "--multiprocessing-fork" not in sys.orig_argv)


def arm() -> None:
    """End the process at once at the next Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else whoever started it has asked not to
        signal.signal(signal.SIGINT, _leave)


def disarm() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from now on, so that what has begun is cleaned up."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _raise)
        sys.unraisablehook = _say_unless_interrupted


def was_interrupted() -> bool:
    """Return True after Ctrl-C: native code, an import above all, can make another error of a KeyboardInterrupt."""
    return bool(_SEEN)


_SEEN: list[int] = []


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"error: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def _raise(number: int, _frame: FrameType | None) -> None:
    _SEEN.append(number)
    raise KeyboardInterrupt


def _say_unless_interrupted(told: sys.UnraisableHookArgs) -> None:
    """Report an error that nobody can be told; Ctrl-C, if it comes there, ends the process."""
    if isinstance(told.exc_value, KeyboardInterrupt):
        _leave(signal.SIGINT, None)
    sys.__unraisablehook__(told)


if is_command():
    arm()
