"""From an OpenVINO model to a source, whatever file it was read from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from placekit.io.file_hash import feed
from placekit.io.models.model import Load, ModelSource
from placekit.io.models.openvino_graph import lower
from placekit.model.errors import InvalidFileError, InvalidGraphError, InvalidProblemError
from placekit.model.graph import DYNAMIC


def openvino_source(
    path: Path, shapes: Mapping[str, Sequence[int]], load: Load, files: Iterable[Path] | None = None
) -> ModelSource:
    """Return the source of a model that OpenVINO runs.

    Parameters
    ----------
    path
        The file.
    shapes
        Shapes that the user gave, by name of an input or of its tensor.
    load
        Reads the file with OpenVINO, applies the shapes, and settles the names of nodes. A function of a module: it is
        called again in the processes that run the model.
    files
        All files of the model, whose content counts; the path alone by default.

    Raises
    ------
    InvalidFileError
        The file is broken, or does not accept a shape.
    InvalidProblemError
        A shape with a dimension below -1.
    """
    given = {str(name): tuple(int(dim) for dim in shape) for name, shape in shapes.items()}
    for name, shape in given.items():
        if any(dim < DYNAMIC for dim in shape):
            raise InvalidProblemError(f"shape {list(shape)} of input {name!r}: dimensions must be >= 0, or {DYNAMIC}")
    model = load(path, given)
    try:
        lowered = lower(model, path.stem)
    except InvalidGraphError as error:
        raise InvalidFileError(f"{path}: {error}") from None
    digest = hashlib.blake2b(digest_size=16)
    for file in [path] if files is None else files:
        digest.update(f"{file.suffix}:{file.stat().st_size}:".encode())
        feed(digest, file)
    digest.update(repr(sorted(given.items())).encode())
    return ModelSource(path=path, content_hash=digest.hexdigest(), shapes=given, load_model=load, **lowered)
