"""``pk.plan_serving``: the plan of ``placekit llm`` as a value, for a chain without any heavy package."""

from __future__ import annotations

import subprocess
import sys

import pytest

import placekit as pk
from placekit.language.planning.question import GivenModel
from placekit.language.runtimes import get_runtime
from placekit.model.errors import InvalidProblemError, UnknownNameError

LINKS = {"rtx4090": pk.Link(20e-6, 20e9), "l4": pk.Link(20e-6, 20e9)}
PAIR = pk.Platform.of(
    cpu=1, rtx4090=1, l4=1, host="cpu", memory_bytes={"cpu": 64e9, "rtx4090": 24e9, "l4": 24e9}, links=LINKS
)


def test_a_plan_has_its_proof_what_was_tried_and_its_line() -> None:
    """A model that needs both cards: the stages of the line are those of the placement."""
    wishes = pk.Wishes(serving=pk.Serving(512, 64, sequences=8))
    plan = pk.plan_serving("llama3-8b", PAIR, "vllm", precision="f32", wishes=wishes)
    assert plan.result.status is pk.Status.OPTIMAL
    assert plan.report is not None
    assert plan.result.placement is not None
    assert {each.task.serving.batch for each in plan.tried} == {4, 8}
    assert max(each.tokens_per_s for each in plan.tried) == plan.report.tokens_per_s
    told = plan.servers[""]
    counts = [int(count) for count in told.environment["VLLM_PP_LAYER_PARTITION"].split(",")]
    assert sum(counts) == 32
    for at, (device, count) in enumerate(zip(told.devices, counts, strict=True)):
        held = [name for name, home in plan.result.placement.as_dict().items() if home == device]
        first = sum(counts[:at])
        assert {path for block in range(32) if any((path := f"layers.{block}.") in name for name in held)} == {
            f"layers.{block}." for block in range(first, first + count)
        }
    assert plan.launch == (told.line("llama3-8b"),)
    assert plan.plan.task.problem.served is not None
    assert (plan.plan.task.problem.served.runtime, plan.plan.task.problem.served.chunk) == ("vllm", 2048)


def test_without_a_runtime_plans_are_compared() -> None:
    """Unless nobody asks for it; no runtime's plan is better than that without its rules by more than it knows."""
    shape = pk.Decoder(layers=4, hidden=512, ffn=1024, vocab=1000, heads=4)
    plan = pk.plan_serving(shape, PAIR)
    assert any("vllm" in names for names in plan.compared)
    assert plan.launch == ()
    assert plan.servers == {}
    assert pk.plan_serving(shape, PAIR, wishes=pk.Wishes(compares=False)).compared == {}


def test_what_does_not_fit_is_proven() -> None:
    """No placement, no line, no report."""
    plan = pk.plan_serving("llama3-70b", pk.Platform.of(l4=1, memory_bytes={"l4": 24e9}), "vllm")
    assert plan.result.status is pk.Status.INFEASIBLE
    assert (plan.report, plan.launch, plan.servers) == (None, (), {})


SMALL = pk.Decoder(layers=8, hidden=256, ffn=512, vocab=320, heads=4, kv_heads=2)


def test_cards_full_of_buffers_get_the_longest_context_that_fits() -> None:
    """Buffers of the default context alone are larger than either card; those of a shorter context are not."""
    cards = pk.Platform.of(l4=2, memory_bytes={"l4": 36e6}, links={"l4": LINKS["l4"]})
    whole = pk.Wishes(serving=pk.Serving(512, 64, context=8192), headroom="0%")
    with pytest.raises(InvalidProblemError, match=r"activations of a step alone take .* or context"):
        pk.plan_serving(SMALL, cards, "llama.cpp", wishes=whole)
    plan = pk.plan_serving(SMALL, cards, "llama.cpp", wishes=pk.Wishes(headroom="0%"))
    assert plan.report is not None
    assert 640 < plan.context.planned < 8192
    for more in (1, 256):
        longer = pk.Wishes(serving=pk.Serving(512, 128, context=plan.context.planned + more), headroom="0%")
        try:
            assert pk.plan_serving(SMALL, cards, "llama.cpp", wishes=longer).report is None
        except InvalidProblemError as error:
            assert "activations of a step alone" in str(error)  # noqa: PT017  # either refusal is right


def test_a_card_without_room_for_buffers_holds_nothing() -> None:
    """The other card serves, and keeps the number that programs give it."""
    limits = {"l4": 20e6, "rtx4090": 24e9}
    cards = pk.Platform.of(l4=2, rtx4090=1, memory_bytes=limits, links=LINKS)
    plan = pk.plan_serving(SMALL, cards, "llama.cpp", wishes=pk.Wishes(headroom="0%"))
    assert plan.report is not None
    assert [each.device for each in plan.report.memory] == ["rtx4090.0"]
    assert "--device CUDA2 " in plan.launch[0]
    assert plan.full is not None


def test_models_and_runtimes_are_what_they_are_called_or_themselves() -> None:
    """A description keeps its precision; a record is taken as it is."""
    model = GivenModel.of("llama3-8b", "int8")
    assert model.description is not None
    assert GivenModel.of(model.description) == model
    assert GivenModel.of(model) is model
    by_name, by_record = (pk.plan_serving(model, PAIR, each) for each in ("sglang", get_runtime("sglang")))
    assert by_name.launch == by_record.launch
    with pytest.raises(InvalidProblemError, match="precision 'int4' goes with a name or numbers"):
        GivenModel.of(model.description, "int4")
    with pytest.raises(UnknownNameError, match="no runtime 'vlm'; it is one of vllm"):
        pk.plan_serving(model, PAIR, "vlm")
    with pytest.raises(InvalidProblemError, match="goal is 'speed'; it is one of latency, throughput, context"):
        pk.Wishes(goal="speed")  # type: ignore[arg-type]  # what the error is about


def test_a_chain_is_planned_without_heavy_packages() -> None:
    """In a process where none of them can be imported."""
    heavy = ("openvino", "numba", "ortools", "onnx", "matplotlib", "torch", "transformers", "highspy", "pulp")
    code = f"""
import sys
sys.modules.update(dict.fromkeys({heavy}))
import placekit as pk
platform = pk.Platform.of(rtx4090=1, memory_bytes={{"rtx4090": 24e9}}, links={{"rtx4090": pk.Link(2e-5, 2e10)}})
plan = pk.plan_serving("llama3-8b", platform, "llama.cpp", precision="int4")
print(plan.result.status, plan.result.method, plan.launch[0].split(" --fit")[0])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ("optimal chain llama-server -m llama3-8b.gguf --n-gpu-layers 33 --split-mode layer")
