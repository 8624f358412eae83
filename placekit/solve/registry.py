"""Methods by name: placekit's own, plugins, and registered ones; imported on use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from placekit.kernels import preparing
from placekit.model.errors import (
    InvalidProblemError,
    SolverUnavailableError,
    UnknownNameError,
    UnknownParameterError,
    UnsupportedProblemError,
    did_you_mean,
)
from placekit.model.problem import Problem
from placekit.plugins import OpenTable, load_class
from placekit.solve.lifting.relaxed import knows_links, why_not, work
from placekit.solve.method import Method, Run
from placekit.solve.method_table import ANY, COMPOSED, FIRST_ANSWERS, OWN, MethodEntry, Target
from placekit.solve.stop import StopReason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_COMPLETE = ("dp", "ilp", "cpsat")
"""Methods that are exact, but for what their programs leave out or their solvers cannot tell."""
_SEARCHES = ("exact", "hybrid", "learned")
"""Families of methods that search, beside local search."""

METHODS: OpenTable[MethodEntry] = OpenTable("method", OWN, lambda point: MethodEntry(point.value, plugin=point))
"""Every method by its name: placekit's own, those of plugins, those that were registered."""


def register_method(
    method: type[Method],
    *,
    objective: str | None = None,
    family: str = "heuristic",
    guarantee: str = "none",
    requires: tuple[str, ...] = (),
) -> None:
    """Add a method under its own name: to `solve`, rows with ``+`` and the command line of this process.

    Parameters
    ----------
    method
        A class derived from `Method`.
    objective
        Name of the objective that it serves; None for all of which its `supports` says so. With a name it may add to a
        method of the table that does not serve this objective yet.
    family, guarantee, requires
        As in `MethodEntry`, for tables and messages.

    Raises
    ------
    InvalidProblemError
        A name that is taken or malformed, or a class that is no method.
    """
    _check(method, repr(method))
    name = method.name
    if objective is None:
        METHODS.register(name, MethodEntry(method, family, guarantee, requires))
    elif name not in METHODS:
        METHODS.register(name, MethodEntry({objective: method}, family, guarantee, requires))
    else:
        entry = METHODS[name]
        if not isinstance(entry.target, Mapping) or objective in entry.target:
            raise InvalidProblemError(f"cannot register method {name!r}: it serves {objective} already")
        METHODS.replace(name, replace(entry, target={**entry.target, objective: method}))


def get_method(name: str, params: Mapping[str, Any] | None = None, objective: str | None = None) -> Method:
    """Return the method called `name` (``"ilp"``, ``"single:GPU"``, ``"hsdag+local-search"``), made from `params`.

    Plus signs put methods in a row, see :mod:`placekit.solvers.sequence.composed`; parameters name their method then
    (``"local-search.patience"``).

    With the name of an `objective`, the class that serves it is made first: what others need is not imported. Raises
    `UnknownNameError`: no method has that name; the message lists them; `SolverUnavailableError`: a package that it
    needs is not installed; the message gives the install line; `InvalidProblemError`: a parameter that it does not
    have; `PluginError`: what an installed package brings is no method; the message names the package.
    """
    if "+" in name:
        parts = split_name(name, METHODS)
        if len(parts) > 1:
            composed: Any = _imported(COMPOSED)
            method: Method = composed(parts, params or {})
            return method
    base, _, argument = name.partition(":")
    entry = _entry(base)
    if isinstance(entry.target, Mapping):
        return _ByObjective(base, entry.target, argument or None, params or {}, objective)
    return _class_of(entry.target, entry.plugin).from_params(argument or None, params or {})


def _entry(base: str) -> MethodEntry:
    """Return the line of the table, if the packages that the method needs are installed."""
    if base not in METHODS:
        raise UnknownNameError(f"no method {base!r}; methods are {', '.join(METHODS)}{did_you_mean(base, METHODS)}")
    entry = METHODS[base]
    for package in entry.requires:
        if find_spec(package) is None:
            line = f"pip install 'placekit[{entry.extra}]'" if entry.extra else f"pip install {package}"
            raise SolverUnavailableError(f"method {base!r} needs the package {package!r}: {line}")
    return entry


def method_classes(name: str) -> dict[str, type[Method]]:
    """Return the class of the method called `name` by the name of the objective that it serves; `ANY` for all others.

    Raises `UnknownNameError`, `SolverUnavailableError`, `PluginError`: as `get_method`.
    """
    entry = _entry(name)
    targets = entry.target if isinstance(entry.target, Mapping) else {ANY: entry.target}
    return {objective: _class_of(target, entry.plugin) for objective, target in targets.items()}


def why_not_served(name: str, objective: str) -> str | None:
    """Return None if the table has a class of the method `name` for `objective`, else one sentence that says so.

    Whether it can work on a problem, its `Method.supports` says. Nothing is imported, and nothing said of what `name`
    does not begin with a method, or of methods in a row.
    """
    base = name.partition(":")[0]
    target = METHODS[base].target if base in METHODS else None
    return _not_served(base, target, objective) if isinstance(target, Mapping) else None


def _not_served(name: str, targets: Mapping[str, Target], objective: str) -> str | None:
    if objective in targets or ANY in targets:
        return None
    *most, last = targets
    served = f"{', '.join(most)} and {last}" if most else last
    return f"{name} serves {served}, not {objective}"


class _ByObjective(Method):
    """Method with a class of its own for each objective, its `targets`.

    One of the classes must take `argument` and `params`: which one is needed is known with the problem. The class of
    the objective `first` is asked first whether it does.
    """

    def __init__(
        self,
        name: str,
        targets: Mapping[str, Target],
        argument: str | None,
        params: Mapping[str, Any],
        first: str | None = None,
    ) -> None:
        self.name = name
        self._targets = targets
        self._given = argument, params
        self._made: dict[str, Method] = {}
        errors: list[InvalidProblemError] = []
        for key in sorted(targets, key=lambda objective: objective != first):
            try:
                self._make(key)
            except InvalidProblemError as error:
                errors.append(error)
            else:
                return
        # classes that know the names say best what is wrong with a value
        told = dict.fromkeys(str(error) for error in errors if not isinstance(error, UnknownParameterError))
        raise InvalidProblemError("; ".join(told)) if told else errors[0]

    def _make(self, key: str) -> Method:
        if key not in self._made:
            self._made[key] = _class_of(self._targets[key]).from_params(*self._given)
        return self._made[key]

    def _serving(self, problem: Problem) -> Method | None:
        key = problem.objective.name if problem.objective.name in self._targets else ANY
        method = self._make(key) if key in self._targets else None
        if method is None or not problem.has_direct_links or ANY not in self._targets:
            return method
        if knows_links(method, problem) or why_not(method, problem) is not None:
            return method
        anyone = self._make(ANY)  # better than a relaxation, if it knows links itself
        return anyone if knows_links(anyone, problem) else method

    def supports(self, problem: Problem) -> str | None:
        """Return None if there is a class for the objective, and it can work on `problem`, or on a relaxation of it."""
        try:
            method = self._serving(problem)
        except InvalidProblemError as error:  # a parameter that the method has for other objectives
            return f"for {problem.objective.name}, {error}"
        if method is not None:
            return why_not(method, problem)
        return _not_served(self.name, self._targets, problem.objective.name)

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: the objective's class does, or works without them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Let the objective's class work."""
        method = self._serving(run.problem)
        if method is None:
            raise UnsupportedProblemError(f"method {self.name!r}: {self.supports(run.problem)}")
        return close(self.name, run, work(method, run))


def close(name: str, run: Run, reason: StopReason) -> StopReason:
    """Enumerate what an exact method called `name` left open at its own end, if it is small.

    Its program may be a relaxation, and its solver may have tolerances; neither is a reason to leave a gap where all
    placements can be looked at.
    """
    if name not in _COMPLETE or reason is not StopReason.FINISHED or run.infeasible_because is not None:
        return reason
    enumeration = get_method("enumerate")
    stop = run.should_stop()
    if stop is None and enumeration.supports(run.problem) is None:
        stop = enumeration.run(run)
    return stop or StopReason.FINISHED


def answer_first(name: str, run: Run) -> None:
    """Give a search that a limit on evaluations ended before its first answer one that needs no search.

    Baselines and list schedulers are what they are: they get none.
    """
    entries = [METHODS[base] for part in split_name(name, METHODS) if (base := part.partition(":")[0]) in METHODS]
    searches = [entry for entry in entries if entry.family in _SEARCHES or entry is METHODS["local-search"]]
    if searches and run.placement is None:
        _imported(FIRST_ANSWERS)(run)


def _class_of(target: Target, plugin: EntryPoint | None = None) -> type[Method]:
    if plugin is not None:
        return load_class(plugin, "method", _check)  # type: ignore[no-any-return]  # checked
    if isinstance(target, type):
        return target
    found: type[Method] = _imported(target)
    return found


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    with preparing:
        return getattr(import_module(module), attribute)


def split_name(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the parts of ``"a+b:x+c"``: a plus sign divides where the name of a method follows.

    An argument behind a colon may have plus signs of its own.

    Examples
    --------
    >>> split_name("file:a+b.json+dp", ["file", "dp"])
    ('file:a+b.json', 'dp')
    """
    parts = name.split("+")
    whole = [parts[0]]
    for part in parts[1:]:
        if part.partition(":")[0] in known:
            whole.append(part)
        else:
            whole[-1] += f"+{part}"
    return tuple(whole)


def _check(method: Any, what: str) -> None:
    """Refuse a class that is no method by an `InvalidProblemError`."""
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise InvalidProblemError(f"{what} is no class derived from placekit.Method")
    if not isinstance(getattr(method, "name", None), str):
        raise InvalidProblemError(f"{what}: {method.__name__} has no class attribute 'name' of type str")
    missing = sorted(method.__abstractmethods__)
    if missing:
        raise InvalidProblemError(f"{what}: {method.__name__} lacks {', '.join(missing)}")
