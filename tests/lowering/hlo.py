"""Small scheduled modules for the tests of lowering, from the lines of their entry computation."""

from __future__ import annotations

from tpusim.hardware.chip import Chip
from tpusim.hardware.load import load_chip
from tpusim.lowering.module import lower_module
from tpusim.program.module import Program
from tpusim.semantics.verify.module import verify_module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ADD = """\
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""


def lower_text(entry: str, others: str = "", chip: str | Chip = "v5e", **options: int) -> Program:
    """Return the lowered program of a scheduled module whose entry computation consists of the lines of ``entry``."""
    lines = "\n".join(f"  {line.strip()}" for line in entry.strip().splitlines())
    text = f"HloModule m, is_scheduled=true\n\n{others}\nENTRY %main () -> f32[] {{\n{lines}\n}}\n"
    return lower_module_text(text.replace("ENTRY %main () -> f32[] {", "ENTRY %main {"), chip, **options)


def lower_module_text(text: str, chip: str | Chip = "v5e", **options: int) -> Program:
    """Return the lowered program of a whole module's text."""
    made = load_chip(chip) if isinstance(chip, str) else chip
    return lower_module(verify_module(parse_module(SourceText("m.hlo", text))), made, **options)


def kernel_named(program: Program, name: str):
    """Return the step of a name at the top of a program."""
    return next(step for step in program.steps if step.name == name)
