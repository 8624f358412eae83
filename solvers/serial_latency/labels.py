r"""Labels of a cut: the devices that differ for the cut.

Device e *dominates* device d if every class allowed on d is allowed on e and costs no more there, and no net costs more
on e than on d.

1. Claim: moving everything from d to e never raises work plus transfers. Reason: work does not grow, and a net that
   touched d now touches e, which costs no more.
2. So d can be left out. Two devices of one kind dominate each other unless a pin distinguishes them.
3. Conclusion: without memory limits, contiguity and cost per subgraph, **one device of each kind is enough**.

With these three the problem needs all devices, and the cut is only a lower bound:

- Memory: two devices hold more than one.
- Contiguity: two convex parts together need not be convex.
- Subgraphs: merging can *raise* their number. Let A1 and A2 be of one kind and B of another. The chains A1 -> A2 -> B
  and B -> A2 -> B run as four subgraphs (0, A1), (0, B), (1, A2), (2, B). With A1 and A2 merged there are five: B at
  the levels 0, 1 and 2, A at 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.solvers.backends.flow import Nets
from placekit.solvers.generic.coarsen import Contraction


@dataclass(frozen=True, eq=False)
class Labels:
    """Costs of a contracted problem on the devices that differ for the cut."""

    devices: NDArray[np.int64]  # ``[num_labels]`` device of each label, ascending
    time_s: NDArray[np.float64]  # ``[num_classes, num_labels]`` seconds; infinite if the class is not allowed there
    # net_offsets, net_pins: nets of the contraction
    net_offsets: NDArray[np.int64]
    net_pins: NDArray[np.int64]
    # ``[num_nets, num_labels]`` seconds of a net that has pins with the label and others
    net_time_s: NDArray[np.float64]
    # ``[num_devices]`` label that dominates each device; a device with a label has its own
    label_of_device: NDArray[np.int64]

    @property
    def num_labels(self) -> int:
        """Number of labels."""
        return len(self.devices)

    def nets(self, weight: NDArray[np.float64]) -> Nets:
        """Return the nets with the ``[num_nets]`` weights."""
        return Nets(self.net_offsets, self.net_pins, weight)

    def value_s(self, label: NDArray[np.int64]) -> float:
        """Return work and transfers of ``[num_classes]`` labels in seconds; infinite if one may not be there."""
        total = float(self.time_s[np.arange(len(label)), label].sum())
        touches = np.stack(
            [self.nets(self.net_time_s[:, k]).any_on(label == k) for k in range(self.num_labels)], axis=1
        )
        is_split = touches.sum(axis=1) > 1
        return total + float((self.net_time_s * touches)[is_split].sum())


def labels_of(
    contraction: Contraction,  # the contracted problem, of which every class has at least one device
    *,
    across_kinds: bool = True,  # False to compare devices of one kind only, as a price on a kind's memory asks for
) -> Labels:
    """Return the devices that no other one dominates, and the costs there. O(devices**2 * (classes + nets))."""
    kind = contraction.problem.platform.kind_of_device
    allowed = contraction.allowed
    time_s = np.where(allowed, contraction.time_s.sum(axis=2)[:, kind], np.inf)
    net_time_s = contraction.net_time_s.sum(axis=2)[:, kind]

    def dominates(e: int, d: int) -> bool:
        if kind[e] == kind[d]:
            return bool((allowed[:, e] | ~allowed[:, d]).all())
        return across_kinds and bool(
            (time_s[:, e] <= time_s[:, d]).all() and (net_time_s[:, e] <= net_time_s[:, d]).all()
        )

    # the relation is transitive: whatever is left out is dominated by something that stays
    devices = [
        d
        for d in range(len(kind))
        if not any(e != d and dominates(e, d) and (e < d or not dominates(d, e)) for e in range(len(kind)))
    ]
    label_of_device = [
        devices.index(d) if d in devices else next(k for k, e in enumerate(devices) if dominates(e, d))
        for d in range(len(kind))
    ]
    return Labels(
        np.array(devices, dtype=np.int64),
        time_s[:, devices],
        contraction.net_offsets,
        contraction.net_pins,
        net_time_s[:, devices],
        np.array(label_of_device, dtype=np.int64),
    )
