"""Export of modules that are in memory, with one line for whatever torch.export says against it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placekit.io.needs import require_torch
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError
from placekit.pytorch.program import is_tensor

if TYPE_CHECKING:
    import torch


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
