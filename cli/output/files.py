"""The files that `solve` writes, and how they are called."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from placekit.cli.console import check_writable, print_line, refuse_overwriting
from placekit.cli.inputs.answers import result_beside, stem_of
from placekit.cli.inputs.kept_problems import keep_problem
from placekit.io.atomic import STDOUT, encode_json, is_special, write_together
from placekit.model.errors import PlacekitError
from placekit.model.problem import Problem
from placekit.model.sizes import format_seconds
from placekit.solve.result import SOLVER_TOLERANCE, Result

EARLIER = "earlier_placement"
"""Kind of a placement file of an earlier solve that was renamed, among the files of a solve."""
BETTER = "better_placement"
"""Kind of a placement file of an earlier solve that is better than the answer, and stays."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_.+-]+")


@dataclass(frozen=True)
class OutputFiles:
    """Paths of the placement and the result.

    The placement goes to ``-o``, by default to ``STEM.placement.json`` in the current directory, STEM being the input
    file's name without its suffixes. The result goes beside it, with ``.result.json`` in the place of
    ``.placement.json`` (or of ``.json``). Beside stdout (``-o -``), a device or a pipe goes nothing.

    A better answer of an earlier solve of the same problem is not lost. Under the default name it stays, and the new
    one goes to ``STEM.METHOD.placement.json``; under a name that was asked for it is renamed.

    Examples
    --------
    >>> files = OutputFiles.of(Path("models/bert.xml"), None)
    >>> files.placement.name, files.result.name
    ('bert.placement.json', 'bert.result.json')
    >>> OutputFiles.of(Path("bert.xml"), Path("best.json")).result.name
    'best.result.json'
    """

    placement: Path
    result: Path | None
    is_asked: bool = False

    @classmethod
    def of(cls, source: Path, out: Path | None) -> OutputFiles:
        """Return the files for the input `source` and the option ``-o``."""
        placement = Path(f"{stem_of(source)}.placement.json") if out is None else out
        result = None if is_special(check_writable(placement)) else result_beside(placement)
        for path in filter(None, (placement, result)):
            refuse_overwriting(path, source)
            check_writable(path)
        return cls(placement, result, out is not None)

    def policy_for(self, source: Path) -> Path:
        """Return the path of a policy: ``STEM.policy.pt`` beside the result, or in the current directory."""
        if self.result is None:
            return Path(f"{stem_of(source)}.policy.pt")
        return self.result.with_name(self.result.name.removesuffix(".result.json") + ".policy.pt")

    def write(self, result: Result, problem: Problem, *, certificate: bool = False) -> dict[str, str]:
        """Write the result and, if there is one, the placement; return the names of the files by kind.

        Both are on disk before either appears, and both say by a hash (`Placement.content_hash`) which placement it is.
        Without a placement, one that an earlier solve left there is renamed, because it is not of this result. An
        answer to another problem is replaced, and stderr says which. The problem is kept, for what is asked of the
        result later. With `certificate`, the result's certificate is written if it proves the whole bound.
        """
        before = self._before()
        if before is not None and before.problem_hash != result.problem_hash:
            print_line(
                f"warning: {self.result} replaces the answer to {_other_problem(before, problem)}", file=sys.stderr
            )
        files, kept = self, {}
        if before is not None and self._is_better(before, result):
            if self.is_asked:
                kept = {EARLIER: str(_set_aside(self.placement))}
            else:
                files, kept = self._beside(result.method), {BETTER: str(self.placement)}
        return files._write(result, problem, certificate=certificate) | kept

    def _before(self) -> Result | None:
        """Return the result that would be replaced; None if there is none, or none that can be read."""
        from placekit.io.files.result_json import read_result

        if self.result is None or not self.result.is_file():
            return None
        try:
            return read_result(self.result)
        except PlacekitError:  # not placekit's, or of a version that nobody can read
            return None

    def _is_better(self, before: Result, result: Result) -> bool:
        """Return True if the files of `before` have a better placement of the same problem."""
        from placekit.io.files.placement_json import read_placement

        if before.objective is None or before.problem_hash is None or before.problem_hash != result.problem_hash:
            return False
        try:
            placed = read_placement(self.placement).ops
        except PlacekitError:  # no file, or not placekit's
            return False
        if before.placement is None or before.placement.as_dict() != placed:
            return False
        return result.objective is None or before.objective < result.objective * (1 - SOLVER_TOLERANCE)

    def _beside(self, method: str) -> OutputFiles:
        """Return the files with the method in their names."""
        stem = f"{stem_of(self.placement)}.{_NO_NAME.sub('-', method)}"
        placement = self.placement.with_name(f"{stem}.placement.json")
        return OutputFiles(placement, self.placement.with_name(f"{stem}.result.json"), self.is_asked)

    def _write(self, result: Result, problem: Problem, *, certificate: bool) -> dict[str, str]:
        from placekit.io.files.placement_json import placement_to_dict

        written, files = {}, []
        if result.placement is not None:
            written["placement"] = str(self.placement)
            document = placement_to_dict(result.placement, problem=problem)
            files.append((self.placement, encode_json(self.placement, document)))
        if self.result is not None:
            written["result"] = str(self.result)
            document = result.to_dict(with_certificate=certificate and _holds(result, problem))
            files.append((self.result, encode_json(self.result, document)))
        write_together(files)
        if result.placement is None and self.placement.is_file():
            written[EARLIER] = str(_set_aside(self.placement))
        if self.result is not None:
            keep_problem(problem)
        return written


def file_facts(written: Mapping[str, str]) -> dict[str, str]:
    """Return the lines that tell people which files were written, and which one was renamed."""
    told = {kind: "standard output" if name == str(STDOUT) else name for kind, name in written.items()}
    earlier, better = told.pop(EARLIER, None), told.pop(BETTER, None)
    lines = {f"wrote {kind}": name for kind, name in told.items()}
    if better is not None:
        lines["kept"] = f"the better placement of an earlier solve in {better}"
    return lines if earlier is None else lines | {"renamed": f"the placement of an earlier solve to {earlier}"}


def _other_problem(before: Result, problem: Problem) -> str:
    """Return the name and objective of an earlier problem, and in what it differs from `problem`."""
    found = "none found" if before.objective is None else format_seconds(before.objective)
    terms = problem.terms
    differ = [name for name, value in terms.items() if before.problem_terms and before.problem_terms.get(name) != value]
    names = ", ".join(differ[:3]) + (", ..." if len(differ) > 3 else "")
    return f"{before.problem_name} for {before.objective_name} ({found})" + (
        f", which differs in: {names}" * bool(names)
    )


def _set_aside(path: Path) -> Path:
    """Rename `path` to a name that is free: with ``.old``, or a number behind that, at its end."""
    names = (path.with_name(f"{path.name}.old{number or ''}") for number in count())
    target = next(name for name in names if not name.exists())
    try:
        return path.rename(target)
    except OSError as error:
        raise PlacekitError(f"cannot rename {path} to {target}: {error.strerror}") from error


def _holds(result: Result, problem: Problem) -> bool:
    from placekit.verification.verify import certifies

    return result.certificate is not None and certifies(result.certificate, result.lower_bound, problem)
