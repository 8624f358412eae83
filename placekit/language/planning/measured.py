r"""Rates of devices from one's own measurements: what ``llama-bench -o json`` or ``jsonl`` writes.

A measurement of one device alone sets its rates: generation that of its memory, and prompts that of its arithmetic.
Both are found by the way of every prediction, so that this way gives the measured speed back exactly: with shares x of
the arithmetic and y of the memory a test takes

.. math:: T = T_{rest} + n \sum_i \max(c_i / x, m_i / y) + o_i / y

for the n steps of a phase, arithmetic :math:`c_i`, traffic :math:`m_i` and launch :math:`o_i` of every op at the rates
of the device so far, and the rest (links, the host). T falls in x and in y: bisection finds each for the other fixed,
and a few rounds find both, as a generated token hardly depends on x.

The messages of llama.cpp's RPC servers are a part of T: those of one server are in its own measurement, and a split of
n servers has those of n - 1 more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from placekit.cost_models.analytic import Analytic
from placekit.cost_models.sheets.cards import get_card
from placekit.cost_models.sheets.device_table import DeviceSpec
from placekit.io.reading import parse_json, read_text, validated
from placekit.language.description import ModelDescription
from placekit.language.gguf.from_gguf import read_gguf
from placekit.language.planning.given import Split, given_placement
from placekit.language.report import serving_report
from placekit.language.runtimes.device_names import ADDRESS, buffer_names
from placekit.language.runtimes.llama.server_steps import with_server_steps
from placekit.language.serving import Serving
from placekit.language.task import LanguageTask, TaskForm, decoder_task
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Platform
from placekit.model.sizes import format_bytes

_CACHES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "q8_0": "int8", "q4_0": "int4"}
_ROUNDS, _HALVINGS, _WIDEST = 60, 120, 1e9
_FREE = 1e30
"""Rate at which work takes no time."""
_SAME_SIZE, _SAME_COUNT = 0.10, 0.01
"""Differences of bytes and of parameters up to which a measured model counts as the one that is planned."""


class BenchRow(BaseModel):
    """A test of llama-bench."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_filename: str
    model_type: str
    model_size: int = Field(gt=0)
    model_n_params: int = Field(gt=0)
    gpu_info: str = ""
    n_ubatch: int = Field(512, gt=0)
    type_k: str = "f16"
    n_gpu_layers: int = -1
    n_cpu_moe: int = 0
    devices: str = "auto"
    tensor_buft_overrides: str = "none"
    n_prompt: int = Field(ge=0)
    n_gen: int = Field(ge=0)
    n_depth: int = Field(0, ge=0)
    avg_ts: float = Field(gt=0)

    @property
    def is_host(self) -> bool:
        """True if the processor alone computed."""
        return not self.gpu_info or self.devices == "none" or self.n_gpu_layers == 0


@dataclass(frozen=True)
class MeasuredDevices:
    """Analytic costs with measured devices."""

    costs: Analytic
    told: Mapping[str, str]  # words for the measurements of a device, by its kind


class _File(BaseModel):
    rows: list[BenchRow] = Field(min_length=1)


def read_bench(path: str | Path) -> list[BenchRow]:
    """Return the tests in a file of llama-bench: a list, or one object per line.

    Raises `InvalidFileError`: no JSON, no test, or a test without a field that is needed.
    """
    text = read_text(path)
    if text.lstrip().startswith("{"):
        lines = [line for line in text.splitlines() if line.strip()]
        data = [parse_json(line, f"{path}: line {at}") for at, line in enumerate(lines, start=1)]
    else:
        data = parse_json(text, path)
    return validated(_File, {"rows": data}, path).rows


def with_measured(
    costs: Analytic, machine: Platform, given: Sequence[str], planned: ModelDescription | None
) -> MeasuredDevices:
    """Return costs in which measured devices have the rates that were measured.

    Parameters
    ----------
    costs, machine
        Costs so far, and the devices, with links.
    given
        Files of llama-bench; ``DEVICE=FILE`` where the file does not tell the device.
    planned
        The model that is planned for; a measurement of another one needs its file.

    Raises
    ------
    InvalidProblemError
        A split over several devices, a device or a model that is not known, or two measurements of one kind that
        differ.
    """
    rows: dict[str, list[tuple[str, BenchRow]]] = {}
    for each in given:
        name, has_name, path = each.partition("=") if not Path(each).exists() else ("", "", each)
        path = path if has_name else each
        for at, row in enumerate(read_bench(path)):
            where = f"{path}: test {at + 1} (n_prompt {row.n_prompt}, n_gen {row.n_gen})"
            kind = _measured_device(row, machine, name if has_name else None, where).kind
            rows.setdefault(kind, []).append((where, row))
    specs = dict(costs.spec_of_kind(machine))
    told: dict[str, str] = {}
    hosts = {device.kind for device in machine.devices if device.is_host}
    # hosts first: they look up embeddings for the others
    for kind, found in sorted(rows.items(), key=lambda each: each[0] not in hosts):
        prompt = _chosen([each for each in found if each[1].n_prompt and not each[1].n_gen], "n_prompt")
        generated = _chosen([each for each in found if each[1].n_gen and not each[1].n_prompt], "n_gen")
        chosen = {"prompt": prompt, "generated": generated}
        so_far = MeasuredDevices(replace(costs, specs=specs), told)
        tests = {
            what: _Test.of(so_far, machine, kind, *each, _model_of(each[1], each[0], planned))
            for what, each in chosen.items()
            if each
        }
        if not tests:
            raise InvalidProblemError(f"{found[0][0]}: there is no test of prompts (pp) or of generation (tg) alone")
        specs[kind] = _as_measured(specs[kind], tests)
        told[kind] = ", ".join(f"{what} {test.row.avg_ts:.4g} tokens/s" for what, test in tests.items())
    return MeasuredDevices(replace(costs, specs=specs), told)


def _chosen(rows: Sequence[tuple[str, BenchRow]], length: str) -> tuple[str, BenchRow] | None:
    """Return the test with the emptiest cache, and of these the longest."""
    return max(rows, key=lambda each: (-each[1].n_depth, getattr(each[1], length)), default=None)


def _measured_device(row: BenchRow, machine: Platform, name: str | None, where: str) -> Device:
    """Return the device that computed a test."""
    if row.n_cpu_moe or row.tensor_buft_overrides != "none" or "/" in row.devices:
        raise InvalidProblemError(
            f"{where}: devices {row.devices}, n_cpu_moe {row.n_cpu_moe}, overrides {row.tensor_buft_overrides}: it "
            "must be one device alone, such as llama-bench -dev CUDA0 -ngl 99"
        )
    if name is not None:
        found = [each for each in machine.devices if name in (each.name, each.kind)]
    elif row.is_host:
        found = [each for each in machine.devices if each.is_host]
    else:
        named = buffer_names(machine)
        cards = [each for each in machine.devices if not each.is_host]
        is_one = ", " not in row.gpu_info
        found = [each for each in cards if is_one and row.gpu_info in (each.properties.get(ADDRESS), each.name)]
        found = found or [each for each in cards if is_one and _card(row.gpu_info) == _card_of(machine, each)]
        found = found or [each for each in cards if named[each.name] == row.devices and not is_one]
    if not found:
        measured = name or ("the host" if row.is_host else f"{row.devices} ({row.gpu_info})")
        raise UnknownNameError(
            f"{where}: no device {measured!r}; devices are {', '.join(machine.device_names)}: give --measured "
            "DEVICE=FILE"
        )
    return found[0]


def _card(name: str) -> str | None:
    """Return the card that a name is of; None for another device."""
    try:
        return get_card(name).name
    except UnknownNameError:
        return None


def _card_of(machine: Platform, device: Device) -> str:
    named = machine.spec_of_kind.get(device.kind, device.kind).partition("@")[0]
    return _card(named) or named


@dataclass(frozen=True)
class _Test:
    """A measured test, and what the way of every prediction has for it at the rates of the device so far."""

    where: str
    row: BenchRow
    measured_s: float
    rest_s: float  # all but the ops of the device: links, and the host
    # compute_s, traffic_s, launch_s: ``[num_ops]`` seconds of all steps by op of the device; 0 for others
    compute_s: NDArray[np.float64]
    traffic_s: NDArray[np.float64]
    launch_s: NDArray[np.float64]

    @classmethod
    def of(
        cls, so_far: MeasuredDevices, machine: Platform, kind: str, where: str, row: BenchRow, model: ModelDescription
    ) -> Self:
        """Return the test of a device of `kind`, which had all blocks of the model and its head."""
        if row.type_k not in _CACHES:
            raise InvalidProblemError(f"{where}: type_k is {row.type_k}; it must be one of {', '.join(_CACHES)}")
        form = TaskForm(cache_precision=_CACHES[row.type_k])
        first = next(each for each in machine.devices if each.kind == kind)
        host = next((each for each in machine.devices if each.is_host), first)
        platform = machine.with_devices(dict.fromkeys(each.replace(memory_bytes=None) for each in (host, first)))
        length = row.n_prompt or row.n_gen
        serving = Serving(row.n_prompt, row.n_gen, row.n_depth + length, chunk=row.n_ubatch)
        spec_of_kind = so_far.costs.spec_of_kind(machine)
        spec = spec_of_kind[kind]

        def task_with(changed: DeviceSpec) -> LanguageTask:
            specs = {each: spec_of_kind[each] for each in platform.kinds} | {kind: changed}
            return decoder_task(
                model, serving, platform, lambda graph: Analytic(specs).cost_table(graph, platform),
                form=form,
            )  # fmt: skip

        task, phase = task_with(spec), serving.phases[0]
        split = Split(len(model.blocks), (), has_head_on_host=True) if first.is_host else Split(0, (len(model.blocks),))
        placement = given_placement(task, split)
        is_own = placement.device_of_op == platform.index(first.name)

        def seconds(changed: DeviceSpec) -> NDArray[np.float64]:
            table = task_with(changed).costs_of_phase[phase.name].for_kinds(platform.kinds)
            return phase.count * np.where(is_own, table.op_time_s[:, platform.kinds.index(kind)], 0.0)

        return cls(
            where, row, length / row.avg_ts,
            serving_report(with_server_steps(task), placement).request_s
            - float(seconds(spec).sum()),
            seconds(spec.scaled(memory=_FREE, overhead=0.0)),
            seconds(spec.scaled(arithmetic=_FREE, overhead=0.0)),
            seconds(spec.scaled(arithmetic=_FREE, memory=_FREE)),
        )  # fmt: skip

    def predicted_s(self, arithmetic: float, memory: float) -> float:
        """Return the seconds with shares of the arithmetic and of the memory speed so far."""
        each = np.maximum(self.compute_s / arithmetic, self.traffic_s / memory) + self.launch_s / memory
        return self.rest_s + float(each.sum())

    def share(self, predicted_s: Callable[[float], float]) -> float:
        """Return the share at which the falling function `predicted_s` is what was measured.

        Raises `InvalidProblemError`: no share is.
        """
        low, high = 1 / _WIDEST, _WIDEST
        if not predicted_s(high) < self.measured_s < predicted_s(low):
            raise InvalidProblemError(
                f"{self.where}: {self.row.avg_ts:.4g} tokens/s is faster than links and the other measurement allow, "
                f"{(self.row.n_prompt or self.row.n_gen) / predicted_s(high):.4g} at most"
            )
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if predicted_s(middle) > self.measured_s else (low, middle)
        return math.sqrt(low * high)


def _as_measured(spec: DeviceSpec, tests: Mapping[str, _Test]) -> DeviceSpec:
    """Return a spec with the rates at which tests take the seconds that were measured."""
    arithmetic = memory = 1.0
    prompt, generated = tests.get("prompt"), tests.get("generated")
    for _ in range(_ROUNDS):
        before = arithmetic, memory
        if generated is not None:
            memory = generated.share(partial(generated.predicted_s, arithmetic))
        if prompt is not None:
            arithmetic = prompt.share(lambda share: prompt.predicted_s(share, memory))  # noqa: B023  # called at once
        if math.isclose(before[0], arithmetic, rel_tol=1e-12) and math.isclose(before[1], memory, rel_tol=1e-12):
            break
    told = "; ".join(f"{what} {test.row.avg_ts:.4g} tokens/s of {test.row.model_type}" for what, test in tests.items())
    scaled = spec.scaled(arithmetic, memory, 1 / memory)
    return replace(scaled, name=f"{spec.name}, measured", source=f"measured by llama-bench: {told}")


def _model_of(row: BenchRow, where: str, planned: ModelDescription | None) -> ModelDescription:
    """Return the model that was measured: the planned one, or that of its file, with the bytes of the measurement."""
    path = Path(row.model_filename)
    known = [planned] if planned is not None else []
    known += [read_gguf(path)] if not (known and _is_same(known[0], row)) and path.is_file() else []
    found = next((each for each in known if _is_same(each, row)), None)
    if found is None:
        names = " nor ".join(f"{each.name} ({_size(each.parameters, each.weight_bytes)})" for each in known)
        raise InvalidProblemError(
            f"{where}: it measured {row.model_type} ({_size(row.model_n_params, row.model_size)}), which is not "
            f"{names or 'known'}; keep its file {row.model_filename}, or measure the model that is planned"
        )
    return found.scaled_to(row.model_size)


def _is_same(model: ModelDescription, row: BenchRow) -> bool:
    return math.isclose(model.parameters, row.model_n_params, rel_tol=_SAME_COUNT) and math.isclose(
        model.weight_bytes, row.model_size, rel_tol=_SAME_SIZE
    )


def _size(parameters: int, num_bytes: float) -> str:
    return f"{parameters:,} parameters, {format_bytes(num_bytes)}"
