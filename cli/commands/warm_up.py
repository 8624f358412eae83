"""``placekit warm-up``: compile the kernels before anything is solved, for images and measurements."""

from __future__ import annotations

from time import perf_counter

from placekit.cli.console import tell
from placekit.cli.options import JsonOption
from placekit.cli.output.progress import StepBar
from placekit.kernels import compiling, groups, prepare


def warm_up(as_json: JsonOption = False) -> None:
    """Compile the kernels of all objectives, once per installation, so that no first solve waits for them."""
    begin_s = perf_counter()
    with StepBar() as bar:
        prepare(*groups(), on_progress=lambda ready, count: bar(ready, count, "compiling kernels"))
    wall_s = perf_counter() - begin_s
    done = f"compiled in {compiling.total_s:.1f} s" if compiling.total_s else "compiled already"
    told = {"compile_s": compiling.total_s, "wall_s": wall_s}
    tell(as_json, told, [f"kernels: {done}; {wall_s:.1f} s in all"])
