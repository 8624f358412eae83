"""Transfer time of one tensor between two devices: over a direct link, or through host memory."""

from __future__ import annotations

from placekit.kernels import njit
from placekit.objectives.makespan.arrays import MakespanInstance


@njit(inline=True)
def move_s(instance: MakespanInstance, tensor: int, source: int, target: int) -> float:
    """Return the seconds of `tensor` from device `source` to another one, `target`; anything finite for the same."""
    if instance.direct_s.shape[1] > 0:
        link = instance.link[instance.group[source], instance.group[target]]
        if link >= 0:
            return float(instance.direct_s[tensor, link])
    out_s, in_s = instance.transfer_s[tensor, instance.kind[source]], instance.transfer_s[tensor, instance.kind[target]]
    return float(out_s + in_s)
