"""Modules that take long to import hold nobody up beyond the time there is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from limits import SOON_S

from placekit import loading
from placekit.errors import KernelsPendingError
from placekit.loading import wait_for_module
from placekit.patience import MODE, waiting_while


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder from which modules are imported, in a process that has not loaded any aside."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(loading, "_loads", {})
    monkeypatch.setenv(MODE, "aside")
    return tmp_path


def test_a_slow_module_is_waited_for_as_long_as_it_is_worth_it(folder: Path) -> None:
    """Then the caller goes on; the import does too, and the next one that asks has it."""
    (folder / "slow_one.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path(__file__).with_name('go').exists():\n    time.sleep(0.01)\n"
    )
    asked = 0

    def twice() -> bool:
        nonlocal asked
        asked += 1
        return asked < 3

    with waiting_while(twice), pytest.raises(KernelsPendingError, match="'slow_one' is still being imported"):
        wait_for_module("slow_one")
    assert asked == 3
    (folder / "go").touch()
    until = monotonic() + SOON_S
    with waiting_while(lambda: monotonic() < until):
        wait_for_module("slow_one")
    assert "slow_one" in sys.modules


def test_errors_of_a_module_reach_whoever_asked(folder: Path) -> None:
    """Aside, and where nobody limits the time, as in an import statement."""
    (folder / "broken_one.py").write_text("import no_such_package_at_all")
    with waiting_while(lambda: True), pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        wait_for_module("broken_one")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        wait_for_module("broken_one")
    wait_for_module("json.tool")


SOLVE = """
import placekit as pk
from placekit.benchmarks.families import generate

for objective in (pk.Makespan(), pk.OffloadLatency(), pk.Throughput()):
    problem = generate("layered", 40, num_devices=3, equal=False, objective=objective)
    result = pk.solve(problem, "auto", stop=pk.MaxRuntime(2))
    assert result.placement is not None
    print(objective.name)
result = pk.solve(problem, "gdp", stop=pk.MaxRuntime(1))
assert "still being imported" in result.info["kernels"]
assert result.placement is not None
"""


def test_a_limit_holds_while_a_package_is_imported(tmp_path: Path) -> None:
    """With packages that never come, `auto` answers with what needs none, a method that needs one with one device."""
    package = tmp_path / "ortools" / "sat"
    package.mkdir(parents=True)
    package.with_name("__init__.py").touch()
    (tmp_path / "torch").mkdir()
    for folder in (package, tmp_path / "torch"):
        (folder / "__init__.py").write_text("import time\ntime.sleep(3600)\n")
    paths = os.pathsep.join([str(tmp_path), *(path or str(Path.cwd()) for path in sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", SOLVE], env=os.environ | {MODE: "aside", "PYTHONPATH": paths}, capture_output=True,
        text=True, timeout=5 * SOON_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["makespan", "offload-latency", "throughput"]
