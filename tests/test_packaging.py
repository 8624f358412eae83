"""pyproject, constraints, make targets and hooks agree with the tree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("benchmarks", "cli", "cost_models", "learned", "solvers")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_rooms_are_links() -> None:
    """Every top-level room is a link inside ``placekit/``, and holds Python files in packages only."""
    for room in ROOMS:
        assert (ROOT / "placekit" / room).readlink() == Path("..", room)
    files = [*(ROOT / "placekit").rglob("*.py"), *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
    assert {path.parent for path in files if not (path.parent / "__init__.py").is_file()} == set()


def test_a_checkout_without_links_says_what_to_do(tmp_path: Path) -> None:
    """`make venv` stops before it installs placekit without its rooms."""
    (tmp_path / "placekit").mkdir()
    (tmp_path / "placekit" / "solvers").write_text("../solvers")  # what git writes with core.symlinks=false
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(["make", "venv"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "git config core.symlinks true && git checkout -- placekit" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_ruff_reads_every_file_once() -> None:
    """Ruff does not follow the links, so nothing has to be excluded."""
    ruff = Path(sys.executable).with_name("ruff")
    shown = subprocess.run([ruff, "check", "--show-files", "."], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [Path(line) for line in shown.stdout.splitlines()]
    assert ROOT / "solvers" / "params.py" in files
    assert len({path.resolve() for path in files}) == len(files)


def test_version_is_one(project: dict[str, Any]) -> None:
    """pyproject, the package and the changelog name the same version."""
    import placekit

    assert project["project"]["version"] == placekit.__version__
    assert f"## [{placekit.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def constrained() -> dict[str, list[str]]:
    """Return the pinned versions by normalised name."""
    pins: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)( ; .*)?", line)
            assert match, f"constraints.txt: not an exact pin: {line!r}"
            pins.setdefault(normalised(match[1]), []).append(match[2])
    return pins


def normalised(name: str) -> str:
    """Return a distribution name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_pinned(project: dict[str, Any]) -> None:
    """Every requirement, base or extra, has an exact version in the constraints; so has the build backend."""
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    pins = constrained()
    names = [re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in wanted]
    assert [name for name in names if normalised(name) not in pins] == []


def test_constraints_name_no_local_path_and_no_cuda() -> None:
    """The constraints work on any machine, and torch is the build for CPUs where another is the default."""
    text = (ROOT / "constraints.txt").read_text()
    assert "file:" not in text
    assert not re.search(r"^(nvidia|triton|cuda)", text, re.MULTILINE)
    assert any(version.endswith("+cpu") for version in constrained()["torch"])


def test_base_install_has_no_torch() -> None:
    """Torch comes with an extra only."""
    base = [line for line in requires("placekit") or [] if "extra ==" not in line]
    assert base
    assert not any(line.startswith(("torch", "transformers")) for line in base)


@pytest.mark.parametrize("target", ["demo", "test", "lint", "tables"])
def test_make_targets_are_sound(target: str) -> None:
    """Make can plan every target that the readme names."""
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ci_runs_make_test() -> None:
    """The CI script is executable, strict, and runs what a developer runs."""
    path = ROOT / ".ci" / "run"
    assert path.stat().st_mode & 0o111
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert "make test" in text


def test_classifiers_are_the_versions_that_ci_tests(project: dict[str, Any]) -> None:
    """No version is promised that the matrix does not have, and the oldest is the one that is required."""
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    found = re.search(r"python-version: \[(.+)\]", workflow)
    assert found is not None
    tested = re.findall(r"3\.\d+", found[1])
    prefix = "Programming Language :: Python :: "
    told = [each.removeprefix(prefix) for each in project["project"]["classifiers"] if each.startswith(prefix)]
    assert told == tested
    assert project["project"]["requires-python"] == f">={tested[0]}"


def test_hooks_see_the_whole_tree() -> None:
    """Mypy must not get single files: the top-level folders are subpackages."""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert "pass_filenames: false" in text
    for hook in ("ruff-check", "ruff-format", "mypy", "end-of-file-fixer"):
        assert f"id: {hook}" in text


def test_text_files_end_with_one_newline() -> None:
    """What the end-of-file hook checks, also without pre-commit."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name for name in tracked.stdout.split("\0") if name.endswith((".py", ".md", ".toml", ".txt", ".yaml"))]
    contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    wrong = [name for name, text in contents.items() if text and (text[-1:] != b"\n" or text.endswith(b"\n\n"))]
    assert not wrong
