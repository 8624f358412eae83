"""Device maps as Hugging Face accelerate takes them: ``{module path: device}``, for `accelerate.dispatch_model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placekit.errors import UnsupportedProblemError
from placekit.graph import OpGraph
from placekit.placement import Placement
from placekit.platform import Platform

__all__ = ["device_map"]


def device_map(
    graph: OpGraph, platform: Platform, placement: Placement, module_of_op: Sequence[str] | None = None
) -> dict[str, int | str]:
    """Return the device of every module that holds weights, by the shortest paths that tell them apart.

    Parameters
    ----------
    graph, platform, placement
        What is where. Accelerators are numbered in the order of the platform, hosts are ``"cpu"``.
    module_of_op
        ``[num_ops]`` path of the module of every op; the ops' own names if None.

    Raises
    ------
    UnsupportedProblemError
        A team, no op with weights, or a module whose own weights are on two devices.

    Examples
    --------
    >>> names = ("h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp")
    >>> graph = OpGraph.from_edges(names, list(zip(names, names[1:]))).replace(op_weight_bytes=[1.0] * 4)
    >>> platform = Platform.of(cpu=1, gpu=2, host="cpu")
    >>> device_map(graph, platform, Placement(names, platform.device_names, [1, 1, 1, 2]))
    {'h.0': 0, 'h.1.attn': 0, 'h.1.mlp': 1}
    """
    teams = [team for team in placement.teams if len(team) > 1]
    if teams:
        raise UnsupportedProblemError(
            f"a device map has no replicas, as {placement.team_name(teams[0][0])!r} is; place with --teams off"
        )
    cards = [d for d, device in enumerate(platform.devices) if not device.is_host]
    paths = module_of_op or graph.op_names
    home: dict[str, int] = {}
    for path, device, held in zip(paths, placement.device_of_op.tolist(), graph.op_weight_bytes.tolist(), strict=True):
        if held > 0 and home.setdefault(path, device) != device:
            names = " and ".join(repr(placement.device_names[d]) for d in (home[path], device))
            raise UnsupportedProblemError(
                f"a device map is by module, but weights of {path or 'the top module'!r} are on {names}"
            )
    if not home:
        raise UnsupportedProblemError(f"{graph.name!r} has no op with weights: there is nothing to map")
    told = {device: cards.index(device) if device in cards else "cpu" for device in set(home.values())}
    return {path: told[device] for path, device in _shortest(home, "").items()}


def _shortest(home: Mapping[str, int], prefix: str) -> dict[str, int]:
    """Return entries for the paths at and below `prefix`: one if they agree, else those of its children."""
    if len(set(home.values())) == 1:
        return {prefix: next(iter(home.values()))}
    begin = len(prefix) + 1 if prefix else 0
    children: dict[str, dict[str, int]] = {}
    found: dict[str, int] = {}
    for path, device in home.items():
        if path == prefix:
            raise UnsupportedProblemError(
                f"a device map is by module, but {path or 'the top module'!r} holds weights itself, and modules inside "
                "it are on other devices"
            )
        children.setdefault(path[: begin + len(path[begin:].partition(".")[0])], {})[path] = device
    for child, inside in children.items():
        found |= _shortest(inside, child)
    return found
