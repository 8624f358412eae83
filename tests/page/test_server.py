"""The server of the page answers its own page only, within bounds, and ends what nobody waits for."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psutil
import pytest
from page_server import CARDS, Served
from signals import interruptible

import placekit as pk
from placekit.page import server as under_test
from placekit.page.answers import Answers, GoneError
from placekit.page.questions import DroppedModels


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, at most as long as a hang takes to be seen."""
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    pytest.fail("it never came true")


def solves() -> list[psutil.Process]:
    """Return the processes of solves that this process started."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and "placekit.page.solve_file" in child.cmdline()
    ]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:{port}", "[::1]:{port}", ""])
def test_other_hosts_are_refused(served: Served, host: str) -> None:
    """A name that an attacker points to 127.0.0.1 is not this server's."""
    status, told, _ = served.ask("/", headers={"Host": host.format(port=served.port)})
    assert (status, told["error"].startswith("host ")) == (403, True)


def test_localhost_is_a_name_of_this_machine(served: Served) -> None:
    """Both names work."""
    assert served.ask("/", headers={"Host": f"localhost:{served.port}"})[0] == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_other_origins_are_refused(served: Served, origin: str) -> None:
    """Another page in the browser asks nothing, and neither does a form of it."""
    headers = {"Origin": origin.format(port=served.port)}
    assert served.ask("/plan", json.dumps(CARDS), headers)[0] == 403
    assert served.ask("/plan", json.dumps(CARDS), {"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert served.ask("/plan", json.dumps(CARDS), {"Origin": f"http://127.0.0.1:{served.port}"})[0] == 200


def test_it_listens_on_the_loopback_address_only() -> None:
    """The command binds no other address."""
    from placekit.page.command import _listening

    with _listening(under_test.HOST, 0) as found:
        assert found.getsockname()[0] == "127.0.0.1"
        taken = found.getsockname()[1]
        with pytest.raises(pk.PlacekitError, match=f"--port {taken}: Address already in use"):
            _listening(under_test.HOST, taken)


@pytest.mark.parametrize("path", ["/plan", "/model", "/solve?question=%7B%22files%22:[[%22.onnx%22,9]]%7D"])
def test_a_body_has_a_limit(served: Served, path: str) -> None:
    """What is said to be longer is refused before it is read."""
    asked = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    asked.putrequest("POST", path)
    asked.putheader("Content-Length", str(1 << 40))
    asked.endheaders()
    got = asked.getresponse()
    assert got.status == 413
    assert "the limit is" in json.loads(got.read())["error"]


def test_a_body_that_tells_no_length_has_the_same_limit(served: Served) -> None:
    """Chunks are counted."""
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", served.port)) as asked:
        head = f"POST /plan HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
        asked.sendall(head.encode() + chunk + chunk)
        assert b" 413 " in asked.recv(100)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../pyproject.toml", "/..%2f..%2fpyproject.toml", "/page.py", "/assets"]
)
def test_paths_of_a_request_lead_to_no_file(served: Served, path: str) -> None:
    """There are five files, known by name."""
    assert served.ask(path)[0] == 404
    assert [served.ask(f"/{name}")[0] for name in ("", *under_test.ASSETS)] == [200] * 5


@pytest.mark.parametrize("name", ["/etc/passwd", "config.json", "../x.gguf", ".", "mine/qwen3"])
def test_a_model_is_no_path(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Names are those of the table; a file of this machine is not read, even where there is one."""
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    status, told = served.plan(model=name)
    assert (status, told["field"]) == (400, "model")
    assert told["error"].startswith(f"no model {name!r}; there are llama3-8b, ")


def test_a_name_of_the_table_is_never_that_of_a_file(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is called like a model changes nothing."""
    found = [served.plan(model=name) for name in ("qwen3-0.6b", "gpt2")]
    for name in ("qwen3-0.6b", "gpt2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    again = [served.plan(model=name, context=2048) for name in ("qwen3-0.6b", "gpt2")]
    assert [status for status, _ in [*found, *again]] == [200] * 4


def test_a_file_is_stored_under_a_name_of_the_servers(served: Served) -> None:
    """The name of a dropped file is a label."""
    question = {"files": [[".onnx", 3]], "name": "../../../etc/cron.d/x.onnx"}
    status, told, _ = served.ask(f"/solve?question={quote(json.dumps(question))}", b"abc")
    assert status == 200
    assert "error" in told
    assert "/etc/" not in told
    assert str(served.folder) not in told
    wait_until(lambda: not list(served.folder.glob("tmp*")))


@pytest.mark.parametrize("elsewhere", ["../../secret.bin", "/etc/passwd"])
def test_a_model_reads_no_file_that_it_names_elsewhere(served: Served, elsewhere: str) -> None:
    """Weights of an ONNX file may lie in other files: none but those that came with it."""
    onnx = pytest.importorskip("onnx")
    weights = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[4, 4], data_location=1)
    weights.external_data.add(key="location", value=elsewhere)
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    graph = onnx.helper.make_graph([node], "graph", ports[:1], ports[1:], [weights])
    model = onnx.helper.make_model(graph).SerializeToString()
    question = {"files": [[".onnx", len(model)]], "name": "x.onnx", "cards": "RTX 4090"}
    told = served.ask(f"/solve?question={quote(json.dumps(question))}", model)[1]
    error = json.loads(told.splitlines()[-1])["error"]
    assert error.startswith(f"x.onnx: path {elsewhere!r} leads out of the folder")
    assert str(served.folder) not in error


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"files": [["/../x", 3]]}, "give a file that ends in one of .onnx"),
        ({"files": [[".xml", 3], [".onnx", 3]]}, "give a file that ends in one of .onnx"),
        ({"files": [[".onnx", -1]]}, "give a file that ends in one of .onnx"),
        ({"files": [[".onnx", 9]]}, "the .onnx is cut off: 6 of 9 bytes lack"),
        ([], "give a file"),
    ],
)
def test_files_that_are_not_as_said_are_refused(served: Served, question: object, told: str) -> None:
    """The error has the field."""
    status, answer, _ = served.ask(f"/solve?question={quote(json.dumps(question))}", b"abc")
    assert (status, answer["field"]) == (400, "file")
    assert answer["error"].startswith(told)


@pytest.mark.parametrize(
    ("question", "field", "told"),
    [
        ({"cards": "RTX 9090"}, "cards", "no card 'RTX 9090' in the table; the nearest are"),
        ({"ram": "lots"}, "ram", "memory 'lots': it should be size, type and speed"),
        ({"processor": "Z80", "ram": "8 GB DDR4-3200"}, "processor", "no processor 'Z80' in the table"),
        ({"processor": "Core i7-8700"}, "processor", "processor Core i7-8700 needs ram, which is empty"),
        ({"link": "string"}, "link", "no link 'string'"),
        ({"runtime": "llama"}, "runtime", "no runtime 'llama'"),
        ({"precision": "int3"}, "precision", "precision is 'int3'"),
        ({"context": 1}, "context", "serving: context is 1; it must be from 640"),
        ({"context": "many"}, "context", "context: Input should be a valid integer"),
        ({"colour": "red"}, "colour", "colour: Extra inputs are not permitted"),
        ({"model": ""}, "model", "no model ''"),
        ({"model": "mine@0123456789ab"}, "model", "mine is not here: drop the file again"),
        ({"goal": "fun"}, "goal", "goal is 'fun'"),
        ({"line": "llama-server -m x.gguf --fly"}, "line", "llama.cpp"),
        ({"split": [0]}, "split", "a split has a device from 0 to 1 for each of 12 blocks"),
        ({"split": [9] * 12}, "split", "a split has a device from 0 to 1 for each of 12 blocks"),
    ],
)
def test_an_error_is_a_line_with_its_field(served: Served, question: dict[str, object], field: str, told: str) -> None:
    """It is what the command says."""
    status, answer = served.plan(**question)
    assert (status, answer["field"]) == (400, field)
    assert answer["error"].startswith(told)
    assert "\n" not in answer["error"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": "gpt2", "model": "gpt2"}', b"[" * 60_000, b"\xff"])
def test_broken_questions_are_refused(served: Served, body: bytes) -> None:
    """In one line, and the server lives on."""
    status, told, _ = served.ask("/plan", body)
    assert (status, bool(told["error"])) == (400, True)


def test_questions_that_wait_are_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says so at once, and answers again when there is room."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, str]:
        begun.set()
        go_on.wait(60)
        return {}

    monkeypatch.setattr(Answers, "answer", slow)
    monkeypatch.setattr(under_test, "MAX_WAITING", 3)
    found: list[int] = []
    asking = [threading.Thread(target=lambda: found.append(served.plan()[0])) for _ in range(6)]
    for each in asking:
        each.start()
    wait_until(lambda: len(found) == 3)
    assert found == [503] * 3
    go_on.set()
    for each in asking:
        each.join(60)
    assert found[3:] == [200] * 3


def test_a_plan_of_a_page_that_is_gone_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is told, and the next question has its place."""
    told: list[bool] = []
    begun = threading.Event()

    def slow(_: object, __: object, gone: threading.Event) -> dict[str, str]:
        begun.set()
        told.append(gone.wait(60))
        return {}

    monkeypatch.setattr(Answers, "answer", slow)
    asked = http.client.HTTPConnection("127.0.0.1", served.port)
    asked.request("POST", "/plan", json.dumps(CARDS))
    assert begun.wait(60)
    asked.close()
    wait_until(lambda: told == [True])


def test_planning_itself_ends_when_the_page_is_gone(tmp_path: Path) -> None:
    """Between two steps of a search, and nothing of it is kept."""
    answers, gone = Answers(DroppedModels(tmp_path)), threading.Event()
    gone.set()
    with pytest.raises(GoneError):
        answers.answer(CARDS, gone)
    assert answers.answer(CARDS, threading.Event())["status"] == "optimal"


def test_a_bug_is_told_in_json(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows it, and the server lives on."""
    monkeypatch.setattr(Answers, "answer", lambda *_: dict[str, str]()["x"])
    assert served.plan() == (500, {"error": "this is a bug of placekit: KeyError: 'x'", "field": None})
    monkeypatch.undo()
    assert served.plan()[0] == 200


def test_questions_at_the_same_time_do_not_end_one_another(served: Served) -> None:
    """Each thread goes on as long as its own page is there."""
    found: list[int] = []
    asking = [threading.Thread(target=lambda at=at: found.append(served.plan(context=1024 + at)[0])) for at in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join(120)
    assert found == [200] * 8


def endless(served: Served, problem: bytes) -> http.client.HTTPConnection:
    """Ask for a solve that takes minutes, and return when it has begun."""
    question = {"files": [[".json", len(problem)]], "name": "hard.json", "method": "random", "seconds": 600}
    asked = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    asked.request("POST", f"/solve?question={quote(json.dumps(question))}", problem)
    return asked


def first_told(stream: http.client.HTTPResponse) -> dict[str, object]:
    """Return the first line that says something."""
    return next(told for line in iter(stream.readline, b"") if (told := json.loads(line)))


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a problem that a random search never ends on."""
    graph = pk.OpGraph.from_edges([str(at) for at in range(60)], [(str(at), str(at + 1)) for at in range(59)])
    times = np.array([[1.0 + at % 7] for at in range(60)])
    costs = pk.CostTable(("cpu",), times, np.full((59, 1), 0.1), np.zeros(60))
    path = tmp_path_factory.mktemp("problem") / "hard.json"
    pk.write_problem(pk.Problem(graph, pk.Platform.of(cpu=4), costs), path)
    return path.read_bytes()


def test_solves_are_limited_and_end_with_their_page(served: Served, problem: bytes) -> None:
    """Two run, a third is refused; when pages go their processes end, and their files with them."""
    running = [endless(served, problem) for _ in range(under_test.MAX_SOLVES)]
    streams = [each.getresponse() for each in running]
    assert [first_told(each)["of"] for each in streams] == [600, 600]
    assert len(solves()) == under_test.MAX_SOLVES
    refused = endless(served, problem).getresponse()
    assert refused.status == 503
    for stream, each in zip(streams, running, strict=True):
        stream.close()
        each.close()
    wait_until(lambda: not solves() and not list(served.folder.glob("tmp*")))
    again = endless(served, problem)
    assert again.getresponse().status == 200
    again.close()
    wait_until(lambda: not solves())


def test_a_solve_tells_its_progress_and_its_answer(served: Served, problem: bytes) -> None:
    """The last line has what `placekit solve` prints, the graph and the Gantt."""
    question = {"files": [[".json", len(problem)]], "name": "my chain.json", "seconds": 20}
    status, told, _ = served.ask(f"/solve?question={quote(json.dumps(question))}", problem)
    lines = [json.loads(line) for line in told.splitlines()]
    assert (status, next(filter(None, lines))["of"]) == (200, 20)
    answer = lines[-1]
    assert (answer["status"], answer["best"]) == ("optimal", pytest.approx(answer["bound"]))
    assert "my-chain.json (problem)" in answer["text"]
    assert answer["gantt"].startswith("data:image/svg+xml;base64,")
    status, graph, got = served.ask(f"/{answer['graph']}")
    assert (status, graph.startswith("<!DOCTYPE html>")) == (200, True)
    assert got.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert served.ask("/graph/other")[0] == 404


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_when_the_server_ends_its_solves_and_files_do(tmp_path: Path, problem: bytes, signum: signal.Signals) -> None:
    """Also when it is killed, but for the folder then."""
    command = interruptible("-m", "placekit", "page", "--no-open", "--port", "0")
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().split()[0].rstrip("/").rpartition(":")[2])
        stream = endless(Served(port, tmp_path), problem).getresponse()
        assert first_told(stream)["of"] == 600
        (solve,) = [each for each in solves() if each.ppid() == server.pid]
        server.send_signal(signum)
        assert server.wait(60) == (-signum if signum == signal.SIGKILL else 130)
    wait_until(lambda: not solve.is_running() or solve.status() == psutil.STATUS_ZOMBIE)
    assert signum == signal.SIGKILL or not list(tmp_path.glob("placekit-page-*"))
