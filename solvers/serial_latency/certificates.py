r"""Certificates of minimum cuts: the flow through every net, as prices that anybody can check.

1. Claim: a flow x through a net of weight w, with a value for every pin, proves that a cut costs at least the flow.
   Reason: every pin on the first side pays its x, and the pins together cannot pay more than w.
2. Two labels: the weight is :math:`w = c_0 + c_1`. A pin pays the share :math:`c_0 / w` of x on the first label and
   receives the rest on the second. The x of a net add up to 0, so the total is the same.
3. More labels: each label has a flow of its own.

The certificate (:class:`placekit.solve.certificates.Prices`) is checked exactly. So prices are rounded down to
multiples of a power of two that is small for their net: their sum is then exact and at most 0.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import sum_by
from placekit.solve.certificates import Directions, OrderedPrices, PricedEdge, PricedNet, Prices
from placekit.solvers.backends.flow import Cut
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.serial_latency.labels import Labels

MOST_PINS = 200_000
"""Largest number of pins for which a certificate is written, in about a second."""
DIGITS = 48
"""Bits of a price, relative to the largest price of its net."""
TRIM = 1 - 2.0**-43
"""Share of a flow that becomes prices; the rest covers the rounding of added capacities."""

PathWeights = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]
"""Senders, receivers and weights of the edges of paths, and the net of each; -1 for an edge inside a class."""


def joint_flow(labels: Labels, pin_flow: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``[pins, 2]`` the flow of a cut between two labels: paid on the first, received on the second."""
    weight = labels.net_time_s.sum(axis=1, keepdims=True)
    share = np.divide(labels.net_time_s, weight, out=np.zeros_like(labels.net_time_s), where=weight > 0)
    signs = np.array([1.0, -1.0])
    return np.repeat(share * signs, np.diff(labels.net_offsets), axis=0) * pin_flow[:, None]


def cut_prices(
    contraction: Contraction,
    labels: Labels,
    cut: Cut,
    memory_price_s: tuple[float, float] = (0.0, 0.0),
    paths: PathWeights | None = None,
) -> Prices | None:
    """Return the prices of one cut between at most two labels; see `flow_prices`."""
    if labels.num_labels < 2:
        return flow_prices(contraction, labels, np.zeros((len(labels.net_pins), 1)))
    return flow_prices(contraction, labels, joint_flow(labels, cut.pin_flow), memory_price_s, paths)


def flow_prices(
    contraction: Contraction,
    labels: Labels,  # costs of the contraction: first its nets, then those of `paths`
    flow_s: NDArray[np.float64],  # ``[pins, labels]`` seconds that the class of each pin pays for its net on each label
    memory_price_s: tuple[float, ...] = (),  # seconds per byte on each label; empty for none
    paths: PathWeights | None = None,  # edges along which subgraphs are counted
) -> Prices | None:
    """Return flows as a certificate; None if it would be too long."""
    if len(flow_s) > MOST_PINS:
        return None
    num_edges = 0 if paths is None else len(paths[0])
    loss = 0.0 if paths is None else _surplus(*paths[:3], contraction.problem.graph.num_ops)
    price = np.stack([_rounded_down(flow, labels.net_offsets, TRIM * (1 - loss)) for flow in flow_s.T], axis=1)
    pins, label_of_price = np.nonzero(price)  # rising, so that those of a net are together
    op_of_price = contraction.leader[labels.net_pins[pins]]
    prices = list(zip(label_of_price.tolist(), op_of_price.tolist(), price[pins, label_of_price].tolist(), strict=True))
    begin = np.searchsorted(pins, labels.net_offsets).tolist()
    columns = [tuple(prices[first:end]) for first, end in pairwise(begin)]
    tensors = np.argsort(contraction.net_of_tensor, kind="stable")  # those of no net, -1, come first
    first_tensor = np.searchsorted(contraction.net_of_tensor[tensors], np.arange(contraction.num_nets + 1)).tolist()
    in_net = pairwise(first_tensor)
    numbers = tensors.tolist()
    nets = [PricedNet(tuple(numbers[i:j]), column) for (i, j), column in zip(in_net, columns, strict=False) if column]
    edges = []
    if paths is not None:
        along = zip(*(column.tolist() for column in paths), strict=True)
        edges = [PricedEdge(u, v, w * (1 - loss), columns[n] if n >= 0 else ()) for u, v, w, n in along]
    one = ((1.0,),) * labels.num_labels
    return Prices(
        profile_of_device=tuple(labels.label_of_device.tolist()),
        work_weight=one,
        transfer_weight=one,
        memory_price=memory_price_s or (0.0,) * labels.num_labels,
        nets=tuple(nets),
        edges=tuple(edges) if num_edges else (),
    )


def directed_prices(
    contraction: Contraction,
    labels: Labels,  # the two devices, in this order, each a label of its own
    # cut with device 0 as the first side, and cut with device 1 as the first side; None if infeasible
    cuts: tuple[Cut | None, Cut | None],
) -> Directions | None:
    """Return the prices of two cuts: with all transfers from device 0 to device 1, and with all in reverse."""
    cases: list[OrderedPrices | None] = []
    for first, cut in enumerate(cuts):
        if cut is None:
            cases.append(None)
            continue
        flow = joint_flow(labels, cut.pin_flow if first == 0 else -cut.pin_flow)
        prices = flow_prices(contraction, labels, flow)
        if prices is None:
            return None
        used = np.flatnonzero(cut.requires_flow > 0)
        ends = _order_ops(contraction, used)
        cases.append(OrderedPrices(prices, tuple(zip(*ends, cut.requires_flow[used].tolist(), strict=True))))
    return Directions((cases[0], cases[1]))


def _order_ops(contraction: Contraction, edges: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return one edge between ops for each given edge between classes."""
    senders, receivers = contraction.problem.order_edges
    num_classes, of = contraction.num_classes, contraction.class_of_op
    keys, at = np.unique(of[senders] * num_classes + of[receivers], return_index=True)
    found = at[np.searchsorted(keys, contraction.senders[edges] * num_classes + contraction.receivers[edges])]
    return senders[found].tolist(), receivers[found].tolist()


def _surplus(
    senders: NDArray[np.int64], receivers: NDArray[np.int64], weight: NDArray[np.float64], num_ops: int
) -> float:
    """Return the share by which rounding may have raised the weights along one path."""
    supply = sum_by(senders, weight, num_ops) - sum_by(receivers, weight, num_ops)
    return max(float(supply[supply > 0].sum()) - 1, 0.0) + 4 * np.finfo(np.float64).eps * (len(weight) + 1)


def _rounded_down(flow: NDArray[np.float64], offsets: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Return ``[pins]`` a share of the flow in multiples of a unit per net, rounded so that its sum is at most 0."""
    if not len(flow):
        return flow
    sizes = np.diff(offsets)
    largest = np.maximum.reduceat(np.abs(flow), offsets[:-1])
    unit = np.ldexp(1.0, np.frexp(np.where(largest > 1e-250, largest, 1.0))[1] - DIGITS)
    units = np.floor(flow * share / np.repeat(unit, sizes))
    units[np.repeat(largest <= 1e-250, sizes)] = 0.0
    units[offsets[:-1]] -= np.maximum(np.add.reduceat(units, offsets[:-1]), 0.0)
    price: NDArray[np.float64] = units * np.repeat(unit, sizes)
    return price
