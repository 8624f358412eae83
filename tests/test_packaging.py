"""pyproject, constraints, make targets and hooks agree with the tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from placekit.io.needs import EXTRA_OF
from placekit.solve.method_table import OWN

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
    assert [name for name in names if normalised(name) not in {"placekit", *pins}] == []


def test_constraints_name_no_local_path_and_no_cuda() -> None:
    """The constraints work on any machine, and torch is the build for CPUs where another is the default."""
    text = (ROOT / "constraints.txt").read_text()
    assert "file:" not in text
    assert not re.search(r"^(nvidia|triton|cuda)", text, re.MULTILINE)
    assert any(version.endswith("+cpu") for version in constrained()["torch"])


def test_base_install_is_light(project: dict[str, Any]) -> None:
    """What is large comes with an extra, which the messages of placekit name; ``all`` has every extra but ``dev``."""
    extras = {name: [re.split(r"[^\w]", line, maxsplit=1)[0] for line in lines] for name, lines in
              project["project"]["optional-dependencies"].items()}  # fmt: skip
    for package, extra in EXTRA_OF.items():
        assert package.replace("_geometric", "") in extras[extra], package
        assert not any(line.startswith(package) for line in project["project"]["dependencies"])
    (everything,) = project["project"]["optional-dependencies"]["all"]
    assert set(re.findall(r"\w+", everything)) - {"placekit"} == set(extras) - {"all", "dev"}
    for name, entry in OWN.items():
        assert (entry.extra is None) == (not entry.requires), name
        assert entry.extra is None or entry.extra in extras


TARGETS = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("target", TARGETS)
def test_make_targets_call_what_there_is(target: str) -> None:
    """Make can plan every target, and each module and script that its recipe runs exists."""
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for module in re.findall(r"bin/python -m (\S+)", done.stdout):
        own = ROOT / Path(*module.split("."))
        assert own.is_dir() or own.with_suffix(".py").is_file() or find_spec(module) is not None, module
    for script in re.findall(r"(?:bin/python |^)([a-z][\w/]*\.(?:py|sh))\b", done.stdout, re.MULTILINE):
        assert (ROOT / script).is_file(), script
    for program in re.findall(r"^\.venv/bin/([a-z-]+)", done.stdout, re.MULTILINE):
        assert Path(sys.executable).with_name(program).is_file(), program


def test_pages_name_targets_that_there_are() -> None:
    """Every ``make X`` of the readme, CONTRIBUTING.md and the pages is a target."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"`make ([a-z-]+)", page.read_text())}
    assert {"test", "demo", "mutants"} <= named <= set(TARGETS)


@pytest.mark.parametrize("status", [0, 3])
def test_ci_runs_make_test(tmp_path: Path, status: int) -> None:
    """From any folder, in the root, with nothing else; and its exit status is make's."""
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\npwd > "{tmp_path}/told"\necho "$@" >> "{tmp_path}/told"\nexit {status}\n')
    make.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([ROOT / ".ci" / "run"], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == status
    assert (tmp_path / "told").read_text().splitlines() == [str(ROOT), "test"]


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


def test_hooks_find_what_make_test_would(tmp_path: Path) -> None:
    """Each hook fails on a file of its own fault; mypy gets no file, since the top-level folders are subpackages."""
    (tmp_path / ".pre-commit-config.yaml").write_bytes((ROOT / ".pre-commit-config.yaml").read_bytes())
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("ruff", "end-of-file-fixer"):
        (programs / name).symlink_to(Path(sys.executable).with_name(name))
    (programs / "mypy").write_text('#!/bin/sh\n[ "$*" = "--strict" ] && echo whole tree && exit 1\n')
    (programs / "mypy").chmod(0o755)
    faults = {
        "ruff-check": "import undefined_in_tests\n\nundefined()\n",
        "ruff-format": "a =  1\n",
        "mypy": "a = 1\n",
        "end-of-file-fixer": "a = 1",
    }
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for hook, text in faults.items():
        (tmp_path / "fault.py").write_text(text)
        subprocess.run(["git", "add", "fault.py", ".pre-commit-config.yaml"], cwd=tmp_path, check=True)
        done = subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", hook, "--all-files"],
            cwd=tmp_path,
            env=os.environ | {"PRE_COMMIT_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "Failed" in done.stdout
        assert ("whole tree" in done.stdout) == (hook == "mypy")
        assert ((tmp_path / "fault.py").read_text() != text) == (hook != "mypy")


def test_text_files_end_with_one_newline() -> None:
    """What the end-of-file hook checks, also without pre-commit."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name for name in tracked.stdout.split("\0") if name.endswith((".py", ".md", ".toml", ".txt", ".yaml"))]
    contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    wrong = [name for name, text in contents.items() if text and (text[-1:] != b"\n" or text.endswith(b"\n\n"))]
    assert not wrong
