"""Method ``metis``: a general graph partitioner, which balances work and minimises the total cut.

1. The hypergraph becomes a graph by *star expansion*: every net becomes one edge from its producer to each reader, with
   the net's time divided by the number of readers (so that a net that leaves one reader behind costs a share).
2. Times become whole numbers, `RESOLUTION` for all of the work, at least 1 per class and per edge.
3. The kind of device that together does all work soonest gets equal parts, and the other kinds are left empty. METIS
   is asked a second time for one part per device of any kind, weighted by how fast the device is.
4. The partition is repaired (:mod:`placekit.solvers.generic.repair`): pins and support first, then memory, then
   contiguity where the problem asks for it. The judge scores every stage, and keeps the best that is feasible.

METIS minimises the *sum* of the cut edges at equal work, not the largest load, and knows no memory and no order: a gap
to the optimum is a property of that objective.

References
----------
Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM J. Sci. Comput.
20 (1998).
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placekit.model.errors import InvalidProblemError
from placekit.model.problem import Problem
from placekit.solve.method import Method, Run
from placekit.solve.stop import StopReason
from placekit.solvers.generic.class_order import device_work_s, main_group, needs_chain, total_time_s
from placekit.solvers.generic.coarsen import Contraction, contract
from placekit.solvers.generic.repair import make_acyclic, move_to_allowed, relieve_memory
from placekit.solvers.generic.teams.fixed import on_partitions

logger = logging.getLogger(__name__)

RESOLUTION = 1_000_000
"""Whole-number weight of all work together: fits the 32-bit sums of METIS with room to spare."""

MAX_SLOWNESS = 1e3
"""Devices that are slower than the fastest by more than this factor get no part of their own."""


@dataclass(frozen=True, slots=True)
class PartitionParams:
    """Parameters of `Metis`.

    Parameters
    ----------
    imbalance
        Allowed excess of a part over its share of the work.
    """

    imbalance: float = 0.03

    def __post_init__(self) -> None:
        if not 0.001 <= self.imbalance <= 1:
            raise InvalidProblemError(f"imbalance is {self.imbalance}; it must be between 0.001 and 1")


@dataclass(frozen=True, eq=False)
class WeightedGraph:
    """An undirected graph with whole weights, in CSR form; every edge is stored at both ends."""

    node_weight: NDArray[np.int64]  # ``[num_nodes]``
    # offsets, neighbours, edge_weight: node v is joined to ``neighbours[offsets[v]:offsets[v + 1]]``
    offsets: NDArray[np.int64]
    neighbours: NDArray[np.int64]
    edge_weight: NDArray[np.int64]


def expand_nets(
    contraction: Contraction,
    # index of the kind whose times count; for classes that it does not support, those of the fastest that does
    kind: int,
) -> WeightedGraph:
    """Return the graph of a contracted problem with the times of one kind of device."""
    weight: dict[tuple[int, int], float] = {}
    net_time_s = contraction.net_time_s[:, kind].sum(axis=1).tolist()
    for n, time_s in enumerate(net_time_s):
        pins = contraction.pins_of(n).tolist()
        for reader in pins[1:]:
            key = (min(pins[0], reader), max(pins[0], reader))
            weight[key] = weight.get(key, 0.0) + time_s / (len(pins) - 1)
    time = total_time_s(contraction)
    platform = contraction.problem.platform
    kinds = [platform.devices_of_kind(k) for k in range(len(platform.kinds))]
    supported = np.stack([contraction.allowed[:, devices].any(axis=1) for devices in kinds], axis=1)
    fastest = np.where(supported, time, np.inf).min(axis=1)
    of_kind = np.where(supported[:, kind], time[:, kind], np.where(np.isfinite(fastest), fastest, 0.0))
    unit = RESOLUTION / max(float(of_kind.sum()), 1e-290)
    ends = np.array(list(weight), dtype=np.int64).reshape(-1, 2)
    values = np.array(list(weight.values()))
    values = np.clip(np.rint(values * unit), 1, RESOLUTION).astype(np.int64)
    source, target = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    along = np.lexsort((target, source))
    return WeightedGraph(
        np.maximum(np.rint(of_kind * unit), 1).astype(np.int64),
        np.searchsorted(source[along], np.arange(contraction.num_classes + 1)).astype(np.int64),
        target[along],
        np.tile(values, 2)[along],
    )


class Metis(Method):
    """K-way partitioning by METIS through pymetis; parts in proportion to the speed of the devices."""

    name = "metis"
    params_type = PartitionParams
    params: PartitionParams

    @on_partitions
    def run(self, run: Run) -> StopReason:
        """Partition, and offer the partition and its repairs."""
        contraction = contract(run.problem)
        for devices in _device_sets(run.problem, contraction):
            reason = run.should_stop()
            if reason is not None and run.evaluations:
                return reason
            part = np.full(contraction.num_classes, devices[0], dtype=np.int64)
            if len(devices) > 1 and contraction.num_classes > 1:
                part = np.array(devices, dtype=np.int64)[self._partition(run, contraction, devices)]
            self._offer_repaired(run, contraction, part)
        return StopReason.FINISHED

    def _offer_repaired(self, run: Run, contraction: Contraction, part: NDArray[np.int64]) -> None:
        repaired = relieve_memory(contraction, move_to_allowed(contraction, part))
        logger.debug("%s: %d classes moved for support and memory", self.name, int((repaired != part).sum()))
        run.offer(contraction.expand(repaired))
        if not needs_chain(run.problem):
            return
        for forward in (True, False):
            chain = make_acyclic(contraction, repaired, forward=forward)
            logger.debug("%s: %d classes moved for contiguity", self.name, int((chain != repaired).sum()))
            run.offer(contraction.expand(chain))

    def _partition(self, run: Run, contraction: Contraction, devices: list[int]) -> NDArray[np.int64]:
        """``[num_classes]`` positions in `devices`: one part per device, in proportion to its speed."""
        import pymetis

        share = shares_of_work(contraction, devices)
        graph = expand_nets(contraction, main_kind(run.problem, contraction))
        options = pymetis.Options(seed=run.seed % 2**31, ufactor=max(1, round(self.params.imbalance * 1000)), ncuts=4)
        with quiet_stdout():  # METIS prints its doubts about more parts than it can fill
            answer = pymetis.part_graph(
                len(devices),
                pymetis.CSRAdjacency(graph.offsets.tolist(), graph.neighbours.tolist()),
                vweights=graph.node_weight.tolist(),
                eweights=graph.edge_weight.tolist(),
                tpwgts=share.tolist(),
                options=options,
            )
        return np.array(answer[1], dtype=np.int64)


def shares_of_work(contraction: Contraction, devices: list[int]) -> NDArray[np.float64]:
    """Return the share of each device of all work, by how fast it is; partitioners refuse parts of almost no work."""
    work = device_work_s(contraction)[devices]
    share = 1.0 / np.clip(work / max(float(work.min()), 1e-290), 1.0, MAX_SLOWNESS)
    return np.array(share / share.sum())


def main_kind(problem: Problem, contraction: Contraction) -> int:
    """Return the index of the kind of device that together does all work soonest."""
    return int(problem.platform.kind_of_device[main_group(problem, contraction)[0]])


def _device_sets(problem: Problem, contraction: Contraction) -> list[list[int]]:
    """Return the main kind's devices, and all devices but those of next to no speed; the judge keeps the better."""
    work = device_work_s(contraction)
    able = np.flatnonzero(work <= max(float(work.min()), 1e-290) * MAX_SLOWNESS).tolist()
    main = main_group(problem, contraction)
    return [main] if sorted(main) == able or not able else [main, able]


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """Discard what C code prints inside the ``with`` block; output of other threads is lost, too.

    Without a standard output, or without POSIX to redirect it, nothing happens.
    """
    if os.name != "posix":
        yield
        return
    try:
        kept = os.dup(1)
    except OSError:
        yield
        return
    libc = ctypes.CDLL(None)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        libc.fflush(None)  # what was printed before is to be seen
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        yield
    finally:
        libc.fflush(None)  # C buffers: what was printed inside must leave before the way out is back
        os.dup2(kept, 1)
        os.close(kept)
