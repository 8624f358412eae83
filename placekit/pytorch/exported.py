"""Modules that are in memory: torch.export, and what it says as a `TorchProgram`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from placekit.model.errors import InvalidProblemError, SolverUnavailableError, UnsupportedProblemError
from placekit.pytorch.program import Body, Ref, Size, Special, TorchNode, TorchProgram, TorchTensor, held_bytes

if TYPE_CHECKING:
    import torch

__all__ = ["export_module", "is_tensor", "program_of"]

_MODULE_PATH = re.compile(r"L\['self'\]\.?|\bself\.")


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
    try:
        import torch
    except ModuleNotFoundError:
        raise SolverUnavailableError("reading a module needs torch: pip install 'placekit[torch]'") from None

    if not isinstance(module, torch.nn.Module):
        raise InvalidProblemError(
            f"a {type(module).__name__} is no module; give a torch.nn.Module or what torch.export made of one (files "
            "are read by placekit.io.model.read_model)"
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


def program_of(exported: torch.export.ExportedProgram, name: str) -> TorchProgram:
    """Return what an exported program says, as plain values."""
    signature = exported.graph_signature
    lifted = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    hints: dict[str, int] = {}
    graph = exported.graph_module.graph
    nodes, tensors = _calls(exported.graph_module, hints)
    inputs = [
        node.name for node in graph.nodes if node.op == "placeholder" and node.name in tensors.keys() - lifted.keys()
    ]
    user_outputs = [each for each in signature.user_outputs if isinstance(each, str)]
    pointers = _storage(exported)
    storage = {path: pointers.get(path, path) for path in lifted.values()}
    sizes: dict[str, float] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in lifted and node.name in tensors:
            key, value = storage[lifted[node.name]], node.meta["val"]
            held = held_bytes(value.dtype.itemsize, tuple(value.shape), value.stride())
            sizes[key] = max(held, sizes.get(key, 0.0))
    return TorchProgram(
        name=name,
        nodes=tuple(nodes),
        tensors=tensors,
        inputs=tuple(inputs),
        outputs=tuple(user_outputs),
        parameters={key: path for key, path in lifted.items() if key in tensors},
        storage=storage,
        storage_bytes=sizes,
        mutations=dict(signature.buffers_to_mutate),
        hints=hints,
    )


def _calls(owner: Any, hints: dict[str, int]) -> tuple[list[TorchNode], dict[str, TorchTensor]]:
    """Return the calls of a module of torch.fx, and the tensors in it."""
    tensors: dict[str, TorchTensor] = {}
    nodes: list[TorchNode] = []
    elements: dict[str, dict[int, str]] = {}  # names that getitem gives to the outputs of a node
    for node in owner.graph.nodes:
        if node.op == "call_function" and _is_getitem(node) and _is_multiple(node.args[0]):
            elements.setdefault(node.args[0].name, {})[int(node.args[1])] = node.name
    for node in owner.graph.nodes:
        value = node.meta.get("val")
        if is_tensor(value):
            tensors[node.name] = _tensor(value, hints)
        if node.op == "call_function" and not (_is_getitem(node) and _is_multiple(node.args[0])):
            outputs: tuple[str, ...] = (node.name,)
            places: tuple[int, ...] = ()
            if _is_multiple(node):
                named = elements.get(node.name, {})
                outputs = tuple(named.get(at, f"{node.name}#{at}") for at in range(len(value)))
                for each, part in zip(outputs, value, strict=True):
                    if is_tensor(part):
                        tensors[each] = _tensor(part, hints)
                places = tuple(at for at, each in enumerate(outputs) if each in tensors)
                outputs = tuple(outputs[at] for at in places)
            arguments = _arguments(node, owner)
            nodes.append(TorchNode(node.name, _target(node.target), _module(node), arguments, outputs, places))
    return nodes, tensors


def _body(owner: Any) -> Body:
    """Return a module of torch.fx that is the argument of a call."""
    nodes, tensors = _calls(owner, {})
    (returned,) = (node.args[0] for node in owner.graph.nodes if node.op == "output")
    outputs = returned if isinstance(returned, list | tuple) else [returned]
    inputs = tuple(node.name for node in owner.graph.nodes if node.op == "placeholder")
    values = [node.meta.get("val") for node in owner.graph.nodes]
    devices = frozenset(value.device.type for value in values if is_tensor(value))
    return Body(inputs, tuple(_plain(each, owner) for each in outputs), tuple(nodes), tensors, devices)


def _storage(exported: torch.export.ExportedProgram) -> dict[str, str]:
    """Return a key of the memory behind every parameter and buffer: tied weights are one."""
    found = {}
    for path, value in {**exported.state_dict, **exported.constants}.items():
        try:
            found[path] = f"{value.untyped_storage()._cdata}:{value.storage_offset()}"  # its identity
        except (AttributeError, RuntimeError, NotImplementedError):  # an object, or a tensor without storage
            found[path] = path
    return found


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor, real or fake."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_getitem(node: Any) -> bool:
    return getattr(node.target, "__name__", "") == "getitem"


def _is_multiple(node: Any) -> bool:
    return isinstance(getattr(node, "meta", {}).get("val"), tuple | list)


def _target(target: Any) -> str:
    """Return ``aten.linear.default`` of an operator, the qualified name of anything else."""
    name = str(target)
    if hasattr(target, "non_fallthrough_keys"):  # an operator with bodies
        return f"higher_order.{name.removeprefix('torch.ops.higher_order.')}"
    if name.startswith("<"):
        return f"{getattr(target, '__module__', 'builtins')}.{getattr(target, '__name__', 'call')}".lstrip("_")
    return name.removeprefix("torch.ops.")


def _module(node: Any) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return _MODULE_PATH.sub("", str(path))


def _arguments(node: Any, owner: Any) -> dict[str, Any]:
    schema = getattr(node.target, "_schema", None)
    names = [each.name for each in schema.arguments] if schema is not None else []
    positional = {names[at] if at < len(names) else f"arg{at}": each for at, each in enumerate(node.args)}
    return {name: _plain(value, owner) for name, value in {**positional, **node.kwargs}.items()}


def _plain(value: Any, owner: Any) -> Any:
    """Return an argument of a call in the module `owner` as a plain value."""
    if hasattr(value, "op") and hasattr(value, "target"):  # a node
        held = getattr(owner, str(value.target), None) if value.op == "get_attr" else None
        return _body(held) if hasattr(held, "graph") else Ref(value.name)
    if isinstance(value, list | tuple):
        return [_plain(each, owner) for each in value]
    kind = type(value).__name__
    if kind in ("dtype", "layout", "memory_format", "device"):
        return Special(kind, str(value.type if kind == "device" else value).removeprefix("torch."))
    return value if isinstance(value, bool | int | float | complex | str | None) else str(value)


def _tensor(value: Any, hints: dict[str, int]) -> TorchTensor:
    dtype = str(value.dtype).removeprefix("torch.")
    return TorchTensor(dtype, int(value.dtype.itemsize), tuple(_size(each, hints) for each in value.shape))


def _size(value: Any, hints: dict[str, int]) -> Size:
    if isinstance(value, int):
        return value
    text = str(value.node.expr)
    hint = value.node.hint
    if text.isidentifier() and hint is not None:
        hints.setdefault(text, int(hint))
    return int(text) if text.isdigit() else text
