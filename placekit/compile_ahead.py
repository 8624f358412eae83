"""Which kernels ``auto`` needs, so that they are compiled side by side, before anybody waits for them.

Numba learns the types of a kernel's arguments when it is called; `kernels.json` has them beforehand, for each objective
in the order of the first calls. ``make kernels`` writes it. A kernel that is not in it is compiled when it is called,
and one that no longer exists is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from placekit.compile_queue import expect
from placekit.patience import compiles_inline

__all__ = ["LIST", "expect_kernels", "kernels_of", "written"]

LIST = Path(__file__).with_name("kernels.json")
"""Per name of an objective its kernels, each with module, name and types; classes of tuples are written once."""


def expect_kernels(objective: str) -> None:
    """Have the kernels of an objective compiled as soon as any kernel is missing."""
    if not compiles_inline():
        expect(kernels_of(objective))


def kernels_of(objective: str) -> list[list[Any]]:
    """Return module, name and types of the kernels of an objective; none for one that is not in the list."""
    known = json.loads(LIST.read_text(encoding="utf-8"))
    tuples: dict[str, Any] = known["tuples"]

    def whole(kind: Any) -> Any:
        if isinstance(kind, dict):
            return kind | {"of": [whole(each) for each in kind["of"]]}
        return whole(tuples[kind]) if kind in tuples else kind

    return [
        [module, name, [whole(each) for each in kinds]] for module, name, kinds in known["kernels"].get(objective, [])
    ]


def written(kernels: Mapping[str, Iterable[list[Any]]]) -> str:
    """Return the content of `LIST` for kernels by objective, as `kernels_of` returns them."""
    tuples: dict[str, Any] = {}

    def short(kind: Any) -> Any:
        if not isinstance(kind, dict):
            return kind
        kind = kind | {"of": [short(each) for each in kind["of"]]}
        for number in range(1, len(tuples) + 2):
            alias = kind["class"].partition(":")[2] + (f" {number}" if number > 1 else "")
            if tuples.setdefault(alias, kind) == kind:
                return alias
        raise AssertionError

    lines = {
        objective: ",\n".join(
            f"   {json.dumps([module, name, [short(each) for each in kinds]])}" for module, name, kinds in all_of_it
        )
        for objective, all_of_it in kernels.items()
    }
    listed = ",\n".join(f"  {json.dumps(objective)}: [\n{of_it}\n  ]" for objective, of_it in lines.items())
    aliases = ",\n".join(f"  {json.dumps(alias)}: {json.dumps(kind)}" for alias, kind in tuples.items())
    return f'{{\n "tuples": {{\n{aliases}\n }},\n "kernels": {{\n{listed}\n }}\n}}\n'
