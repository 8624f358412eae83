"""Reading of model files of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from placekit.io.models.model import ModelSource
from placekit.io.readers import READERS, reader_of_document, reader_of_suffix, suffixes
from placekit.io.reading import no_such_file, read_json
from placekit.model.errors import InvalidFileError


def read_model(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelSource:
    """Read a model file: OpenVINO IR (``.xml`` with its ``.bin``), ONNX (``.onnx``) or torch.export's (``.pt2``).

    Parameters
    ----------
    path
        The file.
    shapes
        Shapes to give to inputs, by the name of the input or of its tensor; the empty name means the only input.

    Raises
    ------
    InvalidFileError
        A file that does not exist, has another suffix or is broken; or a shape that the model does not accept.
    UnknownNameError
        A shape for an input that the model does not have.
    """
    path = Path(path)
    is_json = path.suffix.lower() == ".json"
    name = reader_of_document(read_json(path)) if is_json else reader_of_suffix(path.suffix)
    if name is None or READERS[name].gives != "model":
        known = ", ".join(suffixes("model"))
        raise InvalidFileError(f"{path}: no reader for the suffix {path.suffix!r}; models are read from {known}")
    if not path.is_file():
        raise InvalidFileError(f"{path}: not a file" if path.exists() else no_such_file(path))
    source: ModelSource = READERS[name](path, shapes or {})
    return source
