"""Explanation of a placement: why it is as good as it is, and what would change it.

1. *bottleneck*: the device that decides the objective, and what its time goes into;
2. *cuts*: the tensors that cross devices, and the time that devices spend on moving each;
3. *moves*: every op (with the ops that must share its device) on every other device, scored by the judge;
4. *what if*: the problem without each of its constraints, with more memory, or with one more device of each kind,
   solved for a few seconds from the same placement. A longer search may find more, so the unchanged problem gets the
   same time for comparison;
5. *worth*: the problem without one device of each kind, solved for as long;
6. the *verdict*: whether a split is worth it (:mod:`placekit.advice.verdict`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.advice.changes import WhatIf, carried, changes, gain_s, what_if
from placekit.advice.rules import rules_of
from placekit.advice.verdict import asked_of, verdict
from placekit.advice.worth import Worth, worth, worth_candidates
from placekit.model.errors import InvalidProblemError
from placekit.model.placement import Placement
from placekit.model.problem import UNPINNED, Problem
from placekit.model.reprs import short_repr
from placekit.objectives.evaluate import DeviceLoad, Evaluation, evaluate
from placekit.solve.result import SOLVER_TOLERANCE, Result
from placekit.solve.split_verdict import Verdict

MOVES_S = 5.0
"""Time limit in seconds for scoring moves."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A tensor that crosses devices."""

    op: str  # the op that produces it
    # source, targets: device or team that the tensor leaves, and those that it enters
    source: str
    targets: tuple[str, ...]
    num_bytes: float  # size of the tensor; 0 if not known
    cost_s: float  # seconds that all devices together spend on moving it
    bottleneck_cost_s: float  # seconds of these that the bottleneck device spends


@dataclass(frozen=True, slots=True)
class Move:
    """Move of one op, with all ops that must share its device, to another device or team."""

    op: str  # the op, or the first of the ops that move together
    num_ops: int  # number of ops that move
    # source, target: device or team before and after the move
    source: str
    target: str
    # objective_s, change_s: objective after the move, and its change
    objective_s: float
    change_s: float


@dataclass(frozen=True)
class Explanation:
    """Result of `explain`.

    Parameters
    ----------
    problem_name, objective_name, contiguity
        Names of the problem, its objective and its contiguity.
    objective_s, bound_s
        The objective of the placement, and the best bound known.
    loads
        Every device.
    bottleneck
        The device that decides the objective.
    cuts
        Tensors that cross devices, the most expensive for the bottleneck first.
    moves
        Moves, the least harmful first.
    off_bottleneck
        The least harmful move away from the bottleneck; None if none is feasible.
    num_moves, num_moves_tried
        Number of moves, and number of moves that were scored in time.
    rules
        Rules that the placements of the problem keep, in words: a proof holds among these.
    unchanged
        The unchanged problem, solved for the same time, for comparison.
    what_ifs
        The changed problems.
    worths
        Worth of a device of each kind.
    verdict
        Whether a split is worth it.
    """

    problem_name: str
    objective_name: str
    contiguity: str
    rules: str = field(repr=False)
    objective_s: float
    bound_s: float | None
    loads: tuple[DeviceLoad, ...]
    bottleneck: DeviceLoad
    cuts: tuple[Cut, ...]
    moves: tuple[Move, ...]
    off_bottleneck: Move | None
    num_moves: int
    num_moves_tried: int
    unchanged: WhatIf | None
    what_ifs: tuple[WhatIf, ...]
    worths: tuple[Worth, ...] = field(repr=False)
    verdict: Verdict = field(repr=False)

    __repr__ = short_repr

    @property
    def binding(self) -> tuple[WhatIf, ...]:
        """Constraints that bind: without them a better answer was found than with them in the same time."""
        dropped = (each for each in self.what_ifs if each.constraint is not None)
        return tuple(each for each in dropped if self.gain_s(each) > 0 or self.copies_gain_s(each) > 0)

    @property
    def now_s(self) -> float:
        """The better of the placement's objective and that of the unchanged problem, solved again."""
        searched_s = None if self.unchanged is None else self.unchanged.objective_s
        return self.objective_s if searched_s is None else min(self.objective_s, searched_s)

    def gain_s(self, what_if: WhatIf) -> float:
        """Return the seconds that a change gains over the placement, or over the unchanged problem if better."""
        return gain_s(self.now_s, what_if.objective_s)

    def copies_gain_s(self, what_if: WhatIf) -> float:
        """Return the seconds that copies outside of the rules gain by a change; 0 if no more than without."""
        copies_s = None if self.unchanged is None else self.unchanged.copies_s
        return gain_s(self.now_s if copies_s is None else min(self.now_s, copies_s), what_if.copies_s)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; times in seconds."""
        told = asdict(replace(self, verdict=None))  # type: ignore[arg-type]  # it has a form of its own
        return told | {"binding": [each.constraint for each in self.binding], "verdict": self.verdict.to_dict()}


def explain(
    problem: Problem | Result,
    answer: Placement | Result | None = None,
    *,
    time_limit_s: float = 2.0,
    max_moves: int = 5,
    on_step: Callable[[int, int, str], None] | None = None,
) -> Explanation:
    """Explain a placement.

    Parameters
    ----------
    problem
        The problem, or a result that `solve` returned, which holds its problem.
    answer
        A feasible placement of the problem, or a result with one (and a bound).
    time_limit_s
        Time limit of each what-if; 0 leaves them out.
    max_moves
        Number of moves to return.
    on_step
        Called with the number of finished steps, of all steps, and what comes next.

    Raises
    ------
    InvalidProblemError
        No placement, a placement that breaks a constraint, or a result of another problem.

    Notes
    -----
    O(classes * devices) evaluations for the moves, cut off after `MOVES_S` seconds.
    """
    problem, answer = asked_of(problem, answer)
    placement, bound = _placement_of(problem, answer)
    judged, objective = _judged(problem, placement, answer)
    is_asked = time_limit_s > 0
    changed_problems = list(changes(problem)) if is_asked else []
    num_steps = 2 + len(changed_problems) + len(set(problem.twin_of_device.tolist())) * is_asked

    def tell(done: int, label: str) -> None:
        if on_step is not None:
            on_step(done, num_steps, label)

    tell(0, "single moves")
    moves, num_moves, num_tried = _moves(problem, placement, judged)
    unchanged, best, what_ifs, worths = None, placement, [], []
    if is_asked:
        tell(1, "the problem as it is")
        unchanged, found = what_if(problem, placement, "nothing", None, time_limit_s)
        best = placement if found is None or gain_s(objective, unchanged.objective_s) <= 0 else found
    bounds = [each for each in (bound, unchanged.bound_s if unchanged else None) if each is not None]
    for step, (what, constraint, changed) in enumerate(changed_problems, 2):
        tell(step, what)
        what_ifs.append(what_if(changed, carried(placement, changed), what, constraint, time_limit_s)[0])
    for step, (device, is_used) in enumerate(worth_candidates(problem, best) if is_asked else (), 2 + len(what_ifs)):
        tell(step, f"without {problem.platform.device_names[device]}")
        now_s = evaluate(problem, best).objective or 0.0
        worths.append(worth(problem, device, is_used, (now_s, max(bounds, default=None)), time_limit_s))
    share = None if judged.score is None else judged.score.share
    bottleneck = max(judged.device_loads, key=lambda load: load.load_s)
    return Explanation(
        problem_name=problem.name,
        objective_name=problem.objective.name,
        contiguity=str(problem.contiguity),
        rules=rules_of(problem),
        objective_s=objective,
        bound_s=min(max(bounds), objective) if bounds else None,
        loads=judged.device_loads,
        bottleneck=bottleneck,
        cuts=_cuts(problem, placement, problem.platform.index(bottleneck.device), share),
        moves=tuple(moves[:max_moves]),
        off_bottleneck=next((move for move in moves if move.source == (bottleneck.team or bottleneck.device)), None),
        num_moves=num_moves,
        num_moves_tried=num_tried,
        unchanged=unchanged,
        what_ifs=tuple(what_ifs),
        worths=tuple(worths),
        verdict=verdict(problem, replace(answer, placement=placement) if isinstance(answer, Result) else placement),
    )


def _judged(problem: Problem, placement: Placement, answer: Placement | Result) -> tuple[Evaluation, float]:
    """Return the evaluation of a feasible placement, and its objective, which is that of the result."""
    judged = evaluate(problem, placement)
    objective = judged.objective
    if objective is None or not judged.is_feasible:
        raise InvalidProblemError(f"{problem.name!r}: the placement is not feasible: {judged.violations[0]}")
    if isinstance(answer, Result) and answer.objective is not None:
        _check_same(problem, objective, answer.objective)
    return judged, objective


def _placement_of(problem: Problem, answer: Placement | Result) -> tuple[Placement, float | None]:
    if isinstance(answer, Placement):
        return answer, None
    if answer.placement is None:
        why = f": {answer.violations[0].message}" if answer.violations else ""
        raise InvalidProblemError(
            f"{problem.name!r}: the result has status {answer.status} and no placement to explain{why}"
        )
    found = answer.placement
    return Placement.from_mapping(problem, found.as_dict(), steps=found.steps_as_dict()), answer.lower_bound


def _check_same(problem: Problem, objective_s: float, claimed_s: float) -> None:
    if not np.isclose(objective_s, claimed_s, rtol=SOLVER_TOLERANCE, atol=0.0):
        is_measured = problem.costs.provenance.get("source") == "profiled"
        anew = "; noisy costs are measured anew after a while: keep them by `placekit profile -o`, and give --costs"
        raise InvalidProblemError(
            f"{problem.name!r}: the placement takes {objective_s!r} s here, the result says {claimed_s!r} s: "
            f"it is of another problem (other costs, devices, objective or variant){anew if is_measured else ''}"
        )


def _cuts(
    problem: Problem, placement: Placement, bottleneck: int, share: NDArray[np.float64] | None
) -> tuple[Cut, ...]:
    """Return the tensors that cross devices, the most expensive for the bottleneck first. O(edges log edges).

    `Objective.crossing_s` says what each device pays for a tensor. A member of a team pays for its share of
    the samples.
    """
    graph, device = problem.graph, placement.device_of_op
    members = {team[0]: team for team in placement.teams}
    found = []
    for tensor in range(graph.num_tensors):
        producer = int(graph.tensor_producer[tensor])
        source = int(device[producer])
        targets = sorted(set(device[graph.consumers_of(tensor)].tolist()) - {source})
        if targets:
            others = [d for team in (source, *targets) for d in members[team] if d != source]
            price = problem.objective.crossing_s(problem, tensor, source, others)
            if share is not None:
                price = {d: seconds * float(share[d]) for d, seconds in price.items()}
            found.append(
                Cut(
                    graph.op_names[producer],
                    placement.team_name(source),
                    tuple(map(placement.team_name, targets)),
                    float(graph.tensor_bytes[tensor]),
                    sum(price.values()),
                    price.get(bottleneck, 0.0),
                )
            )
    return tuple(sorted(found, key=lambda cut: (-cut.bottleneck_cost_s, -cut.cost_s, cut.op)))


def _moves(problem: Problem, placement: Placement, now: Evaluation) -> tuple[list[Move], int, int]:
    """Return the feasible moves that were scored, best first; how many moves there are; how many were scored.

    Steps of the placement are kept: under an execution model with a clock the op keeps its turn. Of moves with equal
    objectives that with the smaller sum of loads comes first.
    """
    assert now.objective is not None  # `explain` checks that
    device, teams = placement.device_of_op, [members[0] for members in placement.teams]
    busy = [load.load_s for load in now.device_loads]
    classes = [np.flatnonzero(problem.op_class == c) for c in range(problem.num_classes)]
    free = [ops for ops in classes if (problem.pinned[ops] == UNPINNED).all()]
    # what decides the objective sits on the busiest devices: if time is short these ops come first
    free.sort(key=lambda ops: (-busy[int(device[ops[0]])], int(ops[0])))
    pairs = [(ops, d) for ops in free for d in teams if d != device[ops[0]]]
    found: list[tuple[float, float, int, Move]] = []
    begin = perf_counter()
    for at, (ops, target) in enumerate(pairs):
        if perf_counter() - begin > MOVES_S:
            break
        there = device.copy()
        there[ops] = target
        judged = evaluate(problem, replace(placement, device_of_op=there))
        if judged.is_feasible and judged.objective is not None:
            source, to = placement.team_name(int(device[ops[0]])), placement.team_name(target)
            change_s = judged.objective - now.objective
            move = Move(problem.graph.op_names[ops[0]], len(ops), source, to, judged.objective, change_s)
            found.append((judged.objective, sum(load.load_s for load in judged.device_loads), at, move))
    else:
        at = len(pairs)
    return [move for *_, move in sorted(found)], len(pairs), at
