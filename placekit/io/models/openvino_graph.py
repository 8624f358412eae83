"""From an OpenVINO model to an op graph: what both readers share once OpenVINO has parsed the file.

Constants, and what is computed from constants alone (a compressed weight and the Convert behind it), are no ops of
the graph: they follow their consumer, and their bytes are its weight. A constant with several consumers is counted at
each of them, because each of their devices needs a copy; `ModelSource.shared_weights` says which consumers share it, so
that it counts once on a device that has several. Constants of one content are one weight there.
Stateful and random ops, If, Loop and TensorIterator, and Results are always ops, whatever feeds them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.arrays import components
from placekit.io.models.flops import DATA_MOVEMENT, USES_ATTRIBUTES, count_flops
from placekit.io.models.model_inputs import ModelInput, format_shape
from placekit.io.models.number_types import number_types
from placekit.io.models.tied import tied_constants
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError
from placekit.model.graph import DYNAMIC, OpGraph

if TYPE_CHECKING:
    import openvino

ATTENTION = "ScaledDotProductAttention"
"""Type of the ops that read queries, keys and values, in this order."""

STATEFUL = frozenset({"ReadValue", "Assign"})
"""Types of the ops that read and assign what a model keeps between inferences."""

ALWAYS_PLACED = frozenset(
    {"Parameter", "Result", "ReadValue", "Assign", "RandomUniform", "Multinomial", "If", "Loop", "TensorIterator"}
)
"""Ops that have a device even where constants alone feed them: copies of them would not be equal, or not be cheap."""

_AUTOMATIC_NAME = re.compile(r"[A-Za-z]\w*?_\d+(?:_compressed)?")
"""Names that OpenVINO makes up: the type and a counter of the process, so another one at every reading."""

_SINK_PORT = re.compile(r"/sink_port_\d+$")
"""Ending that converters give to the name of a tensor, to name the Result that reads it."""

_OPERATOR = re.compile(r"(/aten::\w+)/\w+$")
"""Operator of PyTorch that became several nodes, and the type of one of them: ``.../aten::batch_norm/Add``."""

_PORTS = {"Parameter": "input", "Result": "output"}
"""Types of the inputs and outputs of a model, and their names where nobody named them."""

_BODIES = frozenset({"If", "Loop", "TensorIterator"})


@dataclass(frozen=True)
class _Scan:
    """The nodes of a model in topological order: their input ports as (node, output port), and who is placed."""

    nodes: list[openvino.Node]
    types: list[str]
    sources: list[list[tuple[int, int]]]
    is_placed: list[bool]

    @property
    def placed(self) -> list[int]:
        return [node for node, placed in enumerate(self.is_placed) if placed]


def _scan(model: openvino.Model) -> _Scan:
    nodes = model.get_ordered_ops()
    # two Python objects can stand for one node; its instance name is unique within the process
    index = {node.get_name(): at for at, node in enumerate(nodes)}
    types = [node.get_type_name() for node in nodes]
    sources: list[list[tuple[int, int]]] = []
    is_placed: list[bool] = []
    for node, op_type in zip(nodes, types, strict=True):
        ports = [node.input_value(port) for port in range(node.get_input_size())]
        sources.append([(index[port.get_node().get_name()], port.get_index()) for port in ports])
        is_placed.append(
            op_type != "Constant"
            and (op_type in ALWAYS_PLACED or not ports or any(is_placed[source] for source, _ in sources[-1]))
        )
    return _Scan(nodes, types, sources, is_placed)


def placed_names(model: openvino.Model) -> tuple[str, ...]:
    """Return the friendly names of the ops that `lower` would place, in the graph's order."""
    scan = _scan(model)
    return tuple(scan.nodes[node].get_friendly_name() for node in scan.placed)


def settle_names(
    model: openvino.Model, known: Container[str], node_of_tensor: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Give every node a unique name that its author knows, the same at every reading of the file. In place.

    1. A node keeps its name, except for names of tensors: it takes the name of the node of the file that computes the
       tensor.
    2. OpenVINO's made-up names (``Multiply_6977``, a counter of the process) give way to the name of the node that
       computes the same tensor, or else to the nearest name and the type: ``conv1/Convolution``. The nearest name is
       that of the closest reader, and where no reader has a name, of the closest producer.
    3. A Result is named after its tensor, ``logits`` and not ``logits/sink_port_0``; if an op has that name,
       ``logits/output``.
    4. Of several nodes of one name the first in topological order keeps it, the next are ``name#2``, ``name#3``, ...;
       placed ops come before constants.

    `known` are the names that the file itself uses; `node_of_tensor` has the name of the node that computes a tensor.
    """
    scan = _scan(model)
    names: list[str] = []
    made_up: list[bool] = []
    for node, op_type in zip(scan.nodes, scan.types, strict=True):
        own = node.get_friendly_name()
        tensors = sorted({name for port in node.outputs() for name in port.get_names()})
        computed = [own, *tensors] if op_type not in _PORTS and _is_made_up(own, known) else [own]
        found = next((node_of_tensor[name] for name in computed if name in node_of_tensor), "")
        name = _port_name(own, tensors, op_type, known) if op_type in _PORTS else found or own
        names.append(name)
        made_up.append(op_type not in _PORTS and not found and _is_made_up(own, known))
    owners = _nearest_names(scan, names, made_up)
    names = [
        (f"{owner}/{op_type}" if owner else op_type) if automatic else name
        for name, owner, op_type, automatic in zip(names, owners, scan.types, made_up, strict=True)
    ]
    for node, name in zip(scan.nodes, _unique_names(scan, names, made_up), strict=True):
        if node.get_friendly_name() != name:
            node.set_friendly_name(name)


def _unique_names(scan: _Scan, names: Sequence[str], made_up: Sequence[bool]) -> list[str]:
    """Return names that differ; a name of the file goes before one that was derived from it."""
    unique = list(names)
    taken = {name for name, automatic in zip(names, made_up, strict=True) if not automatic}
    of_ops = {name for name, op_type in zip(names, scan.types, strict=True) if op_type not in _PORTS}
    used: set[str] = set()
    later: list[int] = []
    for node in [*scan.placed, *(node for node, placed in enumerate(scan.is_placed) if not placed)]:
        if made_up[node] or names[node] in used:
            later.append(node)
        else:
            used.add(names[node])
    count: dict[str, int] = {}
    for node in later:
        stem = names[node]
        if scan.types[node] == "Result" and stem in of_ops:
            stem += "/output"
        number = count.get(stem, 1 if stem in taken else 0)
        while True:
            number += 1
            fresh = stem if number == 1 else f"{stem}#{number}"
            if fresh not in taken:
                break
        count[stem] = number
        taken.add(fresh)
        unique[node] = fresh
    return unique


def _is_made_up(name: str, known: Container[str]) -> bool:
    return name not in known and _AUTOMATIC_NAME.fullmatch(name) is not None


def _port_name(own: str, tensors: Sequence[str], op_type: str, known: Container[str]) -> str:
    """Return the name of an input or output of the model: that of its tensor, if the author gave it one."""
    if not _is_made_up(own, known):
        return _SINK_PORT.sub("", own)
    # 440 and input.81 are the converter's
    return next((name for name in tensors if name.isidentifier() and not _is_made_up(name, known)), _PORTS[op_type])


def _nearest_names(scan: _Scan, names: Sequence[str], made_up: Sequence[bool]) -> list[str]:
    """Return for every node the closest name that OpenVINO did not make up: its own, a reader's, a producer's, or "".

    A converter that makes several nodes of one names the last of them, so readers come first.
    """
    nearest: list[tuple[int, str] | None] = [
        None if automatic or op_type in _PORTS else (0, _OPERATOR.sub(r"\1", name))
        for name, op_type, automatic in zip(names, scan.types, made_up, strict=True)
    ]
    from_readers = list(nearest)
    for node in reversed(range(len(names))):
        found = from_readers[node]
        for source, _ in scan.sources[node]:
            before = from_readers[source]
            if found is not None and (before is None or found[0] + 1 < before[0]):
                from_readers[source] = (found[0] + 1, found[1])
    for node, sources in enumerate(scan.sources):
        nearest[node] = from_readers[node]
        if nearest[node] is None:
            behind = [each for source, _ in sources if (each := nearest[source]) is not None]
            if behind:
                steps, name = min(behind)
                nearest[node] = (steps + 1, name)
    return ["" if each is None else each[1] for each in nearest]


def apply_shapes(model: openvino.Model, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Give inputs the shapes that the user wants, and fold what they make constant. In place."""
    if not shapes:
        return
    import openvino as ov
    from openvino.passes import ConstantFolding, Manager

    ports = {port.get_node().get_friendly_name(): port for port in model.inputs}
    by_name = {name: port for port in model.inputs for name in port.get_names()} | ports
    wanted: dict[str, tuple[Any, openvino.PartialShape]] = {}
    for name, shape in shapes.items():
        if name == "" and len(ports) == 1:
            port = next(iter(ports.values()))
        elif name in by_name:
            port = by_name[name]
        else:
            of = f"input {name!r}" if name else f"single input: it has {len(ports)}"
            form = f"; write {name[:-1]}[1,128]" if name[:-1] in by_name and name.endswith("=") else ""
            raise UnknownNameError(f"{path}: the model has no {of}; inputs are {', '.join(ports)}{form}")
        twice = next((other for other, (same, _) in wanted.items() if same == port), None)
        if twice is not None:
            both = " and ".join(f"{each}{format_shape(shapes[each])}" for each in (twice, name))
            raise InvalidProblemError(f"{path}: shapes {both} are of the same input")
        wanted[name] = port, ov.PartialShape(list(shape))
    try:
        model.reshape(dict(wanted.values()))
    except Exception as error:  # OpenVINO raises RuntimeError and types of its own
        asked = ",".join(f"{name}{format_shape(shape)}" for name, shape in shapes.items())
        raise InvalidFileError(f"{path}: the model does not take the shape {asked}: {short_reason(error)}") from None
    folding = Manager()
    folding.register_pass(ConstantFolding())
    folding.run_passes(model)


def lower(model: openvino.Model, name: str) -> dict[str, Any]:
    """Turn a model with settled names into an op graph; return the fields of a `ModelSource` by name.

    A tensor is one output port of a placed op that at least one placed op reads. Unknown dimensions are `DYNAMIC` in
    its shape. With all inputs known, a dimension that depends on data counts as its upper bound; if an input is not
    known, and for a dimension without an upper bound, sizes and FLOPs take the lower bound, at least 1.

    Notes
    -----
    O(nodes + edges), apart from constants that many ops share through computed constants.
    """
    scan = _scan(model)
    placed = scan.placed
    weights, shared = _weights(scan)
    op_of = {node: op for op, node in enumerate(placed)}
    readers: dict[tuple[int, int], dict[int, None]] = {}
    for op, node in enumerate(placed):
        for source, port in scan.sources[node]:
            if scan.is_placed[source]:
                readers.setdefault((op_of[source], port), {})[op] = None
    tensors = sorted(readers)
    tensor_of = {(placed[producer], port): tensor for tensor, (producer, port) in enumerate(tensors)}
    ports = [scan.nodes[placed[producer]].output(port) for producer, port in tensors]
    shapes = [_shape(port.get_partial_shape()) for port in ports]
    is_known = not any(port.get_partial_shape().is_dynamic for port in model.inputs)
    unbounded = [op for op, shape in enumerate(shapes) if is_known and shape.most is None]
    graph = OpGraph(
        name=name,
        op_names=tuple(scan.nodes[node].get_friendly_name() for node in placed),
        op_types=tuple(scan.types[node] for node in placed),
        tensor_producer=np.array([producer for producer, _ in tensors], dtype=np.int64),
        consumer_offsets=np.cumsum([0, *(len(readers[tensor]) for tensor in tensors)], dtype=np.int64),
        consumers=np.array([op for tensor in tensors for op in readers[tensor]], dtype=np.int64),
        tensor_bytes=np.array(
            [
                math.ceil(math.prod(shape.sizes(is_known)) * port.get_element_type().bitwidth / 8)
                for port, shape in zip(ports, shapes, strict=True)
            ],
            dtype=np.float64,
        ),
        op_flops=np.array(
            [_node_flops(scan.nodes[node], scan.types[node], is_known) for node in placed], dtype=np.float64
        ),
        op_weight_bytes=weights,
        tensor_shapes=tuple(shape.dimensions for shape in shapes),
    )
    variables: dict[str, list[int]] = {}
    for op, node in enumerate(placed):
        if scan.types[node] in STATEFUL:
            variables.setdefault(scan.nodes[node].get_attributes()["variable_id"], []).append(op)
    attention = {
        op: tuple(tensor_of.get(source, -1) for source in scan.sources[node][:3])
        for op, node in enumerate(placed)
        if scan.types[node] == ATTENTION
    }
    told = ""
    if unbounded:
        op, shape = int(graph.tensor_producer[unbounded[0]]), graph.tensor_shapes[unbounded[0]]
        told = f"op {graph.op_names[op]!r} ({graph.op_types[op]}) gives shape {format_shape(shape)}"
    return {
        "graph": graph,
        "colocation": _kept_together(graph, list(variables.values())),
        "num_nodes": len(scan.nodes),
        "num_edges": sum(len(ports) for ports in scan.sources),
        "inputs": tuple(
            ModelInput(
                port.get_node().get_friendly_name(),
                _shape(port.get_partial_shape()).dimensions,
                port.get_element_type().to_string(),
            )
            for port in model.inputs
        ),
        "shared_weights": shared,
        "attention": attention,
        "unbounded": told,
        "numbers": number_types(
            scan.nodes, scan.types, [[source for source, _ in ports] for ports in scan.sources], scan.is_placed
        ),
    }


@dataclass(frozen=True, slots=True)
class _Shape:
    """Dimensions, `DYNAMIC` where unknown; the least that each can be; the most, None if one has no bound."""

    dimensions: tuple[int, ...]
    least: tuple[int, ...]
    most: tuple[int, ...] | None

    def sizes(self, is_known: bool) -> tuple[int, ...]:
        """Return what counts as the size; see `lower` for `is_known`."""
        return self.most if is_known and self.most is not None else self.least


def _shape(shape: openvino.PartialShape) -> _Shape:
    # iterating over a PartialShape in Python costs ten times as much
    return _parsed(shape.to_string())


@lru_cache(maxsize=4096)
def _parsed(text: str) -> _Shape:
    """Return a shape from OpenVINO's notation: ``[1,?,2..5]``, ``[...]`` for no known rank."""
    inner = text[text.index("[") + 1 : text.rindex("]")]
    if inner == "...":
        return _Shape((DYNAMIC,), (1,), None)
    shape, least, most = [], [], []
    for dim in inner.split(",") if inner else ():
        low, is_range, high = dim.partition("..")
        known = not is_range and dim.isdigit()
        shape.append(int(dim) if known else DYNAMIC)
        least.append(int(dim) if known else max(int(low) if low.isdigit() else 1, 1))
        most.append(int(dim) if known else int(high) if high.isdigit() else None)
    bounds = tuple(each for each in most if each is not None)
    return _Shape(tuple(shape), tuple(least), bounds if len(bounds) == len(most) else None)


def _node_flops(node: openvino.Node, op_type: str, is_known: bool) -> float:
    if op_type in DATA_MOVEMENT:
        return 0.0
    if op_type in _BODIES:
        costs = [
            sum(_node_flops(inner, inner.get_type_name(), is_known) for inner in body.get_ordered_ops())
            for body in _bodies(node, op_type)
        ]
        # the longer branch of an If; a loop of unknown length counts once
        return max(costs) if op_type == "If" else costs[0] * max(node.get_num_iterations(), 1)
    return count_flops(
        op_type,
        [_shape(node.get_input_partial_shape(i)).sizes(is_known) for i in range(node.get_input_size())],
        [_shape(node.get_output_partial_shape(i)).sizes(is_known) for i in range(node.get_output_size())],
        node.get_attributes() if op_type in USES_ATTRIBUTES else None,
    )


def _kept_together(graph: OpGraph, states: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """``[num_ops]`` labels: the ops of a state share one with all that lies between them.

    A state is kept by the part that reads and assigns it: what leads from reading to assigning cannot be elsewhere. A
    cycle through the ops of each state has exactly these ops in common, also where states depend on each other.
    """
    if not states:
        return np.arange(graph.num_ops)
    loops = np.array([pair for ops in states for pair in zip(ops, [*ops[1:], ops[0]], strict=True)], dtype=np.int64)
    first, second = loops.reshape(-1, 2).T
    labels = components(
        graph.num_ops, np.append(graph.senders, first), np.append(graph.receivers, second), is_strong=True
    )
    return np.unique(labels, return_index=True)[1][labels]


def _bodies(node: openvino.Node, op_type: str) -> list[openvino.Model]:
    return [node.get_function(0), node.get_function(1)] if op_type == "If" else [node.get_function()]


def _body_weight_bytes(node: openvino.Node, op_type: str) -> float:
    total = 0.0
    for body in _bodies(node, op_type):
        for inner in body.get_ops():
            inner_type = inner.get_type_name()
            if inner_type == "Constant":
                total += inner.get_byte_size()
            elif inner_type in _BODIES:
                total += _body_weight_bytes(inner, inner_type)
    return total


def _weights(scan: _Scan) -> tuple[NDArray[np.float64], tuple[tuple[float, tuple[int, ...]], ...]]:
    """Return ``[num_ops]`` bytes of all weights behind each placed op, each once per op; and those of several ops."""
    constants = [node for node, op_type in enumerate(scan.types) if op_type == "Constant"]
    tied = tied_constants([scan.nodes[node] for node in constants])
    weight_of = {node: constants[first] for node, first in zip(constants, tied, strict=True)}
    weights = []
    readers: dict[int, list[int]] = {}
    for op, node in enumerate(scan.placed):
        total = 0.0
        if scan.types[node] in _BODIES:
            total += _body_weight_bytes(scan.nodes[node], scan.types[node])
        seen: set[int] = set()
        stack = [source for source, _ in scan.sources[node] if not scan.is_placed[source]]
        while stack:
            constant = stack.pop()
            if constant in seen:
                continue
            seen.add(constant)
            weight = weight_of.get(constant)
            if weight is not None and op not in readers.setdefault(weight, [])[-1:]:
                total += scan.nodes[constant].get_byte_size()
                readers[weight].append(op)
            stack.extend(source for source, _ in scan.sources[constant])
        weights.append(total)
    together: dict[tuple[int, ...], float] = {}
    for weight, ops in readers.items():
        if len(ops) > 1:
            together[tuple(ops)] = together.get(tuple(ops), 0.0) + scan.nodes[weight].get_byte_size()
    shared = tuple((num_bytes, ops) for ops, num_bytes in together.items() if num_bytes > 0)
    return np.array(weights, dtype=np.float64), shared


def short_reason(error: BaseException) -> str:
    """Return the sentence of OpenVINO's multi-line exception text that says what is wrong."""
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines()]
    noise = (
        "Exception from ",
        "Check '",
        "While validating",
        "FrontEnd API failed",
        "Model wasn't fully converted",
        "[ONNX Frontend]",
        "Summary:",
    )
    telling = [line for line in lines if line and not line.startswith(noise)]
    reason = " ".join(telling[:2] if telling else [line for line in lines if line][-1:])
    return reason if len(reason) <= 300 else f"{reason[:297]}..."
