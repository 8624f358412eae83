"""Numba's cache of kernels on disk, for kernels that several processes compile and inline into one another.

Numba's own can hand out machine code of another kernel, and with it wrong bounds:

- A function is known to the linker by its name, the types of its arguments and a number, which every process counts
  from one. Where kernels that two processes have cached meet in a third, two helpers may have all of that in common
  (``np.sort`` and ``np.argsort`` compile different functions of one name), and both kernels get the helper that was
  loaded first: https://github.com/numba/numba/issues/10486. Here every process counts from a random number.
- Two processes that compile a kernel for different types at once may write to one file; and a file is named in the
  index before it is written. Here no two files share a name, and the index follows.
- A kernel counts as fresh while its own file is unchanged, whatever becomes of what is inlined into it. Here it is
  compiled anew when a file changes that any kernel of its module calls.
- A file that cannot be read, as after an upgrade that renamed a class of tuples, is an error. Here it is not there.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast
from uuid import uuid4

from numba.core.bytecode import FunctionIdentity
from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher

__all__ = ["KernelFiles", "files_of"]

logger = logging.getLogger(__name__)

Read = TypeVar("Read")


def _number_functions() -> None:
    """Let the numbers of the functions that this process compiles be no other process's."""
    FunctionIdentity._unique_ids = count(secrets.randbits(62))


_number_functions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_functions)


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel.

    Parameters
    ----------
    files
        What Numba made of them.
    function
        The function.
    """

    def __init__(self, files: IndexDataCacheFile, function: Callable[..., Any]) -> None:
        vars(self).update(vars(files))
        called = [each for value in function.__globals__.values() if (each := files_of(value)) is not None]
        own = (function.__module__, files._source_stamp)
        self._source_stamp = frozenset({own}).union(*(each._source_stamp for each in called))

    def save(self, key: Any, data: Any) -> None:
        """Put a kernel into the cache."""
        name = f"{self._index_name.removesuffix('.nbi')}.{uuid4().hex[:16]}.nbc"
        self._save_data(name, data)  # type: ignore[no-untyped-call]  # numba has no types here
        self._save_index(self._load_index() | {key: name})  # type: ignore[no-untyped-call]

    def load(self, key: Any) -> Any:
        """Return a kernel, or None if it is not there."""
        return _or_nothing(partial(super().load, key), None)

    def has(self, key: Any) -> bool:
        """Return whether a kernel is in the cache."""
        return key in self._load_index()

    def _load_index(self) -> dict[Any, str]:
        return _or_nothing(cast("Callable[[], dict[Any, str]]", super()._load_index), {})


def files_of(kernel: Any) -> KernelFiles | None:
    """Return the files of a kernel; None of anything else."""
    cache = getattr(kernel, "_cache", None) if isinstance(kernel, Dispatcher) else None
    files = getattr(cache, "_cache_file", None)  # what is not cached has none
    return files if isinstance(files, KernelFiles) else None


def _or_nothing(read: Callable[[], Read], nothing: Read) -> Read:
    try:
        return read()
    except Exception as error:  # pickle raises whatever the classes behind it do
        logger.debug("a file of the cache of kernels cannot be read, and is passed over: %r", error)
        return nothing
