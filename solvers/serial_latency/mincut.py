"""Method ``mincut``: the serial latency by minimum cuts, then by searches and programs if a gap remains.

========================================  ============================================================================
problem                                   steps, and what they prove
========================================  ============================================================================
two kinds (two labels,                    one minimum cut: the optimum, in about linear time
:mod:`~.labels`), nothing else
... and acyclic, on two devices           one cut for either direction: the optimum
... and a memory limit that binds         cuts with a price on bytes (:mod:`~.memory`): a bound and placements, then the
                                          integer program of method ``ilp`` from the best of them
more labels                               alpha-expansion (:mod:`~.expansion`), single moves, the bound of one cut per
                                          device (:mod:`~.decomposition`), then the integer program
a cost per subgraph                       cuts with a price on device changes along paths (:mod:`~.paths`): a bound and
                                          placements; then a constraint program that counts subgraphs exactly
                                          (:mod:`~.levels`), where it is small enough
========================================  ============================================================================

`Result.info` has the step that proved the answer (``proven_by``, None without a proof), the number of labels, and the
exact program that was too large (``too_large_for``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from placekit.model.contiguity import Contiguity
from placekit.objectives import SerialLatency
from placekit.solve.certificates import CertificateSource
from placekit.solve.method import Method, Run
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE
from placekit.solve.stop import StopReason
from placekit.solvers.assignment.first_answers import open_run
from placekit.solvers.assignment.flat import flatten
from placekit.solvers.backends.flow import Cut, CutCost, closure
from placekit.solvers.generic.bounds.bound import DEFAULT_TIME_LIMIT_S, BoundMethod, recorded
from placekit.solvers.generic.bounds.largest_op import largest_op
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.generic.enumeration.exhausted import clash
from placekit.solvers.generic.rescaled import rescaled
from placekit.solvers.serial_latency.bound import with_subgraphs
from placekit.solvers.serial_latency.certificates import cut_prices, directed_prices, flow_prices
from placekit.solvers.serial_latency.decomposition import decomposition_bounds
from placekit.solvers.serial_latency.descent import descend
from placekit.solvers.serial_latency.expansion import best_labels
from placekit.solvers.serial_latency.labels import Labels, labels_of
from placekit.solvers.serial_latency.memory import priced_cuts
from placekit.solvers.serial_latency.paths import price_paths

logger = logging.getLogger(__name__)

MAX_ILP_SIZE = 300_000
"""Largest number of classes and pins times devices for the integer program."""
MAX_LEVEL_SIZE = 60_000
"""Largest number of ops and edges times levels times devices for the constraint program."""


@dataclass(frozen=True)
class MinCutParams:
    """Parameters of `MinCut`.

    Parameters
    ----------
    fallback
        True to continue with an integer or constraint program if cuts leave a gap.
    """

    fallback: bool = True


class MinCut(Method):
    """Serial latency by minimum cuts; see the module docstring."""

    name = "mincut"
    params_type = MinCutParams
    params: MinCutParams

    def run(self, run: Run[SerialLatency]) -> StopReason:
        """Run the steps in turn until the gap is closed or the run must stop."""
        contraction = open_run(run)
        if contraction is None:
            return StopReason.PROVED
        run.info["proven_by"] = None
        search = _Search(run, contraction)
        steps = [
            ("minimum cut", search.cut),
            ("minimum cuts by direction", search.cut_by_direction),
            ("price on memory", search.price_memory),
            ("changes along paths", search.count_along_paths),
            ("single moves", search.descend),
            ("minimum cut per device", search.decompose),
        ]
        if self.params.fallback:
            steps += [("constraint program", search.count_levels), ("integer program", search.solve_program)]
        for name, step in steps:
            reason = run.should_stop() or step()
            if run.is_proven:
                run.info["proven_by"] = name
                return StopReason.PROVED
            if reason is not None:
                return reason
        return StopReason.FINISHED


class SerialLatencyBound(BoundMethod):
    """Method ``bound``: the steps of ``mincut`` without its programs."""

    def run(self, run: Run[SerialLatency]) -> StopReason:
        """Offer the quick placements, then raise the bound."""
        keep = recorded(run)
        self.offer_quickly(run)
        keep(*largest_op(run.problem))
        with run.limited_to(DEFAULT_TIME_LIMIT_S if run.remaining_s is None else None):
            reason = MinCut(MinCutParams(fallback=False)).run(run)
        if run.bound is not None and run.bound_name is not None:
            keep(run.bound, run.bound_name)
        return reason


class _Search:
    """Steps of the method; each returns why to end the run, or None to continue."""

    def __init__(self, run: Run[SerialLatency], contraction: Contraction[SerialLatency]) -> None:
        self.run, self.contraction, self.problem = run, contraction, run.problem
        objective = run.problem.objective
        self.subgraph_cost_s = objective.subgraph_cost_s
        self.flat = flatten(contraction)
        self.labels = labels_of(contraction)
        self.floor_s = 0.0  # lower bound on work and transfers
        run.info["labels"] = self.labels.num_labels

    @property
    def _is_told_to_stop(self) -> bool:
        return self.run.should_stop() is not None

    def _raise_floor(
        self, bound_s: float, name: str, certificate: CertificateSource, tolerance: float = SOLVER_TOLERANCE
    ) -> None:
        self.floor_s = max(self.floor_s, bound_s)
        self.run.raise_bound(with_subgraphs(self.contraction, bound_s), name, certificate, tolerance=tolerance)

    def _offer(self, device_of_class: NDArray[np.int64]) -> None:
        self.run.offer(self.contraction.expand(device_of_class))

    def _offer_labels(self, labels: Labels, label: NDArray[np.int64]) -> None:
        """Offer labels as devices; if they overfill one, also offer the result of single moves."""
        device = labels.devices[label]
        self._offer(device)
        if self._overfills(device):
            self._offer(self._fitted(device))

    def cut(self) -> StopReason | None:
        """Minimise work and transfers alone; exact for at most two labels."""
        label, cut = best_labels(self.labels, lambda: self._is_told_to_stop)
        if cut is None:
            bound_s = float(self.labels.time_s.min(axis=1).sum()) * (1 - 1e-12)
            self._raise_floor(bound_s, "fastest device for every op", None, OPTIMALITY_TOLERANCE)
        else:
            proof = partial(cut_prices, self.contraction, self.labels, cut)
            self._raise_floor(cut.bound, "minimum cut", proof, cut.tolerance)
        self._offer_labels(self.labels, label)
        return None

    def cut_by_direction(self) -> StopReason | None:
        """Cut with all transfers in one direction: the optimum for two devices, a start for more."""
        contiguity, num_devices = self.problem.contiguity, self.problem.platform.num_devices
        if contiguity is Contiguity.NONE:
            return None
        devices = self.labels.devices if self.labels.num_labels > 1 else np.arange(num_devices)
        cuts = []
        for first, second in permutations([0, 1] if num_devices == 2 else devices.tolist(), 2):
            if self._is_told_to_stop:
                return None  # only all directions together prove a bound
            cuts.append(self._cut_from_to(first, second))
        if contiguity is Contiguity.ACYCLIC and num_devices == 2:
            proven = [cut for cut in cuts if cut is not None]
            if not proven:
                return self.run.prove_infeasible(clash())
            least = min(proven, key=lambda cut: cut.bound)
            both = replace(
                self.labels,
                devices=np.arange(2),
                net_time_s=self.contraction.net_time_s.sum(axis=2)[:, self.problem.platform.kind_of_device],
                label_of_device=np.arange(2),
            )
            proof = partial(directed_prices, self.contraction, both, (cuts[0], cuts[1]))
            self._raise_floor(least.bound, "minimum cuts by direction", proof, least.tolerance)
        return None

    def _cut_from_to(self, first: int, second: int) -> Cut | None:
        """Offer the best placement with all transfers from `first` to `second`; return its cut if there is one."""
        contraction, kinds = self.contraction, self.problem.platform.kind_of_device[[first, second]]
        time_s = np.where(contraction.allowed[:, [first, second]], contraction.time_s.sum(axis=2)[:, kinds], np.inf)
        # an op of the first device needs all its predecessors there, too
        requires = contraction.receivers, contraction.senders
        must_not = closure(np.isinf(time_s[:, 1]), *requires) & np.isinf(time_s[:, 0])
        if must_not.any():
            return None  # an op that must come first needs one that cannot, or that neither device takes
        split = self.labels.nets(contraction.net_time_s.sum(axis=2)[:, kinds].sum(axis=1))
        cut = CutCost(time_s[:, 0], time_s[:, 1], split=split, requires=requires).minimise()
        self._offer(np.where(cut.is_first, first, second))
        return cut

    def price_memory(self) -> StopReason | None:
        """Put a price on the bytes of the overfull kind."""
        if np.isinf(self.flat.limit_bytes).all():
            return None
        labels = labels_of(self.contraction, across_kinds=False)
        if labels.num_labels != 2:
            return None
        cuts = 0
        for found in priced_cuts(self.contraction, labels):
            cuts += 1
            proof = partial(cut_prices, self.contraction, labels, found.cut, found.memory_price_s)
            self._raise_floor(found.bound_s, "price on memory", proof)
            self._offer_labels(labels, found.label)
            if self._is_told_to_stop:
                break
        self.run.info["priced_cuts"] = cuts
        return None

    def count_along_paths(self) -> StopReason | None:
        """Cut with a price on device changes along paths: a bound, and placements with few subgraphs."""
        if not self.subgraph_cost_s or self.labels.num_labels < 2:
            return None
        last = None
        for last in price_paths(self.contraction, self.labels):
            proof = partial(last.certificate, self.contraction)
            self.run.raise_bound(last.bound_s, "changes along paths", proof)
            self._offer_labels(self.labels, last.label)
            if self._is_told_to_stop:
                return None
        if last is not None and last.cut is None:
            for floor in decomposition_bounds(last.labels, last.labels.value_s(last.label)):
                proof = partial(last.certificate, self.contraction, floor.flow_s)
                self.run.raise_bound(last.bound_of(floor.bound_s), "changes along paths, per device", proof)
                if self._is_told_to_stop:
                    return None
        return None

    def _fitted(self, device: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the devices after single moves out of overfull ones."""
        return descend(self.flat, device)

    def _overfills(self, device: NDArray[np.int64]) -> bool:
        used = np.bincount(device, weights=self.contraction.memory_bytes, minlength=len(self.flat.limit_bytes))
        return bool((used > self.flat.limit_bytes).any())

    def descend(self) -> StopReason | None:
        """Move single classes from the best known placement."""
        if self.run.placement is not None and not self.subgraph_cost_s and not self.flat.is_ordered:
            self._offer(descend(self.flat, self.contraction.restrict(self.run.placement.device_of_op)))
        return None

    def count_levels(self) -> StopReason | None:
        """Count subgraphs exactly by a constraint program, if it is small enough."""
        if not self.subgraph_cost_s:
            return None
        from placekit.solvers.assignment.cpsat.method import num_workers
        from placekit.solvers.assignment.cpsat.solve import solve_model
        from placekit.solvers.serial_latency.levels import LevelModel, most_levels

        run, graph = self.run, self.problem.graph

        def solve(ceiling_s: float | None) -> StopReason:
            levels = most_levels(self.contraction, ceiling_s, self.floor_s)
            size = (graph.num_ops + graph.num_edges) * (levels + 1) * len(self.flat.kind)
            if size > MAX_LEVEL_SIZE:
                logger.info("the program of %d levels has about %d Booleans; too many", levels, size)
                run.info["too_large_for"] = "constraint program"
                return StopReason.FINISHED
            model = LevelModel(self.contraction, ceiling_s, levels)
            run.info["levels"] = levels
            # a placement with more levels than the model is no better than the known one
            return solve_model(run, self.contraction, model, num_workers, np.inf if ceiling_s is None else ceiling_s)

        return rescaled(run, solve)

    def solve_program(self) -> StopReason | None:
        """Continue with method ``ilp`` from the best placement, if its program is small enough."""
        from placekit.solvers.assignment.ilp.solve import AssignmentIlp

        size = (self.contraction.num_classes + len(self.contraction.net_pins)) * len(self.flat.kind)
        if size > MAX_ILP_SIZE:
            logger.info("the integer program has about %d variables and rows; too many", size)
            self.run.info["too_large_for"] = "integer program"
            return None
        return AssignmentIlp().run(self.run)

    def decompose(self) -> StopReason | None:
        """Bound more than two labels."""
        if self.labels.num_labels < 3 or self.subgraph_cost_s:
            return None
        label, _ = best_labels(self.labels, lambda: self._is_told_to_stop)
        for floor in decomposition_bounds(self.labels, self.labels.value_s(label)):
            proof = partial(flow_prices, self.contraction, self.labels, floor.flow_s)
            self._raise_floor(floor.bound_s, "minimum cut per device", proof)
            if self._is_told_to_stop:
                break
        return None
