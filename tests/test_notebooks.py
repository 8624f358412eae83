"""The notebook of the examples runs, and shows results as text and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_show_results(path: Path) -> None:
    """Every cell runs, the last proof holds; a result is a text of several lines, the figure a picture."""
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before you commit"
    where = {"metadata": {"path": path.parent}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any(page.startswith("<pre>tiny-decoder: throughput by auto: optimal (proved)\n") for page in pages), pages
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert any("bound: checked" in output.get("text", "") for output in shown)
