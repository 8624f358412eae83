"""Method ``scotch``: static mapping onto devices of different speed by Scotch.

The graph, its weights, the sets of devices and the repairs are those of ``metis``
(:mod:`placekit.solvers.generic.metis`). Scotch maps the graph onto a complete graph of devices, each weighted by how
fast it is, with recursive bipartitioning: the baseline of Tarnawski et al.

References
----------
Pellegrini and Roman, "Scotch: a software package for static mapping by dual recursive bipartitioning of process and
architecture graphs", HPCN Europe 1996.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from placekit.solve.method import Run
from placekit.solvers.generic.coarsen import Contraction
from placekit.solvers.generic.metis import Metis, expand_nets, main_kind, shares_of_work

MOST_WEIGHT = 10_000
"""Weight of the fastest device: Scotch takes whole numbers."""


class Scotch(Metis):
    """Static mapping by Scotch through pyscotch; parts in proportion to the speed of the devices."""

    name = "scotch"

    def _partition(self, run: Run, contraction: Contraction, devices: list[int]) -> NDArray[np.int64]:
        """``[num_classes]`` positions in `devices`: one part per device, in proportion to its speed."""
        import pyscotch

        share = shares_of_work(contraction, devices)
        graph = expand_nets(contraction, main_kind(run.problem, contraction))
        pyscotch.random_seed(run.seed % 2**31)
        pyscotch.random_reset()
        strategy = pyscotch.Strategy()
        strategy.request_mapping(balance=self.params.imbalance)
        with pyscotch.Architecture() as target, pyscotch.Graph() as source:
            target.complete_weighted(len(devices), np.maximum(1, np.rint(share / share.max() * MOST_WEIGHT)))
            source.build(graph.offsets, graph.neighbours, velotab=graph.node_weight, edlotab=graph.edge_weight)
            return np.array(source.map(target, strategy), dtype=np.int64)
