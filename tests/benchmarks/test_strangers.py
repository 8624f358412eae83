"""Suites and rows of strangers: broken ones are refused by name, and none reads, writes or shows what it should not."""

from __future__ import annotations

import copy
import json
import os
import random
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fuzz.files import SUITE
from fuzz.mutations import ODD_VALUES, mangle, mutate, places

from placekit.benchmarks.cases.plan import make_plan
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.report.write import write_report
from placekit.benchmarks.runner import run_jobs
from placekit.benchmarks.store import Store
from placekit.io.files.platform_toml import _quoted, _value
from placekit.model.errors import InvalidFileError, PlacekitError


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of results with three rows, and a measurement."""
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "suite.toml").write_text(SUITE)
    plan = make_plan(read_suite(str(folder / "suite.toml")), folder / "results")
    store = Store(folder / "results")
    with store.locked():
        run_jobs(plan.jobs, store, lambda: ThreadPoolExecutor(1))
    measured = {
        "schema": "placekit/measured/1", "case": plan.jobs[0].case.address, "model": "m", "platform": None,
        "label": "random", "executor": "threads", "error": None, "measured_s": 0.02,
        "measured_iqr_s": 0.001, "prediction_error": 0.1, "is_noisy": False, "speedup": 1.5,
    }  # fmt: skip
    store.measured_path.write_text(json.dumps(measured) + "\n")
    return store.folder


def toml_of(document: dict[str, Any]) -> str:
    """Return the suite as TOML; a value that TOML does not have, as text."""

    def value(each: Any) -> str:
        if isinstance(each, dict):
            return "{" + ", ".join(f"{_quoted(str(key))} = {value(item)}" for key, item in each.items()) + "}"
        if isinstance(each, list):
            return "[" + ", ".join(map(value, each)) + "]"
        return _value(each if isinstance(each, str | int | float) else str(each))

    return "".join(f"{_quoted(str(key))} = {value(item)}\n" for key, item in document.items())


@pytest.mark.parametrize("count", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_suites_are_planned_or_refused_by_name(tmp_path: Path, count: int) -> None:
    """Values of every sort in every place, and broken bytes; no family of any size is built."""
    path = tmp_path / "suite.toml"
    valid = tomllib.loads(SUITE)
    refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        document = copy.deepcopy(valid)
        for _ in range(rng.randint(1, 2)):
            document = mutate(document, rng)
        try:
            content = toml_of(document).encode(errors="surrogatepass")
        except (ValueError, RecursionError):
            continue
        path.write_bytes(mangle(content, rng) if rng.random() < 0.3 else content)
        try:
            make_plan(read_suite(str(path)), tmp_path / "results")
        except PlacekitError as error:
            refused += 1
            assert 0 < len(str(error)) < 20_000  # noqa: PT017  # every error is one of these
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert count // 3 < refused < count - count // 20


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('family = "chains"\nparams = { num_ops = 30, num_devices = 2 }', 'file = "/etc/*.json"', "leads out of"),
        ('family = "chains"\nparams = { num_ops = 30, num_devices = 2 }', 'file = "../**/x.json"', "leads out of"),
        ('family = "chains"\nparams = { num_ops = 30, num_devices = 2 }', 'file = "***x"', "is no pattern|no file"),
        ("num_ops = 30", "num_ops = 30, transfer_ratio = inf", "numbers must be finite"),
        ("num_ops = 30", "num_ops = 30, memory_factor = nan", "numbers must be finite"),
        ("num_ops = 30", "num_ops = 1000000000000", "num_ops is 1000000000000; it must be >= 6 and <= 1000000|num_ops"),
        ("num_devices = 2", "num_devices = 1000000000", "num_devices is 1000000000"),
        ('name = "single"', 'name = "ilp"\nparams = { mps = "/tmp/x" }', "names a file to write"),
        ('name = "single"', 'name = "policy:/etc/passwd"', "leads out of"),
        ('name = "single"', 'name = "gdp"\nparams = { policy = "/tmp/x" }', "names a file to read"),
        ('name = "single"', 'name = "ilp"\nfiles = { expert = "../x" }', "leads out of"),
        ("time_limit_s = 2.0", "time_limit_s = inf", "time_limit_s"),
        ("time_limit_s = 2.0", "time_limit_s = " + "9" * 5000, "not TOML|range"),
    ],
)
def test_what_a_suite_must_not_ask_for(tmp_path: Path, old: str, new: str, told: str) -> None:
    """Files elsewhere, numbers that are none, problems of any size, files to write."""
    (tmp_path / "suite.toml").write_text(SUITE.replace(old, new))
    with pytest.raises(PlacekitError, match=told):
        make_plan(read_suite(str(tmp_path / "suite.toml")), tmp_path / "results")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [5, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_rows_are_reported_or_refused_by_name(results: Path, tmp_path: Path, count: int) -> None:
    """Any value in any place, deep nesting, halves of characters, bytes that are none."""
    for name in ("problems", "rows.jsonl", "measured.jsonl"):
        (tmp_path / name).symlink_to(results / name)
    refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        name = rng.choice(["rows.jsonl", "rows.jsonl", "measured.jsonl"])
        lines = [json.loads(line) for line in (results / name).read_text().splitlines()]
        at = rng.randrange(len(lines))
        lines[at] = mutate(lines[at], rng)
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        path = tmp_path / name
        path.unlink()
        path.write_bytes(mangle(content, rng) if rng.random() < 0.2 else content)
        try:
            write_report(tmp_path)
        except PlacekitError as error:
            refused += 1
            assert 0 < len(str(error)) < 20_000  # noqa: PT017  # every error is one of these
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        path.unlink()
        path.symlink_to(results / name)
    assert count // 4 < refused < count


def test_a_measurement_without_an_answer_is_left_out(results: Path, tmp_path: Path) -> None:
    """A row of a failed run, with a measurement of the same case, has nothing to compare."""
    (tmp_path / "problems").symlink_to(results / "problems")
    (tmp_path / "measured.jsonl").symlink_to(results / "measured.jsonl")
    case = json.loads((results / "measured.jsonl").read_text())["case"]
    rows = [json.loads(line) for line in (results / "rows.jsonl").read_text().splitlines()]
    assert case in {row["case"] for row in rows}
    rows = [row | {"objective_s": None} if row["case"] == case else row for row in rows]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "Predicted against measured" not in write_report(tmp_path)[1].read_text()


def test_every_field_of_a_row_may_be_anything(results: Path, tmp_path: Path) -> None:
    """Reading rows, without the pictures: every place of a row with odd values, refused or taken."""
    row = json.loads((results / "rows.jsonl").read_text().splitlines()[0])
    row["trace"], row["device_of_op"] = row["trace"][:1], row["device_of_op"][:2]
    store = Store(tmp_path)
    rng = random.Random(0)
    refused = 0
    for where in places(row):
        changed = copy.deepcopy(row)
        parent = changed
        for step in where[:-1]:
            parent = parent[step]
        parent[where[-1]] = rng.choice(ODD_VALUES)
        store.path.write_text(json.dumps(changed) + "\n")
        try:
            assert len(store.rows()) == 1
        except InvalidFileError as error:
            refused += 1
            assert "rows.jsonl, line 1" in str(error)  # noqa: PT017  # as above
    assert len(places(row)) // 4 < refused < len(places(row))


def test_html_of_a_row_is_text_in_both_reports(results: Path, tmp_path: Path) -> None:
    """Names with tags, links, formulas, cells and escape sequences are shown as they are."""
    evil = "<script>alert(1)</script><img src=x onerror=y>|[x](javascript:z)`$a$`\x1b[2J\u202e\n# x"
    rows = [json.loads(line) for line in (results / "rows.jsonl").read_text().splitlines()]
    for each in rows:
        each.update(model=evil, label=evil + each["label"], suite=evil, command=evil, platform=evil)
    rows[0].update(error=evil, status="error", objective_s=None, bound_s=None)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    for page in write_report(tmp_path):
        text = page.read_text()
        assert text.count("<script") == (page.suffix == ".html")  # its own
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert page.suffix == ".html" or "\n# x" not in text
    assert r"\|\[x](javascript:z)" in text


def test_a_lock_that_is_no_file_is_refused(tmp_path: Path) -> None:
    """Whoever can write to the folder of results may have put a pipe there, which would never be opened."""
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(PlacekitError, match="no regular file"), Store(tmp_path).locked():
        pytest.fail("locked")
