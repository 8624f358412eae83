"""Methods in a row, ``"hsdag+local-search"``: each starts from what those before it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.solve import registry
from placekit.solve.lifting.relaxed import why_not
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.sequence.turns import Turn, run_stages


class Composed(Method):
    """A row of methods as one: placements, bounds and the trace go on from one to the next.

    Under a time limit every part may take an equal share of what is left when its turn comes, so what one leaves over
    the others get. Without a limit each goes to its own end.

    Parameters
    ----------
    parts
        Names of the methods, at least two.
    params
        Parameters by ``"method.parameter"``.

    Raises
    ------
    InvalidProblemError
        A parameter without the name of one of the methods before it, or that this method does not have.
    SolverUnavailableError
        A method needs a package that is not installed.
    """

    def __init__(self, parts: Sequence[str], params: Mapping[str, Any]) -> None:
        self.name = "+".join(parts)
        bases = [part.partition(":")[0] for part in parts]
        for key in params:
            if key.partition(".")[0] not in bases or "." not in key:
                raise InvalidProblemError(
                    f"method {self.name!r} has no parameter {key!r}; name the method that it is for, as in "
                    f"'{bases[-1]}.{key.rpartition('.')[2]}'"
                )
        self._stages = tuple(
            Turn(
                part,
                "the first method" if index == 0 else f"goes on from {parts[index - 1]}",
                share=1 / (len(parts) - index),
                params={k.partition(".")[2]: v for k, v in params.items() if k.partition(".")[0] == bases[index]},
            )
            for index, part in enumerate(parts)
        )
        self._methods = [
            registry.get_method(stage.method, stage.params) for stage in self._stages
        ]  # says now what is wrong

    def supports(self, problem: Problem) -> str | None:
        """Return None if every part can work on `problem`, else why the first one cannot."""
        for method in self._methods:
            reason = why_not(method, problem)
            if reason is not None:
                return f"{method.name}: {reason}"
        return None

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: each part does, or works without them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Let each part work on `run` in turn; ``run.info["stages"]`` tells what each one brought."""
        return run_stages(run, self._stages)
