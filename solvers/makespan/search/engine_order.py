r"""Local search for a `Makespan` whose engine takes no order: annealing of placements alone.

Which ready op a device starts is the engine's rule, so a small change of the placement may change the order of all ops.
Every proposal is therefore run from the beginning (:func:`~placekit.objectives.makespan.kernels.dispatch`), and pays,
as in :mod:`placekit.solvers.makespan.search.anneal`, a share of the mean finish.

A proposal moves a class to the device of a neighbour in the graph or to a random one, exchanges two classes, or moves
connected classes of one device together.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.model.placement import Placement
from placekit.objectives import Makespan
from placekit.objectives.makespan.kernels import dispatch
from placekit.objectives.makespan.orders import rule_of
from placekit.solve.lifting.relaxed import work
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.draws import Cooling, below
from placekit.solvers.generic.excess import find_feasible
from placekit.solvers.makespan.lists.schedulers import Heft, MEtf
from placekit.solvers.makespan.schedule.sequence import SequenceProblem, sequence_problem
from placekit.solvers.makespan.search.starts import list_schedule
from placekit.solvers.params import PATIENCE, LocalSearchParams

FIRST_STEPS, MOST_STEPS = 20, 2_000
"""Proposals per op in the first cycle, doubled from cycle to cycle, and in the longest ones."""
HOT, COLD = (0.003, 0.01, 0.03, 0.1), 2e-4
"""First temperatures of a cycle, from which one is drawn, and the last one, in units of the best makespan."""
MEAN_WEIGHT = 0.2
"""Weight of the mean finish in the cost."""
NOISE = 0.5
"""Largest noise of the list schedules from which fresh cycles start."""
BLOCK = 1_000_000
"""Proposals times ops between two looks at whether to stop, about."""


@njit(inner=True)
def _neighbour(flat: SequenceProblem, op: int) -> int:
    """Return a random producer or reader of the tensors of `op`; `op` itself if it has none."""
    instance = flat.instance
    first_in, first_out = instance.in_offsets[op], instance.edge_offsets[op]
    num_in, num_out = instance.in_offsets[op + 1] - first_in, instance.edge_offsets[op + 1] - first_out
    if num_in + num_out == 0:
        return op
    at = below(num_in + num_out)
    if at < num_in:
        return int(instance.producer[instance.in_tensors[first_in + at]])
    return int(instance.edge_readers[first_out + at - num_in])


@njit(inner=True)
def _move(flat: SequenceProblem, device: NDArray[np.int64], used: NDArray[np.float64], c: int, d: int) -> None:
    """Put class `c` on device `d`."""
    used[device[flat.class_ops[flat.class_offsets[c]]]] -= flat.class_bytes[c]
    used[d] += flat.class_bytes[c]
    for i in range(flat.class_offsets[c], flat.class_offsets[c + 1]):
        device[flat.class_ops[i]] = d


@njit(inner=True)
def _propose(
    flat: SequenceProblem,
    device: NDArray[np.int64],
    used: NDArray[np.float64],
    changed: NDArray[np.int64],
    before: NDArray[np.int64],
) -> int:
    """Change `device` at random, and log classes and their devices before; return how many, 0 for none."""
    class_of_op, num_devices = flat.instance.class_of_op, len(used)
    op = below(len(device))
    c, home, kind = class_of_op[op], device[op], np.random.random()  # noqa: NPY002  # numba's own generator
    other = _neighbour(flat, op) if np.random.random() < 0.5 else below(len(device))  # noqa: NPY002
    target = device[other]
    if kind < 0.2 and target != home:  # an exchange
        changed[0], before[0], changed[1], before[1] = c, home, class_of_op[other], target
        if not (flat.allowed[c, target] and flat.allowed[changed[1], home]):
            return 0
        _move(flat, device, used, c, target)
        _move(flat, device, used, changed[1], home)
        return 2
    if target == home or kind < 0.5:
        target = below(num_devices)
    if target == home or not flat.allowed[c, target]:
        return 0
    most = 2 << below(4) if kind > 0.8 else 1  # connected classes, or one
    changed[0], before[0], count = c, home, 1
    _move(flat, device, used, c, target)
    for _ in range(2 * most):
        if count >= most:
            break
        last = changed[below(count)]
        low, high = flat.class_offsets[last], flat.class_offsets[last + 1]
        near = _neighbour(flat, flat.class_ops[low + below(high - low)])
        if device[near] == home and flat.allowed[class_of_op[near], target]:
            changed[count], before[count] = class_of_op[near], home
            _move(flat, device, used, changed[count], target)
            count += 1
    return count


@njit
def anneal_placement(  # type: ignore[no-untyped-def]  # compiled: the argument types are in the docstring
    flat, device, best_device, best_s, priority, rule, cooling
):
    """Anneal a placement that fits, and keep the best.

    Parameters
    ----------
    flat : SequenceProblem
        The problem.
    device, best_device : int64[V]
        Placement to start from, which is changed; and the best, overwritten by a better one than `best_s`.
    best_s : float
        Makespan to beat, in seconds.
    priority, rule
        As for :func:`~placekit.objectives.makespan.kernels.dispatch`.
    cooling : Cooling
        Temperatures in seconds.

    Returns
    -------
    float
        The best makespan in seconds. O((V + E) log V) per proposal.
    """
    hot_s, cold_s, num_steps, seed = cooling
    np.random.seed(seed)  # noqa: NPY002  # numba's own generator
    num_ops, num_classes = len(device), len(flat.class_bytes)
    used = np.zeros(flat.time_s.shape[1])
    for c in range(num_classes):
        used[device[flat.class_ops[flat.class_offsets[c]]]] += flat.class_bytes[c]
    start, finish, step = np.empty(num_ops), np.empty(num_ops), np.empty(num_ops, dtype=np.int64)
    changed, before = np.empty(num_classes + 2, dtype=np.int64), np.empty(num_classes + 2, dtype=np.int64)
    value, temperature, factor = np.inf, hot_s, (cold_s / hot_s) ** (1.0 / num_steps)
    for number in range(num_steps + 1):
        count = _propose(flat, device, used, changed, before) if number else 0
        if number and count == 0:
            continue
        temperature *= factor
        fits = True
        for d in range(len(used)):
            fits = fits and used[d] <= flat.instance.limit_bytes[d]
        if fits or not number:
            new_s = dispatch(flat.instance, device, priority, rule, flat.has_contention, start, finish, step)
            cost = new_s + MEAN_WEIGHT * finish.sum() / num_ops
            slack = -temperature * math.log(max(np.random.random(), 1e-300))  # noqa: NPY002
            if cost <= value + slack:
                value = cost
                if new_s < best_s:
                    best_s = new_s
                    for op in range(num_ops):
                        best_device[op] = device[op]
                continue
        for k in range(count - 1, -1, -1):
            _move(flat, device, used, changed[k], before[k])
    return best_s


def search_engine_order(run: Run[Makespan], params: LocalSearchParams) -> StopReason:
    """Anneal again and again, from the best placement or from a list schedule with noise.

    It ends when `patience` cycles in a row bring no improvement. O(steps * ops * (ops + edges) log ops) per cycle.
    """
    objective = run.problem.objective
    flat = sequence_problem(run.problem, has_contention=objective.contention)
    if not flat.allowed.any(axis=1).all():
        return StopReason.FINISHED
    for scheduler in (Heft(), MEtf()):  # no search ends worse than they do
        if run.placement is None or run.should_stop() is None:
            work(scheduler, run)
    if run.placement is None and not find_feasible(run):
        return run.should_stop() or StopReason.FINISHED
    rule, priority = rule_of(flat.instance, objective.order)
    stale, number, patience = 0, 0, run.tries(params.patience, PATIENCE)
    while (reason := run.should_stop()) is None:
        best_s = run.objective
        assert run.placement is not None  # found above
        assert best_s is not None
        if stale >= patience or number == params.max_cycles or best_s <= 0.0:
            return StopReason.FINISHED
        device = np.array(run.placement.device_of_op)
        if number and run.rng.random() < params.fresh:
            fresh = list_schedule(flat, NOISE * run.rng.random(), run.rng)
            device = device if fresh is None else fresh[0].copy()
        steps = min(params.steps, MOST_STEPS, FIRST_STEPS * 2 ** min(number, 20)) * len(device)
        _cycle(run, flat, device, (priority, rule), steps)
        number += 1
        stale = 0 if run.objective is not None and run.objective < best_s * (1 - 1e-9) else stale + 1
    return reason


def _cycle(
    run: Run[Makespan],
    flat: SequenceProblem,
    device: NDArray[np.int64],  # ``[V]`` start; it is changed
    ruled: tuple[NDArray[np.float64], int],  # priorities and rule, as for `dispatch`
    num_steps: int,
) -> None:
    """Anneal once from hot to cold, a block of proposals at a time, and offer what is better."""
    best_s = run.objective or math.inf
    hot_s, cold_s = float(run.rng.choice(HOT)) * best_s, COLD * best_s
    block, best = max(1, BLOCK // len(device)), device.copy()
    for done in range(0, num_steps, block):
        steps = min(block, num_steps - done)
        hot, cold = (hot_s * (cold_s / hot_s) ** (at / num_steps) for at in (done, done + steps))
        cooling = Cooling(hot, cold, steps, int(run.rng.integers(2**32)))
        found_s = anneal_placement(flat, device, best, best_s, *ruled, cooling)
        if found_s < best_s:
            best_s = found_s
            run.offer(Placement.of(run.problem, best.copy()), at_most=best_s)
        if run.should_stop() is not None:
            return
