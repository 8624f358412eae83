"""``placekit verify``: exit codes, lines and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_verify_tells_good_from_bad(call: Callable[..., Any], diamond_file: Path, tmp_path: Path) -> None:
    """0 for what `solve` wrote, 5 for a changed objective or another problem, 2 for a broken file."""
    solved = call("solve", diamond_file, "-m", "ilp", "--certificate", "-o", "d.placement.json")
    assert solved.returncode == 0
    good = call("verify", "d.result.json", diamond_file)
    assert good.returncode == 0
    assert "objective" in good.stdout
    assert all(line.split()[1] == "checked" for line in good.stdout.splitlines())
    said = json.loads(call("verify", "d.result.json", diamond_file, "--json").stdout)
    assert said["is_consistent"]
    result = tmp_path / "d.result.json"
    document = json.loads(result.read_text())
    result.write_text(json.dumps(document | {"objective": document["objective"] * 1.5}))
    bad = call("verify", "d.result.json", diamond_file)
    assert bad.returncode == 5
    assert "failed" in bad.stdout
    result.write_text(json.dumps(document | {"certificate": {"schema": "placekit/certificate/1", "kind": "magic"}}))
    broken = call("verify", "d.result.json", diamond_file)
    assert broken.returncode == 2
    assert len(broken.stderr.splitlines()) == 1
    result.write_text(json.dumps(document))
    other = call("verify", "d.result.json", diamond_file, "--memory", "gpu=3000")
    assert other.returncode == 5
