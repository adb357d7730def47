"""A run of many devices as page, as JSON and as trace."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

import tpusim
from tpusim.cli.main import main
from tpusim.report.terminal.pod import render_pod
from tpusim.report.viewers.perfetto import pod_trace_json

TRACES = Path(__file__).parents[2] / "traces"
PIPELINE = TRACES / "host" / "two_stage_pipeline.v5e.hlo.txt.gz"
RING = TRACES / "llama8b_decode_tp.v5e_2x4.hlo.txt.gz"


def test_every_device_is_a_process_of_the_trace():
    """Those that do the same are one."""
    events = pod_trace_json(tpusim.simulate(PIPELINE).pod)["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert [name.split(" (simulated)")[0] for name in names] == ["v5e device 0", "v5e device 1"]


def test_an_arrow_leads_from_send_to_receive():
    """From the process of the sender, where its send begins, to the receiver's, where it has all."""
    run = tpusim.simulate(PIPELINE).pod
    start, end = (e for e in pod_trace_json(run)["traceEvents"] if e["ph"] in "sf")
    receive = next(r for r in run.timelines[1].records if r.name == "recv")
    assert (start["pid"], end["pid"]) == (1, 2)
    assert end["ts"] * 1e6 == pytest.approx(receive.end_ps)
    assert start["id"] == end["id"]


def test_equal_devices_are_one_process():
    """And its name says how many there are."""
    events = pod_trace_json(tpusim.simulate(RING).pod)["traceEvents"]
    (name,) = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert name.startswith("v5e on 8 devices alike")


def test_the_page_shows_devices_collectives_and_links(capsys):
    """Each with its heading."""
    assert main(["run", str(RING), "--quiet"]) == 0
    page = capsys.readouterr().out
    assert "devices   8 on 2x4 chips, numbered along a ring of neighbours" in page
    assert "all-gather.28" in page
    assert "links     20 used" in page


def test_copies_of_a_program_are_called_so(capsys):
    """On a slice of twice its devices."""
    for topology, count in (("v5e:2x4", 0), ("v5e:4x4", 1)):
        assert main(["run", str(RING), "--quiet", "--topology", topology]) == 0
        assert capsys.readouterr().out.count("2 copies of the program side by side") == count


def test_a_bandwidth_is_called_one(capsys):
    """By the words of nccl-tests; and collectives that have no line of their own are counted."""
    assert main(["run", str(RING), "--quiet"]) == 0
    page = capsys.readouterr().out
    (head,) = [line for line in page.splitlines() if line.startswith("collective ")]
    assert head.split()[-2:] == ["algbw", "busbw"]
    assert "algbw: bytes over time" in page
    use = tpusim.simulate(RING).communication
    console = Console(file=io.StringIO(), width=160)
    render_pod(structs.replace(use, collectives=use.collectives[:1] * 11), console)
    assert "... and 3 more (--json has them all)" in console.file.getvalue()


def test_the_head_says_which_device_it_is_of(capsys):
    """Both stages end together; where one device stands for all, or is alone, nothing has to be said."""
    assert main(["run", str(PIPELINE), "--quiet"]) == 0
    assert "  device    0 of 2, the first of those that ended last\n" in capsys.readouterr().out
    assert main(["run", str(PIPELINE), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == 0
    assert main(["run", str(RING), "--quiet"]) == 0
    assert "  device  " not in capsys.readouterr().out


def test_one_chip_has_no_such_part(capsys):
    """The page of a program for one device ends with its memory."""
    assert main(["run", str(TRACES / "mlp_b1024.v5e.hlo.txt.gz"), "--quiet"]) == 0
    assert "links" not in capsys.readouterr().out


def test_json_and_heat_map_agree(capsys, tmp_path):
    """The number of links in one is that of rows in the other, and shares are shares."""
    path = tmp_path / "links.json"
    assert main(["run", str(RING), "--json", "--links", str(path)]) == 0
    pod = json.loads(capsys.readouterr().out)["pod"]
    rows = [row for row in json.loads(path.read_text())["links"] if row["link"][0] in "+-"]
    assert pod["links"]["used"] == len(rows) == 20
    assert max(row["busy"] for row in rows) == pytest.approx(pod["links"]["busiest_share"])


def test_programs_of_one_name_are_no_copies(capsys):
    """JAX calls every function without a name alike."""
    assert main(["run", str(TRACES / "mlp_b1024.v5e.hlo.txt.gz"), "--with", str(RING), "--quiet"]) == 0
    assert "copies of the program" not in capsys.readouterr().out


def test_programs_run_side_by_side(capsys):
    """A second program for two chips on the next two."""
    assert main(["run", str(PIPELINE), "--with", str(PIPELINE), "--quiet"]) == 0
    assert "devices   4 on 2x2 chips, numbered by coordinates" in capsys.readouterr().out


def test_a_run_out_of_time_is_refused(capsys):
    """The message says where the devices are."""
    assert main(["run", str(PIPELINE), "--timeout", "5", "--quiet"]) == 1
    assert "not done after the 5 us of --timeout: device 0 is at" in capsys.readouterr().err
