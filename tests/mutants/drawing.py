"""Mutants of a file: single changes by the operators of cosmic-ray, and removed rules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from parso.python.tree import Keyword


class RemoveRule:
    """Operator that replaces a ``raise`` by ``pass``, with which a check sees nothing."""

    words: ClassVar[tuple[str, ...]] = ("raise",)

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the position of a node that is such a statement, of several words or of one."""
        kinds = [f"{word}_stmt" for word in self.words]
        is_one_word = node.type == "keyword" and node.value in self.words and node.parent.type not in kinds
        if node.type in kinds or is_one_word:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Keyword:  # noqa: ARG002 the library's signature
        """Return what stands in its place."""
        return Keyword("pass", node.start_pos, node.get_first_leaf().prefix)


class RemoveExit(RemoveRule):
    """Operator that replaces a ``return``, ``continue`` or ``break`` by ``pass``."""

    words: ClassVar[tuple[str, ...]] = ("return", "continue", "break")


@dataclass(frozen=True)
class Mutant:
    """A file with one change."""

    path: Path
    line: int  # number of the changed line, from 1
    before: str  # first line that is changed, stripped
    after: str  # the line in its place
    is_rule: bool  # True if a `raise` was removed
    source: str  # the whole file

    @property
    def change(self) -> str:
        """The line and what stands in its place, as printed."""
        return f"{self.before!r} -> {self.after!r}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def draw(paths: list[Path], count: int, seed: int) -> Iterator[Mutant]:
    """Yield every removed ``raise`` of the files, and `count` other mutants at most, each at a place of its own."""
    found: list[tuple[Path, list[tuple[Any, int]]]] = []
    rng = Random(seed)
    for path in paths:
        rules, places = _places(path)
        yield from (mutant for rule in rules if (mutant := _mutant(path, *rule)) is not None)
        found += [(path, options) for _, options in sorted(places.items())]
    rng.shuffle(found)
    for path, options in found:
        if count <= 0:
            return
        mutant = _mutant(path, *rng.choice(options))
        if mutant is not None:
            count -= 1
            yield mutant


def draw_again(paths: list[Path], told: set[tuple[str, str]]) -> Iterator[Mutant]:
    """Yield the mutants with certain files and changes (`Mutant.change`), wherever their lines are now."""
    for path in paths:
        changes = {change for file, change in told if file == str(path)}
        lines = [f"{' '.join(line.split())!r} -> " for line in path.read_text().splitlines()]
        near = {row for row, line in enumerate(lines, 1) if any(change.startswith(line) for change in changes)}
        rules, places = _places(path) if near else ([], {})
        options = [option for (row, _), at in places.items() if row in near for option in at]
        mutants = (mutant for option in (*rules, *options) if (mutant := _mutant(path, *option)) is not None)
        yield from {str(mutant): mutant for mutant in mutants if mutant.change in changes}.values()


def _places(path: Path) -> tuple[list[tuple[Any, int]], dict[tuple[int, int], list[tuple[Any, int]]]]:
    """Return the removals of ``raise``, and of each place the other operators that change something there."""
    operators = [each for name in operator_names() if not (each := get_operator(name)).arguments()]
    nodes, places = list(ast_nodes(get_ast(path.read_text()))), defaultdict[tuple[int, int], list[Any]](list)
    rules = []
    for operator in (RemoveRule, RemoveExit, *operators):
        starts = [start for node in nodes for start, _ in operator().mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            if operator is RemoveRule:
                rules.append((operator, occurrence))
            else:
                places[start].append((operator, occurrence))
    return rules, places


def _mutant(path: Path, operator: Any, occurrence: int) -> Mutant | None:
    """Return a mutant; None if it is the same program, but for what says nothing."""
    source = path.read_text()
    changed = mutate_code(source, operator(), occurrence)
    if _program(source) == _program(changed):
        return None
    lines = zip(*map(_written, (source, changed)), strict=False)
    number, old, new = next((number, old, new) for (number, old), (_, new) in lines if old != new)
    return Mutant(path, number, " ".join(old.split()), " ".join(new.split()), operator is RemoveRule, changed)


def _written(source: str) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers."""
    return [(number, line) for number, line in enumerate(source.splitlines(), 1) if line.strip()]


_NOTHING = {ast.dump(statement) for statement in ast.parse("return None; return; pass").body}


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        """Leave out which of them have to be named: callers name what they do."""
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults += [default for default in node.kw_defaults if default is not None]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        if len(node.body) > 1 and ast.dump(node.body[-1]) in _NOTHING:  # a function that ends returns None
            node.body.pop()
        is_declared = all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in node.body)
        says_nothing = ("",) if is_declared else ("njit", "abstractmethod")  # none is compiled, and classes are derived
        node.decorator_list = [each for each in node.decorator_list if not ast.unparse(each).startswith(says_nothing)]
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_keyword(self, node: ast.keyword) -> ast.keyword | None:
        # `zip(..., strict=True)` says what holds anyway, like an assertion; without slots a record takes more memory;
        # callers name what they do, and types are checked before
        is_flag = node.arg in {"strict", "slots", "kw_only", "covariant"} and isinstance(node.value, ast.Constant)
        return None if is_flag else self.generic_visit(node)  # type: ignore[return-value]

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Round figures such as 9.6e12: no test has to see one more."""
        return ast.Constant(float(f"{node.value:.6g}")) if isinstance(node.value, float) else node

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types else self.generic_visit(node)


def _program(source: str) -> str:
    """Return the program of a source, as text: without layout, annotations and what else no run depends on."""
    try:
        return ast.dump(_WithoutAnnotations().visit(ast.parse(source)))
    except SyntaxError:
        return source
