"""Predictions of published measurements of language models, and of the choices that people had.

A row is one measurement of a runtime with a split that somebody chose: the split is given, and nothing is searched. The
prediction goes the way of every plan: the numbers of the model, the machine by its trade names, the rules of the
runtime, and `serving_report`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from placekit import __version__
from placekit.cost_models.analytic import Analytic
from placekit.cost_models.sheets.cards import LLAMA_CPP, UNKNOWN_PROCESSOR, Kernels, get_card, get_processor, parse_ram
from placekit.cost_models.sheets.machines import Machine
from placekit.io.atomic import write_text
from placekit.language.decoder import get_decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.planning.given import Split, even_split, given_report
from placekit.language.planning.offload import with_offload
from placekit.language.report import ServingReport
from placekit.language.runtimes import RUNTIMES
from placekit.language.serving import Serving
from placekit.language.task import decoder_task
from placekit.language.truth import class_of
from placekit.model.errors import InvalidFileError, InvalidProblemError, PlacekitError

RULES = RUNTIMES["llama.cpp"]
"""Rules of the runtime that was measured."""
_RAM = re.compile(r"DDR[345]X?-\d{4,5}(?:\s*x\s*\d+)?", re.IGNORECASE)


Shape = Literal[
    "layers", "hidden", "ffn", "vocab", "heads", "kv_heads", "head_dim", "experts", "experts_per_token", "gated", "tied"
]
"""Fields of `placekit.language.decoder.Decoder` that a row may give."""


class Measurement(BaseModel):
    """One line of a file of measurements: a model, a machine, a split, and tokens per second."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: str
    thread: str
    model: str
    shape: dict[Shape, int | bool]
    quant: str
    file_bytes: float = Field(gt=0)
    devices: tuple[str, ...]
    link: str | None = None
    host: str | None = None
    host_memory_known: bool | None = None
    blocks_on_host: int = Field(0, ge=0)
    head_on_host: bool = False
    experts_on_host_of_first_blocks: int = Field(0, ge=0)
    blocks_per_device: tuple[int, ...] | None = None
    prompt_tokens: int = Field(gt=0)
    generated_tokens: int = Field(gt=0)
    tokens_before: int = Field(0, ge=0)
    ubatch: int = Field(512, gt=0)
    prompt_tokens_per_s: float | None = Field(None, gt=0)
    generated_tokens_per_s: float | None = Field(None, gt=0)
    sweep: str | None = None
    flag: str = ""

    @property
    def kind(self) -> str:
        """Class of the split."""
        return class_of(
            len(self.devices),
            has_host_blocks=self.blocks_on_host > 0,
            has_host_experts=self.experts_on_host_of_first_blocks > 0,
        )


def read_measurements(path: Path) -> list[Measurement]:
    """Return the measurements of a file, one JSON object per line.

    Raises `InvalidFileError`: a line that is none, with its number, the field and the value.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFileError(f"{path} cannot be read: {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(Measurement.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            raise InvalidFileError(f"{path}:{number}: {where} is {first['input']!r:.60}: {first['msg']}") from None
    if not found:
        raise InvalidFileError(f"{path}: there is no measurement in it")
    return found


def machine_of_row(row: Measurement) -> Machine:
    """Return the machine of a measurement: cards by name, and the host's memory and processor in its words."""
    told = row.host or ""
    memory = _RAM.search(told)
    ram = parse_ram(memory[0] if memory else "DDR4-3200 x2")
    name = told[: memory.start()].strip() if memory else told
    try:
        processor = get_processor(name)
    except PlacekitError:
        processor = UNKNOWN_PROCESSOR
    return Machine(tuple(map(get_card, row.devices)), ram, processor)


def predict(row: Measurement, kernels: Kernels = LLAMA_CPP) -> ServingReport:
    """Return what the model of costs says of a measured split.

    Raises `PlacekitError`: a device that is not known, or a split that does not add up.
    """
    shape = get_decoder(None, {str(key): value for key, value in row.shape.items()})
    model = describe_decoder(shape, "f16", row.model).scaled_to(row.file_bytes)
    machine = machine_of_row(row)
    costs = Analytic(machine.specs(kernels))
    platform = costs.with_links(machine.platform())
    unlimited = platform.replace(devices=tuple(replace(each, memory_bytes=None) for each in platform.devices), pools=())
    serving = Serving(
        row.prompt_tokens, row.generated_tokens, row.tokens_before + row.prompt_tokens + row.generated_tokens,
        chunk=row.ubatch,
    )  # fmt: skip
    task = decoder_task(model, serving, unlimited, lambda graph: costs.cost_table(graph, unlimited))
    if machine.kinds:
        task = replace(task, overlaps_prompt=RULES.overlaps_prompt)
        task = with_offload(task, machine.kinds[0], RULES.offload_tokens)
    on_host = row.blocks_on_host if row.devices else shape.layers
    on_devices = row.blocks_per_device or (even_split(shape.layers - on_host, len(row.devices)) if row.devices else ())
    head = row.head_on_host or not row.devices
    return given_report(task, Split(on_host, on_devices, head, row.experts_on_host_of_first_blocks))


@dataclass(frozen=True)
class Predicted:
    """A measurement and its prediction."""

    row: Measurement
    prompt_tokens_per_s: float
    generated_tokens_per_s: float

    def ratio(self, what: str) -> float | None:
        """Return predicted over measured tokens per second of ``"prompt"`` or ``"generated"``; None if not measured."""
        measured = getattr(self.row, f"{what}_tokens_per_s")
        return None if measured is None or self.row.flag else getattr(self, f"{what}_tokens_per_s") / measured


def predictions(
    rows: Sequence[Measurement], kernels: Kernels = LLAMA_CPP, on_step: Callable[[int, int], None] | None = None
) -> Iterator[Predicted]:
    """Yield the prediction of every row; an error names the row."""
    for number, row in enumerate(rows):
        try:
            report = predict(row, kernels)
        except PlacekitError as error:
            raise InvalidProblemError(f"measurement {number + 1} ({row.thread}, {row.model}): {error}") from None
        first, token = report.time_to_first_token_s, report.time_per_token_s
        assert first
        assert token
        yield Predicted(row, row.prompt_tokens / first, 1 / token)
        if on_step is not None:
            on_step(number + 1, len(rows))


@dataclass(frozen=True)
class Accuracy:
    """Ratios of predicted to measured values of one class."""

    name: str
    count: int
    median: float
    tenth: float  # 10th percentile
    ninetieth: float
    typical: float  # median of the factor between both, at least 1
    nine_in_ten: float  # factor that nine of ten rows are within


def accuracy(name: str, ratios: Sequence[float]) -> Accuracy:
    """Return how true predictions are; there must be at least one ratio."""
    ordered, factors = sorted(ratios), sorted(max(each, 1 / each) for each in ratios)

    def at(values: Sequence[float], share: float) -> float:
        return values[min(int(share * len(values)), len(values) - 1)]

    return Accuracy(
        name, len(ordered), median(ordered), at(ordered, 0.1), at(ordered, 0.9), median(factors), at(factors, 0.9)
    )


@dataclass(frozen=True)
class Decision:
    """The split that predictions pick from a sweep, beside the one that was measured to be the best."""

    sweep: str
    what: str  # prompt or generated
    count: int
    best: Measurement
    chosen: Measurement
    regret: float  # share of the best speed that is lost by the choice
    rule_regret: float  # the same of the split with most on the cards


def decisions(found: Iterable[Predicted], what: str) -> Iterator[Decision]:
    """Yield a decision per sweep of at least two splits; rows with a flag are left out."""
    sweeps: dict[str, list[Predicted]] = {}
    for each in found:
        if each.row.sweep is not None and each.ratio(what) is not None:
            sweeps.setdefault(each.row.sweep, []).append(each)
    for name, members in sweeps.items():
        if len(members) < 2:
            continue

        def speed(each: Predicted) -> float:
            return float(getattr(each.row, f"{what}_tokens_per_s"))

        best = max(members, key=speed)
        chosen = max(members, key=lambda each: float(getattr(each, f"{what}_tokens_per_s")))
        rule = min(members, key=lambda each: _left_of_the_first(each.row))
        yield Decision(
            name,
            what,
            len(members),
            best.row,
            chosen.row,
            1 - speed(chosen) / speed(best),
            1 - speed(rule) / speed(best),
        )


def _left_of_the_first(row: Measurement) -> tuple[float, ...]:
    """Return what is not on the fastest card: blocks and experts on the host, then blocks of slower cards."""
    counts = row.blocks_per_device or ()
    return (row.blocks_on_host, row.experts_on_host_of_first_blocks, sum(counts[1:]))


def kept_rows() -> Path:
    """Return the file of measurements that comes with placekit."""
    return Path(__file__).with_name("measurements") / "published.jsonl"


_PREDICTED = {what: f"predicted_{what}_tokens_per_s" for what in ("prompt", "generated")}


def write_predictions(found: Sequence[Predicted], path: Path) -> None:
    """Write predictions as lines of JSON: the measurement, what was predicted, and the version that did."""
    version = {"placekit": __version__}
    lines = [
        json.dumps({**each.row.model_dump(), **{key: getattr(each, f"{what}_tokens_per_s")
                    for what, key in _PREDICTED.items()}, "versions": version})
        for each in found
    ]  # fmt: skip
    write_text(path, "\n".join([*lines, ""]))


def read_predictions(path: Path) -> list[Predicted]:
    """Return what `write_predictions` wrote; measurements without predictions are predicted now.

    Raises `InvalidFileError`: a line that lacks a prediction which others have.
    """
    rows = read_measurements(path)
    values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not any(key in each for each in values for key in _PREDICTED.values()):
        return list(predictions(rows))
    missing = next((key for each in values for key in _PREDICTED.values() if key not in each), None)
    if missing is not None:
        raise InvalidFileError(f"{path}: a row lacks {missing}; placekit bench published makes rows with it")
    return [
        Predicted(row, float(each[_PREDICTED["prompt"]]), float(each[_PREDICTED["generated"]]))
        for row, each in zip(rows, values, strict=True)
    ]
