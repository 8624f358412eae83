"""Runtimes of language models: one record each, of placekit, of installed packages, and those that are registered.

Here is the table. Next to it: `rules` that plans obey; `record` of a runtime, and what starts it; `launch`, the lines
of a plan; `typed`, which reads lines, with `stage_lines` and `module_lines`; `device_names`, `machines` and `stages`,
which writers use; and the records with their writers, `servers`, `trainers`, `modules` and `llama`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from placekit.language.runtimes.llama.writer import LLAMA_CPP
from placekit.language.runtimes.modules import ACCELERATE, OPENVINO, PLACEKIT
from placekit.language.runtimes.record import Runtime
from placekit.language.runtimes.rules import DEFAULT_HEADROOM as DEFAULT_HEADROOM
from placekit.language.runtimes.servers import SGLANG, TENSORRT_LLM, VLLM
from placekit.language.runtimes.trainers import MEGATRON, TORCHTITAN
from placekit.model.errors import InvalidProblemError, PluginError, UnknownNameError, did_you_mean
from placekit.model.platform import Device
from placekit.plugins import OpenTable, load_class

_LOGGER = logging.getLogger(__name__)

OWN = (VLLM, SGLANG, TENSORRT_LLM, LLAMA_CPP, ACCELERATE, MEGATRON, TORCHTITAN, OPENVINO, PLACEKIT)
"""Records that come with placekit."""


def _check(record: Any, whose: str) -> None:
    if not isinstance(record, Runtime):
        raise InvalidProblemError(f"{whose} is {record!r}, and no Runtime (placekit.language.runtimes.record)")


RUNTIMES: OpenTable[Runtime] = OpenTable(
    "runtime", {record.name: record for record in OWN}, lambda point: load_class(point, "runtime", _check)
)
"""Every runtime by its name."""


def register_runtime(record: Runtime) -> None:
    """Add a runtime under its own name, to this process.

    Raises `InvalidProblemError`: a name that is taken or malformed, or what is no record.
    """
    _check(record, "the runtime")
    RUNTIMES.register(record.name, record)


def get_runtime(name: str) -> Runtime:
    """Return the runtime called `name`.

    Raises `UnknownNameError` if there is none; `PluginError`: what an installed package brings is no record.
    """
    if name not in RUNTIMES:
        raise UnknownNameError(f"no runtime {name!r}; it is one of {', '.join(RUNTIMES)}{did_you_mean(name, RUNTIMES)}")
    return RUNTIMES[name]


def loadable() -> Iterator[Runtime]:
    """Yield every record; a package that cannot be loaded is left out with a warning."""
    for name in RUNTIMES:
        try:
            yield RUNTIMES[name]
        except PluginError as error:
            _LOGGER.warning("%s", error)


def refuse_nodes(runtime: Runtime, devices: Iterable[Device]) -> None:
    """Refuse devices of several machines, unless the runtime has lines for them."""
    nodes = list(dict.fromkeys(device.node for device in devices))
    if runtime.nodes is not None or len(nodes) < 2:
        return
    if runtime.has_rpc:
        why = f"its servers there need a plan that knows them: plan again with placekit llm --for {runtime.name}"
    else:
        others = ", ".join(record.name for record in loadable() if record.nodes is not None or record.has_rpc)
        why = (
            "it has no lines for several machines: plan for the devices of one machine, without --for, or for one of "
            f"{others}"
        )
    raise InvalidProblemError(f"{runtime.name}: devices are on {', '.join(map(str, nodes))}, and {why}")
