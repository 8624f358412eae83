"""Colours of devices, and text from files made harmless, for whatever shows them.

Terminals obey escape sequences, browsers and viewers HTML.
"""

from __future__ import annotations

import re

DEVICE_COLORS = (
    "#3b6ea8", "#4c9f70", "#c44e52", "#8172b3", "#ccb974", "#64b5cd", "#8c6d46", "#d98cb3", "#5f7f3f", "#7f7f7f",
)  # fmt: skip
"""One colour per device, repeated if there are more devices."""

# all control characters but the line feed; what turns the direction of text around or ends a line unseen; halves of
# surrogate pairs, which have no encoding
_HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# what begins an element, a link, code, or a cell of a table; a backslash where it would undo the one put before these
_MARKDOWN = re.compile(r"[\[`|]|\\(?=[!-/:-@\[-`{-~])")
_HTML = re.compile(r"<(?=[A-Za-z/!?])|&(?=#|\w+;)")


def visible(text: str) -> str:
    r"""Return `text` with every character that a terminal would obey, or that hides others, spelled out.

    Examples
    --------
    >>> print(visible("red \x1b[31m, title \x1b]0;x\x07, two\nlines"))
    red \x1b[31m, title \x1b]0;x\x07, two
    lines
    """
    return _HIDDEN.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\u0100" else f"\\u{ord(found[0]):04x}", text
    )


def visible_markdown(text: str) -> str:
    r"""Return `text` so that Markdown shows what it says: no HTML, no link, no code, no new cell, one line.

    Examples
    --------
    >>> print(visible_markdown("<b>a|b</b> [x](y)\nz"))
    &lt;b>a\|b&lt;/b> \[x](y) z
    """
    one_line = _MARKDOWN.sub(r"\\\g<0>", visible(text.replace("\n", " ")))
    return _HTML.sub(lambda found: "&lt;" if found[0] == "<" else "&amp;", one_line)
