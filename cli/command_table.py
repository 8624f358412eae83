"""The table of commands: what each does, and the function that is one, imported when it is called."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placekit.model.errors import PluginError
from placekit.plugins import OpenTable, load, whose

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class Command:
    """One command.

    Parameters
    ----------
    summary
        What it does, in a line of ``placekit --help``.
    function
        ``"module:function"``; the function takes arguments and options as :mod:`placekit.cli.parameters` says.
    """

    summary: str
    function: str

    def load(self) -> Callable[..., None]:
        """Return the function."""
        found: Callable[..., None] = pkgutil.resolve_name(self.function)
        return found


def _of_package(point: EntryPoint) -> Command:
    function: Any = load(point)
    if not callable(function) or not function.__doc__:
        raise PluginError(f"{whose(point)} is no function with a docstring")
    return Command(function.__doc__.strip().splitlines()[0], point.value)


_CLI, _MEASURE = "placekit.cli.commands", "placekit.cli.commands.measure"

COMMANDS: OpenTable[Command] = OpenTable(
    "command",
    {
        "devices": Command("List devices, CPU cores and memory of this machine.", f"{_CLI}.devices:devices"),
        "profile": Command("Measure what every op of a model costs on each device.", f"{_MEASURE}:profile"),
        "calibrate": Command("Fit the costs of a model to a few measured splits.", f"{_MEASURE}:calibrate"),
        "problem": Command("Write what `solve` would solve to one file.", "placekit.cli.inputs.task:problem"),
        "solve": Command("Place the ops of a model, and prove how good the placement is.", f"{_CLI}.solve:solve"),
        "learn": Command(
            "Train a policy that places a model, or one for any model.", "placekit.learned.commands.learn:learn"
        ),
        "llm": Command(
            "Plan how to serve a language model over unequal devices.", "placekit.language.commands.llm:llm"
        ),
        "serve": Command(
            "Start a planned language model, and keep the faster line.", "placekit.language.commands.serve:serve"
        ),
        "page": Command("Plan and solve on a page in the browser.", "placekit.page.command:page"),
        "train-plan": Command(
            "Plan the training of a model on many equal devices.", "placekit.training.commands.train_plan:train_plan"
        ),
        "time": Command("Run a placement, and compare it with the runtime's own ways.", f"{_CLI}.time:time"),
        "export": Command(
            "Write a placed model for OpenVINO, torch, vLLM and others.", "placekit.exports.commands.export:export"
        ),
        "show": Command("Show any file of placekit as tables, JSON or a figure.", f"{_CLI}.show:show"),
        "explain": Command("Explain a result: bottleneck, cuts, moves, constraints.", f"{_CLI}.explain:explain"),
        "verify": Command("Check a result and its bound without trusting the method.", f"{_CLI}.verify:verify"),
        "bench": Command(
            "Run a suite of benchmarks; finished cases are kept.", "placekit.benchmarks.commands.bench:bench"
        ),
        "report": Command(
            "Write the report of a benchmark, or print one table.", "placekit.benchmarks.commands.report:report"
        ),
        "methods": Command("List the methods, or the parameters of one of them.", f"{_CLI}.methods:methods"),
        "zoo": Command("Build a real architecture with random weights.", f"{_CLI}.zoo:zoo"),
        "warm-up": Command("Compile all kernels, so that no first solve waits for them.", f"{_CLI}.warm_up:warm_up"),
    },
    _of_package,
)
"""Commands in the order of the help, and those of packages."""
