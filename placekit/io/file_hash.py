"""Hashes of files, so that a changed one is noticed before it is used."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import Field

from placekit.io.reading import open_input
from placekit.model.errors import InvalidFileError

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""A hash as a manifest has it: blake2b of 16 bytes."""


def feed(digest: hashlib.blake2b, path: Path) -> None:
    """Add the content of a file of any length to a hash."""
    with open_input(path, None) as file:  # weights can be larger than memory
        hashlib.file_digest(file, lambda: digest)


def file_hash(path: Path) -> str:
    """Return the hash of a file of any length."""
    digest = hashlib.blake2b(digest_size=16)
    feed(digest, path)
    return digest.hexdigest()


def require_hash(path: Path, expected: str, what: str) -> None:
    """Raise unless a file is the one that was written.

    `what` is what the file is part of, for the message: ``"bundle"``.
    """
    try:
        found = file_hash(path)
    except InvalidFileError as error:
        told = str(error).removeprefix(f"cannot read {path}: ")
        raise InvalidFileError(f"{path}: cannot be read ({told}); its hash should be {expected}") from None
    if found != expected:
        raise InvalidFileError(f"{path}: has hash {found}, and the {what} was written with {expected}")
