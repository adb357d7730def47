"""``tpusim systolic``: tables, JSON, files of layers, and what it says when something is wrong."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import output_of, refusal_of
from tpusim.cli import options as cli_options
from tpusim.cli import systolic as cli_systolic
from tpusim.hardware.array import DATAFLOWS, MODES

ONE = ("systolic", "--m", "1000", "--n", "256", "--k", "384")
SMALL = ("systolic", "--rows", "4", "--cols", "3", "--m", "9", "--n", "7", "--k", "5")
FIGURES = {"cycles", "folds", "macs", "utilization", "mapping_efficiency", "compute_utilization"}


@pytest.fixture
def layers(tmp_path):
    """Give the path of a file with two products."""
    path = tmp_path / "layers.csv"
    path.write_text("Layer,M,N,K,\nqkv,512,768,768,\nup,512,3072,768,\n")
    return str(path)


def test_one_product_is_a_line(capsys):
    """6 folds of 1000 rows, the load of the first tile and the way out of the last: 6382 cycles."""
    text = output_of(capsys, *ONE)
    assert "128 x 128, weight-stationary, overlap" in text
    assert text.splitlines()[3].split()[:6] == ["product", "1,000", "256", "384", "6", "6,382"]


def test_json_has_the_stable_keys(capsys):
    """One object, whose keys users' scripts rely on."""
    found = json.loads(output_of(capsys, *ONE, "--json"))
    assert found.keys() == {"array", "model", "layers", "total", "simulated", "schema_version"}
    assert found["layers"][0].keys() == FIGURES | {"name", "m", "n", "k", "memory"}
    assert found["total"].keys() == FIGURES


def test_layers_of_a_file_and_their_total(capsys, layers):
    """SCALE-Sim prints 32,183 and 128,735 cycles for these two."""
    lines = output_of(capsys, "systolic", "--layers", layers, "--mode", "scale-sim").splitlines()
    assert [line.split()[0] for line in lines[3:6]] == ["qkv", "up", "total"]
    assert [line.split()[-4] for line in lines[3:6]] == ["32,183", "128,735", "160,918"]


def test_columns_are_aligned(capsys, layers):
    """Every line of the table ends in the same column."""
    assert len({len(line) for line in output_of(capsys, "systolic", "--layers", layers).splitlines()[2:6]}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_both_models_print_the_same(capsys, dataflow):
    """All but the word that says which model it was."""
    fast, counted = (
        json.loads(output_of(capsys, *SMALL, "--json", "--dataflow", dataflow, "--model", model))
        for model in ("fast", "cycle")
    )
    assert fast.pop("model") != counted.pop("model")
    assert fast == counted


def test_options_are_the_words_of_the_array():
    """The command line has them written out, to start fast."""
    assert (cli_options.DATAFLOWS, cli_systolic.MODES) == (DATAFLOWS, MODES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--m", "3"), "found no --n"),
        (("--m", "3", "--n", "0", "--k", "1"), "--n: expected a whole number from 1, found 0"),
        (("--m", "3", "--layers", "x.csv"), "give either"),
        (("--layers", "no_such.csv"), "no_such.csv: cannot be read: No such file"),
        (("--rows", "0", "--m", "1", "--n", "1", "--k", "1"), "rows: expected a whole number from 1"),
        (("--m", "99999", "--n", "99999", "--k", "9", "--model", "cycle"), "use --model fast"),
    ],
)
def test_wrong_usage_is_refused_in_words(capsys, arguments, words):
    """Exit code 1, and what to do."""
    assert words in refusal_of(capsys, "systolic", *arguments)


def test_a_wrong_line_is_shown(capsys, tmp_path):
    """File, line, column and a caret."""
    path = tmp_path / "bad.csv"
    path.write_text("Layer,M,N,K,\na,1,2,3,\nb,1,two,3,\n")
    message = refusal_of(capsys, "systolic", "--layers", str(path))
    assert f"{path}:3:5: N: expected a whole number from 1, found 'two'" in message
    assert "    ^^^" in message


def test_a_file_that_is_no_text_is_refused(capsys, tmp_path):
    """The first byte that is not UTF-8 is named."""
    path = tmp_path / "layers.xlsx"
    path.write_bytes(b"PK\x03\x04\xff")
    assert "expected a CSV file of layers in UTF-8, found the byte 0xff" in refusal_of(
        capsys, "systolic", "--layers", str(path)
    )


CONFIG = """\
[general]
run_name = little
[architecture_presets]
ArrayHeight: 8
ArrayWidth: 12
IfmapSramSzkB: 16
FilterSramSzkB: 32
OfmapSramSzkB: 4
IfmapOffset: 0
Bandwidth : 16
Dataflow : os
[run_presets]
InterfaceBandwidth: USER
"""


@pytest.fixture
def config(tmp_path):
    """Give the path of one of SCALE-Sim's configurations."""
    path = tmp_path / "scale.cfg"
    path.write_text(CONFIG)
    return path


def test_a_configuration_adds_srams(capsys, config, layers):
    """A second table, with what DRAM moved, and the same in JSON."""
    text = output_of(capsys, "systolic", "-c", str(config), "-t", layers)
    assert "8 x 12, output-stationary, scale-sim" in text
    assert "DRAM ofmap" in text
    found = json.loads(output_of(capsys, "systolic", "-c", str(config), "-t", layers, "--json"))
    memory = found["layers"][0]["memory"]
    assert memory.keys() == {"cycles_with_prefetch", "cycles", "stall_cycles", "ifmap", "filter", "ofmap"}
    assert memory["cycles"] - memory["stall_cycles"] == found["layers"][0]["cycles"]


def test_reports_are_scale_sims_files(capsys, config, layers, tmp_path):
    """In a folder of the run's name, a line a layer after the header."""
    output_of(capsys, "systolic", "-c", str(config), "-t", layers, "-p", str(tmp_path / "results"))
    reports = {path.name: path.read_text() for path in (tmp_path / "results" / "little").iterdir()}
    assert reports.keys() == {"COMPUTE_REPORT.csv", "BANDWIDTH_REPORT.csv", "DETAILED_ACCESS_REPORT.csv"}
    assert {text.count("\n") for text in reports.values()} == {3}
    assert reports["COMPUTE_REPORT.csv"].startswith(
        "LayerID, Total Cycles (incl. prefetch), Total Cycles, Stall Cycles"
    )


def test_sparsity_counts_where_the_configuration_says_so(capsys, config, tmp_path):
    """Off by default, as there; on, a fourth report says what the filters take."""
    path = tmp_path / "sparse.csv"
    path.write_text("Layer,M,N,K,Sparsity,\na,30,20,64,2:4,\n")
    command = ("systolic", "-c", str(config), "-t", str(path), "-p", str(tmp_path / "out"), "--json")
    dense = json.loads(output_of(capsys, *command))["total"]["macs"]
    config.write_text(CONFIG + "[sparsity]\nSparsitySupport: true\nSparseRep: csr\n")
    sparse = json.loads(output_of(capsys, *command))["total"]["macs"]
    assert (dense, sparse) == (30 * 20 * 64, 30 * 20 * 32)
    assert (tmp_path / "out/little/SPARSE_REPORT.csv").read_text().splitlines()[1].startswith("0, csr, 1280, ")


ROWWISE = "SparsitySupport: true\nOptimizedMapping: true"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Dataflow : row", ":11:12: Dataflow: expected one of ws, os, is, found 'row'"),
        ("Dataflov : ws", ":11:1: unknown key 'Dataflov' (did you mean 'dataflow'?)"),
        ("just words", ":11:1: expected [section] or key: value"),
        ("", "expected 'dataflow', found no such key"),
        ("Dataflow: ws\nIfmapSRAMBankBandwidth: zero", ":12:25: expected a whole number from 1, found 'zero'"),
        ("Dataflow: ws\narrayheight: 4", ":12:1: expected 'arrayheight' once, found it twice"),
        (f"Dataflow: os\n{ROWWISE}\nBlockSize: 4", ":13:19: OptimizedMapping: expected Dataflow: ws"),
        (f"Dataflow: ws\n{ROWWISE}", "expected 'BlockSize', as OptimizedMapping is true, found no such key"),
        (f"Dataflow: ws\n{ROWWISE}\nBlockSize: 3", ":14:12: BlockSize: expected an even number of rows"),
        ("Dataflow: ws\nUseRamulatorTrace: True", ":12:20: DRAM times from Ramulator"),
        ("Dataflow: ws\nSparsitySupport: maybe", "expected True or False, found 'maybe'"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_place(capsys, config, layers, line, words):
    """File, line, column and what would be right."""
    config.write_text(CONFIG.replace("Dataflow : os", line))
    assert words in refusal_of(capsys, "systolic", "-c", str(config), "-t", layers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rows", "4"), "--rows: "),
        (("--arrays", "2"), "--arrays: "),
        (("--mode", "scale-sim"), "--mode: "),
    ],
)
def test_the_array_is_stated_once(capsys, config, layers, arguments, words):
    """What the configuration says is not said again."""
    message = refusal_of(capsys, "systolic", "-c", str(config), "-t", layers, *arguments)
    assert words in message
    assert "states the array: change it there" in message


def test_reports_need_a_configuration(capsys, layers, tmp_path):
    """SRAMs are stated there."""
    assert "expected -c FILE.cfg as well" in refusal_of(capsys, "systolic", "-t", layers, "-p", str(tmp_path))


def test_every_bandwidth_is_a_number(capsys, config, layers):
    """Of several the first one counts, as in SCALE-Sim, but the others are no place for anything."""
    config.write_text(CONFIG.replace("Bandwidth : 16", "Bandwidth : 16, junk"))
    message = refusal_of(capsys, "systolic", "-c", str(config), "-t", layers)
    assert ":10:13: expected a whole number from 1, found 'junk'" in message


def test_what_takes_too_many_lines_is_refused(capsys, config, tmp_path):
    """Each line is looked at by itself."""
    path = tmp_path / "long.csv"
    path.write_text("Layer,M,N,K,\nlong,1000000,100,100,\n")
    message = refusal_of(capsys, "systolic", "-c", str(config), "-t", str(path))
    assert "long: expected lines of requests, at most" in message
