"""Numba's ``njit`` for the kernels: compiled once per installation, small, and never longer than the caller waits.

Kernels are compiled on first use and cached on disk. What differs from numba's own decorator:

- A literal argument makes no specialisation of its own (``settle(walk, 0)`` and ``settle(walk, first)`` are one).
  Inlined code is specialised by LLVM anyhow, and without this every kernel of the makespan is compiled twice.
- What mostly other kernels call is linked into them, and never becomes machine code of its own
  (:mod:`placekit.kernel_parts`).
- During a solve, kernels are compiled by processes of their own (:mod:`placekit.compile_queue`), and the caller waits
  for them only as long as :mod:`placekit.patience` says; see `KernelsPendingError`.
- A kernel that the judge needs is run by the Python interpreter, slowly, when the time for waiting is over.
- Machine code in the cache is that of the kernel (:mod:`placekit.kernel_files`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from numba import njit as numba_njit
from numba import prange
from numba.core import event

from placekit.compile_clock import compiling_begins, compiling_ends
from placekit.compile_queue import compile_elsewhere
from placekit.errors import KernelsPendingError
from placekit.kernel_files import KernelFiles, files_of
from placekit.kernel_parts import make_part, without_literals

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["inlined", "judge_kernel", "kernel", "njit", "part", "prange", "used"]

logger = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

used: dict[tuple[Callable[..., Any], tuple[Any, ...]], None] = {}
"""Every kernel that Python has called so far, with the types of its arguments, in the order of the first calls."""

_said = threading.Event()
_here = threading.local()
"""Of a thread: ``is_compiling`` while it compiles a kernel, so that what the kernel calls is compiled with it."""


class _Compiling(event.Listener):
    """Keeps the clock of compiling; loading from the cache is not compiling."""

    def on_start(self, event: event.Event) -> None:  # noqa: ARG002  # numba's signature
        _say()
        compiling_begins()

    def on_end(self, event: event.Event) -> None:  # noqa: ARG002
        compiling_ends()


event.register("numba:compile", _Compiling())  # type: ignore[no-untyped-call]  # numba has no types here


def _say() -> None:
    if not _said.is_set():
        _said.set()
        logger.warning(
            "compiling kernels for this machine: once per installation; `placekit warm-up` does it beforehand"
        )


if TYPE_CHECKING:
    from numba import njit  # the same types
else:

    def njit(function=None, **options):
        """Compile a function as ``numba.njit`` does, with the differences that the module's docstring names."""
        if function is None:
            return lambda function: _compiled(function, **options)
        return _compiled(function, **options)


def _compiled(
    function: Callable[..., Any], *, is_interpretable: bool = False, is_part: bool = False, **options: Any
) -> Any:
    """Return the kernel of a function.

    Parameters
    ----------
    function
        The function.
    is_interpretable
        True to run it in the Python interpreter where there is no time to wait for its compilation, instead of raising
        `KernelsPendingError`.
    is_part
        True for what mostly other kernels call.
    **options
        Numba's.
    """
    options["no_cfunc_wrapper"] = True  # for functions as values, which no kernel is
    dispatcher: Any = numba_njit(**options)(function)
    if options.get("cache"):
        dispatcher._cache._cache_file = KernelFiles(dispatcher._cache._cache_file, function)
    compile_here = dispatcher.compile
    if is_part:
        linked = make_part(function, **options)
        dispatcher.get_call_template, dispatcher.get_overload = linked.get_call_template, linked.get_overload

    def compile_soon(signature: Any) -> Any:
        if not isinstance(signature, tuple):
            return compile_here(signature)
        arguments = without_literals(signature)
        if not getattr(_here, "is_compiling", False):
            used[function, arguments] = None
            if not _is_compiled(dispatcher, arguments):
                try:
                    compile_elsewhere(dispatcher.py_func, arguments, _say)
                except KernelsPendingError:
                    if not is_interpretable:
                        raise
                    return _interpreted(dispatcher)
        with _compiling():
            return compile_here(arguments)

    dispatcher.compile = compile_soon
    return dispatcher


def judge_kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that the judge needs, and that may allocate: nobody is left without it for want of time."""
    return _compiled(function, cache=True, nogil=True, is_interpretable=True)


def kernel(function: Function) -> Function:
    """Compile a function that is called millions of times with tuples of many arrays.

    Numba counts a reference to each array at every call, and copies the descriptors of all of them, which takes longer
    than a small function does. Without counting nothing may be allocated, so scratch arrays are arguments, and the
    caller keeps all of them alive; inlined into the kernel that calls it, a kernel copies nothing.
    """
    compiled: Function = _compiled(function, cache=True, nogil=True, forceinline=True, is_part=True, _nrt=False)
    return compiled


def inlined(function: Function) -> Function:
    """Compile a function that hot loops call with tuples of arrays, and that may allocate.

    Inlined into its callers it copies no descriptors of arrays, which takes longer than what a small function does.
    """
    compiled: Function = _compiled(function, cache=True, nogil=True, forceinline=True, is_part=True)
    return compiled


def part(function: Function) -> Function:
    """Compile a function that mostly other kernels call, without a wish to be inlined."""
    compiled: Function = _compiled(function, cache=True, nogil=True, is_part=True)
    return compiled


@contextmanager
def _compiling() -> Iterator[None]:
    before, _here.is_compiling = getattr(_here, "is_compiling", False), True
    try:
        yield
    finally:
        _here.is_compiling = before


def _is_compiled(dispatcher: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether nothing must be compiled: it was, it is on disk, or no other process could put it there."""
    if arguments in dispatcher.overloads:
        return True
    files = files_of(dispatcher)
    return files is None or files.has(dispatcher._cache._index_key(arguments, dispatcher.targetctx.codegen()))


@cache
def _interpreted(dispatcher: Any) -> FunctionType:
    """Return the Python function of a kernel, in which the kernels that it calls are interpreted, too."""
    function: FunctionType = dispatcher.py_func
    called = {
        name: _interpreted(value)
        for name in function.__code__.co_names
        if hasattr(value := function.__globals__.get(name), "py_func")
    }
    return FunctionType(function.__code__, {**function.__globals__, **called}, function.__name__, function.__defaults__)
