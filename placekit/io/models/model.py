"""Models: read from a file into an op graph, and read again when OpenVINO has to run them.

Placement happens on the op graph; profiling, splitting and timing need the model itself. A `ModelSource` holds the
first and knows how to get the second, with the same op names in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from placekit.io.models.model_inputs import ModelInput, format_shape
from placekit.io.models.number_types import NumberTypes
from placekit.model.costs import CostTable
from placekit.model.errors import InvalidFileError, UnsupportedProblemError
from placekit.model.graph import DYNAMIC, OpGraph, frozen_array
from placekit.model.platform import Platform
from placekit.model.problem import Problem

if TYPE_CHECKING:
    import openvino

Load: TypeAlias = "Callable[[Path, Mapping[str, tuple[int, ...]]], openvino.Model]"
"""Reads a file with OpenVINO, shapes applied and names settled."""


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A model that was read from a file: its op graph, and the way to load it again.

    This class is of models that OpenVINO runs; a derived one says what measures, runs and exports its models.

    Parameters
    ----------
    graph
        Every op that has a device: all but constants and what is computed from constants alone, Parameter and
        Result included. Ops are keyed by friendly name and stand in topological order.
    colocation
        ``[num_ops]`` labels; the ReadValue and Assign ops of one variable share a label with what lies between them,
        every other op has its own.
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
    numbers
        What ops multiply, and how tensors and weights are stored; None if it is not known.
    load_model
        What reads the file with OpenVINO.

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
    numbers: NumberTypes | None = None
    load_model: Load | None = None

    backend: ClassVar[str] = "placekit.cost_models.openvino.backend:OpenVinoBackend"
    """What measures it: a :class:`~placekit.cost_models.base.Backend`, imported when it is needed."""
    engine: ClassVar[str] = "placekit.runtime.stages.openvino_engine:OpenVinoEngine"
    """What cuts and runs it: a :class:`~placekit.runtime.stages.plans.Engine`."""
    exports: ClassVar[tuple[str, ...]] = ("openvino", "placekit")
    """Runtimes that ``placekit export --to`` writes its stages for."""

    def __post_init__(self) -> None:
        what = f"model {self.graph.name!r}: colocation"
        colocation = frozen_array(self.colocation, np.int64, (self.graph.num_ops,), what)
        object.__setattr__(self, "colocation", colocation)
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "shapes", MappingProxyType({k: tuple(v) for k, v in self.shapes.items()}))
        object.__setattr__(self, "attention", MappingProxyType(dict(self.attention)))

    def __reduce__(self) -> tuple[Any, ...]:
        # mappingproxy does not pickle
        values = (self.graph, self.colocation, self.path, self.content_hash, self.num_nodes, self.num_edges)
        more = (self.inputs, dict(self.shapes), self.shared_weights, dict(self.attention), self.unbounded, self.numbers)
        return (type(self), (*values, *more, self.load_model))

    @property
    def module_of_op(self) -> tuple[str, ...] | None:
        """``[num_ops]`` path of the module that every op is called by; None if the file knows no modules."""
        return None

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
        UnsupportedProblemError
            OpenVINO does not run the model.
        """
        from placekit.io.models.openvino_graph import placed_names

        if self.load_model is None:
            raise UnsupportedProblemError(f"{self.path}: OpenVINO does not run it")
        model = self.load_model(self.path, self.shapes)
        if placed_names(model) != self.graph.op_names:
            raise InvalidFileError(f"{self.path}: the file has changed since it was read; read the model again")
        return model

    def problem(self, platform: Platform, costs: CostTable, **kwargs: Any) -> Problem:
        """Return the problem of placing this model on `platform` at `costs`; `kwargs` are other fields of `Problem`."""
        return Problem(self.graph, platform, costs, colocation=self.colocation, **kwargs)

    def __repr__(self) -> str:
        return f"ModelSource({self.name!r}: {self.graph.num_ops} ops of {self.num_nodes} nodes, {self.path.name})"
