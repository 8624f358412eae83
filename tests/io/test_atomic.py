"""Atomic writes: all or nothing, nothing left behind, named errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from placekit.io.atomic import render_json, write_bytes, write_json, write_text, write_together
from placekit.model.errors import InvalidFileError, PlacekitError


def test_write_replaces_the_whole_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """A longer old content is gone, and the folder holds one file."""
    path = tmp_path / "file.txt"
    write_text(path, "a long first content")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_failed_write_keeps_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A full disk leaves the file as it was; the error names path and reason."""
    path = tmp_path / "file.txt"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if failing == "fsync" else Path, failing, full)
    with pytest.raises(PlacekitError, match=r"cannot write .*file\.txt \(3 bytes\): No space left on device"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file.txt"]


def test_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C passes through, after the temporary file is removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "file.txt", "new")
    assert list(tmp_path.iterdir()) == []


def test_unwritable_targets_are_named_errors(tmp_path: Path) -> None:
    """A missing folder, a folder as the target, a file as a folder, a null byte."""
    with pytest.raises(PlacekitError, match=r"cannot write .*no/file: No such file"):
        write_bytes(tmp_path / "no" / "file", b"")
    with pytest.raises(PlacekitError, match="it is a folder"):
        write_bytes(tmp_path, b"")
    (tmp_path / "plain").write_text("")
    with pytest.raises(PlacekitError, match="Not a directory"):
        write_bytes(tmp_path / "plain" / "file", b"")
    with pytest.raises(PlacekitError, match="cannot write"):
        write_bytes(str(tmp_path / "a\0b"), b"")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_folder_without_permission_is_a_named_error(tmp_path: Path) -> None:
    """The system's reason is in the message."""
    tmp_path.chmod(0o500)
    with pytest.raises(PlacekitError, match="Permission denied"):
        write_text(tmp_path / "file", "")


def test_write_keeps_links_and_permissions(tmp_path: Path) -> None:
    """The file behind a link is replaced, with the mode it had; a new file follows the umask."""
    target, link = tmp_path / "target", tmp_path / "link"
    write_text(target, "old")
    mask = os.umask(0o022)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": object()}, {1: 2}, {"a": [1.0, float("nan")]}])
def test_value_that_json_cannot_hold_is_a_named_error(tmp_path: Path, value: object) -> None:
    """NaN, infinity, other objects and keys that are no strings are refused before anything is written."""
    with pytest.raises(InvalidFileError, match="not a JSON value"):
        write_json(tmp_path / "file.json", value)
    assert list(tmp_path.iterdir()) == []


def test_rendered_json_reads_back() -> None:
    """The layout is for people, the value is unchanged."""
    value = {"a": {}, "b": [], "c": [{"d": [1, 2.5, None]}, {"e": "\u00fc\n"}], "f": [[1], []], "g": {"h": True}}
    text = render_json(value)
    assert json.loads(text) == value
    assert '\n {"d": [1, 2.5, null]},' in text.replace("  {", " {")


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2.5], [], [None, True]],
        [[1], 2, [3]],
        [[[1], [2]], [[3]]],
        [[[1, [2]]], 3],
        [["], ["], [1]],
        [{"a": "], ["}, [1]],
        [[{}], [1]],
    ],
)
def test_every_row_is_a_line_of_its_own(rows: list[Any]) -> None:
    """Rows of numbers are encoded in one go, and look as if they were encoded one by one, as all others are."""
    one_by_one = ",".join(f"\n  {json.dumps(row)}" for row in rows)
    assert render_json({"rows": rows}) == f'{{\n "rows": [{one_by_one}\n ]\n}}\n'


def test_what_is_no_regular_file_is_written_into(tmp_path: Path, terminal: tuple[Path, int]) -> None:
    """A pipe gets the content, a device stays a device: neither is replaced by a file of the same name."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "through the pipe")
    assert os.read(reader, 100) == b"through the pipe"
    os.close(reader)
    assert pipe.is_fifo()
    device, reader = terminal
    write_text(device, "shown")
    assert os.read(reader, 100) == b"shown"
    assert device.is_char_device()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipe", "terminal"]


def test_files_that_belong_together_are_all_written_or_none(tmp_path: Path) -> None:
    """If the second cannot be written, the first is still the old one."""
    write_text(tmp_path / "a", "old")
    with pytest.raises(PlacekitError, match="no/b: No such file"):
        write_together([(tmp_path / "a", b"new"), (tmp_path / "no" / "b", b"new")])
    assert (tmp_path / "a").read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    write_together([(tmp_path / "a", b"new"), (tmp_path / "b", b"new")])
    assert [(tmp_path / name).read_text() for name in "ab"] == ["new", "new"]
