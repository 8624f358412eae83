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
- A file that cannot be read, as after an upgrade that renamed a class of tuples, is an error, as is a full disk. Here
  the first is not there, and without the second the kernel is not kept.

All of this stands on names that numba does not promise to keep. `missing_name` looks for them, and without one nothing
is cached: every process compiles for itself, slowly and rightly.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import uuid4

from numba.core.bytecode import FunctionIdentity
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher

logger = logging.getLogger(__name__)


def _number_functions() -> None:
    """Let the numbers of the functions that this process compiles be no other process's."""
    FunctionIdentity._unique_ids = count(secrets.randbits(62))


def missing_name() -> str | None:
    """Return a private name of numba that is used here and does not do what it did, or None if all do."""
    for owner, names in (
        (Dispatcher, ("compile", "_insert")),
        (IndexDataCacheFile, ("_load_index", "_save_index", "_save_data", "save", "load")),
    ):
        for name in names:
            if not callable(getattr(owner, name, None)):
                return f"{owner.__name__}.{name}"
    begin = secrets.randbits(62)
    kept, FunctionIdentity._unique_ids = getattr(FunctionIdentity, "_unique_ids", None), count(begin)
    if FunctionIdentity.from_function(missing_name).unique_id != begin:  # type: ignore[no-untyped-call]
        return "FunctionIdentity._unique_ids"
    FunctionIdentity._unique_ids = kept or count(begin + 1)
    try:
        files = FunctionCache(missing_name)._cache_file  # type: ignore[no-untyped-call]
    except RuntimeError:  # no folder for it, which is another matter
        return None
    except AttributeError:
        return "FunctionCache._cache_file"
    unknown = {"_index_name", "_index_path", "_source_stamp"} - set(vars(files))
    return f"IndexDataCacheFile.{min(unknown)}" if unknown else None


_number_functions()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_functions)


class _KernelFiles(IndexDataCacheFile):
    """The files of one kernel, made from numba's."""

    def __init__(self, files: IndexDataCacheFile, sources: frozenset[Any], say: Callable[[str], None]) -> None:
        vars(self).update(vars(files))
        self._say = say
        self._source_stamp = sources

    def save(self, key: Any, data: Any) -> None:
        """Put a kernel into the cache."""
        name = f"{self._index_name.removesuffix('.nbi')}.{uuid4().hex[:16]}.nbc"
        try:
            self._save_data(name, data)  # type: ignore[no-untyped-call]  # numba has no types here
            self._save_index(self._load_index() | {key: name})  # type: ignore[no-untyped-call]
        except OSError as error:
            self._say(f"compiled kernels cannot be kept: {error}")

    def load(self, key: Any) -> Any:
        """Return a kernel, or None if it is not there."""
        try:
            return super().load(key)  # type: ignore[no-untyped-call]
        except Exception as error:  # pickle raises whatever the classes behind it do
            logger.debug("a file of the cache of kernels cannot be read, and is passed over: %r", error)
            return None

    def _load_index(self) -> dict[Any, str]:
        try:
            return super()._load_index()  # type: ignore[no-any-return, no-untyped-call]
        except Exception as error:
            logger.debug("a file of the cache of kernels cannot be read, and is passed over: %r", error)
            return {}


def keep_files(dispatcher: Any, sources: frozenset[Any], say: Callable[[str], None]) -> None:
    """Let a cached kernel have its files as this module keeps them: fresh as long as `sources` are the same.

    `say` tells the user of a full disk.
    """
    if hasattr(dispatcher._cache, "_cache_file"):
        dispatcher._cache._cache_file = _KernelFiles(dispatcher._cache._cache_file, sources, say)
