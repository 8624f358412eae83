"""The exceptions: messages of one line's length, whatever a file holds."""

from __future__ import annotations

import pickle

import pytest

from placekit.model import errors


@pytest.mark.parametrize(
    "kind",
    [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.PlacekitError)],
)
def test_messages_have_a_length(kind: type[errors.PlacekitError]) -> None:
    """The beginning, which names the file, and the end, which says what should be, remain; short ones as they are."""
    more = {"lacks_memory": True} if kind is errors.ProgramTooLargeError else {}
    long = str(kind(f"file.toml: value is {'[' * 100_000}; it should be a number", **more))
    assert len(long) <= errors.LONGEST_MESSAGE
    assert long.startswith("file.toml: value is [[")
    assert "100043 characters" in long
    assert long.endswith("[; it should be a number")
    short = kind("op 'a' has time -1.0 s", **more)
    assert str(short) == "op 'a' has time -1.0 s"
    if not more:
        assert str(pickle.loads(pickle.dumps(short))) == str(short)
