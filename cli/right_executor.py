"""Refusal of placements that a runtime would run in another way than they were solved for.

HETERO, onnxruntime and accelerate run the parts of a model one after another. A placement that was solved for a
pipeline, or for devices that work at the same time, is slower there than its objective promises, and often slower than
one device alone.
"""

from __future__ import annotations

from pathlib import Path

from placekit.cli.answers import kept_problem, result_file
from placekit.model.errors import InvalidProblemError, PlacekitError
from placekit.model.placement import Placement
from placekit.model.sizes import format_seconds
from placekit.objectives.serial_latency import SerialLatency
from placekit.solve.advice import LEAST_GAIN
from placekit.solve.alternatives import alternatives_of
from placekit.solve.result import Result
from placekit.solve.verdict import serial_latency_s


def require_serial(placement: Path, model: Path, runtime: str) -> None:
    """Refuse a placement that loses its gain if `runtime` runs its parts one after another.

    A placement whose result is not known was made by hand, for a reason of its own: it is not looked at. The message
    has the time of one sample there, the promise, and the command that solves `model` for it.
    """
    try:
        from placekit.io.result_json import read_result

        result = read_result(result_file(placement))
    except PlacekitError:
        return
    placed, promised = result.placement, result.objective
    if placed is None or promised is None or result.objective_name == SerialLatency.name:
        return
    if len(set(placed.device_of_op.tolist())) == 1:
        return
    serial_s, alone = _as_it_runs(result)
    if serial_s is not None and serial_s <= promised * (1 + LEAST_GAIN):
        return
    takes = "slower" if serial_s is None else f"{format_seconds(serial_s)} per sample"
    raise InvalidProblemError(
        f"{runtime} runs the parts of a placement one after another: {takes}, not the {format_seconds(promised)} of "
        f"{result.objective_name}{alone}; solve for it with `placekit solve {model} --objective serial-latency` "
        "and your other options, or export this one with --force"
    )


def _as_it_runs(result: Result) -> tuple[float | None, str]:
    """Return the seconds of one sample that goes through the parts one by one, and how one device alone compares."""
    problem = kept_problem(result.problem_hash)
    if problem is None or result.placement is None:
        return None if result.verdict is None else result.verdict.latency, ""
    placed = Placement.from_mapping(problem, result.placement.as_dict())
    serial_s = serial_latency_s(problem, placed)
    try:
        singles = alternatives_of(problem.replace(objective=SerialLatency(), contiguity=None))
    except InvalidProblemError:
        return serial_s, ""
    known = [(each.objective_s, each.name) for each in singles if each.objective_s is not None]
    if not known:
        return serial_s, ""
    seconds, name = min(known)
    return serial_s, f", and {format_seconds(seconds)} on {name} alone"
