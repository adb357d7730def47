"""Memory on a page: XLA's units, and its message about a program that does not fit."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from tpusim.analysis.memory import memory_report
from tpusim.hardware.load import load_chip
from tpusim.program.buffers import Buffer
from tpusim.program.module import Program
from tpusim.report.json.memory import memory_page
from tpusim.report.json.page import plain
from tpusim.report.out_of_memory import oom_text, xla_size
from tpusim.report.terminal.memory import render_memory

GIB = 2**30


def report(temporary: int, *, name: str = "t", op_name: str = "dot", source: str = "model.py:7", shape: str = "f32[2]"):
    """A program with one argument of 4 GiB and one temporary, half of it padding."""
    fields = {"space": "hbm", "first": 0, "last": 0}
    buffers = (
        Buffer(name="x", n_bytes=4 * GIB, kind="argument", shape="f32[1]", **fields),
        Buffer(
            name=name,
            n_bytes=temporary,
            unpadded_bytes=temporary // 2,
            kind="temporary",
            op_name=op_name,
            source=source,
            opcode="fusion",
            shape=shape,
            offset_bytes=0,
            **fields,
        ),
    )
    program = Program(
        name="p", chip="v5e", steps=(), buffers=buffers, schedule=(name,), argument_bytes=4 * GIB, output_bytes=8 * GIB
    )
    return memory_report(program, load_chip("v5e"))


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0B"), (512, "512B"), (47616, "46.5K"), (16384, "16.0K"), (258 << 20, "258.00M"), (8 * GIB, "8.00G")],
)
def test_sizes_are_written_as_xla_writes_them(n_bytes, text):
    """As in the messages of CompileTimeHbmOom: one decimal for K, two from M up."""
    assert xla_size(n_bytes) == text


def test_a_program_that_fits_has_no_message():
    """4 + 8 + 1 GiB of 16."""
    assert oom_text(report(GIB)) == ""


def test_the_message_is_xlas():
    """Used, capacity and excess; arguments and program; the largest buffers with their padding and source."""
    text = oom_text(report(8 * GIB))
    assert "Ran out of memory in memory space hbm. Used 20.00G of 15.75G hbm. Exceeded hbm capacity by 4.25G." in text
    assert re.search(r"Total hbm usage >= 20.25G:\n +reserved +256.00M\n +program +8.00G\n +arguments +4.00G\n", text)
    assert "Output size 8.00G; shares 0B with arguments." in text
    assert "(50.0% utilization: Unpadded (4.00G) Padded (8.00G), 0.0% fragmentation (0B))" in text
    assert 'Operator: op_name="dot" source_file="model.py" source_line=7' in text
    assert "Extra memory due to padding: 4.00G (2.0x expansion)" in text


def test_json_has_what_the_page_has():
    """Spaces by name, buffers with expansion, the message or an empty string."""
    data = plain(memory_page(report(GIB)))
    assert data["spaces"]["hbm"]["free_bytes"] == 3 * GIB - GIB // 4
    assert data["spaces"]["hbm"]["alive_at_peak"][1]["expansion"] == 2.0
    assert (data["padding"][0]["padding_bytes"], data["compiler_message"], data["simulated"]) == (GIB // 2, "", True)


@pytest.mark.parametrize("width", [100, 160])
def test_scopes_and_shapes_are_cut_before_names(width):
    """A scope of a deep model took all the room that a buffer's name had; of a scope the end says most."""
    console = Console(file=io.StringIO(), width=width)
    long = report(GIB, name="fusion.123", op_name="layer/" * 20 + "dot", shape="bf16[1024,2048]{1,0}" * 4)
    render_memory(long, console)
    text = console.file.getvalue()
    (row,) = (line for line in text.splitlines() if "temporary" in line and "model.py:7" in line)
    assert row.startswith("fusion.123")
    assert "1.00 GiB" in row
    assert "/layer/dot" in row
