"""Compiled kernels: what is compiled when, what is kept on disk, and what the user hears of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from list_kernels import GROUPS, solve_by_all_methods, spell_type, written
from numba import typeof
from numba.core import event, types
from numpy.typing import NDArray

import placekit as pk
from placekit import kernel_cache
from placekit.kernels import LIST, MORE, Clock, by_reference, compiling, groups, kernels_of, njit, prepare, read_type
from placekit.solve.run import Run
from placekit.solvers.throughput.local_search.state import State


def run(folder: Path, code: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process whose kernels are in the folder, beside the modules that it imports."""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(folder), *(path or str(Path.cwd()) for path in sys.path)]),
    }
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment | more)


TWO = """
from placekit.kernels import njit
@njit
def half(x, by):
    return x / by
@njit
def one(x):
    return half(x, 2) + 1
@njit
def two(x):
    return half(x, 2) + 2
"""
LISTED: dict[str, Any] = {
    "modules": [],
    "tuples": {},
    "kernels": {"this": [["two_kernels", name, ["float64"]] for name in ("one", "two")]},
}
PREPARE = """
import json, os, sys
from pathlib import Path
from placekit import kernels
kernels.LIST = Path(os.environ["LIST"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a module of two kernels, and a list of them."""
    (tmp_path / "two_kernels.py").write_text(TWO)
    (tmp_path / "list.json").write_text(json.dumps(LISTED))
    monkeypatch.setenv("LIST", str(tmp_path / "list.json"))
    return tmp_path


CALL = """
import two_kernels
from numba.core import event
with event.install_recorder("numba:compile") as seen:
    print(two_kernels.one(3.0), two_kernels.two(3.0), len(seen.buffer))
"""
PREPARE_THIS = PREPARE + "kernels.prepare('this', 'no such objective', on_progress=lambda *done: print(*done))\n"


def test_prepare_compiles_the_listed_kernels_in_other_processes_once(folder: Path) -> None:
    """The caller compiles nothing, and the next one finds all of it without numba."""
    told = run(folder, PREPARE_THIS + CALL + "print(0 < kernels.compiling.total_s <= kernels.preparing.total_s)")
    assert told.stdout.splitlines() == ["1 2", "2 2", "2.5 3.5 0", "True"]
    assert told.stderr.count("compiling 2 kernels for this") == 1
    again = run(folder, PREPARE_THIS + "print(kernels.compiling.total_s, 'numba' in sys.modules)\n" + CALL)
    assert again.stdout.splitlines() == ["0.0 False", "2.5 3.5 0"]
    assert again.stderr == ""


def test_what_harder_problems_need_is_compiled_when_one_of_it_is_called(folder: Path) -> None:
    """All of it at once; a single kernel in the process itself."""
    one, two = LISTED["kernels"]["this"]
    (folder / "list.json").write_text(json.dumps(LISTED | {"kernels": {"this": [one], f"{MORE}this": [two]}}))
    told = run(folder, PREPARE_THIS + CALL)
    assert told.stdout.splitlines() == ["1 1", "2.5 3.5 2"]
    assert told.stderr.count("compiling 1 kernel for this") == 2
    assert run(folder, PREPARE_THIS + CALL).stderr == ""


def test_an_inner_kernel_can_be_called_by_kernels_and_by_tests(folder: Path) -> None:
    """It is compiled within the kernel that calls it, and once more for Python."""
    (folder / "inner.py").write_text(
        "from placekit.kernels import njit\n@njit(inner=True)\ndef half(x):\n    return x / 2\n"
        "@njit\ndef one(x):\n    return half(x) + 1\n"
    )
    assert run(folder, "import inner\nprint(inner.one(3.0), inner.half(3.0), inner.half(2))").stdout == "2.5 1.5 1.0\n"


@pytest.mark.slow
def test_kernels_are_prepared_anew_when_they_are_gone_or_not_those_of_the_list(folder: Path) -> None:
    """A file that was removed, another version of numba or of a listed module, and a damaged note."""
    run(folder, PREPARE_THIS)
    (note,) = (folder / "cache").glob("placekit-this-*.json")
    see = PREPARE + "print(kernels._is_ready(Path(os.environ['NUMBA_CACHE_DIR']), 'this'))"
    assert run(folder, see).stdout == "True\n"
    told = note.read_text()

    def is_ready() -> str:
        return run(folder, see).stdout

    note.write_text(told[:20])
    assert is_ready() == "False\n"
    note.write_text(told.replace('"stamp": "', '"stamp": "of numba 0.1 '))
    assert is_ready() == "False\n"
    note.write_text(told)
    os.utime(folder / "list.json", ns=(1, 1))
    assert is_ready() == "False\n"
    os.utime(folder / "list.json", ns=(1, 2))
    next((folder / "cache").rglob("*.nbi")).unlink()
    assert is_ready() == "False\n"
    assert run(folder, PREPARE_THIS + CALL).stdout.splitlines() == ["1 2", "2 2", "2.5 3.5 0"]
    assert run(folder, see).stdout == "True\n"


@pytest.mark.slow
def test_two_processes_may_prepare_at_once(folder: Path) -> None:
    """Both end well, and nothing is compiled after them."""
    command = [sys.executable, "-c", PREPARE_THIS]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *(path or str(Path.cwd()) for path in sys.path)])
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert run(folder, PREPARE_THIS + CALL).stdout == "2.5 3.5 0\n"


@pytest.mark.slow
def test_ctrl_c_ends_prepare_and_leaves_no_half_file(folder: Path) -> None:
    """No process is left either, and the next one compiles what is missing."""
    code = PREPARE + (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background has none
        "started, start = [], kernels._start\n"
        "def note():\n    started.append(start()); return started[-1]\n"
        "kernels._start = note\n"
        "def interrupt(*_):\n    os.kill(os.getpid(), 2)\n"
        "try:\n    kernels.prepare('this', on_progress=interrupt)\n"
        "except KeyboardInterrupt:\n    print([each.poll() is not None for each in started])\n"
    )
    stopped = run(folder, code)
    assert set(json.loads(stopped.stdout.lower())) == {True}
    assert not list((folder / "cache").glob("placekit-this-*.json"))
    assert run(folder, PREPARE_THIS + CALL).stdout.splitlines()[-1] == "2.5 3.5 0"


@pytest.mark.slow
def test_without_a_folder_kernels_are_compiled_by_each_process_which_is_told_once(folder: Path) -> None:
    """No place to write: nothing is prepared in vain."""
    nowhere = {name: str(folder / "list.json" / "no") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
    (folder / "__pycache__").touch()
    as_if_there = PREPARE_THIS.replace("kernels.prepare", "kernels.__file__ = os.environ['LIST']\nkernels.prepare")
    told = run(folder, as_if_there + CALL, **nowhere)
    assert told.stdout.startswith("2.5 3.5 ")
    assert told.stderr.count("NUMBA_CACHE_DIR names one") == 1
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_full_disk_costs_the_kernel_and_no_error(folder: Path) -> None:
    """The process that cannot write goes on."""
    code = (
        "from placekit import kernel_cache\n"
        "def full(*_): raise OSError('no space left')\n"
        "kernel_cache._KernelFiles._save_data = full\n"
    )
    told = run(folder, code + CALL)
    assert told.stdout.startswith("2.5 3.5 ")
    assert told.stderr.count("cannot be kept: no space left") == 1


BROKEN = {
    "FunctionIdentity._unique_ids": """
from numba.core.bytecode import FunctionIdentity
made = FunctionIdentity.from_function.__func__
def from_function(cls, function):
    identity = made(cls, function)
    identity.unique_id = next(numbers)
    return identity
FunctionIdentity.from_function, numbers = classmethod(from_function), iter(range(10**6))
""",
    "FunctionCache._cache_file": """
from numba.core.caching import FunctionCache, IndexDataCacheFile
def with_files(cache, function):
    initialise(cache, function)
    cache.files = vars(cache).pop("_cache_file")
initialise, FunctionCache.__init__ = FunctionCache.__init__, with_files
""",
    "cannot import name 'IndexDataCacheFile'": "import numba.core.caching as c; del c.IndexDataCacheFile",
}
"""A name of numba's, and what takes it away."""


@pytest.mark.parametrize("name", BROKEN)
def test_without_a_private_name_of_numba_no_kernel_is_kept(folder: Path, name: str) -> None:
    """The answers are right, the user hears of it once, and no file may give the next process a wrong one."""
    told = run(folder, BROKEN[name] + "\n" + PREPARE_THIS + CALL)
    assert told.stdout.startswith("2.5 3.5 ")
    assert len(told.stderr.splitlines()) == 1
    assert f"lacks {name}" in told.stderr
    assert "placekit[solvers]" in told.stderr
    assert not [path for path in (folder / "cache").rglob("*") if path.suffix in (".nbi", ".nbc", ".json")]


@pytest.mark.parametrize("name", ["Dispatcher._insert", "Dispatcher.compile", "IndexDataCacheFile._save_index"])
def test_methods_of_numba_that_the_cache_replaces_are_looked_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With the numba that is installed none is missing; one that is gone is named."""
    assert kernel_cache.missing_name() is None
    owner, _, method = name.partition(".")
    monkeypatch.setattr(getattr(kernel_cache, owner), method, None, raising=False)
    assert kernel_cache.missing_name() == name


def test_kernels_are_interpreted_where_numba_is_told_to(folder: Path) -> None:
    """With NUMBA_DISABLE_JIT a kernel is the function that it was made of."""
    told = run(folder, PREPARE_THIS + CALL, NUMBA_DISABLE_JIT="1")
    assert told.stdout == "2.5 3.5 0\n"


@pytest.mark.slow
def test_a_cache_that_names_what_is_gone_is_an_empty_one(tmp_path: Path) -> None:
    """An upgrade that renames a class of tuples, or a damaged file, costs a compilation and no error."""
    (tmp_path / "kernels.py").write_text(
        "from placekit.kernels import compiling, njit\nimport shapes\n"
        "@njit\ndef area(shape):\n    return shape[0] * shape[1]\n"
        "print(area(shapes.shape), compiling.total_s > 0)\n"
    )
    for name in ("Rectangle", "Rectangular", "garbage"):
        if name == "garbage":
            for path in (tmp_path / "cache").rglob("*.nb?"):
                path.write_bytes(path.read_bytes()[:50])
            name = "Rectangular"  # noqa: PLW2901
        (tmp_path / "shapes.py").write_text(
            f"from collections import namedtuple\n{name} = namedtuple('{name}', 'a b')\nshape = {name}(2.0, 3.0)\n"
        )
        assert run(tmp_path, "import kernels").stdout == "6.0 True\n"


@pytest.mark.slow
def test_kernels_of_two_processes_do_not_lend_each_other_their_helpers(tmp_path: Path) -> None:
    """Numba sorts and argsorts by functions of one name, and they were one for a process that loaded both."""
    for name, body in (("order", "return np.argsort(x)"), ("rise", "x.sort()\n    return x")):
        (tmp_path / f"{name}.py").write_text(
            f"import numpy as np\nfrom placekit.kernels import njit\n@njit\ndef {name}(x):\n    {body}\n"
            f"print({name}(np.array([0.3, 0.1, 0.2, 0.4])).tolist())\n"
        )
    for code in ("import order", "import rise", "import order, rise", "import rise, order"):
        shown = {"order": "[1, 2, 0, 3]", "rise": "[0.1, 0.2, 0.3, 0.4]"}
        assert run(tmp_path, code).stdout.splitlines() == [shown[name] for name in code[7:].split(", ")]


@pytest.mark.slow
def test_a_kernel_is_compiled_anew_when_what_it_calls_has_changed(tmp_path: Path) -> None:
    """The called kernel is inlined, and in a file of its own."""
    (tmp_path / "kernels.py").write_text(
        "from placekit.kernels import njit\nfrom parts import part_of\n"
        "@njit\ndef whole(x):\n    return part_of(x) + 1\nprint(whole(1.0))\n"
    )
    for factor in (2, 30):
        (tmp_path / "parts.py").write_text(
            f"from placekit.kernels import njit\n@njit(inline=True)\ndef part_of(x):\n    return {factor} * x\n"
        )
        assert run(tmp_path, "import kernels").stdout == f"{factor + 1}.0\n"


class Inner(NamedTuple):
    """A tuple with a flag and an array."""

    is_on: bool
    x: NDArray[np.float64]


class Outer(NamedTuple):
    """A tuple with a tuple."""

    y: NDArray[np.int64]
    inner: Inner


def test_kernels_pass_named_tuples_by_reference() -> None:
    """Attributes are those of the tuple, what is written to its arrays stays, and Python gets the tuple itself."""

    @njit(inner=True, allocates=False)
    def add(inner: Inner, y: NDArray[np.int64]) -> None:
        for i in range(len(y)):
            inner.x[i] += y[i] if inner.is_on else -y[i]

    @njit(inner=True, allocates=False)
    def twice(outer: Outer) -> None:
        add(outer.inner, outer.y)
        add(outer.inner, outer.y)

    @njit(allocates=False)
    def run_twice(outer: Outer) -> float:
        outer = by_reference(outer)
        twice(outer)
        return float(outer.inner.x[1])

    for is_on, shown in ((True, [2.0, 5.0]), (False, [-2.0, -3.0])):
        outer = Outer(np.array([1, 2]), Inner(is_on, np.array([0.0, 1.0])))
        assert by_reference(outer) is outer
        assert run_twice(outer) == shown[1]
        assert outer.inner.x.tolist() == shown


SMALL = """
import sys
import placekit as pk
if sys.argv[1] == "compiled":
    from contextlib import nullcontext
    from placekit.objectives.makespan import ranks, simulate
    from placekit.solvers.generic.enumeration import method
    for module in (ranks, simulate, method):
        module.interpreted = lambda is_little_work: nullcontext()
else:
    import numba.core.types  # by whatever else the process does: no reason to wait for kernels
graph = pk.OpGraph.from_edges(list("abcde"), [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")])
times_s = [[2.0, 1.5], [1.0, 1.25], [3.0, 0.7], [0.1, 0.3], [1.1, 0.9]]
costs = pk.CostTable(("cpu", "gpu"), times_s, [[0.1, 0.2]] * graph.num_tensors, [0] * 5)
objectives = pk.Makespan(), pk.Makespan(contention=True), pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency()
for objective in objectives:
    result = pk.solve(pk.Problem(graph, pk.Platform.of(cpu=2, gpu=1), costs, objective))
    print(result.objective, result.lower_bound, result.placement.device_of_op, result.placement.step_of_op)
    print(result.schedule, result.evaluations)
from placekit import kernels
print(bool(kernels.used) == (sys.argv[1] == "compiled"), file=sys.stderr)
"""


def test_a_small_problem_is_solved_without_kernels_and_no_differently() -> None:
    """Every objective: the same answer, bit by bit, as from compiled kernels."""
    plain, compiled = (
        subprocess.run([sys.executable, "-c", SMALL, kernels], capture_output=True, text=True, check=True)
        for kernels in ("plain", "compiled")
    )
    assert plain.stdout == compiled.stdout
    assert plain.stderr == "True\n"
    assert compiled.stderr.endswith("True\n")  # after what it says of compiling


def test_literals_make_no_kernel_of_their_own() -> None:
    """f(x, 0) and f(x, n) are one."""

    @njit
    def called(x: float, n: int) -> float:
        return x + n

    @njit
    def calling(x: float, n: int) -> float:
        return float(called(x, 0) + called(x, n))

    assert calling(1.0, 2) == 4.0
    kernel: Any = called
    assert len(kernel.overloads) == 1


def test_the_clock_counts_overlapping_blocks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that calls another compiles both in one stretch of time; an open block counts, too."""
    now = 0.0
    monkeypatch.setattr("placekit.kernels.perf_counter", lambda: now)
    clock = Clock()
    with clock:
        now = 1.0
        with clock:
            now = 3.0
            assert clock.total_s == 3.0
    now = 9.0
    assert clock.total_s == 3.0


def test_the_clock_of_a_solve_stands_still_while_kernels_are_compiled(diamond: pk.Problem) -> None:
    """A limit is one of solving time; the result says what came on top."""
    solving = Run(diamond, pk.MaxRuntime(3600.0))
    begin_s = perf_counter()
    with compiling:
        kernel: Any = njit(lambda x: x + 1)
        assert kernel(1.0) == 2.0
    assert 0 < solving.compile_s <= perf_counter() - begin_s
    assert solving.load_s == 0  # no kernel was read from the cache meanwhile


def test_types_come_back_as_they_were() -> None:
    """Scalars, arrays of every layout, and tuples in tuples."""
    read_only = np.zeros(3)
    read_only.setflags(write=False)
    matrix = np.zeros((4, 4))
    state = State._make([np.zeros(2, dtype=np.int64)] * len(State._fields))
    several = [np.zeros(2, dtype=np.int64), matrix, read_only, np.zeros((2, 2), np.int32), np.zeros((1, 1))]
    mixed = State._make([several[at % 5] for at in range(len(State._fields))])
    values = (
        *(1, 2.0, True, np.int64(3), np.random.default_rng(0), read_only, matrix, matrix.T, matrix[:, ::2]),
        *(np.zeros(2, dtype=bool), np.zeros(2, dtype=np.uint64), np.zeros(2, dtype=np.int8)),
        *((1, 2), (1, 2.0), (matrix, (1, matrix)), state, mixed, (state, 1.0)),
    )
    for value in values:
        kind = typeof(value)  # type: ignore[no-untyped-call]
        assert read_type(json.loads(json.dumps(spell_type(kind)))) == kind
    with pytest.raises(TypeError, match="unicode_type"):
        spell_type(types.unicode_type)


def test_the_list_is_what_would_be_written_and_its_kernels_exist() -> None:
    """Reading and writing it changes nothing, and every kernel can be found, with its types."""
    content = LIST.read_text()
    listed = {group: [json.loads(kernel) for kernel in kernels_of(group)] for group in groups()}
    assert tuple(listed) == GROUPS
    assert written(listed, json.loads(content)["modules"]) == content
    for module, name, kinds in (each for kernels in listed.values() for each in kernels):
        if "learned" in module:
            pytest.importorskip("torch")
        assert hasattr(getattr(import_module(module), name), "py_func")
        assert all(read_type(kind) is not None for kind in kinds)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [each for each in GROUPS if not each.startswith(MORE)])
def test_nothing_is_compiled_after_prepare(objective: str) -> None:
    """Problems that the list was not made from, by every method; ``make kernels`` lists what is new."""
    if objective == "learned":
        pytest.importorskip("torch")
    prepare(*(each for each in GROUPS if each.endswith(objective)))
    with event.install_recorder("numba:compile") as seen:
        solve_by_all_methods(objective, count=4, seed=2, limit_s=0.05)
    assert [str(each.data["dispatcher"]) for _, each in seen.buffer if each.is_start] == []
