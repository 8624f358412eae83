"""Reading of model files of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from placekit.io.models.model import TORCH_SUFFIX, ModelSource, hash_of_files, reader_of
from placekit.model.errors import InvalidFileError, InvalidGraphError, InvalidProblemError
from placekit.model.graph import DYNAMIC


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
    from placekit.io.models.openvino_graph import lower

    path = Path(path)
    if path.suffix.lower() == TORCH_SUFFIX:
        from placekit.pytorch.source import read_pt2

        return read_pt2(path, shapes)
    reader = reader_of(path)
    given = {str(name): tuple(int(dim) for dim in shape) for name, shape in (shapes or {}).items()}
    for name, shape in given.items():
        if any(dim < DYNAMIC for dim in shape):
            raise InvalidProblemError(f"shape {list(shape)} of input {name!r}: dimensions must be >= 0, or {DYNAMIC}")
    model = reader.load_model(path, given)
    try:
        lowered = lower(model, path.stem)
    except InvalidGraphError as error:
        raise InvalidFileError(f"{path}: {error}") from None
    return ModelSource(path=path, content_hash=hash_of_files(reader.model_files(path), given), shapes=given, **lowered)
