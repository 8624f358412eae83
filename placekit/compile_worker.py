"""The process that compiles kernels for another one: ``python -m placekit.compile_worker``, fed by a pipe.

A request is its length in eight bytes and a pickled (module, name, pickled Numba types). The answer is one byte when
the kernel is in the cache on disk, or cannot be compiled here. The pipe comes from the process that started this one.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from importlib import import_module

from placekit.patience import MODE

__all__ = ["main"]


def main() -> None:
    """Compile what is asked for until the pipe ends."""
    os.environ[MODE] = "inline"
    answers, requests = os.dup(1), sys.stdin.buffer
    os.dup2(2, 1)  # what modules print is no answer
    while len(header := requests.read(8)) == 8:
        size = int.from_bytes(header, "little")
        module, name, arguments = pickle.loads(requests.read(size))  # noqa: S301  # from the process that started this one
        with suppress(Exception):  # who asked compiles it then, and sees the error
            getattr(import_module(module), name).compile(pickle.loads(arguments))  # noqa: S301
        with suppress(OSError):  # who asked has ended; the next one that starts will find it
            os.write(answers, b".")


if __name__ == "__main__":
    main()
