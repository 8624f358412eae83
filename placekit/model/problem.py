"""The problem: graph + platform + costs + objective + constraints, the one input of every method."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import components, number_by_first
from placekit.model.contiguity import Contiguity, order_edges
from placekit.model.costs import CostTable
from placekit.model.device_groups import JOINT
from placekit.model.errors import InvalidProblemError, did_you_mean
from placekit.model.graph import OpGraph, frozen_array
from placekit.model.memory import Pool, StageMemory
from placekit.model.op_patterns import matching_ops
from placekit.model.platform import Platform
from placekit.model.served import Served

UNPINNED = -1
"""In `Problem.pinned`: the op may go to any device."""


class ExecutionModel(Protocol):
    """Facts about an objective that a problem needs; :class:`placekit.objectives.base.Objective` explains each."""

    name: ClassVar[str]
    direct_ends: ClassVar[int]
    has_pipeline: ClassVar[bool]
    merges_free_leaves: ClassVar[bool]

    @property
    def default_contiguity(self) -> Contiguity:
        """Contiguity of a problem that asks for none."""

    @property
    def team_rule(self) -> str:
        """Devices that may form teams."""

    def to_dict(self) -> dict[str, Any]:
        """Return the variant as JSON values."""

    def identity(self) -> dict[str, Any]:
        """Return the part of the variant that goes into the hash of a problem."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar  # its default: a plain `Problem` has any objective

    O_co = TypeVar("O_co", bound=ExecutionModel, covariant=True, default=Any)
else:
    from typing import TypeVar

    O_co = TypeVar("O_co", bound=ExecutionModel, covariant=True)


@dataclass(frozen=True, eq=False)
class Problem(Generic[O_co]):
    """Everything that a method needs to know. Immutable; the parts are checked against each other.

    Parameters
    ----------
    graph, platform, costs
        What to place, where, and at what cost. The costs are reordered to the platform's kinds.
    objective
        The execution model that is minimised; `Throughput` by default.
    contiguity
        What the ops of a device must form; the objective's own default if None.
    colocation
        ``[num_ops]`` labels: ops with the same label share a device. Every op on its own if None.
    pinned
        ``[num_ops]`` device index, or `UNPINNED`. Nothing pinned if None.
    served
        What is served, if a sample is a batch of requests to a language model; for what exports it, not for costs.

    Raises
    ------
    InvalidProblemError
        Arrays of the wrong length, a pin out of range, or costs that lack a kind or an op.

    Examples
    --------
    >>> import numpy as np
    >>> graph = OpGraph.from_edges(["a", "b"], [("a", "b")])
    >>> platform = Platform.of(cpu=2, host="cpu")
    >>> costs = CostTable(("cpu",), [[1.0], [2.0]], [[0.0]], [0, 0])
    >>> Problem(graph, platform, costs)
    Problem('graph': 2 ops in 2 classes on 2 devices, throughput, acyclic)
    """

    graph: OpGraph
    platform: Platform
    costs: CostTable
    objective: O_co = None  # type: ignore[assignment]  # None = `default_objective`, filled below
    contiguity: Contiguity = None  # type: ignore[assignment]  # None = the objective's default, filled below
    colocation: NDArray[np.int64] = None  # type: ignore[assignment]
    pinned: NDArray[np.int64] = None  # type: ignore[assignment]
    served: Served | None = None

    default_objective: ClassVar[ExecutionModel]
    """The objective of problems that name none; :mod:`placekit.objectives` sets it, which the model must not import."""

    def __post_init__(self) -> None:
        if self.objective is None:
            object.__setattr__(self, "objective", self.default_objective)
        num_ops = self.graph.num_ops
        for what, mine, costs in (
            ("ops", num_ops, self.costs.num_ops),
            ("tensors", self.graph.num_tensors, self.costs.num_tensors),
        ):
            if mine != costs:
                raise InvalidProblemError(f"problem {self.name!r}: the graph has {mine} {what}, the costs {costs}")
        if num_ops == 0:
            raise InvalidProblemError(f"problem {self.name!r}: the graph has no ops")
        joined = [name for name in self.platform.device_names if JOINT in name]
        if joined and self.objective.team_rule != "off":
            raise InvalidProblemError(
                f"problem {self.name!r}: device {joined[0]!r} cannot be in a team: {JOINT!r} joins the names of "
                "members; give it another name, or ask for no teams"
            )
        links = self.platform.direct_link_names
        if links and self.objective.direct_ends == 0:
            raise InvalidProblemError(
                f"problem {self.name!r}: objective {self.objective.name!r} knows no direct links between devices, and "
                f"the platform has {links[0]!r}; take another objective, or a platform without them"
            )
        if links and self.objective.team_rule != "off":
            raise InvalidProblemError(
                f"problem {self.name!r}: teams of devices know no direct links, and the platform has {links[0]!r}; "
                "ask for teams 'off'"
            )
        object.__setattr__(self, "costs", self.costs.for_kinds(self.platform.kinds).for_links(links))
        contiguity = self.objective.default_contiguity if self.contiguity is None else self.contiguity
        object.__setattr__(self, "contiguity", Contiguity(contiguity))
        for name, default in (("colocation", np.arange(num_ops)), ("pinned", np.full(num_ops, UNPINNED))):
            value = getattr(self, name)
            value = default if value is None else value
            array = frozen_array(value, np.int64, (num_ops,), f"problem {self.name!r}: {name}")
            object.__setattr__(self, name, array)
        bad = np.flatnonzero((self.pinned < UNPINNED) | (self.pinned >= self.platform.num_devices))
        if bad.size:
            raise InvalidProblemError(
                f"problem {self.name!r}: op {self.graph.op_names[bad[0]]!r} is pinned to device index "
                f"{self.pinned[bad[0]]}; indices run from 0 to {self.platform.num_devices - 1}"
            )

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.graph.name

    @cached_property
    def op_class(self) -> NDArray[np.int64]:
        """``[num_ops]`` class ``0 .. num_classes - 1`` of every op: colocation and fused groups together."""
        num_ops = self.graph.num_ops
        labels, colocation = np.unique(self.colocation, return_inverse=True)
        groups, group = np.unique(self.costs.op_group, return_inverse=True)
        if num_ops in (len(labels), len(groups)):  # one of the two joins nothing
            return number_by_first(group if len(labels) == num_ops else colocation)
        # one extra node per label; an op is joined to its colocation label and to its fused group
        links = np.concatenate([colocation + num_ops, group + 2 * num_ops])
        return number_by_first(components(3 * num_ops, np.tile(np.arange(num_ops), 2), links)[:num_ops])

    @property
    def num_classes(self) -> int:
        """Number of classes of ops that must share a device."""
        return int(self.op_class.max()) + 1

    @property
    def has_direct_links(self) -> bool:
        """True if tensors of some pairs of devices do not go through host memory."""
        return bool(self.platform.direct_links)

    @cached_property
    def order_edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Senders and receivers of the order graph, which contiguity is about."""
        return order_edges(self.graph, self.op_class)

    @cached_property
    def twin_of_device(self) -> NDArray[np.int64]:
        """``[num_devices]`` the first of the devices that each is interchangeable with, itself included.

        They are of one kind and, with direct links, on one node, and no op is pinned to any of them. No objective goes
        by the numbers of devices.
        """
        number = np.arange(self.platform.num_devices)
        group = self.platform.group_of_device + len(number)
        label = np.where(np.isin(number, self.pinned), number, group)
        _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
        return np.asarray(first[inverse], dtype=np.int64)

    @cached_property
    def stage_memory(self) -> StageMemory:
        """Memory need of the ops of one device."""
        costs, has_pipeline = self.costs, self.objective.has_pipeline
        return StageMemory(self.graph, costs.op_memory_bytes, costs.blocks, has_pipeline=has_pipeline)

    @cached_property
    def has_tight_blocks(self) -> bool:
        """True if memory that ops share may decide what fits: not if every limited device holds everything."""
        limits = [device.memory_bytes for device in self.platform.devices if device.memory_bytes is not None]
        return self.costs.blocks is not None and bool(limits) and self.stage_memory.most_bytes > min(limits)

    @cached_property
    def tight_pools(self) -> tuple[Pool, ...]:
        """Pools whose devices might need more together than there is, even if each of them fits."""
        most = self.stage_memory.most_together
        copies = 1 if self.objective.team_rule == "off" else self.platform.num_devices
        several = [pool for pool in self.platform.pools if len(pool.devices) > 1]
        return tuple(pool for pool in several if copies * most(len(pool.devices)) > pool.memory_bytes)

    @cached_property
    def content_hash(self) -> str:
        """Hexadecimal digest of everything that decides what a placement costs and may do; not of provenance."""
        digest = hashlib.blake2b(digest_size=16)
        devices = [(d.name, d.kind, d.memory_bytes, d.is_host) for d in self.platform.devices]
        variant = (self.objective.name, sorted(self.objective.identity().items()))
        digest.update(repr((self.graph.content_hash, devices, variant, str(self.contiguity))).encode())
        costs = self.costs
        for array in (costs.op_time_s, costs.supported, costs.transfer_time_s, costs.op_memory_bytes):
            digest.update(np.ascontiguousarray(array).tobytes())
        for labels in (number_by_first(self.colocation), number_by_first(costs.op_group), self.pinned):
            digest.update(labels.tobytes())
        if costs.blocks is not None:  # files from before there were any keep their hash
            blocks = costs.blocks
            for shared in (blocks.num_bytes, blocks.is_weight, blocks.offsets, blocks.ops):
                digest.update(np.ascontiguousarray(shared).tobytes())
            digest.update(repr(blocks.queue_slots).encode())
        if self.has_direct_links:
            pairs = (self.platform.direct_link_names, [device.node for device in self.platform.devices])
            digest.update(repr(pairs).encode())
            digest.update(np.ascontiguousarray(costs.direct_time_s).tobytes())
        if self.platform.pools:
            digest.update(repr([(pool.memory_bytes, pool.devices) for pool in self.platform.pools]).encode())
        return digest.hexdigest()

    @cached_property
    def terms(self) -> dict[str, str]:
        """Parts of the problem by name, short enough for a result file: values, and digests of arrays."""
        graph, platform, costs = self.graph, self.platform, self.costs
        terms = {
            "graph": f"{graph.num_ops} ops, {graph.content_hash}",
            "objective": self.objective.name,
            **{f"objective {name}": str(value) for name, value in sorted(self.objective.to_dict().items())},
            "contiguity": str(self.contiguity),
        }
        for device in platform.devices:
            limit = "no limit" if device.memory_bytes is None else f"{device.memory_bytes!r} bytes"
            terms[f"device {device.name}"] = f"{device.kind}{', host' if device.is_host else ''}, {limit}"
        for pool in platform.pools:
            terms[f"pool {pool.name}"] = f"{', '.join(pool.devices)}, {pool.memory_bytes!r} bytes"
        for op in np.flatnonzero(self.pinned != UNPINNED).tolist():
            terms[f"pin of {graph.op_names[op]}"] = platform.device_names[self.pinned[op]]
        arrays: dict[str, tuple[NDArray[Any], ...]] = {
            "costs": (costs.op_time_s, costs.supported, costs.transfer_time_s, costs.op_memory_bytes),
            "ops that share a device": (number_by_first(self.colocation), number_by_first(costs.op_group)),
        }
        if (blocks := costs.blocks) is not None:
            slots = np.frombuffer(repr(blocks.queue_slots).encode(), np.uint8)
            arrays["shared memory"] = (blocks.num_bytes, blocks.is_weight, blocks.offsets, blocks.ops, slots)
        if self.has_direct_links:
            ends = repr((platform.direct_link_names, [device.node for device in platform.devices]))
            arrays["direct links"] = (np.frombuffer(ends.encode(), np.uint8), costs.direct_time_s)
        for name, parts in arrays.items():
            digest = hashlib.blake2b(digest_size=8)
            for part in parts:
                digest.update(np.ascontiguousarray(part).tobytes())
            terms[name] = digest.hexdigest()
        return terms

    def pin(self, devices: Mapping[str, str]) -> Self:
        """Return the problem with the named ops pinned to the named devices.

        Parameters
        ----------
        devices
            Device by op, or by pattern of ops (:func:`placekit.model.op_patterns.matching_ops`); where several match an
            op, the last one counts.

        Raises
        ------
        InvalidProblemError
            No such op, or a pattern that matches none.
        UnknownNameError
            An unknown device.
        """
        pinned = self.pinned.copy()
        for op, device in devices.items():
            pinned[matching_ops(self.graph, op)] = self.platform.index(device)
        return self.replace(pinned=pinned)

    def colocate(self, *groups: Iterable[str]) -> Self:
        """Return the problem with the ops of each of the named groups bound to one device."""
        labels = self.colocation.copy()
        for names in groups:
            ops = [self._op(name) for name in names]
            if ops:
                labels[np.isin(labels, labels[ops])] = labels[ops[0]]
        return self.replace(colocation=labels)

    def _op(self, name: str) -> int:
        try:
            return self.graph.op_index[name]
        except KeyError:
            raise InvalidProblemError(
                f"problem {self.name!r} has no op {name!r}{did_you_mean(name, self.graph.op_names)}"
            ) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, validated anew."""
        found = replace(self, **changes)
        known = vars(self).get("op_class")
        has_classes = known is not None and not changes.keys() & {"graph", "colocation"}
        if has_classes and np.array_equal(found.costs.op_group, self.costs.op_group):
            vars(found)["op_class"] = known  # searches ask for the classes of the same ops at every step
        return found

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Problem)
            and self.graph == other.graph
            and self.platform == other.platform
            and self.costs == other.costs
            and self.objective == other.objective
            and self.contiguity == other.contiguity
            and np.array_equal(self.colocation, other.colocation)
            and np.array_equal(self.pinned, other.pinned)
            and self.served == other.served
        )

    def __hash__(self) -> int:
        return hash((self.graph, self.platform, self.contiguity))

    def __repr__(self) -> str:
        return (
            f"Problem({self.name!r}: {self.graph.num_ops} ops in {self.num_classes} classes on "
            f"{self.platform.num_devices} devices, {self.objective.name}, {self.contiguity})"
        )
