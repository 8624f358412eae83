"""What data, steps and loss bring a policy: ``python -m placekit.benchmarks.policy_data DATASET -o POLICIES``.

Trains one policy for each of `VARIANTS` and seed to ``POLICIES/VARIANT-SEED.pt``, most of them from new weights. One
that is whole is left as it is, one that was killed goes on. How good they are is told by the suite ``policy-parts``,
which is given the folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

from placekit.errors import PlacekitError
from placekit.params import read_params

__all__ = ["VARIANTS", "main", "train_policies"]

_GRADIENT = {"imitation": 0.0, "relaxed": 0.0, "gradient": 1.0}
_SOME = {"labels": 1980}
_LONG = {"steps": 3000}
VARIANTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "labels-1000": {"labels": 1000, **_LONG},
        "labels-5000": {"labels": 5000, **_LONG},
        "labels-20000": {"labels": 20000, **_LONG},
        "wide": {"labels": 20000, "hidden": 64, **_LONG},
        "steps-300": _SOME,
        "steps-1600": {**_SOME, "steps": 1600},
        "proven": {**_SOME, "most_gap": 0.0},
        "imitation": {**_SOME, "relaxed": 0.0},
        "relaxed": {**_SOME, "imitation": 0.0},
        "gradient": {**_SOME, **_GRADIENT},
        "tuned": {**_SOME, "learning_rate": 5e-4},
        "tuned-gradient": {**_SOME, "learning_rate": 5e-4, **_GRADIENT},
    }
)
"""Parameters of the trainings: labels and width, of 3,000 steps; length; and of `STEPS` steps, labels that are proven
and each loss alone."""
STEPS = 300
TUNED = ("tuned", "tuned-gradient")
"""Variants that begin with the weights of the shipped policy instead of new ones."""


def train_policies(
    dataset: Path, folder: Path, names: Sequence[str], seeds: Sequence[int], steps: int | None = None
) -> None:
    """Train what is missing.

    Parameters
    ----------
    dataset
        Folder of the data set.
    folder
        Where the policies go.
    names, seeds
        Of `VARIANTS`, and each with these seeds.
    steps
        Steps of every training; those of its variant if None.

    Raises
    ------
    PlacekitError
        A data set that cannot be read, or a policy that cannot be trained on.
    """
    from placekit.learned.imitation.train import ImitationParams, steps_done, train
    from placekit.learned.policy import PRETRAINED

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        values = {"steps": STEPS, **VARIANTS[name]} | ({} if steps is None else {"steps": steps})
        params = read_params(ImitationParams, name, values)
        for seed in seeds:
            path = folder / f"{name}-{seed}.pt"
            begun, done = perf_counter(), steps_done(path) if path.exists() else 0
            if done < params.steps:
                train(
                    dataset,
                    path,
                    params,
                    seed=seed,
                    policy=PRETRAINED if name in TUNED and not done else None,
                    resume=path if done else None,
                    checkpoint_every_s=15.0,
                    measure_every=2 * params.steps,  # never: the suite measures
                )
            print(f"{path}: {steps_done(path)} steps, {perf_counter() - begun:.0f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="folder of labelled problems: `placekit learn --generate`")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="POLICIES", help="folder of the policies")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="only this one; repeatable")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of the trainings")
    parser.add_argument("--steps", type=int, help="steps of every training, instead of those of the variant")
    options = parser.parse_args(arguments)
    try:
        train_policies(options.dataset, options.output, options.variant or list(VARIANTS), options.seeds, options.steps)
    except PlacekitError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
