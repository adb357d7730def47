"""A program as a graph for Model Explorer, with the simulated time of every node as a second file to lay over it.

The format is that of google-ai-edge/model-explorer: ``input_graph.ts`` (a collection of graphs, the largest of which is
shown first) and ``node_data_builder.py`` (values by graph and node). What takes time by itself is one graph, loops and
branches with what they run; the computations of fusions are others. Scopes of the framework (``op_name``) are layers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tpusim.analysis.utilisation import Group
from tpusim.errors import ConfigError
from tpusim.files import write_whole
from tpusim.ir.frames import SourceFrames, handed_on
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import CONTROL_FLOW
from tpusim.program.module import children
from tpusim.program.steps import AnyStep
from tpusim.report.result import ResultLike
from tpusim.report.tables import count_text, size_text, time_text
from tpusim.semantics.contents import running_computations
from tpusim.shapes.shape import shape_text
from tpusim.units import ps_to_us

# From nothing to the longest op, light to dark, as text stays black.
_COLOURS = (("0", "#ffffff"), ("0.25", "#fde3b8"), ("1", "#ef8a17"))


def write_model_explorer(result: ResultLike, path: str | Path) -> Path:
    """Write the graph to ``path`` (``.json``) and the times beside it; return the name of the latter."""
    check_graph_name(path)
    target = Path(path)
    overlay = target.with_name(overlay_name(target.name))
    graphs = graphs_json(result)
    write_whole(target, json.dumps(graphs, separators=(",", ":")) + "\n")
    write_whole(overlay, json.dumps(node_data_json(result, graphs), separators=(",", ":")) + "\n")
    return overlay


def check_graph_name(path: str | Path) -> None:
    """Raise ConfigError for the name of a file that is no graph's."""
    # Model Explorer takes a file for what its ending says.
    if Path(path).suffix != ".json":
        raise ConfigError(f"--model-explorer: expected a name that ends in .json, found {str(path)!r}")


def overlay_name(name: str) -> str:
    """Return the name of the file of times to lay over the graph in a file of this name."""
    return f"{name.removesuffix('.json')}.node_data.json"


def graphs_json(result: ResultLike) -> dict[str, Any]:
    """Return the collection of graphs: of the module's computations, or of the steps if there is no text."""
    groups = {group.name: group for group in result.summary.ops}
    module = result.module
    if module is None:
        graphs = list(_step_graphs(result.program.name, result.program.steps, groups))
    else:
        running = running_computations(module)
        names = {computation.name for computation in running}
        inside = [computation for computation in module.computations if computation.name not in names]
        nodes = partial(_nodes, module, SourceFrames(module), groups)
        graphs = [{"id": module.entry_name, "nodes": list(chain.from_iterable(map(nodes, running)))}]
        graphs += [{"id": one.name, "nodes": list(nodes(one))} for one in inside]
    about = {
        "program": result.program.name,
        "chip": result.chip.name,
        "time": time_text(result.summary.total_ps),
        "simulated": "times come from a model of the chip, not from hardware",
    }
    # The attributes of the namespace "" are those of the whole graph.
    graphs[0]["groupNodeAttributes"] = {"": about}
    return {"label": f"{result.program.name} on {result.chip.name} (simulated)", "graphs": graphs}


def node_data_json(result: ResultLike, graphs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the microseconds of every node that takes time, by graph, with the colours to show them in."""
    times_ps = {group.name: group.time_ps for group in result.summary.ops}
    found = {}
    for graph in graphs["graphs"]:
        results = {
            n["id"]: {"value": ps_to_us(times_ps[n["label"]])} for n in graph["nodes"] if times_ps.get(n["label"])
        }
        if results:
            gradient = [{"stop": float(stop), "bgColor": colour} for stop, colour in _COLOURS]
            found[graph["id"]] = {"results": results, "gradient": gradient}
    return found


def _nodes(
    module: Module, frames: SourceFrames, groups: Mapping[str, Group], computation: Computation
) -> Iterator[dict[str, Any]]:
    """Yield the instructions of a computation as nodes, each in a scope."""
    prefix = "" if computation.name == module.entry_name else f"{computation.name}:"
    # Where nothing is known of its origin, what a loop runs is a layer of its own.
    scopes = _scopes(computation, prefix.removesuffix(":"))
    for instruction in computation:
        source = frames.sources(computation)[instruction.name]
        node = _instruction_node(instruction, scopes[instruction.name], source, groups)
        # Names need be unique only in their computation.
        node["id"] = prefix + node["id"]
        for edge in node["incomingEdges"]:
            edge["sourceNodeId"] = prefix + edge["sourceNodeId"]
        yield node


def _scopes(computation: Computation, otherwise: str) -> dict[str, str]:
    """Return the scope of every instruction: what a compiler has put in stands where it is used, or comes from."""
    return handed_on(computation, {i.name: _scope(i.metadata.op_name) for i in computation}, otherwise)


def _scope(op_name: str) -> str:
    """Return the layer that an origin stands in; empty parts would be layers without a name."""
    return "/".join(scope for scope in op_name.split("/")[:-1] if scope)


def _instruction_node(instruction: Instruction, scope: str, source: str, groups: Mapping[str, Group]) -> dict[str, Any]:
    shape = shape_text(instruction.shape)
    facts = {"opcode": instruction.opcode, "shape": shape, **_figures(groups.get(instruction.name))}
    facts |= {"op_name": instruction.metadata.op_name, "source": source}
    called = () if instruction.opcode in CONTROL_FLOW else instruction.called_computations
    return _node(instruction.name, scope, facts, instruction.operands, called)


def _node(
    name: str, scope: str, facts: Mapping[str, str], needs: Iterable[str], called: Iterable[str]
) -> dict[str, Any]:
    """Return a node, in the layer that is its scope."""
    node: dict[str, Any] = {
        "id": name,
        "label": name,
        "namespace": scope,
        "attrs": _pairs(facts),
        # From the nodes that it needs, in the order of its inputs.
        "incomingEdges": [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(place)}
            for place, source in enumerate(needs)
        ],
    }
    if "shape" in facts:
        node["outputsMetadata"] = [{"id": "0", "attrs": _pairs({"shape": facts["shape"]})}]
    graphs = list(called)
    return node | ({"subgraphIds": graphs} if graphs else {})


def _figures(group: Group | None) -> dict[str, str]:
    if group is None:
        return {}
    return {
        "time": time_text(group.time_ps),
        "time beside the core": time_text(group.beside_ps) if group.beside_ps else "",
        "executions": f"{group.count:,}",
        "bound by": group.bound_by,
        "FLOP": count_text(group.flops),
        "HBM traffic": size_text(group.hbm_bytes),
        "category": group.category,
    }


def _pairs(facts: Mapping[str, str]) -> list[dict[str, str]]:
    """Return facts as the format has them; nothing is said about what is not known."""
    return [{"key": key, "value": value} for key, value in facts.items() if value]


def _step_graphs(name: str, steps: tuple[AnyStep, ...], groups: Mapping[str, Group]) -> Iterator[dict[str, Any]]:
    """Yield the steps of a lowered program as a graph, and those inside loops, branches and calls as others."""
    inner = {step.name: [listed for listed, _ in children(step) if listed] for step in steps}
    called = {owner: [f"{owner}.{place}" for place in range(len(lists))] for owner, lists in inner.items()}
    here = {step.name for step in steps}
    nodes = []
    for step in steps:
        facts = {"opcode": step.opcode, **_figures(groups.get(step.name)), "source": step.source}
        needs = [source for source in step.needs if source in here]
        nodes.append(_node(step.name, _scope(step.op_name), facts, needs, called[step.name]))
    yield {"id": name, "nodes": nodes}
    for owner, lists in inner.items():
        for graph, listed in zip(called[owner], lists, strict=True):
            yield from _step_graphs(graph, listed, groups)
