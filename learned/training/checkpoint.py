"""Checkpoints and policies on disk: one file that holds weights, configuration, optimiser and random state.

A checkpoint resumes the training that wrote it, exactly. The same file is a policy: its transferable weights can be
applied to another problem with as many devices. Files are read with ``weights_only``: they cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placekit.io.atomic import write_bytes
from placekit.io.reading import read_bytes
from placekit.model.errors import InvalidFileError, InvalidProblemError
from placekit.model.problem import Problem

SCHEMA = "placekit/policy/1"
ANY_DEVICES = 0
"""In `Checkpoint.num_devices`: the policy chooses among any number of devices."""


@dataclass(frozen=True)
class Checkpoint:
    """Content of a policy file."""

    # method, params: name in the registry, and every parameter by name
    method: str
    params: Mapping[str, Any]
    num_devices: int  # devices that the policy chooses from; `ANY_DEVICES` for any number
    problem: str  # digest of the problem that it was trained on
    transferable: Mapping[str, Tensor]  # weights that mean something for other problems
    training: Mapping[str, Any] | None  # `Training.state`; None for a policy that cannot be resumed

    def check_resumable(self, method: str, params: Mapping[str, Any], problem: Problem) -> Mapping[str, Any]:
        """Return the state of the training that this checkpoint can go on with.

        Raises `InvalidProblemError`: the checkpoint is of another method, other parameters or another problem, or only
        a policy.
        """
        if self.method != method:
            raise InvalidProblemError(f"the checkpoint is of method {self.method!r}, not of {method!r}")
        for name, value in params.items():
            # how long to train may change: it does not change the way
            if name not in ("updates", "patience") and self.params.get(name) != value:
                raise InvalidProblemError(
                    f"the checkpoint was made with {name} = {self.params.get(name)!r}, not with {value!r}"
                )
        if self.problem != problem_digest(problem):
            raise InvalidProblemError(
                f"the checkpoint was made for another problem than {problem.name!r}; apply it as a policy instead"
            )
        if self.training is None:
            raise InvalidProblemError("the file is a policy without training state; apply it as a policy instead")
        return self.training


def problem_digest(problem: Problem) -> str:
    """Return a hexadecimal digest of everything that a training depends on."""
    digest = hashlib.blake2b(digest_size=16)
    objective = problem.objective
    devices = [(device.name, device.kind, device.memory_bytes, device.is_host) for device in problem.platform.devices]
    told = [problem.graph.content_hash, objective.name, objective.identity(), str(problem.contiguity), devices]
    digest.update(json.dumps(told).encode())
    costs = problem.costs
    for array in (costs.op_time_s, costs.transfer_time_s, costs.op_memory_bytes, costs.supported):
        digest.update(array.tobytes())
    digest.update(problem.op_class.tobytes() + problem.pinned.tobytes())
    return digest.hexdigest()


def write_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """Write `checkpoint` to `path`, atomically: after a crash there is the old file or the new one."""
    buffer = io.BytesIO()
    values = {name: getattr(checkpoint, name) for name in Checkpoint.__dataclass_fields__}
    torch.save({"schema": SCHEMA} | values | {"params": dict(checkpoint.params)}, buffer)
    write_bytes(path, buffer.getvalue())


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read the checkpoint in `path`; InvalidFileError if there is none, or one of another version."""
    if not Path(path).exists():
        raise InvalidFileError(f"{path}: no such file")
    content = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            # torch would unpack whatever a directory promises, and does not compare every checksum
            size = sum(entry.file_size for entry in archive.infolist())
            if size > len(content):
                raise InvalidFileError(f"{path}: cannot be read as a policy: it unpacks to {size} bytes")
            broken = archive.testzip()
        if broken is not None:
            raise InvalidFileError(f"{path}: cannot be read as a policy: part {broken!r} is damaged")
        with warnings.catch_warnings(action="ignore"):
            values = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except InvalidFileError:
        raise
    except pickle.UnpicklingError:  # whose text says how to let the file run code
        raise InvalidFileError(
            f"{path}: cannot be read as a policy: it is damaged, or holds more than plain values and tensors"
        ) from None
    except Exception as error:  # of damaged files torch, zipfile and zlib raise a dozen types
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidFileError(f"{path}: cannot be read as a policy: {first}") from None
    if not isinstance(values, dict) or values.pop("schema", None) != SCHEMA:
        raise InvalidFileError(f"{path}: not a policy file of schema {SCHEMA!r}")
    if set(values) != set(Checkpoint.__dataclass_fields__):
        raise InvalidFileError(f"{path}: a policy file with parts missing: {sorted(map(str, values))}")
    _check(values, path, len(content))
    return Checkpoint(**values)


def _check(values: Mapping[str, Any], path: str | Path, num_bytes: int) -> None:
    """Refuse values of other types than `write_checkpoint` writes, and tensors larger than the file."""
    plain = (str, int, float, bool, type(None))
    is_right = {
        "method": isinstance(values["method"], str),
        "params": _maps(values["params"], plain),
        "num_devices": type(values["num_devices"]) is int and values["num_devices"] >= 0,
        "problem": isinstance(values["problem"], str),
        "transferable": _maps(values["transferable"], (Tensor,)),
        "training": values["training"] is None or _maps(values["training"], (object,)),
    }
    wrong = [name for name, is_one in is_right.items() if not is_one]
    if wrong:
        raise InvalidFileError(f"{path}: {wrong[0]} is not what a policy file has there")
    for tensor in _tensors(values):
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        # a tensor of a few bytes can claim any shape by strides of 0
        if not is_plain or tensor.numel() * tensor.element_size() > num_bytes:
            raise InvalidFileError(f"{path}: a tensor of shape {tuple(tensor.shape)} is more than the file holds")


def _maps(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, types) for key, item in value.items()
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in nested containers, once; a file can make containers that hold themselves."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        each = stack.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, dict):
            stack += each.values()
        elif isinstance(each, list | tuple | set):
            stack += each
