"""Short texts for tests of inference and verification, and XLA's parser, which infers shapes too."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from tpusim.ir.module import Module
from tpusim.semantics.infer.rules import UNKNOWN, infer_shape
from tpusim.semantics.infer.types import plain
from tpusim.source import SourceText
from tpusim.text import parse_module

COMPUTATIONS = """
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
add16 { a = bf16[] parameter(0) b = bf16[] parameter(1) ROOT c = bf16[] add(a, b) }
add_s32 { a = s32[] parameter(0) b = s32[] parameter(1) ROOT c = s32[] add(a, b) }
add_vector { a = f32[2] parameter(0) b = f32[2] parameter(1) ROOT c = f32[2] add(a, b) }
mixed { a = f32[] parameter(0) b = s32[] parameter(1) ROOT c = f32[] negate(a) }
turned { a = s32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] negate(b) }
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
less4 { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }
negated { a = f32[] parameter(0) ROOT c = f32[] negate(a) }
three { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] parameter(2) ROOT d = f32[] add(a, b) }
pair { a = f32[] parameter(0) b = s32[] parameter(1) c = f32[] parameter(2) d = s32[] parameter(3)
  e = f32[] add(a, c) f = s32[] add(b, d) ROOT g = (f32[], s32[]) tuple(e, f) }
to_vector { a = f32[] parameter(0) ROOT c = f32[2] broadcast(a), dimensions={} }
on_vector { a = f32[2] parameter(0) b = f32[2] parameter(1) ROOT c = f32[] constant(0) }
less_vector { a = f32[] parameter(0) b = f32[] parameter(1) c = pred[] compare(a, b), direction=LT
  ROOT d = pred[2] broadcast(c), dimensions={} }
body { s = f32[2] parameter(0) ROOT r = f32[2] negate(s) }
grows { s = f32[2] parameter(0) ROOT r = f32[3] constant({1, 2, 3}) }
condition { s = f32[2] parameter(0) ROOT r = pred[] constant(true) }
number { s = f32[2] parameter(0) ROOT r = s32[] constant(1) }
condition3 { s = f32[3] parameter(0) ROOT r = pred[] constant(true) }
body3 { s = f32[3] parameter(0) ROOT r = f32[3] negate(s) }
body2 { s = f32[2] parameter(0) t = f32[2] parameter(1) ROOT r = f32[2] add(s, t) }
step { x = f32[] parameter(0) c = f32[] parameter(1) y = f32[] add(x, c) ROOT r = (f32[], f32[]) tuple(y, y) }
step_s32 { x = f32[] parameter(0) c = f32[] parameter(1) y = s32[] constant(1) ROOT r = (f32[], s32[]) tuple(x, y) }
"""
"""Computations that a text may call."""

_INSTRUCTION = re.compile(
    r"(?P<shape>.+ )?(?P<opcode>[a-z][a-z0-9-]*)\((?P<operands>.*?)\)(?P<rest>(?:, [a-z_]+=.*)?)\Z"
)


def one(text: str, header: str = "") -> str:
    """Return a module with one instruction after its parameters.

    ``text`` has the shapes of the operands where their names would stand: ``add(f32[2], f32[2])``.
    """
    found = _INSTRUCTION.match(text)
    assert found is not None, text
    shapes = split(found["operands"])
    lines = [f"p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes)]
    names = ", ".join(f"p{number}" for number in range(len(shapes)))
    lines.append(f"ROOT result = {found['shape'] or ''}{found['opcode']}({names}){found['rest']}")
    return f"HloModule m{header}\n{COMPUTATIONS}\nENTRY e {{\n" + "\n".join(lines) + "\n}\n"


def split(text: str) -> list[str]:
    """Split at commas that stand in no brackets."""
    shapes, depth = [""], 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            shapes.append("")
        else:
            shapes[-1] += character
    return [shape.strip() for shape in shapes if shape.strip()]


def is_stated(text: str) -> bool:
    """Whether the instruction has its shape before it."""
    found = _INSTRUCTION.match(text)
    return found is not None and found["shape"] is not None


def parse(text: str) -> Module:
    """Read a module."""
    return parse_module(SourceText("test.hlo", text))


def inferred(text: str, header: str = "") -> str:
    """Return the shape that we infer of one instruction; one that is stated stands in its place while it is read."""
    module = parse(one(text if is_stated(text) else f"f32[7,7,7] {text}", header))
    root = module.entry.root
    if not is_stated(text):
        root = msgspec.structs.replace(root, shape=UNKNOWN)
    return plain(infer_shape(module, root, [module.entry.by_name[name].shape for name in root.operands]))


def labels_in(path: Path) -> list[str]:
    """Return the labels that stand in a file of the package."""
    return re.findall(r'"([a-z][a-z0-9_]*_c[0-9]+)"', path.read_text())
