"""Programs of torch.export with a number for every size, as the lowering and the builder of stages walk through them.

Calls are nodes of ``torch.fx``, with their own arguments. A region that has a mode of its own (without gradients, with
checkpoints) is a call with a body; such a body runs once and always, so that its calls stand in the place of that call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError, UnsupportedProblemError

if TYPE_CHECKING:
    import torch

_AUTOCAST = "higher_order.wrap_with_autocast"
_ALWAYS_RUN = frozenset(
    {_AUTOCAST} | {f"higher_order.{name}" for name in (
        "wrap_with_set_grad_enabled", "tag_activation_checkpoint", "wrap_activation_checkpoint", "wrap", "strict_mode",
        "invoke_subgraph",
    )}
)  # fmt: skip
_LARGEST = 2**63

AUTOCAST = "placekit_autocast"
"""Key in the ``meta`` of a call: whether autocast casts inside of its operator."""


@dataclass(frozen=True, slots=True)
class TorchTensor:
    """Type of one tensor by torch's name without the module (``"float32"``), bytes of an element, and shape."""

    dtype: str
    item_bytes: int
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> float:
        """Bytes of all elements."""
        return float(math.prod(self.shape)) * self.item_bytes


@dataclass(frozen=True, eq=False)
class TorchNode:
    """One call of an operator, such as ``"aten.linear.default"``, by a module: ``"layers.0.up"``, empty at the top.

    `arguments` are by the names of the operator; tensors and computed numbers among them are nodes of torch.fx.
    `outputs` names the tensors that it makes; those that are None in torch are left out. `elements` says where each of
    them stands in the sequence that the call returns; it is empty if the call returns one value.
    """

    call: torch.fx.Node
    target: str
    module: str
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]
    elements: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        """The calling module, as messages name it."""
        return f"module {self.module!r}" if self.module else "the program"

    def refs(self) -> list[str]:
        """Return the values that it reads, in order, one of several readings each."""
        return [each.name for each in self.call.all_input_nodes]


@dataclass(frozen=True, eq=False)
class TorchProgram:
    """Program of torch.export for a module."""

    name: str  # name of the model
    nodes: tuple[TorchNode, ...]  # the calls, in an order in which they can run
    # type and shape of every tensor by name: inputs, parameters, and what nodes make
    tensors: Mapping[str, TorchTensor]
    numbers: Mapping[str, Any]  # number by name of a node that computes one of sizes
    # inputs, outputs: names of the tensors that the caller gives and gets
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    # path by name of every tensor that the module holds: parameters, buffers and constants
    parameters: Mapping[str, str]
    storage: Mapping[str, str]  # key of the memory behind every parameter, by its path: tied weights share one
    storage_bytes: Mapping[str, float]  # bytes of that memory, by its key
    mutations: Mapping[str, str]  # path of a buffer by the name of the tensor that becomes its next value


def operator_name(target: str) -> str:
    """Return an operator's name without namespace and overload.

    Examples
    --------
    >>> operator_name("aten.add_.Tensor"), operator_name("torchvision.nms.default")
    ('add_', 'nms.default')
    """
    namespace, _, rest = target.partition(".")
    return rest.partition(".")[0] if namespace == "aten" else rest or namespace


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, real or fake."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def program_of(
    exported: torch.export.ExportedProgram, name: str, shapes: Mapping[str, Sequence[int]] | None = None
) -> TorchProgram:
    """Return the program of a module, with the sizes that `shapes` gives to inputs, else those of the examples.

    The empty name in `shapes` means the only input.
    """
    import torch

    specs = exported.graph_signature.input_specs
    held = {str(spec.arg.name): str(spec.target) for spec in specs if spec.target is not None}
    graph, values = torch.fx.Graph(), dict[Any, Any]()
    for node in exported.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
            values[node].name = node.name  # torch.fx would rename what is called as a function of Python is
    _append(graph, exported.graph_module, values, casts=False)
    renamed = {each.name: now.name for each, now in values.items() if isinstance(now, torch.fx.Node)}
    inputs = [
        node for node in graph.nodes
        if node.op == "placeholder" and node.name not in held and is_tensor(node.meta.get("val"))
    ]  # fmt: skip
    sizes = _Sizes(name, graph, inputs, shapes or {})
    tensors: dict[str, TorchTensor] = {}
    numbers: dict[str, Any] = {}
    nodes = []
    for node in graph.nodes:
        made = _made(node)
        tensors |= {each: sizes.tensor(each, value, node) for each, _, value in made}
        numbers |= sizes.number(node)
        if node.op == "call_function" and not _is_element(node):
            nodes.append(_call(node, made))
    returned = [
        (spec.kind.name, str(spec.target), renamed.get(getattr(spec.arg, "name", None), ""))
        for spec in exported.graph_signature.output_specs
    ]
    keys, num_bytes = _memories(exported, tensors, held)
    return TorchProgram(
        name=name,
        nodes=tuple(nodes),
        tensors=tensors,
        numbers=numbers,
        inputs=tuple(node.name for node in inputs),
        outputs=tuple(each for kind, _, each in returned if each in tensors and kind in ("USER_OUTPUT", "LOSS_OUTPUT")),
        parameters=held,
        storage=keys,
        storage_bytes=num_bytes,
        mutations={each: target for kind, target, each in returned if each and kind == "BUFFER_MUTATION"},
    )


def _made(node: torch.fx.Node) -> list[tuple[str, int, Any]]:
    """Return name, place and torch's description of every tensor that a node makes; the place is -1 if it is alone."""
    value = node.meta.get("val")
    if not isinstance(value, list | tuple):
        return [(node.name, -1, value)] if is_tensor(value) else []
    taken = {each.args[1]: each.name for each in node.users if each.target is operator.getitem}
    return [(taken.get(at, f"{node.name}_unused_{at}"), at, each) for at, each in enumerate(value) if is_tensor(each)]


def _is_element(node: torch.fx.Node) -> bool:
    """Return whether a node takes one of the values that another node makes."""
    source: Any = node.args[0] if node.target is operator.getitem else None
    is_list = isinstance(node.meta.get("val"), list | tuple)
    return source is not None and isinstance(source.meta.get("val"), list | tuple) and not is_list


def _call(node: torch.fx.Node, made: Sequence[tuple[str, int, Any]]) -> TorchNode:
    schema = getattr(node.target, "_schema", None)
    names = [each.name for each in schema.arguments] if schema is not None else []
    names += [f"arg{at}" for at in range(len(names), len(node.args))]
    return TorchNode(
        call=node,
        target=_target(node.target),
        module=_module(node),
        arguments={**dict(zip(names, node.args, strict=False)), **node.kwargs},
        outputs=tuple(name for name, _, _ in made),
        elements=tuple(at for _, at, _ in made if at >= 0),
    )


def _target(target: Any) -> str:
    import torch

    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target._name}"
    return str(target) if isinstance(target, torch._ops.OpOverload) else f"{target.__module__}.{target.__name__}"


def _module(node: torch.fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""


def _memories(
    exported: torch.export.ExportedProgram, tensors: Mapping[str, TorchTensor], held: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, float]]:
    """Return the key of the memory behind every parameter, by path, and the bytes of that memory: tied ones are one."""
    values: dict[str, Any] = {**exported.state_dict, **exported.constants}
    keys, num_bytes = {}, dict[str, float]()
    for name, path in held.items():
        keys[path] = path
        if name not in tensors:  # an object
            continue
        meta, value = tensors[name], values.get(path)
        if value is None or (str(value.dtype), *value.shape) != (f"torch.{meta.dtype}", *meta.shape):
            raise InvalidFileError(
                f"the program reads {path!r} as {meta.dtype} {list(meta.shape)}, and no such tensor is there"
            )
        with suppress(RuntimeError, NotImplementedError):  # a tensor without storage
            keys[path] = f"{value.untyped_storage()._cdata}:{value.storage_offset()}"
            keys[path] = f"{value.device}:{value.data_ptr() or keys[path]}"  # fake tensors have none
        there = float(meta.item_bytes)
        for size, stride in zip(meta.shape, value.stride(), strict=True):
            there *= size if stride or not size else 1  # what is expanded is there once
        num_bytes[keys[path]] = max(there, num_bytes.get(keys[path], 0.0))
    return keys, num_bytes


def _append(graph: torch.fx.Graph, module: Any, values: dict[Any, Any], *, casts: bool) -> Any:
    """Append the calls of a module to a graph, those of bodies that always run in the place of their calls.

    `values` has the value in the graph by node of the module: of the inputs first, then of all. `casts` says whether
    autocast casts inside of the operators. Returned are the outputs of the module, as values in the graph.
    """
    import torch

    for node in module.graph.nodes:
        if node.op == "get_attr":
            values[node] = getattr(module, node.target)
        if node.op not in ("call_function", "output"):
            continue
        args: Any = torch.fx.node.map_arg(node.args, values.__getitem__)
        if node.op == "output":
            return args[0]
        target = _target(node.target)
        if target in _ALWAYS_RUN:
            at = next((at for at, each in enumerate(args) if isinstance(each, torch.fx.GraphModule)), len(args))
            body, given = (*args, None)[at], args[at + 1 :]
            given = given[1:] if given and isinstance(given[0], str) else given  # a label of the body
            takes = [each for each in body.graph.nodes if each.op == "placeholder"] if body is not None else None
            if takes is None or len(takes) != len(given):
                raise InvalidFileError(f"{target} gives {len(given)} values to a body that takes others")
            metas = [each.meta.get("val") for each in body.graph.nodes]
            # autocast leaves tensors on other kinds of devices alone
            is_met = target == _AUTOCAST and any(is_tensor(each) and each.device.type == args[0] for each in metas)
            inner = dict(zip(takes, given, strict=True))
            values[node] = _append(graph, body, inner, casts=args[2] if is_met else casts)
        elif node.target is operator.getitem and isinstance(args[0], list | tuple):
            values[node] = args[0][args[1]]
        else:
            values[node] = graph.node_copy(node, values.__getitem__)
            values[node].meta[AUTOCAST] = casts
    return None


class _Sizes:
    """Numbers for the symbols of a program: those that shapes give, else those of the example inputs."""

    def __init__(
        self, name: str, graph: torch.fx.Graph, inputs: Sequence[torch.fx.Node], shapes: Mapping[str, Sequence[int]]
    ) -> None:
        self._name = name
        self._values: dict[Any, Any] = {}
        for node in graph.nodes:
            value = node.meta.get("val")
            for size in value.shape if is_tensor(value) else (value,):
                if (symbol := _symbol(size)) is not None and size.node.hint is not None:
                    self._values[symbol] = size.node.hint
        by_name = {node.name: node for node in inputs}
        asked = {each or (inputs[0].name if len(inputs) == 1 else ""): list(shape) for each, shape in shapes.items()}
        for each, shape in asked.items():
            if each not in by_name:
                raise UnknownNameError(f"model {name!r} has no input {each!r}; inputs are {', '.join(by_name)}")
            for size, number in zip(by_name[each].meta["val"].shape, shape, strict=False):
                if (symbol := _symbol(size)) is not None:
                    self._values[symbol] = number
        for each, shape in asked.items():
            found = list(self.tensor(each, by_name[each].meta["val"], by_name[each]).shape)
            if found != shape:
                raise InvalidProblemError(
                    f"shape {shape} of input {each!r} does not fit: the program needs {found}; export it again with "
                    "dynamic_shapes to leave dimensions open"
                )

    def tensor(self, name: str, value: Any, node: torch.fx.Node) -> TorchTensor:
        """Return type and shape of a tensor that a node makes."""
        try:
            shape = tuple(map(self._number, value.shape))
        except KeyError:
            where = f"module {_module(node)!r}" if _module(node) else f"tensor {name!r}"
            what = f" ({_target(node.target)})" if node.op == "call_function" else ""
            raise UnsupportedProblemError(
                f"model {self._name!r}: {where}{what} has a size that depends on the values of tensors, as of a mask "
                "or of nonzero; replace it by an operation of fixed size, such as torch.where"
            ) from None
        if any(not 0 <= size < _LARGEST for size in shape):
            raise InvalidProblemError(f"tensor {name!r}: its shape is {shape}; sizes must be from 0 to 2**63 - 1")
        return TorchTensor(str(value.dtype).removeprefix("torch."), value.dtype.itemsize, shape)

    def number(self, node: torch.fx.Node) -> dict[str, Any]:
        """Return the number that a node computes, by its name; nothing if it depends on the values of tensors."""
        value = node.meta.get("val")
        if not isinstance(value, int | float) and not hasattr(value, "node"):
            return {}
        try:
            return {node.name: self._number(value)}
        except (KeyError, TypeError, ValueError):
            return {}

    def _number(self, value: Any) -> Any:
        if not hasattr(value, "node"):
            return value
        found = value.node.expr.subs(self._values)
        if found.free_symbols:
            raise KeyError(found)
        return value.node.pytype(found)


def _symbol(size: Any) -> Any:
    """Return the symbol that a size is; None if it is a number or an expression."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    return expression if expression is not None and expression.is_Symbol else None
