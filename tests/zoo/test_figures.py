"""The pictures of the readme and the docs are those that the demo draws now; `make figures` draws them anew."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from placekit.cli.main import main
from placekit.io.files.result_json import read_result

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "benchmarks" / "figures"
MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
SAME = 0.005
"""Share of pixels that may differ: the edges of letters and lines, not a node or a bar."""

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.xdist_group("figures"),  # they look at one run of the demo
    pytest.mark.skipif(not all(map(find_spec, ("torch", "transformers"))), reason="needs the extra zoo"),
]


def recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile, without those that only call make."""
    found = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None, target
    return [line.strip() for line in found[1].splitlines() if "placekit" in line]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the commands of the demo about the U-Net have run."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("PLACEKIT_CACHE", str(folder / "cache"))
        for target in ("$(DEMO)/unet.xml", "unet-split", "figures"):
            for line in recipe(target):
                command = line.replace("$@", target).replace("$(DEMO)", str(folder))
                command = command.replace(str(FIGURES.relative_to(ROOT)), str(folder))
                patch.setattr(sys, "argv", shlex.split(command.replace("$(BIN)/", "")))
                with pytest.raises(SystemExit) as ended:
                    main()
                assert not ended.value.code, command
    return folder


def test_the_demo_and_the_figures_are_one_problem() -> None:
    """Both call the same target for the placement, and draw its result."""
    for target in ("demo", "figures"):
        assert "unet-split" in MAKEFILE.split(f"\n{target}:")[1].split("\n\n")[0]
        (show,) = [line for line in recipe(target) if " show " in line]
        assert "$(DEMO)/unet.result.json" in show


@pytest.mark.parametrize("name", ["unet_split.png", "unet_pipeline.png", "llama3_70b.png", "truth.png"])
def test_the_pictures_are_what_is_drawn_now(demo: Path, name: str) -> None:
    """Ops and blocks on devices, loads and points: pixel for pixel, but for the edges of letters."""
    kept, drawn = imread(FIGURES / name), imread(demo / name)
    assert kept.shape == drawn.shape, f"{name} has another size now: run `make figures`"
    differing = float((np.abs(kept - drawn).max(axis=2) > 0.1).mean())
    assert differing < SAME, f"{differing:.1%} of {name} is drawn otherwise now: run `make figures`"


def test_the_readme_tells_the_result_of_the_demo(demo: Path) -> None:
    """Objective, bound and verdict under the picture are those of the placement in it."""
    result = read_result(demo / "unet.result.json")
    told = " ".join((ROOT / "README.md").read_text().split())
    assert result.objective is not None
    assert result.verdict is not None
    assert f"objective {result.objective * 1e6:.3f} us per sample, {1 / result.objective:.4g} samples/s" in told
    assert f"bound {result.objective * 1e6:.3f} us ({result.bound_name})" in told
    assert result.verdict.sentence in told
    opening = result.verdict.sentence.split(" (")[0]
    assert f'"{opening}"' in " ".join((ROOT / "docs" / "tutorial.md").read_text().split())
