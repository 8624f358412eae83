r"""Problem of planning the training of a model on equal devices (Tarnawski et al. 2021, "Piper").

Layers form a directed acyclic graph. For every tensor-parallel degree a layer has *choices* (plain, with recomputation,
...) with their own time, bytes and extra synchronisation. :mod:`placekit.training.evaluate` scores plans.

References
----------
J. Tarnawski, D. Narayanan, A. Phanishayee, "Piper: Multidimensional Planner for DNN Parallelization", NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placekit.model.errors import InvalidProblemError


@dataclass(frozen=True)
class Choice:
    """One way to run a layer at one tensor-parallel degree."""

    name: str  # name of the choice, such as ``"vanilla"`` or ``"activation recomp"``
    time_s: float  # seconds per microbatch, forward and backward together
    parameter_bytes: float  # bytes of gradients that data-parallel replicas exchange
    # memory_per_microbatch_bytes, memory_fixed_bytes: a device that holds y microbatches in flight needs ``y *
    # memory_per_microbatch_bytes + memory_fixed_bytes``
    memory_per_microbatch_bytes: float
    memory_fixed_bytes: float
    # extra bytes per microbatch of the edge from each predecessor, by its index, if that edge crosses stages
    sync_in_bytes: Mapping[int, float]
    # extra bytes per microbatch of the edge to each successor, if that edge crosses stages
    sync_out_bytes: Mapping[int, float]

    def values(self) -> dict[str, float]:
        """Return the numbers of the choice by name."""
        return {
            "time_s": self.time_s,
            "parameter_bytes": self.parameter_bytes,
            "memory_per_microbatch_bytes": self.memory_per_microbatch_bytes,
            "memory_fixed_bytes": self.memory_fixed_bytes,
            **{f"sync_in_bytes[{u}]": value for u, value in self.sync_in_bytes.items()},
            **{f"sync_out_bytes[{v}]": value for v, value in self.sync_out_bytes.items()},
        }

    @property
    def is_recomputing(self) -> bool:
        """Return True if, by its name, the choice recomputes activations."""
        return "recomp" in self.name.lower() or "checkpoint" in self.name.lower()


@dataclass(frozen=True)
class Layer:
    """Layer with its choices by tensor-parallel degree."""

    name: str
    choices: Mapping[int, tuple[Choice, ...]]


@dataclass(frozen=True)
class LayerEdge:
    """Edge between two layers (by index), with bytes per microbatch that are moved if their stages differ."""

    source: int
    target: int
    num_bytes: float


@dataclass(frozen=True)
class Restrictions:
    """Restrictions on plans."""

    data_parallel: bool = True  # False: every stage has data-parallel degree 1
    tensor_parallel: bool = True  # False: every stage has the smallest tensor-parallel degree
    recomputation: bool = True  # False: choices whose name says recomputation are left out
    # True: data-parallel degrees are powers of two (that divide the number of microbatches)
    powers_of_two: bool = False


MAX_DEVICES = 2**17
"""Largest number of devices; more are a mistake."""
MAX_MICROBATCHES = 2**24
"""Largest number of microbatches of a batch."""


@dataclass(frozen=True)
class TrainingProblem:
    """Training problem to plan. Immutable; `replace` makes a changed copy.

    Raises `InvalidProblemError`: numbers that are negative or not finite, a degree that a layer lacks, edges that
    contradict each other or form a cycle, or restrictions that leave a layer without a choice. The message names layer
    and value.
    """

    name: str  # name of the model
    # layers, edges: the graph of layers; edges go from index to index
    layers: tuple[Layer, ...]
    edges: tuple[LayerEdge, ...]
    num_devices: int  # number of equal devices
    memory_bytes: float  # memory limit of each device
    bandwidth_bytes_per_s: float  # bandwidth of the link of every device
    num_microbatches: int  # number of microbatches of a batch; data-parallel degrees divide it
    restrictions: Restrictions = Restrictions()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidProblemError(f"training problem {self.name!r} has no layers")
        for what, count, most in (
            ("num_devices", self.num_devices, MAX_DEVICES),
            ("num_microbatches", self.num_microbatches, MAX_MICROBATCHES),
        ):
            if not 1 <= count <= most:
                raise InvalidProblemError(
                    f"training problem {self.name!r}: {what} is {count}; it must be at least 1 and at most {most}"
                )
        for what, value in (("memory", self.memory_bytes), ("bandwidth", self.bandwidth_bytes_per_s)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidProblemError(
                    f"training problem {self.name!r}: {what} is {value!r}; it must be finite and positive"
                )
        self._check_edges()
        self._check_layers()
        self._check_restrictions()

    def replace(self, **changes: object) -> TrainingProblem:
        """Return a copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # fields are checked when it is made

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def tensor_degrees(self) -> tuple[int, ...]:
        """Allowed tensor-parallel degrees, ascending."""
        degrees = sorted(self.layers[0].choices)
        return tuple(degrees if self.restrictions.tensor_parallel else degrees[:1])

    @property
    def data_degrees(self) -> tuple[int, ...]:
        """Allowed data-parallel degrees, ascending: divisors of the number of microbatches."""
        most = min(self.num_microbatches, self.num_devices // self.tensor_degrees[0])
        if not self.restrictions.data_parallel:
            most = min(most, 1)
        divisors = [d for d in range(1, most + 1) if self.num_microbatches % d == 0]
        if self.restrictions.powers_of_two:
            divisors = [d for d in divisors if d & (d - 1) == 0]
        return tuple(divisors)

    def choices(self, layer: int, tensor_degree: int) -> tuple[tuple[int, Choice], ...]:
        """Return the allowed choices, each with its index in the layer."""
        numbered = enumerate(self.layers[layer].choices[tensor_degree])
        return tuple((c, choice) for c, choice in numbered if self.allows(choice))

    def allows(self, choice: Choice) -> bool:
        """Return True if the restrictions allow a choice."""
        return self.restrictions.recomputation or not choice.is_recomputing

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Layers with an edge to each layer."""
        found: list[list[int]] = [[] for _ in self.layers]
        for edge in self.edges:
            found[edge.target].append(edge.source)
        return tuple(map(tuple, found))

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Layers with an edge from each layer."""
        found: list[list[int]] = [[] for _ in self.layers]
        for edge in self.edges:
            found[edge.source].append(edge.target)
        return tuple(map(tuple, found))

    @cached_property
    def topological_order(self) -> tuple[int, ...]:
        """Layers, each after its predecessors; the one with the smallest index first.

        Raises `InvalidProblemError`: there is a cycle.
        """
        import networkx

        graph: networkx.DiGraph[int] = networkx.DiGraph()
        graph.add_nodes_from(range(self.num_layers))
        graph.add_edges_from((edge.source, edge.target) for edge in self.edges)
        try:
            return tuple(networkx.lexicographical_topological_sort(graph))
        except networkx.NetworkXUnfeasible:
            stuck = min(source for source, _ in networkx.find_cycle(graph))
            raise InvalidProblemError(f"layers form a cycle; one of them is {self.layers[stuck].name!r}") from None

    def _check_edges(self) -> None:
        seen: set[tuple[int, int]] = set()
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if not 0 <= end < self.num_layers:
                    raise InvalidProblemError(f"an edge names layer {end}; there are {self.num_layers} layers")
            names = f"{self.layers[edge.source].name!r} -> {self.layers[edge.target].name!r}"
            if not (math.isfinite(edge.num_bytes) and edge.num_bytes >= 0):
                raise InvalidProblemError(f"edge {names} has {edge.num_bytes!r} bytes; they must be finite and >= 0")
            if (edge.source, edge.target) in seen:
                raise InvalidProblemError(f"edge {names} (layers {edge.source} and {edge.target}) appears twice")
            seen.add((edge.source, edge.target))
        assert self.topological_order  # raises if there is a cycle

    def _check_layers(self) -> None:
        degrees = set(self.layers[0].choices)
        for layer in self.layers:
            for degree in degrees ^ set(layer.choices):
                if degree in degrees:
                    who, other = layer.name, self.layers[0].name
                else:
                    who, other = self.layers[0].name, layer.name
                raise InvalidProblemError(
                    f"layer {who!r} has no choice for tensor-parallel degree {degree}, which layer {other!r} has"
                )
        if not degrees:
            raise InvalidProblemError(f"layer {self.layers[0].name!r} has no tensor-parallel degree")
        for v, layer in enumerate(self.layers):
            ends = (
                ("sync_in_bytes", "from", set(self.predecessors[v])),
                ("sync_out_bytes", "to", set(self.successors[v])),
            )
            for degree, choices in layer.choices.items():
                where = f"layer {layer.name!r}, tensor-parallel degree {degree}"
                if degree < 1:
                    raise InvalidProblemError(f"{where}: a degree must be at least 1")
                if not choices:
                    raise InvalidProblemError(f"{where}: no choices")
                for choice in choices:
                    for what, value in choice.values().items():
                        if not (math.isfinite(value) and value >= 0):
                            raise InvalidProblemError(
                                f"{where}, choice {choice.name!r}: {what} is {value!r}; it must be finite and >= 0"
                            )
                    for field, word, neighbours in ends:
                        for other_end in sorted(set(getattr(choice, field)) ^ neighbours):
                            has = "names an edge" if other_end not in neighbours else "lacks the edge"
                            name = (
                                repr(self.layers[other_end].name)
                                if 0 <= other_end < self.num_layers
                                else "that does not exist"
                            )
                            raise InvalidProblemError(
                                f"{where}, choice {choice.name!r}: {field} {has} {word} layer {other_end} ({name})"
                                + ("" if has.startswith("lacks") else ", which is not in the graph")
                            )

    def _check_restrictions(self) -> None:
        for v, layer in enumerate(self.layers):
            for degree in self.tensor_degrees:
                if not self.choices(v, degree):
                    raise InvalidProblemError(
                        f"layer {layer.name!r}, tensor-parallel degree {degree}: no choice without recomputation"
                    )
