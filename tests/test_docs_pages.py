"""The pages of the site tell the truth: snippets print what stands below them, commands parse, the site builds."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer.main

from placekit.cli.main import app, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_WORDS = 25_000
"""Words that a reader may have to read: the readme and all pages together, as ``wc -w`` counts them."""


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of every fenced block of a page."""
    return BLOCK.findall((DOCS / page).read_text())


@pytest.mark.parametrize(
    "page",
    [
        "own_graph.md",
        "workloads.md",
        "pytorch.md",
        "language_models.md",
        "concepts/memory.md",
    ],
)
def test_snippets_print_what_stands_below_them(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON blocks are the files that the snippets read; the text block after a snippet is its output."""
    monkeypatch.chdir(tmp_path)
    printed, ran = "", 0
    for language, text in blocks(page):
        if language == "json":
            Path("workload.json").write_text(text)
        elif language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, page, "exec"), {"__name__": page})
            printed, ran = output.getvalue(), ran + 1
        elif language == "text":
            assert printed == text
    assert ran


@pytest.mark.slow
@pytest.mark.zoo
def test_commands_on_the_page_about_pytorch_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command ends well with the platform of the page."""
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    Path("cluster.toml").write_text(next(text for language, text in blocks("pytorch.md") if language == "toml"))
    ran = 0
    for language, text in blocks("pytorch.md"):
        for command in text.splitlines() if language == "console" else ():
            monkeypatch.setattr(sys, "argv", shlex.split(command.removeprefix("$ ")))
            with pytest.raises(SystemExit) as ended:
                main()
            told = capsys.readouterr()
            assert not ended.value.code, command + told.err
            assert "placekit solve" not in command or re.search("^status +optimal", told.out, re.MULTILINE), command
            ran += "placekit solve" in command
    assert ran


def test_the_page_about_language_models_begins_with_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first command prints what stands below it, and every line of the answer is explained there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # lines as in a file
    (_, command), (language, printed) = blocks("language_models.md")[:2]
    assert language == "output"
    monkeypatch.setattr(sys, "argv", shlex.split(command.removeprefix("$ ")))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out == printed
    explained = (DOCS / "language_models.md").read_text().partition("```output")[2].partition("\n## ")[0]
    names = re.findall(r"^([a-z]+(?: of)?) {2,}\S", printed, re.MULTILINE)
    assert [name for name in names if not name.startswith("wrote") and f"`{name}`" not in explained] == []


@pytest.mark.slow
def test_commands_on_the_page_about_language_models_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command ends well with the platform of the page, and proves what it places."""
    monkeypatch.chdir(tmp_path)
    (platform,) = (text for language, text in blocks("language_models.md") if language == "toml")
    Path("cluster.toml").write_text(platform)
    for folder, config in (("Qwen3-30B-A3B", "qwen3-30b-a3b"), ("Llama-3.1-8B", "llama-3.1-8b")):
        Path(folder).mkdir()
        shutil.copy(DOCS.parent / "tests" / "language" / "configs" / f"{config}.json", f"{folder}/config.json")
    planned = 0
    for language, text in blocks("language_models.md"):
        for command in text.splitlines() if language == "console" else ():
            if ".gguf" in command.partition("--line")[0]:  # a file of 60 GB
                continue
            monkeypatch.setattr(sys, "argv", shlex.split(command.removeprefix("$ ")))
            with pytest.raises(SystemExit) as ended:
                main()
            told = capsys.readouterr()
            assert not ended.value.code, command + told.err
            wrote = dict(re.findall(r"^wrote (\S+) +(\S+)$", told.out, re.MULTILINE))
            assert wrote, command
            assert all(Path(name).is_file() for name in wrote.values()), command
            if command.startswith("$ placekit llm"):
                assert json.loads(Path(wrote["result"]).read_text())["status"] == "optimal", command
                planned += 1
    assert planned


def test_the_readme_and_all_pages_stay_short() -> None:
    """What is added above the limit has to take the place of something; the message names the longest pages."""
    words = {path: len(path.read_text().split()) for path in (ROOT / "README.md", *DOCS.rglob("*.md"))}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:5]
    told = ", ".join(f"{path.relative_to(ROOT)} {words[path]}" for path in longest)
    assert sum(words.values()) <= MOST_WORDS, f"{sum(words.values())} words; longest: {told}"


COMMANDS = [
    (str(path.relative_to(DOCS)), line.removeprefix("$ ").partition(" #")[0].strip())
    for path in sorted(DOCS.rglob("*.md"))
    for language, text in BLOCK.findall(path.read_text())
    if language == "console"
    for line in text.splitlines()
    if line.startswith("$ placekit ")
]


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_of_every_page_parse(page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every printed command has a known subcommand, and all of its options exist."""
    monkeypatch.chdir(tmp_path)
    for folder in ("MODELS", "FOLDER"):  # what the pages call a folder of the reader
        Path(folder).mkdir()
    _, name, *arguments = shlex.split(command)
    group: Any = typer.main.get_command(app)
    group.get_command(None, name).make_context(name, arguments)


def test_methods_of_the_registry_are_in_the_table() -> None:
    """The page of methods names every registered method, alone or with an argument (``policy:PATH``)."""
    from placekit.solve.registry import METHODS

    page = (DOCS / "concepts" / "methods.md").read_text()
    assert [name for name in METHODS if f"`{name}`" not in page and f"`{name}:" not in page] == []


def test_the_reference_has_every_public_name() -> None:
    """The page about Python is what `make rooms` writes: all names of `placekit.__all__`."""
    import placekit as pk

    spec = spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = module_from_spec(spec)
    spec.loader.exec_module(reference)
    names = [name for each in reference.SECTIONS.values() for name in each]
    assert sorted(names) == sorted(set(pk.__all__) - {"__version__"})
    assert (DOCS / "reference" / "api.md").read_text() == reference.page(), "run `make rooms`"
    assert issubclass(pk.errors.InvalidFileError, pk.PlacekitError)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs the extra docs")
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Links, anchors and references hold, and the generated pages are made."""
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "--time-limit" in (tmp_path / "site" / "reference" / "cli.html").read_text()
    assert (tmp_path / "site" / "concepts" / "makespan.svg").stat().st_size > 1000
