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
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from placekit.io.models.model import ModelSource
from placekit.io.models.model_inputs import ModelInput
from placekit.io.needs import require_torch
from placekit.model.errors import InvalidFileError, InvalidGraphError, InvalidProblemError, UnsupportedProblemError
from placekit.pytorch.archive import read_archive
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

    backend: ClassVar[str] = "placekit.cost_models.pytorch.backend:TorchBackend"
    engine: ClassVar[str] = "placekit.runtime.stages.torch_engine:TorchEngine"
    exports: ClassVar[tuple[str, ...]] = ("torch-pipeline",)

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


def export_module(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> torch.export.ExportedProgram:
    """Export a module by torch.export, without gradients and in its own mode (``eval`` or ``train``)."""
    require_torch("reading a module")
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidProblemError(
            f"a {type(module).__name__} is no module; give a torch.nn.Module or what torch.export made of one (files "
            "are read by placekit.io.models.read_model.read_model)"
        )
    if isinstance(args, torch.Tensor):
        raise InvalidProblemError(
            f"module {type(module).__name__}: example_args is a tensor; give the arguments as a tuple, (tensor,)"
        )
    try:
        with torch.no_grad():
            return torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises everything there is, from the module's own code too
        raise UnsupportedProblemError(_explain(module, error, (*args, *(kwargs or {}).values()))) from error


def _explain(module: torch.nn.Module, error: Exception, given: Sequence[Any]) -> str:
    """Return one line for what torch.export tells on pages: which module, what, and what to do."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    text = f"{type(error).__name__} {error}".lower()
    missing = next((each for each in _chain(error) if isinstance(each, ModuleNotFoundError)), None)
    shown = (f"{x.dtype}{list(x.shape)}".removeprefix("torch.") if is_tensor(x) else type(x).__name__ for x in given)
    told = ", ".join(shown) or "none"
    advice = f"check that module(*args, **kwargs) runs with the arguments that were given: {told}"
    for pattern, what_to_do in reversed(_ADVICE.items()):
        advice = what_to_do if re.search(pattern, text) else advice
    if missing is not None:
        advice = f"install the package {missing.name!r}, or read the module without what needs it"
    return f"module {_which(module, error)}{_where(error)} cannot be exported: {first}; {advice}"


_ADVICE = {
    "^(?!.*data-dependent)(?s:.*)dynamic_shapes": (
        "check dynamic_shapes, which name the dimensions to leave open as torch.export takes them"
    ),
    "data-dependent|^datadependentoutput|^dynamicoutputshape|^usererror": (
        "its flow depends on the values of tensors; replace the branch by torch.where or torch.cond, or fix the "
        "values, and read it again"
    ),
    "^unsupportedoperator|fake (impl|kernel)|register_fake|meta kernel|'meta' backend": (
        "register a fake kernel for that operator (torch.library.register_fake)"
    ),
    r"^unsupported |graph break|\.numpy\(\)": (
        "torch.export cannot follow that code; move it out of forward, or write it with torch's operators"
    ),
}
"""Advice by a pattern in the class and the text of an error; the first one counts."""


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those that it was raised from."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None and cause not in found:
        found.append(cause)
    return found


def _which(module: torch.nn.Module, error: BaseException) -> str:
    """Return the class of a module, and the path of the innermost one in it whose code an error comes from."""
    paths = {id(each): (path, type(each).__name__) for path, each in module.named_modules() if path}
    for each in _chain(error):
        frames = [frame for frame, _ in traceback.walk_tb(each.__traceback__)]
        found = [paths[id(me)] for frame in frames if id(me := frame.f_locals.get("self")) in paths]
        if found:
            return f"{found[-1][0]!r} ({found[-1][1]}) of {type(module).__name__}"
    return type(module).__name__


def _where(error: BaseException) -> str:
    """Return the line of the user's code that an error of torch.export comes from, if it can be told."""
    import torch

    home = str(torch.__path__[0])
    frames = [(each.filename, each.lineno, each.name) for each in traceback.extract_tb(error.__traceback__)]
    inside = [(file, line) for file, line, name in frames if name == "forward" and not file.startswith(home)]
    found = inside or re.findall(r'File "([^"]+)", line (\d+), in forward', str(error))[:1]
    return f" (forward, line {found[-1][1]} of {found[-1][0].rsplit('/', 1)[-1]})" if found else ""
