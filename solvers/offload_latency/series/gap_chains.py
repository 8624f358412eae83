r"""Lower bound for one call inside a gap, from disjoint chains of the gap.

Let the nodes between two ideals of a gap run on the host, except for one call. They take T seconds, and the call D of
these. Let the *chains* :math:`P_i` be disjoint paths that take :math:`L_i` seconds on the host.

1. A chain that is longer than T cannot stay on the host.
2. The call is convex, so the nodes of a chain in the call are neighbours in the chain. The nodes before and after them
   run on the host, while the call does not run: they take at most :math:`y = T - D`.
3. So the call holds a part of the chain that takes at least :math:`L_i - y` on the host. Let :math:`g_i` be the least
   work and transfers of such a part.
4. No net is counted twice, so

.. math:: T \ge \min_k \max \Bigl( L_{(k+1)},\; \min_y y + \sum_{i \le k} g_{(i)}(L_{(i)} - y) \Bigr)

with the chains by falling length. A single path (:mod:`placekit.solvers.offload_latency.series.series_kernels`) does
not see that parallel branches share a call, which does their work one after another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placekit.kernels import njit
from placekit.solvers.offload_latency.series.spine import Series

MAX_CHAINS = 6
"""Chains of a gap that are looked at."""
MAX_STEPS = 16
"""Parts of a chain that are told apart."""


class Chains(NamedTuple):
    """The chains of a gap."""

    # ``[chains, ideals of the gap]`` seconds on the host of the nodes of the chain that are in the ideal
    length_s: NDArray[np.float64]
    # step_offsets, step_host_s, step_call_s: CSR lists for each chain: rising seconds on the host, and the least
    # seconds in a call of a part of the chain that takes at least so long on the host
    step_offsets: NDArray[np.int64]
    step_host_s: NDArray[np.float64]
    step_call_s: NDArray[np.float64]
    slack_s: float  # largest rounding error of sums of seconds on the host


def chains_of(
    series: Series,
    number: int,  # number of the gap
    # as of :func:`~placekit.solvers.offload_latency.series.series_arrays.inputs_of`
    inputs: list[list[tuple[int, float, bool]]],
    # host_s, call_s, out_s: ``[N]`` seconds of each node on a host, in a call, and to move one of its outputs
    host_s: NDArray[np.float64],
    call_s: NDArray[np.float64],
    out_s: NDArray[np.float64],
    *,
    most: int = MAX_CHAINS,  # number of chains
) -> Chains:
    """Return disjoint paths of a gap, the longest on the host first. O(chains * nodes * (nodes + ideals))."""
    nodes = series.nodes_of_gap(number).tolist()
    begin, end = series.ideal_offsets[number : number + 2].tolist()
    # a node that no host can run takes longer there than all others together; infinity would spoil the sums
    longest = 4 * float(sum(times[nodes][np.isfinite(times[nodes])].sum() for times in (host_s, call_s)))
    host = {v: min(float(host_s[v]), longest) for v in nodes}
    chains: list[list[int]] = []
    left = dict.fromkeys(nodes)
    while left and len(chains) < most:
        until: dict[int, float] = {}
        previous: dict[int, int] = {}
        for v in left:
            before = max((u for u, _, _ in inputs[v] if u in until), key=until.__getitem__, default=-1)
            until[v] = host[v] + until.get(before, 0.0)
            previous[v] = before
        v = max(until, key=until.__getitem__)
        chain = [v]
        while (v := previous[v]) >= 0:
            chain.append(v)
        chains.append(chain[::-1])
        for v in chain:
            del left[v]
    is_read = {u for v in nodes for u, _, _ in inputs[v]}
    length_s, steps = np.zeros((len(chains), end - begin)), []
    for i, chain in enumerate(chains):
        for v in chain:
            length_s[i, series.mask[begin:end] >> nodes.index(v) & 1 == 1] += host[v]
        steps.append(_steps(chain, set(nodes), is_read, inputs, host, call_s, out_s))
    return Chains(
        length_s,
        step_offsets=np.cumsum([0, *map(len, steps)], dtype=np.int64),
        step_host_s=np.array([least for each in steps for least, _ in each], dtype=np.float64),
        step_call_s=np.array([cost for each in steps for _, cost in each], dtype=np.float64),
        slack_s=1e-12 * sum(host.values()),
    )


def _steps(
    chain: list[int],
    gap: set[int],
    is_read: set[int],
    inputs: list[list[tuple[int, float, bool]]],
    host: dict[int, float],
    call_s: NDArray[np.float64],
    out_s: NDArray[np.float64],
) -> list[tuple[float, float]]:
    """Return (seconds on the host, least seconds in a call) of parts of a chain, both rising.

    A part is an interval of the chain. The inputs of its first node move in: from its predecessor in the chain, or from
    before the gap if no other node of the gap reads them. The output of its last node moves out if the chain goes on,
    or if its readers are behind the gap.
    """
    parts = []
    for i, first in enumerate(chain):
        host_s = lasts = 0.0
        for u, seconds, is_alone in inputs[first]:
            if u == chain[i - 1] if i else u not in gap and is_alone:
                lasts += seconds
        for j, last in enumerate(chain[i:], i):
            host_s, lasts = host_s + host[last], lasts + float(call_s[last])
            leaves = out_s[last] if j + 1 < len(chain) or last not in is_read else 0.0
            parts.append((host_s, lasts + float(leaves)))
    parts.sort()
    rising: list[tuple[float, float]] = []
    least = np.inf
    for host_s, cost in reversed(parts):
        if cost < least:
            least = cost
            rising.append((host_s, cost))
    rising.reverse()
    while len(rising) > MAX_STEPS:  # a step that is left out costs as little as the one before it
        k = min(range(1, len(rising)), key=lambda k: rising[k][1] - rising[k - 1][1])
        rising[k - 1 : k + 1] = [(rising[k][0], rising[k - 1][1])]
    return rising


@njit(inner=True)
def _least_cost(chain: int, host_s: float, chains: Chains) -> float:
    """Return the least seconds of a call with a part of the chain that takes `host_s` or more on the host."""
    low, high = chains.step_offsets[chain], chains.step_offsets[chain + 1]
    while low < high:
        middle = (low + high) // 2
        if chains.step_host_s[middle] < host_s:
            low = middle + 1
        else:
            high = middle
    return np.inf if low == chains.step_offsets[chain + 1] else chains.step_call_s[low]


@njit(inner=True)
def one_call(source: int, target: int, chains: Chains, length: NDArray[np.float64], chain: NDArray[np.int64]) -> float:
    """Return the bound T of the module docstring in seconds, for the nodes between two ideals of the gap.

    O(chains**3 * steps * log steps). ``length`` and ``chain`` are ``[chains]`` scratch.
    """
    num_chains, best = len(chains.length_s), np.inf
    for i in range(num_chains):
        host_s = chains.length_s[i, target] - chains.length_s[i, source]
        at = i
        while at > 0 and length[at - 1] < host_s:
            length[at], chain[at] = length[at - 1], chain[at - 1]
            at -= 1
        length[at], chain[at] = host_s, i
    for k in range(num_chains + 1):
        least = 0.0 if k == 0 else np.inf
        for i in range(k):
            first, last = chains.step_offsets[chain[i]], chains.step_offsets[chain[i] + 1]
            for step in range(first, last):
                rest = max(length[i] - chains.step_host_s[step], 0.0)
                if rest >= least:
                    continue
                total = rest
                for j in range(k):
                    total += _least_cost(chain[j], length[j] - rest - chains.slack_s, chains)
                least = min(least, total)
                if rest == 0.0:
                    break
        best = min(best, max(least, length[k] if k < num_chains else 0.0))
        if least >= best:
            break
    return best
