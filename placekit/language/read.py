"""Language models as people have them: a configuration, a GGUF file, a name, or numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placekit.io.readers import is_model
from placekit.io.reading import no_such_file
from placekit.language.config.from_config import CONFIG, read_config
from placekit.language.decoder import DECODERS, get_decoder
from placekit.language.description import ModelDescription
from placekit.language.from_numbers import describe_decoder
from placekit.language.gguf.from_gguf import read_gguf
from placekit.model.errors import InvalidFileError, InvalidProblemError, UnknownNameError, did_you_mean


def is_program(name: str | None) -> bool:
    """Return True for a file with the ops of a model, which `placekit.language.model` reads."""
    return name is not None and is_model(name) and not Path(name).is_dir()


def called(name: str | None) -> str:
    """Return what a model is called: by its name, its file, or the folder of its configuration."""
    path = Path(name or "llm")
    if path.name == CONFIG or path.is_dir():
        return (path if path.is_dir() else path.parent).resolve().name
    return re.sub(r"-\d{5}-of-\d{5}$", "", path.stem) if path.suffix.lower() in (".json", ".gguf") else str(path)


def read_description(
    name: str | None, numbers: Mapping[str, Any] | None = None, precision: str | None = None
) -> ModelDescription:
    """Return the description of a model.

    Its `name` is a folder or ``config.json`` of transformers, a GGUF file, a name of
    `placekit.language.decoder.DECODERS`, or None for numbers alone; `numbers` are fields of
    `placekit.language.decoder.Decoder` that replace those of the name. The `precision` of weights is a name of
    `placekit.language.precision`; that of the file, or 16 bits, if None. Raises `PlacekitError`: an unknown name, a
    file that cannot be read, or options that do not go with it.
    """
    path = None if name is None or name in DECODERS else Path(name)
    suffix = "" if path is None else path.suffix.lower()
    if path is None or not (suffix in (".json", ".gguf") or path.exists()):
        try:
            shape = get_decoder(name, numbers or {})
        except UnknownNameError:
            given = str(name)
            if suffix or "/" in given or "\\" in given:  # meant as a file or a folder
                raise InvalidFileError(no_such_file(given)) from None
            beside = did_you_mean(given, DECODERS) or no_such_file(given).partition("folder")[2]
            raise UnknownNameError(
                f"no model {given!r}: there are {', '.join(DECODERS)}, and no file or folder of that name; "
                "give a config.json or its folder, a GGUF file, a .pt2, an .xml, or numbers (--layers, --hidden, ...)"
                f"{beside}"
            ) from None
        return describe_decoder(shape, precision or "f16", name or "llm")
    if numbers:
        raise InvalidProblemError(
            f"--{next(iter(numbers)).replace('_', '-')} goes with numbers of a model; {name} has its own"
        )
    if suffix == ".gguf":
        if precision is not None:
            raise InvalidProblemError(f"--precision goes with numbers of a model; {name} has its own")
        return read_gguf(path)
    return read_config(path, precision)
