r"""Minimum cuts: a cost over two-sided nodes, minimised exactly by one maximum flow.

The cost of a choice of sides is a sum of

- :math:`f_v` if node v is on the first side, :math:`s_v` if it is on the second (infinite: it may not);
- *split* nets: :math:`w` if a net has pins on both sides, once however many;
- *any-first* and *any-second* nets: :math:`w` if at least one pin is on that side;
- *requirements*: pairs (v, r) of which r must be first if v is.

All of them are submodular, so the minimum is a minimum cut between a source (first side) and a sink (second side).

Gadgets
-------
Arcs :math:`x \to y` of capacity :math:`w` cost :math:`w` if x is on the first side and y on the second.

- A split net of two pins is an arc in either direction; of three pins, three such pairs of weight :math:`w/2`: a split
  cuts two of them. More pins p share two nodes, :math:`p \to e_1 \to e_2 \to p`, all arcs of capacity :math:`w`. With
  a pin on either side one of the arcs of every path from the first kind of pin to the second is cut, so at least
  :math:`w` is paid; and :math:`w` is enough, with :math:`e_1` first and :math:`e_2` second. With all pins on one side
  both nodes join them and nothing is paid.
- An any-first net is :math:`p \to e` for every pin and :math:`e \to sink`; an any-second net is mirrored.
- A requirement is an arc of infinite capacity.
- Nodes that may only be on one side are merged with that terminal.

Whole numbers
-------------
The flow needs integers. Every capacity becomes :math:`\lfloor c / u \rfloor`, with a unit u that is a power of two, so
that only the floor loses something: every cut is at most its true cost over u, and :math:`u \cdot flow` is a lower
bound. A capacity above the cost of a known solution only needs to stay above it, which keeps the numbers small; if the
minimum turns out to be far below that solution, the flow is solved again with a finer unit.

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

from placekit.model.errors import SolverUnavailableError
from placekit.model.graph import sum_by
from placekit.solve.result import OPTIMALITY_TOLERANCE, SOLVER_TOLERANCE

__all__ = ["FLOAT_SLACK", "Cut", "CutCost", "Nets", "closure"]

FLOAT_SLACK = 1e-12
"""Relative; taken off every bound for the floating-point additions, here and in the judge."""
ROUNDING_ERROR = 4e-10
"""What the floors should cost at most, relative: the flow is repeated with a finer unit if it is more. Below
`OPTIMALITY_TOLERANCE`; capacities of more than a million arcs have no units that fine."""
MAX_UNITS = 2.0**50
"""Units of the best solution known, at most."""
MAX_TOTAL_UNITS = 2.0**61
"""Units of all capacities together, at most: the flow is a 64-bit integer."""


@dataclass(frozen=True, eq=False)
class Nets:
    """Sets of nodes with weights.

    Parameters
    ----------
    offsets, pins
        CSR lists of the nodes of each net, ``[num_nets + 1]`` and ``[num_pins]``; no net is empty.
    weight
        ``[num_nets]`` weights, finite and at least 0.
    """

    offsets: NDArray[np.int64]
    pins: NDArray[np.int64]
    weight: NDArray[np.float64]

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
        """Return places in `pins` of the nets with more than `size` pins, the rank of each one's net, and weights."""
        is_large = self.sizes > size
        rank = np.cumsum(is_large) - 1
        net_of_pin = np.repeat(np.arange(len(self.weight)), self.sizes)
        kept = np.flatnonzero(is_large[net_of_pin])
        return kept, rank[net_of_pin[kept]], self.weight[is_large]


@dataclass(frozen=True, eq=False)
class Cut:
    """An optimal choice of sides.

    Parameters
    ----------
    is_first
        ``[num_nodes]`` True for the first side.
    value
        Its cost, added up in floating point.
    bound
        What no choice of sides is below; less than `value` by the rounding only.
    pin_flow, requires_flow
        ``[split pins]`` what flows from each pin into its split net, less what flows back, and ``[pairs]`` along each
        requirement: the multipliers that prove `bound`. Those of a net add up to 0, the positive ones to its weight at
        most.
    """

    is_first: NDArray[np.bool_]
    value: float
    bound: float
    pin_flow: NDArray[np.float64]
    requires_flow: NDArray[np.float64]

    @property
    def tolerance(self) -> float:
        """Relative gap within which the cut tells that a placement is optimal: more only if its units are coarse."""
        is_sharp = self.value - self.bound <= ROUNDING_ERROR * abs(self.value)
        return OPTIMALITY_TOLERANCE if is_sharp else SOLVER_TOLERANCE


@dataclass(frozen=True, eq=False)
class CutCost:
    """A cost of two-sided nodes (see the module docstring).

    Parameters
    ----------
    first, second
        ``[num_nodes]`` cost of a node on either side, of any sign; infinite where it may not be. No node is infinite
        on both.
    split, any_first, any_second
        Nets.
    requires
        Two arrays of nodes: each of the first may be on the first side only if its partner in the second is. Some
        choice of sides meets all requirements.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    split: Nets | None = None
    any_first: Nets | None = None
    any_second: Nets | None = None
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
            The flow solver gives up.
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
        # below the first term nothing is left to gain, and a unit that hardly shrinks would change nothing
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
    """``[num_nodes]`` `nodes` and everything that they need, directly or not. O(nodes + pairs)."""
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
    """Arcs with capacities; nodes ``num_nodes`` and ``num_nodes + 1`` are source and sink, helpers follow.

    An arc leaves, and enters, a flow of `Cut`: that of a pin of a split net, or of a requirement, which come behind the
    pins; ``num_flows`` stands for none.
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
            # a pin that is merged becomes a terminal
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
        # what leaves the sink or enters the source is never cut
        useful = (tail != head) & (tail != sink) & (head != source) & (capacity > 0)
        return cls(
            num_nodes, num_flows, tail[useful], head[useful], capacity[useful], leaves[useful], enters[useful], merged
        )

    def solve(self, ceiling: float) -> tuple[NDArray[np.bool_], float, NDArray[np.float64]]:
        """Return sides of a minimum cut, its flow and the flows of pins, rounded down, if `ceiling` is no less."""
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
            return self.merged != sink, 0.0, np.zeros(self.num_flows)  # one of the terminals has no arc
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
    """Return arcs, and which flows they leave and enter."""

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
