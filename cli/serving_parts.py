"""Tables of a placed language model: the model, the load that is asked of it, and the speed of serving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType

from placekit.cli.facts import problem_facts
from placekit.cli.files import file_facts
from placekit.cli.render import fact_lines, plain_table, result_lines
from placekit.cli.units import format_bytes, format_count, format_time
from placekit.cli.verdicts import verdict_lines
from placekit.language.decoder import Decoder
from placekit.language.report import ServingReport
from placekit.language.task import LanguageTask
from placekit.solve.result import Result

__all__ = ["model_told", "serving_lines", "serving_parts"]


def model_told(task: LanguageTask, shape: Decoder | str, bits: str = "") -> str:
    """Return a sentence about a decoder and the precision of its weights, or about a model file."""
    if isinstance(shape, str):
        layers = int((task.cache_bytes > 0).sum())
        weights = format_bytes(task.weight_bytes.sum())
        return f"{shape}: weights of {weights}, {format_count(layers, 'op')} with a cache"
    return (
        f"{task.problem.name}: {shape.num_parameters / 1e9:.2f} billion parameters in {bits}, {shape.layers} "
        f"blocks, hidden {shape.hidden}, {shape.heads} heads, {shape.kv_heads} key-value heads"
    )


def serving_parts(
    task: LanguageTask,
    pins: Mapping[str, str],
    result: Result,
    report: ServingReport | None,
    told: str,
    written: Mapping[str, str],
) -> Iterator[RenderableType]:
    """Return the model, the problem, the result, what serving is like, and the files."""
    shown = task.problem.replace(platform=task.platform)
    yield fact_lines({"model": told, **_asked(task), **problem_facts(shown, pins)})
    yield ""
    yield from result_lines(result, with_memory=report is None)
    if report is not None:
        yield ""
        yield from serving_lines(task, report)
    yield ""
    yield fact_lines(file_facts(written))
    yield from verdict_lines(result.verdict, task.problem)


def _asked(task: LanguageTask) -> dict[str, str]:
    serving = task.serving
    weights, cache = float(task.weight_bytes.sum()), float(task.cache_bytes.sum())
    return {
        "serving": f"{format_count(serving.prompt, 'token')} of prompt, {serving.generated} generated; "
        f"{format_count(serving.sequences, 'sequence')} in flight, {serving.batch} in a batch",
        "memory": f"weights {format_bytes(weights)}, cache {format_bytes(cache)} per sequence of {serving.context} "
        f"tokens, activations {format_bytes(task.activation_bytes)} per device",
    }


def serving_lines(task: LanguageTask, report: ServingReport) -> Iterator[RenderableType]:
    """Return what a placement delivers: memory by device, latency, rate, and what one more sequence breaks."""
    table = plain_table("device", "weights", "cache", "activations", "limit", "sequences")
    for each in report.memory:
        most = "-" if each.most_sequences is None else str(each.most_sequences)
        sizes = (each.weight_bytes, each.cache_bytes, each.activation_bytes, each.limit_bytes)
        table.add_row(each.device, *map(format_bytes, sizes), most)
    yield table
    yield ""
    facts = {}
    if report.time_to_first_token_s is not None:
        facts["first token"] = f"{format_time(report.time_to_first_token_s)} after the prompt"
    if report.time_per_token_s is not None:
        facts["per token"] = format_time(report.time_per_token_s)
    facts["request"] = f"{format_time(report.request_s)} from end to end"
    told = "tokens/s" if task.serving.generated else "prompt tokens/s"
    facts["rate"] = f"{report.tokens_per_s:.4g} {told}, {report.requests_per_s:.4g} requests/s"
    if report.batches < report.batches_to_fill:
        steady = report.steady_requests_per_s * (task.serving.generated or task.serving.prompt)
        facts["not filled"] = (
            f"{report.batches} in flight where {report.batches_to_fill} batches keep every stage busy: {steady:.4g} "
            f"{told} then"
        )
    facts["room"] = (
        "no limit on sequences"
        if report.most_sequences is None
        else f"{format_count(report.most_sequences, 'sequence')} in flight at most; one more breaks the limit of "
        f"{report.next_breaks}"
    )
    yield fact_lines(facts)
