"""Kernels as the Python functions that they were made of, for tests that call those which only kernels call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest.mock import patch

from strategies import ALL


@contextmanager
def interpreted(*modules: ModuleType) -> Iterator[None]:
    """Replace every kernel of `modules` by its function; with every example, as in ``make test-slow``, by nothing.

    A kernel without a way to call it from Python is compiled once more where a test calls it, which takes seconds.
    """
    with ExitStack() as stack:
        for module in () if ALL else modules:
            functions = {name: each.py_func for name, each in vars(module).items() if hasattr(each, "py_func")}
            stack.enter_context(patch.dict(vars(module), functions))
        yield
