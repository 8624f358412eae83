"""The ops of a bound program, one after the other; what counts as an op is told in :mod:`placekit.pytorch.source`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from placekit.io.models.openvino_graph import ATTENTION
from placekit.model.errors import UnsupportedProblemError
from placekit.model.graph import OpGraph
from placekit.pytorch.ops import count_operator
from placekit.pytorch.program import TorchNode, TorchProgram, operator_name

_REFUSED: Mapping[str, str] = {
    "cond": "which branch of control flow runs is not known beforehand; export the module with the branch to be placed",
    "while_loop": (
        "how often its body runs is not known beforehand; export the module with a fixed number of steps, as a loop of "
        "Python"
    ),
    **dict.fromkeys(
        ("map", "map_impl", "scan", "associative_scan"),
        "its body runs once for every element; write it as an operator on the whole tensor, or as a loop of Python",
    ),
}
"""Operators that run their bodies sometimes or often, and what to do instead."""

NO_NODE = -1
"""Node of an op that is no call."""


class Lowered:
    """A program as an op graph; messages name its file or name, `where`."""

    def __init__(self, program: TorchProgram, where: Path) -> None:
        self.program = program
        self.where = where
        #: path of the calling module, by op
        self.module_of_op: list[str] = []
        #: index of the node in the program, by op; -1 for inputs, outputs and assignments
        self.node_of_op: list[int] = []
        #: name in the program, by tensor of the graph
        self.tensor_names: list[str] = []
        #: number of calls by operator that no table knows
        self.unknown: dict[str, int] = {}
        #: as of `placekit.io.models.model.ModelSource`
        self.attention: dict[int, tuple[int, int, int]] = {}
        self._names: list[str] = []
        self._types: list[str] = []
        self._flops: list[float] = []
        self._weights: list[float] = []
        self._read_storage: dict[str, list[int]] = {}
        # storage by name of a tensor that is a parameter, or a view of one
        self._storage = {
            name: program.storage.get(path, path)
            for name, path in program.parameters.items()
            if name in program.tensors
        }
        self._producer: dict[str, int] = {}
        self._readers: dict[str, dict[int, None]] = {}
        self._used: dict[str, int] = {}
        self._memory = _Memory(program)
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
        #: the ops
        self.graph = self._graph()
        #: labels by op: what reads a buffer that the program changes stays with what changes it
        self.colocation = labels = np.arange(self.graph.num_ops, dtype=np.int64)
        for state in self._memory.bound_together(assigned):
            labels[np.isin(labels, labels[state])] = labels[state[0]]
        #: bytes of each parameter memory that several ops read, and those ops
        self.shared_weights = tuple(
            (float(program.storage_bytes[key]), tuple(ops)) for key, ops in self._read_storage.items() if len(ops) > 1
        )
        #: indices of the nodes whose change of memory is seen by others; every other call may work on a copy
        self.in_place = self._memory.seen_changes
        #: paths of the buffers that the program changes
        self.states = self._memory.states | set(program.mutations.values())

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
        op_type, flops, is_known = count_operator(
            node.target,
            {name: self._shapes(value) for name, value in node.arguments.items() if self._is_tensor(value)},
            node.arguments,
            [self.program.tensors[each].shape for each in made],
        )
        is_view = op_type == "View"
        if is_view and refs and all(ref in self._storage for ref in refs):
            self._storage |= dict.fromkeys(made, self._storage[refs[0]])
            self._memory.viewed(refs[0], made)
            return
        if not is_known:
            self.unknown[node.target] = self.unknown.get(node.target, 0) + 1
        operator = operator_name(node.target)
        name = f"{node.module}.{operator}" if node.module else operator
        op = self._add(name, op_type, node.module, flops, refs, made, index)
        self._memory.called(index, node, op, refs, made, is_view=is_view)
        if op_type == ATTENTION:
            read = [getattr(node.arguments[each], "name", None) for each in ("query", "key", "value")]
            query, key, value = (self.tensor_names.index(each) if each in self._producer else -1 for each in read)
            self.attention[op] = query, key, value

    def _read(self, node: TorchNode) -> list[str]:
        """Return the tensors and parameters that a call reads; of memory that was changed in place, the change, too."""
        found: dict[str, None] = {}
        for ref in node.refs():
            if ref in self._producer or ref in self._storage:
                found[ref] = None
                change = self._memory.change_after(ref, self._producer.get(ref, -1))
                if change is not None:
                    found[change] = None
        return list(found)

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
        op = len(self._names)
        number = self._used[name] = self._used.get(name, 0) + 1
        self._names.append(name if number == 1 else f"{name}#{number}")
        self._types.append(op_type)
        self.module_of_op.append(module)
        self.node_of_op.append(node)
        self._flops.append(flops)
        held: dict[str, None] = {}  # whatever part of a parameter a view shows, all of it is there
        for ref in refs:
            if ref in self._producer:
                self._readers[ref][op] = None
            elif ref in self._storage:
                held[self._storage[ref]] = None
        for key in held:
            self._read_storage.setdefault(key, []).append(op)
        self._weights.append(sum(self.program.storage_bytes[each] for each in held))
        for each in made:
            self._producer[each] = op
            self._readers[each] = {}
            self.tensor_names.append(each)
        return op

    def _graph(self) -> OpGraph:
        readers = [list(self._readers[name]) for name in self.tensor_names]
        tensors = [self.program.tensors[name] for name in self.tensor_names]
        return OpGraph(
            name=self.program.name,
            op_names=tuple(self._names),
            op_types=tuple(self._types),
            tensor_producer=np.array([self._producer[name] for name in self.tensor_names], dtype=np.int64),
            consumer_offsets=np.cumsum([0, *map(len, readers)], dtype=np.int64),
            consumers=np.array([op for each in readers for op in each], dtype=np.int64),
            tensor_bytes=np.array([tensor.num_bytes for tensor in tensors]),
            op_flops=np.array(self._flops),
            op_weight_bytes=np.array(self._weights),
            tensor_shapes=tuple(tensor.shape for tensor in tensors),
        )


def is_in_place(node: TorchNode) -> bool:
    """Return whether a call changes its first argument: torch marks such operators by a trailing underscore."""
    name = operator_name(node.target)
    return name.endswith("_") and not name.endswith("__")


class _Memory:
    """Aliases of tensors, and the last writer of each memory, while a program is walked through.

    An operator that works in place hands on no value that others read, so that the order is not in the arguments:
    whoever reads that memory, by whatever view, comes after the change. What reads memory that was changed under
    another name has to be on the device of the change, with all that shows that memory; a change whose result alone is
    read can be a copy. A buffer that changes is state, and stays on one device with all that reads it.
    """

    def __init__(self, program: TorchProgram) -> None:
        self._held = dict(program.parameters)  # path by name, of views of parameters, too
        self._base: dict[str, str] = {}
        self._change: dict[str, tuple[str, int]] = {}  # by base: the last change's tensor and op
        self._ops: dict[str, list[int]] = {}  # by base: what makes, shows, reads or changes it
        self._nodes: dict[str, list[int]] = {}  # by base: indices of the nodes that change it
        self._readers: dict[str, list[int]] = {}  # by buffer
        self._changing: set[str] = set()
        self._shared: set[str] = set()

    def change_after(self, tensor: str, op: int) -> str | None:
        """Return the tensor of the last change to `tensor`'s memory, if that came after `op`, which made it."""
        base = self._base.get(tensor, tensor)
        change = self._change.get(base)
        if change is None or change[1] <= op:
            return None
        self._shared.add(base)
        return change[0]

    def called(
        self, index: int, node: TorchNode, op: int, refs: Sequence[str], made: Sequence[str], *, is_view: bool
    ) -> None:
        """Take note of a call: node number `index`, op number `op`, which reads `refs` and makes `made`."""
        for ref in refs:
            self._ops.setdefault(self._base.get(ref, ref), []).append(op)
            if ref in self._held:
                self._readers.setdefault(self._held[ref], []).append(op)
        for each in made:
            self._ops.setdefault(each, []).append(op)
        if not refs or not (is_view or is_in_place(node)):
            return
        base = self._base.get(refs[0], refs[0])
        self._base |= dict.fromkeys(made, base)
        if is_in_place(node):
            self._change[base] = (made[0], op)
            self._nodes.setdefault(base, []).append(index)
            if base in self._held:
                self._changing.add(self._held[base])
                self._shared.add(base)

    def viewed(self, parameter: str, made: Sequence[str]) -> None:
        """Take note of tensors that are views of a parameter."""
        self._base |= dict.fromkeys(made, self._base.get(parameter, parameter))
        self._held |= dict.fromkeys(made, self._held[parameter])

    @property
    def seen_changes(self) -> frozenset[int]:
        """Nodes whose change is read under another name, or stays in a buffer: these have to work in place."""
        return frozenset(node for base in self._shared for node in self._nodes.get(base, ()))

    @property
    def states(self) -> frozenset[str]:
        """Paths of the buffers that are changed in place."""
        return frozenset(self._changing)

    def bound_together(self, assigned: Sequence[tuple[str, int]]) -> list[list[int]]:
        """Return groups of ops that need the same memory, and so one device.

        `assigned` has buffer and op of every assignment at the end of the program.
        """
        found = [[op, *self._readers.get(buffer, [])] for buffer, op in assigned]
        found += [self._readers[buffer] for buffer in sorted(self._changing)]
        return found + [self._ops[base] for base in sorted(self._shared) if base not in self._held]
