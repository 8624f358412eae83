"""Outlines of models: modules and shapes of parameters, named as transformers names them, without torch.

An outline has what readers of a model on torch's meta device ask of it, and is there in milliseconds: importing
transformers and building a model takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

Shape = tuple[int, ...]


class Fields(SimpleNamespace):
    """Fields of a configuration, as attributes."""

    def get_text_config(self, **_: Any) -> Fields:
        """Return the fields of the text model: these."""
        return self

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return a field; `otherwise` where it is None or not there."""
        value = getattr(self, name, None)
        return otherwise if value is None else value


class Parameter:
    """A parameter of some shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def numel(self) -> int:
        """Return how many numbers it has."""
        return math.prod(self.shape)

    def dim(self) -> int:
        """Return how many dimensions it has."""
        return len(self.shape)


class Module:
    """A module with parameters and children; its class is named after what it is."""

    def __init__(self) -> None:
        self.children: dict[str, Module] = {}
        self.own: dict[str, Parameter] = {}

    def __len__(self) -> int:
        return len(self.children)

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        for found in (self.__dict__.get("own", {}), self.__dict__.get("children", {})):
            if name in found:
                return found[name]
        raise AttributeError(name)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the children by their names."""
        yield from self.children.items()

    def named_modules(self, prefix: str = "", **_: Any) -> Iterator[tuple[str, Module]]:
        """Yield the module and all inside by their paths."""
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}".lstrip("."))

    def named_parameters(
        self, *, recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters by their paths; shared ones once unless not `remove_duplicate`."""
        seen: set[int] = set()
        for path, module in self.named_modules() if recurse else [("", self)]:
            for name, parameter in module.own.items():
                if not remove_duplicate or id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{path}.{name}".lstrip("."), parameter

    def parameters(self, *, recurse: bool = True) -> Iterator[Parameter]:
        """Yield parameters, shared ones once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def get_submodule(self, path: str) -> Module:
        """Return the module at a path."""
        found = self
        for name in filter(None, path.split(".")):
            found = found.children[name]
        return found


@cache
def _class_of(kind: str) -> type[Module]:
    return type(kind, (Module,), {})


def _kind(name: str, inside: str) -> str:
    """Return the class of a module by its name, and the name of what it is in."""
    if inside.isdecimal():
        return "Attention" if "attn" in name else "Layer"
    known = {"embed_tokens": "Embedding", "layers": "ModuleList", "experts": "Experts", "conv1d": "Conv1d"}
    is_linear = "_proj" in name or name in ("lm_head", "shared_expert_gate")
    return known.get(name, "Linear" if is_linear else "Layer")


def outline(
    fields: Fields, parameters: Iterable[tuple[str, Shape]], attributes: Mapping[str, Mapping[str, Any]]
) -> Module:
    """Return the modules that hold some parameters, by their paths in order.

    `attributes` are those of modules by their paths; modules with attention have the configuration. Raises
    `ValueError`: a side of a parameter that is no positive number.
    """
    root = _class_of("Model")()
    for path, shape in parameters:
        if not all(isinstance(side, int) and side > 0 for side in shape):
            raise ValueError(f"{path} has shape {shape}")
        module, inside = root, ""
        *names, key = path.split(".")
        for name in names:
            if name not in module.children:
                module.children[name] = _class_of(_kind(name, inside))()
                if "attn" in name:
                    module.children[name].__dict__["config"] = fields
            module, inside = module.children[name], name
        module.own[key] = Parameter(shape)
        if type(module).__name__ == "Conv1d":
            module.__dict__.update(in_channels=shape[0], kernel_size=shape[2:])
    for path, values in attributes.items():
        root.get_submodule(path).__dict__.update(values)
    if fields.get("tie_word_embeddings", False):
        root.get_submodule("lm_head").own["weight"] = root.get_submodule("model.embed_tokens").own["weight"]
    root.__dict__["config"] = fields
    return root
