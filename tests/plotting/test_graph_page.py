"""The page of a graph: every op and edge is on it once, names are text, and the sizes stay within reason."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import placekit as pk
from placekit.cli.main import app
from placekit.plotting import graph_page as module
from placekit.plotting.graph_page import graph_page
from placekit.plotting.layout import lay_out


class Tags(HTMLParser):
    """Collects tags and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Take a text."""
        self.texts.append(data)


def chain(names: list[str]) -> tuple[pk.OpGraph, pk.Placement]:
    """Return a chain over two devices, cut before its last op."""
    graph = pk.OpGraph.from_edges(names, list(pairwise(names)))
    return graph, pk.Placement(graph.op_names, ("a", "b"), np.arange(len(names)) // (len(names) - 1))


def test_every_op_is_on_the_page_once() -> None:
    """With its name and device, in the colour of its device; what crosses devices stands out."""
    graph, placement = chain(["one", "two", "<script>alert(1)</script>"])
    page = Tags()
    page.feed(graph_page(graph, placement, [1.0, 4.0, 0.0], "title <b>"))
    dots = [attrs for tag, attrs in page.tags if tag == "circle" and "cx" in attrs]
    assert [dot["class"] for dot in dots] == ["d0 i", "d0", "d1 o"]  # input and output are marked
    assert [float(dot["r"] or 0) for dot in dots] == [7.5, 12.0, 3.0]
    paths = {attrs["class"]: attrs["d"] or "" for tag, attrs in page.tags if tag == "path"}
    drawn = {kind: lines.count("M") for kind, lines in paths.items()}
    assert {kind: count for kind, count in drawn.items() if count} == {"e": 1, "eh": 1, "c": 1, "ch": 1}
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "<script>alert(1)</script>\nOp on b" in page.texts
    assert "in: one" in page.texts
    assert "…ript>alert(1)</script>"[-16:] in "".join(page.texts)
    assert page.texts.count("title <b>") == 2
    assert "between devices" in page.texts


def test_a_long_chain_fills_the_page() -> None:
    """It is folded into rows; no two ops stand at the same place."""
    page = graph_page(*chain([f"op{i}" for i in range(300)]), np.ones(300), "chain")
    ((width, height),) = re.findall(r'id="graph" viewBox="\S+ \S+ (\S+) (\S+)"', page)
    assert 1 < float(width) / float(height) < 3
    places = re.findall(r'cx="(\S+)" cy="(\S+)"', page)
    assert len(set(places)) == len(places) == 300


def test_only_cut_edges_are_drawn_of_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser could not move them all."""
    monkeypatch.setattr(module, "MAX_ELEMENTS", 3)
    graph, placement = chain(["one", "two", "three"])
    assert '<path class="e" d=""/>' in graph_page(graph, placement, np.ones(3), "large")


def test_skip_connections_are_arcs_that_nest() -> None:
    """The longer of two skips is the higher arc, neither passes over an op, arrows end at the border."""
    names = list("abcdef")
    graph = pk.OpGraph.from_edges(names, [*pairwise(names), ("a", "f"), ("b", "e")])
    radius = np.full(6, 0.25)
    layout = lay_out(graph, radius, aspect=100.0)
    long = {(int(u), int(v)): at for at, (u, v) in enumerate(zip(graph.senders, graph.receivers, strict=True))}
    outer, inner = long[0, 5], long[1, 4]
    assert layout.is_long.sum() == 2
    assert layout.is_long[[outer, inner]].all()
    peak = 0.5 * layout.control[:, 1] + 0.25 * (layout.start[:, 1] + layout.end[:, 1])
    assert peak[outer] < peak[inner] < -0.5
    assert np.hypot(*(layout.heads[outer, 0] - [layout.x[5], layout.y[5]])) == pytest.approx(0.25)


def test_show_draws_the_graph_of_a_result_and_of_a_placement(diamond: pk.Problem, tmp_path: Path) -> None:
    """The problem is that of the same name, or is given."""
    pk.write_problem(diamond, tmp_path / "one.problem.json")
    solved = CliRunner().invoke(
        app, ["solve", str(tmp_path / "one.problem.json"), "-o", str(tmp_path / "one.placement.json")]
    )
    assert solved.exit_code == 0, solved.output
    for file, extra in (("one.result.json", []), ("one.placement.json", ["--of", str(tmp_path / "one.problem.json")])):
        for suffix in (".html", ".png"):
            drawn = tmp_path / f"drawn{suffix}"
            shown = CliRunner().invoke(app, ["show", str(tmp_path / file), "--graph", str(drawn), *extra])
            assert shown.exit_code == 0, shown.output
            assert drawn.stat().st_size > 1000
            drawn.unlink()
