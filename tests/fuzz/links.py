"""Direct links for random problems: inside nodes and between them, of some kinds or of any."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from placekit.model.platform import DirectLink
from placekit.model.problem import Problem


def with_links(
    rng: np.random.Generator, problem: Problem, draw: Callable[[tuple[int, int]], NDArray[np.float64]]
) -> Problem:
    """Return `problem` with direct links between some of its devices, or between all of them.

    Parameters
    ----------
    rng
        Says which.
    problem
        A problem whose objective knows links.
    draw
        Draws the seconds of every tensor over every link.
    """
    platform = problem.platform
    devices, kinds = platform.devices, platform.kinds
    has_nodes = rng.random() < 0.5
    if has_nodes:
        num_nodes = int(rng.integers(2, 4))
        devices = tuple(device.replace(node=f"n{rng.integers(0, num_nodes)}") for device in devices)
    links: list[DirectLink] = []
    for between in (False, True)[: 1 + has_nodes]:
        pairs = list(itertools.combinations_with_replacement(kinds, 2))
        links += [DirectLink(0.0, 1.0, pair, between) for pair in pairs if rng.random() < 0.4]
        if between or rng.random() < 0.4:  # devices on two nodes have no other way
            links.append(DirectLink(0.0, 1.0, None, between))
    links = [links[at] for at in rng.permutation(len(links))]
    times = draw((problem.graph.num_tensors, len(links)))
    if rng.random() < 0.3:
        times *= float(rng.choice([0.0, 1e-3, 10.0]))
    platform = platform.replace(devices=devices, direct_links=tuple(links))
    costs = problem.costs.replace(direct_links=platform.direct_link_names, direct_time_s=times)
    return problem.replace(platform=platform, costs=costs)
