r"""Bounds from prices: weak duality in exact arithmetic.

Let y, z, s, μ be at least 0: weights of work and of transfers per device and pass, of the time of single
groups, and prices of memory. Each objective is at least a weighted sum of loads, if the weights keep its rule:

=================  ===================================================================================================
throughput         per pass :math:`\sum_d \max(y_d, z_d) + \sum_v s_v \le 1` (with overlap :math:`y_d + z_d`): no load
                   is above the largest, and each is at least the time of each group on it
serial-latency     :math:`y_d \le 1, z_d \le 1`, no s: the objective is the sum of all loads
makespan           z = 0 (transfers overlap with work) and :math:`\sum_d y_d + \sum_v s_v \le 1`
offload-latency    :math:`\sum_d \max(y_d, z_d) \le 1` over accelerators, whose calls follow one another; hosts are wide
=================  ===================================================================================================

A net's transfer time on d is paid when d holds some but not all of the groups that it touches. Prices
:math:`a_{nvd}` of groups v that all tensors of the net touch stay below that payment for every placement if, for each
d, all of them add up to at most 0 and the positive ones to at most :math:`z_d c_{nd}`: a flow through the net within
its capacity. And on every device the bytes stay within the limit. So

.. math:: objective \ge \sum_v \min_{d \text{ allowed}} \Bigl( \sum_p (y_{dp} + s_{vp}) t_{vdp} + \mu_d m_v
          + \sum_n a_{nvd} \Bigr) - \sum_d \mu_d M_d .

With teams a device works for its share of the samples only and holds everything: in every sum over devices the share
of each is between 0 and 1, those of a team add up to 1, and the least over d is no more than their mean. So all of this
holds as it is, but for s, which counts for :math:`s_v t_{vdp} / n` where n devices are of the kind of d, and not at all
where teams mix kinds.

Devices that share a memory of size M pay :math:`M \max_d \mu_d` together, if that is less than their limits.

If all weights are 0 and the value is above 0, then no placement keeps the memory limits. A cost per subgraph of the
serial latency comes on top: either one device holds everything, or there are two subgraphs or more, one for every
device that must be used.

**Edges with a weight.** The ops of a path with j device changes run in j + 1 subgraphs at least. Weights
:math:`f_{uv} \ge 0` of edges that are an average of paths (what leaves the ops beyond what enters them adds up to 1 at
most) say the same: with a cost a per subgraph the serial latency is at least work, transfers and
:math:`a (1 + \sum f_{uv} [x_u \ne x_v])`. Either end of a change pays half, by prices as for a net.

**Directions.** Of two devices under contiguity `acyclic` one comes first: no op on it needs an op on the other one,
directly or not. So where the order graph has an edge from u to v, the device that comes first holds u if it holds v. A
price of at least 0 that v pays on the first device, and u receives there, takes nothing from any such placement, so it
may be added to the others. Each case has prices of its own, and the smaller bound is one of all placements.
"""

from __future__ import annotations

import math
from fractions import Fraction

from placekit.model.errors import InvalidCertificateError
from placekit.objectives import Makespan, OffloadLatency, SerialLatency, Throughput
from placekit.solve.certificates import Directions, PricedEdge, PricedNet, Prices
from placekit.verification.exact import ExactProblem, fits, rounded

NOTHING_FEASIBLE = math.inf
"""The bound of a problem without any feasible placement."""

Bound = Fraction | float
"""Seconds, exactly; or `NOTHING_FEASIBLE`."""


def group_of(exact: ExactProblem, op: int) -> int:
    """Return the group of `op`.

    Raises `InvalidCertificateError`: there is no such op.
    """
    if not 0 <= op < exact.num_ops:
        raise InvalidCertificateError(f"certificate names op {op}; the problem has {exact.num_ops}")
    return exact.group_of[op]


def priced_value(
    exact: ExactProblem, certificate: Prices, order_prices: dict[tuple[int, int], Fraction] | None = None
) -> Bound:
    """Return what prices prove, in seconds; see the module docstring.

    `order_prices` are seconds that each (profile, group) pays besides, because of the order of devices. Raises
    `InvalidCertificateError`: they are no prices of this problem, or break a rule.
    """
    variant = exact.problem.objective
    is_split = isinstance(variant, Throughput) and variant.schedule == "gpipe"
    pass_of = [int(is_split and backward) for backward in exact.is_backward]
    num_passes = 2 if is_split else 1
    work, transfer = _weights(exact, certificate, num_passes)
    price = [Fraction(p) for p in certificate.memory_price]
    profile, kinds = certificate.profile_of_device, exact.kind
    alone = _op_weights(exact, certificate, num_passes)
    _check_rule(exact, certificate, work, transfer, alone)
    handed = _handed_out(exact, certificate, transfer, pass_of)
    for parts in (_along_paths(exact, certificate), order_prices or {}):
        for key, seconds in parts.items():
            handed[key] = handed.get(key, Fraction(0)) + seconds

    in_teams = exact.team_rule == "equal"
    unit = _memory_unit(exact)
    value = Fraction(0)
    nothing = [Fraction(0)] * num_passes
    for group, ops in enumerate(exact.groups):
        size = sum(exact.memory[op] for op in ops) * unit
        options = {(kinds[d], profile[d]): d for d in exact.allowed[group]}
        cheapest = None
        for (_, at), d in options.items():
            cost = price[at] * size + handed.get((at, group), 0)
            for p in range(num_passes):
                factor = work[at][p] + alone.get(group, nothing)[p] / (exact.num_equals(d) if in_teams else 1)
                if factor:
                    cost += factor * exact.seconds(sum(exact.ticks(op, d) for op in ops if pass_of[op] == p))
            cheapest = cost if cheapest is None else min(cheapest, cost)
        value += cheapest or 0
    tolerance = 1 + Fraction(1, 10**12)
    room = [price[profile[d]] * (limit or 0) for d, limit in enumerate(exact.limit)]
    for sharing, most in exact.pools:
        highest = max([price[profile[d]] for d in sharing], default=Fraction(0))
        value += max(Fraction(0), sum((room[d] for d in sharing), -highest * most)) * unit * tolerance
    value -= sum(room) * unit * tolerance
    if not any(map(any, (*work, *transfer, *alone.values()))):
        return NOTHING_FEASIBLE if value > 0 else Fraction(0)
    if certificate.edges:
        assert isinstance(variant, SerialLatency)  # `_along_paths` looked
        return value + Fraction(variant.subgraph_cost_s)
    return with_subgraphs(exact, value) if isinstance(variant, SerialLatency) else value


def _weights(
    exact: ExactProblem, certificate: Prices, num_passes: int
) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
    """Return the weights of work and of transfers, ``[num_profiles][num_passes]``, after looking at all of them."""
    num_profiles = len(certificate.memory_price)
    columns = (certificate.work_weight, certificate.transfer_weight)
    if any(len(rows) != num_profiles or any(len(row) != num_passes for row in rows) for rows in columns):
        raise InvalidCertificateError(f"certificate must have weights for {num_profiles} profiles, {num_passes} passes")
    numbers = [*certificate.memory_price, *(w for rows in columns for row in rows for w in row)]
    if any(not (math.isfinite(number) and number >= 0) for number in numbers):
        raise InvalidCertificateError("weights and memory prices must be finite and at least 0")
    profile = certificate.profile_of_device
    if len(profile) != exact.num_devices or any(not 0 <= at < num_profiles for at in profile):
        raise InvalidCertificateError(f"certificate must name one of {num_profiles} profiles for every device")
    for d, limit in enumerate(exact.limit):
        if limit is None and certificate.memory_price[profile[d]]:
            raise InvalidCertificateError(f"certificate has a memory price for device {d}, which has no limit")
    work, transfer = ([[Fraction(w) for w in row] for row in rows] for rows in columns)
    return work, transfer


def _op_weights(exact: ExactProblem, certificate: Prices, num_passes: int) -> dict[int, list[Fraction]]:
    """Return the weights of groups wherever they are."""
    found: dict[int, list[Fraction]] = {}
    for op, weights in certificate.op_weight:
        group = group_of(exact, op)
        if len(weights) != num_passes or any(not (math.isfinite(w) and w >= 0) for w in weights) or group in found:
            raise InvalidCertificateError(f"certificate: op {op} must have {num_passes} weights of at least 0, once")
        found[group] = [Fraction(w) for w in weights]
    return found


def _check_rule(
    exact: ExactProblem,
    certificate: Prices,
    work: list[list[Fraction]],
    transfer: list[list[Fraction]],
    alone: dict[int, list[Fraction]],
) -> None:
    """Refuse weights that break the rule of the objective; see the table of the module docstring."""
    variant, profile = exact.problem.objective, certificate.profile_of_device
    if isinstance(variant, SerialLatency):
        if alone or any(w > 1 for rows in (work, transfer) for row in rows for w in row):
            raise InvalidCertificateError("serial-latency: no weight may be above 1, and ops have none of their own")
        return
    if isinstance(variant, Makespan) and any(map(any, transfer)):
        raise InvalidCertificateError("makespan: transfers overlap with work and have no weight")
    if isinstance(variant, OffloadLatency):
        on_host = [w for d, at in enumerate(profile) if exact.is_host[d] for w in (*work[at], *transfer[at])]
        if alone or any(on_host):
            raise InvalidCertificateError("offload-latency: hosts run ops at the same time and have no weight")
    if exact.team_rule == "any" and any(any(weights) for weights in alone.values()):
        raise InvalidCertificateError("throughput: with teams of any devices no group has a weight of its own")
    both = isinstance(variant, Throughput) and variant.overlap
    for p in range(len(work[0])):
        pairs = [(work[at][p], transfer[at][p]) for at in profile]
        total = sum((y + z if both else max(y, z) for y, z in pairs), Fraction(0))
        total += sum((weights[p] for weights in alone.values()), Fraction(0))
        if total > 1:
            raise InvalidCertificateError(f"the weights add up to {rounded(total)!r}; at most 1 is allowed")


def _handed_out(
    exact: ExactProblem, certificate: Prices, transfer: list[list[Fraction]], pass_of: list[int]
) -> dict[tuple[int, int], Fraction]:
    """Return the seconds that each (profile, group) pays for its nets, after checking every flow."""
    kinds_of: dict[int, set[int]] = {}
    for d, at in enumerate(certificate.profile_of_device):
        kinds_of.setdefault(at, set()).add(exact.kind[d])
    used: set[int] = set()
    handed: dict[tuple[int, int], Fraction] = {}
    for net in certificate.nets:
        touched = _touched_by_all(exact, net)
        if used & set(net.tensors):
            raise InvalidCertificateError(f"certificate hands out a tensor of {list(net.tensors)} twice")
        used |= set(net.tensors)
        capacity = {
            at: exact.tick
            * min(
                sum(transfer[at][pass_of[exact.producer[t]]] * exact.transfer[t][k] for t in net.tensors) for k in kinds
            )
            for at, kinds in kinds_of.items()
        }
        _hand_out(exact, net, f"tensors {list(net.tensors)}", touched, capacity, handed)
    return handed


def _along_paths(exact: ExactProblem, certificate: Prices) -> dict[tuple[int, int], Fraction]:
    """Return the seconds that each (profile, group) pays for edges with a weight, if they are paths."""
    variant = exact.problem.objective
    if not certificate.edges:
        return {}
    if not isinstance(variant, SerialLatency):
        raise InvalidCertificateError(f"objective {variant.name} has no cost per subgraph, so edges have no weight")
    graph_edges, profiles = set(exact.edges), set(certificate.profile_of_device)
    supply = [Fraction(0)] * exact.num_ops
    handed: dict[tuple[int, int], Fraction] = {}
    for edge in certificate.edges:
        ends = edge.sender, edge.receiver
        if ends not in graph_edges or not (math.isfinite(edge.weight) and edge.weight >= 0):
            raise InvalidCertificateError(f"certificate: {ends[0]} -> {ends[1]} has no weight {edge.weight}")
        graph_edges.remove(ends)  # once
        supply[edge.sender] += Fraction(edge.weight)
        supply[edge.receiver] -= Fraction(edge.weight)
        touched = {exact.group_of[op] for op in ends}
        capacity = dict.fromkeys(profiles, Fraction(variant.subgraph_cost_s) * Fraction(edge.weight) / 2)
        _hand_out(exact, edge, f"edge {ends[0]} -> {ends[1]}", touched, capacity, handed)
    if sum(amount for amount in supply if amount > 0) > 1:
        raise InvalidCertificateError("certificate: the weights of edges are more than one path")
    return handed


def _hand_out(
    exact: ExactProblem,
    net: PricedNet | PricedEdge,
    name: str,
    touched: set[int],
    capacity: dict[int, Fraction],
    handed: dict[tuple[int, int], Fraction],
) -> None:
    """Add the prices of one net to `handed` if they are a flow within the capacity of each profile."""
    flow: dict[tuple[int, int], Fraction] = {}
    for at, op, seconds in net.prices:
        group = group_of(exact, op)
        if group not in touched or at not in capacity or not math.isfinite(seconds):
            raise InvalidCertificateError(f"certificate: price {seconds} of op {op} does not belong to {name}")
        flow[at, group] = flow.get((at, group), Fraction(0)) + Fraction(seconds)
    for at in {at for at, _ in flow}:
        paid = [value for (own, _), value in flow.items() if own == at]
        if sum(paid) > 0:
            raise InvalidCertificateError(f"{name}: more flows out than in on profile {at}")
        if sum(value for value in paid if value > 0) > capacity[at]:
            raise InvalidCertificateError(f"{name}: more flows than they cost on profile {at}")
    for key, value in flow.items():
        handed[key] = handed.get(key, Fraction(0)) + value


def _touched_by_all(exact: ExactProblem, net: PricedNet) -> set[int]:
    """Return the groups that every tensor of the net touches."""
    found: set[int] | None = None
    if len(set(net.tensors)) != len(net.tensors):
        raise InvalidCertificateError(f"certificate names a tensor of {list(net.tensors)} twice")
    for t in net.tensors:
        if not 0 <= t < len(exact.producer):
            raise InvalidCertificateError(f"certificate names tensor {t}; the problem has {len(exact.producer)}")
        groups = {exact.group_of[op] for op in (exact.producer[t], *exact.readers[t])}
        found = groups if found is None else found & groups
    return found or set()


def _memory_unit(exact: ExactProblem) -> Fraction:
    for bytes_of_op, whole in zip(exact.problem.costs.op_memory_bytes.tolist(), exact.memory, strict=True):
        if whole:
            return Fraction(bytes_of_op) / whole
    return Fraction(1)  # no op has any: what the limits are does not matter


def with_subgraphs(exact: ExactProblem, value: Fraction) -> Fraction:
    """Return a bound of the serial latency from one on work and transfers; see the module docstring."""
    variant = exact.problem.objective
    assert isinstance(variant, SerialLatency)  # callers look first
    cost = Fraction(variant.subgraph_cost_s)
    only = {devices[0] for devices in exact.allowed if len(devices) == 1}
    need, held, holding = sum(exact.memory), 0, 0
    for limit in sorted(exact.limit, key=lambda limit: math.inf if limit is None else limit, reverse=True):
        holding += 1
        held += limit or 0
        if limit is None or fits(need, held):
            break
    fewest = max(len(only), holding)
    several = value + max(fewest, 2) * cost
    if fewest > 1:
        return several
    everywhere = [d for d in set.intersection(*map(set, exact.allowed)) if fits(need, exact.limit[d])]
    alone = [max(value, exact.seconds(sum(exact.ticks(op, d) for op in range(exact.num_ops)))) for d in everywhere]
    return min([several, *(each + cost for each in alone)])


def directed_value(exact: ExactProblem, certificate: Directions) -> Bound:
    """Return what prices for either order of the two devices prove, in seconds; see the module docstring.

    Raises `InvalidCertificateError`: there is another number of devices or another contiguity, or the prices of a case
    break a rule.
    """
    if exact.num_devices != 2 or exact.problem.contiguity != "acyclic":
        raise InvalidCertificateError("directions are cases of two devices under contiguity acyclic")
    edges = set(exact.order_edges)
    values: list[Bound] = []
    for first, case in enumerate(certificate.cases):
        if case is None:
            if not _clashes(exact, first):
                raise InvalidCertificateError(
                    f"certificate: device {first} may come first, and there is no proof of it"
                )
            continue
        profile = case.prices.profile_of_device
        if len(profile) != 2 or profile[0] == profile[1]:
            raise InvalidCertificateError("certificate: devices in order must have profiles of their own")
        paid: dict[tuple[int, int], Fraction] = {}
        for sender, receiver, seconds in case.order:
            if (sender, receiver) not in edges or not (math.isfinite(seconds) and seconds >= 0):
                raise InvalidCertificateError(
                    f"certificate: {sender} -> {receiver} has no price {seconds} of its order"
                )
            for op, sign in ((receiver, 1), (sender, -1)):
                key = profile[first], exact.group_of[op]
                paid[key] = paid.get(key, Fraction(0)) + sign * Fraction(seconds)
        values.append(priced_value(exact, case.prices, paid))
    return min(values, default=NOTHING_FEASIBLE)


def _clashes(exact: ExactProblem, first: int) -> bool:
    """Return whether some group may be on no device if device `first` comes before the other one."""
    before: list[set[int]] = [set() for _ in exact.groups]
    for u, v in exact.order_edges:
        before[exact.group_of[v]].add(exact.group_of[u])
    must = [group for group, devices in enumerate(exact.allowed) if devices == [first]]
    found = set(must)
    for group in must:
        for other in before[group] - found:
            found.add(other)
            must.append(other)
    return any(first not in exact.allowed[group] for group in found)
