"""Journeys of people through the page, in a real browser without a window."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
from llama_models import Shape, write_model
from page_server import Served
from signals import interruptible

import placekit as pk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("playwright", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]
ROOT = Path(__file__).parents[2]
AXE = "axe-core@4.14.1"
WAIT_MS = 120_000
"""Limit of a hang; machines are slow and shared."""
CONFIG = ROOT / "tests" / "language" / "configs" / "qwen2.5-7b.json"

TWO_CARDS = (
    "#model=llama3-70b&precision=int4&cards=RTX+4090,+RTX+3090&ram=64+GB+DDR5-5600+x2&runtime=llama.cpp&context=8192"
)
"""Address of a question whose answer is split over two cards."""

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as made:
        found = made.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Browser, served: Served) -> Iterator[Open]:
    """Open the page at an address; no script of it may fail, and nothing may come from elsewhere."""
    failed: list[str] = []
    contexts = []

    def opens(address: str = "", width: int = 1920, base: str = f"http://127.0.0.1:{served.port}/") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900})
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.on(
            "request", lambda asked: failed.append(asked.url) if not asked.url.startswith((base, "data:")) else None
        )
        page.goto(base + address)
        return page

    yield opens
    for context in contexts:
        context.close()
    assert failed == []


def answered(page: Page) -> None:
    """Wait for the answer to what the form says now."""
    page.wait_for_timeout(300)
    page.wait_for_selector("#answer:not([hidden]):not([aria-busy]) #verdict:not(:empty)")


def until(page: Page, expression: str) -> None:
    """Wait until an expression of the page's is true; its policy forbids what Playwright itself would do."""
    for _ in range(WAIT_MS // 100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"never: {expression}")


def question_of(page: Page) -> dict[str, str]:
    """Return the question in the address."""
    return {name: values[0] for name, values in parse_qs(page.url.partition("#")[2]).items()}


def blocks(page: Page) -> list[int]:
    """Return the blocks of every device of the picture that has some."""
    return [int(count) for count in re.findall(r"(\d+) blocks?", page.inner_text("#strip"))]


def test_a_named_model_on_two_cards_has_its_line_which_is_copied(opened: Open) -> None:
    """From an empty address to a line in the clipboard; the address has the question, and asks it again."""
    page = opened()
    answered(page)
    assert "llama-server -m llama3-70b.gguf --n-gpu-layers 81" in page.inner_text("#launch")
    assert re.search(
        r"Generated\s+[\d.]+ tokens/s\s+two of three such measurements: [\d.]+ to [\d.]+", page.inner_text("#numbers")
    )
    page.click("text=Copy the line")
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("#launch")
    page.select_option("#precision", "q3_k_m")
    answered(page)
    assert question_of(page)["precision"] == "q3_k_m"
    line, again = page.inner_text("#launch"), opened(page.url[page.url.index("#") :])
    answered(again)
    assert (again.inner_text("#launch"), again.input_value("#precision")) == (line, "q3_k_m")


def test_the_slider_of_context_moves_blocks_and_memory(opened: Open) -> None:
    """A longer context has more cache, in the bars and in the line."""
    page = opened("#model=llama3-8b&precision=int4&cards=RTX+3060,+RTX+3060&runtime=llama.cpp&context=4096")
    answered(page)
    before = page.inner_text("#memory")
    page.focus("#slider")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    answered(page)
    assert question_of(page)["context"] == page.input_value("#context") == "16384"
    assert "-c 16384 " in page.inner_text("#launch")
    assert page.inner_text("#memory") != before


def test_a_border_moves_by_arrow_keys(opened: Open) -> None:
    """The split of one's own stands beside the best, with its line; and the best comes back."""
    page = opened(TWO_CARDS)
    answered(page)
    best = blocks(page)
    border = page.get_by_role("slider", name="Border between rtx-4090 and rtx-3090")
    border.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert blocks(page) == [best[0] - 3, best[1] + 3]
    assert border.get_attribute("aria-valuetext") == f"rtx-4090 {best[0] - 3} blocks, rtx-3090 {best[1] + 3}"
    page.wait_for_selector("#yours:not([hidden]) pre")
    assert re.search(r"Yours is 0\.9\dx as fast as the best", page.inner_text("#yours"))
    assert f"--tensor-split {best[0] - 3},{best[1] + 4}" in page.inner_text("#yours pre")
    assert border.evaluate("each => each === document.activeElement")
    page.click("text=Back to the best")
    assert blocks(page) == best
    page.wait_for_selector("#yours", state="hidden")


def test_a_border_is_dragged_until_a_card_is_full(opened: Open) -> None:
    """With a mouse; the bar and the heading say that there is no room."""
    page = opened(TWO_CARDS)
    answered(page)
    border = page.get_by_role("slider", name="Border between rtx-4090 and rtx-3090")
    box, strip = border.bounding_box(), page.locator("#strip").bounding_box()
    assert box is not None
    assert strip is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(strip["x"] + strip["width"] * 0.8, box["y"] + 10, steps=8)
    page.mouse.up()
    page.wait_for_selector("text=Yours does not load: no room")
    assert 62 <= blocks(page)[0] <= 66
    assert re.search(r"rtx-4090 of 24 GiB: .* no room: [\d.]+ GiB lack", page.inner_text("#memory"))
    assert page.locator(".bar.full").count() == 1


def test_of_a_gguf_of_40_gb_only_the_header_is_read(opened: Open, served: Served, tmp_path: Path) -> None:
    """Its bytes up to the end of the list of tensors reach the server; the line names the file."""
    pytest.importorskip("gguf")
    whole = write_model(tmp_path / "My Model Q4.gguf", Shape(), is_hollow=True)
    os.truncate(whole, 40 << 30)  # a hole: no byte of it is stored
    page = opened()
    answered(page)
    page.set_input_files("#model-file", whole)
    until(page, "document.getElementById('model').value.includes('@')")
    answered(page)
    assert "llama-server -m My-Model-Q4.gguf --n-gpu-layers " in page.inner_text("#launch")
    assert page.is_disabled("#precision")
    (stored,) = served.folder.glob("*/model.gguf")
    assert stored.stat().st_size < 1 << 20
    with whole.open("rb") as file:
        assert file.read(stored.stat().st_size) == stored.read_bytes()


def test_a_config_is_dropped_with_the_mouse(opened: Open) -> None:
    """As a file from a folder; its precision can be chosen, and the commands name it."""
    pytest.importorskip("transformers")
    page = opened()
    answered(page)
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.items.add(new File([text], "qwen2.5-7b.json"));
            document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true}));
        }""",
        CONFIG.read_text(),
    )
    until(page, "document.getElementById('model').value.startsWith('qwen2.5-7b@')")
    answered(page)
    assert "-m qwen2.5-7b.gguf" in page.inner_text("#launch")
    page.click("#same summary")
    assert page.inner_text("#command").startswith("placekit llm qwen2.5-7b/config.json --precision q4_k_m")


def test_a_line_is_pasted(opened: Open) -> None:
    """What it does, and how much faster the best is; a line with an unknown option says which."""
    page = opened()
    answered(page)
    page.click("#paste summary")
    page.fill("#line", "llama-server -m x.gguf -ngl 17 -c 4096")
    page.click("#compare")
    page.wait_for_selector("#line-answer h3")
    told = page.inner_text("#line-answer")
    assert re.search(r"It loads\. The best for the same requests is [\d.]+x as fast\.", told)
    assert float(re.findall(r"([\d.]+)x as fast", told)[0]) > 2
    page.fill("#line", "llama-server -m x.gguf --fly high")
    page.click("#compare")
    page.wait_for_selector("#error")
    assert "--fly" in page.inner_text("#error")
    assert page.get_attribute("#line", "aria-invalid") == "true"


def test_an_unknown_card_is_told_beside_the_cards(opened: Open) -> None:
    """With the nearest names; a known one in its place has an answer."""
    page = opened()
    answered(page)
    page.fill("#card", "RTX 4091")
    page.keyboard.press("Enter")
    page.wait_for_selector("#cards-field #error")
    assert page.inner_text("#error").startswith("no card 'RTX 4091' in the table; the nearest are RTX 4090")
    page.click("[aria-label='One RTX 4091 less']")
    page.wait_for_selector("#error", state="detached")
    page.fill("#card", "A100 80 GB")
    page.click("#add-card")
    answered(page)
    assert "A100" in question_of(page)["cards"]


def test_without_room_the_page_says_what_is_needed(opened: Open) -> None:
    """No line, no picture, and what weights and cache take."""
    page = opened("#model=llama3-70b&precision=f16&cards=RTX+3060&runtime=llama.cpp")
    answered(page)
    told = page.inner_text("#verdict")
    assert re.match(r"llama3-70b does not fit: weights and cache 13\d GiB; there are .* lack\.", told), told
    assert page.is_hidden("#launch-box")
    assert page.is_hidden("#picture")


def test_tables_of_gain_precisions_and_cards_open_together(opened: Open) -> None:
    """A row for each precision, for one card more and less, and for what the plan beats."""
    page = opened()
    answered(page)
    for each in ("precisions", "rivals", "what-if"):
        page.click(f"#{each} summary")
    page.wait_for_selector("#precisions tbody tr:nth-child(7)")
    page.wait_for_selector("#what-if tbody tr:nth-child(4)")
    page.wait_for_selector("#rivals tbody tr:nth-child(2)")
    assert re.findall(r"^(\w+)\t", page.inner_text("#precisions tbody"), re.MULTILINE)[:2] == ["q3_k_m", "iq4_xs"]
    assert re.search(r"own choice \(--fit\)\t\d\.\d\dx", page.inner_text("#rivals tbody"))
    assert "one RTX 4090 less\t0." in page.inner_text("#what-if tbody")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[[int], tuple[subprocess.Popen[str], str]]]:
    """Start ``placekit page`` in a process of its own."""
    started = []

    def start(port: int) -> tuple[subprocess.Popen[str], str]:
        command = interruptible("-m", "placekit", "page", "--no-open", "--port", str(port))
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        return server, server.stdout.readline().split()[0]

    yield start
    for each in started:
        each.kill()
        each.wait()


def test_a_server_that_went_away_is_told_and_found_again(
    opened: Open, own_server: Callable[[int], tuple[subprocess.Popen[str], str]]
) -> None:
    """The page keeps its question; the dropped model is sent again to the new server."""
    pytest.importorskip("transformers")
    server, address = own_server(0)
    page = opened(base=address)
    answered(page)
    page.set_input_files("#model-file", CONFIG)
    until(page, "document.getElementById('model').value.includes('@')")
    answered(page)
    server.send_signal(signal.SIGINT)
    assert server.wait(60) == 130
    page.fill("#context", "4096")
    page.wait_for_selector("#gone:not([hidden])")
    assert "The server has ended." in page.inner_text("#gone")
    own_server(int(address.rstrip("/").rpartition(":")[2]))
    page.click("text=Try again")
    page.wait_for_selector("#gone", state="hidden")
    answered(page)
    assert "-c 4096 " in page.inner_text("#launch")


def test_a_problem_file_is_solved_with_graph_and_gantt(opened: Open, tmp_path: Path, diamond: pk.Problem) -> None:
    """What `solve` prints, the figures of `show`, and the bound over time."""
    pk.write_problem(diamond, tmp_path / "diamond.json")
    page = opened("#page=file")
    page.click("#solve")
    page.wait_for_selector("text=which file? Drop a model or a problem file first")
    page.set_input_files("#any-file", tmp_path / "diamond.json")
    page.click("#solve")
    page.wait_for_selector("#report:not([hidden])")
    assert "diamond.json (problem)" in page.inner_text("#report")
    assert "optimal" in page.inner_text("#report")
    assert page.frame_locator("#graph").locator("circle").count() >= 4
    assert page.evaluate("document.getElementById('gantt').naturalWidth") > 100
    assert page.locator("#curve polyline").count() == 2


def test_a_model_with_its_weights_is_solved_on_named_cards(opened: Open, tmp_path: Path) -> None:
    """An ``.xml`` with its ``.bin``; an objective that is not there is told beside the file."""
    pytest.importorskip("openvino")
    from openvino_models import save_product

    save_product(tmp_path / "tiny.xml")
    page = opened("#page=file&cards=RTX+4090,+RTX+3090")
    page.set_input_files("#any-file", [tmp_path / "tiny.xml", tmp_path / "tiny.bin"])
    page.click("#solve")
    page.wait_for_selector("#report:not([hidden])")
    assert "rtx-4090" in page.inner_text("#report")
    page.set_input_files("#any-file", [tmp_path / "tiny.bin"])
    page.click("#solve")
    page.wait_for_selector("#error")


def test_a_solve_is_ended(opened: Open, tmp_path: Path) -> None:
    """By its button."""
    path = tmp_path / "hard.json"
    pk.write_problem(hard_problem(), path)
    page = opened("#page=file")
    page.set_input_files("#any-file", path)
    page.fill("#seconds", "600")
    page.click("#solve")
    until(page, "/bound/.test(document.getElementById('progress-told').textContent)")
    page.click("#end")
    page.wait_for_selector("text=Ended.")
    assert page.is_enabled("#solve")


def hard_problem() -> pk.Problem[Any]:
    """Return a problem that takes minutes to prove."""
    import numpy as np

    rng = np.random.default_rng(0)
    num = 120
    edges = [(str(a), str(b)) for a in range(num) for b in range(a + 1, min(a + 12, num)) if rng.random() < 0.3]
    graph = pk.OpGraph.from_edges([str(at) for at in range(num)], edges)
    times, moved = rng.uniform(1, 9, (num, 3)), rng.uniform(0, 3, (graph.num_tensors, 3))
    costs = pk.CostTable(("a", "b", "c"), times, moved, rng.uniform(1, 5, num))
    platform = pk.Platform.of(a=2, b=2, c=2, memory_bytes={"a": 90.0, "b": 70.0, "c": 80.0})
    return pk.Problem(graph, platform, costs, pk.Makespan())


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the script of axe-core, from the npm registry."""
    if shutil.which("npm") is None:
        pytest.skip("no npm to install axe-core with")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(["npm", "install", "--silent", "--prefix", folder, AXE], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("npm cannot install axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("width", [360, 1920])
def test_axe_finds_nothing(opened: Open, axe: str, width: int, tmp_path: Path, diamond: pk.Problem) -> None:
    """With everything open and an error told, on both halves; nothing is wider than the window."""
    page = opened(width=width)
    answered(page)
    for each in ("rivals", "precisions", "what-if", "paste", "same"):
        page.click(f"#{each} summary")
    page.click("#form .more summary")
    page.wait_for_selector("#what-if tbody tr:nth-child(4)")
    page.locator("[data-border]").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#yours:not([hidden]) table")
    assert violations(page, axe) == []
    page.fill("#card", "RTX 4091")
    page.keyboard.press("Enter")
    page.wait_for_selector("#error")
    assert violations(page, axe) == []
    pk.write_problem(diamond, tmp_path / "diamond.json")
    page.click("#tab-file")
    page.set_input_files("#any-file", tmp_path / "diamond.json")
    page.click("#solve")
    page.wait_for_selector("#figures:not([hidden])")
    assert violations(page, axe) == []


def violations(page: Page, axe: str) -> list[str]:
    """Return what axe-core finds, and a page that is wider than its window."""
    page.evaluate(axe)
    told = page.evaluate("axe.run(document, {iframes: false})")
    found = [f"{each['id']}: {node['html'][:100]}" for each in told["violations"] for node in each["nodes"]]
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return found + ["the page is wider than its window"] * wide


def test_every_control_has_its_turn_by_keyboard(opened: Open) -> None:
    """Tab reaches all of them, and the one that has the focus shows it."""
    page = opened(TWO_CARDS)
    answered(page)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
        assert page.evaluate(
            "document.activeElement === document.body "
            "|| getComputedStyle(document.activeElement).outlineStyle !== 'none'"
        )
    assert {"model", "model-file", "precision", "card", "add-card", "ram-size"} <= reached
    assert {"runtime", "context", "launch", "slider", "Border between rtx-4090 and rtx-3090"} <= reached


def test_a_static_copy_answers_its_questions_without_a_server(browser: Browser, tmp_path: Path) -> None:
    """From a file, with a picture and a line for each question of the list."""
    asked = [{"model": "gpt2", "cards": "RTX 4090"}, {"model": "llama3-8b", "cards": "2x RTX 3060"}]
    (tmp_path / "q.json").write_text(json.dumps([{**each, "runtime": "llama.cpp"} for each in asked]))
    command = [sys.executable, "-m", "placekit", "page", "q.json", "--static", "site"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)
    page = browser.new_page()
    page.goto((tmp_path / "site" / "index.html").as_uri())
    answered(page)
    assert "-m gpt2.gguf" in page.inner_text("#launch")
    page.select_option("#asked", index=1)
    until(page, "document.getElementById('launch').textContent.includes('llama3-8b')")
    assert len(blocks(page)) == 2
    assert page.is_hidden("#model")
    page.close()
