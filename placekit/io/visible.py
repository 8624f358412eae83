"""Colours of devices, and text from files made harmless, for whatever shows them.

Terminals obey escape sequences, browsers and viewers HTML.
"""

from __future__ import annotations

import re
from colorsys import hls_to_rgb
from functools import cache

_FIRST_COLORS = (
    "#3b6ea8", "#4c9f70", "#c44e52", "#8172b3", "#ccb974", "#64b5cd", "#8c6d46", "#d98cb3", "#5f7f3f", "#7f7f7f",
)  # fmt: skip
_CANDIDATES = tuple(
    hls_to_rgb(hue / 24, lightness, saturation)
    for lightness in (0.3, 0.42, 0.56, 0.72)
    for saturation in (0.35, 0.65)
    for hue in range(24)
)
"""Colours between black and white from which those of the eleventh device and later ones come."""


@cache
def device_color(device: int) -> str:
    """Return the colour of a device, by its number: each one as far as can be from those before.

    Examples
    --------
    >>> len({device_color(device) for device in range(100)})
    100
    """
    if device < len(_FIRST_COLORS):
        return _FIRST_COLORS[device]
    if device >= len(_CANDIDATES):
        return device_color(device % len(_CANDIDATES))
    used = [_rgb(device_color(each)) for each in range(device)]
    best = max(
        _CANDIDATES, key=lambda one: min(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) for other in used)
    )
    return "#" + "".join(f"{round(255 * part):02x}" for part in best)


def _rgb(color: str) -> tuple[float, ...]:
    return tuple(int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))


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
