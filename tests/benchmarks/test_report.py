"""The report: what it says about rows, and what the page is made of."""

from __future__ import annotations

import io
import json
import math
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.benchmarks.cases.plan import make_plan
from placekit.benchmarks.cases.suite import read_suite
from placekit.benchmarks.report.groups import Group, group_rows, objectives_of, read_groups
from placekit.benchmarks.report.tables import (
    across_table,
    case_table,
    command_table,
    overview_table,
)
from placekit.benchmarks.report.write import write_report
from placekit.benchmarks.runner import run_jobs
from placekit.benchmarks.store import Store
from placekit.model.errors import InvalidFileError
from placekit.model.problem import Problem
from placekit.plotting.canvas import figure_of
from placekit.plotting.layout import layered_positions
from placekit.plotting.plot_graph import draw_graph

pytestmark = pytest.mark.xdist_group("report")  # one process makes the results, once

SUITE = """
name = "reported <&>"
time_limit_s = 5.0
seeds = [0, 1]
[[model]]
family = "chains"
params = { num_ops = 20, num_devices = 2 }
seeds = [0, 1]
[[objective]]
name = "throughput"
[[objective]]
name = "makespan"
[[method]]
name = "single"
seeds = [0]
[[method]]
name = "random:100"
[[method]]
name = "greedy"
seeds = [0]
[[method]]
name = "random:100"
warm_start = "greedy"
[[method]]
name = "auto"
seeds = [0]
time_limit_s = 1.0
objectives = ["throughput"]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of results: four problems, up to five methods."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "suite.toml").write_text(SUITE)
    plan = make_plan(read_suite(str(folder / "suite.toml")), folder / "results")
    store = Store(folder / "results")
    with store.locked():
        run_jobs(plan.jobs, store, lambda: ThreadPoolExecutor(1))
    return store.folder


@pytest.fixture(scope="module")
def pages(results: Path) -> tuple[Path, Path]:
    """Return the two files of its report."""
    return write_report(results)


def row(method: str, objective_s: float | None, bound_s: float | None = None, **changes: Any) -> dict[str, Any]:
    """Return a row of one problem whose best single device takes 10 s."""
    values: dict[str, Any] = {
        "case": f"{method}-{changes}",
        "problem_address": "p",
        "model": "m",
        "platform": None,
        "objective": "throughput",
        "variant": {"overlap": True, "schedule": "1f1b"},
        "contiguity": "none",
        "label": method,
        "method": method,
        "params": {},
        "file_hashes": {},
        "warm_start": None,
        "seed": 0,
        "time_limit_s": 60.0,
        "gap": None,
        "max_evaluations": None,
        "num_ops": 3,
        "num_devices": 2,
        "single_device_s": 10.0,
        "objective_s": objective_s,
        "bound_s": bound_s,
        "bound_name": None if bound_s is None else "a bound",
        "status": "unknown" if objective_s is None else "feasible",
        "error": None,
        "time_to_best_s": 1.0,
        "warm_start_s": None,
        "runtime_s": 2.0,
        "evaluations": 7,
        "trace": [] if objective_s is None else [[1.0, objective_s, None]],
        "command": "placekit solve",
    }
    return values | changes


def only(*rows: dict[str, Any]) -> Group:
    """Return the one group of some rows."""
    (group,) = group_rows(rows)
    return group


def test_gap_is_to_the_best_bound_of_all_methods() -> None:
    """X reaches 6 s without a bound; y proves 2 s: the gap of x is 4/6."""
    group = only(row("x", 6.0), row("y", 8.0, 2.0), row("z", None, 1.0))
    assert group.bound == (2.0, "a bound", "y")
    assert group.gaps("x") == [pytest.approx(4 / 6)]
    assert group.objectives_s("z") == [math.inf]
    table = case_table(group, {})
    assert [line[0] for line in table.rows] == ["x", "y", "z"]
    assert table.best == {0}
    assert table.rows[0][:4] == ("x", "feasible", "6000", "66.7 %")
    assert overview_table([group]).rows[0][2:4] == ("x", "y")


def test_the_title_says_what_differs_from_the_usual_objective() -> None:
    """Overlap is not the default, the schedule is."""
    assert only(row("x", 6.0)).title == "m: throughput, overlap True, contiguity none"


def test_seeds_are_summarised_and_limits_told_apart() -> None:
    """Two seeds are one line with a range; the same method with another limit is another line."""
    group = only(row("x", 6.0), row("x", 4.0, seed=1), row("x", 3.0, time_limit_s=5.0))
    lines = case_table(group, {}).rows
    assert [(line[0], line[2], line[-1]) for line in lines] == [
        ("x (5 s)", "3000", "1/1"),
        ("x (60 s)", "5000 (4000 to 6000)", "2/2"),
    ]


def test_a_bound_above_an_objective_is_shouted_about() -> None:
    """Then one of them is wrong."""
    assert only(row("x", 6.0), row("y", 6.0, 6.0)).contradiction is None
    told = only(row("x", 6.0), row("y", 8.0, 7.0)).contradiction
    assert told is not None
    assert "y proves 7.0 s (a bound), x reaches 6.0 s" in told


def test_errors_and_missing_placements_are_counted_apart() -> None:
    """Neither is hidden, and neither counts as a win."""
    failed = row("x", None, seed=1, error="ValueError: no", status="error", trace=[])
    group = only(row("x", 6.0, 2.0), failed, row("x", None, seed=2))
    line = dict(zip(across_table([group]).columns, across_table([group]).rows[0], strict=True))
    assert (line["runs"], line["no placement"], line["errors"], line["runs there"]) == ("3", "1", "1", "1/3")
    assert line["best of all"] == "33.3 %"


def test_methods_are_ranked_by_their_mean_gap() -> None:
    """A run without a placement has gap 1; a method of one problem comes after those of both."""
    rows = []
    for problem in ("p", "q"):
        at: dict[str, Any] = {"problem_address": problem, "model": problem}
        rows += [
            row("dp", 4.0, 4.0, status="optimal", **at),
            row("hsdag", 8.0, **at),
            row("hsdag", 5.0, seed=1, **at),
            row("gdp", None, **at),
            row("local-search", 5.0, warm_start="hsdag", warm_start_s=3.0, label="search from hsdag", **at),
        ]
    table = across_table(group_rows([*rows, row("rnn", 4.0, problem_address="p")]))
    lines = [dict(zip(table.columns, line, strict=True)) for line in table.rows]
    assert [(line["method"], line["family"], line["proven"]) for line in lines] == [
        ("dp", "exact", "2"), ("search from hsdag", "hybrid", "0"), ("hsdag", "learned", "0"), ("gdp", "learned", "0"),
        ("rnn", "learned", "0"),
    ]  # fmt: skip
    assert [line["mean gap [95 %]"] for line in lines] == ["0 %", "20 %", "35 % [20.00, 50.00]", "100 %", "0 %"]
    assert lines[1]["runtime"] == "5 s"


def test_rules_of_contiguity_are_compared_apart() -> None:
    """Gaps of the two do not mix, since different placements are allowed; one rule alone is not named."""
    free, acyclic = only(row("x", 6.0)), only(row("x", 6.0, contiguity="acyclic", problem_address="a"))
    other = only(row("x", 6.0, objective="makespan", problem_address="m"))
    assert list(objectives_of([free, acyclic, other])) == ["throughput, none", "throughput, acyclic", "makespan"]
    assert list(objectives_of([free, other])) == ["throughput", "makespan"]


def test_measured_times_are_shown_with_their_error() -> None:
    """A column appears as soon as one row was measured."""
    group = only(row("x", 6.0), row("y", 8.0))
    case = group.rows["x"][0]["case"]
    measured = {case: {"measured_s": 7.0, "measured_iqr_s": 0.5, "prediction_error": 0.1, "error": None}}
    table = case_table(group, measured)
    assert table.columns[-1].startswith("measured")
    assert [line[-1] for line in table.rows] == ["7000 ± 500 (10 %)", "-"]
    measured[case]["is_noisy"] = True
    assert case_table(group, measured).rows[0][-1] == "7000 ± 500 (10 %), disturbed"


class Page(HTMLParser):
    """Collects tags, links and ids, and checks that tags are closed."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag."""
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag without content."""
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Leave a tag."""
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(pages: tuple[Path, Path]) -> None:
    """Well formed, unique ids, links that lead somewhere, one script, nothing from the network, below 3 MB."""
    html, markdown = pages
    text = html.read_text()
    assert html.stat().st_size < 3e6
    page = Page()
    page.feed(text)
    assert page.open == []
    tags = [tag for tag, _ in page.found]
    assert tags.count("script") == 1
    assert tags.count("img") >= 1
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.found:
        for name in ("href", "xlink:href", "src"):
            link = attrs.get(name)
            if link is not None:
                assert link.startswith(("#", "data:")), link
                assert not link.startswith("#") or link[1:] in ids, link
    assert "reported &lt;&amp;&gt;" in text
    assert "nan" not in re.sub(r"<img[^>]*>", "", text).replace("tenant", "")
    assert markdown.read_text().startswith("# placekit: reported <&>")
    for word in (
        "Overview",
        "Methods compared: makespan",
        "random:100 from greedy",
    ):
        assert word in text
        assert word in markdown.read_text()


@pytest.mark.slow
def test_every_row_has_its_command(results: Path) -> None:
    """One line per row, with the case, so that every number can be made again."""
    groups = read_groups(results)
    rows = [row for group in groups for row in group.all_rows]
    assert len(command_table(groups).rows) == len(rows) == len(Store(results).rows())
    assert all(line[-1].startswith("placekit ") for line in command_table(groups).rows)


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    """The message says what makes some; a row that lacks a field is named."""
    with pytest.raises(InvalidFileError, match="no rows; placekit bench"):
        write_report(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"schema": "placekit/row/1", "case": "c"}) + "\n")
    with pytest.raises(InvalidFileError, match="a row lacks 'problem_address'"):
        write_report(tmp_path)


def test_layers_follow_the_longest_path(diamond: Problem) -> None:
    """The diamond has three layers; its two middle ops stand beside each other."""
    x, y = layered_positions(diamond.graph)
    assert x.tolist() == [0, 1, 1, 2]
    assert sorted(y.tolist()) == [-0.5, 0, 0, 0.5]


def test_graph_figure_colours_ops_and_marks_cuts(diamond: Problem) -> None:
    """Ops on two devices: two colours; both cut edges stand out; the devices are in the legend."""
    from matplotlib.collections import EllipseCollection
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    from placekit.model.placement import Placement

    axes = draw_graph(diamond.graph, Placement.of(diamond, [1, 1, 2, 1]), np.ones(4))
    (dots,) = (each for each in axes.collections if isinstance(each, EllipseCollection))
    colors = np.asarray(dots.get_facecolor())
    assert len(colors) == 4
    assert len(np.unique(colors, axis=0)) == 2
    paths = [patch.get_path() for patch in axes.patches if isinstance(patch, PathPatch)]
    assert [np.count_nonzero(np.asarray(path.codes) == Path.MOVETO) for path in paths] == [
        2,
        2,
    ]  # two edges inside, two across
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "acc.0: 3 ops",
        "acc.1: 1 op",
        "crosses devices, as wide as its bytes",
    ]
    assert figure_of(axes).get_figwidth() > 5


@pytest.mark.parametrize("num_devices", [8, 30])
def test_a_chain_on_many_devices_leaves_room_for_its_legend(num_devices: int) -> None:
    """However low the graph is: a legend taller than the figure would leave the axes no height."""
    from placekit.benchmarks.generators.families import generate
    from placekit.model.placement import Placement

    problem = generate("chains", 40, seed=1, num_devices=num_devices)
    axes = draw_graph(problem.graph, Placement.of(problem, np.arange(40) % num_devices), np.ones(40))
    figure = figure_of(axes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(io.BytesIO())
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().height < figure.bbox.height
    assert axes.get_window_extent().width > 0.5 * figure.bbox.width
