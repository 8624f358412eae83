"""Clusters for the makespan search: ops that stay together, because a transfer between them would take too long.

Where transfers take longer than ops, a better schedule differs from the current one by whole parts of the graph, and
every move of a single op on the way there makes the schedule worse. With clusters, such a part is a single move.
"""

from __future__ import annotations

import numpy as np

from placekit.arrays import sum_by
from placekit.model.problem import Problem
from placekit.solvers.makespan.schedule.sequence import SequenceProblem

NOISE = 1.0
"""Spread of the noise on the logarithm of the transfer times by which edges are sorted."""


def clustered(problem: Problem, flat: SequenceProblem, rng: np.random.Generator) -> Problem | None:
    """Return the problem with the ops of each cluster bound to one device; None if no two ops join.

    Two clusters join along an edge if its transfer takes longer than all ops of the smaller cluster: apart, the two
    gain less than the transfer costs. Longer transfers come first (edge zeroing, Sarkar 1989), with noise. Some device
    has room for every cluster. The clusters of a clustered problem are final: no two of them join.

    Parameters
    ----------
    problem
        The problem to cluster.
    flat
        Its arrays.
    rng
        Source of the noise.

    Notes
    -----
    O(edges * (log edges + devices)).
    """
    instance = flat.instance
    class_of_op, allowed, num_bytes = instance.class_of_op, flat.allowed.copy(), flat.class_bytes.copy()
    work_s = sum_by(class_of_op, flat.time_s.min(axis=1), len(num_bytes))
    producers, transfer_s = instance.producer[instance.tensor_of_reader], 2.0 * flat.link_s.mean(axis=1)
    senders, receivers = class_of_op[producers], class_of_op[instance.readers]
    edge_s = transfer_s[instance.tensor_of_reader]
    parent = np.arange(len(num_bytes))

    def root(c: int) -> int:
        while parent[c] != c:
            parent[c] = parent[parent[c]]
            c = parent[c]
        return c

    for i in np.argsort(-edge_s * np.exp(NOISE * rng.standard_normal(len(edge_s)))).tolist():
        a, b = root(senders[i]), root(receivers[i])
        if a == b or min(work_s[a], work_s[b]) >= edge_s[i]:
            continue
        shared = allowed[a] & allowed[b] & (num_bytes[a] + num_bytes[b] <= instance.limit_bytes)
        if shared.any():
            parent[b], allowed[a] = a, shared
            work_s[a] += work_s[b]
            num_bytes[a] += num_bytes[b]
    roots = np.array([root(c) for c in range(len(parent))])
    if np.array_equal(roots, np.arange(len(parent))):
        return None
    return problem.replace(colocation=flat.class_ops[flat.class_offsets[:-1]][roots][class_of_op])
