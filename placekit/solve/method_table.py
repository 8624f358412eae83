"""The table of placekit's own methods: which class serves which method and objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from placekit.solve.method import Method

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Target: TypeAlias = str | type[Method]
"""A class, or where it is: ``module:Class``."""
ANY = "*"
"""In place of an objective's name: every objective without a class of its own."""

COMPOSED = "placekit.solvers.sequence.composed:Composed"
"""Class of methods in a row, ``first+second``."""
FIRST_ANSWERS = "placekit.solvers.generic.excess:offer_first_answers"
"""Function that offers what needs no search."""


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """One method of the table."""

    # ``module:Class``, or the class itself; or such by the name of the objective that it serves, `ANY` for others
    target: Target | Mapping[str, Target]
    family: str = "heuristic"  # ``"baseline"``, ``"heuristic"``, ``"exact"``, ``"learned"`` or ``"hybrid"``
    guarantee: str = "none"  # guarantee of the method's answer
    requires: tuple[str, ...] = ()  # packages that it imports
    extra: str | None = None  # the extra that installs them; None for a base dependency
    argument: str | None = None  # what must follow the colon in ``name:argument``; None if nothing must
    # the entry point that brought it; None for placekit's own and for those that were registered
    plugin: EntryPoint | None = None


SOLVERS = "solvers"
"""The extra of compiled kernels, HiGHS, OR-Tools and PuLP."""

OWN = {
    "auto": MethodEntry("placekit.solvers.sequence.auto:Auto", "hybrid", "the strongest sequence for the problem"),
    "single": MethodEntry("placekit.solvers.generic.baselines:SingleDevice", "baseline", "the best single device"),
    "round-robin": MethodEntry("placekit.solvers.generic.baselines:RoundRobin", "baseline"),
    "random": MethodEntry("placekit.solvers.generic.baselines:RandomSearch", "baseline", "best of N samples"),
    "enumerate": MethodEntry(
        "placekit.solvers.generic.enumeration.method:Enumerate", "exact", "optimal, for small problems"
    ),
    "dp": MethodEntry(
        {
            "throughput": "placekit.solvers.throughput.dp.exact:ThroughputDp",
            "offload-latency": "placekit.solvers.offload_latency.methods:OffloadLatencyDp",
        },
        "exact",
        "optimal among acyclic placements",
        ("numba",),
        SOLVERS,
    ),
    "chain": MethodEntry(
        dict.fromkeys(("throughput", "serial-latency"), "placekit.solvers.chain.method:Chain"),
        "exact",
        "optimal, where each class of ops feeds the next one",
    ),
    "dpl": MethodEntry(
        {"throughput": "placekit.solvers.throughput.dp.linear:LinearDp"},
        "heuristic",
        "optimal for the prefixes of some orders",
        ("numba",),
        SOLVERS,
    ),
    "ilp": MethodEntry(
        {
            "throughput": "placekit.solvers.throughput.programs:ThroughputIlp",
            "serial-latency": "placekit.solvers.assignment.ilp.solve:AssignmentIlp",
            "offload-latency": "placekit.solvers.offload_latency.methods:OffloadLatencyIlp",
        },
        "exact",
        "optimal if it ends; a bound at any time",
        ("numba", "pulp", "highspy"),
        SOLVERS,
    ),
    "cpsat": MethodEntry(
        {
            "throughput": "placekit.solvers.throughput.programs:ThroughputCpsat",
            "serial-latency": "placekit.solvers.assignment.cpsat.solve:AssignmentCpsat",
            "makespan": "placekit.solvers.makespan.methods:MakespanCpsat",
            "offload-latency": "placekit.solvers.offload_latency.methods:OffloadLatencyCpsat",
        },
        "exact",
        "optimal if it ends; a bound at any time",
        ("numba", "ortools"),
        SOLVERS,
    ),
    "mincut": MethodEntry(
        {"serial-latency": "placekit.solvers.serial_latency.mincut:MinCut"},
        "exact",
        "optimal if it ends; at once for two kinds without limits",
        ("numba", "ortools", "pulp", "highspy"),
        SOLVERS,
    ),
    "local-search": MethodEntry(
        {
            "throughput": "placekit.solvers.throughput.local_search.multilevel:ThroughputLocalSearch",
            "makespan": "placekit.solvers.makespan.methods:MakespanLocalSearch",
            "offload-latency": "placekit.solvers.offload_latency.methods:OffloadLatencyLocalSearch",
            ANY: "placekit.solvers.generic.local_search:LocalSearch",
        },
        "heuristic",
        "best of many annealed placements",
        ("numba",),
        SOLVERS,
    ),
    "bound": MethodEntry(
        {
            "throughput": "placekit.solvers.throughput.bounds.portfolio:ThroughputBound",
            "serial-latency": "placekit.solvers.serial_latency.mincut:SerialLatencyBound",
            "makespan": "placekit.solvers.makespan.methods:MakespanBound",
            "offload-latency": "placekit.solvers.offload_latency.methods:OffloadLatencyBound",
            ANY: "placekit.solvers.generic.bounds.bound:QuickBound",
        },
        "exact",
        "lower bounds",
        ("numba", "highspy"),
        SOLVERS,
    ),
    "pipedream": MethodEntry(
        "placekit.solvers.generic.pipedream:PipeDream", "baseline", "optimal for PipeDream's own objective on a line"
    ),
    "greedy": MethodEntry("placekit.solvers.generic.greedy:Greedy", "baseline"),
    "metis": MethodEntry("placekit.solvers.generic.metis:Metis", "baseline", requires=("pymetis",), extra="partition"),
    "scotch": MethodEntry(
        "placekit.solvers.generic.scotch:Scotch", "baseline", requires=("pyscotch",), extra="partition"
    ),
    **{
        name: MethodEntry({"makespan": f"placekit.solvers.makespan.lists.schedulers:{scheduler}"})
        for name, scheduler in (("heft", "Heft"), ("m-topo", "MTopo"), ("m-etf", "MEtf"), ("m-sct", "MSct"))
    },
    **{
        name: MethodEntry(
            f"placekit.learned.{target}",
            "learned",
            "best placement seen during training; no bound",
            ("torch", *more),
            "learned",
        )
        for name, target, *more in (
            ("hsdag", "hsdag.method:Hsdag", "torch_geometric"),
            ("gdp", "placers.gdp:Gdp", "torch_geometric"),
            ("placeto", "placers.placeto:Placeto", "torch_geometric"),
            ("rnn", "placers.rnn:Rnn"),
            ("doppler", "doppler.method:Doppler", "torch_geometric"),
            ("imitation", "imitation.method:Imitation"),
        )
    },
    "policy-free": MethodEntry(
        "placekit.benchmarks.policy_free:PolicyFree",
        "baseline",
        "the search of hsdag without its network, as a control",
    ),
    "policy": MethodEntry(
        "placekit.learned.policy:TrainedPolicy",
        "learned",
        "best of a few samples of a trained policy",
        ("torch",),
        "learned",
        argument="PATH",
    ),
    "file": MethodEntry("placekit.solvers.generic.file_placement:FilePlacement", "baseline", argument="PATH"),
}
