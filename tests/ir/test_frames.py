"""Where instructions come from: what a compiler has put in has the place of its use, or of its origin."""

from __future__ import annotations

import pytest

from tpusim.ir.frames import SourceFrames
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TEXT = """\
HloModule m, is_scheduled=true

ENTRY e {
  p = f32[8,128] parameter(0)
  copy-start = (f32[8,128]{1,0:S(1)}, f32[8,128], u32[]) copy-start(p)
  copy-done = f32[8,128]{1,0:S(1)} copy-done(copy-start)
  negated = f32[8,128] negate(copy-done), metadata={source_file="model.py" source_line=7}
  back-start = (f32[8,128], f32[8,128], u32[]) copy-start(negated)
  ROOT back-done = f32[8,128] copy-done(back-start)
}
"""


@pytest.mark.parametrize("name", ["p", "copy-start", "copy-done", "negated", "back-start", "back-done"])
def test_moves_have_the_place_of_what_they_are_for(name):
    """What goes in is for the negation; what comes out of it, which nothing uses, is from there."""
    module = parse_module(SourceText("m.hlo.txt", TEXT))
    assert SourceFrames(module).sources(module.entry)[name] == "model.py:7"


def test_uses_go_before_origins():
    """What is copied from one line for another is for the latter."""
    used = 'ROOT twice = f32[8,128] add(back-done, back-done), metadata={source_file="model.py" source_line=9}'
    text = TEXT.replace("ROOT back-done", "back-done").replace("(back-start)", f"(back-start)\n  {used}")
    module = parse_module(SourceText("m.hlo.txt", text))
    assert SourceFrames(module).sources(module.entry)["back-start"] == "model.py:9"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_lines_do_not_depend_on_which_are_asked_for_first(order):
    """They are counted from the nearest that is known, before or behind it."""
    halves = "\n\n".join(f"half{n} {{\n  a = f32[] parameter(0)\n\n  ROOT b{n} = f32[] negate(a)\n}}" for n in range(4))
    text = TEXT.replace("ENTRY", f"{halves}\n\nENTRY")
    module = parse_module(SourceText("m.hlo.txt", text))
    frames, lines = SourceFrames(module), text.splitlines()
    for computation in (module[f"half{n}"] for n in order):
        assert f"b{computation.name[-1]} =" in lines[frames.lines(computation)[computation.root_name] - 1]
    assert "back-done =" in lines[frames.lines(module.entry)[module.entry.root_name] - 1]
