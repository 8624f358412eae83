"""``placekit methods``: the table, and the parameters of a method."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import placekit as pk
from placekit.solvers.registry import METHODS

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
    shown = call("methods", "lns").stdout
    assert "lns for throughput, offload-latency: 4 parameters" in shown
    assert "patience" in shown


def test_what_is_listed_can_be_set(call: Call) -> None:
    """A parameter with its own default is accepted by ``get_method``."""
    for name, told in json.loads(call("methods", "--json").stdout).items():
        if told["family"] == "learned" or METHODS[name].argument:
            continue
        for lines in json.loads(call("methods", name, "--json").stdout)["parameters"].values():
            given = {each["name"]: each["default"] for each in lines if each["default"] is not None}
            if all(isinstance(value, int | float | str) for value in given.values()):
                pk.solvers.registry.get_method(name, given) if given else None


def test_unknown_method(call: Call) -> None:
    """One line that says which there are."""
    done = call("methods", "lsn")
    assert done.returncode == 2
    assert "no method 'lsn'" in done.stderr
    assert "lns" in done.stderr
