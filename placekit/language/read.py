"""Language models as people have them: a configuration, a GGUF file, a name, or numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placekit.io.readers import is_model
from placekit.io.reading import no_such_file
from placekit.language.config.from_config import CONFIG, describe_published, read_config
from placekit.language.config.published import published, published_name
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
    if name is not None and not path.exists() and (known := published_name(name)) is not None:
        return known
    if path.name == CONFIG or path.is_dir():
        return (path if path.is_dir() else path.parent).resolve().name
    return re.sub(r"-\d{5}-of-\d{5}$", "", path.stem) if path.suffix.lower() in (".json", ".gguf") else str(path)


def read_description(
    name: str | None, numbers: Mapping[str, Any] | None = None, precision: str | None = None
) -> ModelDescription:
    """Return the description of a model.

    Its `name` is a folder or ``config.json`` of transformers, a GGUF file, a name of
    `placekit.language.decoder.DECODERS` or of `placekit.language.config.published`, or None for numbers alone;
    `numbers` are fields of `placekit.language.decoder.Decoder` that replace those of the name. The `precision` of
    weights is one of `placekit.language.precision`; that of the file, or 16 bits, if None. Raises `PlacekitError`: an
    unknown name, a file that cannot be read, or options that do not go with it.
    """
    path = None if name is None or name in DECODERS else Path(name)
    suffix = "" if path is None else path.suffix.lower()
    is_file = path is not None and (suffix in (".json", ".gguf") or path.exists())
    known = None if is_file else published_name(name)
    if known is not None and name not in DECODERS:
        if numbers:
            raise InvalidProblemError(
                f"--{_option(numbers)} goes with numbers of a model; {known} is published with its own"
            )
        return describe_published(known, precision)
    if path is None or not is_file:
        try:
            shape = get_decoder(name, numbers or {})
        except UnknownNameError:
            given, names = str(name), [*DECODERS, *published()]
            if re.fullmatch(r"\.[a-z]\w*", suffix) or "/" in given or "\\" in given:  # meant as a file or a folder
                raise InvalidFileError(no_such_file(given)) from None
            beside = did_you_mean(given.lower(), names) or no_such_file(given).partition("folder")[2]
            raise UnknownNameError(
                f"no model {given!r}: there are {', '.join(names)}, and no file or folder of that name; "
                "give a config.json or its folder, a GGUF file, a .pt2, an .xml, or numbers (--layers, --hidden, ...)"
                f"{beside}"
            ) from None
        return describe_decoder(shape, precision or "f16", name or "llm")
    if numbers:
        raise InvalidProblemError(f"--{_option(numbers)} goes with numbers of a model; {name} has its own")
    if suffix == ".gguf":
        if precision is not None:
            raise InvalidProblemError(f"--precision goes with numbers of a model; {name} has its own")
        return read_gguf(path)
    return read_config(path, precision)


def _option(numbers: Mapping[str, Any]) -> str:
    return next(iter(numbers)).replace("_", "-")
