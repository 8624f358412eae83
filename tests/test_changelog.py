"""CHANGELOG.md: closed versions stay as they were closed, and what is new is told in short items."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()
# The first 16 hex digits of SHA-256 of a section, from its heading to the next one. The commit that closes a version
# adds its line; no line changes ever after: what is to be said about a closed version stands in the next one.
CLOSED = {
    "0.6.0": "bdab1269569839db",
    "0.5.0": "c06bd9ae7e031aaa",
    "0.4.0": "0b00363caf1bad2e",
    "0.3.0": "97652e026b0ef295",
    "0.2.0": "c9bb8d3579be90be",
    "0.1.0": "4b7dc0c844c14cab",
}
KINDS = ["Removed", "Changed", "Added", "Fixed"]
ITEMS_UNTIL = "0.5.0"  # the last version whose items may be longer than 200 characters
LONGEST_ITEM = 200


def sections() -> dict[str, str]:
    """Return the text of each version, its heading first, in the order of the file."""
    body = TEXT.split("\n[Unreleased]: ", maxsplit=1)[0]
    parts = re.split(r"(?m)^(?=## \[)", body)[1:]
    return {part[4 : part.index("]")]: part for part in parts}


def open_sections() -> dict[str, str]:
    """Return the versions, `Unreleased` among them, that came after the rule of short items."""
    found = list(sections().items())
    return dict(found[: [version for version, _ in found].index(ITEMS_UNTIL)])


@pytest.mark.parametrize("version", sections())
def test_closed_sections_do_not_change(version: str) -> None:
    """Every section but `Unreleased` has the hash that it had when its version was closed."""
    if version == "Unreleased":
        assert version not in CLOSED
        return
    found = hashlib.sha256(sections()[version].strip().encode()).hexdigest()[:16]
    assert found == CLOSED.get(version), f"{version} is closed: tell changes under [Unreleased]"


def test_no_closed_section_is_lost() -> None:
    """The file has each closed version, newest first, with its date and its anchor."""
    found = sections()
    assert list(found) == ["Unreleased", *CLOSED]
    for version in CLOSED:
        heading = re.match(rf"## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)\n", found[version])
        assert heading is not None, version
        assert f"\n[{version}]: #{version.replace('.', '')}---{heading[1]}\n" in TEXT


@pytest.mark.parametrize("version", open_sections())
def test_items_are_short_and_breaking_ones_first(version: str) -> None:
    """Kinds stand in one order; items have at most 200 characters, and those that break programs begin their kind."""
    kinds = re.findall(r"(?m)^### (.*)\n((?:- .*\n)*)", open_sections()[version])
    assert [kind for kind, _ in kinds] == [kind for kind in KINDS if kind in dict(kinds)]
    rest = re.sub(r"(?m)^(?:## .*|### .*|- .*|)\n", "", open_sections()[version].rstrip() + "\n")
    assert not rest, f"no item: {rest}"
    for kind, text in kinds:
        items = text.splitlines()
        assert items, f"{version}: nothing under {kind}"
        assert all(len(item) <= LONGEST_ITEM for item in items), [item for item in items if len(item) > LONGEST_ITEM]
        breaking = [item.startswith("- **Breaking.** ") for item in items]
        assert breaking == sorted(breaking, reverse=True), f"{version}, {kind}: breaking items come first"
