"""A package that adds a runtime of language models: two files, installed as a stranger's would be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from placekit.language.runtimes.record import Runtime

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing" / "runtime.md").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sample package installed, and beside it one that cannot be imported."""
    folder = tmp_path_factory.mktemp("site")
    source, target = folder / "source", folder / "target"
    shutil.copytree(ROOT / "examples" / "runtime", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, capture_output=True)
    info = target / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[placekit.runtimes]\nbroken = no_such_module_at_all:RECORD\n")
    return target


def placekit(site: Path, *words: str, cwd: Path) -> tuple[int, str]:
    """Run a command with the folder on the path; return its exit code and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "placekit", *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_an_installed_runtime_plans_and_prints_its_line(site: Path, tmp_path: Path) -> None:
    """Its rules, its options and its program; export knows it, too, and a broken package is named where it is asked."""
    cards = ["--cards", "RTX 4090, RTX 3090", "--ram", "64 GB DDR4-3200 x2"]
    asked = ["llm", "llama3-8b", "--precision", "f32", *cards, "--problem", "p.json", "-o", "a.placement.json"]
    code, told = placekit(site, *asked, "--for", "pipes", "--details", cwd=tmp_path)
    assert code == 0, told
    assert "5% of every card and 512 MiB of every card for pipes itself" in told
    line = re.search(r"^.*pipes serve llama3-8b --first-blocks 0,(\d+) --context 8192 --slots 1$", told, re.MULTILINE)
    assert line is not None, told
    code, told = placekit(site, "export", "p.json", "a.placement.json", "--to", "pipes", cwd=tmp_path)
    assert (code, f"--first-blocks 0,{line[1]} --context 8192 --slots 1" in told) == (0, True), told
    code, told = placekit(site, *asked, "--for", "broken", cwd=tmp_path)
    assert code == 2
    assert "plugin 'broken': its entry point 'broken = no_such_module_at_all:RECORD'" in told


def test_the_page_shows_the_package_and_names_parts_of_the_record() -> None:
    """Its entry point is that of the package; every part of its table is a field, and every required field is there."""
    assert (found := re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)) is not None
    assert found[1].strip() in (ROOT / "examples" / "runtime" / "pyproject.toml").read_text()
    rows = [row.split("|")[1] for row in PAGE.splitlines() if row.startswith("| `")]
    named = {part for row in rows for part in re.findall(r"`(\w+)`", row)}
    known = {each.name for each in fields(Runtime)}
    assert named <= known
    required = {each.name for each in fields(Runtime) if each.default is MISSING and each.default_factory is MISSING}
    assert required - {"name"} <= named
    assert len(PAGE.splitlines()) <= 40
