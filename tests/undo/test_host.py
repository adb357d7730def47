"""Host memory of compiled programs, said as front ends say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tpusim.pipeline.schedules import front_end_form
from tpusim.pipeline.stages import check, load
from tpusim.semantics.memory_spaces import space_of
from tpusim.shapes.shape import leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.undo.host import name_moves

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests/data/hlo/host").glob("*.v5e.hlo.txt.gz"))

ENDS = """HloModule m{header}

ENTRY e {{
  x = f32[8,128]{layout} parameter(0)
  ROOT y = f32[8,128]{{1,0}} negate(x)
}}
"""


def is_sent(start):
    """Return whether the start of a copy, or of an update of a part, writes to host memory from the device."""
    copied = leaves(start.shape)[:2] if start.opcode == "copy-start" else ()
    updated = leaves(start.shape)[:2] if start.opcode == "dynamic-update-slice-start" else ()
    return [space_of(each) for each in copied or updated] == ["host", "hbm"]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name.partition(".")[0])
def test_moves_of_compiled_programs_become_calls(path):
    """As many to the host as there were copies and updates that went there, and no memory space is left."""
    module = load(path)
    text = front_end_form(module).text
    assert "S(5)" not in text
    assert text.count('"MoveToHost"') == sum(is_sent(i) for c in module.computations for i in c)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name.partition(".")[0])
def test_what_is_said_of_arguments_is_what_pjrt_said(path):
    """The oracle is the text's own header, which has it from JAX: of a text without it the layouts say the same."""
    said = re.findall(r'(?:arg|out)_memory_spaces="[^"]*5[^"]*"', load(path).text)
    bare = re.sub(r'(?:arg|out)_memory_spaces="[^"]*",?', "", load(path).text)
    named = name_moves(parse_module(SourceText("bare", bare)))
    assert check(named) == []
    assert re.findall(r'(?:arg|out)_memory_spaces="[^"]*5[^"]*"', named.text)[::-1] == said


@pytest.mark.parametrize(
    ("header", "layout"),
    [("", "{1,0:S(5)}"), (", entry_computation_layout={(f32[8,128]{1,0:S(5)})->f32[8,128]{1,0}}", "{1,0}")],
)
def test_what_nobody_has_scheduled_says_it_in_either_place(header, layout):
    """In the shape of the argument, or in the layout of the entry, as XLA leaves it behind its partitioner."""
    module = name_moves(parse_module(SourceText("m", ENDS.format(header=header, layout=layout))))
    assert 'arg_memory_spaces="5"' in module.text
    assert 'out_memory_spaces="0"' in module.text


def test_a_program_without_host_memory_stays_as_it_is():
    """Itself, not a copy."""
    module = parse_module(SourceText("m", ENDS.format(header="", layout="{1,0}")))
    assert name_moves(module) is module
