"""Bodies that always run, put in the place of their calls.

torch.export keeps a region of a module as a call with a body where the region has a mode of its own: without gradients,
with autocast, with checkpoints. Such a body runs once and always, so that its calls belong to the program around it.
Autocast casts inside of the operators, and is noted at every call (`TorchNode.autocast`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from placekit.model.errors import InvalidFileError
from placekit.pytorch.program import Body, Ref, Special, TorchNode, TorchProgram

__all__ = ["inline_bodies"]

_AUTOCAST = "higher_order.wrap_with_autocast"
_ALWAYS_RUN = frozenset(
    {
        _AUTOCAST,
        "higher_order.wrap_with_set_grad_enabled",
        "higher_order.tag_activation_checkpoint",
        "higher_order.wrap_activation_checkpoint",
        "higher_order.wrap",
        "higher_order.strict_mode",
        "higher_order.invoke_subgraph",
    }
)
_DEFAULT_TYPES: Mapping[str, str] = {"cpu": "bfloat16", "cuda": "float16"}


def inline_bodies(program: TorchProgram) -> TorchProgram:
    """Return the program with every body that always runs in the place of its call.

    Raises
    ------
    InvalidFileError
        A call that gives its body another number of values than the body takes.
    """
    if not any(node.target in _ALWAYS_RUN for node in program.nodes):
        return program
    inlining = _Inlining(program)
    names: dict[str, Any] = {}
    inlining.run(program.nodes, names, "")
    return replace(
        program,
        nodes=tuple(inlining.nodes),
        tensors=inlining.tensors,
        numbers=inlining.numbers,
        outputs=tuple(_now(name, names) for name in program.outputs),
        mutations={_now(name, names): buffer for name, buffer in program.mutations.items()},
    )


class _Inlining:
    """The calls of a program, and its values, which grow as bodies are walked through."""

    def __init__(self, program: TorchProgram) -> None:
        self.program = program
        self.nodes: list[TorchNode] = []
        self.tensors, self.numbers = dict(program.tensors), dict(program.numbers)

    def run(self, nodes: Iterable[TorchNode], names: dict[str, Any], autocast: str) -> None:
        """Append calls.

        Parameters
        ----------
        nodes
            The calls.
        names
            Value in the program by name in the calls, for those that differ; it grows.
        autocast
            The type of autocast around the calls; empty without.
        """
        for node in nodes:
            arguments = {key: _renamed(value, names) for key, value in node.arguments.items()}
            if node.target in _ALWAYS_RUN:
                self._enter(replace(node, arguments=arguments), names, autocast)
                continue
            outputs = tuple(_now(name, names) for name in node.outputs)
            self.nodes.append(replace(node, arguments=arguments, outputs=outputs, autocast=autocast))

    def _enter(self, node: TorchNode, names: dict[str, Any], autocast: str) -> None:
        """Append the calls of a body."""
        positional = [value for key, value in node.arguments.items() if key.startswith("arg")]
        at = next((place for place, value in enumerate(positional) if isinstance(value, Body)), None)
        if at is None:
            raise InvalidFileError(f"model {self.program.name!r}: {node.target} has no body")
        body, given = positional[at], positional[at + 1 :]
        given = given[1:] if given and isinstance(given[0], str) else given  # a label of the body
        places = node.elements or range(len(node.outputs))
        if len(given) != len(body.inputs) or max(places, default=-1) >= len(body.outputs):
            raise InvalidFileError(
                f"model {self.program.name!r}: {node.target} gives {len(given)} values to a body of "
                f"{len(body.inputs)}, and takes {len(node.outputs)} of {len(body.outputs)}"
            )
        if node.target == _AUTOCAST:
            kind, dtype, is_enabled = positional[:3]
            if kind in body.devices:  # autocast of one kind of device leaves tensors on others as they are
                is_type = isinstance(dtype, Special) and dtype.kind == "dtype"
                named = dtype.name if is_type else _DEFAULT_TYPES.get(kind, "")
                autocast = named if is_enabled else ""
        # torch's names have no dots, so that these are new; what a body makes and returns has its name in the program
        own = {name for each in body.nodes for name in (each.name, *each.outputs)}
        new = {name: f"{node.name}.{name}" for name in own}
        returned = [(outer, body.outputs[place]) for outer, place in zip(node.outputs, places, strict=True)]
        for outer, value in reversed(returned):  # of several names for one value the first
            if isinstance(value, Ref) and value.name in own:
                new[value.name] = _now(outer, names)
        self.tensors |= {new[name]: tensor for name, tensor in body.tensors.items() if name in own}
        self.numbers |= {new[name]: number for name, number in body.numbers.items() if name in own}
        inner = {**dict(zip(body.inputs, given, strict=True)), **{name: Ref(each) for name, each in new.items()}}
        self.run((replace(each, name=new[each.name]) for each in body.nodes), inner, autocast)
        names |= {outer: _renamed(value, inner) for outer, value in returned}


def _now(name: str, names: Mapping[str, Any]) -> str:
    value = names.get(name)
    return value.name if isinstance(value, Ref) else name


def _renamed(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        return names.get(value.name, value)
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    return value
