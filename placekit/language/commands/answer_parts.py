"""The answer of ``placekit llm``, most important first: verdict, speeds, memory, context, and what the plan beats."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from placekit.cli.output.render import fact_lines
from placekit.cli.output.units import format_count
from placekit.language.compared.rivals import Rival
from placekit.language.planning.answer import Answer, Speed
from placekit.language.planning.question import DEFAULT_CONTEXT
from placekit.language.runtimes.record import Runtime
from placekit.language.runtimes.rules import HOSTS
from placekit.model.sizes import format_bytes, format_share

DRAW = 1.005
"""Gain up to which two plans count as equally fast."""


def verdict_text(answer: Answer) -> Text:
    """Return the verdict: what to do, tokens per second, the gain over the runtime's own choice, and how sure it is."""
    report, name = answer.report, answer.model.called
    if report is None:
        return Text(f"{name} does not fit: {needed(answer)}.", style="bold")
    line = Text(_what_to_do(answer), style="bold")
    told = f": {main_speed(answer)}" if answer.speeds else ""
    own = next((each for each in answer.rivals if each.kind == "own choice"), None)
    gain = "" if own is None else f", {_gain_told(own, answer)}"
    line.append(f"{told}{gain}; {_sure(answer)}.")
    return line


def main_speed(answer: Answer) -> str:
    """Return the speed of the last phase of a plan in words."""
    phase, speed = next(reversed(answer.speeds.items()))
    return f"{rate(speed.tokens_per_s)} {_unit(phase)}"


def _unit(phase: str) -> str:
    return "prompt tokens/s" if phase == "prompt" else "tokens/s"


def rate(tokens_per_s: float) -> str:
    """Return tokens per second with three digits, whole from 100 on."""
    return f"{tokens_per_s:,.0f}" if tokens_per_s >= 100 else f"{tokens_per_s:.3g}"


def _what_to_do(answer: Answer) -> str:
    name, places, task = answer.model.called, answer.places, answer.plan.task
    if answer.phases and task.undivided is not None:
        return f"Serve {name} with prefill and decode apart"
    if not places:
        return f"Run {name}"
    hosted = ""
    if task.hosted_blocks:
        host = next(device.name for device in task.problem.platform.devices if device.is_host)
        hosted = f", {task.hosted_layers} of {format_count(task.hosted_blocks, 'block')} on {host}"
    if len(places) == 1:
        return f"Run {name} on {places[0].device}{'' if hosted else ' alone'}{hosted}"
    split = ", ".join(f"{format_count(each.blocks, 'block')} on {each.device}" for each in places)
    return f"Split {name}: {split}{hosted}"


def _gain_told(own: Rival, answer: Answer) -> str:
    """Return words for the gain over the runtime's own choice."""
    runtime = answer.plan.runtime
    whose = own.how if runtime is None else f"{runtime.name}'s own choice ({own.how})"
    gain = own.gain(answer.plan)
    if gain is None:
        return f"where {whose} does not fit"
    if gain < 1 / DRAW:
        return f"{gain:.2f}x the speed of {whose}"
    return f"as fast as {whose}" if gain < DRAW else f"{gain:.2f}x over {whose}"


def _sure(answer: Answer) -> str:
    speeds = answer.speeds
    if answer.range_from == "measured":
        return "rates are measured"
    last = next(reversed(speeds.values()), None)
    if last is None or last.factor is None:
        return "modelled, not measured"
    return f"expect {rate(last.least or 0)} to {rate(last.most or 0)}"


def summary_parts(answer: Answer) -> Iterator[RenderableType]:
    """Return speeds, memory, context, what the plan beats, and what it is the best of."""
    if answer.report is not None:
        facts = {what: _speed_told(each, answer) for what, each in answer.speeds.items()}
        facts |= {"memory": _memory_told(answer), "context": _context_told(answer)}
        if answer.range_from == "published":
            facts["range"] = f"two of three published measurements ({answer.split_class}) are within it"
        if rivals := [_rival_told(each, answer) for each in answer.rivals]:
            facts["gain"] = "\n".join(rivals)
        facts["best of"] = _search_told(answer)
        yield fact_lines(facts)


def _speed_told(speed: Speed, answer: Answer) -> str:
    told = f"{rate(speed.tokens_per_s)} tokens/s"
    sequences = answer.plan.task.serving.sequences
    told += f" of {sequences} sequences together" if sequences > 1 else ""
    if speed.least is not None and speed.most is not None:
        told += f" ({rate(speed.least)} to {rate(speed.most)})"
    if answer.plan.task.serving.depth:
        return f"{told} with the context full"
    if speed.full_tokens_per_s is not None and rate(speed.full_tokens_per_s) != rate(speed.tokens_per_s):
        told += f"; {rate(speed.full_tokens_per_s)} with the context full"
    return told


def _memory_told(answer: Answer) -> str:
    assert answer.report is not None
    lines = []
    for each in answer.report.memory:
        used = each.weight_bytes + each.cache_bytes + each.activation_bytes
        of = "" if each.limit_bytes is None else f" of {format_bytes(each.limit_bytes)}"
        lines.append(
            f"{each.device}: {format_bytes(used)}{of} (weights {format_bytes(each.weight_bytes)}, cache "
            f"{format_bytes(each.cache_bytes)}, buffers {format_bytes(each.activation_bytes)})"
        )
    return "\n".join(lines)


def _context_told(answer: Answer) -> str:
    room = answer.context
    told = f"{room.planned:,} tokens planned"
    sequences = answer.plan.task.serving.sequences
    told += f" for each of {sequences} sequences" if sequences > 1 else ""
    if room.asked is not None and room.limit is not None and room.asked > room.limit:
        told += f", the model's limit ({room.asked:,} asked)"
    wanted = DEFAULT_CONTEXT if room.limit is None else min(DEFAULT_CONTEXT, room.limit)
    if room.asked is None and room.planned < wanted:
        return f"{told}, the most that fits: {wanted:,} do not"
    if room.limit is not None and room.planned > room.limit:
        return f"{told}, more than the model's own limit of {room.limit:,}"
    if room.longest is not None and room.longest > room.planned:
        own = ", the model's limit" if room.longest == room.limit else ""
        return f"{told}; room for {room.longest:,}{own}"
    return told if room.planned != room.limit or "limit" in told else f"{told}, the model's limit"


def _rival_told(rival: Rival, answer: Answer) -> str:
    """Return how much faster the plan is than another way."""
    named = {
        "own choice": lambda: rival.how if answer.plan.runtime is None else f"{answer.plan.runtime.name}'s {rival.how}",
        "fastest card alone": lambda: f"the fastest card alone ({rival.how})",
        "one card less": lambda: f"one card less (without {rival.how})",
    }
    name, gain = named[rival.kind](), rival.gain(answer.plan)
    if gain is None:
        return f"{name} does not fit"
    if 1 / DRAW < gain < DRAW:
        return f"as fast as {name}"
    return f"{gain:.2f}x over {name}"


def _search_told(answer: Answer) -> str:
    """Return what the plan is the best of, what was not tried, and by which bound."""
    result, runtime = answer.result, answer.plan.runtime
    what = _space(runtime)
    lacking = f" (not tried: {', '.join(runtime.not_searched)})" if runtime and runtime.not_searched else ""
    if result.gap is None:
        return f"{what}{lacking}; no bound"
    by = f"by {result.bound_name}" if result.bound_name else "by its bound"
    return f"{what}{lacking}, {by}, gap {format_share(result.gap)}"


def _space(runtime: Runtime | None) -> str:
    return "runs of blocks on any device" if runtime is None else HOSTS[runtime.host][1]


def needed(answer: Answer) -> str:
    """Return the memory that a model needs, and what there is, where nothing fits."""
    task = answer.plan.task
    wanted = float(task.problem.costs.op_memory_bytes.sum())
    there = task.problem.platform.most_bytes
    if there == float("inf"):
        return f"weights and cache of {format_bytes(wanted)} in whole blocks"
    lacking = f"{format_bytes(wanted - there)} lack" if wanted > there else "whole blocks do not fit into the parts"
    names = {name for device in task.problem.platform.devices for name in device.member_names}
    total = answer.machine.with_devices(each for each in answer.machine.devices if each.name in names).most_bytes
    return (
        f"weights and cache {format_bytes(wanted)}; there are {format_bytes(there)} of {format_bytes(total)} without "
        f"headroom ({answer.headroom}) and activations ({format_bytes(task.activation_bytes)} per device): {lacking}"
    )
