"""Placements of one shape and models of another: stateful language models run at any, others say what differs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from placekit.cost_models.openvino.devices import shared_core

ov = pytest.importorskip("openvino")
Call = Callable[..., Any]

PLATFORM = """
[[device]]
name = "CPU"
kind = "cpu-8core-bf16"
host = true
openvino = "CPU"
memory = "{}"
[[device]]
name = "GPU.0"
kind = "arc-a770"
openvino = "CPU"  # a GPU is not everywhere
memory = "{}"
"""


def save_decoder(path: Path, with_part: bool) -> Path:
    """Save three blocks of attention with states, sequences and tokens open; `with_part` adds ops of their own."""
    from openvino import opset13 as o
    from openvino.op.util import Variable, VariableInfo

    rng = np.random.default_rng(0)

    def weights(rows: int, columns: int) -> Any:
        return o.constant(rng.standard_normal((rows, columns)).astype(np.float32) / 8)

    ids = o.parameter([-1, -1], np.int64, name="input_ids")
    beam = o.parameter([-1], np.int32, name="beam_idx")
    x = o.gather(weights(100, 64), ids, o.constant(0))
    sinks = []
    for block in range(3):
        name = f"__module.model.layers.{block}.self_attn"
        heads = []
        for part in "qkv":
            made = o.matmul(x, weights(64, 64), False, False, name=f"{name}.{part}_proj/aten::linear/MatMul")
            cut = o.reshape(made, o.constant([0, 0, 4, 16]), True)
            heads.append(o.transpose(cut, o.constant([0, 2, 1, 3])))
        for at in (1, 2):
            info = VariableInfo()
            info.data_shape, info.data_type = ov.PartialShape([-1, 4, -1, 16]), ov.Type.f32
            info.variable_id = f"past.{block}.{at}"
            variable = Variable(info)
            batch = o.gather(o.shape_of(ids), o.constant([0]), o.constant(0))
            shape = o.concat([batch, o.constant(np.array([4, 0, 16], np.int64))], 0)
            before = ov.op.read_value(o.broadcast(o.constant(np.float32(0)), shape), variable)
            heads[at] = o.concat([o.gather(before, beam, o.constant(0)), heads[at]], 2)
            sinks.append(ov.op.assign(heads[at], variable))
        seen = o.scaled_dot_product_attention(*heads, causal=False, name=f"{name}/aten::sdpa/Attention")
        flat = o.reshape(o.transpose(seen, o.constant([0, 2, 1, 3])), o.constant([0, 0, 64]), True)
        x = o.add(x, o.matmul(flat, weights(64, 64), False, False), name=f"__module.model.layers.{block}/aten::add/Add")
    head = o.matmul(x, weights(64, 100), False, False, name="__module.lm_head/aten::linear/MatMul")
    results, inputs = [o.result(head, name="logits")], [ids, beam]
    if with_part:
        inputs.append(o.parameter([-1, 8], np.float32, name="extra"))
        results.append(o.result(o.relu(o.matmul(inputs[-1], weights(8, 8), False, False)), name="extra_out"))
    ov.save_model(ov.Model(results, sinks, inputs, "decoder"), path, compress_to_fp16=False)
    return path


def run_stages(folder: Path, samples: Sequence[dict[str, Any]]) -> list[Any]:
    """Run the stages of a bundle one after another by OpenVINO alone; return the first output of every sample."""
    manifest = json.loads((folder / "manifest.json").read_text())
    core, found = shared_core(), []
    requests = [
        core.compile_model(folder / f"{at}.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
        for at in range(len(manifest["stages"]))
    ]
    for sample in samples:
        known = {(each["op"], each["port"]): sample[each["name"]] for each in manifest["inputs"]}
        for stage, request in zip(manifest["stages"], requests, strict=True):
            given = {each["node"]: known[each["op"], each["port"]] for each in stage["inputs"]}
            model = request.get_compiled_model()
            request.infer({at: given[port.get_node().get_friendly_name()] for at, port in enumerate(model.inputs)})
            for at, each in enumerate(stage["outputs"]):
                known[each["op"], each["port"]] = request.get_output_tensor(at).data.copy()
        found.append(known[manifest["outputs"][0]["op"], manifest["outputs"][0]["port"]])
    return found


@pytest.mark.parametrize("with_part", [False, True])
@pytest.mark.parametrize(
    ("memory", "more", "num_stages"),
    [
        (("64 GiB", "10 MiB"), [], 1),
        (("230 KiB", "230 KiB"), [], 2),
        (("230 KiB", "230 KiB"), ["--granularity", "op"], 2),
    ],
)
def test_the_printed_command_exports_a_model_that_keeps_states(
    call: Call, tmp_path: Path, with_part: bool, memory: tuple[str, str], more: list[str], num_stages: int
) -> None:
    """As printed, to its end; the stages take prompts and single tokens, and answer as the whole model does."""
    model = save_decoder(tmp_path / "decoder.xml", with_part)
    (tmp_path / "my machine.toml").write_text(PLATFORM.format(*memory))
    phases = ["--phase", "prefill:16", "--phase", "decode:8"]
    planned = call("llm", "decoder.xml", "--platform", "my machine.toml", "--for", "openvino", *phases, *more)
    assert planned.returncode == 0, planned.stderr
    line = planned.stdout.split("\n\n")[1]  # below the first sentence
    assert line.startswith("placekit export decoder.xml ")
    assert "\n" not in line
    done = call(*shlex.split(line)[1:])
    assert done.returncode == 0, done.stderr
    assert f"3 samples in a row run through {num_stages} stages on the CPU: outputs as the whole" in " ".join(
        done.stdout.split()
    )
    assert "--shape " in done.stderr
    rng = np.random.default_rng(1)
    samples = [
        {
            "input_ids": rng.integers(0, 100, (1, tokens)),
            "beam_idx": np.zeros(1, np.int32),
            "extra": np.ones((1, 8), np.float32),
        }
        for tokens in (16, 1, 1, 5)
    ]
    found = run_stages(tmp_path / "decoder.bundle", samples)
    whole = shared_core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request, names = whole.create_infer_request(), [port.get_node().get_friendly_name() for port in whole.inputs]
    for sample, value in zip(samples, found, strict=True):
        request.infer({at: sample[name] for at, name in enumerate(names)})
        np.testing.assert_allclose(value, request.get_output_tensor(0).data, rtol=1e-4, atol=1e-5)


def test_no_solver_separates_a_state(tmp_path: Path) -> None:
    """What reads a state, what assigns it and what is between are on one device, however well a cut would pay."""
    from placekit import Analytic, Contiguity, MaxIterations, Platform, Problem, SerialLatency, read_model, solve

    source = read_model(save_decoder(tmp_path / "decoder.xml", False), {"input_ids": (1, 4), "beam_idx": (1,)})
    graph = source.graph
    assert {graph.op_types[op] for op in np.flatnonzero(np.bincount(source.colocation)[source.colocation] > 1)} == {
        "ReadValue", "Gather", "Concat", "Assign",
    }  # fmt: skip
    platform = Platform.of(cpu=2, host="cpu")
    costs = Analytic().cost_table(graph, platform)
    rng = np.random.default_rng(0)
    for _ in range(3):  # times that ask for any cut
        costs = costs.replace(op_time_s=rng.exponential(1e-3, costs.op_time_s.shape))
        problem = Problem(
            graph, platform, costs, SerialLatency(), colocation=source.colocation, contiguity=Contiguity.NONE
        )
        for method in ("greedy", "random"):
            placement = solve(problem, method, seed=1, stop=MaxIterations(50)).placement
            assert placement is not None
            device = placement.device_of_op
            assert all(len(set(device[source.colocation == label].tolist())) == 1 for label in source.colocation)


def save_product(path: Path) -> Path:
    """Save a product of open batch, whose shape an op reads."""
    from openvino import opset13 as o

    x = o.parameter([-1, 8], np.float32, name="x")
    mask = o.parameter([-1, 8], np.float32, name="mask")
    made = o.matmul(o.multiply(x, mask, name="masked"), o.constant(np.ones((8, 8), np.float32)), False, False, name="p")
    ov.save_model(ov.Model([o.result(o.relu(made, name="r"), name="out")], [x, mask], "p"), path)
    return path


def test_shapes_that_differ_are_what_is_said(call: Call, tmp_path: Path) -> None:
    """Placements and results name the option to pass; a model of other ops, and a measurement, are errors with it."""
    save_product(tmp_path / "p.xml")
    solve = ("solve", "p.xml", "-d", "CPU", "--costs", "analytic", "--method", "single", "-o", "p.json")
    assert call(*solve, "--shape", "x[4,8]", "--shape", "mask[4,8]").returncode == 0
    for file in ("p.json", "p.result.json"):
        done = call("export", "p.xml", file, "-d", "CPU")
        assert done.returncode == 0, done.stderr
        for told in ("was made for input shapes", "x[4,8]", "here they are", "x[?,8]", "pass --shape "):
            assert told in done.stderr
        assert "another version" not in done.stderr
        asked = done.stderr.split("--shape ")[1].split()[0]
        again = call("export", "p.xml", file, "-d", "CPU", "--shape", asked)
        assert (again.returncode, again.stderr) == (0, "")
        timed = call("time", "p.xml", file, "-d", "CPU")
        assert timed.returncode == 2
        assert f"pass --shape {asked}" in timed.stderr
    placed = json.loads((tmp_path / "p.json").read_text())
    placed["ops"]["gone"] = "CPU"
    (tmp_path / "other.json").write_text(json.dumps(placed))
    done = call("export", "p.xml", "other.json", "-d", "CPU")
    assert done.returncode == 2
    assert "pass --shape mask[4,8],x[4,8]" in done.stderr or "pass --shape x[4,8],mask[4,8]" in done.stderr
    assert "'gone'" in done.stderr


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (["x[4,8]", "x[2,8]"], "--shape x[4,8] and --shape x[2,8] both give input 'x' a shape"),
        (["x[4,8],mask[4,8]", "mask[4,8]"], "--shape x[4,8],mask[4,8] and --shape mask[4,8] both give input 'mask'"),
        (["x[4,8],x[2,8]"], "input 'x' is given twice"),
    ],
)
def test_one_input_with_two_shapes_is_an_error(call: Call, tmp_path: Path, shapes: list[str], told: str) -> None:
    """Both are named; nothing is taken silently."""
    save_product(tmp_path / "p.xml")
    done = call("problem", "p.xml", "-d", "CPU", *(part for shape in shapes for part in ("--shape", shape)))
    assert done.returncode == 2
    assert told in done.stderr


def test_two_names_of_one_input_are_an_error(tmp_path: Path) -> None:
    """An input and its tensor may have different names."""
    from openvino import opset13 as o

    from placekit import read_model
    from placekit.model.errors import InvalidProblemError

    x = o.parameter([-1, 8], np.float32, name="x")
    x.output(0).set_names({"tensor"})
    ov.save_model(ov.Model([o.result(o.relu(x, name="r"), name="out")], [x], "p"), tmp_path / "p.xml")
    with pytest.raises(InvalidProblemError, match=r"shapes x\[4,8\] and tensor\[2,8\] are of the same input"):
        read_model(tmp_path / "p.xml", {"x": (4, 8), "tensor": (2, 8)})
