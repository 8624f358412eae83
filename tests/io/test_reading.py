"""Input files of strangers: what is no regular file or too much of one is refused before anything is read."""

from __future__ import annotations

import io
import os
import socket
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.io.files.npz_arrays import MAX_UNPACKED_BYTES, read_npz
from placekit.io.files.platform_toml import read_platform
from placekit.io.models.onnx import load_model as load_onnx
from placekit.io.models.openvino_ir import load_model as load_ir
from placekit.io.reading import MAX_TEXT_BYTES, inside, open_input, read_bytes, read_json
from placekit.model.errors import InvalidFileError

READERS = {"json": read_json, "toml": read_platform, "bytes": read_bytes}
MODELS = {".xml": load_ir, ".onnx": load_onnx}


@pytest.mark.parametrize("name", list(READERS))
def test_what_is_no_regular_file_is_refused_without_being_opened(name: str, tmp_path: Path) -> None:
    """A pipe without a writer does not hang, and a link to an endless device ends."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for what, told in (("pipe", "a pipe"), ("endless", "a device"), ("socket", "cannot read")):
            with pytest.raises(InvalidFileError, match=told):
                READERS[name](tmp_path / what)
    with pytest.raises(InvalidFileError, match="Is a directory"):
        READERS[name](tmp_path)


@pytest.mark.parametrize("suffix", list(MODELS))
def test_models_and_their_weights_are_regular_files(suffix: str, tmp_path: Path) -> None:
    """Readers of models take any size, but no pipe."""
    path = tmp_path / f"model{suffix}"
    os.mkfifo(path)
    with pytest.raises(InvalidFileError, match="a pipe"):
        MODELS[suffix](path, {})


def test_a_sparse_file_of_many_gigabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    """It has no content on disk, and would take all memory."""
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(InvalidFileError, match=rf"3221225472 bytes are too many; the limit is {MAX_TEXT_BYTES}"):
        read_json(path)
    with open_input(path, None) as file:
        assert file.read(2) == b"\0\0"


def test_a_file_that_has_more_than_it_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of /proc say 0."""
    if not Path("/proc/self/maps").is_file():
        pytest.skip("needs /proc")
    with pytest.raises(InvalidFileError, match="more than 10 bytes"):
        read_bytes("/proc/self/maps", 10)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.json", "a/../../x", "c:\\x", "..\\x", "a\0b"])
def test_a_path_in_a_file_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    """Absolute paths and those that climb are refused; others lie below."""
    with pytest.raises(InvalidFileError, match=r"suite\.toml: path .* leads out of the folder"):
        inside(tmp_path, name, "suite.toml")
    assert inside(tmp_path, "a/*.json", "suite.toml") == tmp_path / "a/*.json"


def archive(**members: bytes) -> bytes:
    """Return a zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(f"{name}.npy", data)
    return content.getvalue()


def array_file(shape: Any, data: bytes, descr: str = "<f8") -> bytes:
    """Return an ``.npy`` file that claims a shape."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"shape": shape, "fortran_order": False, "descr": descr})
    return content.getvalue() + data


def test_arrays_come_back() -> None:
    """All kinds that are written, in both orders, empty and without dimensions."""
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "b": np.array([True, False]),
        "none": np.zeros((0, 4)),
        "text": np.array("{}"),
        "empty": np.array(""),
    }
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=True, **arrays)
    read = read_npz(content.getvalue(), "x")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype.kind == array.dtype.kind
        np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not readable arrays"),
        (archive(a=b"\x93NUMPY"), "not readable arrays"),
        (archive(a=array_file((10**12,), b"")), "has 0 bytes"),
        (archive(a=array_file((2**63, 2**63), b"")), "has 0 bytes"),
        (archive(a=array_file((-1, -8), b"12345678" * 8)), "not readable arrays"),
        (archive(a=array_file((1,), b"12345678", "|O")), "values of type object"),
        (archive(a=array_file((1,), b"12345678", "<M8[s]")), "values of type datetime64"),
    ],
    ids=["no archive", "no array", "too few", "too many", "negative", "objects", "dates"],  # archives hold the time
)
def test_arrays_that_lie_are_refused(content: bytes, told: str) -> None:
    """Seven tebibytes are promised and not there, a pickle is none of ours, and nothing is allocated for either."""
    with pytest.raises(InvalidFileError, match=told):
        read_npz(content, "x.npz")


def test_a_bomb_is_refused_by_the_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that unpack to many are not unpacked."""
    content = archive(a=array_file((MAX_UNPACKED_BYTES // 8,), bytes(MAX_UNPACKED_BYTES)))
    assert len(content) < 1 << 20
    monkeypatch.setattr("placekit.io.files.npz_arrays._read_member", lambda *_: pytest.fail("unpacked"))
    with pytest.raises(InvalidFileError, match=r"unpacks to .* bytes; the limit is"):
        read_npz(content, "bomb.npz")


def test_damaged_archives_are_refused_or_whole(tmp_path: Path) -> None:
    """Whatever bit flips, and wherever the file ends: the arrays, or a named error."""
    arrays = {"a": np.arange(40.0), "b": np.arange(30)}
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=True, **arrays)
    whole = content.getvalue()
    cases = [whole[:end] for end in range(0, len(whole), 7)]
    for at in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        cases.append(bytes(flipped))
    refused = 0
    for case in cases:
        try:
            read = read_npz(case, "x")
        except InvalidFileError:
            refused += 1
            continue
        for name in read.keys() & arrays.keys():
            np.testing.assert_array_equal(read[name], arrays[name])
    assert refused > len(cases) // 2
