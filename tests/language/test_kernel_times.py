"""Measured kernel times of aiconfigurator-core as costs; most of it runs where the package is installed."""

from __future__ import annotations

import importlib.util

import pytest

from placekit.cost_models.sheets.machines import machine_of
from placekit.language.planning.answer import Answer
from placekit.language.planning.kernel_times import KernelTimes
from placekit.language.planning.planner import plan_serving
from placekit.language.planning.question import Wishes
from placekit.language.serving import Serving
from placekit.model.errors import InvalidProblemError, SolverUnavailableError
from placekit.model.platform import DirectLink
from placekit.solve.result import Status

HAS_PACKAGE = importlib.util.find_spec("aiconfigurator_core") is not None
needs_package = pytest.mark.skipif(not HAS_PACKAGE, reason="needs aiconfigurator-core (extra aiconfigurator)")


def planned(cards: str, serving: Serving) -> Answer:
    """Return a plan of Llama 3 8B for vLLM under measured kernel times."""
    platform = machine_of(cards).platform()
    if platform.num_devices > 1:
        platform = platform.replace(direct_links=(DirectLink(1e-5, 2e10),))
    wishes = Wishes(serving, batch=serving.batch, kernels="aiconfigurator")
    return plan_serving("llama3-8b", platform, "vllm", wishes=wishes)


@needs_package
def test_a_homogeneous_plan_is_the_prediction_of_the_package() -> None:
    """Llama 3.1 8B on one H100: 22.1 ms for a prompt of 1,024, 6.6 ms for a step of 8 sequences at 1,024."""
    engine = pytest.importorskip("aiconfigurator_core.sdk.engine")
    theirs = engine.EngineHandle.compile("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm")
    first = planned("H100", Serving(1024, 1)).report
    step = planned("H100", Serving(1024, 2, sequences=8, batch=8)).report
    assert first is not None
    assert step is not None
    assert first.time_to_first_token_s == pytest.approx(theirs.predict_prefill_latency(1, 1024) / 1e3, rel=0.05)
    assert step.time_per_token_s == pytest.approx(theirs.predict_decode_latency(8, 1024, 2) / 1e3, rel=0.05)


@needs_package
def test_unequal_cards_are_proven_under_these_costs() -> None:
    """H100 and L40S: most blocks are on the faster card, the plan is optimal, and says what was measured."""
    answer = planned("H100, L40S", Serving(1024, 128, sequences=16, batch=8))
    assert answer.result.status is Status.OPTIMAL
    assert answer.report is not None
    assert answer.kernels.keys() == {
        f"{kind}, {phase}" for kind in ("h100-sxm5-80-gb", "l40s") for phase in ("prefill", "decode")
    }
    assert all("of the time was measured" in words for words in answer.kernels.values())


@pytest.mark.skipif(HAS_PACKAGE, reason="the package is installed")
def test_without_the_package_the_extra_is_named() -> None:
    """One line says what to install."""
    with pytest.raises(SolverUnavailableError, match=r"placekit\[aiconfigurator\]"):
        planned("H100", Serving(1024, 1))


def test_what_has_no_kernel_times_is_refused() -> None:
    """Other costs and other runtimes are named in one line."""
    for asked, runtime, message in (
        ("aiconfig", "vllm", "it is analytic or aiconfigurator"),
        ("aiconfigurator", "llama.cpp", "goes with --for vllm, sglang, tensorrt-llm"),
    ):
        with pytest.raises(InvalidProblemError, match=message):
            KernelTimes.of(asked, runtime, "llama3-8b", None)
