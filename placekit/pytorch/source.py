"""From a program of torch.export to an op graph.

Every call of an operator that makes a tensor is an op, named by the path of its module and the operator
(``layers.0.mlp.up.linear``); inputs and outputs of the model are ops, too, as with the other readers. Parameters,
buffers and constants, and views of these, are no ops: their bytes are weights of the ops that read them. A weight that
two ops read (tied embeddings) counts at each of them, because the devices of both need it;
`ModelSource.weight_bytes` counts it once. Sizes and other numbers that a program computes are known once its shapes
are, and no ops either.
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from placekit.io.model import ModelSource
from placekit.io.model_inputs import ModelInput
from placekit.model.errors import InvalidFileError, InvalidGraphError, UnsupportedProblemError
from placekit.pytorch.archive import read_archive
from placekit.pytorch.exported import export_module
from placekit.pytorch.lowering import Lowered
from placekit.pytorch.module import Builder
from placekit.pytorch.program import is_tensor, program_of

if TYPE_CHECKING:
    import openvino
    import torch

_LOGGER = logging.getLogger(__name__)

_ELEMENT_TYPES = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "boolean",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TorchSource(ModelSource):
    """A PyTorch model as an op graph; see `ModelSource` for what it can do.

    `exported` is what torch.export made of the module or what was read from `path`, which is a file if `is_file`.
    """

    lowered: Lowered
    exported: torch.export.ExportedProgram
    is_file: bool = False

    @property
    def module_of_op(self) -> tuple[str, ...]:
        """``[num_ops]`` path of the module that every op is called by; empty for inputs, outputs and the top."""
        return tuple(self.lowered.module_of_op)

    def __reduce__(self) -> tuple[Any, ...]:
        content = io.BytesIO()
        if not self.is_file:  # bytes of its own: another process shares no memory with this one
            import torch

            torch.export.save(self.exported, content)
        return _read_again, (self.path, dict(self.shapes), self.content_hash, content.getvalue())

    def builder(self) -> Builder:
        """Return what builds modules that torch runs, of the whole program or of parts."""
        tensors = {**self.exported.state_dict, **self.exported.constants}
        return Builder(self.lowered, {path: each for path, each in tensors.items() if is_tensor(each)})

    def load(self) -> openvino.Model:
        """Refuse: OpenVINO does not run it."""
        raise UnsupportedProblemError(
            f"{self.path}: a PyTorch program; OpenVINO does not run it. Export with --to torch-pipeline, or "
            "convert it: openvino.save_model(openvino.convert_model(module, example_input=inputs), 'model.xml')"
        )


def _read_again(path: Path, shapes: Mapping[str, Sequence[int]], content_hash: str, content: bytes) -> TorchSource:
    """Return a source that was pickled, of a module if `content` has its bytes."""
    if not content:
        source = read_pt2(path, shapes)
        if source.content_hash != content_hash:
            raise InvalidFileError(f"{path}: the file has changed since it was read; read the model again")
        return source
    with TemporaryDirectory(prefix="placekit-") as folder:
        file = Path(folder) / "module.pt2"
        file.write_bytes(content)
        return _source(read_archive(file), path.name, shapes, path)


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
    return _source(exported, title, shapes, Path(title))


def read_pt2(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> TorchSource:
    """Read a program that ``torch.export.save`` wrote; runs nothing of the file.

    `shapes` gives shapes to inputs by name, for dimensions that were left open; those of the examples by default.

    Raises
    ------
    InvalidFileError
        A file that torch.export did not write.
    UnknownNameError, InvalidProblemError
        A shape for no input, or one that the program does not accept.
    """
    path = Path(path)
    exported = read_archive(path)
    try:
        return _source(exported, path.stem, shapes, path, is_file=True)
    except (InvalidFileError, InvalidGraphError) as error:
        raise InvalidFileError(f"{path}: {error}") from None


def _source(
    exported: torch.export.ExportedProgram,
    name: str,
    shapes: Mapping[str, Sequence[int]] | None,
    where: Path,
    *,
    is_file: bool = False,
) -> TorchSource:
    """Return the op graph of a program; see the module docstring."""
    given = {name: tuple(int(dim) for dim in shape) for name, shape in (shapes or {}).items()}
    program = program_of(exported, name, given)
    lowered = Lowered(program, where)
    if lowered.unknown:
        told = ", ".join(f"{target} ({count})" for target, count in sorted(lowered.unknown.items()))
        _LOGGER.warning("%s: operators without a count, one operation per output element each: %s", where, told)
    calls = [(each.target, sorted(each.arguments.items()), each.outputs) for each in program.nodes]
    content = f"{lowered.graph.content_hash}{sorted(given.items())}{calls}"
    digest = hashlib.blake2b(content.encode(), digest_size=16)
    tensors = program.tensors
    return TorchSource(
        graph=lowered.graph,
        colocation=lowered.colocation,
        path=where,
        content_hash=digest.hexdigest(),
        num_nodes=len(program.nodes) + len(program.inputs) + len(program.outputs) + len(program.parameters),
        num_edges=sum(len(node.refs()) for node in program.nodes) + len(program.outputs),
        inputs=tuple(
            ModelInput(name, tensors[name].shape, _ELEMENT_TYPES.get(tensors[name].dtype, tensors[name].dtype))
            for name in program.inputs
        ),
        shapes=given,
        shared_weights=lowered.shared_weights,
        attention=lowered.attention,
        lowered=lowered,
        exported=exported,
        is_file=is_file,
    )
