"""Export of modules that are in memory, with one line for whatever torch.export says against it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placekit.io.needs import require_torch
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.pytorch.program import is_tensor

if TYPE_CHECKING:
    import torch

__all__ = ["export_module"]


def export_module(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> torch.export.ExportedProgram:
    """Export a module by torch.export, without gradients and in its own mode (``eval`` or ``train``).

    Raises
    ------
    UnsupportedProblemError
        torch.export cannot: control flow that depends on data, an operator without a fake kernel, arguments of a wrong
        shape. One line that names the module by its path and what to do.
    InvalidProblemError
        No module, or a tensor where the tuple of arguments belongs.
    SolverUnavailableError
        torch is not installed.
    """
    require_torch("reading a module")
    import torch

    if not isinstance(module, torch.nn.Module):
        raise InvalidProblemError(
            f"a {type(module).__name__} is no module; give a torch.nn.Module or what torch.export made of one (files "
            "are read by placekit.io.read_model.read_model)"
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
    text = str(error)
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    low, kind = text.lower(), type(error).__name__
    missing = next((each for each in _chain(error) if isinstance(each, ModuleNotFoundError)), None)
    if missing is not None:
        what_to_do = f"install the package {missing.name!r}, or read the module without what needs it"
    elif "data-dependent" not in low and "dynamic_shapes" in low:
        what_to_do = "check dynamic_shapes, which name the dimensions to leave open as torch.export takes them"
    elif "data-dependent" in low or kind in (
        "DataDependentOutputException",
        "DynamicOutputShapeException",
        "UserError",
    ):
        what_to_do = (
            "its flow depends on the values of tensors; replace the branch by torch.where or torch.cond, or fix the "
            "values, and read it again"
        )
    elif kind == "UnsupportedOperatorException" or re.search(
        r"fake (impl|kernel)|register_fake|meta kernel|'meta' backend", low
    ):
        what_to_do = "register a fake kernel for that operator (torch.library.register_fake)"
    elif kind == "Unsupported" or "graph break" in low or ".numpy()" in low:
        what_to_do = "torch.export cannot follow that code; move it out of forward, or write it with torch's operators"
    else:
        told = ", ".join(map(_argument, given)) or "none"
        what_to_do = f"check that module(*args, **kwargs) runs with the arguments that were given: {told}"
    return f"module {_which(module, error)}{_where(error)} cannot be exported: {first}; {what_to_do}"


def _argument(value: Any) -> str:
    """Return an argument as a message shows it: ``float32[2, 3]``, or its class."""
    if not is_tensor(value):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _which(module: torch.nn.Module, error: BaseException) -> str:
    """Return the class of a module, and the path of the innermost one in it whose code an error comes from."""
    whole = type(module).__name__
    paths = {id(each): (path, type(each).__name__) for path, each in module.named_modules() if path}
    for each in _chain(error):
        found = None
        trace = each.__traceback__
        while trace is not None:
            found = paths.get(id(trace.tb_frame.f_locals.get("self")), found)
            trace = trace.tb_next
        if found is not None:
            return f"{found[0]!r} ({found[1]}) of {whole}"
    return whole


def _where(error: BaseException) -> str:
    """Return the line of the user's code that an error of torch.export comes from, if it can be told."""
    import traceback

    import torch

    home = str(torch.__path__[0])
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(home)]
    inside = [each for each in frames if each.name == "forward"]
    if inside:
        last = inside[-1]
        return f" (forward, line {last.lineno} of {last.filename.rsplit('/', 1)[-1]})"
    told = re.search(r'File "([^"]+)", line (\d+), in forward', str(error))
    return f" (forward, line {told[2]} of {told[1].rsplit('/', 1)[-1]})" if told else ""
