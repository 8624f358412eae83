"""Small models, and an OpenVINO core that pretends to have a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as opset

from placekit.cost_models.openvino.devices import shared_core
from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model


def constant(values: Any, dtype: Any = np.float32) -> Any:
    """Return a Constant op."""
    return opset.constant(np.asarray(values, dtype=dtype))


def save_product(path: Path) -> None:
    """Save a model of one product and a ReLU."""
    x = opset.parameter([1, 64, 64], np.float32, name="x")
    y = opset.relu(opset.matmul(x, constant(np.ones((64, 64))), False, False, name="product"), name="relu")
    ov.save_model(ov.Model([opset.result(y, name="out")], [x], "tiny"), path, compress_to_fp16=False)


def convnet() -> ov.Model:
    r"""Convolutions with a branch, a Split, a tensor that is both cut and output, and two outputs.

    image - conv1 - relu1 - conv2 - add - split - (low) - tanh - [result]
                       \____________/        \- (high) [result]
    """
    rng = np.random.default_rng(1)
    image = opset.parameter([1, 3, 32, 32], ov.Type.f32, name="image")
    weights = [constant(rng.standard_normal(shape) * 0.2) for shape in ((8, 3, 3, 3), (8, 8, 3, 3))]

    def convolve(source: Any, weight: Any, name: str) -> Any:
        return opset.convolution(source, weight, [1, 1], [1, 1], [1, 1], [1, 1], name=name)

    relu = opset.relu(convolve(image, weights[0], "conv1"), name="relu1")
    total = opset.add(convolve(relu, weights[1], "conv2"), relu, name="add")
    split = opset.split(total, constant(1, np.int64), 2, name="split")
    tanh = opset.tanh(split.output(0), name="tanh")
    # against the topological order, so that swapped outputs are seen
    results = [opset.result(tanh, name="out_tanh"), opset.result(split.output(1), name="out_high")]
    return ov.Model(results[::-1], [image], "convnet")


def embedder(vocabulary: int = 5) -> ov.Model:
    """Ids that index a table, a mask, a matrix product and a Softmax."""
    rng = np.random.default_rng(2)
    ids = opset.parameter([1, 8], ov.Type.i64, name="ids")
    mask = opset.parameter([1, 8, 1], ov.Type.f32, name="attention_mask")
    table = constant(rng.standard_normal((vocabulary, 16)))
    found = opset.gather(table, ids, constant(0, np.int64), name="lookup")
    hidden = opset.multiply(found, mask, name="masked")
    projected = opset.matmul(hidden, constant(rng.standard_normal((16, 32))), False, False, name="project")
    return ov.Model([opset.softmax(projected, 2, name="softmax")], [ids, mask], "embedder")


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[ov.Model], ModelSource]:
    """Return a function that writes a model as IR and reads it with placekit."""

    def save(model: ov.Model) -> ModelSource:
        path = tmp_path / f"{model.get_friendly_name()}.xml"
        ov.save_model(model, path, compress_to_fp16=False)
        return read_model(path)

    return save


class FakeContext:
    """Device memory that is host memory."""

    def __init__(self) -> None:
        self.num_tensors = 0

    def create_tensor(self, dtype: Any, shape: Any, _properties: Any) -> ov.Tensor:
        """Return a tensor with copy_from and copy_to, as a remote one has."""
        self.num_tensors += 1
        return ov.Tensor(dtype, shape)


class FakeCore:
    """An OpenVINO core with devices that are the CPU under another name.

    Parameters
    ----------
    devices
        Full name by device string.
    refused
        Op types that these devices do not support.
    has_memory
        Whether these devices offer remote tensors.
    """

    def __init__(self, devices: dict[str, str], *, refused: tuple[str, ...] = (), has_memory: bool = True) -> None:
        self._core = shared_core()
        self._devices, self._refused = devices, refused
        self.context = FakeContext() if has_memory else None
        self.compiled: list[tuple[str, dict[str, Any]]] = []

    @property
    def available_devices(self) -> list[str]:
        """The CPU and the fake devices."""
        return ["CPU", *self._devices]

    def get_property(self, device: str, key: str) -> Any:
        """Answer for the fake devices, pass on for the CPU."""
        if device == "CPU":
            return self._core.get_property(device, key)
        device = device if device in self._devices else f"{device}.0"
        values = {"FULL_DEVICE_NAME": self._devices[device], "INFERENCE_PRECISION_HINT": ov.Type.f16}
        values |= {"GPU_DEVICE_TOTAL_MEM_SIZE": 8 << 30} if "GPU" in device else {}
        if key not in values:
            raise RuntimeError(f"unsupported property {key}")
        return values[key]

    def query_model(self, model: ov.Model, _device: str) -> dict[str, str]:
        """Accept every op but the refused types."""
        return {op.get_friendly_name(): "X" for op in model.get_ops() if op.get_type_name() not in self._refused}

    def compile_model(self, model: ov.Model, device: str, config: dict[str, Any] | None = None) -> Any:
        """Compile for the CPU; refuse models with a refused op on a fake device."""
        self.compiled.append((device, dict(config or {})))
        if device != "CPU" and any(op.get_type_name() in self._refused for op in model.get_ops()):
            raise RuntimeError("unsupported op")
        return self._core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": "1"} | (
            dict(config or {}) if device == "CPU" else {}
        ))  # fmt: skip

    def get_default_context(self, device: str) -> FakeContext:
        """Return the fake device memory."""
        if device == "CPU" or self.context is None:
            raise RuntimeError("get_default_context is not supported")
        return self.context


@pytest.fixture
def make_convnet() -> Callable[[], ov.Model]:
    """Return the builder of the convolutional model."""
    return convnet


@pytest.fixture
def make_embedder() -> Callable[..., ov.Model]:
    """Return the builder of the embedding model."""
    return embedder


@pytest.fixture
def fake_core() -> Callable[..., Any]:
    """Return the class of fake cores."""
    return FakeCore
