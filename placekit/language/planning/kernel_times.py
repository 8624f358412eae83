"""Kernel times that others measured: ``aiconfigurator-core`` as costs of the runtimes that it knows.

The package (NVIDIA, Apache-2.0, the extra ``aiconfigurator``) ships measured kernel times by system, framework and
version, and models what was not measured. It predicts one card, or several equal ones. Here its times become costs of
ops, so that unequal cards can be planned and proven:

1. A model is compiled for the system of each kind of device; a tensor-parallel team is one system with that degree.
2. For each phase the package gives the milliseconds of every kernel of a step, summed over the blocks. Kernels of the
   embedding and of the head (``logits``) are those of the ops before and behind the blocks; all others are divided by
   the number of blocks.
3. Inside each of these three parts, ops have the shares that analytic costs give them. So the sum over a whole model is
   what the package predicts for the step. Links are not its business: they stay what the platform says.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from placekit.cost_models.sheets.cards import get_card
from placekit.io.needs import require
from placekit.language.decoder import DECODERS, Decoder
from placekit.language.description import ModelDescription
from placekit.language.from_numbers import describe_decoder
from placekit.language.runtimes import loadable
from placekit.language.serving import Phase
from placekit.language.task import LanguageTask
from placekit.model.blocks.block_paths import BEFORE, BEHIND, block_numbers
from placekit.model.costs import CostTable
from placekit.model.device_groups import kind_of_member
from placekit.model.errors import InvalidProblemError, UnknownNameError
from placekit.model.platform import Device, Platform

NAME = "aiconfigurator"
SYSTEMS: Mapping[str, str] = {
    "H100": "h100_sxm", "H100 PCIe": "h100_pcie", "H200": "h200_sxm", "A100": "a100_sxm", "A100 PCIe": "a100_pcie",
    "A30": "a30", "B200": "b200_sxm", "L4": "l4", "L40S": "l40s", "RTX PRO 6000": "rtx_pro_6000_server",
    "Arc Pro B60": "b60",
}  # fmt: skip
"""Systems of the package by card."""
MEASURED = "silicon"
"""Word of the package for a time that was measured; all others are modelled, in part or wholly."""


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one step on one system."""

    before_s: float  # embedding
    block_s: float  # each block
    behind_s: float  # norm and head
    measured: float  # share of the seconds that was measured
    modelled: tuple[str, ...]  # kernels that were not, those that take most first


@dataclass
class KernelTimes:
    """Times of a model on several systems; see the module docstring."""

    model_path: str  # a folder with a config.json
    num_blocks: int
    backend: str
    version: str | None  # of the framework; None for the package's default
    _handles: dict[tuple[str, int], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: str, runtime: str | None, name: str, model: ModelDescription | None) -> KernelTimes:
        """Return the kernel times of a model for a runtime; `asked` is ``aiconfigurator`` or that with ``:VERSION``.

        Raises
        ------
        InvalidProblemError
            Other costs, another runtime, or a model that is neither a `Decoder` by name nor a ``config.json``.
        SolverUnavailableError
            The extra is not installed.
        """
        costs, _, version = asked.partition(":")
        if costs != NAME:
            raise InvalidProblemError(f"--costs {asked}: it is analytic or {NAME}, or {NAME}:VERSION of the framework")
        backends = {each.name: each.kernel_times for each in loadable() if each.kernel_times}
        if runtime is None or runtime not in backends:
            raise InvalidProblemError(f"--costs {asked} goes with --for {', '.join(backends)}")
        require("aiconfigurator_core", f"--costs {asked}")
        if model is None or not model.blocks:
            raise InvalidProblemError(f"--costs {asked} needs a model by name, or a config.json; {name} is neither")
        return cls(str(_config_of(name, model)), len(model.blocks), backends[runtime], version or None)

    def step(self, device: Device, platform: Platform, phase: Phase, batch: int) -> StepTimes:
        """Return the seconds of a step of `batch` sequences on a device, or on a team of equal ones."""
        system = _system_of(device, platform)
        context, decode = self._handle(system, device.degree).run_static_per_op(
            batch_size=batch, isl=max(1, round(phase.past + phase.tokens * (phase.name == "prefill"))), osl=2,
            prefix=round(phase.past) if phase.name == "prefill" else 0,
        )  # fmt: skip
        parts = {"embedding": 0.0, "block": 0.0, "logits": 0.0}
        modelled: dict[str, float] = {}
        for kernel, milliseconds, _, source in context if phase.name == "prefill" else decode:
            parts[next((part for part in ("embedding", "logits") if part in kernel), "block")] += milliseconds / 1e3
            if source != MEASURED and milliseconds:
                modelled[kernel.partition("_")[2]] = milliseconds / 1e3
        total = sum(parts.values())
        return StepTimes(
            parts["embedding"], parts["block"] / self.num_blocks, parts["logits"], 1 - sum(modelled.values()) / total,
            tuple(sorted(modelled, key=modelled.__getitem__, reverse=True)),
        )  # fmt: skip

    def told(self, task: LanguageTask) -> dict[str, str]:
        """Return words for what was measured of the times of a task, by kind and phase."""
        platform, found = task.problem.platform, {}
        for device in {each.kind: each for each in platform.devices}.values():
            for phase in task.serving.phases:
                step = self.step(device, platform, phase, task.serving.batch)
                modelled = f"; modelled: {', '.join(step.modelled)}" if step.modelled else ""
                found[f"{device.kind}, {phase.name}"] = f"{step.measured:.0%} of the time was measured{modelled}"
        return found

    def _handle(self, system: str, degree: int) -> Any:
        if (system, degree) not in self._handles:
            engine = require("aiconfigurator_core.sdk.engine", f"--costs {NAME}")
            level = logging.root.manager.disable
            logging.disable(logging.WARNING)  # a line for each file of other frameworks that it might fall back to
            try:
                self._handles[system, degree] = engine.EngineHandle.compile(
                    self.model_path, system, self.backend, backend_version=self.version, tp_size=degree
                )
            except Exception as error:  # of many types, and none is documented
                what = f"{system} with {self.backend} {self.version or ''}".strip()
                raise InvalidProblemError(f"{NAME} has no times for {what}: {error}") from error
            finally:
                logging.disable(level)
        return self._handles[system, degree]


def with_kernel_times(task: LanguageTask, times: KernelTimes) -> LanguageTask:
    """Return the task whose ops take the times of measured kernels."""
    platform = task.problem.platform
    block = block_numbers(task.problem.graph)
    tables: dict[str, CostTable] = {}
    for phase in task.serving.phases:
        table = task.costs_of_phase[phase.name].for_kinds(platform.kinds)
        op_time_s = table.op_time_s.copy()
        for at in range(len(platform.kinds)):
            device = platform.devices[platform.devices_of_kind(at)[0]]
            step = times.step(device, platform, phase, task.serving.batch)
            for inside, wanted_s in (
                (block == BEFORE, step.before_s),
                (block == BEHIND, step.behind_s),
                *((block == number, step.block_s) for number in range(int(block.max()) + 1)),
            ):
                if inside.any():
                    sum_s = float(op_time_s[inside, at].sum())
                    share = op_time_s[inside, at] / sum_s if sum_s > 0 else np.full(int(inside.sum()), 1 / inside.sum())
                    op_time_s[inside, at] = wanted_s * share
        tables[phase.name] = table.replace(op_time_s=op_time_s, op_time_spread=None)
    return task.with_costs(tables)


def _system_of(device: Device, platform: Platform) -> str:
    """Return the system of the package that a device is, or whose team it is."""
    base = kind_of_member(device)
    found = {get_card(card).name: system for card, system in SYSTEMS.items()}
    try:
        return found[get_card(platform.spec_of_kind.get(base, base)).name]
    except (KeyError, UnknownNameError):
        raise InvalidProblemError(
            f"device {device.name!r} of kind {device.kind!r}: {NAME} has times of {', '.join(SYSTEMS)} only"
        ) from None


def _config_of(name: str, model: ModelDescription) -> Path:
    """Return a folder with the config.json of a model: its own, or one of a named decoder in 16 bits."""
    path = Path(name)
    if path.exists():
        return path if path.is_dir() else path.parent
    shape = DECODERS.get(name)
    if shape is None or describe_decoder(shape, "f16").weight_bytes != model.weight_bytes:
        raise InvalidProblemError(
            f"{NAME}: {name} is no model by name as it is, in f16; give a config.json for other numbers"
        )
    folder = Path(tempfile.mkdtemp(prefix="placekit-"))
    (folder / "config.json").write_text(json.dumps(_config(name, shape)), encoding="utf-8")
    return folder


def _config(name: str, shape: Decoder) -> dict[str, Any]:
    """Return what transformers would say of a decoder."""
    if shape.experts > 1 or not shape.gated:
        raise InvalidProblemError(f"{NAME}: {name} has experts or no gate; give its config.json")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden, "intermediate_size": shape.ffn, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": shape.vocab,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "hidden_act": "silu", "rms_norm_eps": 1e-5,
        "tie_word_embeddings": shape.tied,
    }  # fmt: skip
