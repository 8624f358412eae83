"""The process that compiles kernels for another one: ``python -m placekit.compile_worker``, fed by a pipe.

A request is a line of JSON: module, name, and types as :mod:`placekit.kernel_types` writes them. The answer is one byte
when the kernel is in the cache on disk, or cannot be compiled here. The pipe comes from the process that started this
one.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

from placekit.patience import MODE

__all__ = ["compile_kernel", "main"]

YIELDS = 10
"""How much nicer this process is than the one that solves, which has its limit to keep, and more to do than wait."""


def compile_kernel(module: str, name: str, types: list[Any]) -> None:
    """Put a kernel into the cache on disk; one that cannot be compiled is left to who calls it, and sees the error."""
    from placekit.kernel_types import read_type  # it takes a while to import numba

    with suppress(Exception):
        getattr(import_module(module), name).compile(tuple(read_type(each) for each in types))


def main() -> None:
    """Compile what is asked for until the pipe ends."""
    os.environ[MODE] = "inline"
    if hasattr(os, "nice"):
        os.nice(YIELDS)
    answers, requests = os.dup(1), sys.stdin.buffer
    os.dup2(2, 1)  # what modules print is no answer
    for request in requests:
        compile_kernel(*json.loads(request))
        with suppress(OSError):  # who asked has ended; the next one that starts will find it
            os.write(answers, b".")


if __name__ == "__main__":
    main()
