r"""Alpha-expansion: the best move of any set of classes to one device, by one minimum cut.

A class is on the first side if it moves to :math:`\alpha`, and on the second if it keeps its label. After the move a
net whose pins have the labels D costs :math:`\sum_{d \in D} c_d`, or nothing if D is one label. With :math:`G_d` the
pins that have label d now, this is

.. math::

   \sum_{d \ne \alpha} c_d [\text{some pin of } G_d \text{ keeps}] + c_\alpha [\text{some pin moves}]
   - c_\alpha [\text{all pins move}] - [G_{d_0} \text{ is the whole net}]\, c_{d_0} [\text{all pins keep}]

(pins that already have :math:`\alpha` count as moved).

1. :math:`-[\text{all pins move}]` is :math:`[\text{some pin keeps}] - 1`. So every term is a weight times "some pin is
   on this side". That is submodular, and the best expansion is a minimum cut
   (:mod:`placekit.solvers.backends.flow`).
2. If one label :math:`d_0 \ne \alpha` holds the whole net, the terms add up to :math:`(c_\alpha + c_{d_0})` times "pins
   on both sides": a split net.
3. Otherwise the last term is 0, and the other terms are nets of their own.

References
----------
Boykov, Veksler and Zabih, "Fast approximate energy minimization via graph cuts", IEEE PAMI 23(11), 2001. The form of
the net cost is ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.backends.flow import Cut, CutCost, Nets
from placekit.solvers.serial_latency.labels import Labels


def expansion_cost(
    labels: Labels,
    label: NDArray[np.int64],  # ``[num_classes]`` labels of a placement that breaks no pin
    alpha: int,  # label that classes may move to
) -> tuple[CutCost, float]:
    """Return the cost of moving classes to `alpha` (the first side), and a constant to add. O(pins log pins)."""
    num_nets, num_labels = len(labels.net_time_s), labels.num_labels
    classes = np.arange(len(label))
    first = labels.time_s[:, alpha]
    second = np.where(label == alpha, np.inf, labels.time_s[classes, label])
    sizes = np.diff(labels.net_offsets)
    net_of_pin = np.repeat(np.arange(num_nets), sizes)
    # a group: the pins of one net that have the same label now
    key = net_of_pin * num_labels + label[labels.net_pins]
    by_group = np.argsort(key, kind="stable")
    groups, starts = np.unique(key[by_group], return_index=True)
    net, of_label = np.divmod(groups, num_labels)
    group_sizes = np.diff(np.append(starts, len(key)))
    is_whole = group_sizes == sizes[net]
    weight = labels.net_time_s[net, of_label]

    whole = net[is_whole & (of_label != alpha)]
    split = _select(labels, whole, labels.net_time_s[whole, alpha] + weight[is_whole & (of_label != alpha)])
    # nets of several labels: a label other than alpha is paid while one of its pins keeps it; then the terms of alpha
    is_part = ~is_whole & (of_label != alpha)
    in_part = np.repeat(is_part, group_sizes)
    parts = Nets(
        np.concatenate([[0], np.cumsum(group_sizes[is_part])]).astype(np.int64),
        labels.net_pins[by_group][in_part],
        weight[is_part],
    )
    mixed = np.unique(net[~is_whole])
    at_alpha = labels.net_time_s[mixed, alpha]
    moves, keeps = _select(labels, mixed, at_alpha), _select(labels, mixed, at_alpha)
    both = Nets(
        np.concatenate([parts.offsets, parts.offsets[-1] + keeps.offsets[1:]]),
        np.concatenate([parts.pins, keeps.pins]),
        np.concatenate([parts.weight, keeps.weight]),
    )
    return CutCost(first, second, split=split, any_first=moves, any_second=both), -float(at_alpha.sum())


def _select(labels: Labels, nets: NDArray[np.int64], weight: NDArray[np.float64]) -> Nets:
    sizes = np.diff(labels.net_offsets)[nets]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes) + np.repeat(labels.net_offsets[nets], sizes)
    return Nets(offsets, labels.net_pins[at], weight)


def expand_label(labels: Labels, label: NDArray[np.int64], alpha: int) -> NDArray[np.int64]:
    """Return the labels after the best expansion of `alpha`."""
    cost, _ = expansion_cost(labels, label, alpha)
    return np.where(cost.minimise().is_first, alpha, label)


def expansions(
    labels: Labels, label: NDArray[np.int64], should_stop: Callable[[], bool] | None = None
) -> NDArray[np.int64]:
    """Return labels that no expansion improves, starting from `label`, or those reached when `should_stop` is True.

    Notes
    -----
    One flow per label and round; a round that gains less than one part in 1e9 is the last.
    """
    value = labels.value_s(label)
    idle = 0
    alpha = 0
    while idle < labels.num_labels and not (should_stop is not None and should_stop()):
        candidate = expand_label(labels, label, alpha)
        reached = labels.value_s(candidate)
        idle = 0 if reached < value * (1 - 1e-9) else idle + 1
        if reached < value:
            label, value = candidate, reached
        alpha = (alpha + 1) % labels.num_labels
    return label


def best_labels(labels: Labels, should_stop: Callable[[], bool] | None = None) -> tuple[NDArray[np.int64], Cut | None]:
    """Return ``[num_classes]`` labels, and the cut that proves them optimal if there are at most two labels.

    With more labels, alpha-expansion improves the fastest label of every class.
    """
    if labels.num_labels <= 2:
        second = labels.time_s[:, 1] if labels.num_labels == 2 else np.full(len(labels.time_s), np.inf)
        split = labels.nets(labels.net_time_s.sum(axis=1)) if labels.num_labels == 2 else None
        cut = CutCost(labels.time_s[:, 0], second, split=split).minimise()
        return np.where(cut.is_first, 0, 1), cut
    return expansions(labels, np.argmin(labels.time_s, axis=1), should_stop), None
