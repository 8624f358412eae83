"""Devices of other machines in llama.cpp: addresses, names, buffers and links."""

from __future__ import annotations

import numpy as np
import pytest
from serving_plans import launch_of

import placekit as pk
from placekit.cost_models.sheets.device_table import get_spec
from placekit.language.decoder import Decoder
from placekit.language.from_numbers import describe_decoder
from placekit.language.graph import model_step
from placekit.language.planning.given import Split, given_report
from placekit.language.runtimes.llama.rpc import GIGABIT, as_one_machine
from placekit.language.runtimes.llama.server_steps import HEAD_BYTES, with_server_steps
from placekit.language.serving import Phase, Serving
from placekit.language.task import decoder_task
from placekit.model.errors import InvalidProblemError
from placekit.model.platform import Device, DirectLink, Platform

BLOCKS = 6
GRAPH = model_step(
    describe_decoder(Decoder(BLOCKS, 64, 128, 500, heads=4, experts=4, experts_per_token=2)),
    Phase("decode", 1, 1, 10.0),
).graph
SLOW = DirectLink(3e-4, 1e8, kinds=("cpu", "rtx3060"), between_nodes=True)
FAST = DirectLink(1e-5, 1e9, between_nodes=True)


def farm() -> Platform:
    """Return three machines: the one of the host, one with two cards of a kind that is here too, one with a CPU."""
    devices = (
        Device("cpu", "cpu", is_host=True, node="here"),
        Device("mine", "rtx3060", node="here"),
        Device("far0", "rtx3060", node="attic"),
        Device("far1", "rx-7900-xtx", node="attic"),
        Device("old", "cpu", is_host=True, node="10.0.0.7:50099"),
    )
    return Platform(devices, direct_links=(SLOW, FAST))


def placement_on(platform: Platform, homes: list[int]) -> pk.Placement:
    """Return a placement of every block on a device, the embedding with the host, the head with the last block."""
    numbers = [int(name.split(".")[2]) if "layers" in name else -1 for name in GRAPH.op_names]
    ends = {"model.embed_tokens": 0}
    at = [homes[n] if n >= 0 else ends.get(name, homes[-1]) for n, name in zip(numbers, GRAPH.op_names, strict=True)]
    return pk.Placement(GRAPH.op_names, platform.device_names, np.array(at))


def test_devices_elsewhere_are_accelerators_behind_the_network() -> None:
    """Each pays the link from here, hosts elsewhere too; a kind that is on two machines becomes two."""
    seen = as_one_machine(farm())
    assert [each.kind for each in seen.devices] == [
        "cpu",
        "rtx3060",
        "rtx3060@attic:50052",
        "rx-7900-xtx",
        "cpu@10.0.0.7:50099",
    ]
    assert [each.is_host for each in seen.devices] == [True, False, False, False, False]
    assert seen.links["rtx3060@attic:50052"].bandwidth_bytes_per_s == SLOW.bandwidth_bytes_per_s
    assert seen.links["cpu@10.0.0.7:50099"].bandwidth_bytes_per_s == FAST.bandwidth_bytes_per_s
    assert seen.spec_of_kind["rtx3060@attic:50052"] == "rtx3060"
    assert not seen.direct_links
    here = Platform.of(cpu=1, rtx3060=1, host="cpu")
    assert as_one_machine(here) is here


def test_names_are_llama_cpp_s() -> None:
    """Devices count over all servers; cards of this machine count alone, and unused servers are not started."""
    seen = as_one_machine(farm())
    told = launch_of("llama.cpp", GRAPH, seen, placement_on(seen, [0, 1, 1, 3, 2, 4]))
    assert told.elsewhere == (
        "ggml-rpc-server -H 0.0.0.0 -p 50052 -d CUDA0,ROCm0  # on attic",
        "ggml-rpc-server -H 10.0.0.7 -p 50099 -d CPU  # on 10.0.0.7",
    )
    text = told.command
    assert "--rpc attic:50052,10.0.0.7:50099 --device CUDA0,RPC1,RPC0,RPC2 --tensor-split 2,1,1,2" in text
    alone = launch_of("llama.cpp", GRAPH, seen, placement_on(seen, [4] * BLOCKS))
    assert alone.elsewhere == ("ggml-rpc-server -H 10.0.0.7 -p 50099 -d CPU  # on 10.0.0.7",)
    assert "--rpc 10.0.0.7:50099 --device RPC0 " in alone.command


def test_unequal_cards_are_numbered_by_their_place() -> None:
    """CUDA begins with the fastest one otherwise; nothing is said of cards that are not used."""
    platform = Platform((Device("cpu", "cpu", is_host=True), Device("a", "rtx3060"), Device("b", "rtx4090")))
    for homes, told in (([0, 0, 0, 1, 2, 2], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}), ([0] * BLOCKS, {})):
        assert launch_of("llama.cpp", GRAPH, platform, placement_on(platform, homes)).environment == told


def test_a_host_elsewhere_gets_its_threads() -> None:
    """As many as the processor of its kind has cores."""
    named = farm().replace(spec_of_kind={"cpu": "ryzen-9-7950x"})
    seen = as_one_machine(named)
    told = launch_of("llama.cpp", GRAPH, seen, placement_on(seen, [0, 0, 0, 0, 2, 4]))
    assert told.elsewhere[1] == "ggml-rpc-server -H 10.0.0.7 -p 50099 -d CPU -t 16  # on 10.0.0.7"
    assert " -t 16 --rpc " in told.command


def test_rules_name_buffers_by_server() -> None:
    """A device is RPC2, and its buffer RPC0[...]: llama.cpp knows no other name for a rule."""
    seen = as_one_machine(farm())
    placement = placement_on(seen, [1, 1, 1, 2, 2, 2])
    at = placement.device_of_op.copy()
    moved = [op for op, name in enumerate(GRAPH.op_names) if "layers.0." in name and name.endswith("_exps")]
    at[moved] = 4
    told = launch_of("llama.cpp", GRAPH, seen, pk.Placement(GRAPH.op_names, seen.device_names, at))
    rule = told.arguments[told.arguments.index("--override-tensor") + 1]
    assert rule.endswith("=RPC0[10.0.0.7:50099]")
    assert told.arguments[told.arguments.index("--device") + 1] == "CUDA0,RPC0,RPC1"


def test_addresses_without_nodes() -> None:
    """A name with an address is enough; without a link the network is Ethernet of 1 Gbit/s."""
    seen = as_one_machine(Platform((Device("h", "cpu", is_host=True), Device("RPC[far]", "rtx4090"))))
    assert dict(seen.devices[1].properties) == {"RPC_ADDRESS": "far:50052", "RPC_DEVICE": "CUDA0"}
    assert seen.links["rtx4090"] == GIGABIT
    with pytest.raises(InvalidProblemError, match=r"device 'RPC1' is on another machine.*call it RPC\[HOST:50052\]"):
        as_one_machine(Platform((Device("h", "cpu", is_host=True), Device("RPC1", "rtx4090"))))


def test_a_step_takes_messages_and_bytes_per_server() -> None:
    """Against their counts: 8 messages, states in 32 bits, the mask and the logits, twice the latency."""
    link, context = pk.Link(2e-3, 1e8), 256
    described = describe_decoder(Decoder(BLOCKS, 64, 128, 500, heads=4))
    devices = (Device("cpu", "cpu", is_host=True), *(Device(f"RPC[far:{at}]", f"far{at}") for at in (1, 2)))
    specs = {kind: get_spec("cpu-8core-f32") for kind in ("cpu", "far1", "far2")}
    platform = as_one_machine(Platform(devices, links={"far1": link, "far2": link}))
    served = Serving(0, 100, context=context)
    task = decoder_task(described, served, platform, lambda graph: pk.Analytic(specs).cost_table(graph, platform))
    computed_s = given_report(task, Split(BLOCKS, (0, 0), has_head_on_host=True)).time_per_token_s
    state, mask = 64 * 4, context * 2
    sent = 8 * HEAD_BYTES + mask + 20
    for split, servers in ((Split(0, (BLOCKS, 0)), 1), (Split(0, (2, BLOCKS - 2)), 2)):
        per_token_s = given_report(with_server_steps(task), split).time_per_token_s
        # the first state goes out to the first server; then every state comes back and goes on; the logits come back
        moved = (2 * servers - 1) * state + servers * sent + 500 * 4
        told = servers * (8 * 31e-6 + 2 * link.latency_s) + moved / link.bandwidth_bytes_per_s
        assert computed_s is not None
        assert per_token_s == pytest.approx(computed_s + told, rel=1e-9)


def test_without_servers_nothing_is_added() -> None:
    """The same task."""
    platform = Platform((Device("cpu", "cpu", is_host=True), Device("a", "l4")))
    costs = pk.Analytic({"cpu": get_spec("cpu-8core-f32"), "l4": get_spec("l4")})
    described = describe_decoder(Decoder(BLOCKS, 64, 128, 500, heads=4))
    platform = costs.with_links(platform)
    task = decoder_task(described, Serving(8, 8), platform, lambda graph: costs.cost_table(graph, platform))
    assert with_server_steps(task) is task
