"""Kernels that only other kernels call, as Numba sees them: linked into their callers, never compiled on their own.

Numba optimises every function that a kernel calls, turns it into machine code of its own, and then does both again with
what calls it. A part never becomes machine code of its own. Those that are inlined into hot loops are still optimised
before they are linked: without that, annealing takes a tenth longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Flags, compile_extra
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["make_part", "without_literals"]


class _Part(JITCodeLibrary):
    """A library to be linked into others."""

    is_hot = False

    def finalize(self) -> None:
        """Link what it calls, and leave everything else to the library that it is linked into."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if self.is_hot:
            self._optimize_final_module()  # type: ignore[no-untyped-call]
        self._finalized = True


def make_part(function: Callable[..., Any], **options: Any) -> Any:
    """Return a dispatcher that kernels can call, and nobody else.

    Parameters
    ----------
    function
        What it does.
    **options
        Numba's.
    """
    part: Any = njit(**options | {"cache": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True})(function)
    description = part._compiler.targetdescr

    def compile_part(signature: Any) -> Any:
        arguments = without_literals(signature)
        if arguments not in part.overloads:
            flags: Any = Flags()  # type: ignore[no-untyped-call]
            description.options.parse_as_flags(flags, part.targetoptions)
            flags.no_compile = True
            library: Any = _Part(part.targetctx.codegen(), function.__qualname__)  # type: ignore[no-untyped-call]
            library.is_hot = bool(options.get("forceinline"))
            found: Any = compile_extra(  # type: ignore[no-untyped-call]
                part.typingctx, part.targetctx, function, arguments, None, flags, part.locals, library=library
            )
            key = object()  # where a compiled function has its address
            part.targetctx.insert_user_function(key, found.fndesc, [library])
            part.overloads[arguments] = found._replace(entry_point=key)
        return part.overloads[arguments].entry_point

    part.compile = global_compiler_lock(compile_part)
    return part


def without_literals(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the types of arguments with those of literals replaced by what they are literals of."""
    return tuple(types.unliteral(each) for each in arguments)  # type: ignore[no-untyped-call]
