"""Files of weights without their data: the header alone tells how many bytes there are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_headers(path: Path, tensors: dict[str, int]) -> None:
    """Write the header of a safetensors file, without its data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, num_bytes in tensors.items():
        header[name] = {"dtype": "U8", "shape": [num_bytes], "data_offsets": [at, at + num_bytes]}
        at += num_bytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
