"""``placekit methods``: the table, and the parameters of a method."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from placekit.cli.commands.methods import parameter_lines
from placekit.solve.registry import METHODS, method_classes

Call = Callable[..., Any]


def test_every_method_is_in_the_table(call: Call) -> None:
    """With what it serves and what its answer comes with."""
    told = json.loads(call("methods", "--json").stdout)
    assert told.keys() == set(METHODS)
    assert told["dp"] == {
        "family": "exact",
        "guarantee": METHODS["dp"].guarantee,
        "objectives": ["throughput", "offload-latency"],
    }
    assert told["auto"]["objectives"] == ["all"]
    shown = call("methods").stdout
    assert all(name in shown for name in METHODS)


def test_the_parameters_of_every_method_have_a_meaning(call: Call) -> None:
    """They come from the docstrings, those of a base class too."""
    for name in METHODS:
        done = call("methods", name, "--json")
        assert done.returncode == 0, done.stderr
        for lines in json.loads(done.stdout)["parameters"].values():
            for each in lines:
                assert each["meaning"], f"{name}: {each['name']}"
    shown = call("methods", "local-search").stdout
    assert "local-search: 4 parameters" in shown
    assert "patience" in shown


def test_what_is_listed_can_be_set() -> None:
    """Every name of a parameter is one that the method takes."""
    for name in ("dp", "local-search", "ilp", "cpsat", "random"):
        for method in method_classes(name).values():
            for each in parameter_lines(method):
                assert isinstance(method.from_params(None, {each["name"]: each["default"]}), method)


def test_unknown_method(call: Call) -> None:
    """One line that says which there are."""
    done = call("methods", "cpast")
    assert done.returncode == 2
    assert "no method 'cpast'" in done.stderr
    assert "cpsat" in done.stderr
