"""Broken files, made from valid ones: one change that knows the structure, or one to the bytes."""

from __future__ import annotations

import copy
import io
import json
import random
import re
import zipfile
from typing import Any

MARK = "\x1b[2J\x07<script>fuzz</script>"
"""A name that a terminal or a browser would obey."""

ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"),
    float("inf"), float("-inf"), "", "0", "a", "CPU.0", MARK, "\x00", "\ud800", "\u202e", "x" * 5000, [], {}, [[]],
    [{}], {"": None}, [None], ["a"], {"npz": "ops.flops"}, {"npz_rows": "x"}, {"file": "../x.npz", "blake2b": ""},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside `value`."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


def mutate(document: Any, rng: random.Random) -> Any:
    """Return `document` with one change that knows the structure."""
    paths = places(document)
    if not paths:
        return document
    path = rng.choice(paths)
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    key, change = path[-1], rng.randrange(8)
    if change == 0:
        del parent[key]
    elif change == 1 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(parent[key]))  # a duplicate
    elif change == 1:
        parent[rng.choice(["extra", "", "schema", "nodes", "\ud800"])] = copy.deepcopy(parent[key])
    elif change == 2:
        other = document
        for step in rng.choice(paths):
            other = other[step] if not isinstance(other, str) else other
        parent[key] = copy.deepcopy(other)  # a value from elsewhere in the file
    elif change == 3 and isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
        parent[key] = rng.choice([-parent[key], parent[key] + 1, parent[key] * 10**300, str(parent[key]), 0])
    elif change == 4 and isinstance(parent[key], list | dict):
        parent[key] = type(parent[key])()
    elif change == 5:
        deep: Any = 1
        for _ in range(rng.choice([3, 200])):
            deep = [deep] if rng.random() < 0.5 else {"k": deep}
        parent[key] = deep
    elif change == 6 and isinstance(parent, list):
        rng.shuffle(parent)
    else:
        parent[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return document


def mangle(content: bytes, rng: random.Random) -> bytes:
    """Return `content` with one change to its bytes."""
    at = rng.randrange(len(content) + 1)
    change = rng.randrange(7)
    if change == 0:
        return content[:at]
    if change == 1:
        return content[:at] + bytes(rng.randrange(256) for _ in range(3)) + content[at:]
    if change == 2:
        return content.decode(errors="replace").encode("utf-16")
    if change == 3:
        return content[:at] + b"[" * 100_000 + content[at:]
    if change == 4:
        return content.replace(b": ", b": -", rng.randrange(1, 5))
    if change == 5:
        return content + content
    return content.replace(b"1", b"1e999", 1)


WORDS = [b"0", b"-1", b"9" * 20, b"nan", b"", b"\x00", b"\xff\xfe", b"<", b">", b"\x1b[2J", b"Result", b"x" * 5000]
TOKENS = [
    "nan", "-inf", "-1", "0", '""', "[]", "{}", "true", "1979-05-27", "9" * 20, "1e400", "[[device]]", '"', "x" * 5000,
    MARK, f'"{MARK}"', r'"\u001b[2J<script>fuzz</script>"', '"&lt;script>fuzz&lt;/script>"',
]  # fmt: skip


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return `content` with one change: a bit, a cut, a word, or what `mangle` does."""
    at, change = rng.randrange(len(content)), rng.randrange(4)
    if change == 0:
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    if change == 1:
        return content[:at] + content[at + rng.randrange(1, 60) :]
    if change == 2:
        return content[:at] + rng.choice(WORDS) + content[at + rng.randrange(8) :]
    return mangle(content, rng)


def broken(name: str, content: bytes, rng: random.Random) -> bytes:
    """Return the content of the file `name` with one to three changes that fit its format, or one to its bytes."""
    if rng.random() < 0.2:
        return damaged(content, rng)
    if name.endswith(".json"):
        document = json.loads(content)
        for _ in range(rng.randint(1, 3)):
            document = mutate(document, rng)
        return json.dumps(document).encode()
    if name.endswith((".toml", ".xml")):
        return _other_words(content.decode(), rng).encode()
    if zipfile.is_zipfile(io.BytesIO(content)):
        return _other_member(content, rng)
    return damaged(content, rng)


def _other_words(text: str, rng: random.Random) -> str:
    """Exchange one to three words between blanks, quotes, and ends of tags."""
    words = re.split(r"([\s=\"<>,\[\]{}/]+)", text)
    for _ in range(rng.randint(1, 3)):
        words[rng.randrange(len(words))] = rng.choice([*TOKENS, "", *words])
    return "".join(words)


def _other_member(content: bytes, rng: random.Random) -> bytes:
    """Break one member of an archive, or leave it out; the sums of the archive are right again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as written:
        if not archive.namelist():
            return damaged(content, rng)
        chosen = rng.choice(archive.namelist())
        is_left_out = rng.random() < 0.1
        for name in archive.namelist():
            member = archive.read(name)
            if name == chosen and is_left_out:
                continue
            if name == chosen and member:
                member = broken(name, member, rng)
            written.writestr(name, member)
    return out.getvalue()
