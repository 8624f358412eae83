"""Large-neighbourhood search for the makespan: CP-SAT re-optimises a part of the schedule at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placekit.method import Run
from placekit.placement import Placement
from placekit.solvers.backends.cpsat import CpsatLimits, Outcome, search
from placekit.solvers.lns.operators import Operator, adjacency, choose_operators, region, search_side_by_side
from placekit.solvers.lns.uncertain import UNCERTAIN, draw_weighted
from placekit.solvers.makespan.bounds.quick import first_floors
from placekit.solvers.makespan.bounds.windows import narrow
from placekit.solvers.makespan.decomposition.neighbourhood import (
    Neighbourhood,
    critical_ops,
    cut_out,
    put_back,
)
from placekit.solvers.makespan.exact.cp_method import search_locally
from placekit.solvers.makespan.exact.cp_model import MakespanModel
from placekit.solvers.makespan.exact.proofs import Proof
from placekit.solvers.makespan.mechanisms import ALL, Mechanisms
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.schedule.tasks import Tasks, make_tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, by_start, timetable_of
from placekit.solvers.makespan.search.local_search import search_makespan
from placekit.solvers.params import LocalSearchParams
from placekit.stop import StopReason

__all__ = ["search_neighbourhoods"]

MAX_WINDOW = 250
"""Ops of a window at most: what CP-SAT can hold within its limit."""
FIRST_SIZE = 25
"""Free ops of the first neighbourhoods; more once CP-SAT is quick with them, fewer when it is not."""
SMALLEST_SIZE = 6
ANNEAL_AFTER = 30
"""Rounds without a better schedule after which annealing has another go."""
START_SHARE = 0.25
"""Share of the time limit that the annealing before may take."""
_OPERATORS = ("time", "devices", "region", "critical", "random")


@dataclass(slots=True)
class _Search:
    """Where the search stands."""

    run: Run
    flat: SequenceProblem
    tasks: Tasks
    plan: Timetable
    value_s: float
    effort: float
    critical: NDArray[np.int64]
    neighbours: list[NDArray[np.int64]]
    weights: NDArray[np.float64] | None
    operators: list[Operator] = field(init=False)

    def __post_init__(self) -> None:
        names = _OPERATORS if self.weights is None else (*_OPERATORS, UNCERTAIN)
        self.operators = [Operator(name, FIRST_SIZE, SMALLEST_SIZE) for name in names]


@dataclass(frozen=True, eq=False)
class _Task:
    """One neighbourhood to search."""

    operator: Operator
    low: int
    high: int
    neighbourhood: Neighbourhood
    model: MakespanModel
    seed: int


def search_neighbourhoods(
    run: Run,
    patience: int,
    effort: float,
    workers: int,
    weights: NDArray[np.float64] | None,
    mechanisms: Mechanisms = ALL,
) -> StopReason:
    """Search until told to stop, or until `patience` neighbourhoods in a row brought nothing.

    1. Annealing (:mod:`placekit.solvers.makespan.search.local_search`) gives the first schedule.
    2. Draw an op of the critical path, a window of the schedule around it (all of it if it is small), and in the window
       the ops that may move: neighbours in time, the ops of two devices, a connected region, ops of the critical path,
       those that a policy is undecided about, or any. The rest keeps devices and orders
       (:mod:`placekit.solvers.makespan.decomposition.neighbourhood`).
    3. CP-SAT minimises the makespan; the judge scores the schedule put together. Equal makespans are taken, too.
    4. Kinds of neighbourhoods that succeed are drawn more often; sizes adapt to what CP-SAT closes in its limit. A
       neighbourhood that is the whole problem and is closed is a proof.
    5. When nothing moves any more, annealing has another go.

    Parameters
    ----------
    run
        The run; its problem's objective is the makespan, without contiguity.
    patience
        Rounds without improvement after which the search ends.
    effort
        Limit of one neighbourhood in CP-SAT's deterministic time.
    workers
        Neighbourhoods that are searched side by side.
    weights
        ``[num_ops]`` how readily an op is freed by neighbourhoods of the kind `UNCERTAIN`; None to draw none of them.
    mechanisms
        What is used of annealing and bounds.
    """
    tasks = make_tasks(run.problem)
    proof = Proof(run, tasks, first_floors(tasks, mechanisms), mechanisms)
    proof.quickly()
    search_locally(run, START_SHARE, mechanisms=mechanisms)
    reason = run.should_stop()
    if reason is not None or run.placement is None or run.evaluation is None or run.objective is None:
        return reason or StopReason.FINISHED
    proof.quickly()
    plan = timetable_of(run.placement, run.evaluation, tasks)
    weights = None if weights is None else weights[tasks.op]
    neighbours = adjacency(tasks.senders, tasks.receivers, tasks.num_ops)
    flat = sequence_problem(run.problem, has_contention=False)
    it = _Search(run, flat, tasks, plan, run.objective, effort, critical_ops(flat, tasks, plan), neighbours, weights)
    stale = 0
    while (reason := run.should_stop()) is None:
        if stale >= patience:
            return StopReason.FINISHED
        before_s = run.objective
        if stale and stale % ANNEAL_AFTER == 0:
            search_makespan(run, LocalSearchParams(max_cycles=2), mechanisms)
            _return_to_best(it)
        if _round(it, workers):
            return run.should_stop() or StopReason.FINISHED
        stale = 0 if run.objective < before_s * (1 - 1e-9) else stale + 1
    return reason


def _return_to_best(it: _Search) -> None:
    run = it.run
    assert run.placement is not None  # the search began with one
    assert run.evaluation is not None
    assert run.objective is not None
    it.plan, it.value_s = timetable_of(run.placement, run.evaluation, it.tasks), run.objective
    it.critical = critical_ops(it.flat, it.tasks, it.plan)


def _round(it: _Search, workers: int) -> bool:
    """Search some neighbourhoods side by side and go on from the best; return True if that proved the optimum."""
    run = it.run
    chosen = choose_operators(run.rng, it.operators, workers)
    tasks = [task for operator in chosen if (task := _draw(it, operator)) is not None]
    futures = search_side_by_side(lambda task: _optimise(it, task), tasks, workers)
    closed_all, base, value_s = False, it.plan, it.value_s
    for task, future in zip(tasks, futures, strict=True):
        outcome, answer = future.result()
        improved = False
        if answer is not None:
            device, step = put_back(base, task.neighbourhood, answer, task.low, task.high)
            device_of_op, step_of_op = np.empty_like(device), np.empty_like(step)
            device_of_op[it.tasks.op], step_of_op[it.tasks.op] = device, step
            placement = Placement.of(run.problem, device_of_op, step_of_op)
            evaluation = run.offer(placement)
            if evaluation.is_feasible and evaluation.objective is not None and evaluation.objective <= it.value_s:
                improved = evaluation.objective < value_s * (1 - 1e-9)
                it.value_s, it.plan = evaluation.objective, timetable_of(placement, evaluation, it.tasks)
        was_closed = outcome in (Outcome.OPTIMAL, Outcome.INFEASIBLE)
        task.operator.learn(succeeded=improved, was_closed=was_closed, largest=it.tasks.num_ops)
        closed_all |= task.neighbourhood.is_everything and outcome is Outcome.OPTIMAL
    it.critical = critical_ops(it.flat, it.tasks, it.plan)
    return closed_all


def _draw(it: _Search, operator: Operator) -> _Task | None:
    """Return a random neighbourhood of the operator's kind and size; None if nothing in it can become better."""
    rng, num_ops = it.run.rng, it.tasks.num_ops
    order = by_start(it.plan)
    place = np.empty(num_ops, dtype=np.int64)
    place[order] = np.arange(num_ops)
    seed = int(rng.choice(it.critical))
    size = min(int(operator.size), num_ops)
    width = min(num_ops, MAX_WINDOW)
    low = int(np.clip(place[seed] - rng.integers(width), 0, num_ops - width))
    inside = np.flatnonzero((place >= low) & (place < low + width))
    free = np.zeros(num_ops, dtype=np.bool_)
    if size >= num_ops:
        free[:] = True
    elif operator.name == "time":
        first = int(np.clip(place[seed] - rng.integers(size), low, max(low, low + width - size)))
        free[order[first : first + size]] = True
    elif operator.name == "devices":
        other = int(rng.integers(it.tasks.num_devices))
        among = inside[np.isin(it.plan.device[inside], [it.plan.device[seed], other])]
        near = np.argsort(np.abs(place[among] - place[seed]), kind="stable")
        free[among[near[:size]]] = True
    elif operator.name == "region":
        free[region(it.neighbours, [seed], size, rng)] = True
    elif operator.name == "critical":
        path = it.critical[np.isin(it.critical, inside)]
        path = rng.permutation(path)[: max(1, size // 2)]
        around = np.concatenate([it.neighbours[v] for v in path.tolist()])
        free[path] = True
        free[rng.permutation(around)[: size - len(path)]] = True
    elif operator.name == UNCERTAIN and it.weights is not None:
        free[draw_weighted(rng, inside, it.weights, size)] = True
    else:
        free[rng.permutation(inside)[:size]] = True
    part = cut_out(it.flat, it.tasks, it.plan, low, low + width, free)
    windows = narrow(part.tasks, it.value_s, part.floors)
    if windows is None:
        return None
    model = MakespanModel(part.tasks, windows, it.value_s, 0.0, orders=part.orders)
    ops = part.ops
    model.hint(Timetable(it.plan.device[ops], it.plan.start[ops], it.plan.finish[ops]))
    return _Task(operator, low, low + width, part, model, int(rng.integers(2**31)))


def _optimise(it: _Search, task: _Task) -> tuple[Outcome, Timetable | None]:
    """Let CP-SAT re-optimise a neighbourhood; return its word, and its best schedule."""
    run = it.run
    answers: list[Timetable] = []

    def see_bound(bound: float) -> None:
        run.raise_bound(min(task.model.scale.bound_s(bound), it.value_s), "CP-SAT bound")

    limits = CpsatLimits(workers=1, seed=task.seed, time_s=run.remaining_s, deterministic_time=it.effort)
    outcome = search(
        task.model,
        limits,
        lambda plan, _: answers.append(plan),
        see_bound if task.neighbourhood.is_everything else None,
        lambda: run.should_stop() is not None,
    )
    return outcome, answers[-1] if answers else None
