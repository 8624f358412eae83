"""What the site makes at build time: the command line, the fields of files, and the pictures of the concepts.

None of it is committed, so none of it can be out of date.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from typing import Any

import typer
import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import placekit as pk
from placekit.io.files.schemas import SCHEMAS, json_schema


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages and pictures to those in the folder."""
    pages = {"reference/cli.md": command_line(), "reference/schemas.md": fields_of_files(), **pictures()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    for figure in sorted(Path("benchmarks/figures").glob("*.png")):
        files.append(File.generated(config, f"figures/{figure.name}", abs_src_path=str(figure.absolute())))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Put whole docstrings in the place of their first lines on the page about Python."""
    if page.file.src_uri != "reference/api.md":
        return markdown
    spec = spec_from_file_location("reference", Path(__file__).with_name("reference.py"))
    assert spec is not None
    assert spec.loader is not None
    reference = module_from_spec(spec)
    spec.loader.exec_module(reference)
    return str(reference.with_docstrings(markdown))


def command_line() -> str:
    """Return the page of all commands, from the application itself."""
    from placekit.cli.main import app

    group: Any = typer.main.get_command(app)
    lines = ["# Command line", "", str(group.help), "", str(group.epilog), ""]
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        context = typer.Context(command, info_name=f"placekit {name}")
        lines += [f"## {name}", "", command.help or "", "", "```", command.get_usage(context), "```", ""]
        lines += ["| option | meaning |", "|---|---|", *map(_row, _options(command, context)), ""]
    return "\n".join(lines)


def _options(command: Any, context: typer.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in record[0]:
            yield record


def _row(record: tuple[str, str]) -> str:
    option, meaning = (_plain(" ".join(text.split())) for text in record)
    return f"| <code>{option}</code> | {meaning} |"


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "&#124;").replace("[", "\\[")


def fields_of_files() -> str:
    """Return the page of all fields of all JSON and TOML files, from their schemas."""
    made_of = "`placekit show --schema KIND` prints the JSON Schema that this page is made of."
    lines = ["# Fields of files", "", made_of, ""]
    for kind in SCHEMAS:
        schema = json_schema(kind)
        lines += [f"## {kind}", "", _first_line(schema), ""]
        lines += _fields(schema)
        for name, part in schema.get("$defs", {}).items():
            if part.get("properties"):
                lines += [f"### {kind}: {name}", "", _first_line(part), "", *_fields(part)]
    return "\n".join(lines)


def _first_line(schema: dict[str, Any]) -> str:
    return str(schema.get("description", "")).partition("\n")[0]


def _fields(schema: dict[str, Any]) -> list[str]:
    required = set(schema.get("required", ()))
    lines = ["| field | type | required |", "|---|---|---|"]
    for name, field in schema.get("properties", {}).items():
        lines.append(f"| `{name}` | {_plain(_type(field))} | {'yes' if name in required else ''} |")
    return [*lines, ""]


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(each) for each in field["anyOf"]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {_type(field['additionalProperties'])}"
    return str(field.get("const", field.get("type", "any")))


def example() -> pk.Problem:
    """Return the problem of the pictures: five ops, a CPU and two equal accelerators."""
    edges = [("read", "left"), ("read", "right"), ("left", "join"), ("right", "join"), ("join", "write")]
    graph = pk.OpGraph.from_edges(["read", "left", "right", "join", "write"], edges, name="example")
    op_time_s = [[1e-3, 4e-3], [9e-3, 3e-3], [9e-3, 3e-3], [6e-3, 2e-3], [1e-3, 4e-3]]
    transfer_time_s = [[0.0, 5e-4]] * graph.num_tensors
    costs = pk.CostTable(("cpu", "gpu"), op_time_s, transfer_time_s, [0] * 5)
    return pk.Problem(graph, pk.Platform.of(cpu=1, gpu=2, host="cpu"), costs)


def pictures() -> dict[str, bytes]:
    """Return the pictures of the concepts as SVG: the best of all placements of the example under every objective."""
    objectives: list[pk.Objective] = [pk.Throughput(), pk.SerialLatency(), pk.OffloadLatency(), pk.Makespan()]
    drawn = {}
    for objective in objectives:
        problem = example().replace(objective=objective, contiguity=objective.default_contiguity)
        placements = (pk.Placement.of(problem, devices) for devices in product(range(3), repeat=5))
        best = min(placements, key=lambda placement: _score(problem, placement))
        drawn[f"concepts/{objective.name}.svg"] = _svg(pk.solve(problem, "single", warm_start=best))
    return drawn


def _score(problem: pk.Problem, placement: pk.Placement) -> float:
    evaluation = pk.evaluate(problem, placement)
    return evaluation.objective if evaluation.is_feasible and evaluation.objective is not None else math.inf


def _svg(result: pk.Result) -> bytes:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from placekit.plotting.plot_result import plot_loads
    from placekit.plotting.plot_schedule import plot_schedule

    figure, axes = plt.subplots(figsize=(7.2, 2.4), layout="constrained")
    (plot_loads if result.schedule is None else plot_schedule)(result, ax=axes)
    axes.set_title(f"{result.objective_name}: the best of all placements")
    picture = io.BytesIO()
    figure.savefig(picture, format="svg")
    plt.close(figure)
    return picture.getvalue()
