"""Named tuples of arrays that kernels pass to one another by reference.

Numba passes an array as seven numbers or more. A tuple of 40 arrays makes 300 arguments of every call. They take long
to compile, and longer to pass than a small function takes to run. A reference to the tuple is one argument.
"""

from __future__ import annotations

from typing import Any

import numba.core.cgutils
import numba.extending
from numba.core import types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate

extending: Any = numba.extending  # numba has no types for them
cgutils: Any = numba.core.cgutils


class Reference(types.Type):
    """Numba type of a reference to a named tuple."""

    def __init__(self, of: Any) -> None:
        self.of = of
        super().__init__(f"Reference({of})")


@extending.register_model(Reference)
class _Pointer(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Reference) -> None:
        pointer = manager.lookup(kind.of).get_value_type().as_pointer()
        super().__init__(manager, kind, pointer)  # type: ignore[no-untyped-call]  # numba has no types here

    def from_argument(self, builder: Any, value: Any) -> Any:
        """Tell LLVM that nothing else leads to the tuple and nobody keeps the reference: loops load no array again."""
        place_of_result = builder.function.args[0]  # numba tells it the same of this one
        value.attributes.update(place_of_result.attributes)
        return value


def register(by_reference: Any) -> None:
    """Let kernels call `by_reference`."""
    extending.type_callable(by_reference)(_type_reference)
    extending.lower_builtin(by_reference, types.BaseNamedTuple)(_make_reference)


def _type_reference(_: Any) -> Any:
    def typer(value: types.Type) -> types.Type:
        return Reference(value) if isinstance(value, types.BaseNamedTuple) else value

    return typer


def _make_reference(_: Any, builder: Any, __: Any, values: Any) -> Any:
    return cgutils.alloca_once_value(builder, values[0])


@extending.infer_getattr
class _Attributes(AttributeTemplate):
    key = Reference

    def generic_resolve(self, kind: Reference, name: str) -> types.Type:  # type: ignore[override]  # numba's own do so
        field: types.Type = kind.of.types[kind.of.fields.index(name)]
        return Reference(field) if isinstance(field, types.BaseNamedTuple) else field


@extending.lower_getattr_generic(Reference)  # type: ignore[untyped-decorator]
def _get_attribute(_: Any, builder: Any, kind: Reference, value: Any, name: str) -> Any:
    index = kind.of.fields.index(name)
    field = cgutils.gep_inbounds(builder, value, 0, index)
    return field if isinstance(kind.of.types[index], types.BaseNamedTuple) else builder.load(field)
