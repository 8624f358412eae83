"""Compiled kernels: what the user hears of compiling."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_compiling_is_announced_once_and_a_cached_kernel_is_not(tmp_path: Path) -> None:
    """The first process that needs a kernel says so on stderr, in one line; the second finds it on disk."""
    module = tmp_path / "kernels.py"
    module.write_text(
        "from placekit.compiled import njit\n"
        "@njit(cache=True)\ndef one(x):\n    return x + 1\n"
        "@njit(cache=True)\ndef two(x):\n    return one(x) + 1\n"
        "print(one(1.0) + two(1))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "import kernels"]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=environment) for _ in range(2)
    )
    assert first.stdout == second.stdout == "5.0\n"
    assert first.stderr.count("compiling kernels") == 1
    assert "compiling" not in second.stderr


def test_a_cache_that_names_what_is_gone_is_an_empty_one(tmp_path: Path) -> None:
    """An upgrade that renames a class of tuples, or a damaged file, costs a compilation and no error."""
    module = tmp_path / "kernels.py"
    module.write_text(
        "from placekit.compiled import njit\nimport shapes\n"
        "@njit(cache=True)\ndef area(shape):\n    return shape[0] * shape[1]\n"
        "print(area(shapes.shape))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "import kernels"]
    for name in ("Rectangle", "Rectangular", "garbage"):
        if name == "garbage":
            for path in (tmp_path / "cache").rglob("*.nb?"):
                path.write_bytes(path.read_bytes()[:50])
            name = "Rectangular"  # noqa: PLW2901
        (tmp_path / "shapes.py").write_text(
            f"from collections import namedtuple\n{name} = namedtuple('{name}', 'a b')\nshape = {name}(2.0, 3.0)\n"
        )
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert run.stdout == "6.0\n"
        assert "compiling" in run.stderr


def test_kernels_of_two_processes_do_not_lend_each_other_their_helpers(tmp_path: Path) -> None:
    """Numba sorts and argsorts by functions of one name, and they were one for a process that loaded both."""
    for name, body in (("order", "return np.argsort(x)"), ("rise", "x.sort()\n    return x")):
        (tmp_path / f"{name}.py").write_text(
            f"import numpy as np\nfrom placekit.compiled import njit\n@njit(cache=True)\ndef {name}(x):\n    {body}\n"
            f"print({name}(np.array([0.3, 0.1, 0.2, 0.4])).tolist())\n"
        )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    for code in ("import order", "import rise", "import order, rise", "import rise, order"):
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        shown = {"order": "[1, 2, 0, 3]", "rise": "[0.1, 0.2, 0.3, 0.4]"}
        assert run.stdout.splitlines() == [shown[name] for name in code.removeprefix("import ").split(", ")]


def test_a_kernel_is_compiled_anew_when_what_it_calls_has_changed(tmp_path: Path) -> None:
    """The called kernel is inlined, and in a file of its own."""
    (tmp_path / "kernels.py").write_text(
        "from placekit.compiled import njit\nfrom parts import part_of\n"
        "@njit(cache=True)\ndef whole(x):\n    return part_of(x) + 1\nprint(whole(1.0))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    for factor in (2, 30):
        (tmp_path / "parts.py").write_text(
            f"from placekit.compiled import inlined\n@inlined\ndef part_of(x):\n    return {factor} * x\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", "import kernels"], capture_output=True, text=True, check=True, env=environment
        )
        assert run.stdout == f"{factor + 1}.0\n"
