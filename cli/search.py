"""Options that say how to search, and the exit codes of a search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from placekit.cli.options import SeedOption, parse_params
from placekit.cli.parameters import COMMON, SEARCH, option
from placekit.io.platform_toml import parse_memory
from placekit.solve.result import Status
from placekit.solve.stop import AnyOf, MaxMemory, MaxRuntime, Stop, TargetGap

EXIT_INFEASIBLE = 3
"""Proven: no placement satisfies the constraints."""
EXIT_NO_ANSWER = 4
"""Stopped without a feasible placement, and without a proof that there is none."""


@dataclass(frozen=True)
class SearchOptions:
    """Method, limits and seed of a search, as the user gave them."""

    panel: ClassVar[str] = SEARCH

    method: str = option(
        "auto", "Name of the method. `placekit methods` lists all of them.", "NAME", names="--method -m", panel=COMMON
    )
    time_limit: float = option(60.0, "Solving time; imports and compilation come before it.", "SECONDS", panel=COMMON)
    gap: float | None = option(None, "Stop at this proven gap: 0.01 is 1 %.", "RATIO")
    memory_limit: str | None = option(None, "Memory that this process may take. Default: most of what is free.", "4GiB")
    param: list[str] | None = option(
        None, "Set a parameter of the method; repeatable (`placekit methods NAME`).", "NAME=VALUE"
    )
    seed: SeedOption = 0

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the method."""
        return parse_params(self.param)

    def stop(self, spent_s: float = 0.0) -> Stop:
        """Return when to stop, of which `spent_s` seconds are gone."""
        limits: list[Stop] = [MaxRuntime(max(self.time_limit - spent_s, 0.0) if spent_s else self.time_limit)]
        if self.gap is not None:
            limits.append(TargetGap(self.gap))
        if self.memory_limit is not None:
            limits.append(MaxMemory(parse_memory(self.memory_limit, "--memory-limit")))
        return limits[0] if len(limits) == 1 else AnyOf(tuple(limits))


def exit_code(answer: object | None, status: Status) -> int:
    """Return 0 for an answer, 3 for a proof that there is none, 4 for neither."""
    if answer is not None:
        return 0
    return EXIT_INFEASIBLE if status is Status.INFEASIBLE else EXIT_NO_ANSWER
