"""torch, where it is needed; everything else in placekit does without."""

from __future__ import annotations

from types import ModuleType

from placekit.io.needs import require

__all__ = ["require_torch"]


def require_torch(what: str) -> ModuleType:
    """Return torch.

    Parameters
    ----------
    what
        What needs it, as the start of a sentence.

    Raises
    ------
    SolverUnavailableError
        It is not installed; the message says how to get it.
    """
    return require("torch", what, called="torch", install="'placekit[torch]'")
