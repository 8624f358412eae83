"""Problems drawn by a seed, spread over everything that the families are made of: a Latin hypercube for each family.

Sizes from 50 to 250 ops, 2 to 8 devices, half of the platforms equal, transfers from 0.1 to 10 mean op times (evenly in
the logarithm): every level once, combined at random. Each problem has a graph seed of its own, so that heads, shards,
tiles and widths are drawn anew. A draw with a seed that nobody used before is *held out*.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placekit.benchmarks.suite_schema import DrawEntry, ModelEntry

__all__ = ["drawn_models"]

FAMILIES = ("transformer", "feed-forward-shards", "inception", "chained-matmuls", "layered")
PER_FAMILY = 8
DEVICES = (2, 2, 3, 4, 5, 6, 7, 8)


def drawn_models(entry: DrawEntry) -> Iterator[ModelEntry]:
    """Yield the 40 models of a draw.

    Examples
    --------
    >>> [model.name for model in drawn_models(DrawEntry(name="held-out", seed=4))][5]
    'held-out 405: transformer 193, 8 equal, 1.39'
    """
    rng = np.random.default_rng(entry.seed)
    seed = 100 * entry.seed
    for family in FAMILIES:
        sizes = rng.permutation(np.linspace(50, 250, PER_FAMILY).round().astype(int))
        devices = rng.permutation(DEVICES)
        equal = rng.permutation([True, False] * (PER_FAMILY // 2))
        ratios = rng.permutation(np.round(10.0 ** np.linspace(-1, 1, PER_FAMILY), 2))
        for size, count, is_equal, ratio in zip(
            sizes.tolist(), devices.tolist(), equal.tolist(), ratios.tolist(), strict=True
        ):
            yield ModelEntry(
                name=f"{entry.name} {seed}: {family} {size}, {count} {'equal' if is_equal else 'unequal'}, {ratio:g}",
                family=family,
                params={"num_ops": size, "num_devices": count, "equal": is_equal, "transfer_ratio": ratio},
                seeds=(seed,),
            )
            seed += 1
