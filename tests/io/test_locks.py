"""Lock files: nobody else can have them written to, or can know where to put something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placekit.cost_models.measuring import lock_path, measuring
from placekit.io.locks import open_lock, private_folder
from placekit.model.errors import PlacekitError, ProfileError


def test_a_lock_that_is_a_link_is_refused_and_its_target_kept(tmp_path: Path) -> None:
    """Somebody put a link where the lock should be: what it points to is neither truncated nor written."""
    (tmp_path / "target").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with (
        pytest.raises(ProfileError, match=r"lock of measurements cannot be opened"),
        measuring("x", path=tmp_path / "lock"),
    ):
        pytest.fail("locked")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PlacekitError, match="no regular file"):
        open_lock(tmp_path / "pipe", "results")
    assert (tmp_path / "target").read_text() == "precious"


def test_the_lock_lies_in_a_folder_of_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made with no permission for others; whatever else bears its name is refused."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = private_folder()
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
    assert lock_path().parent == folder
    with measuring("x"):
        assert {each.name for each in folder.iterdir()} <= {"measuring.lock", "measuring.lock.json"}
    folder.chmod(0o777)
    with pytest.raises(PlacekitError, match="no folder of this user alone"):
        lock_path()
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlacekitError, match="no folder of this user alone"):
        lock_path()
