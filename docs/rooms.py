"""Writes the tables of rooms in ``CONTRIBUTING.md`` and their picture, from docstrings and imports: ``make rooms``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "contributing" / "rooms.svg"
LINKED = ("cost_models", "solvers", "learned", "benchmarks", "cli")
"""Rooms that are folders of their own, with a link in ``placekit/``."""
SIDEWAYS = {("cost_models", "runtime")}
"""Imports that do not count: what a handover costs is measured with the pipeline itself."""

_TABLES = re.compile(r"(<!-- rooms -->\n).*?(\n<!-- end of the rooms -->)", re.DOTALL)
_BOXES = re.compile(r"(<!-- rooms -->\n).*?(<!-- end of the rooms -->\n)", re.DOTALL)
_WIDTH, _HEIGHT, _GAP, _TOP, _BOTTOM = 440, 22, 8, 36, 400
"""Sizes of the picture: pixels of the left half, of a box and between boxes, and where the rows begin and end."""


def modules() -> dict[str, Path]:
    """Return the file of every module of placekit, by its name without ``placekit.``; of a package, its init."""
    named = {}
    for folder in (ROOT / "placekit", *(ROOT / name for name in LINKED)):
        for path in sorted(folder.rglob("*.py")):  # which does not follow links
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[parts[0] == "placekit" :]).removesuffix(".__init__")
            named[name] = path
    return {name: path for name, path in named.items() if name not in ("__init__", "__main__")}


@cache
def imports_of(path: Path) -> tuple[str, ...]:
    """Return the modules that a file imports at any depth, those that only type checkers see, too."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += (f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(found)


def graph_of_rooms(inside: str = "") -> nx.DiGraph[str]:
    """Return which room imports which, all rooms or those in a room; commands of a product belong to ``cli``."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    prefix = f"placekit.{inside}." if inside else "placekit."
    for name, path in modules().items():
        own = _room(f"placekit.{name}", prefix)
        if own is not None:
            graph.add_node(own)
            graph.add_edges_from((own, room) for each in imports_of(path) if (room := _room(each, prefix)) is not None)
    graph.remove_edges_from([*nx.selfloop_edges(graph), *SIDEWAYS])
    return graph


def _room(module: str, prefix: str) -> str | None:
    names = module.removeprefix(prefix).split(".")
    if not module.startswith(prefix) or names[0].startswith("__"):
        return None
    return "cli" if "commands" in names else names[0]


def table(inside: str = "") -> str:
    """Return the rooms, the lowest first, with what they hold and what they import beside what that imports."""
    graph, files = graph_of_rooms(inside), modules()
    below: Mapping[str, list[str]] = nx.to_dict_of_lists(nx.transitive_reduction(graph))
    lines = [f"| room{f' in `{inside}/`' * bool(inside)} | holds | imports |", "|---|---|---|"]
    for rooms in nx.topological_generations(graph.reverse()):
        for room in sorted(rooms):
            path = files[f"{inside}.{room}" if inside else room]
            first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            home = path.parent if path.name == "__init__.py" else path
            called = home.relative_to(ROOT / inside).as_posix() + "/" * home.is_dir()
            lines.append(f"| `{called}` | {first} | {', '.join(sorted(below[room]))} |")
    return "\n".join(lines)


def boxes() -> str:
    """Return the rooms as boxes, each above all that it imports."""
    shapes = []
    rows = [*nx.topological_generations(graph_of_rooms().reverse())][::-1]
    for row, rooms in enumerate(rows):
        width = _WIDTH / len(rooms) - _GAP
        y = round(_TOP + row * (_BOTTOM - _HEIGHT - _TOP) / (len(rows) - 1))
        for at, room in enumerate(sorted(rooms)):
            x = 10 + at * (width + _GAP)
            shapes.append(
                f'<rect class="b" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{_HEIGHT}" rx="5"/>'
                f'<text x="{x + width / 2:.0f}" y="{y + 15}" text-anchor="middle" font-size="12">{escape(room)}</text>'
            )
    return "\n".join(shapes) + "\n"


def updated_page(page: str) -> str:
    """Return the page with its tables made anew."""
    return _TABLES.sub(lambda found: f"{found[1]}{table()}\n\n{table('solvers')}{found[2]}", page)


def updated_picture(picture: str) -> str:
    """Return the picture with its rooms drawn anew."""
    return _BOXES.sub(lambda found: found[1] + boxes() + found[2], picture)


def main() -> None:
    """Rewrite the page and the picture."""
    for path, updated in ((PAGE, updated_page), (PICTURE, updated_picture)):
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
