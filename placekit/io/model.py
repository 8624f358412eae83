"""Models: read from a file into an op graph, and read again when OpenVINO has to run them.

Placement happens on the op graph; profiling, splitting and timing need the model itself. A `ModelSource` holds the
first and knows how to get the second, with the same op names in both.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from placekit.io.file_hash import feed
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, InvalidGraphError, InvalidProblemError
from placekit.model.graph import DYNAMIC, OpGraph, frozen_array
from placekit.model.platform import Platform
from placekit.model.problem import Problem

if TYPE_CHECKING:
    import openvino

__all__ = ["MODEL_SUFFIXES", "ModelInput", "ModelSource", "format_shape", "parse_shape", "read_model"]

_READERS: Mapping[str, str] = {".xml": "placekit.io.openvino_ir", ".onnx": "placekit.io.onnx"}
"""Module by file suffix; each has ``model_files(path)`` and ``load_model(path, shapes)``."""

_TORCH_SUFFIX = ".pt2"
MODEL_SUFFIXES: tuple[str, ...] = (*_READERS, _TORCH_SUFFIX)
"""Suffixes of the files that `read_model` reads."""

_SHAPE = re.compile(r"\s*([^\[\]]*?)\s*\[([^\[\]]*)\]\s*")


@dataclass(frozen=True)
class ModelInput:
    """One input of a model.

    Parameters
    ----------
    name
        Friendly name of the input's Parameter op.
    shape
        Dimensions, `DYNAMIC` for one that is only known when the model runs. A model that does not even fix the
        number of dimensions has ``(DYNAMIC,)`` here.
    dtype
        OpenVINO element type, for example ``"f32"``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension is unknown."""
        return DYNAMIC in self.shape


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A model that was read from a file: its op graph, and the way to load it again.

    Parameters
    ----------
    graph
        Every op that has a device: all but constants and what is computed from constants alone, Parameter and
        Result included. Ops are keyed by friendly name and stand in topological order.
    colocation
        ``[num_ops]`` labels; the ReadValue and Assign ops of one variable share a label, every other op has its own.
    path
        The file it was read from.
    content_hash
        Hexadecimal blake2b digest of the model's bytes (``.xml`` and ``.bin``, or ``.onnx`` with its external data)
        and of `shapes`.
    num_nodes
        Nodes of the whole model, constants included. The body of an If, Loop or TensorIterator is not counted: the
        construct is one node.
    num_edges
        Edges of the whole model, constants included: connections from an output port to an input port, so that
        an op that reads one tensor twice has two edges.
    inputs
        The model's inputs, in its own order.
    shapes
        Shapes that the user gave, by name of an input or of its tensor.
    shared_weights
        Bytes, and the ops that read them, of constants behind several ops; `graph.op_weight_bytes` has them for each.
    attention
        Tensors with the queries, keys and values of every attention op, by op; -1 for a tensor that is a weight.
    unbounded
        The first op whose output has a size that data decide, without an upper bound; empty if there is none, or if
        the inputs are not known.

    Examples
    --------
    >>> model = read_model("resnet50.xml")  # doctest: +SKIP
    >>> problem = model.problem(platform, costs)  # doctest: +SKIP
    """

    graph: OpGraph
    colocation: NDArray[np.int64]
    path: Path
    content_hash: str
    num_nodes: int
    num_edges: int
    inputs: tuple[ModelInput, ...]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shared_weights: tuple[tuple[float, tuple[int, ...]], ...] = ()
    attention: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    unbounded: str = ""

    def __post_init__(self) -> None:
        what = f"model {self.graph.name!r}: colocation"
        try:
            colocation = frozen_array(self.colocation, np.int64, (self.graph.num_ops,), what)
        except InvalidGraphError as error:
            raise InvalidProblemError(str(error)) from None
        object.__setattr__(self, "colocation", colocation)
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "shapes", MappingProxyType({k: tuple(v) for k, v in self.shapes.items()}))
        object.__setattr__(self, "attention", MappingProxyType(dict(self.attention)))

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle
        values = (self.graph, self.colocation, self.path, self.content_hash, self.num_nodes, self.num_edges)
        more = (self.inputs, dict(self.shapes), self.shared_weights, dict(self.attention), self.unbounded)
        return (type(self), (*values, *more))

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.graph.name

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights, those that several ops read once."""
        again = sum(num_bytes * (len(ops) - 1) for num_bytes, ops in self.shared_weights)
        return float(self.graph.op_weight_bytes.sum()) - again

    @property
    def dynamic_inputs(self) -> tuple[ModelInput, ...]:
        """The inputs with a dimension that is only known when the model runs."""
        return tuple(each for each in self.inputs if each.is_dynamic)

    def require_static(self) -> None:
        """Refuse a model with sizes that are not known, for the steps that need to run it or to know its costs.

        Raises
        ------
        InvalidFileError
            An input with an unknown dimension, or an op whose output has a size that data decide without an upper
            bound; the message says how to fix it.
        """
        if self.dynamic_inputs:
            first = self.dynamic_inputs[0]
            remedy = ",".join(
                f"{each.name}[{','.join('1' if dim == DYNAMIC else str(dim) for dim in each.shape)}]"
                for each in self.dynamic_inputs
            )
            raise InvalidFileError(
                f"{self.path}: input {first.name!r} has shape {format_shape(first.shape)}; every dimension must be "
                f"known here, give the sizes you want, for example --shape {remedy}"
            )
        if self.unbounded:
            raise InvalidFileError(
                f"{self.path}: {self.unbounded}; the size depends on the values of tensors and has no upper bound, so "
                "the costs are not known. Replace what computes the size by a constant, or the op by one of a fixed "
                "size (TopK for a selection)"
            )

    def load(self) -> openvino.Model:
        """Read the model again with OpenVINO, shapes applied; the placed ops are named as in `graph`.

        Raises
        ------
        InvalidFileError
            The file is gone, broken, or no longer the model that was read before.
        """
        from placekit.io.openvino_graph import placed_names

        model = _reader(self.path).load_model(self.path, self.shapes)
        if placed_names(model) != self.graph.op_names:
            raise InvalidFileError(f"{self.path}: the file has changed since it was read; read the model again")
        loaded: openvino.Model = model
        return loaded

    def problem(self, platform: Platform, costs: CostTable, **kwargs: Any) -> Problem:
        """Return the problem of placing this model on `platform` at `costs`.

        Parameters
        ----------
        platform, costs
            Where, and at what cost.
        **kwargs
            Other fields of `Problem`, such as `objective` and `contiguity`.
        """
        return Problem(self.graph, platform, costs, colocation=self.colocation, **kwargs)

    def __repr__(self) -> str:
        return f"ModelSource({self.name!r}: {self.graph.num_ops} ops of {self.num_nodes} nodes, {self.path.name})"


def read_model(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelSource:
    """Read a model file: OpenVINO IR (``.xml`` with its ``.bin``), ONNX (``.onnx``) or torch.export's (``.pt2``).

    Parameters
    ----------
    path
        The file.
    shapes
        Shapes to give to inputs, by the name of the input or of its tensor; the empty name means the only input.

    Raises
    ------
    InvalidFileError
        A file that does not exist, has another suffix or is broken; or a shape that the model does not accept.
    UnknownNameError
        A shape for an input that the model does not have.
    """
    from placekit.io.openvino_graph import lower

    path = Path(path)
    if path.suffix.lower() == _TORCH_SUFFIX:
        from placekit.pytorch.source import read_pt2

        return read_pt2(path, shapes)
    reader = _reader(path)
    given = {str(name): tuple(int(dim) for dim in shape) for name, shape in (shapes or {}).items()}
    for name, shape in given.items():
        if any(dim < DYNAMIC for dim in shape):
            raise InvalidProblemError(f"shape {list(shape)} of input {name!r}: dimensions must be >= 0, or {DYNAMIC}")
    model = reader.load_model(path, given)
    try:
        lowered = lower(model, path.stem)
    except InvalidGraphError as error:
        raise InvalidFileError(f"{path}: {error}") from None
    return ModelSource(
        graph=lowered.graph,
        colocation=lowered.colocation,
        path=path,
        content_hash=_content_hash(reader.model_files(path), given),
        num_nodes=lowered.num_nodes,
        num_edges=lowered.num_edges,
        inputs=lowered.inputs,
        shapes=given,
        shared_weights=lowered.shared_weights,
        attention=lowered.attention,
        unbounded=lowered.unbounded,
    )


def _reader(path: Path) -> Any:  # a module with the two functions named at _READERS
    try:
        module = _READERS[path.suffix.lower()]
    except KeyError:
        raise InvalidFileError(
            f"{path}: no reader for the suffix {path.suffix!r}; models are read from {', '.join(MODEL_SUFFIXES)}"
        ) from None
    if not path.is_file():
        raise InvalidFileError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    return importlib.import_module(module)


def _content_hash(files: Iterable[Path], shapes: Mapping[str, tuple[int, ...]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        digest.update(f"{file.suffix}:{file.stat().st_size}:".encode())
        feed(digest, file)
    digest.update(repr(sorted(shapes.items())).encode())
    return digest.hexdigest()


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape the way the command line takes it, ``?`` for an unknown dimension.

    Examples
    --------
    >>> format_shape((1, DYNAMIC))
    '[1,?]'
    """
    return f"[{','.join('?' if dim == DYNAMIC else str(dim) for dim in shape)}]"


def parse_shape(text: str) -> dict[str, tuple[int, ...]]:
    """Parse shapes as OpenVINO's ``benchmark_app`` takes them: ``name[1,128],other[1,?]``.

    A shape without a name stands for the only input and is returned under the empty name; ``?`` and ``-1`` leave a
    dimension unknown.

    Raises
    ------
    InvalidProblemError
        Text of another form, a dimension that is no such number, or a name given twice.

    Examples
    --------
    >>> parse_shape("ids[1,128],mask[1,?]")
    {'ids': (1, 128), 'mask': (1, -1)}
    >>> parse_shape("[1,3,224,224]")
    {'': (1, 3, 224, 224)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    at = 0
    while True:
        match = _SHAPE.match(text, at)
        if match is None:
            raise InvalidProblemError(f"shape {text!r}: expected name[1,128] at {text[at:]!r}")
        name, dims = match.groups()
        if name in shapes:
            raise InvalidProblemError(f"shape {text!r}: input {name!r} is given twice")
        shapes[name] = tuple(_parse_dimension(dim.strip(), text) for dim in dims.split(",")) if dims.strip() else ()
        at = match.end()
        if at == len(text):
            return shapes
        if text[at] != ",":
            raise InvalidProblemError(f"shape {text!r}: expected a comma at {text[at:]!r}")
        at += 1


def _parse_dimension(dim: str, text: str) -> int:
    if dim in {"?", "-1"}:
        return DYNAMIC
    if not (dim.isascii() and dim.isdigit()):
        raise InvalidProblemError(f"shape {text!r}: dimension {dim!r} is neither a number >= 0 nor '?'")
    return int(dim)
