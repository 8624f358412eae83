"""Memory that runtimes take themselves, against plans whose fate is published."""

from __future__ import annotations

from dataclasses import replace

import pytest

import placekit as pk
from placekit.cost_models.sheets.cards import LLAMA_CPP
from placekit.cost_models.sheets.machines import machine_of
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.planning.given import Split, given_report
from placekit.language.planning.offload import with_offload
from placekit.language.planning.reserved import with_buffers
from placekit.language.runtimes import DEFAULT_HEADROOM, RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import decoder_task
from placekit.model.errors import InvalidProblemError

GIB = 2.0**30
QWEN_14B = Decoder(48, 5120, 13824, 152064, heads=40, kv_heads=8)
QWEN_32B = Decoder(64, 5120, 27648, 152064, heads=40, kv_heads=8)
QWEN_30B_A3B = Decoder(
    48, 2048, 768, 151936, heads=32, kv_heads=4, head_dim=128, experts=128, experts_per_token=8
)  # fmt: skip
A3B_35B = Decoder(40, 2048, 512, 248320, heads=32, kv_heads=2, head_dim=256, experts=256, experts_per_token=8)


@pytest.mark.parametrize(
    ("card", "shape", "file_gib", "split", "context", "runs"),
    [
        ("RTX 2070 SUPER", QWEN_14B, 8.37, Split(8, (40,)), 640, True),  # -ngl 41
        ("RTX 2070 SUPER", QWEN_14B, 8.37, Split(7, (41,)), 640, False),  # -ngl 42
        ("RTX 2070 SUPER", QWEN_32B, 18.49, Split(45, (19,)), 640, True),  # -ngl 20
        ("RTX 2070 SUPER", QWEN_32B, 18.49, Split(41, (23,)), 640, False),  # -ngl 24
        ("RTX 2070 SUPER", QWEN_30B_A3B, 17.29, Split(0, (48,), hosted_experts=32), 640, True),
        ("RTX 2070 SUPER", QWEN_30B_A3B, 17.29, Split(0, (48,), hosted_experts=24), 640, False),
        ("RTX 5060 Ti", QWEN_14B, 8.37, Split(0, (48,)), 640, True),
        ("RTX 4090", QWEN_32B, 21.66, Split(1, (63,)), 640, True),
        ("RX 9070 XT", A3B_35B, 18.34, Split(0, (40,), hosted_experts=16), 4096, True),
        ("RTX 5080", A3B_35B, 19.09, Split(0, (40,), hosted_experts=24), 65536, True),
    ],
)
def test_plans_of_known_fate(
    card: str, shape: Decoder, file_gib: float, split: Split, context: int, *, runs: bool
) -> None:
    """What was published to run fits into the memory that llama.cpp leaves, and what did not run does not fit."""
    model = describe_decoder(shape, "f16").scaled_to(file_gib * GIB)
    machine = machine_of(card, "64 GB DDR5-5600 x2")
    costs = pk.Analytic(machine.specs(LLAMA_CPP))
    platform = costs.with_links(machine.platform())
    usable, _ = RUNTIMES["llama.cpp"].usable(platform, model)
    unlimited = platform.replace(devices=tuple(each.replace(memory_bytes=None) for each in platform.devices))
    serving = Serving(512, 128, context, chunk=512)
    task = decoder_task(model, serving, unlimited, lambda graph: costs.cost_table(graph, unlimited))
    task = with_offload(replace(with_buffers(task), overlaps_prompt=True), machine.kinds[0], 32)
    report = given_report(task, split)
    held = next(each for each in report.memory if each.device != "CPU")
    room = usable.devices[1].memory_bytes
    assert room is not None
    assert (held.weight_bytes + held.cache_bytes + held.activation_bytes <= room) == runs


def test_what_a_runtime_takes_is_counted_once_per_card() -> None:
    """Hosts keep a tenth free; cards what the driver and a copied block take."""
    model = describe_decoder(QWEN_14B, "int4")
    platform = machine_of("RTX 3060", "64 GB DDR5-5600 x2").platform()
    usable, told = RUNTIMES["llama.cpp"].usable(platform, model)
    block = max(each.weight_bytes for each in model.blocks)
    taken = 0.65 * GIB + block
    assert [each.memory_bytes for each in usable.devices] == pytest.approx(
        [64 * GIB * (1 - DEFAULT_HEADROOM), 12 * GIB - taken]
    )
    assert told.endswith("of every card for llama.cpp itself")
    narrow = platform.replace(devices=tuple(each.replace(memory_bytes=2 * GIB) for each in platform.devices))
    with pytest.raises(InvalidProblemError, match=r"device 'rtx-3060-12-gb' has 2 GiB; llama.cpp itself takes 4"):
        RUNTIMES["llama.cpp"].usable(narrow, model.scaled_to(180 * GIB))


def test_vllm_leaves_what_was_published_for_the_cache() -> None:
    """Qwen3-Coder-30B-A3B in 8 bits, 16 of 48 blocks on 16 GB at 0.9: 3.18 GiB were left (issue 34076)."""
    model = describe_decoder(QWEN_30B_A3B, "fp8")
    usable, _ = RUNTIMES["vllm"].usable(machine_of("RTX 5070 Ti").platform(), model)
    held = sum(part.weight_bytes for part in model.front) + sum(block.weight_bytes for block in model.blocks[:16])
    room = usable.devices[0].memory_bytes
    assert room is not None
    assert 0.92 * 3.18 * GIB <= room - held <= 3.18 * GIB
