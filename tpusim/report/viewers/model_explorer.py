"""A program as a graph for Model Explorer, with the simulated time of every node as a second file to lay over it.

The format is that of google-ai-edge/model-explorer: ``input_graph.ts`` (a collection of graphs, the first of which is
shown first) and ``node_data_builder.py`` (values by graph and node). Every computation is a graph; scopes of the
framework (``op_name``) are its layers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tpusim.analysis.utilisation import Group
from tpusim.errors import ConfigError
from tpusim.files import write_whole
from tpusim.ir.module import Instruction
from tpusim.ir.ops import CALLS
from tpusim.program.module import children
from tpusim.program.steps import AnyStep
from tpusim.report.result import ResultLike
from tpusim.report.tables import count_text, size_text, time_text
from tpusim.shapes.shape import shape_text
from tpusim.units import ps_to_us

_RUNS_OTHERS = CALLS - {"fusion"}
"""Opcodes whose computations take time by themselves; what a fusion calls is part of one kernel."""

# From nothing to the longest op, light to dark, as text stays black.
_COLOURS = (("0", "#ffffff"), ("0.25", "#fde3b8"), ("1", "#ef8a17"))


def write_model_explorer(result: ResultLike, path: str | Path) -> Path:
    """Write the graph to ``path`` (``.json``) and the times beside it; return the name of the latter."""
    target = Path(path)
    # Model Explorer takes a file for what its ending says.
    if target.suffix != ".json":
        raise ConfigError(f"--model-explorer: expected a name that ends in .json, found {str(path)!r}")
    overlay = target.with_name(f"{target.stem}.node_data.json")
    graphs = graphs_json(result)
    write_whole(target, json.dumps(graphs, separators=(",", ":")) + "\n")
    write_whole(overlay, json.dumps(node_data_json(result, graphs), separators=(",", ":")) + "\n")
    return overlay


def graphs_json(result: ResultLike) -> dict[str, Any]:
    """Return the collection of graphs: of the module's computations, or of the steps if there is no text."""
    groups = {group.name: group for group in result.summary.ops}
    module = result.module
    if module is None:
        graphs = list(_step_graphs(result.program.name, result.program.steps, groups))
    else:
        entry_first = sorted(module.computations, key=lambda one: one.name != module.entry_name)
        graphs = [{"id": one.name, "nodes": [_instruction_node(each, groups) for each in one]} for one in entry_first]
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
    times_ps = _times_ps(result)
    found = {}
    for graph in graphs["graphs"]:
        results = {n["id"]: {"value": ps_to_us(times_ps[n["id"]])} for n in graph["nodes"] if times_ps.get(n["id"])}
        if results:
            gradient = [{"stop": float(stop), "bgColor": colour} for stop, colour in _COLOURS]
            found[graph["id"]] = {"results": results, "gradient": gradient}
    return found


def _times_ps(result: ResultLike) -> dict[str, int]:
    """Return the core's time for every op, and for those that run computations that of all ops in them."""
    times = {group.name: group.time_ps for group in result.summary.ops}
    if result.module is None:
        return times
    # Called computations stand before their callers, so that what they take is known by then.
    for computation in result.module.computations:
        for instruction in computation:
            if instruction.opcode in _RUNS_OTHERS:
                inside = (result.module[name] for name in instruction.called_computations)
                own = times.get(instruction.name, 0)
                times[instruction.name] = own + sum(times.get(i.name, 0) for called in inside for i in called)
    return times


def _instruction_node(instruction: Instruction, groups: Mapping[str, Group]) -> dict[str, Any]:
    shape = shape_text(instruction.shape)
    facts = {"opcode": instruction.opcode, "shape": shape, **_figures(groups.get(instruction.name))}
    origin = instruction.metadata
    written = f"{origin.source_file}:{origin.source_line}" if origin.source_file else ""
    facts |= {"op_name": origin.op_name, "source": facts.get("source") or written}
    return _node(instruction.name, origin.op_name, facts, instruction.operands, instruction.called_computations)


def _node(
    name: str, op_name: str, facts: Mapping[str, str], needs: Iterable[str], called: Iterable[str]
) -> dict[str, Any]:
    """Return a node, in the scopes that ``op_name`` says it stands in; empty ones would be layers without a name."""
    node: dict[str, Any] = {
        "id": name,
        "label": name,
        "namespace": "/".join(scope for scope in op_name.split("/")[:-1] if scope),
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
        "source": group.source,
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
        nodes.append(_node(step.name, step.op_name, facts, needs, called[step.name]))
    yield {"id": name, "nodes": nodes}
    for owner, lists in inner.items():
        for graph, listed in zip(called[owner], lists, strict=True):
            yield from _step_graphs(graph, listed, groups)
