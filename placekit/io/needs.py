"""Packages that are imported where they are needed, so that everything else does without."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from placekit.model.errors import SolverUnavailableError

EXTRA_OF = {
    **dict.fromkeys(("highspy", "numba", "ortools", "pulp"), "solvers"),
    "openvino": "openvino",
    "aiconfigurator_core": "aiconfigurator",
    "onnx": "onnx",
    **dict.fromkeys(("starlette", "uvicorn"), "page"),
    **dict.fromkeys(("jinja2", "matplotlib"), "plot"),
    "torch": "torch",
    **dict.fromkeys(("gguf", "transformers"), "llm"),
    **dict.fromkeys(("tensorboard", "torch_geometric"), "learned"),
    "distributed": "cluster",
    "pymetis": "partition",
    "pyscotch": "partition",
}
"""The extra that brings a package."""


def require(package: str, what: str) -> ModuleType:
    """Return a package of `EXTRA_OF`; the error says that `what` needs it, and what to install."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if (line := missing(error, what)) is None:
            raise
        raise SolverUnavailableError(line) from None


def require_torch(what: str) -> ModuleType:
    """Return torch for `what`, as `require` does."""
    return require("torch", what)


def missing(error: ModuleNotFoundError, what: str) -> str | None:
    """Return one line on the package of an extra that `what` needs and that is not installed; None if it is no such."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return None
    return f"{what} needs {package}: pip install 'placekit[{EXTRA_OF[package]}]'"
