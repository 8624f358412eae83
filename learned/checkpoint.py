"""Checkpoints and policies on disk: one file that holds weights, configuration, optimiser and random state.

A checkpoint resumes the training that wrote it, exactly. The same file is a policy: its transferable weights can be
applied to another problem with as many devices. Files are read with ``weights_only``: they cannot run code.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from placekit.errors import InvalidFileError, InvalidProblemError
from placekit.io.atomic import write_bytes
from placekit.problem import Problem

__all__ = ["Checkpoint", "problem_digest", "read_checkpoint", "write_checkpoint"]

SCHEMA = "placekit/policy/1"


@dataclass(frozen=True)
class Checkpoint:
    """What a policy file holds.

    Parameters
    ----------
    method, params
        Name in the registry, and every parameter by name.
    num_devices
        Devices that the policy chooses from.
    problem
        Digest of the problem that it was trained on.
    transferable
        Weights that mean something for other problems.
    training
        `Training.state`; None for a policy that cannot be resumed.
    """

    method: str
    params: Mapping[str, Any]
    num_devices: int
    problem: str
    transferable: Mapping[str, Tensor]
    training: Mapping[str, Any] | None

    def check_resumable(self, method: str, params: Mapping[str, Any], problem: Problem) -> Mapping[str, Any]:
        """Return the state of the training that this checkpoint can go on with.

        Raises
        ------
        InvalidProblemError
            The checkpoint is of another method, other parameters or another problem, or only a policy.
        """
        if self.method != method:
            raise InvalidProblemError(f"the checkpoint is of method {self.method!r}, not of {method!r}")
        for name, value in params.items():
            # how long to train may change: it does not change the way
            if name not in ("updates", "patience", "clone") and self.params.get(name) != value:
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
    told = [problem.graph.content_hash, objective.name, objective.to_dict(), str(problem.contiguity), devices]
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
    """Read the checkpoint in `path`.

    Raises
    ------
    InvalidFileError
        No such file, no checkpoint, or one of another version.
    """
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InvalidFileError(f"{path}: no such file") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise InvalidFileError(f"{path}: cannot be read as a policy: {first}") from None
    if not isinstance(values, dict) or values.pop("schema", None) != SCHEMA:
        raise InvalidFileError(f"{path}: not a policy file of schema {SCHEMA!r}")
    if set(values) != set(Checkpoint.__dataclass_fields__):
        raise InvalidFileError(f"{path}: a policy file with parts missing: {sorted(values)}")
    return Checkpoint(**values)
