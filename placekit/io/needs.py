"""Packages that are imported where they are needed, so that everything else does without."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from placekit.model.errors import SolverUnavailableError


def require(package: str, what: str, *, called: str, install: str) -> ModuleType:
    """Return a package.

    The message of the error says `what` needs the package, how it is `called`, and what to `install`.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise SolverUnavailableError(f"{what} needs {called}: pip install {install}") from None


def require_torch(what: str) -> ModuleType:
    """Return torch for `what`, as `require` does."""
    return require("torch", what, called="torch", install="'placekit[torch]'")


def require_onnx(what: str) -> ModuleType:
    """Return the package onnx for `what`, as `require` does."""
    return require("onnx", what, called="the package onnx", install="onnx")
