"""Lines for llama.cpp against its rule of layers, written down a second time: random plans come back."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import numpy as np
import pytest
from llama_layers import devices_of_layers
from serving_plans import launch_of

import placekit as pk
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import model_step
from placekit.language.serving import Phase
from placekit.model.served import Served

CARDS = 4


def random_homes(draw: random.Random, layers: int) -> list[int]:
    """Return a device for every block: some first ones on the host (0), then runs on cards."""
    on_host = draw.choice([0, 0, draw.randint(0, layers)])
    rest = layers - on_host
    cards = draw.sample(range(1, CARDS + 1), k=min(draw.randint(1, CARDS), max(rest, 1)))
    cuts = sorted(draw.sample(range(1, rest), k=len(cards) - 1)) if rest > 1 else []
    sizes = [end - start for start, end in pairwise([0, *cuts, rest])]
    return [0] * on_host + [card for card, size in zip(cards, sizes, strict=False) for _ in range(size)]


@pytest.mark.parametrize("seed", range(60))
def test_random_plans_come_back_with_blocks_of_multi_token_prediction(seed: int) -> None:
    """Every block is on its device, and the output with the last one, for files with and without further blocks."""
    draw = random.Random(seed)
    layers, further = draw.randint(1, 90), draw.choice([0, 1, 1, 2, 3])
    homes = random_homes(draw, layers)
    graph = model_step(describe_decoder(Decoder(layers, 64, 128, 500, heads=4)), Phase("decode", 1, 1, 10.0)).graph
    platform = pk.Platform.of(cpu=1, gpu=CARDS, host="cpu")
    at = []
    for name in graph.op_names:
        found = re.search(r"layers\.(\d+)\.", name)
        at.append(homes[int(found[1])] if found else 0 if "embed" in name else homes[-1])
    placement = pk.Placement(graph.op_names, platform.device_names, np.array(at))
    served = Served(further_blocks=further)
    told = launch_of("llama.cpp", graph, platform, placement, served)
    names = ["CPU", *(f"CUDA{card}" for card in range(CARDS))]
    found_at = devices_of_layers(told.arguments, layers + further)
    assert found_at[:layers] == [names[home] for home in homes]
    assert found_at[-1] == names[homes[-1]]
    assert "--override-tensor" not in told.arguments


@pytest.mark.parametrize(
    ("family", "further"),
    [("glm4_moe", 2), ("qwen3_5", 2), ("deepseek_v3", 0), ("glm4_moe_lite", 0), ("mimo_v2_flash", 3)],
)
def test_files_have_the_blocks_that_the_converter_writes(family: str, further: int) -> None:
    """Most have those of the configuration; some have none, and one has more than its configuration tells."""
    model = describe_decoder(Decoder(4, 64, 128, 500, heads=4))
    told = model.replace(family=family, blocks=model.blocks[:2], speculative=model.blocks[2:])
    assert told.further_in_gguf == further
