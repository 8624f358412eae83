"""Programs, or parts of them, as modules that torch can run, and seeded inputs to run them without their data.

A part is built from the calls of a program as an ``fx.GraphModule``: nothing but registered operators is called, with
the arguments that the program says, and no name of a file gets into the code that torch.fx writes, so that no code of a
file runs. Numbers that a program computes of its sizes are constants, views of weights are made where they are read,
and an operator that works in place works on a copy unless its change is seen by others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from operator import getitem
from typing import TYPE_CHECKING, Any

from placekit.io.needs import require_torch
from placekit.model.errors import InvalidFileError, UnsupportedProblemError
from placekit.pytorch.lowering import NO_NODE, Lowered, is_in_place
from placekit.pytorch.program import AUTOCAST, TorchNode, TorchProgram, operator_name

if TYPE_CHECKING:
    import torch

NODE = "placekit_node"
"""Key in the ``meta`` of a call: the index of the program's node that it comes from."""

_TRANSPARENT = frozenset({"to", "view", "reshape", "unsqueeze", "squeeze", "_to_copy", "flatten"})
_DEFAULT_BOUND = 2
"""Integers without a known use are 0 or 1: valid as ids of any table, types of tokens, masks and flags."""


class Builder:
    """Builds modules of parts of a program, whose tensors it has by path."""

    def __init__(self, lowered: Lowered, tensors: Mapping[str, torch.Tensor]) -> None:
        self.lowered = lowered
        self.tensors = tensors
        program = lowered.program
        ops = {node for node in lowered.node_of_op if node != NO_NODE}
        self._maker = {each: index for index, node in enumerate(program.nodes) for each in node.outputs}
        #: nodes that only show weights: no ops, and made again wherever they are read
        self._shows_weights = {
            index
            for index, node in enumerate(program.nodes)
            if index not in ops and any(each in program.tensors for each in node.outputs)
        }

    def part(
        self, ops: Collection[int], inputs: Sequence[str], outputs: Sequence[str], device: str = "cpu"
    ) -> torch.fx.GraphModule:
        """Return the module of some ops, called with the tensors `inputs`, that returns a tuple of `outputs`.

        Inputs and outputs among the ops play no role. Weights are moved to `device`.
        """
        part = _Part(self, device)
        program = self.lowered.program
        for at, name in enumerate(inputs):  # torch.fx writes names into code: none comes from a file
            part.values[name] = part.graph.placeholder(f"input_{at}")
        assigned = self._assigned(ops)
        chosen = {self.lowered.node_of_op[op] for op in ops} - {NO_NODE}
        for index in sorted(chosen | self._shown(chosen, (*outputs, *assigned))):
            part.call(index, program.nodes[index])
        for name in assigned:
            part.assign(program.mutations[name], name)
        return part.finish(outputs)

    def whole(self, device: str = "cpu") -> torch.fx.GraphModule:
        """Return the module of all ops, from the program's inputs to its outputs."""
        program = self.lowered.program
        return self.part(range(self.lowered.graph.num_ops), program.inputs, program.outputs, device)

    def _assigned(self, ops: Collection[int]) -> list[str]:
        """Return the tensors that become the next values of buffers by the assignments among `ops`."""
        assignments = [op for op, kind in enumerate(self.lowered.graph.op_types) if kind == "Assign"]
        found = zip(assignments, self.lowered.program.mutations, strict=True)
        return [name for op, name in found if op in ops]

    def _shown(self, nodes: Collection[int], names: Sequence[str]) -> set[int]:
        """Return the views of weights that some nodes read, or that have some names."""
        program = self.lowered.program
        pending = [*names, *(ref for index in nodes for ref in program.nodes[index].refs())]
        found: set[int] = set()
        while pending:
            index = self._maker.get(pending.pop(), NO_NODE)
            if index in self._shows_weights and index not in found:
                found.add(index)
                pending += program.nodes[index].refs()
        return found


class _Part:
    """A graph of torch.fx that grows call by call, and the values in it by their names in the program."""

    def __init__(self, builder: Builder, device: str) -> None:
        self._torch = require_torch("running a program")
        self._builder = builder
        self._device = device
        self._root = self._torch.nn.Module()
        self._moved: dict[int, Any] = {}
        self._names: dict[str, str] = {}  # of weights in the module, by path
        self.graph = self._torch.fx.Graph()
        self.values: dict[str, Any] = {}

    def call(self, index: int, node: TorchNode) -> None:
        """Append a call."""
        operator: Any = node.call.target
        if node.call.meta[AUTOCAST]:
            raise UnsupportedProblemError(
                f"{node.place} calls {node.target} with autocast, which is not run; export the module without it, "
                "with its weights and inputs in the type to compute in (module.to(dtype))"
            )

        def moved(value: Any) -> Any:
            if isinstance(value, self._torch.fx.Node):
                return self._value(value.name, node)
            return self._torch.device(self._device) if isinstance(value, self._torch.device) else value

        args, kwargs = self._torch.fx.node.map_aggregate((list(node.call.args), node.call.kwargs), moved)
        args = list(args)
        if is_in_place(node) and index not in self._builder.lowered.in_place:
            functional = _without_change(operator)
            if functional is None:
                args[0] = self.graph.call_function(self._torch.ops.aten.clone.default, (args[0],))
            else:
                operator = functional
        made = self.graph.call_function(operator, tuple(args), kwargs)
        made.meta[NODE] = index
        if not node.elements:
            self.values[node.outputs[0]] = made
            return
        for at, name in zip(node.elements, node.outputs, strict=True):
            self.values[name] = self.graph.call_function(getitem, (made, at))

    def assign(self, buffer: str, name: str) -> None:
        """Append the assignment of a value to a buffer."""
        copy = self._torch.ops.aten.copy_.default
        self.graph.call_function(copy, (self._held(buffer), self.values[name]))

    def finish(self, outputs: Sequence[str]) -> torch.fx.GraphModule:
        """Return the module."""
        values = [self._value(name, None) for name in outputs]
        if self._builder.lowered.states:  # the next call may change what an output shows
            clone = self._torch.ops.aten.clone.default
            values = [self.graph.call_function(clone, (each,)) for each in values]
        self.graph.output(tuple(values))
        module: torch.fx.GraphModule = self._torch.fx.GraphModule(self._root, self.graph).eval()
        return module

    def _value(self, name: str, node: TorchNode | None) -> Any:
        program = self._builder.lowered.program
        if name in program.parameters and name not in self.values:
            self.values[name] = self._held(program.parameters[name])
        found = self.values.get(name, program.numbers.get(name))
        if found is None:
            place, what = (node.place, node.target) if node is not None else ("the program", "its end")
            raise UnsupportedProblemError(
                f"{place}: {what} reads {name!r}, a number that depends on the values of tensors (item()), so that it "
                "cannot be run in parts; compute it outside of the module and give it as a constant"
            )
        return found

    def _held(self, path: str) -> Any:
        """Return the node of a weight; the module holds the same memory once."""
        if path not in self._names:
            tensor = self._builder.tensors.get(path)
            if tensor is None or tensor.device.type == "meta":
                raise InvalidFileError(
                    f"the numbers of tensor {path!r} are not there, or are stored as a pickle or compressed, which is "
                    "not opened"
                )
            if path in self._builder.lowered.states:  # every part changes its own
                tensor = tensor.clone()
            if id(tensor) not in self._moved:
                self._moved[id(tensor)] = tensor.detach().to(self._device)
            # a path in a file may be any text, and torch.fx writes names into code
            self._names[path] = f"held_{len(self._names)}_{re.sub(r'[^A-Za-z0-9]', '_', path)}"
            self._root.register_buffer(self._names[path], self._moved[id(tensor)])
        return self.graph.create_node("get_attr", self._names[path], name="weight")


def _without_change(operator: Any) -> Any:
    """Return the operator that gives as a new tensor what `operator` writes in place; None if there is none."""
    packet, overload = operator.name().partition("::")[2].partition(".")[::2]
    torch = require_torch("running a program")
    namespace = getattr(torch.ops, operator.namespace)
    try:
        found = getattr(getattr(namespace, packet.removesuffix("_")), overload or "default")
    except AttributeError:
        return None
    named = [each.name for each in operator._schema.arguments]
    return found if [each.name for each in found._schema.arguments] == named else None


def random_inputs(program: TorchProgram, seed: int = 0) -> list[torch.Tensor]:
    """Return one tensor per input of a program whose sizes are bound, in its order.

    Real numbers are standard normal. Integers that look up rows of an embedding are uniform over its rows; other
    integers are 0 or 1; booleans, and integers whose name says mask, are 1.
    """
    torch = require_torch(f"running {program.name!r}")
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name in program.inputs:
        meta = program.tensors[name]
        dtype = getattr(torch, meta.dtype)
        if dtype.is_floating_point or dtype.is_complex:
            draw = torch.complex64 if dtype.is_complex else torch.float32
            found.append(torch.randn(meta.shape, generator=generator, dtype=draw).to(dtype))
        elif dtype == torch.bool or "mask" in name.lower():
            found.append(torch.ones(meta.shape, dtype=dtype))
        else:
            try:
                bound = min(_table_size(program, name), torch.iinfo(dtype).max)
                found.append(torch.randint(0, bound, meta.shape, generator=generator).to(dtype))
            except (TypeError, RuntimeError) as error:
                raise UnsupportedProblemError(
                    f"model {program.name!r}: input {name!r} of type {meta.dtype} has no random numbers: {error}"
                ) from None
    return found


def _table_size(program: TorchProgram, name: str) -> int:
    """Return the number of rows of the smallest embedding that is looked up by an input's values."""
    same = {name}
    sizes = []
    for node in program.nodes:
        operator, refs = operator_name(node.target), node.refs()
        if operator in _TRANSPARENT and refs and refs[0] in same:
            same |= set(node.outputs)
        table, indices = (getattr(node.arguments.get(each), "name", "") for each in ("weight", "indices"))
        if operator == "embedding" and indices in same:
            sizes.append(program.tensors[table].shape[0])
    return max(min(sizes), 1) if sizes else _DEFAULT_BOUND
