"""Random placements of real models: on two to four devices, with cuts along an order, or every op on its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as opset
from pipelines import F32

from placekit.io.models.model import ModelSource
from placekit.io.models.read_model import read_model
from placekit.model.graph import OpGraph
from placekit.model.placement import Placement
from placekit.model.platform import Device, Platform
from placekit.runtime.stages.plans import plan_stages
from placekit.runtime.stages.stage_plan import StagePlan

EVERY_OP = "every-op"
KINDS: tuple[int | str, ...] = (1, 3, 10, 30, EVERY_OP)
"""Number of cuts along a topological order, or a random device for every op."""

LIGHT_MODELS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
                "vgg19", "zfnet512")  # fmt: skip
"""Models that the onnx package brings without weights."""

# smaller tensors and two transformer layers, so that many placements can be run
SMALL: dict[str, dict[str, Any]] = {
    "resnet50": {"width": 8, "image_size": 64},
    "inception_v3": {"width_multiplier": 0.125, "image_size": 75},
    "mobilenet_v2": {"width_multiplier": 0.25, "image_size": 64},
    "unet": {"width": 8, "image_size": 64},
    "bert_base": {"width": 48, "heads": 4, "sequence": 16, "vocabulary": 100, "layers": 2},
    "gpt2": {"width": 48, "heads": 4, "sequence": 16, "vocabulary": 100, "layers": 2},
    "decoder": {"width": 48, "heads": 4, "sequence": 16, "vocabulary": 100, "layers": 2},
}
"""Parameters of the zoo models."""


def random_plan(source: ModelSource, kind: int | str, seed: int) -> StagePlan:
    """Place a model at random on two to four devices, and cut it.

    Parameters
    ----------
    source
        The model.
    kind
        Number of cuts between consecutive ops of a topological order, behind each of which the device is another; or
        `EVERY_OP`.
    seed
        Seed of devices and cuts.
    """
    rng = np.random.default_rng(seed)
    num_devices = int(rng.integers(2, 5))
    platform = Platform(
        tuple(Device(f"cpu{i}", "cpu", is_host=True, openvino="CPU", properties=F32) for i in range(num_devices))
    )
    device_of_op = _random_devices(source.graph, kind, num_devices, rng)
    return plan_stages(source, Placement(source.graph.op_names, platform.device_names, device_of_op), platform)


def _random_devices(graph: OpGraph, kind: int | str, num_devices: int, rng: np.random.Generator) -> NDArray[np.int64]:
    if kind == EVERY_OP:
        return rng.integers(0, num_devices, graph.num_ops)
    is_cut = np.zeros(graph.num_ops, dtype=bool)
    is_cut[1 + rng.permutation(graph.num_ops - 1)[: int(kind)]] = True
    steps = np.where(is_cut, rng.integers(1, num_devices, graph.num_ops), 0)  # to another device, never the same
    device_of_op = np.empty(graph.num_ops, dtype=np.int64)
    device_of_op[graph.order] = np.cumsum(steps) % num_devices
    return device_of_op


def light_model(name: str, folder: Path, seed: int = 0) -> ModelSource:
    """Return a model of the onnx package as IR in `folder`, with random weights for its constant ones.

    With constant weights all elements of a tensor are equal, and whatever is compared agrees.
    """
    import onnx

    path = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
    model = ov.convert_model(path)
    _randomise(model, np.random.default_rng(seed))
    written = folder / f"light_{name}.xml"
    ov.save_model(model, written, compress_to_fp16=False)
    return read_model(written)


def _randomise(model: ov.Model, rng: np.random.Generator) -> None:
    """Replace the real-valued constants of a model, scalars excepted, by random ones. In place."""
    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type().get_type_name() != "f32":
            continue
        shape = tuple(node.get_output_shape(0))
        size = int(np.prod(shape))
        if size == 1:
            continue
        fan_in = size // max(shape)
        # a bias or scale per channel has no fan-in; weights keep the variance of what they are applied to
        drawn = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.5 if fan_in == 1 else np.sqrt(2 / fan_in))
        fresh = opset.constant(drawn + np.float32(fan_in == 1))
        for target in node.output(0).get_target_inputs():
            target.replace_source_output(fresh.output(0))
