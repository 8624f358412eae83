"""``placekit zoo``: real architectures with random weights, built without a download."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from placekit.cli.console import check_writable, tell
from placekit.cli.options import JsonOption, SeedOption, parse_params
from placekit.cli.output.facts import model_facts
from placekit.cli.output.render import fact_lines, plain_table
from placekit.cli.parameters import OUTPUT, option
from placekit.zoo import ZOO, build
from placekit.zoo.registry import entry_of


def zoo(
    name: Annotated[str | None, typer.Argument(help="Model to build. Without a name all models are listed.")] = None,
    output: Path | None = option(
        None, "IR (.xml) or .pt2 file (default NAME.xml).", "FILE", names="--output -o", panel=OUTPUT
    ),
    seed: SeedOption = 0,
    dynamic: bool = option(False, "Leave the numbers of samples and tokens open."),
    param: list[str] | None = option(None, "Set a parameter of the model; repeatable.", "NAME=VALUE"),
    as_json: JsonOption = False,
) -> None:
    """List the models of the zoo, or build one as OpenVINO IR or as a program of torch.export (needs the zoo extra)."""
    if name is None:
        _list(as_json)
    else:
        _build(name, output or Path(f"{name}.xml"), seed, dynamic, parse_params(param), as_json)


def _list(as_json: bool) -> None:
    table = plain_table("model", "what it is", "parameters (--param NAME=VALUE)", left=3)
    for name, entry in ZOO.items():
        table.add_row(name, entry.summary, _spelt(entry.defaults))
    document = {name: {"summary": entry.summary, "params": dict(entry.defaults)} for name, entry in ZOO.items()}
    tell(as_json, document, [table])


def _spelt(values: Mapping[str, Any]) -> str:
    """Return parameters as ``--param`` takes them."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
    return " ".join(f"{key}={text}".replace(" ", "") for key, text in texts.items())


def _build(name: str, output: Path, seed: int, is_dynamic: bool, params: dict[str, Any], as_json: bool) -> None:
    values: dict[str, Any] = dict(entry_of(name).settle(params))
    check_writable(output)
    built = build(name, output, seed=seed, dynamic=is_dynamic, **values)
    files = {"model": str(output)}
    if output.suffix.lower() == ".xml":
        files["weights"] = str(output.with_suffix(".bin"))
    told = {"name": name, "seed": seed, "params": values, "hash": built.source.content_hash}
    facts = model_facts(built.source) | {f"wrote {kind}": file for kind, file in files.items()}
    tell(as_json, told | built.facts() | {"files": files}, [fact_lines(facts)])
