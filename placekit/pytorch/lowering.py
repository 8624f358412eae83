"""The ops of a bound program, one after the other; what counts as an op is told in :mod:`placekit.pytorch.source`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placekit.io.openvino_graph import ATTENTION
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.pytorch.ops import count_operator
from placekit.pytorch.program import TorchNode, TorchProgram, operator_name
from placekit.pytorch.state import Memory

__all__ = ["NO_NODE", "Lowered", "lower"]


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program as an op graph.

    Parameters
    ----------
    program
        The program, all sizes bound.
    graph
        Its ops.
    colocation
        ``[num_ops]`` labels: what reads a buffer that the program changes stays with what changes it.
    module_of_op
        ``[num_ops]`` path of the calling module.
    node_of_op
        ``[num_ops]`` index of the node in the program; -1 for inputs, outputs and assignments.
    shared_weights
        Bytes of each parameter memory that several ops read, and those ops.
    unknown
        Number of calls by operator that no table knows.
    in_place
        Indices of the nodes whose change of memory is seen by others; every other call may work on a copy.
    states
        Paths of the buffers that the program changes.
    attention
        As of `placekit.io.model.ModelSource`.
    """

    program: TorchProgram
    graph: OpGraph
    colocation: NDArray[np.int64]
    module_of_op: tuple[str, ...]
    node_of_op: tuple[int, ...]
    shared_weights: tuple[tuple[float, tuple[int, ...]], ...]
    unknown: Mapping[str, int]
    in_place: frozenset[int]
    states: frozenset[str]
    attention: Mapping[int, tuple[int, int, int]]


_LOOP = (
    "its body runs once for every element; write it as an operator on the whole tensor, or as a loop of Python, which "
    "torch.export unrolls"
)
_REFUSED: Mapping[str, str] = {
    "cond": (
        "which branch of control flow runs is not known beforehand; export the module with the branch that is to be "
        "placed"
    ),
    "while_loop": (
        "how often its body runs is not known beforehand; export the module with a fixed number of steps, as a loop of "
        "Python"
    ),
    **dict.fromkeys(("map", "map_impl", "scan", "associative_scan"), _LOOP),
}
"""Operators that run their bodies sometimes or often, and what to do instead."""

NO_NODE = -1
"""Node of an op that is no call."""


def lower(program: TorchProgram, where: Path) -> Lowered:
    """Return the op graph of a bound program.

    Parameters
    ----------
    program
        The program, with numbers for all sizes.
    where
        Its file or name, for messages.

    Raises
    ------
    UnsupportedProblemError
        Control flow inside the program.
    """
    lowering = _Lowering(program, where)
    lowering.run()
    return Lowered(
        program=program,
        graph=lowering.graph(),
        colocation=lowering.colocation(),
        module_of_op=tuple(lowering.modules),
        node_of_op=tuple(lowering.nodes),
        shared_weights=tuple(
            (float(program.storage_bytes[key]), tuple(ops))
            for key, ops in lowering.read_storage.items()
            if len(ops) > 1
        ),
        unknown=lowering.unknown,
        in_place=lowering.memory.seen_changes,
        states=lowering.memory.states | set(program.mutations.values()),
        attention=lowering.attention,
    )


class _Lowering:
    def __init__(self, program: TorchProgram, where: Path) -> None:
        self.program = program
        self.where = where
        self.names: list[str] = []
        self.types: list[str] = []
        self.modules: list[str] = []
        self.nodes: list[int] = []
        self.flops: list[float] = []
        self.weights: list[float] = []
        self.unknown: dict[str, int] = {}
        self.read_storage: dict[str, list[int]] = {}
        # storage by name of a tensor that is a parameter, or a view of one
        self._storage = {
            name: program.storage.get(path, path)
            for name, path in program.parameters.items()
            if name in program.tensors
        }
        self._producer: dict[str, int] = {}
        self._tensors: list[str] = []
        self._readers: dict[str, dict[int, None]] = {}
        self._used: dict[str, int] = {}
        self.memory = Memory(program)
        self._states: list[list[int]] = []
        self.attention: dict[int, tuple[int, int, int]] = {}

    def run(self) -> None:
        """Walk through the program."""
        program = self.program
        for name in program.inputs:
            self._add(name, "Parameter", "", 0.0, (), (name,))
        for index, node in enumerate(program.nodes):
            self._call(index, node)
        for name in program.outputs:
            self._add("output", "Result", "", 0.0, (name,), ())
        assigned = [
            (buffer, self._add(f"{buffer}.assign", "Assign", buffer.rpartition(".")[0], 0.0, (name,), ()))
            for name, buffer in program.mutations.items()
        ]
        self._states = self.memory.bound_together(assigned)

    def _call(self, index: int, node: TorchNode) -> None:
        if node.target.startswith("higher_order."):
            told = _REFUSED.get(
                node.target.removeprefix("higher_order."),
                "an operator with a body, which is not read; write the module with ordinary operators",
            )
            raise UnsupportedProblemError(f"{self.where}: {node.place} calls {node.target}: {told}")
        made = [each for each in node.outputs if each in self.program.tensors]
        if not made:
            return
        refs = self._read(node)
        counted = count_operator(
            node.target,
            {name: self._shapes(value) for name, value in node.arguments.items() if self._is_tensor(value)},
            node.arguments,
            [self.program.tensors[each].shape for each in made],
        )
        is_view = counted.op_type == "View"
        if is_view and refs and all(ref in self._storage for ref in refs):
            self._storage |= dict.fromkeys(made, self._storage[refs[0]])
            self.memory.viewed(refs[0], made)
            return
        if not counted.is_known:
            self.unknown[node.target] = self.unknown.get(node.target, 0) + 1
        op = self._add(_op_name(node), counted.op_type, node.module, counted.flops, refs, made, index)
        self.memory.called(index, node, op, refs, made, is_view=is_view)
        if counted.op_type == ATTENTION:
            query, key, value = (self._tensor_of(node.arguments[name]) for name in ("query", "key", "value"))
            self.attention[op] = query, key, value

    def _read(self, node: TorchNode) -> list[str]:
        """Return the tensors and parameters that a call reads; of memory that was changed in place, the change, too."""
        found: dict[str, None] = {}
        for ref in node.refs():
            if ref in self._producer or ref in self._storage:
                found[ref] = None
                change = self.memory.change_after(ref, self._producer.get(ref, -1))
                if change is not None:
                    found[change] = None
        return list(found)

    def _tensor_of(self, argument: Any) -> int:
        """Return the tensor of the graph that an argument is; -1 if no op makes it."""
        name = getattr(argument, "name", None)
        return self._tensors.index(name) if name in self._producer else -1

    def _is_tensor(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(self._is_tensor(each) for each in value)
        return getattr(value, "name", None) in self.program.tensors

    def _shapes(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._shapes(each) for each in value if self._is_tensor(each)]
        return self.program.tensors[value.name].shape

    def _add(
        self,
        name: str,
        op_type: str,
        module: str,
        flops: float,
        refs: Sequence[str],
        made: Sequence[str],
        node: int = NO_NODE,
    ) -> int:
        op = len(self.names)
        number = self._used[name] = self._used.get(name, 0) + 1
        self.names.append(name if number == 1 else f"{name}#{number}")
        self.types.append(op_type)
        self.modules.append(module)
        self.nodes.append(node)
        self.flops.append(flops)
        held: dict[str, None] = {}  # whatever part of a parameter a view shows, all of it is there
        for ref in refs:
            if ref in self._producer:
                self._readers[ref][op] = None
            elif ref in self._storage:
                held[self._storage[ref]] = None
        for key in held:
            self.read_storage.setdefault(key, []).append(op)
        self.weights.append(sum(self.program.storage_bytes[each] for each in held))
        for each in made:
            self._producer[each] = op
            self._readers[each] = {}
            self._tensors.append(each)
        return op

    def graph(self) -> OpGraph:
        """Return the graph."""
        readers = [list(self._readers[name]) for name in self._tensors]
        tensors = [self.program.tensors[name] for name in self._tensors]
        return OpGraph(
            name=self.program.name,
            op_names=tuple(self.names),
            op_types=tuple(self.types),
            tensor_producer=np.array([self._producer[name] for name in self._tensors], dtype=np.int64),
            consumer_offsets=np.cumsum([0, *map(len, readers)], dtype=np.int64),
            consumers=np.array([op for each in readers for op in each], dtype=np.int64),
            tensor_bytes=np.array([tensor.num_bytes for tensor in tensors]),
            op_flops=np.array(self.flops),
            op_weight_bytes=np.array(self.weights),
            tensor_shapes=tuple(tensor.shape for tensor in tensors),
        )

    def colocation(self) -> NDArray[np.int64]:
        """``[num_ops]`` labels: what reads a buffer that the program changes stays with what changes it."""
        labels = np.arange(len(self.names), dtype=np.int64)
        for state in self._states:
            labels[np.isin(labels, labels[state])] = labels[state[0]]
        return labels


def _op_name(node: TorchNode) -> str:
    operator = operator_name(node.target)
    return f"{node.module}.{operator}" if node.module else operator
