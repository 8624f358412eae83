"""``placekit llm``: from numbers to a served placement."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from placekit.io.files.problem_json import read_problem
from placekit.io.files.result_json import read_result
from placekit.language.runtimes import RUNTIMES
from placekit.objectives.evaluate import evaluate

CLUSTER = """
[[device]]
name = "big"
kind = "l4"

[[device]]
name = "small"
kind = "t4"
count = 2
memory = "2 GiB"
"""
PC = """
[[device]]
name = "CPU"
kind = "cpu-8core-bf16"
host = true

[[device]]
name = "GPU"
kind = "rtx4090"
"""
NUMBERS = ("--layers", "8", "--hidden", "2048", "--kv-heads", "4", "--ffn", "4096", "--vocab", "32000")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Return a platform file: an L4 with the memory of its data sheet, two T4 with less."""
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return path


def test_numbers_to_placement(call: Callable[..., Any], cluster: Path, tmp_path: Path) -> None:
    """Phases, memory and rates are told, and the files agree with the judge."""
    done = call(
        "llm", *NUMBERS, "--precision", "int4", "--platform", cluster, "--phase", "prefill:256",
        "--phase", "decode:64", "--sequences", "2", "--batch", "2", "--teams", "equal",
        "--problem", "llm.problem.json", "--details",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for told in ("optimal", "first token", "per token", "tokens/s", "sequences in flight at most", "not filled"):
        assert told in done.stdout
    problem = read_problem(tmp_path / "llm.problem.json")
    result = read_result(tmp_path / "llm.result.json")
    assert result.placement is not None
    assert evaluate(problem, result.placement).violations == ()
    assert max(device.memory_bytes or 0 for device in problem.platform.devices) > 20 * 2**30


def test_json(call: Callable[..., Any], cluster: Path) -> None:
    """The report is part of the object."""
    done = call("llm", "llama3-8b", "--layers", "4", "--precision", "int4", "--platform", cluster, "--json")
    assert done.returncode == 0, done.stderr
    served = json.loads(done.stdout)["serving"]
    assert served["tokens_per_s"] == pytest.approx(128 * served["requests_per_s"])
    assert {each["device"] for each in served["memory"]} <= {"big", "small.0", "small.1"}


def test_one_limit_is_told_everywhere(call: Callable[..., Any], cluster: Path) -> None:
    """The limit of a device is that of the machine, in the platform and in the only table that has one."""
    ask = ("llm", *NUMBERS, "--platform", cluster, "--memory", "small=3GiB", "--details", "--memory-headroom")
    done = call(*ask, "0%")
    assert done.returncode == 0, done.stderr
    assert "3 GiB each" in done.stdout
    assert len([line for line in done.stdout.splitlines() if " limit " in f"{line} " and "device" in line]) == 1
    assert not re.search(r"\b2\.\d+ GiB each", done.stdout)
    done = call(*ask, "50%")
    assert "1.5 GiB each" in done.stdout


@pytest.mark.slow
def test_experts_are_pinned_to_the_host(call: Callable[..., Any], tmp_path: Path) -> None:
    """What people type for llama.cpp by hand: attention on the card, experts on the CPU, as rules by tensor name."""
    (tmp_path / "pc.toml").write_text(PC)
    numbers = ("--layers", "4", "--hidden", "512", "--ffn", "1024", "--vocab", "1000", "--experts", "4")
    pins = ("--pin", "*.self_attn.*=GPU", "--pin", "*exps=CPU")
    done = call("llm", *numbers, "--platform", "pc.toml", "--granularity", "op", "--contiguity", "none", *pins,
                "--problem", "moe.problem.json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    # an activation that analytic costs fuse with its experts follows its own pin
    both = call(
        "llm", *numbers, "--platform", "pc.toml", "--granularity", "op", "--contiguity", "none", "--pin", "*=GPU",
        "--pin", "*exps=CPU", "-o", "both.json", "--details",
    )  # fmt: skip
    assert both.returncode == 0, both.stdout
    assert "'*exps=CPU' overrides '*=GPU' for 8 ops" in " ".join(both.stdout.split())
    done = call("export", "moe.problem.json", "llm.placement.json", "--to", "llama.cpp")
    assert done.returncode == 0, done.stderr
    written = json.loads(Path("moe.llama.cpp.json").read_text())
    (told_rules,) = (value for name, value in pairwise(written["arguments"]) if name == "--override-tensor")
    rules = told_rules.split(",")
    assert all(rule.endswith("=CPU") for rule in rules if "exps" in rule)
    (pattern,) = (rule.removesuffix("=CPU") for rule in rules if "exps" in rule)
    assert all(
        re.search(pattern, f"blk.{block}.ffn_{part}_exps.weight") for block in range(4) for part in ("up", "down")
    )
    assert not re.search(pattern, "blk.0.attn_q.weight")


def test_what_does_not_fit_is_proven(call: Callable[..., Any], cluster: Path) -> None:
    """70 billion parameters in 28 GiB."""
    done = call("llm", "llama3-70b", "--platform", cluster)
    assert done.returncode == 3
    assert done.stdout.startswith("llama3-70b does not fit: weights and cache 133.9 GiB")


def test_models_from_files(call: Callable[..., Any], cluster: Path, tmp_path: Path) -> None:
    """A stateful OpenVINO model and a program of torch.export, with open numbers of sequences and tokens."""
    torch = pytest.importorskip("torch")
    from language_models import TorchDecoder, write_stateful

    write_stateful(tmp_path / "stateful.xml")
    module = TorchDecoder(2, 64, 4, 2, 128, 300, is_fused=False).eval()
    open_dims = {"ids": {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}}
    example = (torch.zeros(3, 8, dtype=torch.long),)
    torch.export.save(torch.export.export(module, example, dynamic_shapes=open_dims), tmp_path / "decoder.pt2")
    fixed = torch.export.export(module, example)
    torch.export.save(fixed, tmp_path / "fixed.pt2")
    for file, cached in (("stateful.xml", "6 ops with a cache"), ("decoder.pt2", "2 ops with a cache")):
        done = call("llm", file, "--platform", cluster, "--sequences", "4", "--batch", "2", "--details")
        assert done.returncode == 0, done.stderr
        assert cached in done.stdout
        assert "tokens/s" in done.stdout
        assert (tmp_path / f"{Path(file).stem}.placement.json").exists()
    for arguments, message in (
        (("fixed.pt2",), "shape [1, 512] of input 'ids' does not fit: the program needs [3, 8]"),
        (("decoder.pt2", "--precision", "int4"), "--precision goes with numbers of a model"),
        (("decoder.pt2", "--kv-heads", "4"), "--kv-heads goes with numbers of a model"),
        (("missing.pt2",), "missing.pt2"),
    ):
        done = call("llm", *arguments, "--platform", cluster)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layers", "8"), "hidden is missing"),
        (("gpt5",), "no model 'gpt5'"),
        (("gpt2", "--precision", "int3"), "precision is 'int3'; it must be one of f32"),
        (("gpt2", "--layers", "0"), "layers is 0; it must be at least 1"),
        (("gpt2", "--phase", "prefill:512", "--context", "100"), "context is 100; it must be from 512"),
        (("gpt2", "--granularity", "block"), "granularity is 'block'"),
        (("gpt2", "--objective", "makespan", "--teams", "equal"), "teams"),
    ],
)
def test_bad_input(call: Callable[..., Any], cluster: Path, arguments: tuple[str, ...], message: str) -> None:
    """One line, exit code 2."""
    done = call("llm", *arguments, "--platform", cluster)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


MODULES = [f"layers.{layer}" for layer in range(8)]
DEVICE_MAP = {
    "model.embed_tokens": 0,
    **{f"model.layers.{layer}": 0 if layer < 3 else 2 for layer in range(8)},
    "model.norm": 2,
    "lm_head": 2,
}


def told(written: dict[str, Any], option: str, value: str) -> bool:
    """Return whether the arguments of a file have an option once, with a value."""
    arguments = written["arguments"]
    return arguments.count(option) == 1 and (option, value) in pairwise(arguments)


STAGES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "vllm": lambda written: (
        written["environment"]["VLLM_PP_LAYER_PARTITION"] == "3,5" and told(written, "--pipeline-parallel-size", "2")
    ),
    "sglang": lambda written: (
        written["environment"]["SGLANG_PP_LAYER_PARTITION"] == "3,5" and told(written, "--pp-size", "2")
    ),
    "tensorrt-llm": lambda written: written["config"]["pp_partition"] == [3, 5] and told(written, "--pp_size", "2"),
    "megatron": lambda written: (
        told(written, "--pipeline-model-parallel-size", "2")
        and told(written, "--pipeline-model-parallel-layout", "Et*3|t*5L")
    ),
    "llama.cpp": lambda written: (  # the output is on the last device, like a ninth block
        told(written, "--tensor-split", "3,6") and told(written, "--n-gpu-layers", "9")
    ),
    "torchtitan": lambda written: (
        written["config"]["parallelism"]["module_fqns_per_model_part"]
        == [["tok_embeddings", *MODULES[:3]], [*MODULES[3:], "norm", "output"]]
    ),
    "device-map": lambda written: written == DEVICE_MAP,
    "accelerate": lambda written: written == DEVICE_MAP,
}
"""Whether a file says: three blocks on the first device, five on the third."""


@pytest.mark.parametrize("runtime", STAGES)
def test_placements_go_to_other_runtimes(call: Callable[..., Any], cluster: Path, runtime: str) -> None:
    """From the problem file, without a model: every block is in the stage in which the placement has it."""
    done = call("llm", *NUMBERS, "--platform", cluster, "--problem", "llm.problem.json")
    assert done.returncode == 0, done.stderr
    path = Path("llm.placement.json")
    placement = json.loads(path.read_text())
    first = ("model.embed_tokens", "model.layers.0.", "model.layers.1.", "model.layers.2.")
    placement["ops"] = {op: "big" if op.startswith(first) else "small.1" for op in placement["ops"]}
    path.write_text(json.dumps(placement))
    done = call("export", "llm.problem.json", path, "--to", runtime, "--force")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80  # a command that is copied stays on one line, the last
    written = json.loads(Path(f"llm.{runtime}.json").read_text())
    assert STAGES[runtime](written), written
    if runtime not in ("device-map", "accelerate"):
        assert written["devices"] == ["big", "small.1"]
        words = shlex.split(done.stdout.splitlines()[-1])
        count = len(words) - len(written["arguments"])
        assert words[count:] == written["arguments"]
        assert dict(word.split("=", 1) for word in words[:count]) == written["environment"]


def test_runtimes_that_are_none(call: Callable[..., Any], cluster: Path) -> None:
    """Names are listed; options of a bundle do not go with others."""
    assert call("llm", *NUMBERS, "--platform", cluster, "--problem", "llm.problem.json").returncode == 0
    for arguments, message in (
        (("--to", "tensorrt"), "no such runtime; runtimes are openvino"),
        (("--to", "vllm", "--hetero"), "go with --to openvino"),
        (("--to", "onnxruntime"), "takes an .onnx file"),
        (("--to", "netron"), "take --to model-explorer"),
    ):
        done = call("export", "llm.problem.json", "llm.placement.json", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
    done = call("export", "llm.problem.json", "llm.placement.json", "--to", "model-explorer", "--json")
    written = json.loads(done.stdout)["files"]
    assert written == {"node data": "llm.model-explorer.json", "graph": "llm.model-explorer.graph.json"}


def test_models_as_people_have_them(call: Callable[..., Any], cluster: Path, tmp_path: Path) -> None:
    """A configuration, or its folder; what was read is told, and what cannot be read is one line."""
    pytest.importorskip("transformers", minversion="5")
    folder = tmp_path / "gpt2"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[1] / "language" / "configs" / "gpt2.json", folder / "config.json")
    done = call("llm", "gpt2", "--platform", cluster, "--json")
    model = json.loads(done.stdout)["model"]
    assert (model["name"], model["precision"], model["parameters"]) == ("gpt2", "f16", 124337664)  # the name
    done = call("llm", "gpt2/config.json", "--platform", cluster, "--together", "4", "--details")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    for words in ("gpt2 (gpt2): 0.12 billion parameters in bfloat16", "12 of attention + dense feed-forward",
                  "18,432 numbers per token", "optimal"):  # fmt: skip
        assert words in told
    assert (tmp_path / "gpt2.placement.json").exists()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03")
    for arguments, message in (
        (("broken.json",), "broken.json is no JSON"),
        (("cut.gguf",), "cut.gguf: the header is cut off or damaged"),
        (("gpt5",), "no model 'gpt5': there are llama3-8b"),
        (("gpt2/config.json", "--hidden", "64"), "--hidden goes with numbers of a model"),
        (("gpt2/config.json", "--together", "0"), "together is 0; it must be at least 1"),
    ):
        done = call("llm", *arguments, "--platform", cluster)
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("device", "memory_gib", "told"),
    [
        ('kind = "rtx4090"\nspec = "mine"\n[spec.mine]\nbase = "rtx4090"', 24, None),
        ('kind = "mine"\n[spec.mine]\nbase = "rtx4090"', 24, "'A' has no memory limit .* 24 GiB of rtx4090, the base"),
        ('kind = "mine"\nmemory = "12 GiB"\n[spec.mine]\nbase = "rtx4090"', 12, None),
        ('kind = "gpu"', None, "warning: 'A' without a memory limit: any model fits.*--memory A=16GiB"),
    ],
)
def test_memory_of_accelerators(
    call: Callable[..., Any], tmp_path: Path, device: str, memory_gib: int | None, told: str | None
) -> None:
    """That of the data sheet of the kind; without any limit, or with that of another card, a warning."""
    (tmp_path / "p.toml").write_text(f'[[device]]\nname = "A"\n{device}\n')
    done = call("llm", "gpt2", "--platform", "p.toml", "--memory-headroom", "0%", "--json")
    assert done.returncode == 0, done.stderr
    (held,) = json.loads(done.stdout)["serving"]["memory"]
    assert held["limit_bytes"] == (None if memory_gib is None else pytest.approx(memory_gib * 2.0**30))
    assert done.stderr == "" if told is None else re.search(told, done.stderr)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("llama3-8c", "no model 'llama3-8c'.*did you mean 'llama3-8b'?"),
        ("./nowhere", "./nowhere: no such file or folder"),
        ("smol-lm", "no model 'smol-lm'.*did you mean 'smol-llm'?"),
        ("smol-llm", "smol-llm: a folder without config.json; give smol-llm/smol.gguf"),
        ("smol-llm/smoll.gguf", "no such file or folder; did you mean 'smol.gguf'?"),
        ("away/config.json", "away/config.json: no such file or folder; there is no folder away"),
    ],
)
def test_a_model_that_is_not_there(
    call: Callable[..., Any], cluster: Path, tmp_path: Path, name: str, told: str
) -> None:
    """One line with what to do, and the nearest name: of models, files or folders."""
    (tmp_path / "smol-llm").mkdir()
    (tmp_path / "smol-llm" / "smol.gguf").touch()
    done = call("llm", name, "--platform", cluster)
    assert done.returncode == 2
    assert re.search(told, done.stderr)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "pair",
    [
        ("--goal latency", "--objective throughput"),
        ("--goal throughput", "--objective serial-latency"),
        ("--goal throughput", "--objective makespan"),
        ("--goal context", "--context 4096"),
        ("--goal latency", "--teams equal"),
        ("--for vllm", "--granularity op"),
        ("--for llama.cpp", "--contiguity none"),
        ("--apart", "--goal context"),
    ],
)
def test_options_that_cannot_both_hold(call: Callable[..., Any], cluster: Path, pair: tuple[str, str]) -> None:
    """One would be ignored: the error names both."""
    done = call("llm", "gpt2", "--platform", cluster, *pair[0].split(), *pair[1].split())
    assert done.returncode == 2
    assert done.stderr == f"error: {pair[0]} and {pair[1]} contradict each other: leave out one of them\n"


NODES = (
    PC.replace("host = true", 'host = true\nnode = "desk"').replace('"rtx4090"', '"rtx4090"\nnode = "attic"')
    + """
[[direct_link]]
between_nodes = true
latency_s = 1e-4
bandwidth_bytes_per_s = 1e9
"""
)


@pytest.mark.parametrize("runtime", ["accelerate", "openvino", "placekit"])
def test_several_machines_are_refused_by_runtimes_of_one(
    call: Callable[..., Any], tmp_path: Path, runtime: str
) -> None:
    """Nothing starts these on two machines."""
    (tmp_path / "nodes.toml").write_text(NODES)
    done = call("llm", "gpt2", "--platform", "nodes.toml", "--for", runtime)
    assert done.returncode == 2
    assert f"error: {runtime}: devices are on desk, attic, and it has no lines for several machines" in done.stderr


def test_every_machine_gets_a_line_of_llama_cpp(call: Callable[..., Any], tmp_path: Path) -> None:
    """A server on the other machine, and the program here, which reaches it over the network that the plan counts."""
    (tmp_path / "nodes.toml").write_text(NODES)
    done = call("llm", "gpt2", "--platform", "nodes.toml", "--for", "llama.cpp", "--json")
    told = json.loads(done.stdout)
    assert told["launch"][0] == "ggml-rpc-server -H 0.0.0.0 -p 50052 -d CUDA0  # on attic"
    assert "--rpc attic:50052 --device RPC0" in told["launch"][1]
    slow = NODES.replace("bandwidth_bytes_per_s = 1e9", "bandwidth_bytes_per_s = 1e6")
    (tmp_path / "nodes.toml").write_text(slow.replace("latency_s = 1e-4", "latency_s = 0.1"))
    done = call("llm", "gpt2", "--platform", "nodes.toml", "--for", "llama.cpp", "--json")
    assert json.loads(done.stdout)["launch"][0].startswith("llama-server"), "over a slow network the host is faster"


def test_devices_of_another_machine_by_their_address(call: Callable[..., Any], tmp_path: Path) -> None:
    """`RPC[HOST:PORT]` needs no nodes; a number alone says no address."""
    (tmp_path / "rpc.toml").write_text(PC.replace('name = "GPU"', 'name = "RPC[10.0.0.2:50060]"'))
    done = call("llm", "llama3-8b", "--precision", "int4", "--platform", "rpc.toml", "--for", "llama.cpp")
    assert done.returncode == 0, done.stderr
    assert "ggml-rpc-server -H 10.0.0.2 -p 50060 -d CUDA0" in " ".join(done.stdout.split())
    (tmp_path / "rpc.toml").write_text(PC.replace('name = "GPU"', 'name = "RPC0"'))
    done = call("llm", "llama3-8b", "--precision", "int4", "--platform", "rpc.toml", "--for", "llama.cpp")
    assert done.returncode == 2
    assert "device 'RPC0' is on another machine, and its address is not known" in done.stderr


def test_servers_on_several_machines_are_told(call: Callable[..., Any], tmp_path: Path) -> None:
    """A line per machine, in the order of the ranks: Ray for vLLM, numbers of machines for SGLang and torchrun."""
    cards = "".join(f'[[device]]\nname = "{node}"\nkind = "l4"\nnode = "{node}"\n' for node in ("n0", "n1"))
    (tmp_path / "nodes.toml").write_text(cards + NODES[NODES.index("[[direct_link]]") :])
    own = {
        "vllm": ("ray start --head --port 6379 --num-gpus 1", "ray start --address FIRST:6379", "vllm serve"),
        "sglang": ("--nnodes 2 --node-rank 0 --dist-init-addr FIRST:29500",) * 2,
        "megatron": ("torchrun --nnodes 2 --node-rank 0 --nproc-per-node 1 --rdzv-endpoint FIRST:29500",) * 2,
    }
    for runtime, parts in own.items():
        done = call("llm", "llama3-8b", "--precision", "f32", "--platform", "nodes.toml", "--for", runtime, "--json")
        assert done.returncode == 0, done.stderr
        launch = json.loads(done.stdout)["launch"]
        assert len(launch) == len(parts)
        nodes = [line.rpartition(" ")[2] for line in launch]
        for at, (line, part) in enumerate(zip(launch, parts, strict=True)):
            assert part.replace("--node-rank 0", f"--node-rank {at}").replace("FIRST", nodes[0]) in line
            assert line.endswith(f"# on {nodes[at % 2]}")
    done = call("llm", "llama3-8b", "--precision", "f32", "--platform", "nodes.toml", "--for", "tensorrt-llm")
    assert done.returncode == 2
    assert "tensorrt-llm: devices are on n0, n1, and it has no lines for several machines" in done.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_proof_names_what_was_searched(call: Callable[..., Any], tmp_path: Path, runtime: str) -> None:
    """A runtime may know plans that are no whole blocks: none is called optimal, and what it takes itself is told."""
    (tmp_path / "pc.toml").write_text(PC)
    done = call("llm", "gpt2", "--platform", "pc.toml", "--for", runtime, "--details")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())  # lines are as long as the terminal is wide
    chunks = "; their chunks of a prompt one after the other" if RUNTIMES[runtime].overlaps_prompt else ""
    assert re.search(rf"status best of: .*whole blocks.*devices in any order{chunks} \(stopped: proved\)", told)
    assert "optimal" not in told
    is_counted = RUNTIMES[runtime].reserved_bytes > 0
    taken = (
        f"of every card for {runtime} itself" if is_counted else f"not counted what {runtime} itself takes of memory"
    )
    assert taken in told


def test_no_verdict_above_experts_on_the_host(call: Callable[..., Any], tmp_path: Path) -> None:
    """A verdict compares single devices of one problem; with experts on the host the table compares."""
    (tmp_path / "pc.toml").write_text(PC)
    done = call(
        "llm", "mixtral-8x7b", "--precision", "int4", "--platform", "pc.toml", "--for", "llama.cpp", "--details"
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"experts of \d+ blocks on the host", done.stdout)
    assert "verdict" not in done.stdout


def test_what_a_runtime_gains_is_no_loss_of_nothing(call: Callable[..., Any], tmp_path: Path) -> None:
    """llama.cpp computes prompts on the card with weights of the host, which the plan without a runtime does not."""
    (tmp_path / "pc.toml").write_text(PC)
    ask = ("llm", "llama3-8b", "--platform", "pc.toml", "--memory", "GPU=8GiB", "--phase", "prefill:4096")
    done = call(*ask)
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("what runtimes can follow")[2].partition("wrote")[0]
    losses = {name: float(loss) for name, loss in re.findall(r"(\S+) +(-?[\d.]+) %", table)}
    told = json.loads(call(*ask, "--json").stdout)
    best = told["serving"]["tokens_per_s"]
    rates = {names.split(", ")[-1]: told["compared"][names] for names in told["compared"]}
    assert best >= rates["placekit"]  # which takes whole blocks only
    assert min(losses.values()) < -1
    for name, loss in losses.items():
        assert loss == pytest.approx(100 - 100 * rates[name] / best, abs=0.2, rel=0.01)


def test_the_cache_has_the_names_of_llama_cpp(call: Callable[..., Any]) -> None:
    """`q8_0` is what `int8` is there; another name is refused with those that there are."""
    line = ("llm", "llama3-8b", "--cards", "RTX 3060", "--for", "llama.cpp", "--precision", "int4", "--json")
    plans = [call(*line, "--cache-precision", name) for name in ("q8_0", "int8")]
    first, second = (json.loads(each.stdout) for each in plans)
    assert first["launch"] == second["launch"]
    assert "-ctk q8_0" in first["launch"][0]
    refused = call(*line, "--cache-precision", "q9_0")
    assert refused.returncode == 2
    assert "cache_precision is 'q9_0'" in refused.stderr
