"""The commands: output, exit codes, and what they say when something is wrong."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.commands import output_of, refusal_of
from tpusim.cli.main import main

TRACES = Path(__file__).parents[2] / "traces"
LSTM = str(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
MLP = str(TRACES / "mlp_b1024.v5e.hlo.txt.gz")
POD = str(TRACES / "llama8b_decode_tp.v5e_2x4.hlo.txt.gz")

KEYS = {"program", "chip", "time_us", "ops", "memory", "unsupported", "warnings"}
OP_KEYS = {"name", "opcode", "category", "count", "time_us", "bound_by", "flops", "hbm_bytes"}
MEMORY_KEYS = {
    "argument_bytes",
    "output_bytes",
    "alias_bytes",
    "temp_bytes",
    "heap_bytes",
    "peak_hbm_bytes",
    "peak_vmem_bytes",
}


def test_run_prints_a_report(capsys):
    """Total time, bounds, utilisation, the longest ops, the compiler's estimate and memory."""
    text = output_of(capsys, "run", MLP)
    for words in ("jit__lambda on v5e (simulated)", "time", "bound by", "MXU", "HBM", "compiler", "peak HBM"):
        assert words in text


def test_json_has_the_stable_keys(capsys):
    """One object, whose keys users' scripts rely on."""
    found = json.loads(output_of(capsys, "run", MLP, "--json"))
    assert found.keys() >= KEYS
    assert found["ops"][0].keys() >= OP_KEYS
    assert found["memory"].keys() >= MEMORY_KEYS


@pytest.mark.parametrize("by", ["category", "source"])
def test_run_groups(capsys, by):
    """Grouped tables and JSON add up to the same time."""
    found = json.loads(output_of(capsys, "run", LSTM, "--json", "--by", by))
    assert sum(group["time_us"] for group in found["groups"]) == pytest.approx(found["time_us"])
    assert by in output_of(capsys, "run", LSTM, "--by", by)


def test_trace_is_well_formed(capsys, tmp_path):
    """Events have names, rows and times; the core's events do not overlap."""
    path = tmp_path / "t.json.gz"
    output_of(capsys, "run", LSTM, "--trace", str(path))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    core = sorted((e for e in events if e["ph"] == "X" and names[e["tid"]] == "XLA ops"), key=lambda e: e["ts"])
    assert {"XLA ops", "MXU", "HBM", "dma 0"} <= set(names.values())
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(core))


def test_traces_of_two_runs_are_the_same_bytes(capsys, tmp_path):
    """A trace can be compared, cached and hashed."""
    for name in ("a.json.gz", "b.json.gz"):
        output_of(capsys, "run", LSTM, "--trace", str(tmp_path / name))
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


@pytest.mark.parametrize(
    ("option", "ending"), [("trace", ".txt"), ("trace", ".gz"), ("save", ".txt"), ("links", ".csv")]
)
def test_a_file_that_no_tool_would_take_is_refused(capsys, tmp_path, option, ending):
    """Before anything runs, by the ending that the help names."""
    path = tmp_path / f"out{ending}"
    assert f"--{option}: expected a name that ends in .json" in refusal_of(
        capsys, "run", LSTM, f"--{option}", str(path)
    )
    assert not path.exists()


def test_override_changes_the_time(capsys):
    """-o replaces one figure of the chip."""
    slow = json.loads(output_of(capsys, "run", MLP, "--json", "-o", "clock_hz=0.75e9"))["time_us"]
    assert slow > 1.8 * json.loads(output_of(capsys, "run", MLP, "--json"))["time_us"]


def test_lowered_program_runs_again(capsys, tmp_path):
    """What --stop-after lowering prints is a program of its own, with the same time."""
    path = tmp_path / "lstm.program.json"
    path.write_text(output_of(capsys, "run", LSTM, "--stop-after", "lowering"))
    again = json.loads(output_of(capsys, "run", str(path), "--json"))
    assert again["time_us"] == json.loads(output_of(capsys, "run", LSTM, "--json"))["time_us"]


@pytest.mark.parametrize("stage", ["text", "lowering", "machine"])
def test_run_stops_after_any_stage(capsys, stage):
    """Each stage prints what it made."""
    assert output_of(capsys, "run", LSTM, "--stop-after", stage)


def test_fmt_prints_canonical_text(capsys, tmp_path):
    """Formatting what was formatted changes nothing."""
    path = tmp_path / "x.hlo"
    path.write_text(output_of(capsys, "fmt", LSTM))
    assert output_of(capsys, "fmt", str(path)) == path.read_text()


def test_layout_explains(capsys):
    """The command of the documentation."""
    text = output_of(capsys, "layout", "bf16[10,300]{1,0:T(8,128)(2,1)}", "--at", "3,129")
    assert "12,288" in text
    found = json.loads(output_of(capsys, "layout", "f32[3,5]{1,0:T(2,2)}", "--at", "2,3", "--json"))
    assert "17" in json.dumps(found)


def test_chips_lists_and_shows(capsys):
    """The list names all chips; one is shown with its sources."""
    assert all(name in output_of(capsys, "chips") for name in ("v2", "v3", "v4-megacore", "v5e", "v5p", "v6e", "v7x"))
    assert "819" in output_of(capsys, "chips", "v5e")
    assert json.loads(output_of(capsys, "chips", "v5e", "--json"))["facts"]


def test_ops_lists_every_opcode(capsys):
    """The table of operations, as JSON too."""
    assert "select-and-scatter" in output_of(capsys, "ops")
    assert len(json.loads(output_of(capsys, "ops", "--json"))) > 120


REFUSED = [
    (["run", "/no/such/file.hlo"], "No such file"),
    (["run", MLP, "--chip", "v9"], "unknown chip 'v9'"),
    (["run", MLP, "-o", "hbm.bandwith=1"], "hbm.bandwidth_bytes_per_second"),
    (["run", MLP, "--topology", "2by4"], "v5e:2x4"),
    (["run", MLP, "--topology", "v5e:2x2x2"], "links along 2 axes"),
    (["run", MLP, "--chip", "v5e", "--topology", "v5p:2x2"], "expected a slice of v5e"),
    (["run", POD, "--topology", "v5e:2x2"], "this slice has 4: expected as many, or a multiple, as v5e:2x4 has"),
    (["run", POD, "--topology", "v5p-8"], "as v5p:2x2x2, which is v5p-16, has"),
    (["run", POD, "--topology", "v5e:3x4"], "for 8 devices, this slice has 12: expected as many, or a multiple"),
    (["memory", POD, "--topology", "v5e:3x4"], "for 8 devices, this slice has 12"),
    (["run", POD, "--with", POD, "--topology", "v5e:2x4"], "the 2 programs of this run are for 16 devices, this slice"),
    (["layout", "f32[2"], "f32[2"),
    (["layout", "f32[2,3]", "--at", "5,5"], "5"),
    (["chips", "v5x"], "did you mean"),
    (["run", MLP, "--stop-after", "lowering", "--html", "x.html"], "--html: nothing runs with --stop-after lowering"),
    (["run", MLP, "--stop-after", "text", "--model-explorer", "x"], "--model-explorer: nothing runs with --stop-after"),
    (["run", MLP, "--stop-after", "text", "--json"], "--json: expected a stage that has a form of JSON"),
    (["sweep", MLP, "-o", "mxu.count=lin(1,2,99999999)"], "axis mxu.count: expected a number of points, at most"),
    (["run", MLP, "--against", "a.json"], "--against: expected --html FILE as well"),
    # Before the run, which would end with a message of its own.
    (["run", MLP, "--timeout", "1e-6", "--html", "x.html", "--against", "/no/such.json"], "/no/such.json: "),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_refusals_are_one_message_and_exit_code_1(capsys, arguments, words):
    """What is wrong, and what to do; never a traceback."""
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("tpusim: ")
    assert words in error


def test_groups_beyond_the_slice_are_refused(capsys, tmp_path):
    """Of a program that does not say how many devices it is for."""
    path = tmp_path / "gather.v5e.hlo"
    start = "HloModule m, is_scheduled=true\nENTRY e {\n  x = f32[8,128] parameter(0)\n  ROOT r = f32[32,128] "
    path.write_text(f"{start}all-gather(x), replica_groups={{{{0,1,2,3}}}}, dimensions={{0}}\n}}\n")
    error = refusal_of(capsys, "run", str(path), "--topology", "v5e:1x2")
    assert "groups and pairs of the program name 4 devices, this slice has 2" in error
    assert "4 on 2x2 chips" in output_of(capsys, "run", str(path), "--topology", "v5e:2x2")


@pytest.mark.parametrize("text", ["garbage", "HloModule m\nENTRY e {\n  x = f32[2 parameter(0)\n}\n"])
def test_bad_text_shows_place_and_caret(capsys, tmp_path, text):
    """File, line, column and the line with a caret."""
    path = tmp_path / "bad.v5e.hlo"
    path.write_text(text)
    assert main(["run", str(path)]) == 1
    assert f"{path}:" in (error := capsys.readouterr().err)
    assert "^" in error


def test_wrong_usage_is_exit_code_2():
    """The code that argparse gives to a wrong call."""
    with pytest.raises(SystemExit, match="2"):
        main(["run"])


def test_an_option_with_one_value_is_given_once(capsys):
    """The last one alone would run, as if nothing else had been asked; lists of chips may be either."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", MLP, "--chip", "v5e", "--chip", "v6e"])
    assert "--chip: expected once, found it twice, with 'v5e' and 'v6e'" in capsys.readouterr().err
    both = [["--chip", "v5e,v6e"], ["--chip", "v5e", "--chip", "v6e"]]
    assert len({output_of(capsys, "scale", MLP, *chips, "--quiet") for chips in both}) == 1


def test_files_to_write_have_names_of_their_own(capsys, tmp_path, monkeypatch):
    """One would be lost to the other; that of the program is another one, too, however it is spelt."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["run", MLP, "--save", "a.json", "--html", "./a.json"])
    assert stopped.value.code == 2
    assert "--html: expected another file than that of --save" in capsys.readouterr().err
    (tmp_path / "m.v5e.hlo.txt.gz").write_bytes(Path(MLP).read_bytes())
    for arguments in (["run", "--quiet", "--save"], ["compile", "-o"]):
        assert main([*arguments, str(tmp_path / "m.v5e.hlo.txt.gz"), "m.v5e.hlo.txt.gz"]) == 1
        expected = "expected another file than 'm.v5e.hlo.txt.gz', which is read"
        assert expected in capsys.readouterr().err
    assert (tmp_path / "m.v5e.hlo.txt.gz").read_bytes() == Path(MLP).read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", MLP, "--chip", "READ", "--save", "WRITTEN"],
        ["run", MLP, "--with", "READ", "--save", "WRITTEN"],
        ["run", MLP, "--infeed-pace", "READ", "--links", "WRITTEN"],
        ["run", MLP, "--html", "WRITTEN", "--against", "READ"],
        ["run", MLP, "--energy-table", "READ", "--counts", "WRITTEN"],
        ["compile", MLP, "--chip", "READ", "-o", "WRITTEN"],
        ["exec", MLP, "--inputs", "READ", "--outputs", "WRITTEN"],
        ["exec", MLP, "--infeed", "READ", "--outfeed", "WRITTEN"],
        ["sweep", "READ", "--csv", "WRITTEN"],
        ["sweep", MLP, "FOLDER/f*e", "--csv", "WRITTEN"],
        ["scale", "FOLDER/{name}le", "-o", "WRITTEN"],
        ["lower", MLP, "--chip", "READ", "-o", "WRITTEN"],
        ["plot", "sweep", "READ", "--x", "a", "--y", "b", "-o", "WRITTEN"],
        ["plot", "roofline", MLP, "--chip", "READ", "-o", "WRITTEN"],
    ],
    ids=lambda arguments: " ".join(text for text in arguments if text != MLP),
)
def test_what_is_read_is_not_written_over(capsys, tmp_path, monkeypatch, arguments):
    """Whatever it is: a chip, a study, inputs, points, another program; by its name or a pattern."""
    path = tmp_path / "file"
    path.write_text("as it was")
    monkeypatch.chdir(tmp_path)
    names = {"READ": str(path), "WRITTEN": "./file"}
    given = [names.get(text, text.replace("FOLDER", str(tmp_path))) for text in arguments]
    assert f"expected another file than {str(path)!r}, which is read" in refusal_of(capsys, *given)
    assert path.read_text() == "as it was"


def test_a_table_is_not_written_over_the_programs_of_a_study(capsys, tmp_path):
    """The study's file names them, and the command line does not."""
    program = tmp_path / "m.v5e.hlo.txt.gz"
    program.write_bytes(Path(MLP).read_bytes())
    (tmp_path / "study.toml").write_text('programs = ["*.hlo.txt.gz"]')
    said = refusal_of(capsys, "sweep", str(tmp_path / "study.toml"), "--csv", str(program), "--quiet")
    assert f"--csv: expected another file than {str(program)!r}, which is read" in said
    assert program.read_bytes() == Path(MLP).read_bytes()


def test_a_graph_has_a_second_file_which_is_no_other_one(capsys, tmp_path, monkeypatch):
    """The times that lie over it; a saved result of that name would be lost."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["run", MLP, "--model-explorer", "g.json", "--save", "g.node_data.json"])
    assert "--save: expected another file than that of --model-explorer" in capsys.readouterr().err


def test_a_file_to_write_is_no_folder(capsys):
    """As every other tool says of a name that ends like one."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", MLP, "--save", "x/"])
    assert "--save: expected a file, found the folder 'x/'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["systolic", "--m", "8", "--n", "8", "--k", "8"], "--rows"),
        (["layout", "f32[200,200]"], "--at"),
        (["run", MLP], "--price"),
        (["run", MLP], "--default-trip-count"),
        (["plot", "timeline", MLP, "-o", "t.png"], "--from"),
    ],
)
@pytest.mark.parametrize("text", ["1_28", "\u0661\u0662", "0x10", "1e999"])
def test_numbers_are_written_as_people_write_them(capsys, arguments, flag, text):
    """Python would also take digits of other scripts, and underscores between them."""
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, f"{flag}={text}"])
    assert f"argument {flag}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-5", "0", "nan", "inf", "soon", "1e19", "1e400"])
def test_a_timeout_is_above_zero_and_ends(capsys, text):
    """The simulated time that a run may take."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", MLP, f"--timeout={text}"])
    assert f"expected a number above 0 and at most 1e+18, found '{text}'" in capsys.readouterr().err


def test_a_timeout_is_shown_as_it_is_given(capsys):
    """However short it is."""
    assert main(["run", MLP, "--timeout=1e-300"]) == 1
    assert "not done after the 1e-300 us of --timeout" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--price", "--tokens"])
@pytest.mark.parametrize("text", ["-1", "nan", "1e25", "1e308", "1e400"])
def test_amounts_have_one_range(capsys, option, text):
    """Whichever end of it a number is beyond."""
    with pytest.raises(SystemExit, match="2"):
        main(["run", MLP, f"{option}={text}"])
    assert f"argument {option}: expected a number from 0 to 1e+24, found '{text}'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_closed_pipe_is_quiet():
    """``tpusim ops | head -1`` ends without a complaint."""
    command = f"{sys.executable} -m tpusim ops --json | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.slow
def test_program_from_standard_input():
    """``-`` reads standard input."""
    text = gzip.decompress(Path(LSTM).read_bytes())
    command = [sys.executable, "-m", "tpusim", "run", "-", "--chip", "v5e", "--json"]
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    assert json.loads(done.stdout)["time_us"] > 0
