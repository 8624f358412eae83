"""Files that are locked, in folders that others may write to."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from placekit.model.errors import PlacekitError


def open_lock(path: Path, what: str) -> int:
    """Return a descriptor of the lock file `path` of `what`; it is made if it is not there, and its content left alone.

    Raises
    ------
    PlacekitError
        It cannot be opened, or is something else than a regular file, such as a link that somebody put there so that
        its target is written to.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise PlacekitError(f"the lock file {path} of {what} cannot be opened: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PlacekitError(f"the lock file {path} of {what} is no regular file")
    return descriptor


def private_folder() -> Path:
    """Return a folder for files that all processes of this user share until the machine is started again.

    It lies among the system's temporary files, where everybody can make files, under a name that everybody can guess.
    So it is made for this user alone, and one that is not is not used.

    Raises
    ------
    PlacekitError
        It cannot be made, or somebody else has made something of that name.
    """
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"placekit-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise PlacekitError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    is_mine = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not is_mine:
        raise PlacekitError(
            f"{folder} is no folder of this user alone, so that locks in it are not safe; remove it, or set TMPDIR"
        )
    return folder
