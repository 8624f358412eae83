"""From a program of torch.export to an op graph.

Every call of an operator that makes a tensor is an op, named by the path of its module and the operator
(``layers.0.mlp.up.linear``); inputs and outputs of the model are ops, too, as with the other readers. Parameters,
buffers and constants, and views of these, are no ops: their bytes are weights of the ops that read them. A weight that
two ops read (tied embeddings) counts at each of them, because the devices of both need it;
`TorchSource.parameter_bytes` counts it once. Sizes and other numbers that a program computes are known once its shapes
are, and no ops either.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from placekit.errors import InvalidFileError, InvalidGraphError, UnsupportedProblemError
from placekit.graph import OpGraph
from placekit.io.model import ModelInput, ModelSource
from placekit.pytorch.archive import read_archive
from placekit.pytorch.exported import export_module, program_of
from placekit.pytorch.ops import count_operator
from placekit.pytorch.program import Ref, TorchNode, TorchProgram

if TYPE_CHECKING:
    import openvino
    import torch

__all__ = ["TorchSource", "read_pt2", "read_torch", "source_of_program"]

_LOGGER = logging.getLogger(__name__)

_ELEMENT_TYPES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "boolean",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class TorchSource(ModelSource):
    """A PyTorch model as an op graph; see `ModelSource` for what it can do.

    Parameters
    ----------
    parameter_bytes
        Bytes of everything that the module holds and the program reads, tied weights once.
    module_of_op
        ``[num_ops]`` path of the module that every op is called by; empty for inputs, outputs and the top.
    unknown_operators
        Operators that no table knows, with the number of their calls; each counts one operation per output element.
    """

    parameter_bytes: float = 0.0
    module_of_op: tuple[str, ...] = ()
    unknown_operators: Mapping[str, int] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        kind, values = super().__reduce__()
        return (kind, (*values, self.parameter_bytes, self.module_of_op, dict(self.unknown_operators)))

    def load(self) -> openvino.Model:
        """Refuse: OpenVINO does not run it.

        Raises
        ------
        UnsupportedProblemError
            Always.
        """
        raise UnsupportedProblemError(
            f"{self.path}: a PyTorch program; OpenVINO does not run it. Use analytic costs (--costs analytic), or "
            "convert the model: openvino.save_model(openvino.convert_model(module, example_input=inputs), 'model.xml')"
        )


def read_torch(
    module: torch.nn.Module | torch.export.ExportedProgram,
    example_args: Sequence[Any] = (),
    example_kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str | None = None,
) -> TorchSource:
    """Read a PyTorch module by torch.export.

    Parameters
    ----------
    module
        The module, in the mode (``eval`` or ``train``) that is to be placed; or what torch.export made of one.
    example_args, example_kwargs
        Arguments that it can be called with; only their shapes and types matter.
    dynamic_shapes
        Dimensions to leave open, as torch.export takes them.
    shapes
        Sizes of the open dimensions, as shapes by name of an input; those of the examples by default.
    name
        Name of the model; by default that of the module's class.

    Raises
    ------
    UnsupportedProblemError
        torch.export cannot follow the module; the message names the module and what to do.
    SolverUnavailableError
        torch is not installed.

    Examples
    --------
    >>> import torch
    >>> source = read_torch(torch.nn.Sequential(torch.nn.Linear(64, 10), torch.nn.ReLU()), (torch.zeros(8, 64),))
    >>> source.graph.op_names
    ('input', '0.linear', '1.relu', 'output')
    >>> source.graph.op_flops.tolist(), source.graph.op_weight_bytes.tolist()
    ([0.0, 10240.0, 80.0, 0.0], [0.0, 2600.0, 0.0, 0.0])
    """
    exported: Any = module
    if not hasattr(module, "graph_signature"):
        exported = export_module(exported, example_args, example_kwargs, dynamic_shapes)
    title = name or ("program" if exported is module else type(module).__name__)
    return source_of_program(program_of(exported, title), shapes)


def read_pt2(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> TorchSource:
    """Read a program that ``torch.export.save`` wrote; needs no torch and runs nothing of the file.

    Parameters
    ----------
    path
        The ``.pt2`` file.
    shapes
        Shapes by name of an input, for dimensions that were left open; those of the example inputs by default.

    Raises
    ------
    InvalidFileError
        A file that torch.export did not write.
    UnknownNameError, InvalidProblemError
        A shape for no input, or one that the program does not accept.
    """
    path = Path(path)
    program = read_archive(path)
    try:
        return source_of_program(program, shapes, path)
    except InvalidGraphError as error:
        raise InvalidFileError(f"{path}: {error}") from None


def source_of_program(
    program: TorchProgram, shapes: Mapping[str, Sequence[int]] | None = None, path: Path | None = None
) -> TorchSource:
    """Return the op graph of a program; see the module docstring.

    Raises
    ------
    UnsupportedProblemError
        Control flow inside the program: which branch runs, and how often, is not known beforehand.
    """
    given = {name: tuple(int(dim) for dim in shape) for name, shape in (shapes or {}).items()}
    where = path or Path(program.name)
    lowering = _Lowering(program.bind(given), where)
    graph = lowering.graph()
    if lowering.unknown:
        told = ", ".join(f"{target} ({count})" for target, count in sorted(lowering.unknown.items()))
        _LOGGER.warning("%s: operators without a count, one operation per output element each: %s", where, told)
    digest = hashlib.blake2b(f"{graph.content_hash}{sorted(given.items())}".encode(), digest_size=16)
    return TorchSource(
        graph=graph,
        colocation=lowering.colocation(),
        path=where,
        content_hash=digest.hexdigest(),
        num_nodes=len(program.nodes) + len(program.inputs) + len(program.outputs) + len(program.parameters),
        num_edges=sum(len(node.refs()) for node in program.nodes) + len(program.outputs),
        inputs=tuple(
            ModelInput(name, tensor.shape, _ELEMENT_TYPES.get(tensor.dtype, tensor.dtype))
            for name, tensor in ((name, lowering.program.tensors[name]) for name in program.inputs)
        ),
        shapes=given,
        parameter_bytes=sum(lowering.bytes_of_storage.values()),
        module_of_op=tuple(lowering.modules),
        unknown_operators=dict(lowering.unknown),
    )


class _Lowering:
    """The ops of a bound program, one after the other."""

    def __init__(self, program: TorchProgram, where: Path) -> None:
        self.program = program
        self.where = where
        self.names: list[str] = []
        self.types: list[str] = []
        self.modules: list[str] = []
        self.flops: list[float] = []
        self.weights: list[float] = []
        self.unknown: dict[str, int] = {}
        self.bytes_of_storage: dict[str, float] = {}
        self._parameter = {name: program.storage.get(path, path) for name, path in program.parameters.items()}
        self._producer: dict[str, int] = {}
        self._tensors: list[str] = []
        self._readers: dict[str, dict[int, None]] = {}
        self._used: dict[str, int] = {}
        self._states: list[list[int]] = []
        self._base: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._lower()

    def _lower(self) -> None:
        program = self.program
        for name in program.inputs:
            self._add(name, "Parameter", "", 0.0, (), (name,))
        readers_of: dict[str, list[int]] = {}
        changing: set[str] = set()
        for node in program.nodes:
            made = [each for each in node.outputs if each in program.tensors]
            refs = self._read(node)
            if node.target.startswith("higher_order."):
                caller = repr(node.module) if node.module else "at the top"
                raise UnsupportedProblemError(
                    f"{self.where}: module {caller} calls {node.target}: which branch of control flow runs is not "
                    "known beforehand; export the module with the branch that is to be placed"
                )
            if not made:
                continue
            counted = count_operator(
                node.target,
                {name: self._shapes(value) for name, value in node.arguments.items() if self._is_tensor(value)},
                node.arguments,
                [program.tensors[each].shape for each in made],
            )
            if counted.op_type == "View" and refs and all(ref in self._parameter for ref in refs):
                self._parameter |= dict.fromkeys(made, self._parameter[refs[0]])
                continue
            if not counted.is_known:
                self.unknown[node.target] = self.unknown.get(node.target, 0) + 1
            op = self._add(_op_name(node), counted.op_type, node.module, counted.flops, refs, made)
            for ref in refs:
                if ref in program.parameters:
                    readers_of.setdefault(program.parameters[ref], []).append(op)
            changed = self._base.get(refs[0], refs[0]) if refs else ""
            if counted.op_type == "View" or _is_in_place(node):
                self._base |= dict.fromkeys(made, changed)
            if _is_in_place(node) and changed:
                self._written[changed] = made[0]
                if changed in program.parameters:
                    changing.add(program.parameters[changed])
        for name in program.outputs:
            self._add("output", "Result", "", 0.0, (name,), ())
        for name, buffer in program.mutations.items():
            op = self._add(f"{buffer}.assign", "Assign", buffer.rpartition(".")[0], 0.0, (name,), ())
            self._states.append([op, *readers_of.get(buffer, [])])
        self._states += [readers_of[buffer] for buffer in sorted(changing)]

    def _read(self, node: TorchNode) -> list[str]:
        """Return the tensors and parameters that a call reads; of memory that was changed in place, the change, too."""
        found: dict[str, None] = {}
        for ref in node.refs():
            if ref in self._producer or ref in self._parameter:
                found[ref] = None
                change = self._written.get(self._base.get(ref, ref), ref)
                if change != ref and self._producer[change] > self._producer.get(ref, -1):
                    found[change] = None
        return list(found)

    def _is_tensor(self, value: Any) -> bool:
        if isinstance(value, list):
            return bool(value) and any(self._is_tensor(each) for each in value)
        return isinstance(value, Ref) and value.name in self.program.tensors

    def _shapes(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._shapes(each) for each in value if self._is_tensor(each)]
        return self.program.tensors[value.name].shape

    def _add(self, name: str, op_type: str, module: str, flops: float, refs: Sequence[str], made: Sequence[str]) -> int:
        op = len(self.names)
        number = self._used[name] = self._used.get(name, 0) + 1
        self.names.append(name if number == 1 else f"{name}#{number}")
        self.types.append(op_type)
        self.modules.append(module)
        self.flops.append(flops)
        held: dict[str, float] = {}
        for ref in refs:
            if ref in self._producer:
                self._readers[ref][op] = None
            elif ref in self._parameter and ref in self.program.tensors:
                storage = self._parameter[ref]
                held[storage] = max(held.get(storage, 0.0), self.program.tensors[ref].num_bytes)
        for storage, num_bytes in held.items():
            self.bytes_of_storage[storage] = max(self.bytes_of_storage.get(storage, 0.0), num_bytes)
        self.weights.append(sum(held.values()))
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

    def colocation(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """``[num_ops]`` labels: what reads a buffer that the program changes stays with what changes it."""
        labels = np.arange(len(self.names), dtype=np.int64)
        for state in self._states:
            labels[np.isin(labels, labels[state])] = labels[state[0]]
        return labels


def _operator(node: TorchNode) -> str:
    namespace, _, rest = node.target.partition(".")
    return rest.partition(".")[0] if namespace == "aten" else rest or namespace


def _is_in_place(node: TorchNode) -> bool:
    """Return whether a call changes its first argument: torch marks such operators by a trailing underscore."""
    name = _operator(node)
    return name.endswith("_") and not name.endswith("__")


def _op_name(node: TorchNode) -> str:
    operator = _operator(node)
    return f"{node.module}.{operator}" if node.module else operator
