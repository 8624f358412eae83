"""Programs, or parts of them, as modules that torch can run.

A part is built from the calls of a program as an ``fx.GraphModule``: nothing but registered operators is called, with
the arguments that the program says, and no name of a file gets into the code that torch.fx writes, so that no code of a
file runs. Numbers that a program computes of its sizes are constants, views of weights are made where they are read,
and an operator that works in place works on a copy unless its change is seen by others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Mapping, Sequence
from operator import getitem
from typing import TYPE_CHECKING, Any

from placekit.model.errors import UnsupportedProblemError
from placekit.pytorch.lowering import NO_NODE, Lowered
from placekit.pytorch.needs import require_torch
from placekit.pytorch.program import Ref, Special, TorchNode, operator_name
from placekit.pytorch.state import is_in_place

if TYPE_CHECKING:
    import torch

__all__ = ["NODE", "Builder", "find_operator"]

NODE = "placekit_node"
"""Key in the ``meta`` of a call: the index of the program's node that it comes from."""

_NAMESPACES = frozenset({"aten", "prims", "quantized", "quantized_decomposed"})
"""Namespaces of torch's own operators that compute. Its others reach out of the program: to files, to processes."""

_REFUSED = frozenset({"from_file", "save", "load", "open_registration", "_print"})
"""Operators that do so in these."""

_WORD = re.compile(r"\w+", re.ASCII)


def find_operator(node: TorchNode) -> Any:
    """Return the operator that a node calls: one of torch that computes, of an imported package, or of this program.

    Nothing but a registered operator is ever looked up, whatever the name says.

    Raises
    ------
    UnsupportedProblemError
        No registered operator, or one that reaches for files or other processes.
    """
    torch = require_torch("running a program")
    where = _place(node)
    if operator_name(node.target).partition(".")[0] in _REFUSED:
        raise UnsupportedProblemError(f"{where} calls {node.target}, which reads or writes files; it is not run")
    namespace, name, overload = (*node.target.split("."), "default", "", "")[:3]
    qualified = f"{namespace}::{name}"
    is_name = node.target.count(".") in (1, 2) and all(_WORD.fullmatch(each) for each in (namespace, name, overload))
    if not is_name or not _is_registered(qualified, "" if overload == "default" else overload):
        raise UnsupportedProblemError(
            f"{where} calls {node.target!r}, an operator that is not registered here; import the package that "
            "registers it first, or export the module without it"
        )
    if namespace not in _NAMESPACES and namespace not in sys.modules and not _is_own(qualified):
        raise UnsupportedProblemError(
            f"{where} calls {node.target}, which is not run: {namespace} is no imported package, and the operator was "
            "not made by torch.library.custom_op"
        )
    found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    assert isinstance(found, torch._ops.OpOverload)
    return found


def _place(node: TorchNode | None) -> str:
    return f"module {node.module!r}" if node is not None and node.module else "the program"


def _is_registered(qualified: str, overload: str) -> bool:
    import torch

    try:
        torch._C._dispatch_find_schema_or_throw(qualified, overload)
    except RuntimeError:
        return False
    return True


def _is_own(qualified: str) -> bool:
    """Return whether an operator was made by ``torch.library.custom_op`` outside of torch."""
    from torch._library.custom_ops import OPDEFS

    made = OPDEFS.get(qualified)
    return made is not None and made._init_fn.__module__.partition(".")[0] != "torch"


class Builder:
    """Builds modules of parts of a program.

    Parameters
    ----------
    lowered
        The program and its ops.
    tensors
        What the module holds, by path; see :func:`placekit.pytorch.weights.load_weights`.
    """

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
        """Return the module of some ops.

        Parameters
        ----------
        ops
            Indices of ops; inputs and outputs among them play no role.
        inputs, outputs
            Names of the tensors that it is called with, and of those that it returns, as a tuple.
        device
            Where it runs, as torch says it; weights are moved there.

        Raises
        ------
        UnsupportedProblemError
            An operator that is not registered here, or a number that depends on values.
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
        operator = find_operator(node)
        args, kwargs = self._arguments(operator, node)
        if is_in_place(node) and index not in self._builder.lowered.in_place:
            functional = _without_change(operator)
            if functional is None:
                args[0] = self.graph.call_function(self._torch.ops.aten.clone.default, (args[0],))
            else:
                operator = functional
        if node.autocast:
            operator = _Autocast(operator, self._device, node.autocast)
        made = self.graph.call_function(operator, tuple(args), kwargs)
        made.meta[NODE] = index
        if not node.elements:
            self.values[node.outputs[0]] = made
            return
        for at, name in zip(node.elements, node.outputs, strict=True):
            if at < 0:
                raise UnsupportedProblemError(
                    f"{_place(node)} calls {node.target}, which returns a list among other values; such calls "
                    "are not run"
                )
            self.values[name] = self.graph.call_function(getitem, (made, at))

    def assign(self, buffer: str, name: str) -> None:
        """Append the assignment of a value to a buffer."""
        copy = self._torch.ops.aten.copy_.default
        self.graph.call_function(copy, (self._held(buffer), self.values[name]))

    def finish(self, outputs: Sequence[str]) -> torch.fx.GraphModule:
        """Return the module."""
        values = [self._value(Ref(name), None) for name in outputs]
        if self._builder.lowered.states:  # the next call may change what an output shows
            clone = self._torch.ops.aten.clone.default
            values = [self.graph.call_function(clone, (each,)) for each in values]
        self.graph.output(tuple(values))
        module: torch.fx.GraphModule = self._torch.fx.GraphModule(self._root, self.graph).eval()
        return module

    def _arguments(self, operator: Any, node: TorchNode) -> tuple[list[Any], dict[str, Any]]:
        """Return positional arguments as far as they go without a gap, and the others by name."""
        args: list[Any] = []
        kwargs = {name: self._value(value, node) for name, value in node.arguments.items()}
        for argument in operator._schema.arguments:
            if argument.kwarg_only or argument.name not in kwargs:
                break
            args.append(kwargs.pop(argument.name))
        return args, kwargs

    def _value(self, value: Any, node: TorchNode | None) -> Any:
        if isinstance(value, list):
            return [self._value(each, node) for each in value]
        if isinstance(value, Special):
            return self._torch.device(self._device) if value.kind == "device" else getattr(self._torch, value.name)
        if not isinstance(value, Ref):
            return value
        program = self._builder.lowered.program
        if value.name in program.parameters and value.name not in self.values:
            self.values[value.name] = self._held(program.parameters[value.name])
        if value.name in self.values:
            return self.values[value.name]
        if value.name in program.numbers:
            return program.numbers[value.name]
        what = node.target if node is not None else "its end"
        raise UnsupportedProblemError(
            f"{_place(node)}: {what} reads {value.name!r}, a number that depends on the values of tensors (item()), so "
            "that it cannot be run in parts; compute it outside of the module and give it as a constant"
        )

    def _held(self, path: str) -> Any:
        """Return the node of a weight; the module holds the same memory once."""
        if path not in self._names:
            tensor = self._builder.tensors[path]
            if path in self._builder.lowered.states:  # every part changes its own
                tensor = tensor.clone()
            if id(tensor) not in self._moved:
                self._moved[id(tensor)] = tensor.detach().to(self._device)
            # a path in a file may be any text, and torch.fx writes names into code
            self._names[path] = f"held_{len(self._names)}_{re.sub(r'[^A-Za-z0-9]', '_', path)}"
            self._root.register_buffer(self._names[path], self._moved[id(tensor)])
        return self.graph.create_node("get_attr", self._names[path], name="weight")


class _Autocast:
    """Operator in autocast, as a function that torch.fx can call.

    Parameters
    ----------
    operator
        The operator.
    device
        Where its tensors are, as torch says it.
    dtype
        The type to cast to.
    """

    def __init__(self, operator: Any, device: str, dtype: str) -> None:
        self._torch = require_torch("running a program")
        self._operator = operator
        self._device = self._torch.device(device).type
        self._dtype = getattr(self._torch, dtype)
        self.__name__ = f"{operator.__name__.replace('.', '_')}_in_{dtype}"  # in the code that torch.fx writes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._torch.autocast(self._device, dtype=self._dtype, cache_enabled=False):
            return self._operator(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{self._operator} in autocast to {self._dtype}"


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
