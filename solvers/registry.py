"""The table of methods: name -> module and class, imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from types import MappingProxyType
from typing import Any, cast

from placekit.errors import SolverUnavailableError, UnknownNameError, did_you_mean
from placekit.method import Method

__all__ = ["METHODS", "MethodEntry", "get_method"]


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """One method of the table.

    Parameters
    ----------
    target
        ``module:Class``.
    family
        ``"baseline"``, ``"heuristic"``, ``"exact"``, ``"learned"`` or ``"hybrid"``.
    guarantee
        What its answer comes with.
    requires
        Packages that it imports.
    extra
        The extra that installs them; None for a base dependency.
    programs
        Programs of which it needs one on the PATH; the first is named in the message if none is there.
    argument
        What must follow the colon in ``name:argument``; None if nothing must.
    """

    target: str
    family: str
    guarantee: str
    requires: tuple[str, ...] = ()
    extra: str | None = None
    programs: tuple[str, ...] = ()
    argument: str | None = None


METHODS: Mapping[str, MethodEntry] = MappingProxyType(
    {
        "auto": MethodEntry("placekit.solvers.sequence.auto:Auto", "hybrid", "the strongest sequence for the problem"),
        "single": MethodEntry("placekit.solvers.generic.baselines:SingleDevice", "baseline", "the best single device"),
        "round-robin": MethodEntry("placekit.solvers.generic.baselines:RoundRobin", "baseline", "none"),
        "random": MethodEntry("placekit.solvers.generic.baselines:RandomSearch", "baseline", "best of N samples"),
        "enumerate": MethodEntry(
            "placekit.solvers.generic.enumeration.method:Enumerate", "exact", "optimal, for small problems"
        ),
        "dp": MethodEntry("placekit.solvers.throughput.dp.method:Dp", "exact", "optimal among acyclic placements"),
        "dpl": MethodEntry(
            "placekit.solvers.throughput.dp.linear:LinearDp", "heuristic", "optimal for the prefixes of some orders"
        ),
        "ilp": MethodEntry(
            "placekit.solvers.assignment.ilp.method:Ilp",
            "exact",
            "optimal at its end, a bound at any time",
            ("pulp", "highspy"),
        ),
        "cpsat": MethodEntry(
            "placekit.solvers.assignment.cpsat.method:Cpsat",
            "exact",
            "optimal at its end, a bound at any time",
            ("ortools",),
        ),
        "mincut": MethodEntry(
            "placekit.solvers.serial_latency.method:MinCut",
            "exact",
            "optimal at its end; at once for two kinds without limits",
            ("ortools", "pulp", "highspy"),
        ),
        "local-search": MethodEntry(
            "placekit.solvers.throughput.local_search.method:LocalSearch",
            "heuristic",
            "best of many annealed placements",
        ),
        "lns": MethodEntry(
            "placekit.solvers.throughput.lns.method:Lns", "heuristic", "best of many neighbourhoods", ("ortools",)
        ),
        "bound": MethodEntry("placekit.solvers.throughput.bounds.method:Bound", "exact", "lower bounds", ("highspy",)),
        "pipedream": MethodEntry(
            "placekit.solvers.throughput.pipedream:PipeDream",
            "baseline",
            "optimal for PipeDream's own objective on a line",
        ),
        "greedy": MethodEntry("placekit.solvers.generic.greedy:Greedy", "baseline", "none"),
        "metis": MethodEntry(
            "placekit.solvers.generic.partitioners:Metis", "baseline", "none", ("pymetis",), "partition"
        ),
        "scotch": MethodEntry(
            "placekit.solvers.generic.partitioners:Scotch", "baseline", "none", programs=("scotch_gpart", "gpart")
        ),
        "heft": MethodEntry("placekit.solvers.makespan.lists.schedulers:Heft", "heuristic", "none"),
        "cpop": MethodEntry("placekit.solvers.makespan.lists.schedulers:Cpop", "heuristic", "none"),
        "peft": MethodEntry("placekit.solvers.makespan.lists.schedulers:Peft", "heuristic", "none"),
        "critical-path": MethodEntry("placekit.solvers.makespan.lists.schedulers:CriticalPath", "heuristic", "none"),
        "m-topo": MethodEntry("placekit.solvers.makespan.lists.schedulers:MTopo", "heuristic", "none"),
        "m-etf": MethodEntry("placekit.solvers.makespan.lists.schedulers:MEtf", "heuristic", "none"),
        "m-sct": MethodEntry("placekit.solvers.makespan.lists.schedulers:MSct", "heuristic", "none"),
        "hsdag": MethodEntry(
            "placekit.learned.hsdag.method:Hsdag",
            "learned",
            "best of what a policy met while it learned",
            ("torch", "torch_geometric"),
            "learned",
        ),
        "gdp": MethodEntry(
            "placekit.learned.gdp.method:Gdp",
            "learned",
            "best of what a policy met while it learned",
            ("torch",),
            "learned",
        ),
        "placeto": MethodEntry(
            "placekit.learned.placeto.method:Placeto",
            "learned",
            "best of what a policy met while it learned",
            ("torch",),
            "learned",
        ),
        "rnn": MethodEntry(
            "placekit.learned.rnn.method:Rnn",
            "learned",
            "best of what a policy met while it learned",
            ("torch",),
            "learned",
        ),
        "policy": MethodEntry(
            "placekit.learned.policy:TrainedPolicy",
            "learned",
            "best of a few samples of a trained policy",
            ("torch",),
            "learned",
            argument="PATH",
        ),
        "file": MethodEntry("placekit.solvers.generic.expert:FilePlacement", "baseline", "none", argument="PATH"),
    }
)


def get_method(name: str, params: Mapping[str, Any] | None = None) -> Method:
    """Return the method called `name` (``"ilp"``, ``"single:GPU"``, ``"hsdag+lns"``), made from `params`.

    Plus signs put methods in a row, see :mod:`placekit.solvers.sequence.composed`; parameters name their method then
    (``"lns.patience"``).

    Raises
    ------
    UnknownNameError
        No method has that name; the message lists them.
    SolverUnavailableError
        A package that it needs is not installed; the message gives the install line.
    InvalidProblemError
        A parameter that it does not have.
    """
    if "+" in name:
        from placekit.solvers.sequence.composed import Composed, split_name  # it looks its parts up here

        parts = split_name(name, METHODS)
        if len(parts) > 1:
            return cast("Method", Composed(parts, params or {}))
    base, _, argument = name.partition(":")
    if base not in METHODS:
        raise UnknownNameError(f"no method {base!r}; methods are {', '.join(METHODS)}{did_you_mean(base, METHODS)}")
    entry = METHODS[base]
    for package in entry.requires:
        if find_spec(package) is None:
            line = f"pip install 'placekit[{entry.extra}]'" if entry.extra else f"pip install {package}"
            raise SolverUnavailableError(f"method {base!r} needs the package {package!r}: {line}")
    if entry.programs and not any(map(which, entry.programs)):
        programs = " or ".join(map(repr, entry.programs))
        raise SolverUnavailableError(f"method {base!r} needs the program {programs} on the PATH")
    module, _, attribute = entry.target.partition(":")
    cls = getattr(import_module(module), attribute)
    return cast("Method", cls.from_params(argument or None, params or {}))
