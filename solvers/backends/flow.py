r"""Minimum cuts: the choice of a side for every node at least cost, exact by one maximum flow.

The cost of a choice of sides is a sum of

- :math:`f_v` if node v is on the first side, :math:`s_v` if v is on the second (infinite: not allowed);
- *split* nets: :math:`w` once if a net has pins on both sides;
- *any-first* and *any-second* nets: :math:`w` if at least one pin is on that side;
- *requirements*: pairs (v, r); if v is first, r must be first.

All terms are submodular, so the minimum is a minimum cut between a source (first side) and a sink (second side).

Gadgets
-------
Arcs :math:`x \to y` of capacity :math:`w` cost :math:`w` if x is on the first side and y on the second.

- A split net of two pins is an arc in each direction. A net of three pins is three such pairs of weight :math:`w/2`: a
  split cuts two of them.
- A split net of more pins p has two extra nodes, :math:`p \to e_1 \to e_2 \to p`, with capacity :math:`w` on all arcs.
  If pins are on both sides, every path from a first to a second pin has a cut arc: at least :math:`w` is paid. Exactly
  :math:`w` is paid with :math:`e_1` first and :math:`e_2` second. If all pins are on one side, both extra nodes join
  them and nothing is paid.
- An any-first net is :math:`p \to e` for every pin and :math:`e \to sink`; an any-second net is mirrored.
- A requirement is an arc of infinite capacity.
- A node that is allowed on one side only is merged with the terminal of that side.

Whole numbers
-------------
The flow needs integers, so every capacity c becomes :math:`\lfloor c / u \rfloor`. The unit u is a power of two, so
only the floor loses precision. Every cut then costs at most its true cost over u, and :math:`u \cdot flow` is a lower
bound. Capacities above the cost of a known solution are clipped just above it, which keeps the numbers small. If the
minimum is far below that solution, the flow is solved again with a finer unit.

References
----------
Kolmogorov and Zabih, "What energy functions can be minimized via graph cuts?", IEEE PAMI 26(2), 2004;
Lawler, "Cutsets and partitions of hypergraphs", Networks 3, 1973 (the net of two nodes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from ortools.graph.python import max_flow  # type: ignore[import-untyped]  # a compiled module without stubs

from placekit.arrays import sum_by
from placekit.model.errors import SolverUnavailableError
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE

FLOAT_SLACK = 1e-12
"""Relative amount taken off every bound, for the rounding of sums here and in the judge."""
ROUNDING_ERROR = 4e-10
"""Relative loss by the floors above which the flow is repeated with a finer unit. It is below `OPTIMALITY_TOLERANCE`;
more than a million arcs leave no room for units so fine."""
MAX_UNITS = 2.0**50
"""Largest number of units in the best known solution."""
MAX_TOTAL_UNITS = 2.0**61
"""Largest number of units in all capacities: the flow is a 64-bit integer."""


@dataclass(frozen=True, eq=False)
class Nets:
    """Sets of nodes with weights."""

    # offsets, pins: CSR lists of the nodes of each net, ``[num_nets + 1]`` and ``[num_pins]``; no net is empty
    offsets: NDArray[np.int64]
    pins: NDArray[np.int64]
    weight: NDArray[np.float64]  # ``[num_nets]`` weights, finite and at least 0

    @property
    def sizes(self) -> NDArray[np.int64]:
        """``[num_nets]`` number of pins."""
        return np.diff(self.offsets)

    def any_on(self, side: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``[num_nets]`` True where at least one pin has `side` True."""
        if not len(self.weight):
            return np.zeros(0, dtype=bool)
        return np.logical_or.reduceat(side[self.pins], self.offsets[:-1])

    def of_size(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """``[n, size]`` places in `pins` and ``[n]`` weights of the nets with exactly `size` pins."""
        nets = np.flatnonzero(self.sizes == size)
        return self.offsets[nets][:, None] + np.arange(size), self.weight[nets]

    def larger_than(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return, for nets with more than `size` pins: places in `pins`, the rank of the net of each, and weights."""
        is_large = self.sizes > size
        rank = np.cumsum(is_large) - 1
        net_of_pin = np.repeat(np.arange(len(self.weight)), self.sizes)
        kept = np.flatnonzero(is_large[net_of_pin])
        return kept, rank[net_of_pin[kept]], self.weight[is_large]


@dataclass(frozen=True, eq=False)
class Cut:
    """An optimal choice of sides."""

    is_first: NDArray[np.bool_]  # ``[num_nodes]`` True for the first side
    value: float  # its cost, added up in floating point
    bound: float  # what no choice of sides is below; less than `value` by the rounding only
    # pin_flow, requires_flow: ``[split pins]`` what flows from each pin into its split net, less what flows back, and
    # ``[pairs]`` along each requirement: the multipliers that prove `bound`. Those of a net add up to 0, the positive
    # ones to its weight at most.
    pin_flow: NDArray[np.float64]
    requires_flow: NDArray[np.float64]

    @property
    def tolerance(self) -> float:
        """Relative gap within which the cut proves a placement optimal; larger only if the units are coarse."""
        is_sharp = self.value - self.bound <= ROUNDING_ERROR * abs(self.value)
        return OPTIMALITY_TOLERANCE if is_sharp else SOLVER_TOLERANCE


@dataclass(frozen=True, eq=False)
class CutCost:
    """Cost of choosing a side for every node (see the module docstring)."""

    # first, second: ``[num_nodes]`` cost of a node on each side, of any sign; infinite if not allowed. Every node is
    # allowed somewhere.
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    # split, any_first, any_second: nets
    split: Nets | None = None
    any_first: Nets | None = None
    any_second: Nets | None = None
    # arrays v and r of nodes: if ``v[i]`` is on the first side, ``r[i]`` must be. Some choice of sides meets all
    # requirements.
    requires: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def value(self, is_first: NDArray[np.bool_]) -> float:
        """Return the cost of a choice of sides; infinite if a requirement is not met."""
        if self.requires is not None and (is_first[self.requires[0]] & ~is_first[self.requires[1]]).any():
            return math.inf
        total = float(np.where(is_first, self.first, self.second).sum())
        if self.split is not None:
            total += float(self.split.weight[self.split.any_on(is_first) & self.split.any_on(~is_first)].sum())
        if self.any_first is not None:
            total += float(self.any_first.weight[self.any_first.any_on(is_first)].sum())
        if self.any_second is not None:
            total += float(self.any_second.weight[self.any_second.any_on(~is_first)].sum())
        return total

    def minimise(self) -> Cut:
        """Return a minimum, with its proof.

        Notes
        -----
        Building is linear in nodes and pins; the flow (push-relabel) takes O(n**2 sqrt(m)) at worst and about linear
        time on computation graphs.

        Raises
        ------
        SolverUnavailableError
            The flow solver fails.
        """
        either = np.minimum(self.first, self.second)
        constant = float(either.sum())
        trials = [self.first <= self.second, np.isfinite(self.first), ~np.isfinite(self.second)]
        if self.requires is not None:
            trials.append(closure(~np.isfinite(self.second), *self.requires))
        best = min(trials, key=self.value)
        value = self.value(best)
        network = _Network.of(self)
        bound, flows = constant, np.zeros(network.num_flows)
        # stop if nothing is left to gain, or if a finer unit would change nothing
        ceiling = math.inf
        while value > constant and value - constant < ceiling / 2 and value - bound > ROUNDING_ERROR * abs(value):
            ceiling = value - constant
            found, flow, by_pin = network.solve(ceiling)
            if constant + flow > bound:
                bound, flows = constant + flow, by_pin
            if (reached := self.value(found)) < value:
                best, value = found, reached
        slack = FLOAT_SLACK * (float(np.abs(either).sum()) + abs(value - constant))
        num_pins = network.num_flows - (0 if self.requires is None else len(self.requires[0]))
        return Cut(best, value, min(bound, value) - slack, flows[:num_pins], flows[num_pins:])


def closure(nodes: NDArray[np.bool_], needing: NDArray[np.int64], needed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return ``[num_nodes]`` `nodes` and all that they need, directly or indirectly. O(nodes + pairs)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order

    num_nodes = len(nodes)
    starts = np.flatnonzero(nodes)
    tail, head = np.concatenate([np.full(len(starts), num_nodes), needing]), np.concatenate([starts, needed])
    arcs = coo_array((np.ones(len(tail)), (tail, head)), shape=(num_nodes + 1, num_nodes + 1)).tocsr()
    reached = breadth_first_order(arcs, num_nodes, return_predecessors=False)
    found = np.zeros(num_nodes + 1, dtype=bool)
    found[reached] = True
    return found[:num_nodes]


@dataclass(frozen=True, eq=False)
class _Network:
    """Arcs with capacities. Node ``num_nodes`` is the source, ``num_nodes + 1`` the sink; extra nodes follow.

    An arc adds to one flow of `Cut` (`leaves`) and subtracts from one (`enters`). Flows are those of the pins of split
    nets, then those of requirements; ``num_flows`` stands for none.
    """

    num_nodes: int
    num_flows: int
    tail: NDArray[np.int64]
    head: NDArray[np.int64]
    capacity: NDArray[np.float64]
    leaves: NDArray[np.int64]
    enters: NDArray[np.int64]
    merged: NDArray[np.int64]

    @classmethod
    def of(cls, cost: CutCost) -> _Network:
        num_nodes = len(cost.first)
        source, sink = num_nodes, num_nodes + 1
        merged = np.arange(num_nodes)
        merged[np.isinf(cost.second)] = source
        merged[np.isinf(cost.first)] = sink
        free = np.flatnonzero(merged == np.arange(num_nodes))
        difference = cost.first[free] - cost.second[free]
        on_first, on_second = free[difference > 0], free[difference < 0]
        num_pins = 0 if cost.split is None else len(cost.split.pins)
        num_flows = num_pins + (0 if cost.requires is None else len(cost.requires[0]))
        arcs = [
            _between(on_first, sink, difference[difference > 0], num_flows, num_flows),
            _between(source, on_second, -difference[difference < 0], num_flows, num_flows),
        ]
        next_node = num_nodes + 2
        for nets, kind in ((cost.split, "split"), (cost.any_first, "first"), (cost.any_second, "second")):
            if nets is None:
                continue
            # a merged pin becomes a terminal
            nets = Nets(nets.offsets, merged[nets.pins], nets.weight)  # noqa: PLW2901  # the same nets
            if kind == "split":
                new, num_helpers = _split_arcs(nets, next_node, num_flows)
            else:
                terminal = sink if kind == "first" else source
                new, num_helpers = _any_arcs(nets, next_node, terminal, kind == "first", num_flows)
            arcs += new
            next_node += num_helpers
        if cost.requires is not None:
            needing, needed = cost.requires
            along = num_pins + np.arange(len(needing))
            arcs.append(_between(merged[needing], merged[needed], np.full(len(needing), np.inf), along, num_flows))
        tail, head, capacity, leaves, enters = (np.concatenate([arc[i] for arc in arcs]) for i in range(5))
        # arcs out of the sink or into the source are never cut
        useful = (tail != head) & (tail != sink) & (head != source) & (capacity > 0)
        return cls(
            num_nodes, num_flows, tail[useful], head[useful], capacity[useful], leaves[useful], enters[useful], merged
        )

    def solve(self, ceiling: float) -> tuple[NDArray[np.bool_], float, NDArray[np.float64]]:
        """Return the sides of a minimum cut, its flow and the flows of pins, rounded down; `ceiling` bounds it."""
        num_arcs = max(len(self.capacity), 1)
        units = min(MAX_UNITS, MAX_TOTAL_UNITS / num_arcs)
        exponent = max(math.frexp(ceiling)[1] - math.frexp(units)[1] + 1, -1074)  # 2**exponent >= ceiling / units
        most = math.floor(math.ldexp(ceiling, -exponent)) + 1
        units_of = np.ldexp(np.minimum(self.capacity, 2 * ceiling), -exponent)
        whole = np.minimum(np.floor(units_of), float(most)).astype(np.int64)
        solver = max_flow.SimpleMaxFlow()
        solver.add_arcs_with_capacity(self.tail.astype(np.int32), self.head.astype(np.int32), whole)
        source, sink = self.num_nodes, self.num_nodes + 1
        if not solver.num_arcs() or max(self.tail.max(), self.head.max()) < sink:
            return self.merged != sink, 0.0, np.zeros(self.num_flows)  # a terminal without arcs
        status = solver.solve(source, sink)
        if status != solver.OPTIMAL:
            raise SolverUnavailableError(f"mincut: OR-Tools ended the maximum flow with {status.name}")
        is_first = np.zeros(max(int(self.tail.max()), int(self.head.max())) + 1, dtype=bool)
        is_first[np.asarray(solver.get_source_side_min_cut(), dtype=np.int64)] = True
        is_first[[source, sink]] = True, False
        padded = np.zeros(max(len(is_first), self.num_nodes + 2), dtype=bool)
        padded[: len(is_first)] = is_first
        units = solver.flows(np.arange(num_arcs, dtype=np.int32)).astype(np.float64)  # at most `MAX_UNITS`: exact
        left, entered = (sum_by(at, units, self.num_flows + 1) for at in (self.leaves, self.enters))
        flow = (left - entered)[: self.num_flows]
        unit = math.ldexp(1.0, exponent)
        return padded[self.merged], float(solver.optimal_flow()) * unit, flow * unit


_Arcs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]


def _between(
    tail: NDArray[np.int64] | int,
    head: NDArray[np.int64] | int,
    capacity: NDArray[np.float64],
    leaves: NDArray[np.int64] | int,
    enters: NDArray[np.int64] | int,
) -> _Arcs:
    """Return arcs with the flows that they leave and enter."""

    def column(values: NDArray[np.int64] | int) -> NDArray[np.int64]:
        return np.broadcast_to(np.asarray(values, dtype=np.int64), capacity.shape)

    return column(tail), column(head), capacity, column(leaves), column(enters)


def _split_arcs(nets: Nets, next_node: int, no_flow: int) -> tuple[list[_Arcs], int]:
    arcs: list[_Arcs] = []
    for size, factor, pairs in ((2, 1.0, [(0, 1)]), (3, 0.5, [(0, 1), (1, 2), (0, 2)])):
        at, weight = nets.of_size(size)
        for i, j in pairs:
            for a, b in ((at[:, i], at[:, j]), (at[:, j], at[:, i])):
                arcs.append(_between(nets.pins[a], nets.pins[b], weight * factor, a, b))
    at, net, weight = nets.larger_than(3)
    entry, leave = next_node + np.arange(len(weight)), next_node + len(weight) + np.arange(len(weight))
    arcs += [
        _between(nets.pins[at], entry[net], weight[net], at, no_flow),
        _between(entry, leave, weight, no_flow, no_flow),
        _between(leave[net], nets.pins[at], weight[net], no_flow, at),
    ]
    return arcs, 2 * len(weight)


def _any_arcs(nets: Nets, next_node: int, terminal: int, is_first: bool, no_flow: int) -> tuple[list[_Arcs], int]:
    single, weight = nets.of_size(1)
    at, net, large = nets.larger_than(1)
    helper = next_node + np.arange(len(large))

    def towards(pins: NDArray[np.int64], node: NDArray[np.int64] | int, capacity: NDArray[np.float64]) -> _Arcs:
        ends = (pins, node) if is_first else (node, pins)
        return _between(ends[0], ends[1], capacity, no_flow, no_flow)

    arcs = [
        towards(nets.pins[single[:, 0]], terminal, weight),
        towards(nets.pins[at], helper[net], large[net]),
        towards(helper, terminal, large),
    ]
    return arcs, len(large)
