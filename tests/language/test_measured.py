"""Rates of devices from files of llama-bench: the measured speed comes back, and broken files are told in one line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from llama_models import Shape, write_model

import placekit as pk
from placekit.cost_models.sheets.cards import LLAMA_CPP, get_card
from placekit.cost_models.sheets.device_table import card_spec, get_spec
from placekit.cost_models.sheets.machines import machine_of
from placekit.language.description import ModelDescription
from placekit.language.planning.given import Split, given_report
from placekit.language.planning.measured import read_bench, with_measured
from placekit.language.read import read_description
from placekit.language.runtimes.llama.rpc import as_one_machine
from placekit.language.runtimes.llama.server_steps import MESSAGE_S, with_server_steps
from placekit.language.serving import Serving
from placekit.language.task import decoder_task
from placekit.model.errors import PlacekitError
from placekit.model.platform import Device, Platform

MODEL = read_description("llama3-8b", {}, "int4")
BENCH = Path(__file__).parent / "llama_bench"
TESTS = {"prompt": (512, 0, 7000.5), "generated": (0, 128, 150.25)}


def row(**changes: Any) -> dict[str, Any]:
    """Return a test of llama-bench on an RTX 4090, with all fields that are read."""
    told = {
        "model_filename": "gone.gguf", "model_type": "llama 8B Q4_0", "model_size": int(MODEL.weight_bytes),
        "model_n_params": MODEL.parameters, "gpu_info": "NVIDIA GeForce RTX 4090", "n_ubatch": 512, "type_k": "f16",
        "n_gpu_layers": 99, "n_cpu_moe": 0, "devices": "auto", "tensor_buft_overrides": "none", "n_prompt": 512,
        "n_gen": 0, "n_depth": 0, "avg_ts": 7000.5,
    }  # fmt: skip
    return told | changes


def rows_of(*whats: str, **changes: Any) -> list[dict[str, Any]]:
    """Return a test of prompts, of generation, or both."""
    keys = ("n_prompt", "n_gen", "avg_ts")
    return [row(**(dict(zip(keys, TESTS[what], strict=True)) | changes)) for what in whats]


def machine() -> tuple[pk.Analytic, Platform]:
    """Return an RTX 4090 and an RTX 3060 with their host, and their costs."""
    named = machine_of("RTX 4090, RTX 3060", "64 GB DDR5-5600 x2")
    costs = pk.Analytic(named.specs(LLAMA_CPP))
    return costs, costs.with_links(named.platform())


def speed(costs: pk.Analytic, platform: Platform, model: ModelDescription, prompt: int, generated: int) -> float:
    """Return tokens per second on the first card alone, by the way of every prediction."""
    alone = platform.with_devices(
        each.replace(memory_bytes=None) for each in platform.devices if each.name in ("CPU", "rtx-4090")
    )
    own = costs.for_kinds(alone.kinds)
    serving = Serving(prompt, generated, prompt + generated, chunk=512)
    task = decoder_task(model, serving, alone, lambda graph: own.cost_table(graph, alone))
    return (prompt or generated) / given_report(task, Split(0, (32,))).request_s


@pytest.mark.parametrize("whats", [("prompt", "generated"), ("generated",), ("prompt",)])
def test_measured_speeds_come_back(tmp_path: Path, whats: tuple[str, ...]) -> None:
    """To nine digits, whichever were measured; the other card keeps its rates."""
    costs, platform = machine()
    (tmp_path / "b.json").write_text(json.dumps(rows_of(*whats)))
    found = with_measured(costs, platform, [str(tmp_path / "b.json")], MODEL)
    for what in whats:
        prompt, generated, tokens_per_s = TESTS[what]
        assert speed(found.costs, platform, MODEL, prompt, generated) == pytest.approx(tokens_per_s, rel=1e-9)
    before, after = costs.spec_of_kind(platform), found.costs.spec_of_kind(platform)
    assert after["rtx-3060-12-gb"] == before["rtx-3060-12-gb"]
    assert "measured by llama-bench" in after["rtx-4090"].source
    assert list(found.told) == ["rtx-4090"]


def test_files_of_both_forms_and_devices_by_name(tmp_path: Path) -> None:
    """A list or a line per test; a device that the file cannot tell is named before the file."""
    costs, platform = machine()
    lines = "\n".join(map(json.dumps, rows_of("prompt", "generated", gpu_info="RPC 1, RPC 2")))
    (tmp_path / "b.jsonl").write_text(lines)
    assert [each.n_gen for each in read_bench(tmp_path / "b.jsonl")] == [0, 128]
    found = with_measured(costs, platform, [f"rtx-3060-12-gb={tmp_path / 'b.jsonl'}"], MODEL)
    assert list(found.told) == ["rtx-3060-12-gb"]
    (tmp_path / "host.json").write_text(json.dumps(rows_of("generated", gpu_info="", avg_ts=9.5)))
    assert list(with_measured(costs, platform, [str(tmp_path / "host.json")], MODEL).told) == ["CPU"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pp512 | 7000", "b.json: not JSON: line 1 column 1: Expecting value"),
        ("[]", "b.json: rows is []; it must not be empty"),
        (json.dumps([{k: v for k, v in row().items() if k != "n_prompt"}]), "b.json: rows[0].n_prompt is missing"),
        (json.dumps([row(avg_ts=0)]), "b.json: rows[0].avg_ts is 0; it should be greater than 0"),
        (json.dumps([row(model_n_params=3_000_000_000)]), "it measured llama 8B Q4_0 (3,000,000,000 parameters, "),
        (json.dumps([row(gpu_info="NVIDIA L4")]), "no device 'auto (NVIDIA L4)'; devices are CPU, rtx-4090, rtx-3060"),
        (json.dumps([row(n_cpu_moe=4)]), "n_cpu_moe 4, overrides none: it must be one device alone"),
        (json.dumps([row(type_k="q5_1")]), "type_k is q5_1; it must be one of f32, f16, bf16, q8_0, q4_0"),
        (json.dumps([row(avg_ts=1e9)]), "1e+09 tokens/s is faster than links and the other measurement allow"),
        (json.dumps([row(n_gen=5)]), "there is no test of prompts (pp) or of generation (tg) alone"),
    ],
)
def test_files_that_cannot_be_used_are_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    """Object, value and bound."""
    costs, platform = machine()
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(PlacekitError) as caught:
        with_measured(costs, platform, [str(tmp_path / "b.json")], MODEL)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_llama_bench_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build 11434, a model of 2.8 MB on a server of devices and on the processor: both speeds come back."""
    pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    model = read_description(str(write_model(tmp_path / "dense.gguf", Shape())))
    remote = Platform((Device("CPU", "cpu", is_host=True), Device("RPC[127.0.0.1:50071]", "cpu-core-f32")))
    platform = as_one_machine(remote)
    costs = pk.Analytic.from_platform_file(platform)
    platform = costs.with_links(platform)
    files = [str(BENCH / "device.json"), str(BENCH / "host.jsonl")]
    found = with_measured(costs, platform, files, model)
    assert list(found.told) == ["cpu", "cpu-core-f32"]
    for split, path in ((Split(0, (8,)), files[0]), (Split(8, (), has_head_on_host=True), files[1])):
        for test in read_bench(path):
            serving = Serving(test.n_prompt, test.n_gen, chunk=512)
            own = found.costs.for_kinds(platform.kinds)
            task = decoder_task(model, serving, platform, partial(own.cost_table, platform=platform))
            seconds = given_report(with_server_steps(task), split).request_s
            assert (test.n_prompt or test.n_gen) / seconds == pytest.approx(test.avg_ts, rel=1e-9)


SERVERS = ("10.0.0.1:50052", "10.0.0.2:50052")


def servers() -> tuple[pk.Analytic, Platform]:
    """Return a host, and two cards of other machines that are devices of their own kinds."""
    cards = tuple(Device(f"RPC[{address}]", f"far{at}") for at, address in enumerate(SERVERS))
    costs = pk.Analytic({kind: card_spec(get_card("RTX 3060"), LLAMA_CPP) for kind in ("far0", "far1")} | {
        "cpu": get_spec("cpu-8core-f32"),
    })  # fmt: skip
    return costs, as_one_machine(Platform((Device("CPU", "cpu", is_host=True), *cards)))


def test_the_messages_of_one_server_are_in_its_own_measurement(tmp_path: Path) -> None:
    """Both speeds come back, and a split has the messages of one server more than the mean of both."""
    costs, platform = servers()
    alone = [row(n_prompt=0, n_gen=128, avg_ts=speed, gpu_info=address, devices="RPC0")
             for address, speed in zip(SERVERS, (25.0, 20.0), strict=True)]  # fmt: skip
    (tmp_path / "alone.json").write_text(json.dumps(alone))
    own = with_measured(costs, platform, [str(tmp_path / "alone.json")], MODEL).costs

    def per_token_s(*blocks: int) -> float:
        task = decoder_task(MODEL, Serving(0, 128), platform, lambda graph: own.cost_table(graph, platform))
        found = given_report(with_server_steps(task), Split(0, blocks)).time_per_token_s
        assert found is not None
        return found

    assert 1 / per_token_s(32, 0) == pytest.approx(25.0, rel=1e-6)
    assert 1 / per_token_s(0, 32) == pytest.approx(20.0, rel=1e-6)
    more_s = per_token_s(16, 16) - (per_token_s(32, 0) + per_token_s(0, 32)) / 2
    assert more_s > 8 * MESSAGE_S


def test_a_split_over_servers_is_no_measurement_of_a_device(tmp_path: Path) -> None:
    """One line says what to measure."""
    costs, platform = servers()
    both = row(n_prompt=0, n_gen=128, avg_ts=20.0, gpu_info=", ".join(SERVERS), devices="RPC0/RPC1")
    (tmp_path / "b.json").write_text(json.dumps([both]))
    with pytest.raises(PlacekitError, match=r"devices RPC0/RPC1, .* it must be one device alone"):
        with_measured(costs, platform, [str(tmp_path / "b.json")], MODEL)
