"""Results as JSON files: the answer and the evidence for it, times in seconds."""

from __future__ import annotations

from pathlib import Path

from placekit.io.atomic import write_json
from placekit.io.files.detect import kind_of_document
from placekit.io.files.result_schema import ResultModel
from placekit.io.reading import blaming, read_json, validated
from placekit.model.errors import InvalidFileError
from placekit.solve.result import Result


def write_result(result: Result, path: str | Path, *, certificate: bool = False) -> None:
    """Write `result` to the JSON file `path`; `read_result` gives an equal one. The write is atomic.

    The certificate of its bound is written if `certificate` asks for it, and it has one.

    Raises
    ------
    PlacekitError
        The file cannot be written.
    """
    write_json(path, result.to_dict(with_certificate=certificate))


def read_result(path: str | Path) -> Result:
    """Read the result in the JSON file `path`.

    Raises
    ------
    InvalidFileError
        The file is broken or is no result; the message names the file, the place, the value and the bound.
    """
    data = read_json(path)
    kind = kind_of_document(data, path)
    if kind != "result":
        raise InvalidFileError(f"{path}: a {kind} file is no result; give the NAME.result.json that `solve` wrote")
    model = validated(ResultModel, data, path)
    with blaming(path):
        result = Result.from_dict(model.model_dump(by_alias=True))
    placement, told = result.placement, model.placement_hash
    if told is not None and (placement is None or placement.content_hash != told):
        raise InvalidFileError(f"{path}: placement_hash is {told!r}, but that is not the hash of its placement")
    return result
