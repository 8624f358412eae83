"""Compiled kernels: one decorator, and `prepare`, which compiles what a solve needs before its clock starts.

`njit` is ``numba.njit(cache=True, nogil=True)``, but numba is not imported before a kernel is called. Machine code is
kept on disk, once per installation, and :mod:`placekit.kernel_cache` mends what numba's own cache gets wrong. A few ops
are simulated without numba (`interpreted`), and where it is not installed, kernels are Python: slow, but with the same
results. Methods that would search so for hours ask for it (:mod:`placekit.solve.method_table`).

Numba learns the types of a kernel's arguments when the kernel is called. `LIST` holds the types beforehand, for each
objective; ``make kernels`` writes it. `prepare` compiles the listed kernels in processes of their own: first those that
``auto`` needs for an ordinary model, and when one of the others is called, those, too (`MORE`). A kernel that is not
listed is compiled when it is called. The clocks of all solves stand still while a kernel is compiled or loaded from
disk: a time limit is solving time.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from types import FunctionType
from typing import Any, TypeAlias, TypeVar, overload
from uuid import uuid4

import numpy as np

from placekit.machine import num_usable_cpus

LIST = Path(__file__).with_name("kernels.json")
"""Modules with kernels, and per objective its kernels, each with module, name and types, the longest to compile first.
"""
MAX_PROCESSES = 4
"""Processes that compile; each takes a quarter of a gigabyte."""
FEW_OPS = 8
"""Problems of so many ops are enumerated without compiled kernels, in a fifth of a second or less."""
LEARNED, TRAINING_PLAN = "learned", "training-plan"
"""What the list names beside objectives: kernels of the learned methods, and of training plans."""

MORE = "harder problems of "
"""Before the name of an objective: its kernels that ``auto`` does not need for an ordinary model."""

logger = logging.getLogger(__name__)

Function = TypeVar("Function", bound=Callable[..., Any])

used: dict[tuple[Callable[..., Any], tuple[Any, ...]], float] = {}
"""Kernels that Python has called, with the numba types of their arguments: seconds until the kernel was there."""


class Clock:
    """Sum of the seconds during which at least one ``with`` block was open, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._since_s = self._total_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._open == 0:
                self._since_s = perf_counter()
            self._open += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._open -= 1
            if self._open == 0:
                self._total_s += perf_counter() - self._since_s

    @property
    def total_s(self) -> float:
        """Wall seconds so far."""
        with self._lock:
            return self._total_s + (perf_counter() - self._since_s if self._open else 0.0)


compiling = Clock()
"""Seconds that this process has spent on compiling kernels, or on waiting for the processes of `prepare`."""
preparing = Clock()
"""The same, and the seconds for loading kernels and for importing methods: what no time limit counts."""


@overload
def njit(function: Callable[..., Any]) -> Any: ...


@overload
def njit(*, inner: bool = False, inline: bool = False, allocates: bool = True) -> Callable[[Function], Function]: ...


def njit(function: Any = None, *, inner: bool = False, inline: bool = False, allocates: bool = True) -> Any:
    """Compile a function as ``numba.njit(cache=True, nogil=True)`` does; see the module's docstring.

    Where no folder for the cache can be written, the user is told, and every process compiles for itself.

    Parameters
    ----------
    function
        The function; None where the decorator has options.
    inner
        True for a function that kernels call, and Python only in tests: it is not compiled for calls from Python, which
        takes as long as the function itself where it has tuples of many arrays.
    inline
        True to inline the function into every kernel that calls it: for small functions that are called often. Such a
        function is an inner one. Tuples of many arrays go by reference (:mod:`placekit.kernel_tuples`), or the call
        takes longer than what a small function does.
    allocates
        False for a function that is called millions of times with such tuples, and makes no array: no reference is
        counted, so the caller keeps all arrays alive.
    """
    if function is None:
        return partial(njit, inner=inner, inline=inline, allocates=allocates)
    return Kernel(function, inner, inline, allocates)


class Kernel:
    """A function that numba compiles; numba is imported when it is first called."""

    def __init__(self, function: Callable[..., Any], inner: bool, inline: bool, allocates: bool) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.source = source_of(function)
        self._is_inner = inner or inline
        # numba makes a cfunc for functions that are passed as values; none is here
        self._options = {"nogil": True, "no_cfunc_wrapper": True, "forceinline": inline}
        self._options |= {} if allocates else {"_nrt": False}

    def __call__(self, *arguments: Any) -> Any:
        """Call numba's dispatcher; within `interpreted`, or without numba, the function."""
        if getattr(_here, "is_interpreted", False):
            return self.py_func(*arguments)
        if not has_numba():
            with interpreted(is_little_work=True):
                return self.py_func(*arguments)
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        """Look into the dispatcher: where a kernel calls another one, numba asks for `_numba_type_`."""
        return getattr(self.dispatcher, name)

    @property
    def sources(self) -> frozenset[Source]:
        """States of its file, and of the files of all kernels that it can call, when they were imported."""
        found, todo = set[Any]([self]), [self]
        while todo:
            for called in todo.pop().py_func.__globals__.values():
                if isinstance(called, Kernel) and called not in found:
                    found.add(called)
                    todo.append(called)
                elif isinstance(called, FunctionType) and hasattr(called, "source"):  # numba has its compiled form
                    found.add(called)
        return frozenset(each.source for each in found if each.source is not None)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher of the function; the function itself under ``NUMBA_DISABLE_JIT``."""
        numba, function = _numba(), self.py_func
        if numba.config.DISABLE_JIT:
            return function
        if (missing := _missing_name()) is not None:
            say_once(
                f"numba {numba.__version__} lacks {missing}, so no compiled kernel may be kept: every process "
                "compiles anew; pip install 'placekit[solvers]' brings a version that was tested"
            )
            return numba.njit(**self._options)(function)
        for_python: Any = numba.njit(**self._options)(function) if self._is_inner else None  # as tests call it
        options = self._options | ({"no_cpython_wrapper": True} if self._is_inner else {})
        try:
            dispatcher: Any = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder
            say_once(
                "no folder for compiled kernels can be written; NUMBA_CACHE_DIR names one. Every process compiles anew"
            )
            dispatcher = numba.njit(**options)(function)
        from placekit.kernel_cache import keep_files

        keep_files(dispatcher, self.sources, say_once)
        compile_now, unliteral = dispatcher.compile, numba.types.unliteral

        def compile_counted(signature: Any) -> Any:
            arguments = tuple(unliteral(each) for each in signature)  # or f(x, 0) and f(x, n) are compiled twice
            if getattr(_here, "is_compiling", False):
                return compile_now(arguments)
            _here.is_compiling, begin_s = True, perf_counter()
            try:
                with preparing:
                    prepare(*_take_later(function.__module__, function.__name__))
                    return (for_python.compile if self._is_inner else compile_now)(arguments)
            finally:
                _here.is_compiling = False
                used.setdefault((function, arguments), perf_counter() - begin_s)

        dispatcher.compile = compile_counted
        if self._is_inner:  # numba shall not call what has no wrapper, but ask for it to be compiled
            dispatcher._insert = lambda *_, **__: None
        return dispatcher


Tuple = TypeVar("Tuple")


def by_reference(value: Tuple) -> Tuple:
    """Return a reference to a named tuple, for the functions that a kernel calls; in Python the tuple itself.

    The reference has the attributes of the tuple, and nothing else. It is valid until the kernel returns, so no
    function may return it. No reference to an array is counted: the kernels are those of ``njit(allocates=False)``.
    """
    return value


Source: TypeAlias = tuple[str, int, int]
"""A module, the nanosecond of its file's last change, and the bytes of that."""


def source_of(function: Callable[..., Any]) -> Source | None:
    """Return the state of a function's file; None if it has none."""
    return _state_of(function.__module__, Path(function.__code__.co_filename))


def _state_of(module: str, file: Path) -> Source | None:
    with suppress(OSError):
        state = file.stat()
        return module, state.st_mtime_ns, state.st_size
    return None


vars(by_reference)["source"] = _state_of("placekit.kernel_tuples", Path(__file__).with_name("kernel_tuples.py"))


@contextmanager
def interpreted(is_little_work: bool) -> Iterator[None]:
    """Run kernels as Python where there is little to do.

    Importing numba and loading a kernel takes longer than to simulate a few ops. Results are the same, bit by bit.
    """
    if not is_little_work:
        yield
        return
    _here.is_interpreted = True
    try:
        with np.errstate(all="ignore"):  # as kernels do
            yield
    finally:
        _here.is_interpreted = False


def _take_later(module: str, name: str) -> list[str]:
    """Return what is to be prepared later and lists this kernel, and forget that it is."""
    with _lock:
        found = [each for each in _later if any(kernel[:2] == [module, name] for kernel in _listed()["kernels"][each])]
        _later.difference_update(found)
    return found


_later: set[str] = set()
"""Names to prepare when one of their kernels is called: `MORE` of the objectives that were prepared, and those of
`prepare_when_called`."""
_here = threading.local()
"""State of each thread: ``is_compiling`` while it compiles a kernel, so that what the kernel calls is not taken for
`used`; ``is_interpreted`` within `interpreted`."""


@cache
def has_numba() -> bool:
    """Return whether numba is installed, which is not imported for that."""
    return find_spec("numba") is not None


@cache
def _missing_name() -> str | None:
    """Return what the cache of kernels needs of numba and does not find, or None."""
    try:
        from placekit.kernel_cache import missing_name
    except (AttributeError, ImportError) as error:
        return str(error)
    return missing_name()


@cache
def _numba() -> Any:
    """Import numba, and count the seconds that it compiles."""
    with preparing:
        import numba
        from numba.core import event

        class Counted(event.Listener):
            def on_start(self, event: event.Event) -> None:  # noqa: ARG002  # numba's signature
                compiling.__enter__()

            def on_end(self, event: event.Event) -> None:  # noqa: ARG002
                compiling.__exit__()

        event.register("numba:compile", Counted())  # type: ignore[no-untyped-call]  # numba has no types here
        from placekit.kernel_tuples import register

        register(by_reference)
    return numba


@cache
def say_once(message: str) -> None:
    """Tell the user something, but not twice."""
    logger.warning(message)


def prepare(*groups: str, on_progress: Callable[[int, int], None] | None = None) -> None:
    """Compile the kernels of objectives in processes of their own; no clock of a solve runs meanwhile.

    What is on disk already is not compiled again, which takes a few milliseconds to see.

    Parameters
    ----------
    *groups
        Names of objectives, `LEARNED` or `TRAINING_PLAN`. A name that is not listed has no kernels of its own.
    on_progress
        Called with the number of kernels that are ready, and with the number of all.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" or not sys.executable or not has_numba():
        return  # interpreted, or compiled when called
    with _lock, preparing:
        folder = _folder()
        _later.update(more for each in groups if (more := MORE + each) in _listed()["kernels"])
        missing = [each for each in groups if folder and not _is_ready(folder, each)]
        todo = list(dict.fromkeys(kernel for each in missing for kernel in kernels_of(each)))
        if folder is None or not todo or _missing_name() is not None:
            return
        logger.warning(
            "compiling %d %s for %s: once per installation; `placekit warm-up` does it beforehand",
            len(todo),
            "kernel" if len(todo) == 1 else "kernels",
            " and ".join(dict.fromkeys(each.removeprefix(MORE) for each in missing)),
        )
        with compiling:
            files = _compile(todo, on_progress)
        for each in missing:
            kernels = kernels_of(each)
            if all(kernel in files for kernel in kernels):
                found = sorted({files[kernel] for kernel in kernels} - {""})
                _write(_ready_file(folder, each), json.dumps({"stamp": _stamp(), "files": found}))


def prepare_when_called(*names: str) -> None:
    """`prepare` what is named when the first of its kernels is called: a small problem may need none."""
    with _lock:
        _later.update(set(names) & set(groups()))


_lock = threading.Lock()


@cache
def _listed() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(LIST.read_text(encoding="utf-8"))
    return found


def groups() -> tuple[str, ...]:
    """Return all names that `prepare` takes."""
    return tuple(_listed()["kernels"])


def kernels_of(group: str) -> list[str]:
    """Return the kernels of an objective as JSON: module, name and types of each."""
    tuples: dict[str, Any] = _listed()["tuples"]

    def whole(kind: Any) -> Any:
        if isinstance(kind, dict):
            return kind | {"of": [whole(each) for each in kind["of"]]}
        return whole(tuples[kind]) if kind in tuples else kind

    listed = _listed()["kernels"].get(group, [])
    return [json.dumps([module, name, [whole(each) for each in kinds]]) for module, name, kinds in listed]


def _folder() -> Path | None:
    """Return the folder that says which kernels are there; None if nothing can be kept."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    own = Path(__file__).with_name("__pycache__")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "placekit"
    for folder in [*([Path(given)] if given else []), own, users]:  # as numba's choices
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def _ready_file(folder: Path, group: str) -> Path:
    installation = hashlib.sha256(f"{Path(__file__).resolve()} {sys.implementation.cache_tag}".encode()).hexdigest()
    return folder / f"placekit-{group}-{installation[:12]}.json"


def _is_ready(folder: Path, group: str) -> bool:
    """Return whether `prepare` has compiled these kernels, and the files are still there."""
    try:
        ready = json.loads(_ready_file(folder, group).read_text(encoding="utf-8"))
        return bool(ready["stamp"] == _stamp()) and all(map(os.path.exists, ready["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


@cache
def _stamp() -> str:
    """Return what changes when a kernel has to be compiled anew: versions, and the files with kernels."""
    from importlib import metadata  # tens of milliseconds

    folder = Path(__file__).parent
    files = [folder.joinpath(*module.split(".")[1:]).with_suffix(".py") for module in _listed()["modules"]]
    states = [(found.st_mtime_ns, found.st_size) for found in (file.stat() for file in [LIST, *files])]
    return hashlib.sha256(repr((sys.version, metadata.version("numba"), states)).encode()).hexdigest()


def _write(path: Path, content: str) -> None:
    """Write a file at once or not at all; without it, the next process looks for the kernels themselves."""
    with suppress(OSError):
        beside = path.with_name(f"{path.name}.{uuid4().hex[:8]}")
        beside.write_text(content, encoding="utf-8")
        beside.replace(path)


def _compile(kernels: list[str], on_progress: Callable[[int, int], None] | None) -> dict[str, str]:
    """Compile kernels in other processes, a single one here; return the index file of each, empty if it cannot be.

    What a process that died did not compile is missing.
    """
    if len(kernels) == 1:  # sooner than another process would start
        files = {kernels[0]: _compile_here(kernels[0])}
        if on_progress is not None:
            on_progress(1, 1)
        return files
    todo, files = deque(kernels), {}

    def feed(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError, IndexError):
            while True:
                kernel = todo.popleft()
                process.stdin.write(kernel + "\n")
                process.stdin.flush()
                if not (answer := process.stdout.readline()):
                    return
                files[kernel] = answer.rstrip("\n")
                if on_progress is not None:
                    on_progress(len(files), len(kernels))

    processes = [_start() for _ in range(min(num_usable_cpus(), MAX_PROCESSES, len(kernels)))]
    try:
        with ThreadPoolExecutor(len(processes)) as threads:
            try:
                for each in [threads.submit(feed, process) for process in processes]:
                    each.result()
            except BaseException:  # Ctrl-C
                for process in processes:
                    process.kill()
                raise
    finally:
        for process in processes:
            process.communicate()
    return files


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from placekit.kernels import work; work()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
        text=True,
        process_group=0 if os.name == "posix" else None,  # Ctrl-C is for the caller
    )


def work() -> None:
    """Compile what comes on stdin, one kernel a line, and answer each with its index file."""
    gc.disable()  # a fifth of the time; what a compilation leaves is little
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what modules print is no answer
    for line in sys.stdin:
        answers.write(_compile_here(line) + "\n")
        answers.flush()


def _compile_here(listed: str) -> str:
    """Compile a kernel of `kernels_of`; return its index file, empty if it cannot be compiled."""
    is_compiling, _here.is_compiling = getattr(_here, "is_compiling", False), True  # nothing else is prepared for it
    try:
        module, name, kinds = json.loads(listed)
        kernel = getattr(import_module(module), name)
        kernel.compile(tuple(map(read_type, kinds)))
        return str(kernel._cache._cache_file._index_path)
    except Exception as error:  # whoever calls the kernel sees it
        logger.debug("kernel %s cannot be compiled beforehand: %r", listed, error)
        return ""
    finally:
        _here.is_compiling = is_compiling


_ARRAY = re.compile(r"(readonly )?(\w+)\[(\d)([CFA])\]")


def read_type(spelling: Any) -> Any:
    """Return the numba type of an argument from JSON: ``"float64"``, ``"readonly float64[2C]"``, or a tuple's parts."""
    from numba.core import types

    if isinstance(spelling, dict):
        module, _, name = spelling["class"].partition(":")
        of = getattr(import_module(module), name)
        parts = tuple(read_type(each) for each in spelling["of"])
        return types.BaseTuple.from_types(parts, None if of is tuple else of)  # type: ignore[no-untyped-call]
    if (array := _ARRAY.fullmatch(spelling)) is not None:
        layout: Any
        readonly, dtype, ndim, layout = array.groups()
        return types.Array(getattr(types, dtype.replace("bool", "bool_")), int(ndim), layout, readonly=bool(readonly))
    scalars = (types.boolean, types.int64, types.float64, types.npy_rng, types.none)
    return {str(each): each for each in scalars}[spelling]
