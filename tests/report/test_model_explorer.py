"""A program as a graph for Model Explorer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import tpusim
from tpusim.cli.main import main
from tpusim.pipeline.result import Result
from tpusim.report.viewers.model_explorer import graphs_json, node_data_json

TRACES = Path(__file__).parents[2] / "traces"
DECODE = TRACES / "llama1b_decode_b16s2048.v6e.hlo.txt.gz"


@pytest.fixture(scope="module")
def decode() -> Result:
    """Give a decoder step, with a loop over its layers."""
    return tpusim.simulate(DECODE)


@pytest.fixture(scope="module")
def graphs(decode) -> dict:
    """Give its graphs."""
    return graphs_json(decode)


def test_every_instruction_is_a_node_with_its_operands(decode, graphs):
    """Once in all graphs, edges in the order of the operands."""
    nodes = [node for graph in graphs["graphs"] for node in graph["nodes"]]
    assert Counter(node["label"] for node in nodes) == Counter(i.name for c in decode.module.computations for i in c)
    found = {node["label"]: node for node in nodes}
    for instruction in (i for c in decode.module.computations for i in c):
        edges = found[instruction.name]["incomingEdges"]
        assert [edge["sourceNodeId"].split(":")[-1] for edge in edges] == list(instruction.operands)
        assert [edge["targetNodeInputId"] for edge in edges] == [str(i) for i in range(len(edges))]


@pytest.mark.parametrize("name", ["llama1b_decode_b16s2048.v6e", "dlrm_b2048.v5p"])
def test_the_entry_is_the_largest_graph_and_has_layers(name):
    """Model Explorer opens the largest one; what the compiler has put in stands beside what it is for."""
    first, *others = graphs_json(tpusim.simulate(TRACES / f"{name}.hlo.txt.gz"))["graphs"]
    assert all(len(first["nodes"]) > len(other["nodes"]) for other in others)
    assert sum(not node["namespace"] for node in first["nodes"]) < 0.15 * len(first["nodes"])


def test_every_edge_begins_at_a_node(graphs):
    """Of its own graph."""
    for graph in graphs["graphs"]:
        known = {node["id"] for node in graph["nodes"]}
        assert {edge["sourceNodeId"] for node in graph["nodes"] for edge in node["incomingEdges"]} <= known


def test_the_entry_is_shown_first_and_says_that_it_is_simulated(decode, graphs):
    """Attributes of the empty namespace are the graph's."""
    first = graphs["graphs"][0]
    assert first["id"] == decode.module.entry_name
    assert "simulated" in graphs["label"]
    assert "simulated" in first["groupNodeAttributes"][""]


def test_every_subgraph_is_there(graphs):
    """A node can be opened into the computations that it calls."""
    known = {graph["id"] for graph in graphs["graphs"]}
    called = {name for graph in graphs["graphs"] for node in graph["nodes"] for name in node.get("subgraphIds", ())}
    assert called
    assert called <= known


def test_values_are_texts_and_ids_are_unique(graphs):
    """As ``types.ts`` has it: an attribute is a key and a text."""
    for graph in graphs["graphs"]:
        ids = [node["id"] for node in graph["nodes"]]
        assert len(ids) == len(set(ids))
        for node in graph["nodes"]:
            assert all(isinstance(pair["value"], str) and pair["value"] for pair in node["attrs"])
            assert not node["namespace"].startswith("/")
            assert "//" not in node["namespace"]


def test_times_of_the_entry_add_up_to_the_run(decode, graphs):
    """Those of what loops run included, each once."""
    data = node_data_json(decode, graphs)
    entry = data[decode.module.entry_name]["results"]
    assert sum(result["value"] for result in entry.values()) == pytest.approx(decode.summary.total_ps / 1e6)
    assert max(entry, key=lambda name: entry[name]["value"]).endswith(":fusion.159")


def test_a_lowered_program_is_a_graph_of_its_steps(tmp_path, capsys):
    """Edges are what a step waits for."""
    steps, graph = tmp_path / "steps.json", tmp_path / "graph.json"
    assert main(["lower", str(DECODE), "-o", str(steps)]) == 0
    assert main(["run", str(steps), "--quiet", "--model-explorer", str(graph)]) == 0
    capsys.readouterr()
    first, *others = json.loads(graph.read_text())["graphs"]
    wait = next(node for node in first["nodes"] if node["id"] == "copy-done")
    assert [edge["sourceNodeId"] for edge in wait["incomingEdges"]] == ["copy-start"]
    assert {name for node in first["nodes"] for name in node.get("subgraphIds", ())} <= {g["id"] for g in others}
    assert (tmp_path / "graph.node_data.json").exists()


def test_another_ending_is_refused(tmp_path, capsys):
    """Model Explorer goes by it."""
    assert main(["run", str(DECODE), "--quiet", "--model-explorer", str(tmp_path / "graph.txt")]) == 1
    assert ".json" in capsys.readouterr().err
