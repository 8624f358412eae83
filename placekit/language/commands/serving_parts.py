"""Details of a placed language model: what was read and asked, what was tried, and what every device does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from placekit.cli.output.facts import problem_facts
from placekit.cli.output.render import fact_lines, paragraphs, plain_table, result_lines
from placekit.cli.output.units import format_count
from placekit.cli.output.verdicts import verdict_lines
from placekit.language.commands.answer_parts import rate
from placekit.language.compared.variants import Variant
from placekit.language.description import PREDICTING, ModelDescription
from placekit.language.planning.answer import Answer, tried_numbers
from placekit.language.planning.context import trained_tokens
from placekit.language.planning.plan import ServingPlan
from placekit.language.planning.planner import variant_of
from placekit.language.report import ServingReport
from placekit.language.runtimes.record import Runtime
from placekit.language.runtimes.rules import HOSTS
from placekit.language.task import LanguageTask
from placekit.model.sizes import format_bytes, format_seconds, format_share


def model_told(task: LanguageTask, name: str) -> str:
    """Return a sentence about a model."""
    model = task.description
    if model is None:
        layers = int((task.cache_bytes > 0).sum())
        weights = format_bytes(task.held_bytes(np.ones(len(task.weight_bytes), dtype=bool)))
        return f"{name}: weights of {weights}, {format_count(layers, 'op')} with a cache"
    active = ""
    if model.active_parameters != model.parameters:
        active = f", {_billions(model.active_parameters)} active per token"
        if model.lookup_parameters:
            active += f" ({_billions(model.active_parameters - model.lookup_parameters)} without the embedding table)"
    return f"{model.name} ({model.family}): {_billions(model.parameters)} parameters in {model.precision}{active}"


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} billion" if count >= 1e8 else f"{count / 1e6:.1f} million"


def _description_facts(model: ModelDescription) -> dict[str, str]:
    """Return what was read of a model: its kinds of blocks, and what they keep of a sequence."""
    kinds = ", ".join(f"{count} of {kind}" for kind, count in model.kinds().items())
    kept = []
    if model.cache_values:
        kept.append(f"{model.cache_values:,} numbers per token")
        for window in sorted({block.window for block in model.blocks if block.window}):
            values = sum(block.cache_values for block in model.blocks if block.window == window)
            kept.append(f"{values:,} of them for the last {window:,} tokens only")
    if model.state_bytes:
        kept.append(f"a state of {format_bytes(model.state_bytes)} per sequence")
    facts = {"blocks": f"{len(model.blocks)}, hidden {model.hidden}: {kinds}", "keeps": ", ".join(kept)}
    notes = list(model.notes)
    if model.speculative:
        notes.append(f"{len(model.speculative)} block(s) for {PREDICTING} are not placed: loaded for speculation only")
    if notes:
        facts["note"] = "; ".join(notes)
    return facts


def detail_parts(answer: Answer) -> Iterator[RenderableType]:
    """Return the model, the problem, the result, what serving is like, and tables of what was tried."""
    plan = answer.plan
    task, report, result = plan.task, plan.report, plan.result
    shown = task.problem.replace(platform=task.platform)
    runtime = {} if plan.runtime is None else {"for": _rules_told(plan.runtime)}
    read = {} if task.description is None else _description_facts(task.description)
    kernels = "\n".join(f"{what}: {words}" for what, words in answer.kernels.items())
    measured = "; ".join(f"{kind}: {told}" for kind, told in answer.measured.items())
    facts = {"model": model_told(task, answer.model.called), **read, **runtime, **_asked(task), **_hosted(task)}
    facts |= _free(answer)
    facts |= {"kernels": kernels} if kernels else {}
    facts |= {"measured": measured} if measured else {}
    yield from paragraphs(
        fact_lines(facts | problem_facts(shown, answer.pins)),
        result_lines(result, with_memory=report is None, space=None if plan.runtime is None else plan.runtime.space),
        None if report is None else serving_lines(report),
        _tried_table(answer),
        _plan_table("where feed-forward layers are", answer.experts) if answer.experts else None,
        verdict_lines(result.verdict, task.problem),
    )


def tables(answer: Answer) -> Iterator[RenderableType]:
    """Return the tables that were asked for: contexts, phases apart, and the rules of every runtime."""
    if answer.precisions:
        yield from _variant_table("precision", answer.precisions)
    if answer.exchanged:
        here = variant_of("as it is", answer.model, answer)
        yield from _variant_table("instead", (here, *answer.exchanged))
    if answer.points:
        yield from _context_table(answer)
    if answer.phases:
        yield _plan_table("prefill and decode", answer.phases)
    if answer.compared:
        yield _compared_table(answer)


def _variant_table(title: str, variants: Sequence[Variant]) -> Iterator[RenderableType]:
    """Return a table of answers to changed questions; the launch lines stand below, unbroken, for people to copy."""
    table = plain_table(title, "bits/weight", "fits", "context", "prompt tokens/s", "generated", left=0)
    table.columns[0].justify = "left"
    for each in variants:
        rates = (
            "-" if told is None else rate(told) for told in (each.prompt_tokens_per_s, each.generated_tokens_per_s)
        )
        bits = "-" if each.bits_per_weight is None else f"{each.bits_per_weight:.3g}"
        context = "-" if each.longest_context is None else f"{each.longest_context:,}"
        table.add_row(each.what, bits, "yes" if each.fits else "no", context, *rates)
    yield table
    for each in variants:
        if each.launch:
            yield Text("\n".join(["", f"{each.what}:", *each.launch]), no_wrap=True, overflow="ignore")


def _tried_table(answer: Answer) -> RenderableType | None:
    """Return a table of every case that was solved: batch size, degree, blocks with layers on the host."""
    if len(answer.tried) < 2:
        return None
    table = plain_table("tried: batch", "degree", "layers on the host", *_RATES, left=0)
    for plan in answer.tried:
        each = tried_numbers(plan)
        table.add_row(*(str(each[name]) for name in ("batch", "degree", "hosted_blocks")), *_rates(plan.report))
    return table


def _rules_told(runtime: Runtime) -> str:
    return f"{runtime.name}: {HOSTS[runtime.host][1]}"


def _free(answer: Answer) -> dict[str, str]:
    """Return what stays free of every sort of memory."""
    usable = {
        name: None if device.memory_bytes is None else device.memory_bytes / device.degree
        for device in answer.plan.task.platform.devices
        for name in device.member_names
    }
    free = {
        f"{format_bytes(device.memory_bytes - left)} of {format_bytes(device.memory_bytes)}": None
        for device in answer.machine.devices
        if device.memory_bytes is not None and (left := usable.get(device.name)) is not None
    }
    told = {"headroom": f"{answer.headroom} stays free ({', '.join(free)})"} if free else {}
    if free and answer.plan.runtime is not None and not answer.plan.runtime.reserved_bytes:
        told["not counted"] = f"what {answer.plan.runtime.name} itself takes of memory: graphs, samplers, profile runs"
    return told


def _context_table(answer: Answer) -> Iterator[RenderableType]:
    table = plain_table("context, filled", *_RATES, "devices")
    for each in answer.points:
        report = each.plan.report
        table.add_row(f"{each.context:,}", *_rates(report), str(0 if report is None else len(report.memory)))
    yield table
    if answer.points[-1].context == trained_tokens(answer.plan.task):
        yield "the model was trained for no longer context"


def _compared_table(answer: Answer) -> RenderableType:
    table = plain_table("what runtimes can follow", "loss")
    best = answer.plan.tokens_per_s
    for names, plan in answer.compared.items():
        if plan is None or plan.report is None:
            table.add_row(names, "cannot run it" if plan is None else "does not fit")
        else:
            loss = 1 - plan.tokens_per_s / best  # below 0 where a runtime knows more than the plan without one
            table.add_row(names, f"{'-' if loss < -1e-9 else ''}{format_share(abs(loss))}")
    return table


def _plan_table(title: str, compared: Mapping[str, ServingPlan | None]) -> RenderableType:
    table = plain_table(title, *_RATES)
    for what, plan in compared.items():
        told = ("does not fit", "-", "-") if plan is None or plan.report is None else _rates(plan.report)
        table.add_row(what, *told)
    return table


_RATES = ("prompt tokens/s", "generated", "requests/s")


def _rates(report: ServingReport | None) -> tuple[str, ...]:
    """Return the speeds of a plan under the columns `_RATES`."""
    if report is None:
        return "-", "-", "-"
    rates = (report.prompt_tokens_per_s, report.generated_tokens_per_s)
    return *("-" if told is None else rate(told) for told in rates), f"{report.requests_per_s:.4g}"


def _hosted(task: LanguageTask) -> dict[str, str]:
    """Return where the feed-forward and the cache are, if the host has some."""
    if not task.hosted_blocks and not task.host_cache_bytes:
        return {}
    host = next(device.name for device in task.problem.platform.devices if device.is_host)
    told = {"attention": f"of single tokens on {host}, which has the whole cache"} if task.host_cache_bytes else {}
    if task.hosted_blocks:
        told[task.hosted_layers] = (
            f"those of the first {task.hosted_blocks} blocks are on {host} ({format_bytes(task.hosted_bytes)}), "
            "and computed there; the time on a card has their time and the bus"
        )
    return told


def _asked(task: LanguageTask) -> dict[str, str]:
    serving = task.serving
    weights = task.held_bytes(np.ones(len(task.weight_bytes), dtype=bool)) + task.hosted_bytes
    cache = float(task.cache_bytes.sum()) + task.host_cache_bytes
    chunk = "" if serving.chunk is None else f"; prefill in chunks of {format_count(serving.chunk, 'token')}"
    return {
        "serving": f"{format_count(serving.prompt, 'token')} of prompt, {serving.generated} generated; "
        f"{format_count(serving.sequences, 'sequence')} in flight, {serving.batch} in a batch{chunk}",
        "memory": f"weights {format_bytes(weights)}, cache {format_bytes(cache)} per sequence of {serving.context} "
        "tokens",
    }


def serving_lines(report: ServingReport) -> Iterator[RenderableType]:
    """Return what a placement delivers: memory by device, latency, rate, and what one more sequence breaks."""
    table = plain_table("device", "weights", "cache", "activations", "limit", "sequences")
    for each in report.memory:
        most = "-" if each.most_sequences is None else str(each.most_sequences)
        sizes = (each.weight_bytes, each.cache_bytes, each.activation_bytes, each.limit_bytes)
        table.add_row(each.device, *map(format_bytes, sizes), most)
    yield table
    yield ""
    facts: dict[str, str] = {}
    if report.time_to_first_token_s is not None:
        facts["first token"] = f"{format_seconds(report.time_to_first_token_s)} after the prompt"
    if report.time_per_token_s is not None:
        facts["per token"] = format_seconds(report.time_per_token_s)
    facts["request"] = f"{format_seconds(report.request_s)} from end to end"
    facts["rate"] = f"{report.requests_per_s:.4g} requests/s"
    if report.batches < report.batches_to_fill:
        facts["not filled"] = (
            f"{report.batches} in flight where {report.batches_to_fill} batches keep every stage busy: "
            f"{report.steady_requests_per_s:.4g} requests/s then"
        )
    facts["room"] = (
        "no limit on sequences"
        if report.most_sequences is None
        else f"{format_count(report.most_sequences, 'sequence')} in flight at most; one more breaks the limit of "
        f"{report.next_breaks}"
    )
    yield fact_lines(facts)
