"""Method ``auto``: picks a sequence of methods by objective, structure and size, and says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from placekit.kernels import has_numba
from placekit.model.contiguity import Contiguity
from placekit.model.errors import SolverUnavailableError
from placekit.model.problem import Problem
from placekit.solve.lifting.lift import left_s
from placekit.solve.lifting.without_links import run_without_links
from placekit.solve.method import Method, Run, no_teams
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.teams import no_program
from placekit.solvers.chain.method import Chain
from placekit.solvers.generic.baselines import SINGLES, offer_single_devices
from placekit.solvers.generic.bounds.work_and_path import raise_bounds_at_once
from placekit.solvers.generic.enumeration.method import Enumerate
from placekit.solvers.sequence.quick_bounds import raise_quick_bounds
from placekit.solvers.sequence.ties import settle_ties
from placekit.solvers.sequence.turns import Turn, run_stages

DEFAULT_TIME_LIMIT_S = 60.0
"""Without a time limit of the caller's."""
PROGRAM_UP_TO = 2_000
"""Classes times devices up to which a program that models every choice is worth a try at once."""
PROGRAM_AT_ALL = 200_000
"""Classes times devices beyond which such a program is not even built."""
OFFLOAD_PROGRAM_FIRST_UP_TO = 100
"""Classes times devices up to which the program of offload latency comes before annealing, as it closes in seconds."""
MAKESPAN_PROGRAM_UP_TO = 8_000
"""Classes times devices up to which all orders are modelled at once."""
MAKESPAN_PROGRAM_FIRST_UP_TO = 200
"""Classes times devices up to which that program comes first, as it closes at once."""
MAKESPAN_PROGRAM_CLOSES_UP_TO = 1_000
"""Classes times devices up to which that program gets most of the time, half as many where devices differ."""
WORK_BINDS = 0.05
"""Gap of the makespan that paths and shared work leave, below which work is what binds. Such a gap the program of all
orders does not close on many unequal devices, because its own relaxation knows less of work."""
NEARLY_CLOSED = 0.025
"""Gap of the makespan below which annealing does more than refuting limits does, where the program is not the best."""

NO_SOLVERS = "{} needs numba, but for chains and the smallest problems: pip install 'placekit[solvers]'"

NO_END = 10**9
"""Patience of a search that goes on until the solve is to stop."""

FAST_STEPS, SLOW_STEPS = 20_000, 200_000
"""Proposals per op of an annealing with many starts, and of one with few. Which ends lower depends on the problem."""


TIES_SHARE = 0.05
"""Share of a time limit that is left to choose among equal placements."""
STARTS_SHARE = 0.1
"""Share of the time that what an answer is never worse than may take."""
AT_ONCE = (Turn("single", "everything on one device"), Turn("greedy", "a start in linear time"))
CHAIN = Turn("chain", "each class feeds the next one: DP over runs of them, the proof in milliseconds", 0.5)
EVERYTHING = Turn("enumerate", "few placements: try all that may be better", 0.8)
DRAWN = Turn("random", "random chains and mixtures that fit the memory", params={"samples": 1000})


class Auto(Method):
    """The strongest sequence of methods that placekit knows for a problem, with one trace.

    The choice depends on the objective, the contiguity, the number of choices (classes times devices) and, for the
    makespan, on whether the devices are equal and on the gap by then; see `plan`. Stages end early when the proof is
    there; ``info["stages"]`` tells what was chosen, why, and what it gave. Under a time limit a search takes what the
    stages leave of it. Without one it ends with its stages, after a minute at most.
    """

    name = "auto"

    def supports(self, problem: Problem) -> str | None:
        """Return None if there is a plan; only the makespan has none, under a contiguity."""
        if plan(problem):
            return None
        return f"makespan knows no contiguity {str(problem.contiguity)!r}: devices work asynchronously; use 'none'"

    def knows_pools(self, problem: Problem) -> bool:  # noqa: ARG002
        """Return True: each stage does, or works without them."""
        return True

    def run(self, run: Run) -> StopReason:
        """Go through the plan."""
        raise_bounds_at_once(run)
        account: list[dict[str, Any]] = []
        has_limit = run.remaining_s is not None
        limit_s = DEFAULT_TIME_LIMIT_S if run.remaining_s is None else (1 - TIES_SHARE) * run.remaining_s
        with run.limited_to(limit_s):
            stages = to_the_end(plan(run.problem)) if has_limit else plan(run.problem)
            starts, stages = with_starts(run.problem, stages)
            if not has_numba() and stages[0] not in (CHAIN, EVERYTHING):
                raise SolverUnavailableError(NO_SOLVERS.format(run.problem.objective.name))
            with run.limited_to(STARTS_SHARE * left_s(run)):
                run_stages(run, starts, account)
            if DRAWN in starts:
                raise_quick_bounds(run_without_links(run))
            reason = run_stages(run, stages, account)
        if SINGLES not in run.done and run.infeasible_because is None and reason is not StopReason.PROVED:
            offer_single_devices(run)  # too short a limit for that stage: never worse than what needs no search
        if reason in (StopReason.PROVED, StopReason.FINISHED, StopReason.TIME):
            settle_ties(run)
        return reason


def with_starts(problem: Problem, stages: tuple[Turn, ...]) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """Return what an answer is never worse than, and the stages after it, with the enumeration of all placements.

    All placements are looked at only if they are few: then nothing stays open, and nothing comes before, since a quick
    answer and a quick bound may be close enough to end the solve short of the optimum. List scheduling comes first
    where the stages begin with it; a program that proves the optimum in less time than a start takes comes before all.
    """
    if stages[:1] == (CHAIN,):
        starts, stages = with_starts(problem, stages[1:])
        return (), (CHAIN, *starts, *stages)
    num_first = int(bool(stages) and stages[0].method == "heft")
    starts, stages = (*stages[:num_first], *AT_ONCE), stages[num_first:]
    if Enumerate().supports(problem) is not None:
        return (*starts, DRAWN), stages
    return (), (EVERYTHING, *starts, replace(DRAWN, share=STARTS_SHARE), *stages)


def plan(problem: Problem) -> tuple[Turn, ...]:
    """Return the stages for `problem`; empty if no method of its objective keeps the contiguity."""
    stages = _PLANS.get(problem.objective.name, _any_objective)(
        problem, problem.num_classes * problem.platform.num_devices
    )
    if problem.has_direct_links:
        return _with_links(problem, stages)
    return (CHAIN, *stages) if stages and Chain().supports(problem) is None else stages


def to_the_end(stages: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Return the stages with a search at their end that takes the time that the others leave, if none of them does."""
    if not stages or stages[-1].params.get("patience") == NO_END:
        return stages
    return (*stages, Turn("local-search", "remaining time", params={"patience": NO_END}))


def _any_objective(problem: Problem, size: int) -> tuple[Turn, ...]:  # noqa: ARG001  # the signature of all plans
    return (
        Turn("greedy", "a start in milliseconds"),
        Turn("local-search", "anneal single moves, scored by the objective itself"),
    )


def _with_links(problem: Problem, stages: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Return stages for direct links: those of the problem without them bound it, and moves of its own improve it."""
    if problem.objective.name == "makespan":  # its own methods know them
        return stages
    anneal = Turn("local-search", "anneal single moves, with the direct links as they are", 0.4)
    bounds = [stage for stage in stages if stage.method != "local-search"]
    return (Turn("greedy", "a start in milliseconds"), anneal, *bounds, replace(anneal, share=1.0))


def _serial(problem: Problem, size: int) -> tuple[Turn, ...]:  # noqa: ARG001  # the signature of all plans
    return (
        Turn("local-search", "meet memory limits, which cuts ignore", 0.2, only_if=_is_limited),
        Turn("mincut", "a minimum cut is the optimum for two kinds, and a start for more", 0.8),
    )


def _throughput(problem: Problem, size: int) -> tuple[Turn, ...]:
    if no_teams(problem) is not None:
        return _teamed(problem, size)
    of_contiguity = {Contiguity.ACYCLIC: _acyclic, Contiguity.CONVEX: _convex, Contiguity.NONE: _free}
    return of_contiguity[problem.contiguity](size)


def _offload(problem: Problem, size: int) -> tuple[Turn, ...]:  # noqa: ARG001  # the signature of all plans
    program = Turn("dp", "DP over calls along the spine of the graph: often the proof, always a bound", 0.7)
    anneal = Turn("local-search", "anneal calls and host ops", params={"patience": NO_END})
    if size > PROGRAM_UP_TO:
        return (program, anneal)
    whole = Turn("cpsat", f"constraint program of {size} choices: may close the gap", 0.8)
    if size <= OFFLOAD_PROGRAM_FIRST_UP_TO:
        return (program, whole, anneal)
    return (program, replace(anneal, share=0.1), whole, anneal)


def _makespan(problem: Problem, size: int) -> tuple[Turn, ...]:
    if problem.contiguity is not Contiguity.NONE:
        return ()
    is_equal = len({device.kind for device in problem.platform.devices}) == 1
    start = Turn("heft", "list scheduling takes milliseconds")
    if size <= MAKESPAN_PROGRAM_UP_TO:
        anneal = Turn("local-search", "anneal placement and order", params={"steps": FAST_STEPS, "patience": NO_END})
        slowly = replace(anneal, params={**anneal.params, "steps": SLOW_STEPS})
        both = Turn("bound", "branch and bound on the makespan, with annealing in parallel", beside=anneal)
        why = "segments between ops that all others come before or after"
        series = Turn("bound", why, 0.7, beside=anneal, only_if=_has_segments)
        program = Turn("cpsat", "constraint program of every order, with annealing in parallel", 0.85, beside=slowly)
        if size <= MAKESPAN_PROGRAM_FIRST_UP_TO:
            return (start, replace(program, share=0.6), both)
        if size <= MAKESPAN_PROGRAM_CLOSES_UP_TO // (1 if is_equal else 2):
            return (start, series, replace(both, share=0.1), program, replace(both, beside=slowly))
        return (
            start,
            series,
            replace(both, share=0.15),
            program if is_equal else replace(program, only_if=partial(_is_open, WORK_BINDS)),
            replace(both, share=0.5, beside=slowly, only_if=partial(_is_open, NEARLY_CLOSED)),
            replace(anneal, why="two annealings in parallel, one of them slow", beside=slowly),
        )
    return (
        start,
        Turn("local-search", "anneal placement and order, one stretch at a time", 0.7),
        Turn("bound", "too many orders for a program: relaxations give a bound"),
    )


def _is_limited(run: Run) -> bool:
    has_memory = any(device.memory_bytes is not None for device in run.problem.platform.devices)
    return has_memory or run.problem.contiguity is not Contiguity.NONE


def _has_segments(run: Run) -> bool:
    from placekit.solvers.makespan.decomposition.segments import cut_segments
    from placekit.solvers.makespan.schedule.tasks import make_tasks

    return bool(cut_segments(run.problem, make_tasks(run.problem)))


def _is_open(more_than: float, run: Run) -> bool:
    return run.gap is None or run.gap > more_than


def _teamed(problem: Problem, size: int) -> tuple[Turn, ...]:
    bounds: tuple[Turn, ...] = (Turn("bound", "relaxations give a bound", 0.5),)
    if size <= PROGRAM_AT_ALL and no_program(problem) is None:
        bounds = (*bounds, Turn("cpsat", "constraint program of every choice of equal teams", 0.8))
    if problem.contiguity is Contiguity.ACYCLIC:
        return (
            Turn("dpl", "best chain along a few orders, with all teams"),
            Turn("dp", "DP over ideals near that chain: usually the proof", 0.6),
            Turn("local-search", "too many ideals for a proof: improve the chain, and other partitions", 0.5),
            *bounds,
        )
    return (
        Turn("dp", "the best acyclic placement as a start", 0.4, Contiguity.ACYCLIC),
        Turn("local-search", "improve the start, with its teams and with others", 0.5),
        *bounds,
    )


def _acyclic(size: int) -> tuple[Turn, ...]:
    stages = (
        Turn("dpl", "best chain along a few orders, in milliseconds"),
        Turn("dp", "DP over ideals near that chain: usually the proof", 0.5),
        Turn("local-search", "too many ideals for a proof: improve the chain", 0.4),
    )
    if size <= PROGRAM_AT_ALL:
        return (*stages, Turn("cpsat", "constraint program of every choice: the best bounds here"))
    return (*stages, Turn("bound", "too many choices for a program: relaxations give a bound"))


def _convex(size: int) -> tuple[Turn, ...]:
    stages = (
        Turn("dp", "acyclic placements are convex: a start", 0.1, Contiguity.ACYCLIC),
        Turn("local-search", "improve the start among acyclic placements", 0.2),
    )
    if size <= PROGRAM_AT_ALL:
        return (*stages, Turn("cpsat", "constraint program that adds convex placements with a cyclic quotient"))
    return (*stages, Turn("bound", "too many choices for a program: relaxations give a bound"))


def _free(size: int) -> tuple[Turn, ...]:
    start = Turn("dp", "the best acyclic placement as a start", 0.1, Contiguity.ACYCLIC)
    search = Turn("local-search", "anneal without contiguity", 0.2)
    if size > PROGRAM_AT_ALL:
        return (start, search, Turn("bound", "too many choices for a program: relaxations give a bound"))
    bound = Turn("bound", "relaxations around the bottleneck device give a bound")
    rest = Turn("local-search", "remaining time", params={"patience": NO_END})
    if size > PROGRAM_UP_TO:
        return (start, replace(search, share=0.45), bound, rest)
    return (
        start,
        Turn("ilp", f"integer program of {size} choices: may close the gap at once", 0.15),
        search,
        Turn("cpsat", f"constraint program of {size} choices: closes other gaps", 0.35),
        bound,
        rest,
    )


_PLANS: Mapping[str, Callable[[Problem, int], tuple[Turn, ...]]] = MappingProxyType(
    {
        "throughput": _throughput,
        "serial-latency": _serial,
        "offload-latency": _offload,
        "makespan": _makespan,
    }
)
"""Plan by objective, from the problem and its classes times devices."""
