"""Split a model into stages that OpenVINO can run one after another.

A stage is a model of its own. Tensors are known by their key (friendly name of the producing op, output port):
a stage's Parameters are the tensors that it takes from other stages or from the model's inputs, its Results are the
tensors that other stages or the model's outputs need. Constants, and what is computed from constants alone, are
copied into every stage that uses them. So is the value of a tensor that depends on known shapes alone: as an input of
a stage, a shape would be data, and the ops that take it would lose their own known shapes. A variable, the state that a
model keeps between inferences, is kept by the one stage that reads and assigns it.

Running a split model: put the model's inputs under `model_input_keys` into a dictionary, run the stages in the
returned order, each reading `SubModel.inputs` from the dictionary and writing `SubModel.outputs` to it, and read the
model's outputs under `model_output_keys`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from placekit.arrays import topological_order
from placekit.io.models.openvino_graph import ALWAYS_PLACED, STATEFUL, short_reason
from placekit.model.errors import InvalidProblemError, UnsupportedProblemError

if TYPE_CHECKING:
    import openvino

TensorKey: TypeAlias = tuple[str, int]
"""Friendly name of the producing op, and its output port."""

_BOUNDARY = frozenset({"Parameter", "Result"})


@dataclass(frozen=True, eq=False)
class SubModel:
    """One part of a split model.

    Parameters
    ----------
    label
        The stage's number in the map that was given to `split_model`.
    model
        The part as a model; shares weights with the model that was split, nothing else.
    inputs
        Key of each of the model's inputs, in their order.
    outputs
        Key of each of the model's outputs, in their order.
    op_names
        Friendly names of the ops inside, copied constants left out, in topological order.
    """

    label: int
    model: openvino.Model
    inputs: tuple[TensorKey, ...]
    outputs: tuple[TensorKey, ...]
    op_names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"SubModel({self.label}: {len(self.op_names)} ops, {len(self.inputs)} in, {len(self.outputs)} out)"


def model_input_keys(model: openvino.Model) -> tuple[TensorKey, ...]:
    """Return the key of every input of `model`, in the order in which it takes them."""
    return tuple((parameter.get_friendly_name(), 0) for parameter in model.get_parameters())


def model_output_keys(model: openvino.Model) -> tuple[TensorKey, ...]:
    """Return the key of the tensor behind every output of `model`, in the order in which it returns them."""
    # get_results() and not a topological order, in which outputs may be swapped
    return tuple(_source_key(result.input(0)) for result in model.get_results())


def _source_key(target: Any) -> TensorKey:
    source = target.get_source_output()
    return source.get_node().get_friendly_name(), source.get_index()


def _is_constant(node: Any, known: set[str], named: Mapping[str, object]) -> bool:
    """Return True if `node` is a constant, or follows from `known` nodes alone and has no stage."""
    if node.get_type_name() == "Constant":
        return True
    name = node.get_friendly_name()
    return (
        name not in named
        and node.get_input_size() > 0
        and node.get_type_name() != "Result"
        and all(_source_key(each)[0] in known for each in node.inputs())
    )


def _computing_nodes(model: openvino.Model, named: Mapping[str, object]) -> tuple[list[Any], set[str]]:
    """Return the nodes that belong to a stage, in topological order, and the names of the constant ones."""
    computing: list[Any] = []
    constant: set[str] = set()
    seen: set[str] = set()
    for node in model.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        if name in seen:
            raise InvalidProblemError(f"model {model.get_friendly_name()!r}: two ops are named {name!r}")
        seen.add(name)
        if kind in _BOUNDARY:
            continue
        if _is_constant(node, constant, named):
            constant.add(name)
        elif name not in named:
            raise InvalidProblemError(f"op {name!r} ({kind}) has no stage; every op that is no constant needs one")
        else:
            computing.append(node)
    return computing, constant


def split_model(model: openvino.Model, stage_of_op: Mapping[str, int]) -> list[SubModel]:
    """Split `model` into one model per stage.

    Parameters
    ----------
    model
        The model; it is left as it is.
    stage_of_op
        Stage number of every op that is no constant, by friendly name. Parameters and Results need none.

    Returns
    -------
    list[SubModel]
        In an order in which they can run: a stage comes after those whose tensors it takes. A stage that only a
        Parameter or Result has a number for does not appear.

    Raises
    ------
    InvalidProblemError
        An op without a stage, or stages that wait for each other in a circle (`few_stages` makes stages that
        do not).
    UnsupportedProblemError
        A variable that is read in one stage and assigned in another.

    Notes
    -----
    O(ops + edges), and no weight is copied.
    """
    from openvino import opset13 as opset

    work = model.clone()
    computing, constant = _computing_nodes(work, stage_of_op)
    stage_of = {node.get_friendly_name(): stage_of_op[node.get_friendly_name()] for node in computing}
    sinks = _sinks(computing, stage_of)
    order = _stage_order(computing, stage_of)
    known = _known_values(model, computing, constant, stage_of)
    taken: dict[int, dict[TensorKey, Any]] = {stage: {} for stage in order}
    given: dict[int, dict[TensorKey, Any]] = {stage: {} for stage in order}
    for result in work.get_results():
        key, source = _source_key(result.input(0)), result.input(0).get_source_output()
        if key[0] in stage_of:
            given[stage_of[key[0]]][key] = source
        elif key[0] in constant and order:  # an output that depends on no input: any stage can hand it out
            given[order[0]][key] = source
    for node in computing:
        stage = stage_of[node.get_friendly_name()]
        for target in node.inputs():
            key, source = _source_key(target), target.get_source_output()
            if key[0] in constant or stage_of.get(key[0]) == stage:
                continue
            if key in known:
                target.replace_source_output(known[key])
                continue
            if key not in taken[stage]:
                parameter = opset.parameter(source.get_partial_shape(), source.get_element_type())
                parameter.set_friendly_name(f"{key[0]}:{key[1]}")
                taken[stage][key] = parameter
                if key[0] in stage_of:
                    given[stage_of[key[0]]][key] = source
            target.replace_source_output(taken[stage][key].output(0))
    members: dict[int, list[str]] = {stage: [] for stage in order}
    for name, stage in stage_of.items():
        members[stage].append(name)
    stages = []
    for stage in order:
        if not given[stage] and not sinks.get(stage):  # nothing reads what it computes
            continue
        name = f"{model.get_friendly_name()}.{stage}"
        part = _part(name, list(taken[stage].values()), given[stage], sinks.get(stage, []))
        stages.append(SubModel(stage, part, tuple(taken[stage]), tuple(given[stage]), tuple(members[stage])))
    return stages


def _part(name: str, parameters: list[Any], given: Mapping[TensorKey, Any], sinks: list[Any]) -> openvino.Model:
    from openvino import Model
    from openvino import opset13 as opset

    results = []
    for key, source in given.items():
        result = opset.result(source)
        result.set_friendly_name(f"{key[0]}:{key[1]}:out")
        results.append(result)
    # a clone, so that no node is shared: neither a constant with another stage nor an output with old consumers
    part = Model(results, sinks, parameters, name).clone()
    try:  # what a file of the stage says: no shape that only the whole model knew
        part.validate_nodes_and_infer_types()
    except RuntimeError as error:  # such as a variable whose first value has a shape of another stage
        raise UnsupportedProblemError(
            f"stage {name!r} is no model of its own with open dimensions ({short_reason(error)}): pass --shape"
        ) from error
    return part


def _known_values(
    model: openvino.Model, computing: list[Any], constant: set[str], stage_of: Mapping[str, int]
) -> dict[TensorKey, Any]:
    """Return the outputs of constants for the tensors between stages that depend on known shapes alone."""
    from openvino import Model
    from openvino import opset13 as opset
    from openvino.passes import ConstantFolding, Manager

    shapes: dict[str, Any] = {}  # the ShapeOf ops
    derived: set[str] = set()
    cut: dict[TensorKey, None] = {}
    for node in computing:
        name, sources = node.get_friendly_name(), [_source_key(each) for each in node.inputs()]
        if node.get_type_name() == "ShapeOf" and node.get_input_partial_shape(0).is_static:
            shapes[name] = node
            derived.add(name)
        elif (
            node.get_type_name() not in ALWAYS_PLACED
            and any(key[0] in derived for key in sources)
            and all(key[0] in derived or key[0] in constant for key in sources)
        ):
            derived.add(name)
        cut |= {key: None for key in sources if key[0] in derived and stage_of[key[0]] != stage_of[name]}
    if not cut:
        return {}
    work = {node.get_friendly_name(): node for node in model.clone().get_ops()}
    outputs = {key: work[key[0]].output(key[1]) for key in cut}
    results = {key: opset.result(output) for key, output in outputs.items()}
    for name, node in shapes.items():
        shape = opset.constant(list(node.get_input_shape(0)), node.get_output_element_type(0))
        work[name].output(0).replace(shape.output(0))
    folding = Manager()
    folding.register_pass(ConstantFolding())
    folding.run_passes(Model(list(results.values()), [], "shapes"))
    found = {key: result.input(0).get_source_output() for key, result in results.items()}
    return {key: output for key, output in found.items() if output.get_node().get_type_name() == "Constant"}


def _sinks(computing: list[Any], stage_of: Mapping[str, int]) -> dict[int, list[Any]]:
    sinks: dict[int, list[Any]] = {}
    home: dict[str, tuple[str, int]] = {}
    for node in computing:
        if node.get_type_name() not in STATEFUL:
            continue
        name, variable = node.get_friendly_name(), node.get_attributes()["variable_id"]
        first, stage = home.setdefault(variable, (name, stage_of[name]))
        if stage != stage_of[name]:
            raise UnsupportedProblemError(
                f"variable {variable!r}: ops {first!r} and {name!r} keep its state between inferences, and others run "
                f"between them on another device (stages {stage} and {stage_of[name]}); use a placement that visits "
                "their device once, as contiguity acyclic gives"
            )
        if node.get_type_name() == "Assign":
            sinks.setdefault(stage, []).append(node)
    return sinks


def _stage_order(computing: list[Any], stage_of: Mapping[str, int]) -> list[int]:
    """Return the stages so that each comes after those that it takes tensors from; ties by first op."""
    labels = list(dict.fromkeys(stage_of.values()))
    index = {label: i for i, label in enumerate(labels)}
    edges = {
        (index[stage_of[producer]], index[stage_of[node.get_friendly_name()]])
        for node in computing
        for producer in (_source_key(each)[0] for each in node.inputs())
        if producer in stage_of and stage_of[producer] != stage_of[node.get_friendly_name()]
    }
    senders, receivers = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2).T
    order, stuck = topological_order(len(labels), senders, receivers)
    if stuck.size:
        names = ", ".join(str(labels[i]) for i in stuck[:8].tolist())
        raise InvalidProblemError(
            f"stages {names}{', ...' if stuck.size > 8 else ''} wait for each other's tensors and cannot run one after "
            "another"
        )
    return [labels[i] for i in order.tolist()]
