"""Graphs of researchers: what attributes mean, a round trip through networkx, and what is wrong with a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from strategies import examples, workload_problems

import placekit as pk
from placekit.io.files.detect import kind_of_file
from placekit.model.errors import InvalidFileError


def fork() -> nx.DiGraph[str]:
    """Return a fork: a (1 s, CPU only) feeds b and c (3 s on the CPU, 1 s on a GPU) with 1e8 bytes; two GPUs, 1e9 B/s.

    ::

        a -+-> b
           +-> c, on gpu.1
    """
    graph: nx.DiGraph[str] = nx.DiGraph(name="fork", objective="makespan")
    graph.graph |= {"devices.gpu": 2, "memory_bytes.gpu": 64.0, "bandwidth_bytes_per_s.gpu": 1e9, "latency_s.gpu": 0.5}
    graph.add_node("a", **{"time_s.cpu": 1.0, "type": "Conv", "bytes": 1e8, "memory_bytes": 8})
    graph.add_node("b", **{"time_s.cpu": 3.0, "time_s.gpu": 1.0})
    graph.add_node("c", **{"time_s.cpu": 3.0, "time_s.gpu": 1.0, "device": "gpu.1"})
    graph.add_edges_from([("a", "b"), ("a", "c")])
    return graph


def written(graph: nx.DiGraph[Any], path: Path) -> Path:
    """Write a graph as GraphML or as JSON, by the suffix."""
    if path.suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(graph)))
    else:
        nx.write_graphml(graph, path)
    return path


@pytest.mark.parametrize("name", ["fork.graphml", "fork.json"])
def test_attributes_become_times_bytes_memory_and_devices(name: str, tmp_path: Path) -> None:
    """In seconds and bytes; the optimum by hand: a on the CPU, b and c on a GPU each after 0.6 s, 2.6 s in all."""
    path = written(fork(), tmp_path / name)
    assert kind_of_file(path) == "graph"
    problem = pk.read_graph(path)
    assert problem.platform.device_names == ("cpu.0", "gpu.0", "gpu.1")
    assert [device.is_host for device in problem.platform.devices] == [True, False, False]
    assert problem.platform.devices[1].memory_bytes == 64
    assert problem.costs.op_time_s.tolist() == [[1, 0], [3, 1], [3, 1]]
    assert problem.costs.supported.tolist() == [[True, False], [True, True], [True, True]]
    assert problem.costs.transfer_time_s.tolist() == [[0, 0.6]]
    assert problem.costs.op_memory_bytes.tolist() == [8, 0, 0]
    assert problem.graph.op_types == ("Conv", "Op", "Op")
    result = pk.solve(problem, "enumerate")
    assert result.objective == pytest.approx(2.6)
    assert result.placement is not None
    assert result.placement.as_dict()["c"] == "gpu.1"


def as_networkx(problem: pk.Problem) -> nx.DiGraph[str]:
    """Return a problem as a graph with the attributes that `read_graph` takes."""
    graph, costs = problem.graph, problem.costs
    digraph = graph.to_networkx()
    for _, _, data in digraph.edges(data=True):
        data.clear()
    digraph.graph |= {"host": "cpu", "objective": problem.objective.name}
    for kind, name in enumerate(problem.platform.kinds):
        devices = problem.platform.devices_of_kind(kind)
        limit = problem.platform.devices[devices[0]].memory_bytes
        digraph.graph[f"devices.{name}"] = len(devices)
        digraph.graph |= {} if limit is None else {f"memory_bytes.{name}": limit}
        for op, op_name in enumerate(graph.op_names):
            if costs.supported[op, kind]:
                digraph.nodes[op_name][f"time_s.{name}"] = float(costs.op_time_s[op, kind])
        for tensor, producer in enumerate(graph.tensor_producer.tolist()):
            seconds = float(costs.transfer_time_s[tensor, kind])
            for reader in graph.consumers_of(tensor).tolist():
                digraph.edges[graph.op_names[producer], graph.op_names[reader]][f"transfer_s.{name}"] = seconds
    for op, op_name in enumerate(graph.op_names):
        label = f"class {problem.colocation[op]}"
        digraph.nodes[op_name].update(memory_bytes=float(costs.op_memory_bytes[op]), colocation=label)
    return digraph


@given(problem=workload_problems())
@examples(200)
def test_a_problem_goes_through_networkx_and_comes_back(problem: pk.Problem, tmp_path_factory: Any) -> None:
    """As GraphML and as JSON: graph, platform, costs, classes and objective are those that were written."""
    assume(problem.costs.supported.any(axis=1).all())
    names = {old: f"op {at}" for at, old in enumerate(problem.graph.op_names)}  # XML cannot hold any name
    digraph = nx.relabel_nodes(as_networkx(problem), names)
    digraph.name = "drawn"
    folder = tmp_path_factory.mktemp("graph")
    for path in (folder / "a.graphml", folder / "a.json"):
        back = pk.read_graph(written(digraph, path))
        mine = problem.costs.for_kinds(back.platform.kinds)
        used = [name for kind, name in enumerate(problem.platform.kinds) if problem.costs.supported[:, kind].any()]
        assert sorted(back.platform.kinds) == sorted(used)
        assert back.graph.op_names == tuple(names.values())
        assert back.graph.senders.tolist() == problem.graph.senders.tolist()
        assert back.graph.receivers.tolist() == problem.graph.receivers.tolist()
        for column in ("op_time_s", "op_memory_bytes", "supported"):
            assert getattr(back.costs, column).tolist() == getattr(mine, column).tolist()
        by_producer = np.argsort(problem.graph.tensor_producer, kind="stable")  # files have one tensor for each op
        assert back.costs.transfer_time_s.tolist() == mine.transfer_time_s[by_producer].tolist()
        assert back.graph.tensor_bytes.tolist() == problem.graph.tensor_bytes[by_producer].tolist()
        assert back.op_class.tolist() == problem.op_class.tolist()
        memory = {device.kind: device.memory_bytes for device in problem.platform.devices}
        assert all(device.memory_bytes == memory[device.kind] for device in back.platform.devices)


def on(place: str, key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a change of the first node or edge, or of the graph."""
    if place == "graph":
        return lambda data: data["graph"].update({key: value})
    return lambda data: data[place][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (on("nodes", "time_s.cpu", -1), "node 'a': time_s.cpu is -1; it must be a finite number >= 0"),
        (on("nodes", "memory_bytes", "2 GiB"), "node 'a': memory_bytes is '2 GiB'; it must be a finite number"),
        (on("nodes", "flops", True), "node 'a': flops is True"),
        (on("nodes", "is_backward", "no"), "node 'a': is_backward is 'no'; it must be true or false"),
        (on("nodes", "device", "gpu.2"), "node 'a': device is 'gpu.2'; devices are cpu.0, gpu.0, gpu.1"),
        (lambda data: data["nodes"][0].pop("time_s.cpu"), "node 'a' has no attribute time_s.KIND, its seconds"),
        (on("edges", "bytes", 7), "edge 'a' -> 'b' has bytes 7; 'a' or another of its out-edges has 100000000.0, and"),
        (on("edges", "target", "z"), "node 'z' has no attribute time_s.KIND"),
        (on("edges", "target", "a"), "op 'a' consumes its own output"),
        (on("graph", "host", "gpus"), "the graph: host is 'gpus'; kinds are cpu, gpu"),
        (on("graph", "objective", "fast"), "no objective 'fast'; objectives are throughput"),
        (lambda data: data.update(directed=False), "an undirected graph says nothing about the order of ops"),
        (lambda data: data.update(edges=3), "networkx cannot read it: TypeError"),
    ],
)
def test_what_is_wrong_is_named(change: Callable[[dict[str, Any]], Any], message: str, tmp_path: Path) -> None:
    """The node or edge, the attribute, the value and the bound."""
    data = nx.node_link_data(fork(), edges="edges")
    change(data)
    path = tmp_path / "fork.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InvalidFileError, match=re.escape(message)):
        pk.read_graph(path)


def test_xml_that_is_no_graph_is_named(tmp_path: Path) -> None:
    """Broken XML, and XML of something else."""
    for text, message in (("<graphml", "networkx cannot read it: ParseError"), ("<net/>", "networkx cannot read it")):
        path = tmp_path / "a.graphml"
        path.write_text(text)
        with pytest.raises(InvalidFileError, match=message):
            pk.read_graph(path)
