"""Method ``by-depth``: the graph in bands of equal depth, one for each device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import placekit as pk


@dataclass(frozen=True, slots=True)
class ByDepthParams:
    """Parameters of `ByDepth`.

    Parameters
    ----------
    bands
        Number of bands, at most one for each device; one for each if None.
    """

    bands: int | None = None


class ByDepth(pk.Method):
    """Bands of depth in order: no edge goes back, so the devices form a pipeline."""

    name = "by-depth"
    params_type = ByDepthParams
    argument = "bands"
    params: ByDepthParams

    def run(self, run: pk.Run) -> pk.StopReason:
        """Offer the one placement."""
        graph, num_devices = run.problem.graph, run.problem.platform.num_devices
        depth = np.zeros(graph.num_ops, dtype=np.int64)
        for op in graph.order:
            depth[op] = max((depth[u] + 1 for u in graph.senders[graph.receivers == op]), default=0)
        bands = min(self.params.bands or num_devices, num_devices)
        run.offer(depth * bands // (depth.max() + 1))
        return pk.StopReason.FINISHED
