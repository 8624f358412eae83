"""Large-neighbourhood search for the makespan: CP-SAT optimises one part of the schedule at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placekit.model.placement import Placement
from placekit.objectives.evaluate import Evaluation
from placekit.solve.method import Run
from placekit.solve.stop import StopReason
from placekit.solvers.lns.driver import Drawn, NeighbourhoodSearch, offer_answers
from placekit.solvers.lns.operators import Operator, adjacency, region
from placekit.solvers.makespan.bounds.windows import narrow
from placekit.solvers.makespan.decomposition.neighbourhood import critical_ops, cut_out, put_back
from placekit.solvers.makespan.exact.cp_model import MakespanModel
from placekit.solvers.makespan.exact.proofs import Proof
from placekit.solvers.makespan.schedule.sequence import sequence_problem
from placekit.solvers.makespan.schedule.tasks import Tasks
from placekit.solvers.makespan.schedule.timetable import Timetable, by_start, timetable_of
from placekit.solvers.makespan.search.local_search import search_makespan
from placekit.solvers.params import LnsParams, LocalSearchParams

__all__ = ["search_neighbourhoods"]

MAX_WINDOW = 250
"""Ops of a window at most: what CP-SAT can hold within its limit."""
START_SHARE = 0.25
"""Share of the time limit that the annealing before may take."""
OPERATORS = ("time", "devices", "region", "critical", "random")
"""Which ops of a window are free: neighbours in time, those of two devices, a connected region, some of the critical
path with what is next to them, or any."""


def search_neighbourhoods(run: Run, params: LnsParams) -> StopReason:
    """Search until told to stop, or until `patience` rounds in a row bring no improvement.

    1. Annealing (:mod:`placekit.solvers.makespan.search.local_search`) gives the first schedule.
    2. Draw an op of the critical path, a window of the schedule around it (all of it if it is small), and in the window
       the ops that may move (`OPERATORS`). The rest keeps devices and orders
       (:mod:`placekit.solvers.makespan.decomposition.neighbourhood`).
    3. CP-SAT minimises the makespan; the judge scores the whole schedule. Equal makespans are taken, too.
    4. If nothing changes any more, annealing starts again.

    Parameters
    ----------
    run
        The run; its problem's objective is the makespan, without contiguity.
    params
        How to search.
    """
    proof = Proof(run)
    proof.quickly()
    proof.anneal(START_SHARE)
    reason = run.should_stop()
    if reason is not None or run.placement is None or run.evaluation is None:
        return reason or StopReason.FINISHED
    return _Search(run, params, proof.tasks, run.placement, run.evaluation).search()


class _Search(NeighbourhoodSearch[Placement]):
    """State of the search: the schedule `plan` of makespan `value_s`, with the critical ops."""

    restart_after = 30

    def __init__(
        self,
        run: Run,
        params: LnsParams,
        tasks: Tasks,
        placement: Placement,
        evaluation: Evaluation,
    ) -> None:
        super().__init__(run, params, [Operator(name) for name in OPERATORS], tasks.num_ops)
        self.tasks = tasks
        self.neighbours = adjacency(tasks.senders, tasks.receivers, tasks.num_ops)
        self.flat = sequence_problem(run.problem, has_contention=False)
        self._stand_on(placement, evaluation)

    def _stand_on(self, placement: Placement, evaluation: Evaluation) -> None:
        assert evaluation.objective is not None  # it is feasible
        self.value_s = evaluation.objective
        self.plan = timetable_of(placement, evaluation, self.tasks)
        self.critical = critical_ops(self.flat, self.tasks, self.plan)

    def restart(self) -> None:
        """Anneal, and continue from the best schedule."""
        search_makespan(self.run, LocalSearchParams(max_cycles=2))
        assert self.run.placement is not None  # the search began with one
        assert self.run.evaluation is not None
        self._stand_on(self.run.placement, self.run.evaluation)

    def take(self, found: Sequence[Sequence[Placement]]) -> list[bool]:
        """Offer the schedules, and continue from the best."""
        improved, best = offer_answers(self.run, found, self.value_s)
        if best is not None:
            self._stand_on(best[0], best[1])
        return improved

    def draw(self, operator: Operator) -> Drawn[Placement] | None:
        """Return a window with free ops, around an op of the critical path."""
        rng, num_ops = self.run.rng, self.tasks.num_ops
        plan, order = self.plan, by_start(self.plan)
        place = np.argsort(order)
        seed, size, width = int(rng.choice(self.critical)), min(int(operator.size), num_ops), min(num_ops, MAX_WINDOW)
        low = int(np.clip(place[seed] - rng.integers(width), 0, num_ops - width))
        inside = np.flatnonzero((place >= low) & (place < low + width))
        free = np.zeros(num_ops, dtype=np.bool_)
        if size >= num_ops:
            free[:] = True
        elif operator.name == "time":
            first = int(np.clip(place[seed] - rng.integers(size), low, max(low, low + width - size)))
            free[order[first : first + size]] = True
        elif operator.name == "devices":
            other = int(rng.integers(self.tasks.num_devices))
            among = inside[np.isin(plan.device[inside], [plan.device[seed], other])]
            near = np.argsort(np.abs(place[among] - place[seed]), kind="stable")
            free[among[near[:size]]] = True
        elif operator.name == "region":
            free[region(self.neighbours, [seed], size, rng)] = True
        elif operator.name == "critical":
            path = self.critical[np.isin(self.critical, inside)]
            path = rng.permutation(path)[: max(1, size // 2)]
            around = np.concatenate([self.neighbours[v] for v in path.tolist()])
            free[path] = True
            free[rng.permutation(around)[: size - len(path)]] = True
        else:
            free[rng.permutation(inside)[:size]] = True
        part = cut_out(self.flat, self.tasks, plan, low, low + width, free)
        windows = narrow(part.tasks, self.value_s, part.heads_tails)
        if windows is None:
            return None
        model = MakespanModel(part.tasks, windows, self.value_s, 0.0, orders=part.orders)
        model.hint(Timetable(plan.device[part.ops], plan.start[part.ops], plan.finish[part.ops]))

        def whole(answer: Timetable) -> Placement:
            return put_back(self.run.problem, self.tasks, plan, part, answer)

        return Drawn(model, whole, part.is_everything, self.value_s)
